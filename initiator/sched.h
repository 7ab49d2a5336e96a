/* The scheduler: holds an I/O until its VM, its volume and the daemon's capacity have a token for
 * it, in an order that is fair by weight.
 *
 * A node is what has limits: a VM (all its queues share it), a volume (all VMs do), the capacity.
 * Happy path: io_start() asks sched_start() if anything limits the volume or one of its VMs. While
 * nobody waits at a node an I/O takes its tokens there and goes on, out of its reactor's lease
 * where rates are high. Otherwise it gets a tag, start-time fair queueing: the tags of a flow (a
 * queue at its VM, a VM at a volume) advance by the time that the I/O would take at the flow's
 * committed rate, and the least tag goes first. It waits in its reactor's heap of that node; each
 * reactor shows its least tag to the others, and none goes far ahead of them. When the node's token
 * is due the reactor's timer turns the loop and sched_turn() lets the I/O go on to the next node
 * and, after the last, to io_go(). Only the first of a queue's held commands waits at a node, the
 * others behind it; a queue that holds any is not fetched from.
 *
 * Committed and peak: the buckets of the peak are what an I/O waits for at a VM and a volume. With
 * a capacity, what the committed buckets do not cover waits for idle capacity, too.
 *
 * Nothing can fail. Held commands of a queue that ends are let go, or ended with a status.
 */
#ifndef SLUICE_INITIATOR_SCHED_H
#define SLUICE_INITIATOR_SCHED_H

#include "common/heap.h"
#include "common/list.h"
#include "common/meter.h"
#include "common/rates.h"
#include "common/ring.h"

struct initiator;
struct io;
struct reactor;
struct vm;
struct volume;
struct vq;

enum { SCHED_FLOWS = 64 }; /* VF_DISKS_MAX */

enum { SCHED_LINES = RATES_LINES };

struct sched_flow {            /* in one line */
	_Atomic uint64_t tag;  /* where its next I/O begins, in virtual time of the line */
	_Atomic uint64_t last; /* ns: an old tag is none */
};

struct sched_stats { /* METER_GET; of a line on one reactor */
	uint64_t passed, passed_bytes, held, merged;
	struct meter_hist wait; /* ns that held I/O waited */
};

struct sched_local { /* of a line on one reactor, which alone touches it but for first and stats */
	_Atomic uint64_t first; /* the least tag that waits here; 0: none */
	struct sched_node *node;
	struct sched_line *line;
	struct heap waiters;  /* sched_vq.waiting, by tag */
	struct heap_node due; /* in sched_reactor.due while somebody waits */
	bool is_due;          /* it is in there */
	uint64_t blocked;     /* ns: since when only the order holds us up; 0: not */
	uint64_t blocker;     /* the tag that is before us */
	struct bucket_lease lease[QOS_KINDS];
	struct sched_stats stats;
} __attribute__((aligned(64)));

struct sched_line {
	_Atomic uint64_t vnow;      /* the largest tag that was served */
	_Atomic uint64_t contended; /* ns: until then order counts, though nobody may wait */
	_Atomic uint32_t waiters;   /* queues, on all reactors */
	/* How far vnow moves in a millisecond: what reactors may be ahead of each other. Measured
	 * from the mark. */
	_Atomic uint64_t lead, mark, mark_ns;
};

struct sched_node {
	struct rates peak, committed;
	struct rates weight; /* prices alone count: what an I/O moves a tag by */
	struct sched_line line[SCHED_LINES];
	struct qos_config cfg; /* what was set; reactor 0 */
	uint64_t refunds;      /* by hand; reactor 0 */
	unsigned nr_reactors;
	struct sched_local *local; /* [reactor * SCHED_LINES + line] */
};

struct sched_vm { /* outlives its "vms" entry while clients are there */
	struct sched_node node;
	unsigned refs; /* lock of the initiator */
	/* Its flows at its disks, in their order, and at the capacity. */
	struct sched_flow flow[SCHED_FLOWS + 1][SCHED_LINES];
	const struct volume *disk[SCHED_FLOWS]; /* whose flows they are; only compared */
};

enum sched_stage { SCHED_VM, SCHED_VOLUME, SCHED_CAPACITY, SCHED_STAGES };

struct sched_vq {         /* in each queue; all zeroes at first */
	struct list held; /* io.node, the oldest first */
	unsigned nr_held;
	uint8_t stage;             /* where the first of them waits */
	uint8_t excess;            /* 1 << stage: not covered by what is committed there */
	struct sched_local *at;    /* it is in this heap; NULL: in none */
	struct heap_node waiting;  /* sched_local.waiters, by tag */
	struct heap_node commit;   /* sched_reactor.commits, by when its committed tokens are due */
	uint64_t tag, cost;        /* of the first, in that line; virtual time */
	uint64_t since;            /* ns: when it began to wait there */
	struct sched_flow *tagged; /* whose tag it has */
	struct sched_flow flow[SCHED_LINES]; /* at the VM's node */
};

struct sched_reactor {       /* in each reactor */
	struct heap due;     /* sched_local.due */
	struct heap commits; /* sched_vq.commit: those that wait for capacity */
	struct ring_timer timer;
	uint64_t armed; /* when the timer is due; 0: it is not set */
	unsigned free;  /* contexts for those who fetch in this turn */
	bool turning;   /* inside sched_turn() */
	struct op kick; /* limits changed: look at all again */
	_Atomic bool kicked;
	bool all;
};

/* On every reactor. */
void sched_init(struct reactor *r);
/* True: it may go on at once. False: io_go() comes later. */
bool sched_start(struct io *io);
/* Once a turn, before the fronts fetch: lets go what is due. */
void sched_turn(struct reactor *r);
/* The queue ends: all that is held ends now... */
void sched_drop(struct vq *q);
/* ...or goes now, and is paid back. */
void sched_release(struct vq *q);
/* io became a part of another command: its own command costs nothing. */
void sched_merged(struct io *io);

/* On reactor 0. */
int sched_node_init(struct sched_node *n, unsigned nr_reactors); /* -ENOMEM */
void sched_node_fini(struct sched_node *n);
struct sched_node *sched_node_new(unsigned nr_reactors);
void sched_node_free(struct sched_node *n);
struct sched_vm *sched_vm_new(unsigned nr_reactors);
/* Counts: its "vms" entry and its clients, under the lock. */
struct sched_vm *sched_vm_get(struct sched_vm *vm);
void sched_vm_put(struct sched_vm *vm);
void sched_set(struct sched_node *n, const struct qos_config *q, uint64_t now);
/* kinds of bytes, or of commands. */
void sched_refund(struct sched_node *n, bool bytes, uint64_t count);
/* Every reactor looks at all that it holds again. */
void sched_kick(struct initiator *in);

/* sched_node.c: what one I/O wants of a node. */
void node_want(const struct sched_node *n, const struct io *io, uint64_t now,
               struct rates_want *ret);
/* A charge of what always passes. */
void node_charge_capped(struct sched_node *n, const struct rates_want *w);
bool committed_ready(struct sched_node *n, const struct rates_want *w);
/* ns; a second where nothing is committed: looked at again then. */
uint64_t committed_wait(struct sched_node *n, const struct rates_want *w);
void node_uncharge(struct sched_node *n, const struct rates_want *w, bool committed);
/* Virtual time of an I/O of a flow with these limits; 0: there are none. */
uint64_t node_cost(const struct sched_node *n, const struct rates_want *w);

#endif
