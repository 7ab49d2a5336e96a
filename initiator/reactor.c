/* Reactors: making their rings, pools and contexts, running, ending.
 *
 * Each ring is made on the thread that uses it. reactors_start() returns when all are ready, so
 * that posts between them always find a ring. Reactor 0 runs on the main thread. A turn ends with:
 * fetch what VFs have queued, complete what has ended, one send for each channel that has
 * something. Stopping: main lets the fronts and paths end first, turning reactor 0 meanwhile; then
 * reactors_stop() tells every reactor that this was all, and its thread ends.
 *
 * What can fail: making a ring, a pool or the contexts (a sentence, nothing runs then).
 */
#include "initiator/reactor.h"

#include "common/log.h"
#include "initiator/front.h"
#include "initiator/initiator.h"
#include "initiator/io.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#define TICK_NS 10000000ull /* how often a stopping initiator looks whether it is done */

enum {
	RING_ENTRIES = 1024,
	RING_BUFS = 8,
	RING_FILES = 64,
	POOL_LARGEST = 1 << 20, /* a whole part, VOLUME_PART_MAX */
};

struct starting {
	struct reactor *r;
	sem_t ready;
	struct err err;
	int res;
};

static void
turn_hook(void *arg)
{
	struct reactor *r = arg;

	front_poll(r);
	io_turn(r);
	chan_flush_all(&r->dirty);
}

/* Stopping has two steps, since reactors need each other until the last queue and connection of all
 * is gone: after the first a reactor starts nothing new, the second ends its loop. */
static void
stop_posted(struct op *op, int res, uint32_t flags)
{
	struct reactor *r = container_of(op, struct reactor, stop_op);

	(void)res;
	(void)flags;
	if (r->stopping)
		ring_stop(r->ring);
	r->stopping = true;
}

static void
pin(const struct reactor *r)
{
	cpu_set_t set;

	if (r->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)r->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		log_warn("reactor %u: cannot pin to cpu %d, running anywhere", r->id, r->cpu);
}

static void
reactor_fini(struct reactor *r)
{
	if (!r->ring)
		return;
	io_pool_free(r);
	if (r->pool)
		buf_pool_free(r->pool);
	ring_free(r->ring);
	r->ring = NULL;
}

static int
make_pools(struct reactor *r, struct err *err)
{
	const struct initiator *in = r->in;
	int res = buf_pool_new(r->ring, in->buffers / in->nr_reactors, POOL_LARGEST, &r->pool, err);

	if (res < 0)
		return res;
	res = io_pool_new(r);
	return res < 0 ? err_set(err, res, "no memory for the I/O contexts of reactor %u", r->id)
		       : 0;
}

/* On the reactor's own thread. */
static int
reactor_init(struct reactor *r, struct err *err)
{
	struct ring_config cfg = {
		.entries = RING_ENTRIES,
		.max_bufs = RING_BUFS,
		.max_files = RING_FILES,
		.poll_us = r->in->poll_us,
		.name = "reactor",
	};
	int res;

	list_init(&r->dirty);
	list_init(&r->vqs);
	r->stop_op = (struct op){stop_posted, "reactor.stop"};
	pin(r);
	res = ring_new(&cfg, &r->ring, err);
	if (res < 0)
		return res;
	res = make_pools(r, err);
	if (res < 0) {
		reactor_fini(r);
		return res;
	}
	ring_set_turn_hook(r->ring, turn_hook, r);
	ring_set_idle_hook(r->ring, front_idle, r);
	return 0;
}

static void *
reactor_thread(void *arg)
{
	struct starting *s = arg;
	struct reactor *r = s->r;

	s->res = reactor_init(r, &s->err);
	if (s->res < 0) {
		sem_post(&s->ready);
		return NULL;
	}
	sem_post(&s->ready); /* s is gone from here on */
	ring_run(r->ring);
	return NULL;
}

static int
start_thread(struct reactor *r, struct err *err)
{
	struct starting s = {.r = r};
	int res;

	sem_init(&s.ready, 0, 0);
	res = pthread_create(&r->thread, NULL, reactor_thread, &s);
	if (res)
		return err_set(err, -res, "cannot start reactor %u", r->id);
	while (sem_wait(&s.ready) < 0 && errno == EINTR)
		;
	sem_destroy(&s.ready);
	if (s.res < 0) {
		pthread_join(r->thread, NULL);
		if (err)
			*err = s.err;
	}
	return s.res;
}

int
reactors_start(struct initiator *in, struct err *err)
{
	unsigned n = in->nr_reactors, i;
	int res = 0;

	in->reactors = calloc(n, sizeof(*in->reactors));
	if (!in->reactors)
		return err_set(err, -ENOMEM, "no memory for %u reactors", n);
	for (i = 0; i < n; i++) {
		in->reactors[i].id = i;
		in->reactors[i].in = in;
		in->reactors[i].cpu = in->cpus[i];
	}
	for (i = 1; i < n && res == 0; i++)
		res = start_thread(&in->reactors[i], err);
	return res == 0 ? reactor_init(&in->reactors[0], err) : res;
}

void
reactors_run(struct initiator *in)
{
	ring_run(in->reactors[0].ring);
}

static void
tick(struct ring_timer *t)
{
	(void)t; /* only there to wake the ring */
}

/* Turns reactor 0 until nothing of its own is in flight. */
static void
turn_until_idle(struct reactor *r0)
{
	struct ring_timer t;

	ring_timer_init(&t, tick);
	while (ring_inflight(r0->ring) > 0) {
		ring_timer_set(r0->ring, &t, ring_now(r0->ring) + TICK_NS);
		ring_turn(r0->ring);
	}
	ring_timer_del(&t);
}

void
reactors_turn_while(struct initiator *in, bool (*busy)(void *arg), void *arg, uint64_t ns)
{
	struct ring *ring = in->reactors[0].ring;
	uint64_t until = ring_now(ring) + ns;
	struct ring_timer t;

	ring_timer_init(&t, tick);
	while (busy(arg) && ring_now(ring) < until) {
		ring_timer_set(ring, &t, ring_now(ring) + TICK_NS);
		ring_turn(ring);
	}
	ring_timer_del(&t);
}

static void
stop_all(struct initiator *in)
{
	struct ring *ring = in->reactors[0].ring;

	for (unsigned i = 0; i < in->nr_reactors; i++)
		ring_post(ring, in->reactors[i].ring, &in->reactors[i].stop_op);
	ring_turn(ring); /* posts are not counted in flight: without a turn they would not leave */
}

void
reactors_stop(struct initiator *in)
{
	struct reactor *r0 = &in->reactors[0];
	unsigned i;

	stop_all(in);
	turn_until_idle(r0);
	stop_all(in);
	turn_until_idle(r0);
	for (i = 1; i < in->nr_reactors; i++)
		pthread_join(in->reactors[i].thread, NULL);
	for (i = 0; i < in->nr_reactors; i++)
		reactor_fini(&in->reactors[i]);
	free(in->reactors);
	in->reactors = NULL;
}
