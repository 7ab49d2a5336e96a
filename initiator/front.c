/* What a reactor does for the queues on it, whatever front they belong to. See front.h. */
#include "initiator/front.h"

#include "initiator/initiator.h"
#include "initiator/io.h"

/* Contexts are shared so that VFs whose targets do not answer never hold all of them, however many
 * they are: a few of each queue come out of the spare ones, which nobody else may have; of the
 * others a queue has at most as many as it leaves free. */

static unsigned
beyond_sure(const struct vq *q)
{
	return q->inflight > IO_SURE ? q->inflight - IO_SURE : 0;
}

/* Those that are free and not spare. False: none at all is left. */
static bool
free_contexts(const struct reactor *r, unsigned *ret)
{
	unsigned free = IO_CONTEXTS - IO_SPARE, used = 0;
	const struct vq *q;

	list_for_each (&r->vqs, q, node) {
		used += q->inflight;
		free -= MIN(free, beyond_sure(q));
	}
	*ret = free;
	return used < IO_CONTEXTS;
}

unsigned
front_free(const struct reactor *r)
{
	unsigned free;

	return free_contexts(r, &free) ? free : 0;
}

unsigned
front_share(const struct vq *q, unsigned n, unsigned free)
{
	unsigned more = beyond_sure(q), sure = more ? 0 : IO_SURE - q->inflight;

	if (q->sched.nr_held > 0)
		return 0;
	return MIN(n, sure + (free > more ? (free - more + 1) / 2 : 0));
}

static bool
tell_all(struct reactor *r, enum vq_moment when)
{
	bool again = false;
	struct vq *q;

	list_for_each (&r->vqs, q, node)
		if (q->ops->tell)
			again |= q->ops->tell(q, when);
	return again;
}

void
front_poll(struct reactor *r)
{
	bool enough = true;
	unsigned free;
	struct vq *q;

	list_for_each (&r->vqs, q, node)
		if (q->ending && q->sched.nr_held > 0)
			(q->drains ? sched_release : sched_drop)(q);
	tell_all(r, VQ_TURN);
	if (!free_contexts(r, &free))
		return;
	list_for_each (&r->vqs, q, node)
		enough &= q->ops->fetch(q, &free);
	if (!enough) /* another one is the first next time */
		list_push_back(&r->vqs, list_pop_front(&r->vqs));
}

static bool
any_work(const struct reactor *r)
{
	const struct vq *q;
	unsigned free;

	if (!free_contexts(r, &free))
		return false;
	list_for_each (&r->vqs, q, node)
		if (q->ops->has_work(q, free))
			return true;
	return false;
}

bool
front_idle(void *arg, bool sleep)
{
	struct reactor *r = arg;
	bool armed = false;
	struct vq *q;

	if (tell_all(r, sleep ? VQ_SLEEP : VQ_IDLE))
		return true;
	if (sleep)
		list_for_each (&r->vqs, q, node)
			armed |= q->ops->arm(q);
	if (armed) /* the VF moves its index, then looks at our flag: one of us sees the other */
		atomic_thread_fence(memory_order_seq_cst);
	return any_work(r);
}

struct reactor *
front_place(struct initiator *in)
{
	struct reactor *best = &in->reactors[0];

	for (unsigned i = 1; i < in->nr_reactors; i++)
		if (in->reactors[i].nr_queues < best->nr_queues)
			best = &in->reactors[i];
	best->nr_queues++;
	return best;
}

void
front_leave(struct reactor *r)
{
	r->nr_queues--;
}

void
front_volume_changed(struct initiator *in, const struct volume *vol)
{
	struct vf *vf, *tmp;

	list_for_each_safe (&in->vfs, vf, tmp, node)
		for (unsigned i = 0; vf->changed && i < VF_DISKS_MAX; i++)
			if (__atomic_load_n(&vf->disks[i], __ATOMIC_RELAXED) == vol)
				vf->changed(vf, i);
	if (in->volume_changed)
		in->volume_changed(in, vol);
}
