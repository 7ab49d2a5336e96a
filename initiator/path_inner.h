/* The inside of a path, shared by path.c (its life, on reactor 0) and path_queue.c (its queues,
 * one on each reactor). */
#ifndef SLUICE_PATH_INNER_H
#define SLUICE_PATH_INNER_H

#include "initiator/assoc.h"
#include "initiator/initiator.h"
#include "initiator/path.h"
#include "initiator/path_queue.h"

enum path_phase {               /* what reactor 0 is doing with the path */
	PHASE_IDLE,             /* not started, or given up */
	PHASE_ASSOCIATING,      /* an attempt to connect is running */
	PHASE_LIVE,
	PHASE_CLOSING,          /* association and queues are on their way down */
	PHASE_PAUSE,            /* the next attempt waits for its time */
	PHASE_ENDING,           /* path_stop(): as closing, then freed */
};

struct path {
	struct list node;       /* initiator.paths */
	struct initiator *in;
	struct path_config cfg;
	char name[320];         /* "NQN at ADDR:PORT" */
	_Atomic int state;      /* enum path_state; written by reactor 0 */
	_Atomic unsigned attempts;
	_Atomic uint32_t zip_max; /* of info; changes to 0 only between associations */
	_Atomic bool io_up;     /* an I/O queue came up since the path was last live: it works */

	pthread_mutex_t lock;   /* of the following, written by reactor 0 */
	const struct path_info *info;
	char why[256];

	/* reactor 0's alone */
	enum path_phase phase;
	struct assoc *assoc;
	bool assoc_active;      /* started and not down yet */
	bool give_up;           /* closing ends in PATH_DEAD */
	unsigned unacked;       /* queues with an order that is not carried out */
	struct queue_order want;
	uint64_t outage_at;     /* when the last outage began, ring_now() */
	bool useless;           /* it was live, but no I/O queue came up: the outage goes on */
	char logged[256];       /* the cause that was logged last, so that it is said once */
	struct ring_timer pause; /* until the next attempt */
	struct ring_timer limit; /* fast_io_fail_tmo, ctrl_loss_tmo */
	struct list watchers;
	void (*freed)(void *arg);
	void *freed_arg;
	struct op free_op;      /* so that nothing is freed below its own feet */

	unsigned nr_queues;     /* entries of queues: reactors */
	struct path_queue queues[];
};

/* From path_queue.c, on reactor 0. */
void path_queue_acked(struct path_queue *q);
void path_queue_lost(struct path *p, const char *why);

#endif
