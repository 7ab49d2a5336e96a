/* The host side of one NVMe/TCP connection: one queue of one controller, on one reactor.
 *
 * Happy path: hconn_open() connects, exchanges ICReq/ICResp and Connect, and says so by ops->up;
 * hconn_send() gives a part a cid, which is the tag of its grant in the permission table, and sends
 * the command (payload in the capsule when it fits); R2T is honoured inside the grant only; C2HData
 * is placed where perm_span() says; the response, or the SUCCESS flag, ends the part when the
 * kernel has let go of its memory.
 *
 * What can fail: connecting (ops->down with a sentence); the peer breaks a rule or touches what was
 * not granted: bytes are drained, counted by kind, logged and reported (violation), H2CTermReq
 * where it is owed, reset. Loss: the socket is reset, and after the kernel's last word every part
 * ends with PART_LOST, but one that the target broke a rule with: with Data Transfer Error.
 */
#ifndef SLUICE_HCONN_H
#define SLUICE_HCONN_H

#include "common/chan.h"
#include "common/pdu_stream.h"
#include "common/perm.h"
#include "initiator/part.h"
#include "initiator/reactor.h"

struct hconn;

enum hconn_violation {
	VIOL_UNKNOWN_TAG,       /* C2HData, R2T or response for a cid that is not outstanding */
	VIOL_DIRECTION,         /* R2T for a read, C2HData for a write */
	VIOL_RANGE,             /* beyond the command's data */
	VIOL_ORDER,             /* gap, repeat, overlap */
	VIOL_SHORT,             /* good status, but not all bytes came */
	VIOL_R2T_LIMIT,
	VIOL_PDU,               /* a header that breaks the rules */
	VIOL_NR
};

struct hconn_stats {            /* METER_GET */
	uint64_t parts, bytes_read, bytes_written, in_capsule, r2ts, ddgst_errors, lost;
	uint64_t copied;        /* payload bytes, before sending: the price of a data digest */
	uint64_t violations[VIOL_NR];
	struct meter_hist latency; /* ns */
};

struct hconn_config {
	struct reactor *r;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	struct sockaddr_storage local; /* host_traddr, port 0 */
	socklen_t local_len;    /* 0: any */
	char name[128];         /* for people: "nqn... 192.0.2.1:4420 queue 3" */
	const char *subnqn, *hostnqn; /* borrowed for the hconn's life */
	uint8_t hostid[16];
	uint16_t qid, cntlid;   /* admin: 0, FFFFh */
	uint16_t sqsize;        /* 0-based */
	uint32_t kato_ms;       /* admin only */
	bool hdgst, ddgst, no_sq_flow_control;
	uint32_t in_capsule;    /* bytes that fit into a capsule: from IOCCSZ; admin 8192 */
	unsigned connect_ms;    /* for each stage of connecting */
	unsigned io_ms;         /* a part that has not ended by then resets the connection;
	                         * 0: never; see part.no_timeout */
	enum chan_zc zc;
	void *owner;
	/* up: the queue works; dw0 of Connect. */
	void (*up)(struct hconn *hc, void *owner, uint32_t connect_dw0);
	/* Not any more (or never was): every part has ended, nothing is in flight; why is a
	 * sentence. hconn_free() may follow. dnr: Connect was refused for good. */
	void (*down)(struct hconn *hc, void *owner, const char *why, bool dnr);
	/* A violation was seen; the connection is being reset. For the control socket's event. */
	void (*violation)(struct hconn *hc, void *owner, enum hconn_violation kind, uint16_t cid,
	                  uint64_t off, uint64_t len);
};

/* NULL: no memory; down may follow at once, from the loop. On the reactor's thread. */
struct hconn *hconn_open(const struct hconn_config *cfg);
void hconn_close(struct hconn *hc, const char *why); /* down follows */
void hconn_free(struct hconn *hc);              /* after down */

bool hconn_is_up(const struct hconn *hc);
unsigned hconn_room(const struct hconn *hc);    /* parts that can be sent now */
/* The part is the connection's until part->done. There must be room. */
void hconn_send(struct hconn *hc, struct part *p);
/* Live grants, for "sluicectl grants": calls each() for every part in flight. */
void hconn_each(struct hconn *hc, void (*each)(void *arg, const struct part *p, uint64_t due),
                void *arg);
struct hconn_stats *hconn_stats(struct hconn *hc);

const char *hconn_violation_name(enum hconn_violation v);

#endif
