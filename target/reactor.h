/* A reactor: a thread with one ring, its buffer pool and the connections that live on it.
 *
 * Everything in it is touched by its own thread alone, but for the counters, which anyone may read.
 */
#ifndef SLUICE_REACTOR_H
#define SLUICE_REACTOR_H

#include "common/buf.h"
#include "common/chan.h"
#include "common/crew.h"
#include "target/limit.h"

enum { REACTORS_MAX = CREW_MAX };

struct target;
struct zframe;

struct reactor {
	struct crew_thread thread;
	/* 0..nr-1; reactor 0 also accepts, answers control and handles signals */
	unsigned id;            /* the thread's... */
	struct ring *ring;      /* ...and this too, both for short */
	struct target *target;
	struct buf_pool *pool;  /* data of I/O commands */
	/* of all others, so that a host that ties up the first cannot keep one from connecting; and
	 * of in-capsule data when the first is used up */
	struct buf_pool *admin_pool;
	struct zframe *zip;     /* NULL until a host needs it */
	struct list conns;      /* conn.node */
	struct list dirty;      /* channels with something to send */
	struct chan_stats stats;
	_Atomic unsigned nr_conns; /* placed here, counted by the listener at once */
	struct limit_reactor limit; /* who waits for tokens here */
	struct ring_timer sweep; /* header and transfer time-outs, idle memory */
};

/* Makes t->nr_reactors reactors and starts the threads of all but number 0. */
int reactors_start(struct target *t, struct err *err);
/* Runs reactor 0 on the calling thread until target_stop(). */
void reactors_run(struct target *t);
/* Ends the other threads once their connections are drained, and frees all. */
void reactors_stop(struct target *t);

#endif
