/* Who waits for a token, in which order, and until when; see limit.h.
 *
 * Happy path: pass_at() takes the tokens of one limit or hold() puts the command into a line; the
 * line is in the reactor's heap of what is due, whose first sets the timer; serve() lets go whoever
 * stands at the front, as long as there are tokens. Nothing can fail.
 */
#include "target/limit.h"

#include "common/zip.h"
#include "target/ctrl.h"
#include "target/io.h"

#include <stdlib.h>

enum {
	/* Reactors may be ahead of each other by so much; where tokens are dearer, strictly who
	 * waits longest is next. */
	LEAD_NS = 1000000,
	/* Who is before us and does not go, because his thread is busy, is passed after a while,
	 * which is less than the default burst, so that no token lapses. */
	GRACE_NS = 5000000,
	RECHECK_NS = 200000,
};

#define load(p)     atomic_load_explicit((p), memory_order_relaxed)
#define store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

static struct cmd *
cmd_of(struct list *node)
{
	return list_entry(node, struct cmd, limit.node);
}

static uint64_t
now_of(const struct cmd *cmd)
{
	return ring_now(cmd->conn->r->ring);
}

static struct limit_local *
local_of(const struct limit *l, const struct reactor *r, unsigned line)
{
	return &l->local[r->id * RATES_LINES + line];
}

static void
want(const struct cmd *cmd, const struct limit *l, struct rates_want *ret)
{
	rates_want(&l->rates, cmd->limit.read, cmd->limit.bytes, now_of(cmd), ret);
}

static void
count(const struct cmd *cmd, struct limit_local *at)
{
	METER_ADD(at->stats.passed, 1);
	METER_ADD(at->stats.passed_bytes, cmd->limit.bytes);
}

/* ---- order ---- */

/* Since when the first waits on other reactors; 0: nobody does. */
static uint64_t
first_elsewhere(const struct limit_local *at)
{
	const struct limit *l = at->limit;
	uint64_t first = 0;

	for (unsigned i = 0; i < l->nr_reactors; i++) {
		const struct limit_local *other = &l->local[i * RATES_LINES + at->line];
		uint64_t since = other != at ? load(&other->first) : 0;

		if (since && (!first || since < first))
			first = since;
	}
	return first;
}

/* Somebody on another reactor has waited longer than one who does since turn, and goes on. */
static bool
others_first(struct limit_local *at, uint64_t turn, uint64_t now)
{
	uint64_t first = first_elsewhere(at);

	if (!first || first + LEAD_NS >= turn) {
		at->blocked = 0;
		return false;
	}
	if (!at->blocked || at->blocker != first) {
		at->blocked = now;
		at->blocker = first;
	}
	return now - at->blocked < GRACE_NS;
}

/* ---- time ---- */

static void
arm(struct reactor *r)
{
	const struct heap_node *due = heap_first(&r->limit.due);

	if (!due) {
		ring_timer_del(&r->limit.timer);
		r->limit.armed = 0;
	} else if (r->limit.armed != due->key) {
		r->limit.armed = due->key;
		ring_timer_set(r->ring, &r->limit.timer, due->key);
	}
}

static void
set_due(struct reactor *r, struct limit_local *at, uint64_t when)
{
	if (at->is_due)
		heap_remove(&r->limit.due, &at->due);
	heap_insert(&r->limit.due, &at->due, when);
	at->is_due = true;
}

/* When the first of the line is to be looked at again. */
static void
rekey(struct reactor *r, struct limit_local *at)
{
	struct rates_want w;
	const struct cmd *cmd;
	uint64_t wait;

	if (list_empty(&at->heads)) {
		store(&at->first, 0);
		at->blocked = 0;
		if (at->is_due)
			heap_remove(&r->limit.due, &at->due);
		at->is_due = false;
		return;
	}
	cmd = cmd_of(list_first(&at->heads));
	store(&at->first, cmd->limit.turn);
	want(cmd, at->limit, &w);
	wait = rates_wait(&at->limit->rates, &w);
	if (wait == 0 && at->blocked)
		wait = RECHECK_NS;
	set_due(r, at, w.now + wait);
}

/* ---- waiting ---- */

/* The first of its connection that waits there. */
static struct cmd *
head_of(const struct conn *c, const struct limit_local *at)
{
	struct cmd *cmd;

	list_for_each (&c->limited, cmd, limit.conn_node)
		if (cmd->limit.at == at)
			return cmd;
	return NULL;
}

