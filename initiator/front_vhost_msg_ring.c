/* Messages of a VMM about its rings. See front_vhost_msgs.h.
 *
 * Happy path: each fills a field; the last one that is missing makes vhost_ring_settle() start the
 * ring. GET_VRING_BASE waits until all that was taken is completed, and tells where it goes on.
 *
 * What can fail: a ring that there is not, or what must not be changed while it runs: an error.
 */
#include "initiator/front_vhost_msgs.h"

#include "initiator/front_shm_ring.h"

#include <errno.h>
#include <unistd.h>

static int
ring_index(struct vhost_conn *c, uint64_t i, struct vhost_ring **ret, struct err *err)
{
	if (i >= c->d->cfg.queues)
		return err_set(err, -EINVAL, "it speaks of ring %llu, there are %u",
		               (unsigned long long)i, c->d->cfg.queues);
	if (!vhost_ring_queue(c, (unsigned)i))
		return err_set(err, -ENOMEM, "no memory for a queue");
	*ret = &c->rings[i];
	return 0;
}

/* The same, for what may only be said while it does not run. */
static int
quiet_ring(struct vhost_conn *c, uint64_t i, struct vhost_ring **ret, struct err *err)
{
	int res = ring_index(c, i, ret, err);

	if (res == 0 && (*ret)->running)
		return err_set(err, -EBUSY, "it changes ring %llu while that runs",
		               (unsigned long long)i);
	return res;
}

int
vhost_set_vring_num(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int res = quiet_ring(c, c->in.state.index, &ring, err);

	if (res < 0)
		return res;
	if (c->in.state.num == 0 || c->in.state.num > VRING_SIZE_MAX)
		return err_set(err, -EINVAL, "ring %u cannot have %u entries", c->in.state.index,
		               c->in.state.num);
	ring->num = c->in.state.num;
	ring->has_num = true;
	return vhost_ring_settle(c, c->in.state.index, err);
}

int
vhost_set_vring_base(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int res = quiet_ring(c, c->in.state.index, &ring, err);

	if (res == 0)
		ring->base = c->in.state.num;
	return res;
}

int
vhost_set_vring_addr(struct vhost_conn *c, struct err *err)
{
	const struct vhost_addr *a = &c->in.addr;
	struct vhost_ring *ring;
	int res = ring_index(c, a->index, &ring, err);

	if (res < 0)
		return res;
	if (a->flags)
		return err_set(err, -EINVAL, "it asks for a log of ring %u, which was not offered",
		               a->index);
	ring->desc = a->desc;
	ring->avail = a->avail;
	ring->used = a->used;
	ring->has_addr = true;
	return ring->running ? vhost_ring_move(c, a->index, err)
	                     : vhost_ring_settle(c, a->index, err);
}

static int
base_finish(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring = &c->rings[c->in.state.index];

	(void)err;
	if (ring->q->kick_fd >= 0)
		close(ring->q->kick_fd);
	ring->q->kick_fd = -1;
	ring->has_kick = false;
	c->out.state = (struct vhost_state){ c->in.state.index, ring->base };
	c->out.hdr.size = sizeof(c->out.state);
	c->replying = true;
	return 0;
}

int
vhost_get_vring_base(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int res = ring_index(c, c->in.state.index, &ring, err);

	if (res < 0)
		return res;
	if (ring->running)
		vhost_ring_stop(c, c->in.state.index);
	c->finish = base_finish;
	return 0;
}

/* Index and descriptor of a KICK, CALL or ERR; -1: none comes. */
static int
eventfd_of(struct vhost_conn *c, struct vhost_ring **ret, int *ret_fd, struct err *err)
{
	bool none = c->in.u64 & VHOST_NO_FD;
	int res = ring_index(c, c->in.u64 & (VHOST_NO_FD - 1), ret, err);

	if (res < 0)
		return res;
	if (c->in.u64 >= 2 * VHOST_NO_FD || c->nfds != !none)
		return err_set(err, -EINVAL, "an eventfd 0x%llx came with %u descriptors",
		               (unsigned long long)c->in.u64, c->nfds);
	if (none) {
		*ret_fd = -1;
		return 0;
	}
	if (shm_judge_eventfd(c->fds[0], NULL) < 0)
		return err_set(err, -EINVAL, "what came as an eventfd is none");
	*ret_fd = vhost_take_fd(c, 0);
	return 0;
}

static unsigned
ring_number(const struct vhost_conn *c)
{
	return c->in.u64 & (VHOST_NO_FD - 1);
}

/* With the ring at rest. */
static int
kick_finish(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring = NULL;
	int fd = -1, res = eventfd_of(c, &ring, &fd, err);

	if (res < 0)
		return res;
	if (ring->q->kick_fd >= 0)
		close(ring->q->kick_fd);
	ring->q->kick_fd = fd;
	ring->has_kick = true;
	return vhost_ring_settle(c, ring_number(c), err);
}

int
vhost_set_vring_kick(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int res = ring_index(c, ring_number(c), &ring, err);

	if (res < 0)
		return res;
	if (ring->running)
		vhost_ring_stop(c, ring_number(c));
	c->finish = kick_finish;
	return 0;
}

int
vhost_set_vring_call(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int fd, res = eventfd_of(c, &ring, &fd, err);

	if (res == 0)
		vhost_ring_set_call(c, ring_number(c), fd);
	return res;
}

int
vhost_set_vring_err(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int fd, res = eventfd_of(c, &ring, &fd, err);

	if (res < 0)
		return res;
	if (ring->erring) { /* it is blocked, and of no use to anybody */
		if (fd >= 0)
			close(fd);
		return err_set(err, -EBUSY, "it does not read the eventfd for errors");
	}
	if (ring->err_fd >= 0)
		close(ring->err_fd);
	ring->err_fd = fd;
	return 0;
}

int
vhost_set_vring_enable(struct vhost_conn *c, struct err *err)
{
	struct vhost_ring *ring;
	int res = ring_index(c, c->in.state.index, &ring, err);

	if (res < 0)
		return res;
	if (c->in.state.num > 1)
		return err_set(err, -EINVAL, "a ring is enabled by 1 or 0, not %u",
		               c->in.state.num);
	ring->enabled = c->in.state.num;
	return vhost_ring_settle(c, c->in.state.index, err);
}
