/* A vhost-user-blk device and its connection, on reactor 0. Private to front_vhost*.c. */
#ifndef SLUICE_FRONT_VHOST_INNER_H
#define SLUICE_FRONT_VHOST_INNER_H

#include "initiator/front_vhost.h"
#include "initiator/front_vhost_proto.h"
#include "initiator/front_vhost_queue.h"
#include "initiator/initiator.h"

#include <sys/socket.h>
#include <sys/stat.h>

struct front_vhost { /* initiator.vhost; made with the first device */
	struct initiator *in;
	struct reactor *r; /* 0 */
	struct list devs;
};

struct vhost_dev {
	struct list node; /* front.devs */
	struct front_vhost *f;
	char label[140]; /* for messages */
	char vm[64];
	struct vhost_config cfg;
	struct volume *vol; /* counted */
	uint32_t uid;
	struct stat inode; /* of the socket that we bound: we remove no other */
	int fd;            /* listens */
	struct op accept;
	struct ring_timer timer; /* accepting again; the patience with next */
	bool accepting, removed;
	bool handed; /* to the program that takes over: nobody is accepted any more */
	const struct conf_node *heir; /* the connection that the one before us had; NULL: none */
	uint64_t patient_until;       /* ring_now(): before that a VMM may wait for the volume */
	struct vhost_conn *conn;      /* is served, or ends */
	int next; /* a VMM that waits for conn to end or the volume to be ready; -1 */
	struct ucred next_cred;
	uint64_t bytes; /* capacity that guests were told; 0: it was never ready */
	uint64_t connects, faults;
};

struct vhost_ring { /* what was said of a ring, and its queue */
	bool has_num, has_addr, has_kick;
	bool enabled;
	bool running;  /* its reactor has the queue */
	bool busy;     /* an order is on its way */
	bool dropping; /* and so is that to give up */
	uint32_t num, base;
	uint64_t desc, avail, used; /* addresses of the VMM's */
	int err_fd;                 /* owned; -1: none */
	struct op err;              /* a write to it */
	bool erring;
	struct vhost_queue *q; /* NULL: never used */
};

struct vhost_conn {
	struct vhost_dev *d;
	struct vf *vf;
	struct ucred cred;
	int fd;
	struct op recv, send;
	bool receiving, sending, closing;
	bool graceful;  /* removed: what was taken is completed before the socket closes */
	bool closed;    /* the socket was shut down */
	bool handing;   /* to the program that takes over, at the next message */
	bool rushed;    /* ...which does not wait for what is in flight */
	bool cancelled; /* our receive */
	bool parked;    /* nothing of ours touches it any more */
	bool resuming;  /* what another program received is looked at when all orders are back */
	unsigned legs;  /* orders to queues that are not back yet */
	struct ring_timer bound; /* of what a message or a graceful end waits for */

	/* The message that is being read or worked on. */
	struct msghdr msg;
	struct iovec iov[2];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * VHOST_FDS_MAX)];
	struct vhost_msg in, out;
	size_t got; /* bytes of in */
	int fds[VHOST_FDS_MAX];
	unsigned nfds;
	bool working; /* its answer is due when all orders are back */
	int (*finish)(struct vhost_conn *c, struct err *err); /* left to do then; or NULL */
	bool replying;                                        /* out is a reply of its own */
	int out_fd;                                           /* goes with out; owned; -1: none */

	/* What was negotiated. */
	uint64_t features, protocol; /* acked */
	bool has_features;
	uint64_t status;
	bool wce;
	bool told_odd; /* that its driver ignores the size of blocks */
	struct vhost_mem_region regions[MEM_REGIONS_MAX]; /* of vf->mem */
	int region_fds[MEM_REGIONS_MAX];                  /* owned; for who takes over */
	unsigned nr_regions;
	struct mem_table *inflight; /* the area, at address 0; NULL: none */
	struct vhost_inflight area; /* as told */
	int inflight_fd;            /* owned; -1: none */
	struct vhost_ring rings[VHOST_QUEUES_MAX];

	/* The channel back. */
	int back_fd; /* owned; -1: none */
	struct op back;
	struct vhost_hdr back_hdr;
	bool backing, changed; /* a message is on its way; one is due */
};

