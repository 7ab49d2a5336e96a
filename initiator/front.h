/* How VFs reach their disks: what the shared-memory queue, vhost-user-blk and ublk have in common.
 *
 * A vq is one queue of a VF; it lives on one reactor, in the list r->vqs. Happy path: in each turn
 * front_poll() calls fetch(), which copies each new command out of shared memory once, judges its
 * form, maps its addresses, fills an io and hands it to io_start(). When the io has ended io.c
 * calls complete(), in batches, and flush() at the end of the turn (one wake-up for all). Before
 * the reactor sleeps front_idle() has every queue armed: whoever queues a command then wakes it.
 *
 * What can fail: a command, which ends with a status; a queue whose own structure is broken
 * (indices beyond its size), which is ended by its front, alone.
 */
#ifndef SLUICE_FRONT_H
#define SLUICE_FRONT_H

#include "initiator/mem.h"
#include "initiator/reactor.h"

struct io;
struct vf;
struct volume;

struct vq;
enum vq_moment {
	VQ_TURN,  /* once in each turn */
	VQ_IDLE,  /* the reactor has nothing to do, and spins */
	VQ_SLEEP, /* it is about to sleep */
};

struct vq_ops {
	/* Takes commands, at most front_share() of *free, which goes down by what was taken. False:
	 * there were more commands than contexts. */
	bool (*fetch)(struct vq *q, unsigned *free);
	/* The VF is asked to wake us. False: nothing to ask, it was asked already. */
	bool (*arm)(struct vq *q);
	bool (*has_work)(const struct vq *q, unsigned free); /* fetch() would take something */
	/* May be NULL. Tells the VF of completions for which it was not woken yet, if it is time.
	 * True: look again before sleeping. */
	bool (*tell)(struct vq *q, enum vq_moment when);
	void (*complete)(struct vq *q,
	                 struct io *io); /* io->token says which command; status is io->status */
	void (*flush)(struct vq *q);     /* everything of this turn is completed: tell the VF */
};

struct vq {
	struct list node; /* reactor.vqs */
	struct reactor *r;
	struct vf *vf;
	const struct vq_ops *ops;
	unsigned inflight;        /* ios between io_start() and complete() */
	bool touched;             /* complete() was called in this turn */
	struct list touched_node; /* io.c's: queues to be flushed */
	struct sched_vq sched;    /* what is held of it */
	bool ending;              /* no more is fetched; ended() when inflight is 0 */
	bool drains; /* ending: what the scheduler holds goes now; else it ends with a status */
	void (*ended)(struct vq *q);
	uint64_t fetched, completed, bad; /* METER_GET */
};

enum { VF_DISKS_MAX = 64 };

struct vf {               /* one client or VM; lock of the initiator */
	struct list node; /* initiator.vfs */
	struct initiator *in;
	uint32_t id;
	char name[64];                      /* of its "vms" entry */
	struct volume *disks[VF_DISKS_MAX]; /* [nsid - 1]; counted */
	struct sched_vm *qos;               /* limits of its "vms" entry; counted */
	struct mem_table *mem;              /* current; counted */
	uint32_t uid, pid;                  /* peer credentials */
	bool holds; /* while it is there its volumes cannot be removed */
	void *front;                        /* its front's own */
	bool of_device; /* it came to the socket of one disk, see front_vhost.h */
	/* Set by the front, called on reactor 0 without the lock: its "vms" entry was taken away,
	 * disconnect it. */
	void (*kick)(struct vf *vf, const char *why);
	/* The same, where a disk got another capacity or state: tell it. */
	void (*changed)(struct vf *vf, unsigned disk);
};

/* On every reactor. */
void front_poll(struct reactor *r); /* fetches what is in its queues; once in each turn */
/* For ring_set_idle_hook(): arg is the reactor. While it spins: is there work? Before it sleeps:
 * arms the queues first. */
bool front_idle(void *arg, bool sleep);
/* Contexts that front_share() deals out; what fetch() is given. */
unsigned front_free(const struct reactor *r);
/* Of n commands those that a queue may take: up to IO_SURE, and of the free contexts that are not
 * spare as many as it leaves free for others; none while something of it is held. */
unsigned front_share(const struct vq *q, unsigned n, unsigned free);

/* On reactor 0: where a new queue is to live, the reactor with the fewest; it is counted there
 * until front_leave(). */
struct reactor *front_place(struct initiator *in);
void front_leave(struct reactor *r);

/* On reactor 0, without the lock: every VF that has vol as a disk is told. */
void front_volume_changed(struct initiator *in, const struct volume *vol);

#endif
