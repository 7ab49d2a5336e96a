/* Limits of a namespace, and of a host in a subsystem: commands that wait for a token.
 *
 * Happy path: prepare() in io.c has judged a command; if its subsystem has any limits it asks
 * limit_pass(), which takes a token of the host and then one of the namespace, out of the reactor's
 * lease while nobody waits there. Otherwise the command waits in its slot, without a buffer, behind
 * those of its connection that wait there already. The first of each connection stand in a line,
 * which is served from its front: so connections take turns, however many commands each sends.
 * Reactors show since when their first waits, and none goes far ahead of another. When a token is
 * due the reactor's timer lets the command go on in cmd_admitted().
 *
 * Nothing can fail but limit_new(), for memory. A limit lives as long as its namespace or
 * subsystem; one that is taken away has no rates.
 */
#ifndef SLUICE_TARGET_LIMIT_H
#define SLUICE_TARGET_LIMIT_H

#include "common/heap.h"
#include "common/list.h"
#include "common/meter.h"
#include "common/rates.h"
#include "common/ring.h"

struct cmd;
struct limit;
struct ns;
struct reactor;
struct target;

struct limit_stats { /* METER_GET */
	uint64_t passed, passed_bytes, held;
	struct meter_hist wait; /* ns that held commands waited */
};

struct limit_local { /* a line on one reactor, which alone touches it but for first and stats */
	_Atomic uint64_t first; /* ns: since when its first waits; 0: nobody does */
	struct limit *limit;
	unsigned line;
	struct list heads;    /* limit_wait.node, who came first is the first */
	struct heap_node due; /* in limit_reactor.due while somebody waits */
	bool is_due;          /* it is in there */
	uint64_t blocked;     /* ns: since when only the order holds us up; 0: not */
	uint64_t blocker;     /* since when the one waits that is before us */
	struct bucket_lease lease[QOS_KINDS];
	struct limit_stats stats;
} __attribute__((aligned(64)));

struct limit {
	struct rates rates;
	_Atomic uint32_t waiters[RATES_LINES]; /* connections, on all reactors */
	struct qos_config cfg;                 /* what was set; target lock */
	uint64_t refunds;                      /* by hand; target lock */
	unsigned nr_reactors;
	struct limit_local *local; /* [reactor * RATES_LINES + line] */
};

enum limit_stage { LIMIT_HOST, LIMIT_NS, LIMIT_STAGES };

struct limit_wait {             /* in each command */
	struct limit_local *at; /* where it waits; NULL: nowhere */
	struct list node;       /* limit_local.heads, or behind of the first of its connection */
	struct list conn_node;  /* conn.limited, of the first */
	struct list behind;     /* the others of its connection there, in order */
	uint64_t since;         /* ns: held */
	uint64_t turn;          /* ns: the first since */
	uint64_t bytes;
	bool read, head;
};

struct limit_reactor {   /* in each reactor */
	struct heap due; /* limit_local.due */
	struct ring_timer timer;
	uint64_t armed; /* when the timer is due; 0: it is not set */
	struct op kick; /* limits changed: look at all again */
	_Atomic bool kicked;
};

/* On the command's reactor. */

void limit_init(struct reactor *r);
/* False: it is CMD_LIMITED, cmd_admitted() comes later. ns: whose it is at this moment. */
bool limit_pass(struct cmd *cmd, const struct ns *ns);
/* Bytes that were moved without having been asked for: they are paid back. */
void limit_charge(const struct cmd *cmd, const struct ns *ns, uint64_t bytes);
/* It waits no longer; nobody is charged. */
void limit_forget(struct cmd *cmd);
/* All that wait on r go on, and are judged anew. l may be NULL. */
void limit_release(struct limit *l, struct reactor *r);

/* On reactor 0, with the lock. */

/* NULL: no memory. */
struct limit *limit_new(unsigned nr_reactors);
void limit_free(struct limit *l); /* NULL is fine */
void limit_set(struct limit *l, const struct qos_config *q, struct target *t);
void limit_refund(struct limit *l, bool bytes, uint64_t n, struct target *t);

#endif
