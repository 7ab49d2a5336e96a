/* A namespace, its handle on each reactor, and the gate that stops I/O on it.
 *
 * The namespace itself is slow-path state under the target's lock. The hot path reads the pointer
 * in subsys->ns[] (acquire), takes the handle of its own reactor and counts its command there; no
 * other reactor's cache line is written.
 *
 * Whatever needs the namespace to stand still (fused compare and write, shrink, format, removal)
 * closes the gate: every reactor is told, new commands are held in order, and when the ones in
 * flight have ended on all of them the closer is called on its own reactor; gate_open() lets the
 * held ones go. One gate at a time for each namespace, others queue. A namespace that goes away
 * closes its gate for good: held and new commands end with Invalid Namespace, and it is freed when
 * the last command in flight has ended.
 */
#ifndef SLUICE_NS_H
#define SLUICE_NS_H

#include "target/backend.h"
#include "target/bad.h"
#include "target/reactor.h"

struct limit;
struct subsys;
struct ns;
struct cmd;

enum { NS_MAX = 1024 };         /* highest NSID of a subsystem */

enum gate_state { GATE_OPEN, GATE_CLOSED, GATE_GONE };

struct ns_stats {               /* one writer, read by anyone (METER_GET) */
	uint64_t reads, writes, read_bytes, write_bytes, other, errors;
	uint64_t zip_read_bytes, zip_write_bytes; /* what travelled in compressed transfers */
};

struct ns_handle {              /* one namespace on one reactor; touched by that reactor alone */
	struct ns *ns;
	enum gate_state gate;
	unsigned inflight;      /* commands between ns_enter() and ns_leave() */
	struct list held;       /* cmd.held of commands that wait for the gate, in order */
	struct gate *closing;   /* told when nothing that it waits for is in flight */
	/* cmd.held of writes in flight whose data is on its way into place */
	struct list landing;
	struct ns_stats stats;
};

struct ns {
	struct subsys *subsys;
	uint32_t nsid;          /* 1..NS_MAX */
	uint8_t uuid[16], nguid[16], eui64[8]; /* all zero: not set, left out */
	char *spec;             /* device path as configured, for dumps */
	struct backend *be;
	uint8_t lba_shift;      /* 9 or 12 */
	bool managed;           /* made by Namespace Management: its file is ours to delete */
	bool auto_attach;       /* new controllers see it */
	_Atomic bool write_protected;
	struct bad bad;         /* blocks that Write Uncorrectable has marked */
	_Atomic uint64_t blocks; /* capacity; read on the hot path */
	struct limit *_Atomic limit; /* ours; NULL until there was one. Set under the lock */

	struct gate *gate;      /* the one in force; target lock */
	struct list gates;      /* gates that wait for it; target lock */
	bool gone;              /* unpublished, on its way out */
	struct ns_handle h[REACTORS_MAX];
};

/* Counts a command in. GATE_OPEN: go on, and ns_leave() later. GATE_CLOSED: hold it with ns_hold().
 * GATE_GONE: Invalid Namespace. */
enum gate_state ns_enter(struct ns_handle *h);
void ns_leave(struct ns_handle *h);
/* A command that was counted in waits for its host's data, which lands in the backend's memory. */
void ns_landing(struct ns_handle *h, struct cmd *cmd);
/* cmd is run again (cmd_resume) when the gate opens or the namespace goes. */
void ns_hold(struct ns_handle *h, struct cmd *cmd);

struct gate {                   /* lives in whoever closes it */
	struct ns *ns;
	struct reactor *owner;  /* on whose thread the callbacks run */
	void (*closed)(struct gate *g);  /* nothing is in flight any more */
	void (*opened)(struct gate *g);  /* the gate object is free again; may be NULL */
	bool for_good;          /* GATE_GONE instead of GATE_CLOSED */
	uint64_t off, len;      /* bytes that the closer will touch; len 0: all. Data on its way to
	                         * other bytes is not waited for: it may depend on a host that is
	                         * slow or frozen */
	struct list node;       /* private from here on */
	unsigned waiting;       /* legs on their way */
	bool opening;
	struct gate_leg { struct op op; struct gate *gate; struct reactor *r; } leg[REACTORS_MAX];
};

/* The caller fills ns, owner, closed, opened, for_good. Any reactor thread; the lock is held. */
void gate_close(struct gate *g);
/* On owner's thread, after closed(); the lock is held. Not for gates that are for_good. */
void gate_open(struct gate *g);

#endif
