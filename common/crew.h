/* The threads of a daemon: each has one ring; they start together and stop in two steps.
 *
 * Happy path: crew_start() makes every ring on the thread that uses it and returns when all are
 * ready, so that a message between threads always finds a ring; thread 0 is the caller's, which
 * crew_run() keeps until ring_stop(). crew_stop() then tells every thread to end what it has, turns
 * thread 0 meanwhile, and ends the loops when nothing is left: threads need each other's messages
 * until the last connection of all is gone.
 *
 * What can fail: starting (a sentence; for good: the process ends).
 */
#ifndef SLUICE_CREW_H
#define SLUICE_CREW_H

#include "common/ring.h"

#include <pthread.h>

struct crew;

struct crew_thread { /* embedded in what runs on it */
	struct crew *crew;
	unsigned id;
	int cpu; /* to be pinned to, or -1 */
	struct ring *ring;
	pthread_t thread; /* private from here on */
	struct op stop_op;
	bool stopping;
};

struct crew_ops {
	/* On the thread, when its ring is there. On failure it leaves nothing behind. */
	int (*init)(struct crew_thread *t, struct err *err);
	void (*stop)(struct crew_thread *t); /* on the thread: end what you have; may be NULL */
	void (*fini)(struct crew_thread *t); /* when no thread runs any more */
};

enum { CREW_MAX = 64 };

struct crew {
	const struct crew_ops *ops;
	struct ring_config ring;               /* of every thread */
	struct crew_thread *threads[CREW_MAX]; /* n of them with id and cpu filled in; borrowed */
	unsigned n;
};

int crew_start(struct crew *c, struct err *err);
void crew_run(struct crew *c);
/* Turns thread 0 as long as busy() says so, at most ns; UINT64_MAX: without a bound. */
void crew_turn_while(struct crew *c, bool (*busy)(void *arg), void *arg, uint64_t ns);
/* busy(): something of the threads is left that needs their loops; NULL: nothing ever is. */
void crew_stop(struct crew *c, bool (*busy)(void *arg), void *arg);

#endif
