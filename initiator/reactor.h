/* A reactor of the initiator: a thread with one ring; the VF queues, I/O contexts and connections
 * that live on it.
 *
 * Nothing of it is touched by another thread but the counters (METER_GET) and what arrives by
 * ring_post().
 */
#ifndef SLUICE_INITIATOR_REACTOR_H
#define SLUICE_INITIATOR_REACTOR_H

#include "common/buf.h"
#include "common/chan.h"
#include "common/crew.h"
#include "common/meter.h"
#include "initiator/sched.h"

enum { REACTORS_MAX = CREW_MAX };

struct initiator;

struct reactor {
	struct crew_thread thread;
	unsigned id;       /* the thread's... */
	struct ring *ring; /* ...and this too, both for short */
	struct initiator *in;
	struct buf_pool *pool; /* bytes that must stand still for a data digest; stages */
	struct list dirty;     /* channels with something to send */
	struct list vqs;       /* vq.node: VF queues served here */
	unsigned nr_queues;    /* of all fronts, that live here; reactor 0's */
	struct list ready;   /* io.node: contexts that ended in this turn and wait for completion to
				their front */
	struct io_pool *ios; /* preallocated contexts and parts, see io.c */
	struct io *merging;  /* a write that waits for a neighbour until the end of the turn */
	struct sched_reactor sched;
	struct chan_stats stats;
};

/* Makes in->nr_reactors reactors and starts the threads of all but number 0. A failure is for good:
 * the process ends. */
int reactors_start(struct initiator *in, struct err *err);
/* Ends the other threads and frees all. Fronts and paths are gone. */
void reactors_stop(struct initiator *in);

#endif
