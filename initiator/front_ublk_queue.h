/* One queue of a ublk device: requests of the kernel's block layer become ios, on the reactor that
 * is the queue's server thread. Private to front_ublk*.c.
 *
 * Of its fields reactor 0 reads the counters, and what came home by a message.
 */
#ifndef SLUICE_FRONT_UBLK_QUEUE_H
#define SLUICE_FRONT_UBLK_QUEUE_H

#include "initiator/front.h"
#include "initiator/front_ublk_abi.h"

struct ublk_queue;

struct ublk_tag { /* a place for a request: at the driver, waiting in arrived, or an io */
	struct op op;
	struct ublk_queue *q;
};

struct ublk_queue {
	struct vq vq;       /* first: what io.c knows */
	void *dev;          /* borrowed, outlives us */
	struct volume *vol; /* the device's VF holds it */
	uint16_t id, depth;
	int fd;                        /* of /dev/ublkcN, the device's */
	const struct ublk_desc *descs; /* mapped */
	size_t descs_size;
	uint8_t *bufs; /* depth times buf_size: the driver copies requests' data to and from it */
	uint32_t buf_size;
	struct ublk_tag *tags;
	uint16_t *arrived; /* tags that wait for a context, a ring of depth */
	unsigned first, waiting;
	unsigned armed;   /* commands that the driver has */
	bool aborted;     /* it has begun to give them back */
	bool holding;     /* no more is taken, what is under way ends */
	bool gone;        /* on its way back to reactor 0 for good */
	uint64_t staged;  /* bytes that passed through bufs; METER_GET */
	struct op leg;    /* messages from reactor 0 and their return; one at a time */
	struct op left;   /* to reactor 0: nothing of it is in flight any more */
	struct op failed; /* to reactor 0: the driver did not take a command */
	int error;        /* why */
	void (*leg_home)(struct ublk_queue *q); /* the three on reactor 0 */
	void (*left_home)(struct ublk_queue *q);
	void (*failed_home)(struct ublk_queue *q);
};

/* Maps and allocates; dev, vol, id, depth, fd, buf_size, vq.r and vq.vf are filled in. */
int ublk_queue_init(struct ublk_queue *q);
void ublk_queue_fini(struct ublk_queue *q);

/* Fetches every tag on the queue's reactor, then comes home. Later, when the driver has given back
 * every command and every io has ended, the queue has left. */
void ublk_queue_attach(struct ublk_queue *q, struct reactor *from);
/* Comes home when no io is under way and the results of all are with the driver; requests that
 * come meanwhile are left to the next server. */
void ublk_queue_hold(struct ublk_queue *q, struct reactor *from);

#endif
