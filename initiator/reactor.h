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
#include "common/meter.h"

#include <pthread.h>

enum { REACTORS_MAX = 64 };

struct initiator;

struct reactor {
	unsigned id;
	int cpu; /* pinned to it, or -1 */
	struct initiator *in;
	struct ring *ring;
	struct buf_pool *pool; /* bytes that must stand still for a data digest; stages */
	struct list dirty;     /* channels with something to send */
	struct list vqs;       /* vq.node: VF queues served here */
	struct list ready;   /* io.node: contexts that ended in this turn and wait for completion to
				their front */
	struct io_pool *ios; /* preallocated contexts and parts, see io.c */
	struct io *merging;  /* a write that waits for a neighbour until the end of the turn */
	struct chan_stats stats;
	pthread_t thread;
	struct op stop_op;
	bool stopping;
};

/* Makes in->nr_reactors reactors and starts the threads of all but number 0. A failure is for good:
 * the process ends. */
int reactors_start(struct initiator *in, struct err *err);
void reactors_run(struct initiator *in); /* reactor 0 on the calling thread */
/* Turns reactor 0 as long as busy() says so, at most ns. */
void reactors_turn_while(struct initiator *in, bool (*busy)(void *arg), void *arg, uint64_t ns);
/* Ends the other threads and frees all. Fronts and paths are gone. */
void reactors_stop(struct initiator *in);

#endif