/* front_vhost_upgrade.c */
void vhost_upgrade_begin(struct vhost_conn *c); /* stops at the next message; c->parked tells */
void vhost_upgrade_park(struct vhost_conn *c);  /* between two messages */
void vhost_upgrade_rush(struct vhost_conn *c);  /* it took too long */
void vhost_upgrade_adopt(struct vhost_dev *d);  /* goes on with d->heir */
void vhost_upgrade_drop(const struct conf_node *heir); /* nobody goes on with it */
/* Its socket, and perhaps a connection, came from the program before us. */
bool vhost_upgrade_inherit(struct vhost_dev *d);

/* front_vhost_conn.c. Takes fd, and makes the VF. -ENOMEM: fd is still the caller's. */
int vhost_conn_new(struct vhost_dev *d, int fd, const struct ucred *cred);
/* The same, but it does nothing yet; NULL: no memory. */
struct vhost_conn *vhost_conn_make(struct vhost_dev *d, int fd, const struct ucred *cred);
/* The device goes: ends when what was taken is completed. */
void vhost_conn_leave(struct vhost_conn *c);
/* Ends at once, nothing more is shown to the guest. why NULL: the VMM has gone. */
void vhost_conn_end(struct vhost_conn *c, const char *why);
/* Every queue has been given back? Stops those that run. */
bool vhost_conn_queues_back(struct vhost_conn *c);
/* Goes on where another program stopped: with c->got bytes of a message. */
void vhost_conn_resume(struct vhost_conn *c);
/* What can be done now is done. May free the connection. */
void vhost_conn_go_on(struct vhost_conn *c);
void vhost_conn_volume_changed(struct vhost_conn *c);

/* front_vhost_ring.c: rings as reactor 0 sees them. */
/* The queue of a ring, made when it is mentioned first. NULL: no memory. */
struct vhost_queue *vhost_ring_queue(struct vhost_conn *c, unsigned i);
void vhost_ring_free(struct vhost_conn *c, unsigned i);
/* Starts or stops it, as its fields say. */
int vhost_ring_settle(struct vhost_conn *c, unsigned i, struct err *err);
void vhost_ring_stop(struct vhost_conn *c, unsigned i);
void vhost_ring_abandon(struct vhost_conn *c, unsigned i);
/* A running ring goes on with the present memory and disk. */
int vhost_ring_move(struct vhost_conn *c, unsigned i, struct err *err);
void vhost_ring_set_call(struct vhost_conn *c, unsigned i, int fd); /* takes fd, or -1 */

/* front_vhost_msg.c: the message in c->in. An error ends the connection. */
int vhost_msg_judge(struct vhost_conn *c, struct err *err); /* the header */
int vhost_msg_handle(struct vhost_conn *c, struct err *err);
int vhost_take_fd(struct vhost_conn *c, unsigned i);
/* front_vhost_msg_mem.c: the two that another program's state is made of, too. Both take fd. */
int vhost_mem_add(struct vhost_conn *c, int fd, const struct vhost_mem_region *r, struct err *err);
int vhost_inflight_take(struct vhost_conn *c, int fd, const struct vhost_inflight *m,
                        struct err *err);
/* The guest has chosen another cache mode: so that the next connection knows. */
void vhost_inflight_note_cache(struct vhost_conn *c);
int vhost_settle_all(struct vhost_conn *c, struct err *err);

/* front_vhost_blk.c: what the disk offers. */
uint64_t vhost_blk_features(const struct vhost_dev *d);
void vhost_blk_config(const struct vhost_conn *c, uint8_t ret[VHOST_CONFIG_SIZE]);
void vhost_blk_disk(const struct vhost_conn *c, struct vblk_dev *ret);

/* Bytes that each ring has of an inflight area for rings of that size: enough for either format,
 * since the area may be made before that is negotiated. */
size_t vhost_inflight_slice(uint32_t size);

/* front_vhost.c */
void vhost_dev_go_on(struct vhost_dev *d); /* its connection has ended, or the volume changed */

#endif
