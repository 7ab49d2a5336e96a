/* A connection of a VMM to its vhost-user-blk device: bytes in, replies out, its life.
 *
 * Happy path: 1. a header with its descriptors, then its payload are received; 2. front_vhost_msg.c
 * does what it says; 3. when the queues concerned have followed, the answer leaves, if one is due;
 * 4. the next message is received. One message is worked on at a time.
 *
 * What can fail: a message, or what it asks for takes too long: the connection ends with a line in
 * the log. The VMM goes. In both cases the queues stop, what they have in flight ends unseen by the
 * guest (it stands in the inflight area, for the next connection), and then all is freed.
 */
#include "initiator/front_vhost_inner.h"

#include "common/fds.h"
#include "common/log.h"
#include "initiator/vf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BOUND_NS 15000000000ull /* what a message waits for */
#define LEAVE_NS 5000000000ull  /* a device that goes */

/* the end */

static void
close_fds(struct vhost_conn *c)
{
	for (unsigned i = 0; i < c->nfds; i++)
		if (c->fds[i] >= 0)
			close(c->fds[i]);
	c->nfds = 0;
	if (c->out_fd >= 0)
		close(c->out_fd);
	c->out_fd = -1;
}

static void
conn_free(struct vhost_conn *c)
{
	struct vhost_dev *d = c->d;
	struct initiator *in = d->f->in;
	struct mem_table *mem;

	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++)
		vhost_ring_free(c, i);
	initiator_lock(in);
	mem = c->vf->mem;
	c->vf->mem = NULL;
	d->conn = NULL;
	initiator_unlock(in);
	mem_table_put(mem);
	mem_table_put(c->inflight);
	vf_put(c->vf);
	close_fds(c);
	if (c->back_fd >= 0)
		close(c->back_fd);
	if (c->inflight_fd >= 0)
		close(c->inflight_fd);
	for (unsigned i = 0; i < c->nr_regions; i++)
		close(c->region_fds[i]);
	close(c->fd);
	ring_timer_del(&c->bound);
	free(c);
	vhost_dev_go_on(d);
}

bool
vhost_conn_queues_back(struct vhost_conn *c)
{
	bool running = false;

	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++) {
		if (c->rings[i].running && !c->rings[i].busy)
			vhost_ring_stop(c, i);
		running |= c->rings[i].running;
	}
	return !running && c->legs == 0;
}

static bool
cancel_writes(struct vhost_conn *c)
{
	struct ring *ring = c->d->f->r->ring;
	bool any = c->backing;

	if (c->backing)
		ring_cancel(ring, &c->back);
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++) {
		if (!c->rings[i].erring)
			continue;
		ring_cancel(ring, &c->rings[i].err);
		any = true;
	}
	return any;
}

static void
closing_go_on(struct vhost_conn *c)
{
	if (!vhost_conn_queues_back(c))
		return;
	if (!c->closed) {
		c->closed = true;
		shutdown(c->fd, SHUT_RDWR); /* ends what is in flight on it */
		if (cancel_writes(c))
			return;
	}
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++)
		if (c->rings[i].erring)
			return;
	if (!c->receiving && !c->sending && !c->backing)
		conn_free(c);
}

void
vhost_conn_end(struct vhost_conn *c, const char *why)
{
	if (c->closing && !c->graceful)
		return;
	if (why)
		log_warn("%s: pid %d: %s; disconnected", c->d->label, (int)c->cred.pid, why);
	else
		log_info("%s: pid %d has gone", c->d->label, (int)c->cred.pid);
	c->d->faults += why != NULL;
	c->closing = true;
	c->graceful = false;
	ring_timer_del(&c->bound);
	shutdown(c->fd, SHUT_RDWR);
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++)
		if (c->rings[i].running)
			vhost_ring_abandon(c, i);
	vhost_conn_go_on(c);
}

void
vhost_conn_leave(struct vhost_conn *c)
{
	if (!c->closing) {
		log_info("%s: removed, pid %d will be disconnected", c->d->label, (int)c->cred.pid);
		c->closing = c->graceful = true;
		ring_timer_set(c->d->f->r->ring, &c->bound, ring_now(c->d->f->r->ring) + LEAVE_NS);
	}
	vhost_conn_go_on(c);
}

static void
bound_fire(struct ring_timer *t)
{
	struct vhost_conn *c = container_of(t, struct vhost_conn, bound);

	if (c->handing && !c->closing) {
		vhost_upgrade_rush(c);
		return;
	}
	vhost_conn_end(c, c->graceful ? "its requests did not end within 5 s"
	                              : "its requests did not end within 15 s");
}

