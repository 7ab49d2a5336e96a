/* Reactors: their pools and contexts, and what ends a turn; the threads are a crew.
 *
 * A turn ends with: let go what was held and is due, fetch what VFs have queued, complete what has
 * ended, one send for each channel that has something. Stopping: main lets
 * the fronts and paths end first, turning reactor 0 meanwhile. What can fail: making a pool or the
 * contexts (a sentence, nothing runs then).
 */
#include "initiator/reactor.h"

#include "initiator/front.h"
#include "initiator/initiator.h"
#include "initiator/io.h"

#include <errno.h>
#include <stdlib.h>

enum {
	RING_ENTRIES = 1024,
	RING_BUFS = 8,
	POOL_LARGEST = 1 << 20, /* a whole part, VOLUME_PART_MAX */
};

static void
turn_hook(void *arg)
{
	struct reactor *r = arg;
	bool sends;

	sched_turn(r);
	front_poll(r);
	io_turn(r);
	sends = !list_empty(&r->dirty);
	chan_flush_all(&r->dirty);
	if (sends && ring_yields(r->ring)) /* nobody waits for a client's turn */
		ring_submit(r->ring);
}

static void
pools_free(struct reactor *r)
{
	io_pool_free(r);
	buf_pool_free(r->pool);
}

static void
reactor_fini(struct crew_thread *t)
{
	pools_free(container_of(t, struct reactor, thread));
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

static int
reactor_init(struct crew_thread *t, struct err *err)
{
	struct reactor *r = container_of(t, struct reactor, thread);
	int res;

	r->ring = t->ring;
	list_init(&r->dirty);
	list_init(&r->vqs);
	sched_init(r);
	res = make_pools(r, err);
	if (res < 0) {
		pools_free(r);
		return res;
	}
	ring_set_turn_hook(r->ring, turn_hook, r);
	ring_set_idle_hook(r->ring, front_idle, r);
	return 0;
}

static const struct crew_ops crew_ops = { reactor_init, NULL, reactor_fini };

int
reactors_start(struct initiator *in, struct err *err)
{
	unsigned n = in->nr_reactors;

	in->crew = (struct crew){
		.ops = &crew_ops,
		.ring = {
			.entries = RING_ENTRIES,
			.max_bufs = RING_BUFS,
			.poll_us = in->poll_us,
			.name = "reactor",
		},
		.n = n,
	};
	in->reactors = calloc(n, sizeof(*in->reactors));
	if (!in->reactors)
		return err_set(err, -ENOMEM, "no memory for %u reactors", n);
	for (unsigned i = 0; i < n; i++) {
		struct reactor *r = &in->reactors[i];

		r->in = in;
		r->id = r->thread.id = i;
		r->thread.cpu = in->cpus[i];
		in->crew.threads[i] = &r->thread;
	}
	return crew_start(&in->crew, err);
}

void
reactors_stop(struct initiator *in)
{
	crew_stop(&in->crew, NULL, NULL);
	free(in->reactors);
	in->reactors = NULL;
}
