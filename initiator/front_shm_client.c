/* A client of the shared-memory front: its messages and what they change. See front_shm_client.h.
 *
 * Happy path: 1. HELLO makes it a VF; 2. MEM_ADD and QUEUE_ADD bring descriptors, which are judged
 * and mapped; 3. its queues run on their reactors, and nothing comes here until it says QUEUE_DEL,
 * MEM_DEL or goes.
 *
 * One message is worked on at a time. What other reactors must learn travels as legs, one to each
 * queue concerned; the reply leaves when all are back. A client is freed when its queues are, and
 * no operation on its socket is in flight.
 *
 * What can fail: a message (its reply has an errno and a sentence); the socket: the client goes.
 */
#include "initiator/front_shm_client.h"

#include "common/fds.h"
#include "common/log.h"
#include "initiator/front_shm_queue.h"
#include "initiator/vf.h"
#include "initiator/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { QUEUES_OF_A_CLIENT = 64 };

static void
client_free(struct shm_client *c)
{
	struct front_shm *f = c->f;
	struct mem_table *mem = NULL;

	if (c->vf) {
		log_info("client %u (%s): gone", c->vf->id, c->vf->name);
		pthread_mutex_lock(&f->in->lock);
		mem = c->vf->mem;
		c->vf->mem = NULL;
		pthread_mutex_unlock(&f->in->lock);
		mem_table_put(mem);
		vf_put(c->vf);
	}
	list_del(&c->node);
	close(c->fd);
	free(c);
	f->nr_clients--;
	front_shm_check_end(f);
}

static void
client_close(struct shm_client *c)
{
	if (c->closing)
		return;
	c->closing = true;
	shutdown(c->fd, SHUT_RDWR); /* ends what is in flight */
}

/* queues */

static void
queue_free(struct shm_queue *q)
{
	struct shm_client *c = q->client;

	front_leave(q->vq.r);
	c->nr_queues--;
	list_del(&q->node);
	mem_table_put(q->mem);
	shm_ring_close(&q->ring);
	close(q->kick_fd);
	close(q->wake_fd);
	free(q);
}

static void
queue_broke(struct shm_queue *q, const char *why)
{
	struct shm_client *c = q->client;

	log_warn("client %u (%s): queue %u: %s; it is not served any more", c->vf->id, c->vf->name,
		 q->id, why);
	q->tell = true;
	shm_client_go_on(c);
}

static void
leg_home(struct shm_queue *q)
{
	struct shm_client *c = q->client;

	c->legs--;
	shm_client_go_on(c);
}

static void
ended_home(struct shm_queue *q)
{
	struct shm_client *c = q->client;

	queue_free(q);
	c->legs--;
	shm_client_go_on(c);
}

static void
queue_end(struct shm_client *c, struct shm_queue *q)
{
	q->leg_home = ended_home;
	c->legs++;
	shm_queue_end(q, c->f->r);
}

static int
take_fd(struct shm_client *c, unsigned i)
{
	int fd = c->fds[i];

	c->fds[i] = -1;
	return fd;
}

static int
queue_add(struct shm_client *c, struct err *err)
{
	struct shm_queue *q;
	int res;

	if (c->nfds != 3)
		return err_set(err, -EINVAL, "a queue comes with three descriptors, not %u",
			       c->nfds);
	if (c->nr_queues >= QUEUES_OF_A_CLIENT)
		return err_set(err, -ENOSPC, "there are %u queues already, the limit",
			       c->nr_queues);
	if ((res = shm_judge_eventfd(c->fds[1], err)) < 0 ||
	    (res = shm_judge_eventfd(c->fds[2], err)) < 0)
		return res;
	q = calloc(1, sizeof(*q));
	if (!q)
		return err_set(err, -ENOMEM, "no memory for a queue");
	res = shm_ring_open(&q->ring, take_fd(c, 0), c->in.size, err);
	if (res < 0) {
		free(q);
		return res;
	}
	q->client = c;
	q->id = c->next_id++;
	q->kick_fd = take_fd(c, 1);
	q->wake_fd = take_fd(c, 2);
	q->vq.r = front_place(c->f->in);
	q->vq.vf = c->vf;
	q->mem = mem_table_get(c->vf->mem);
	q->leg_home = leg_home;
	q->broke_home = queue_broke;
	c->nr_queues++;
	list_push_back(&c->queues, &q->node);
	c->legs++;
	shm_queue_attach(q, c->f->r);
	c->out.id = q->id;
	return 0;
}

