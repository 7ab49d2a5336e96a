/* One TCP connection: its life, its queue. Lives on one reactor from accept to free.
 *
 * Happy path: ICReq, ICResp; the first capsule must be Connect, which makes it the admin queue of a
 * new controller or an I/O queue of an existing one; then every capsule becomes a struct cmd.
 * Three machines: life (here, table of states), position in the stream (pdu_stream), progress of
 * each command (cmd).
 *
 * What can fail: the peer breaks the protocol: C2HTermReq with FES/FEI, then nothing more is sent
 * or obeyed, and the socket is reset when the peer closes or after TERM_WAIT_MS. The socket breaks,
 * the controller dies, the target stops: conn_kill(); commands end, buffers go back, and it is
 * freed when nothing is in flight.
 */
#ifndef SLUICE_CONN_H
#define SLUICE_CONN_H

#include "common/chan.h"
#include "common/pdu_stream.h"
#include "common/perm.h"
#include "target/target.h"

struct ctrl;
struct cmd;

enum conn_state {
	CONN_WAIT_ICREQ,
	CONN_WAIT_CONNECT,      /* ICResp sent; only Connect is legal */
	CONN_LIVE,
	CONN_TERMINATING,       /* TermReq on its way out, input is thrown away */
	CONN_DRAINING,          /* waiting for our own operations */
	CONN_CLOSED,
	CONN_STATE_NR
};

struct conn {
	struct list node;       /* reactor.conns */
	unsigned id;            /* for people */
	enum conn_state state;  /* METER_GET by others, and so are sqsize and nr_cmds */
	struct reactor *r;
	struct port *port;      /* where it was accepted; target lock */
	struct chan *chan;
	struct pdu_stream in;
	struct perm perm;
	char peer[64], local[64]; /* "ADDR:PORT"; IPv6 in brackets */
	char local_addr[48];    /* without port or brackets */

	/* agreed in ICReq/ICResp */
	uint8_t hpda;           /* alignment of our C2HData, 0-based dwords */
	uint32_t maxr2t;        /* outstanding R2Ts a command may have, 1-based */

	/* agreed in Connect */
	struct ctrl *ctrl;      /* counted; NULL before Connect */
	uint16_t qid;
	uint16_t sqsize;        /* 0-based */
	bool no_sq_flow_control; /* SUCCESS flag allowed, SQHD not told */
	uint16_t sqhd;

	struct list free_cmds;  /* cmd.node */
	struct list cmds;       /* cmd.node of commands in progress, oldest first */
	unsigned nr_cmds;       /* in that list: the kernel may still be sending a reply */
	unsigned nr_open;       /* of these, not yet answered: what the host may not overrun */
	struct cmd_chunk *chunks; /* slabs of struct cmd */
	struct cmd *fresh;      /* never used slots of the newest slab */
	unsigned nr_fresh;
	struct cmd *fused;      /* a first half that waits for its second; see io_fused.c */
	bool first_failed;      /* the latest capsule was a first half, and has failed already */

	struct list limited;    /* cmd.limit.conn_node: the first that waits at each limit */
	size_t kept;            /* bytes of cmd.kept */

	/* input stands still until a slot, a buffer or a token comes; the staging area still
	 * holds the rest */
	enum conn_pause { PAUSE_NONE, PAUSE_SLOT, PAUSE_BUFFER, PAUSE_LIMIT } pause;
	const uint8_t *rest;
	size_t rest_len;
	bool resuming;          /* resume_op is on its way */
	struct op resume_op;

	size_t avail;           /* bytes behind the header in hand that have arrived with it */
	struct cmd *rx_cmd;     /* owner of the data that is arriving; NULL: it is drained */
	uint16_t rx_tag;        /* its R2T, when rx_r2t */
	uint32_t rx_len;        /* bytes of it in this PDU */
	bool rx_r2t;
	struct iovec rx_iov;    /* where it goes */
	uint64_t rx_since;      /* ring_now() when the unfinished PDU began; 0: none */
	uint64_t due_since;     /* ring_now() of the latest R2T or its data; 0: nothing is due */
	/* outstanding; of these so large that payload should land directly */
	unsigned r2ts, large_r2ts;
	/* chan_tx_mark() at the last sweep, and since when it has not moved */
	uint64_t tx_since, tx_mark;

	/* ring_now() of the latest command (METER_GET): traffic-based keep alive */
	uint64_t last_cmd;
	uint64_t nr_done;       /* commands completed (METER_GET) */
	struct ring_timer timer; /* handshake, then TermReq wait */
	struct op free_op;
	bool chan_drained, freeing;
};

/* Takes fd. Runs on r's thread. */
void conn_accepted(struct reactor *r, int fd, struct port *port);

/* Ends the connection; why is logged. Owner thread only. Idempotent. */
void conn_kill(struct conn *c, const char *why);

/* The same from any thread, the target lock held: resets the socket so that the owner notices. */
void conn_shutdown(struct conn *c);

/* From any thread, the target lock held and c a queue of a controller: its host has closed, or we
 * have reset it, and it has not ended yet. */
bool conn_hung_up(const struct conn *c);

/* The peer broke the protocol: TermReq with the header that c->in.hdr names, then wait for its
 * close. */
void conn_fault(struct conn *c, struct pdu_fault fault);

/* Connect succeeded: the queue gets slots for sqsize + 1 commands. -ENOMEM. */
int conn_set_queue(struct conn *c, struct ctrl *ctrl, uint16_t qid, uint16_t sqsize,
                   bool no_sq_flow_control);

/* A command slot in the list of commands, or NULL: none is free until a reply has left. */
struct cmd *conn_cmd_get(struct conn *c);
void conn_cmd_put(struct conn *c, struct cmd *cmd);

const char *conn_state_name(const struct conn *c);

/* Once a second: header and data time-outs, idle memory, for every connection of r. */
void conn_sweep(struct reactor *r);
void conn_kill_all(struct reactor *r, const char *why);

/* Goes on, soon, with input that was paused. */
void conn_resume(struct conn *c);

#endif
