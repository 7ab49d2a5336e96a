/* When and how the client of a shared-memory queue is woken. Private to front_shm*.c.
 *
 * A system call and a change of threads for each completion would cost more than the completions.
 * So a client that sleeps is woken for many at once: when half of what it has in flight is
 * completed, when the reactor has nothing else to do, or when WAKE_NS have passed.
 *
 * A client may have only the core that the reactor spins on. That is learned: where woken clients
 * did not move before the reactor slept, it sleeps as soon as it has nothing to do but wait for
 * one.
 */
#ifndef SLUICE_FRONT_SHM_WAKE_H
#define SLUICE_FRONT_SHM_WAKE_H

#include "common/ring.h"

#include <stdint.h>

struct sluice_ring;

struct shm_wake {
	struct ring *ring;
	struct sluice_ring *shared;
	int fd; /* eventfd of the client; borrowed */
	void *arg;
	void (*ended)(void *arg); /* nothing is in flight any more, after shm_wake_end() */
	struct op now, later;     /* writes: at once or not at all; waited for */
	bool waits;               /* the client's eventfd blocks: writes are waited for */
	bool busy, again;         /* one of these is in flight */
	bool ending;
	bool due, looked; /* completions were shown, nobody looked yet whether the client sleeps */
	uint64_t due_at, woken_at; /* ring_now() */
	bool woken, slept;         /* woken and not seen to move; the ring slept meanwhile */
	uint32_t sq_tail, cq_head; /* the client's, when it was woken */
	bool shares;               /* it is taken for one that has only our core */
	unsigned slow, wakes;
};

/* ring, shared, fd, ended and its arg are set. */
void shm_wake_init(struct shm_wake *w);
/* Completions were shown. */
void shm_wake_due(struct shm_wake *w);
/* In each turn. unread: completions that the client has not taken; inflight: commands not
 * completed. */
void shm_wake_turn(struct shm_wake *w, uint32_t unread, uint32_t inflight);
/* The reactor has nothing to do; see vq_ops.tell. */
bool shm_wake_idle(struct shm_wake *w, bool sleep);
/* Whether it sleeps or not. */
void shm_wake_now(struct shm_wake *w);
/* Nothing is written any more. If it is busy, ended will be called. */
void shm_wake_end(struct shm_wake *w);

#endif