static int
queue_del(struct shm_client *c, struct err *err)
{
	struct shm_queue *q;

	list_for_each (&c->queues, q, node) {
		if (q->id == c->in.id) {
			queue_end(c, q);
			return 0;
		}
	}
	return err_set(err, -ENOENT, "there is no queue %u", c->in.id);
}

/* memory */

/* Every queue goes on with the new table before the reply leaves. */
static void
take_table(struct shm_client *c, struct mem_table *mem)
{
	struct mem_table *old = c->vf->mem;
	struct shm_queue *q;

	pthread_mutex_lock(&c->f->in->lock);
	c->vf->mem = mem;
	pthread_mutex_unlock(&c->f->in->lock);
	mem_table_put(old);
	list_for_each (&c->queues, q, node) {
		q->leg_home = leg_home;
		c->legs++;
		shm_queue_take_mem(q, c->f->r, mem_table_get(mem));
	}
}

static int
mem_add(struct shm_client *c, struct err *err)
{
	struct mem_table *mem = NULL;
	int res;

	if (c->nfds != 1)
		return err_set(err, -EINVAL, "memory comes with one descriptor, not %u", c->nfds);
	res = shm_judge_pages(c->fds[0], err);
	if (res == 0)
		res = mem_table_add(c->vf->mem, take_fd(c, 0), 0, c->in.size, false, &c->out.addr,
				    &mem, err);
	if (res == 0)
		take_table(c, mem);
	return res;
}

static int
mem_del(struct shm_client *c, struct err *err)
{
	struct mem_table *mem = NULL;
	int res = mem_table_del(c->vf->mem, c->in.addr, &mem, err);

	if (res == 0)
		take_table(c, mem);
	return res;
}

/* the other messages */

/* Its "vms" entry was taken away. */
static void
vf_kicked(struct vf *vf, const char *why)
{
	struct shm_client *c = vf->front;

	log_info("client %u (%s): %s; disconnected", vf->id, vf->name, why);
	shm_client_drop(c);
}

static void
disk_changed(struct vf *vf, unsigned disk)
{
	struct shm_client *c = vf->front;

	if (c->closing)
		return;
	c->changed |= UINT64_C(1) << disk;
	shm_client_go_on(c);
}

static int
hello(struct shm_client *c, struct err *err)
{
	struct front_shm *f = c->f;
	struct mem_table *mem;

	c->out.abi = SLUICE_ABI;
	if (c->in.abi != SLUICE_ABI)
		return err_set(err, -EPROTO, "this daemon speaks ABI %u, not %u", SLUICE_ABI,
			       c->in.abi);
	if (c->vf)
		return err_set(err, -EISCONN, "hello was said already");
	mem = mem_table_new();
	if (!mem)
		return err_set(err, -ENOMEM, "no memory for a client");
	c->vf = vf_for_peer(f->in, c->cred.uid, (uint32_t)c->cred.pid, err);
	if (!c->vf) {
		mem_table_put(mem);
		log_warn("client of uid %u, pid %d: %s; refused", c->cred.uid, c->cred.pid,
			 err->text);
		return err->code ? err->code : -EACCES;
	}
	pthread_mutex_lock(&f->in->lock);
	c->vf->mem = mem;
	pthread_mutex_unlock(&f->in->lock);
	c->vf->front = c;
	c->vf->kick = vf_kicked;
	c->vf->changed = disk_changed;
	log_info("client %u (%s): uid %u, pid %d", c->vf->id, c->vf->name, c->cred.uid,
		 c->cred.pid);
	return 0;
}

static int
find_volume(struct shm_client *c, struct err *err)
{
	char *name = c->in.volume.name;
	struct log_quoted q;

	name[sizeof(c->in.volume.name) - 1] = '\0';
	if (vf_disk_find(c->vf, name, c->in.id, &c->out.volume) == 0)
		return 0;
	if (!name[0])
		return err_set(err, -ENOENT, "there is no disk at index %u", c->in.id);
	return err_set(err, -ENOENT, "there is no volume '%s' for you",
		       log_quote(&q, name, strlen(name)));
}

static int
handle(struct shm_client *c, struct err *err)
{
	if (!c->vf && c->in.op != SLUICE_MSG_HELLO)
		return err_set(err, -EPROTO, "the first message must be hello");
	switch (c->in.op) {
	case SLUICE_MSG_HELLO:
		return hello(c, err);
	case SLUICE_MSG_VOLUME:
		return find_volume(c, err);
	case SLUICE_MSG_MEM_ADD:
		return mem_add(c, err);
	case SLUICE_MSG_MEM_DEL:
		return mem_del(c, err);
	case SLUICE_MSG_QUEUE_ADD:
		return queue_add(c, err);
	case SLUICE_MSG_QUEUE_DEL:
		return queue_del(c, err);
	default:
		return err_set(err, -EOPNOTSUPP, "there is no message %u", c->in.op);
	}
}