/* replies */

static void
send_done(struct op *op, int res, uint32_t flags)
{
	struct vhost_conn *c = container_of(op, struct vhost_conn, send);

	(void)flags;
	c->sending = false;
	close_fds(c);
	if (!c->closing && res != (int)(sizeof(c->out.hdr) + c->out.hdr.size)) {
		vhost_conn_end(c, NULL); /* a reply is small: the socket broke */
		return;
	}
	vhost_conn_go_on(c);
}

static void
send_out(struct vhost_conn *c)
{
	c->out.hdr.id = c->in.hdr.id;
	c->out.hdr.flags = VHOST_VERSION | VHOST_REPLY;
	c->iov[0] = (struct iovec){ &c->out.hdr, sizeof(c->out.hdr) };
	c->iov[1] = (struct iovec){ c->out.bytes, c->out.hdr.size };
	c->msg = (struct msghdr){ .msg_iov = c->iov, .msg_iovlen = c->out.hdr.size ? 2 : 1 };
	if (c->out_fd >= 0) {
		struct cmsghdr *m = (struct cmsghdr *)c->control;

		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &c->out_fd, sizeof(int));
		c->msg.msg_control = c->control;
		c->msg.msg_controllen = CMSG_SPACE(sizeof(int));
	}
	c->sending = true;
	ring_sendmsg(c->d->f->r->ring, &c->send, c->fd, &c->msg);
}

/* The message is dealt with: an answer of its own, or the one that was asked for, or none. */
static void
answer(struct vhost_conn *c)
{
	bool ack = (c->in.hdr.flags & VHOST_NEED_REPLY) && (c->protocol & BIT64(VHOST_P_REPLY_ACK));

	c->working = false;
	c->got = 0;
	ring_timer_del(&c->bound);
	if (!c->replying && ack) {
		c->out.u64 = 0;
		c->out.hdr.size = sizeof(c->out.u64);
		c->replying = true;
	}
	if (c->replying)
		send_out(c);
	else
		close_fds(c);
	c->replying = false;
}

/* What was left to do when all orders are back; may give further ones. False: c has ended. */
static bool
finish(struct vhost_conn *c)
{
	int (*f)(struct vhost_conn * c, struct err * err) = c->finish;
	struct err err = { 0 };

	c->finish = NULL;
	if (!f || f(c, &err) == 0)
		return true;
	vhost_conn_end(c, err.text);
	return false;
}

/* the channel back */

static void
back_done(struct op *op, int res, uint32_t flags)
{
	struct vhost_conn *c = container_of(op, struct vhost_conn, back);

	(void)flags;
	c->backing = false;
	if (res != sizeof(c->back_hdr)) {
		close(c->back_fd);
		c->back_fd = -1;
	}
	vhost_conn_go_on(c);
}

static void
send_back(struct vhost_conn *c)
{
	c->changed = false;
	c->backing = true;
	c->back_hdr = (struct vhost_hdr){ VHOST_BACKEND_CONFIG_CHANGE, VHOST_VERSION, 0 };
	ring_send(c->d->f->r->ring, &c->back, c->back_fd, &c->back_hdr, sizeof(c->back_hdr));
}

void
vhost_conn_volume_changed(struct vhost_conn *c)
{
	uint64_t bytes = c->d->vol->bytes;

	if (c->closing || bytes <= c->d->bytes)
		return;
	c->d->bytes = bytes;
	c->changed = true;
	vhost_conn_go_on(c);
}

/* messages in */

int
vhost_take_fd(struct vhost_conn *c, unsigned i)
{
	int fd = c->fds[i];

	c->fds[i] = -1;
	return fd;
}

static void
work(struct vhost_conn *c)
{
	struct err err = { 0 };

	c->working = true;
	c->finish = NULL;
	if (vhost_msg_handle(c, &err) < 0) {
		vhost_conn_end(c, err.text);
		return;
	}
	if (c->legs > 0)
		ring_timer_set(c->d->f->r->ring, &c->bound, ring_now(c->d->f->r->ring) + BOUND_NS);
	vhost_conn_go_on(c);
}

static void
look_at_received(struct vhost_conn *c)
{
	struct err err = { 0 };

	if (c->got >= sizeof(c->in.hdr) && vhost_msg_judge(c, &err) < 0)
		vhost_conn_end(c, err.text);
	else if (c->got >= sizeof(c->in.hdr) && c->got == sizeof(c->in.hdr) + c->in.hdr.size)
		work(c);
	else
		vhost_conn_go_on(c);
}