/* Becomes the first of its connection, at the end of the line. */
static void
enlist(struct cmd *cmd, struct limit_local *at)
{
	cmd->limit.head = true;
	cmd->limit.turn = now_of(cmd);
	list_push_back(&at->heads, &cmd->limit.node);
	list_push_back(&cmd->conn->limited, &cmd->limit.conn_node);
	atomic_fetch_add(&at->limit->waiters[at->line], 1);
}

static void
hold(struct cmd *cmd, struct limit_local *at)
{
	struct cmd *head = head_of(cmd->conn, at);

	cmd->state = CMD_LIMITED;
	cmd->limit.at = at;
	cmd->limit.since = now_of(cmd);
	cmd->limit.head = false;
	METER_ADD(at->stats.held, 1);
	if (head) {
		list_push_back(&head->limit.behind, &cmd->limit.node);
		return;
	}
	enlist(cmd, at);
	if (list_first(&at->heads) == &cmd->limit.node) {
		rekey(cmd->conn->r, at);
		arm(cmd->conn->r);
	}
}

/* Takes it out; the next of its connection has its place, at the end of the line. */
static void
leave(struct cmd *cmd)
{
	struct limit_local *at = cmd->limit.at;
	struct list *n;

	list_del(&cmd->limit.node);
	cmd->limit.at = NULL;
	if (!cmd->limit.head)
		return;
	list_del(&cmd->limit.conn_node);
	atomic_fetch_sub(&at->limit->waiters[at->line], 1);
	n = list_pop_front(&cmd->limit.behind);
	if (!n)
		return;
	list_splice_back(&cmd_of(n)->limit.behind, &cmd->limit.behind);
	enlist(cmd_of(n), at);
}

void
limit_forget(struct cmd *cmd)
{
	struct limit_local *at = cmd->limit.at;

	leave(cmd);
	rekey(cmd->conn->r, at);
	arm(cmd->conn->r);
}

/* ---- passing ---- */

/* Not behind anybody of another connection. */
static bool
has_turn(struct limit_local *at, const struct rates_want *w)
{
	return list_empty(&at->heads) && !others_first(at, w->now, w->now);
}

/* False: it waits there. */
static bool
pass_at(struct cmd *cmd, struct limit *l)
{
	struct limit_local *at;
	struct rates_want w;

	want(cmd, l, &w);
	if (!w.kinds)
		return true;
	at = local_of(l, cmd->conn->r, w.line);
	if (!load(&l->waiters[w.line])) {
		if (rates_lease(&l->rates, at->lease, &w)) {
			count(cmd, at);
			return true;
		}
	} else if (has_turn(at, &w) && rates_ready(&l->rates, &w)) {
		rates_charge(&l->rates, &w);
		count(cmd, at);
		return true;
	}
	hold(cmd, at);
	return false;
}

static bool
is_read(const struct cmd *cmd)
{
	switch (cmd->sqe.opcode) {
	case nvme_cmd_read:
	case nvme_cmd_compare:
	case nvme_cmd_verify:
	case ZIP_READ:
		return true;
	default:
		return false;
	}
}

/* What is read or written for the host; Copy is charged as it goes, limit_charge(). */
static uint64_t
bytes_of(const struct cmd *cmd, const struct ns *ns)
{
	switch (cmd->sqe.opcode) {
	case nvme_cmd_read:
	case nvme_cmd_write:
	case nvme_cmd_compare:
		return cmd->data_len;
	case nvme_cmd_verify:
	case ZIP_READ:
	case ZIP_WRITE:
		return (uint64_t)io_blocks(cmd) << ns->lba_shift;
	default:
		return 0;
	}
}

static struct limit *
limit_at(const struct cmd *cmd, const struct ns *ns, unsigned stage)
{
	return atomic_load_explicit(stage == LIMIT_HOST ? &cmd->conn->ctrl->limit : &ns->limit,
	                            memory_order_acquire);
}

bool
limit_pass(struct cmd *cmd, const struct ns *ns)
{
	if (cmd->sqe.opcode == nvme_cmd_flush)
		return true;
	cmd->limit.bytes = bytes_of(cmd, ns);
	cmd->limit.read = is_read(cmd);
	for (; cmd->limits_passed < LIMIT_STAGES; cmd->limits_passed++) {
		struct limit *l = limit_at(cmd, ns, cmd->limits_passed);

		if (l && !pass_at(cmd, l))
			return false;
	}
	return true;
}

