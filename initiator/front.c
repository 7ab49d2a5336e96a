/* What a reactor does for the queues on it, whatever front they belong to. See front.h. */
#include "initiator/front.h"

#include "initiator/initiator.h"
#include "initiator/io.h"

static unsigned
free_contexts(const struct reactor *r)
{
	unsigned free = IO_CONTEXTS;
	const struct vq *q;

	list_for_each (&r->vqs, q, node)
		free -= MIN(free, q->inflight);
	return free;
}

unsigned
front_share(const struct vq *q, unsigned n, unsigned free)
{
	if (free <= q->inflight)
		return 0;
	return MIN(n, (free - q->inflight + 1) / 2);
}

void
front_poll(struct reactor *r)
{
	unsigned free = free_contexts(r);
	bool enough = true;
	struct vq *q;

	list_for_each (&r->vqs, q, node)
		enough &= q->ops->fetch(q, &free);
	if (!enough) /* another one is the first next time */
		list_push_back(&r->vqs, list_pop_front(&r->vqs));
}

static bool
any_work(const struct reactor *r)
{
	unsigned free = free_contexts(r);
	const struct vq *q;

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

	if (sleep)
		list_for_each (&r->vqs, q, node)
			armed |= q->ops->arm(q);
	if (armed) /* the VF moves its index, then looks at our flag: one of us sees the other */
		atomic_thread_fence(memory_order_seq_cst);
	return any_work(r);
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
