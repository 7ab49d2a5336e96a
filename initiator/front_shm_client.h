/* One client of the shared-memory front, on reactor 0, and the front itself. Private to
 * front_shm*.c. */
#ifndef SLUICE_FRONT_SHM_CLIENT_H
#define SLUICE_FRONT_SHM_CLIENT_H

#include "initiator/client/sluice.h"
#include "initiator/front.h"
#include "initiator/initiator.h"

#include <sys/stat.h>

enum { SHM_FDS = 3 }; /* in one message */

struct front_shm {
	struct initiator *in;
	struct reactor *r; /* 0 */
	char *path;        /* ours */
	struct stat inode; /* of the socket that we bound: we remove no other */
	int fd;
	struct op accept, end;
	struct ring_timer retry;
	bool accepting, stopping;
	struct list clients;
	unsigned nr_clients;
	void (*stopped)(void *arg);
	void *stopped_arg;
};

struct shm_client {
	struct list node; /* front.clients */
	struct front_shm *f;
	struct vf *vf; /* NULL before HELLO */
	struct ucred cred;
	int fd;
	struct op recv, send;
	struct msghdr msg; /* of recv, and what it points to: */
	struct iovec iov;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * SHM_FDS)];
	struct sluice_msg in, out;
	struct sluice_msg event; /* on its way while a request may come and out be written */
	int fds[SHM_FDS]; /* of in; owned until a handler takes them */
	unsigned nfds;
	struct list queues; /* shm_queue.node */
	unsigned nr_queues;
	uint32_t next_id;
	unsigned legs; /* messages to queues that are not back yet */
	bool receiving, sending, closing;
	bool replying;    /* out is a reply that is due */
	uint64_t changed; /* disks whose change must be told, by nsid - 1 */
};

/* Takes fd. -ENOMEM: fd is still the caller's. */
int shm_client_new(struct front_shm *f, int fd, const struct ucred *cred);
void shm_client_drop(struct shm_client *c);
/* What can be done now is done. May free the client. */
void shm_client_go_on(struct shm_client *c);
/* Says that the front has stopped, once nothing of it is left. */
void front_shm_check_end(struct front_shm *f);

#endif
