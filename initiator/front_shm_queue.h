/* One shared-memory queue of a client: its ring, judged once; fetching and completing. Private to
 * front_shm*.c.
 *
 * Every field of the ring that the client could change is copied when the queue is made; what is
 * read later (sq_tail, cq_head, commands, lists) is copied once and judged before it is used.
 */
#ifndef SLUICE_FRONT_SHM_QUEUE_H
#define SLUICE_FRONT_SHM_QUEUE_H

#include "initiator/front.h"
#include "initiator/front_shm_ring.h"
#include "initiator/front_shm_wake.h"

enum { SHM_BATCH = 64 }; /* commands of one queue in a turn: others get their share */

struct shm_queue {
	struct vq vq;     /* first: what io.c knows */
	struct list node; /* of its client; reactor 0 */
	void *client;     /* borrowed, outlives us */
	uint32_t id;
	struct shm_ring ring;
	uint32_t sq_head;      /* commands taken; free-running, and so are the next two */
	uint32_t cq_tail;      /* completions written */
	uint32_t cq_shown;     /* of them, shown to the client */
	struct mem_table *mem; /* counted */
	bool armed;            /* the client was asked to wake us */
	bool broken;           /* the client broke the ring; nothing is fetched any more */
	bool leaving;          /* our ops are being waited for */
	bool kicking;          /* waiting for the client's eventfd */
	bool gone;             /* on its way back to reactor 0 for good */
	int kick_fd, wake_fd;  /* eventfds: the client's to us, ours to the client; owned */
	struct op kick;
	struct shm_wake wake;
	struct op leg;   /* messages between reactor 0 and the queue's; one at a time */
	struct op broke; /* to reactor 0: it broke */
	void (*leg_home)(struct shm_queue *q); /* on reactor 0: the message came back */
	void (*broke_home)(struct shm_queue *q, const char *why);
	struct mem_table *next_mem; /* carried by a message; counted */
	const char *why;            /* it broke */
	bool tell;                  /* ...and its client has not been told yet; reactor 0 */
};

/* Messages to the queue's reactor; each comes back by leg_home on reactor 0. */
void shm_queue_attach(struct shm_queue *q, struct reactor *from);
void shm_queue_take_mem(struct shm_queue *q, struct reactor *from, struct mem_table *mem);
/* Comes back when nothing of it is in flight: it may be freed then. */
void shm_queue_end(struct shm_queue *q, struct reactor *from);

#endif
