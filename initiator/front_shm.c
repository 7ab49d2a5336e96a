/* The shared-memory front: listening and accepting. See front_shm.h.
 *
 * Happy path: a connection is accepted and its credentials make it a client, which
 * front_shm_client.c serves.
 *
 * What can fail: listening (a sentence); accept(): tried again a moment later; a connection too
 * many: it is closed at once.
 */
#include "initiator/front_shm.h"

#include "common/ctl_path.h"
#include "common/log.h"
#include "initiator/front_shm_client.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define ACCEPT_RETRY_NS 100000000ull

enum {
	CLIENTS_MAX = 512,
	CLIENTS_OF_A_USER = 128, /* so that one user cannot keep out the others */
};

/* the end */

void
front_shm_check_end(struct front_shm *f)
{
	if (!f->stopping || f->accepting || f->nr_clients > 0 || f->fd < 0)
		return;
	close(f->fd);
	f->fd = -1;
	ring_post(f->r->ring, f->r->ring, &f->end);
}

static void
end_posted(struct op *op, int res, uint32_t flags)
{
	struct front_shm *f = container_of(op, struct front_shm, end);

	(void)res;
	(void)flags;
	f->stopped(f->stopped_arg);
}

/* accepting */

static unsigned
clients_of(const struct front_shm *f, uid_t uid)
{
	const struct shm_client *c;
	unsigned n = 0;

	list_for_each (&f->clients, c, node)
		n += c->cred.uid == uid;
	return n;
}

static void
client_new(struct front_shm *f, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
	    f->nr_clients >= CLIENTS_MAX || clients_of(f, cred.uid) >= CLIENTS_OF_A_USER ||
	    shm_client_new(f, fd, &cred) < 0) {
		log_warn("shm socket: %u clients are connected, another one is refused",
			 f->nr_clients);
		close(fd);
	}
}

static void
accept_next(struct front_shm *f)
{
	f->accepting = true;
	ring_accept(f->r->ring, &f->accept, f->fd, NULL, NULL);
}

static void
retry_fire(struct ring_timer *t)
{
	accept_next(container_of(t, struct front_shm, retry));
}

static void
accept_done(struct op *op, int res, uint32_t flags)
{
	struct front_shm *f = container_of(op, struct front_shm, accept);

	(void)flags;
	f->accepting = false;
	if (f->stopping) {
		if (res >= 0)
			close(res);
		front_shm_check_end(f);
	} else if (res >= 0) {
		client_new(f, res);
		accept_next(f);
	} else {
		ring_timer_set(f->r->ring, &f->retry, ring_now(f->r->ring) + ACCEPT_RETRY_NS);
	}
}

/* the front */

int
front_shm_new(struct initiator *in, const char *path, struct front_shm **ret, struct err *err)
{
	struct front_shm *f = calloc(1, sizeof(*f));

	if (!f || !(f->path = strdup(path))) {
		free(f);
		return err_set(err, -ENOMEM, "out of memory");
	}
	f->in = in;
	f->r = &in->reactors[0];
	list_init(&f->clients);
	ring_timer_init(&f->retry, retry_fire);
	f->accept = (struct op){accept_done, "shm.accept"};
	f->end = (struct op){end_posted, "shm.end"};
	/* Anybody may knock: the credentials decide who comes in. */
	f->fd = ctl_listen_as(path, SOCK_SEQPACKET, 0666, &f->inode, err);
	if (f->fd < 0) {
		int res = f->fd;

		front_shm_free(f);
		return res;
	}
	accept_next(f);
	*ret = f;
	return 0;
}

void
front_shm_stop(struct front_shm *f, void (*stopped)(void *arg), void *arg)
{
	struct shm_client *c, *tmp;
	struct stat st;

	f->stopping = true;
	f->stopped = stopped;
	f->stopped_arg = arg;
	if (lstat(f->path, &st) == 0 && st.st_dev == f->inode.st_dev &&
	    st.st_ino == f->inode.st_ino)
		unlink(f->path);
	ring_timer_del(&f->retry);
	if (f->accepting)
		ring_cancel(f->r->ring, &f->accept);
	list_for_each_safe (&f->clients, c, tmp, node)
		shm_client_drop(c);
	front_shm_check_end(f);
}

void
front_shm_free(struct front_shm *f)
{
	if (!f)
		return;
	free(f->path);
	free(f);
}