/* messages in, messages out */

static void
close_fds(struct shm_client *c)
{
	for (unsigned i = 0; i < c->nfds; i++)
		if (c->fds[i] >= 0)
			close(c->fds[i]);
	c->nfds = 0;
}

static void
recv_done(struct op *op, int res, uint32_t flags)
{
	struct shm_client *c = container_of(op, struct shm_client, recv);
	struct err err = {0};

	(void)flags;
	c->receiving = false;
	if (res < 0 && (res == -EINTR || res == -EAGAIN)) {
		shm_client_go_on(c);
		return;
	}
	if (res >= 0)
		c->nfds = fds_collect(&c->msg, c->fds, 0, SHM_FDS);
	if (res == sizeof(c->in) && !(c->msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && !c->closing) {
		memset(&c->out, 0, sizeof(c->out));
		c->out.op = c->in.op;
		c->out.err = handle(c, &err);
		if (c->out.err)
			snprintf(c->out.text, sizeof(c->out.text), "%.95s", err.text);
		c->replying = true;
	} else {
		client_close(c);
	}
	close_fds(c);
	shm_client_go_on(c);
}

static void
client_recv(struct shm_client *c)
{
	c->iov = (struct iovec){&c->in, sizeof(c->in)};
	c->msg = (struct msghdr){
		.msg_iov = &c->iov,
		.msg_iovlen = 1,
		.msg_control = c->control,
		.msg_controllen = CMSG_LEN(sizeof(int) * SHM_FDS),
	};
	c->receiving = true;
	ring_recvmsg(c->f->r->ring, &c->recv, c->fd, &c->msg, false);
}

static void
send_done(struct op *op, int res, uint32_t flags)
{
	struct shm_client *c = container_of(op, struct shm_client, send);

	(void)flags;
	c->sending = false;
	if (res < 0 || !c->vf)
		client_close(c); /* one that was refused has been told why */
	shm_client_go_on(c);
}

/* Events have no reply of their own; whatever changed several times is told once, as it is now. */
static bool
next_event(struct shm_client *c)
{
	struct shm_queue *q;
	unsigned i;

	memset(&c->event, 0, sizeof(c->event));
	c->event.op = SLUICE_MSG_EVENT;
	list_for_each (&c->queues, q, node) {
		if (!q->tell)
			continue;
		q->tell = false;
		c->event.err = -EPROTO;
		c->event.id = q->id;
		snprintf(c->event.text, sizeof(c->event.text), "queue %u is not served any more: %s",
			 q->id, q->why);
		return true;
	}
	while (c->changed) {
		struct volume *vol;

		i = (unsigned)__builtin_ctzll(c->changed);
		c->changed &= c->changed - 1;
		vol = __atomic_load_n(&c->vf->disks[i], __ATOMIC_ACQUIRE);
		if (vol && vf_disk_find(c->vf, vol->name, 0, &c->event.volume) == 0)
			return true;
	}
	return false;
}

static void
client_send(struct shm_client *c, const struct sluice_msg *msg)
{
	c->sending = true;
	ring_send(c->f->r->ring, &c->send, c->fd, msg, sizeof(*msg));
}

/* What can be done now is done. May free the client. */
void
shm_client_go_on(struct shm_client *c)
{
	struct shm_queue *q;

	if (c->legs > 0 || c->sending)
		return;
	if (c->closing) {
		list_for_each (&c->queues, q, node)
			queue_end(c, q);
		if (c->legs == 0 && !c->receiving)
			client_free(c);
		return;
	}
	if (c->replying) {
		c->replying = false;
		client_send(c, &c->out);
	} else if (c->vf && next_event(c)) {
		client_send(c, &c->event);
	} else if (!c->receiving) {
		client_recv(c);
	}
}

int
shm_client_new(struct front_shm *f, int fd, const struct ucred *cred)
{
	struct shm_client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->f = f;
	c->fd = fd;
	c->cred = *cred;
	c->next_id = 1;
	c->recv = (struct op){recv_done, "shm.recv"};
	c->send = (struct op){send_done, "shm.send"};
	list_init(&c->queues);
	list_push_back(&f->clients, &c->node);
	f->nr_clients++;
	shm_client_go_on(c);
	return 0;
}

void
shm_client_drop(struct shm_client *c)
{
	client_close(c);
	shm_client_go_on(c);
}
