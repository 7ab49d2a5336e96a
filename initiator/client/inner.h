/* What the two halves of libsluice share: the connection (client.c) and the queue pair (queue.c).
 */
#ifndef SLUICE_CLIENT_INNER_H
#define SLUICE_CLIENT_INNER_H

#include "initiator/client/sluice.h"

#include <stddef.h>

enum { SLUICE_EVENTS = 64 }; /* volumes whose change is remembered; a VF has no more disks */

struct sluice_memory { /* one sluice_register() */
	struct sluice_memory *next;
	uint64_t addr;
	void *ptr;
	size_t size;
};

struct sluice {
	int fd;
	struct sluice_memory *memory; /* ours */
	struct sluice_queue *queues;  /* ours, by their next */
	struct sluice_volume
		events[SLUICE_EVENTS]; /* not asked for yet; at most one for each disk */
	unsigned nr_events;
	char error[160];
};

struct sluice_queue {
	struct sluice *s;
	struct sluice_queue *next;
	uint32_t id, entries;
	struct sluice_ring *ring; /* the mapping, and places in it: */
	size_t size;
	uint8_t *sq, *cq, *list;
	uint32_t sq_tail, cq_head; /* our own; the shared ones follow */
	int kick_fd, wake_fd;
	int both_fd; /* an epoll of wake_fd, edge-triggered, and of the socket */
	unsigned spin_us, spin_misses, sleeps;
	uint32_t nr_free; /* of slots, which are the cids: */
	uint16_t *free;   /* a stack */
	struct sluice_slot {
		uint64_t user;
		int used;
	} * slots;
};

/* Says and returns in one line. */
int sluice_fail(struct sluice *s, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A memfd of that size, sealed and mapped. */
int sluice_memfd(struct sluice *s, const char *name, size_t size, int *ret_fd, void **ret_ptr);
/* Sends msg with up to three descriptors and waits for its reply, which replaces msg. */
int sluice_ask(struct sluice *s, struct sluice_msg *msg, const int *fds, unsigned nfds);

#endif