void
limit_charge(const struct cmd *cmd, const struct ns *ns, uint64_t bytes)
{
	for (unsigned i = 0; i < LIMIT_STAGES; i++) {
		struct limit *l = limit_at(cmd, ns, i);
		struct rates_want w;

		if (!l)
			continue;
		rates_want(&l->rates, is_read(cmd), bytes, now_of(cmd), &w);
		w.kinds &= ~RATES_COMMANDS;
		rates_charge(&l->rates, &w);
		METER_ADD(local_of(l, cmd->conn->r, w.line)->stats.passed_bytes, bytes);
	}
}

/* ---- going ---- */

static void
let_go(struct cmd *cmd)
{
	struct limit_local *at = cmd->limit.at;

	leave(cmd);
	meter_hist_add(&at->stats.wait, now_of(cmd) - cmd->limit.since);
	count(cmd, at);
	cmd->limits_passed++;
	cmd_admitted(cmd);
}

static void
serve(struct reactor *r, struct limit_local *at)
{
	while (!list_empty(&at->heads)) {
		struct cmd *cmd = cmd_of(list_first(&at->heads));
		struct rates_want w;

		want(cmd, at->limit, &w);
		if (w.kinds && (!rates_ready(&at->limit->rates, &w) ||
		                others_first(at, cmd->limit.turn, w.now)))
			break;
		rates_charge(&at->limit->rates, &w);
		let_go(cmd);
	}
	rekey(r, at);
}

static void
turn(struct reactor *r)
{
	const struct heap_node *n;

	while ((n = heap_first(&r->limit.due)) && n->key <= ring_now(r->ring))
		serve(r, container_of(n, struct limit_local, due));
	arm(r);
}

void
limit_release(struct limit *l, struct reactor *r)
{
	if (!l)
		return;
	for (unsigned line = 0; line < RATES_LINES; line++) {
		struct limit_local *at = local_of(l, r, line);

		while (!list_empty(&at->heads)) {
			struct cmd *cmd = cmd_of(list_first(&at->heads));

			leave(cmd);
			cmd_admitted(cmd);
		}
		rekey(r, at);
	}
	arm(r);
}

static void
timer_due(struct ring_timer *t)
{
	struct limit_reactor *lr = container_of(t, struct limit_reactor, timer);

	lr->armed = 0;
	turn(container_of(lr, struct reactor, limit));
}

static void
kicked(struct op *op, int res, uint32_t flags)
{
	struct limit_reactor *lr = container_of(op, struct limit_reactor, kick);
	struct reactor *r = container_of(lr, struct reactor, limit);
	uint64_t now = ring_now(r->ring);
	struct heap old = lr->due;
	struct heap_node *n;

	(void)res;
	(void)flags;
	atomic_store(&lr->kicked, false); /* what is set from now on comes by another message */
	lr->due = (struct heap){ NULL };
	while ((n = heap_pop(&old)))
		heap_insert(&lr->due, n, now);
	turn(r);
}

void
limit_init(struct reactor *r)
{
	r->limit.kick = (struct op){ kicked, "limit.kick" };
	ring_timer_init(&r->limit.timer, timer_due);
}

/* ---- slow path ---- */

struct limit *
limit_new(unsigned nr_reactors)
{
	size_t n = nr_reactors * RATES_LINES;
	struct limit *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->local = aligned_alloc(_Alignof(struct limit_local), n * sizeof(*l->local));
	if (!l->local) {
		free(l);
		return NULL;
	}
	memset(l->local, 0, n * sizeof(*l->local));
	for (unsigned i = 0; i < n; i++) {
		l->local[i].limit = l;
		l->local[i].line = i % RATES_LINES;
		list_init(&l->local[i].heads);
	}
	qos_init(&l->cfg);
	l->nr_reactors = nr_reactors;
	return l;
}

void
limit_free(struct limit *l)
{
	if (l)
		free(l->local);
	free(l);
}

/* Every reactor looks at all that it holds again. */
static void
kick(struct target *t)
{
	for (unsigned i = 0; i < t->nr_reactors; i++) {
		struct limit_reactor *lr = &t->reactors[i].limit;

		if (!atomic_exchange(&lr->kicked, true))
			ring_post(t->reactors[0].ring, t->reactors[i].ring, &lr->kick);
	}
}

void
limit_set(struct limit *l, const struct qos_config *q, struct target *t)
{
	uint64_t rate[QOS_KINDS];

	for (unsigned k = 0; k < QOS_KINDS; k++)
		rate[k] = q->limit[k].peak;
	l->cfg = *q;
	rates_set(&l->rates, rate, q->burst_ms, ring_now(t->reactors[0].ring));
	kick(t);
}

void
limit_refund(struct limit *l, bool bytes, uint64_t n, struct target *t)
{
	rates_refund(&l->rates, bytes, n);
	l->refunds += n;
	kick(t);
}
