/* Reactors: their pools and connections; the threads are a crew.
 *
 * Stopping: each reactor kills its connections and turns its ring until none is left anywhere, then
 * its thread ends. What can fail: making a pool (a sentence, nothing runs then). Registration of
 * the pool with the ring is tried; refused means plain reads and writes, told once.
 */
#include "target/reactor.h"

#include "common/log.h"
#include "common/zframe.h"
#include "target/conn.h"
#include "target/io.h"
#include "target/target.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define SWEEP_NS 1000000000ull /* time-outs are whole seconds: one look a second is enough */

enum {
	RING_ENTRIES = 1024,
	RING_BUFS = 8,
	ADMIN_POOL = 1 << 20,
};

static void
turn_hook(void *arg)
{
	struct reactor *r = arg;

	chan_flush_all(&r->dirty);
}

static void
sweep(struct ring_timer *t)
{
	struct reactor *r = container_of(t, struct reactor, sweep);

	conn_sweep(r);
	ring_timer_set(r->ring, &r->sweep, ring_now(r->ring) + SWEEP_NS);
}

static void
reactor_stop(struct crew_thread *t)
{
	conn_kill_all(container_of(t, struct reactor, thread), "the target stops");
}

static void
pools_free(struct reactor *r)
{
	buf_pool_free(r->pool);
	buf_pool_free(r->admin_pool);
}

static void
reactor_fini(struct crew_thread *t)
{
	struct reactor *r = container_of(t, struct reactor, thread);

	pools_free(r);
	zframe_free(r->zip);
}

static int
reactor_init(struct crew_thread *t, struct err *err)
{
	struct reactor *r = container_of(t, struct reactor, thread);
	const struct limits *l = &r->target->limits;
	/* A command's data and its second buffer are one lease. */
	uint32_t largest = 2 * MAX(l->mdts, (uint32_t)IO_CHUNK);
	int res;

	r->ring = t->ring;
	list_init(&r->conns);
	list_init(&r->dirty);
	res = buf_pool_new(r->ring, l->buffers / l->reactors, largest, &r->pool, err);
	if (res == 0)
		res = buf_pool_new(NULL, ADMIN_POOL, largest, &r->admin_pool, err);
	if (res < 0) {
		pools_free(r);
		return res;
	}
	if (buf_pool_index(r->pool) < 0 && r->id == 0)
		log_info("buffers cannot be registered (limit on locked memory): plain reads and "
		         "writes");
	ring_set_turn_hook(r->ring, turn_hook, r);
	limit_init(r);
	ring_timer_init(&r->sweep, sweep);
	ring_timer_set(r->ring, &r->sweep, ring_now(r->ring) + SWEEP_NS);
	return 0;
}

/* The n-th cpu that this process may use, round and round. */
static int
nth_cpu(unsigned n)
{
	cpu_set_t set;
	int cpu;

	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) == 0)
		return -1;
	n %= (unsigned)CPU_COUNT(&set);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && n-- == 0)
			return cpu;
	return -1;
}

static const struct crew_ops crew_ops = { reactor_init, reactor_stop, reactor_fini };

int
reactors_start(struct target *t, struct err *err)
{
	unsigned n = t->limits.reactors;

	t->crew = (struct crew){
		.ops = &crew_ops,
		.ring = {
			.entries = RING_ENTRIES,
			.max_bufs = RING_BUFS,
			.poll_us = t->limits.poll_us,
			.name = "reactor",
		},
		.n = n,
	};
	t->reactors = calloc(n, sizeof(*t->reactors));
	if (!t->reactors)
		return err_set(err, -ENOMEM, "no memory for %u reactors", n);
	for (unsigned i = 0; i < n; i++) {
		struct reactor *r = &t->reactors[i];

		r->target = t;
		r->id = r->thread.id = i;
		r->thread.cpu = t->limits.pin ? nth_cpu(i) : -1;
		t->crew.threads[i] = &r->thread;
	}
	t->nr_reactors = n;
	return crew_start(&t->crew, err);
}

void
reactors_run(struct target *t)
{
	crew_run(&t->crew);
}

static bool
has_connections(void *arg)
{
	const struct target *t = arg;

	return t->nr_conns > 0;
}

void
reactors_stop(struct target *t)
{
	crew_stop(&t->crew, has_connections, t);
	free(t->reactors);
	t->reactors = NULL;
}