static void
take_bytes(struct vhost_conn *c, size_t n)
{
	bool header = c->got < sizeof(c->in.hdr);

	if (header)
		c->nfds = fds_collect(&c->msg, c->fds, c->nfds, VHOST_FDS_MAX);
	c->got += n;
	if (header && (c->msg.msg_flags & MSG_CTRUNC))
		vhost_conn_end(c, "a message came with more descriptors than any may have");
	else
		look_at_received(c);
}

static void
recv_done(struct op *op, int res, uint32_t flags)
{
	struct vhost_conn *c = container_of(op, struct vhost_conn, recv);

	(void)flags;
	c->receiving = false;
	if (c->closing || (c->handing && (res > 0 || res == -ECANCELED))) {
		if (res > 0 && c->got < sizeof(c->in.hdr))
			c->nfds = fds_collect(&c->msg, c->fds, c->nfds, VHOST_FDS_MAX);
		c->got += res > 0 ? (size_t)res : 0;
		vhost_conn_go_on(c);
	} else if (res > 0) {
		take_bytes(c, (size_t)res);
	} else if (res == -EINTR || res == -EAGAIN) {
		vhost_conn_go_on(c);
	} else {
		vhost_conn_end(c, c->got ? "it closed within a message" : NULL);
	}
}

static void
recv_more(struct vhost_conn *c)
{
	struct ring *ring = c->d->f->r->ring;
	size_t at = c->got - MIN(c->got, sizeof(c->in.hdr));

	c->receiving = true;
	if (c->got >= sizeof(c->in.hdr)) {
		ring_recv(ring, &c->recv, c->fd, c->in.bytes + at, c->in.hdr.size - at);
		return;
	}
	c->iov[0] = (struct iovec){ (char *)&c->in.hdr + c->got, sizeof(c->in.hdr) - c->got };
	c->msg = (struct msghdr){
		.msg_iov = c->iov,
		.msg_iovlen = 1,
		.msg_control = c->control,
		.msg_controllen = CMSG_LEN(sizeof(int) * VHOST_FDS_MAX),
	};
	ring_recvmsg(ring, &c->recv, c->fd, &c->msg, false);
}

void
vhost_conn_go_on(struct vhost_conn *c)
{
	if (c->closing) {
		closing_go_on(c);
		return;
	}
	if (c->parked)
		return;
	if (c->changed && c->back_fd >= 0 && !c->backing)
		send_back(c);
	if (c->sending)
		return;
	if (c->resuming) { /* when the rings have started */
		c->resuming = c->legs > 0;
		if (!c->resuming)
			look_at_received(c);
		return;
	}
	if (c->handing && !c->working) {
		vhost_upgrade_park(c);
		return;
	}
	if (c->working && c->legs == 0 && !finish(c))
		return;
	if (c->working && c->legs == 0)
		answer(c);
	if (c->handing && !c->working && !c->sending)
		vhost_upgrade_park(c);
	else if (!c->working && !c->sending && !c->receiving)
		recv_more(c);
}

struct vhost_conn *
vhost_conn_make(struct vhost_dev *d, int fd, const struct ucred *cred)
{
	struct initiator *in = d->f->in;
	struct vhost_conn *c = calloc(1, sizeof(*c));
	struct mem_table *mem = mem_table_new();

	if (!c || !mem ||
	    !(c->vf = vf_for_disk(in, d->vm, d->vol, cred->uid, (uint32_t)cred->pid))) {
		mem_table_put(mem);
		free(c);
		return NULL;
	}
	c->d = d;
	c->cred = *cred;
	c->fd = fd;
	c->out_fd = c->back_fd = c->inflight_fd = -1;
	c->wce = d->vol->vwc;
	c->recv = (struct op){ recv_done, "vhost.recv" };
	c->send = (struct op){ send_done, "vhost.send" };
	c->back = (struct op){ back_done, "vhost.back" };
	ring_timer_init(&c->bound, bound_fire);
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++)
		c->rings[i].err_fd = -1;
	initiator_lock(in);
	c->vf->mem = mem;
	c->vf->front = c;
	d->conn = c;
	initiator_unlock(in);
	return c;
}

void
vhost_conn_resume(struct vhost_conn *c)
{
	c->resuming = true;
	vhost_conn_go_on(c);
}

int
vhost_conn_new(struct vhost_dev *d, int fd, const struct ucred *cred)
{
	struct vhost_conn *c = vhost_conn_make(d, fd, cred);

	if (!c)
		return -ENOMEM;
	log_info("%s: pid %d of uid %u has connected", d->label, (int)cred->pid, cred->uid);
	vhost_conn_go_on(c);
	return 0;
}
