/* One end of a TCP connection on its own io_uring, for the bench programs.
 *
 * It moves PDU-shaped messages and nothing else: whatever a turn queued leaves in one gathering
 * sendmsg, and one receive in flight fills the rest of the payload that is due, at its final place,
 * and then a staging area from which the next messages are cut. What a header means, and where its
 * payload belongs, is the owner's affair. This is the shape that DESIGN.md section 4 measured; it
 * shares no code with the daemons, so it can judge them.
 *
 * Happy path: link_open(), queue the first messages with link_header() and link_payload(), then
 * link_turn() until the owner has had enough. Any failure ends the program: a bench result after an
 * error is worth nothing.
 */
#ifndef SLUICE_BENCH_LINK_H
#define SLUICE_BENCH_LINK_H

#include "common/pdu.h"

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link;

struct link_ops {
	/* A whole header arrived; len bytes of DATA follow. Returns where they belong (room for
	 * len + PDU_DIGEST_LEN), NULL when len is 0. */
	void *(*header)(struct link *l, const struct pdu_hdr *hdr, uint32_t len);
	/* The DATA of the last header is complete. Not called for messages without DATA. */
	void (*payload)(struct link *l);
};

struct link_conf {
	int fd;                 /* connected socket, stays the caller's */
	uint32_t depth;         /* commands that can be queued in one turn */
	size_t stage;           /* bytes of staging offered to one receive; 0: headers only */
	size_t send_max;        /* bytes in one sendmsg, 0: all that is queued */
	uint32_t poll_us;       /* spin so long before sleeping */
	bool hdgst, ddgst;      /* compute on what is sent, check on what arrives */
};

/* What a run cost, by difference of two snapshots. */
struct link_cost {
	uint64_t enters;        /* io_uring_enter calls */
	uint64_t sends, recvs;  /* completed operations */
	uint64_t direct, staged; /* payload bytes by where they landed first */
	double cpu;             /* seconds, this thread */
};

struct link_tx {                /* a filling or an in-flight send queue */
	struct iovec *iov;
	unsigned n, sent;       /* entries queued; entries wholly given to the kernel */
	uint8_t *arena;         /* headers and digests */
	size_t used;
};

struct link {
	const struct link_ops *ops;
	struct link_conf conf;
	struct io_uring ring;
	bool closed;            /* peer closed the connection */

	struct link_tx tx[2];
	unsigned filling;       /* index into tx */
	bool sending;
	size_t send_len;
	struct msghdr send_msg;
	size_t arena_size;
	unsigned iov_size;

	bool receiving;
	uint8_t *stage;
	size_t stage_size, have; /* have: bytes of an incomplete header at stage[0] */
	size_t offer;           /* how much of it the next receive may fill: the owner's */
	uint8_t *due;           /* where the payload under way goes on */
	size_t due_left;        /* DATA and its digest */
	uint8_t *due_start;
	uint32_t due_len;       /* DATA alone */
	uint32_t crc, crc_pos;
	struct msghdr recv_msg;
	struct iovec recv_iov[2];

	struct link_cost cost;
};

void link_open(struct link *l, const struct link_ops *ops, const struct link_conf *conf);
void link_close(struct link *l);

/* Room for a header of hlen bytes in this turn's send; fill it, flags in hdr.flags included, then
 * link_seal() it before anything else is queued. */
void *link_header(struct link *l, size_t hlen);
/* Adds PLEN for len bytes of DATA, PDO and header digest; returns the sealed header's length. */
void link_seal(struct link *l, struct pdu_hdr *hdr, const void *data, uint32_t len);

/* Sends what is queued, arms the receive, waits, runs the owner's callbacks. */
void link_turn(struct link *l);

struct link_cost link_cost_now(const struct link *l);
struct link_cost link_cost_since(const struct link *l, const struct link_cost *start);

#endif
