/* The gate of a namespace: how I/O on all reactors is made to stand still without a lock on its
 * path.
 *
 * Closing: a leg is posted to every reactor; there the handle's state changes and, once no command
 * of it is in flight, the leg travels back to the closer, who is called when the last one arrives.
 * Opening: the legs go out again, held commands are resumed, the legs come back, and the next gate
 * in the queue has its turn. One reactor's commands are thus never counted by another.
 */
#include "target/ns.h"

#include "target/io.h"
#include "target/target.h"

static void leg_arrived(struct op *op, int res, uint32_t flags);

enum gate_state
ns_enter(struct ns_handle *h)
{
	if (h->gate != GATE_OPEN)
		return h->gate;
	h->inflight++;
	return GATE_OPEN;
}

static void
leg_home(struct gate_leg *leg)
{
	leg->op.done = leg_arrived;
	ring_post(leg->r->ring, leg->gate->owner->ring, &leg->op);
}

/* Everything that g waits for has ended here: all, but for data that lands elsewhere. */
static bool
still(const struct ns_handle *h, const struct gate *g)
{
	unsigned elsewhere = 0;
	struct cmd *cmd;

	if (g->len > 0)
		list_for_each(&h->landing, cmd, held)
			elsewhere += !io_overlaps(cmd, g->off, g->len);
	return h->inflight == elsewhere;
}

void
ns_leave(struct ns_handle *h)
{
	struct gate *g = h->closing;

	h->inflight--;
	if (!g || !still(h, g))
		return;
	h->closing = NULL;
	leg_home(&g->leg[h - h->ns->h]);
}

void
ns_landing(struct ns_handle *h, struct cmd *cmd)
{
	list_push_back(&h->landing, &cmd->held);
}

void
ns_hold(struct ns_handle *h, struct cmd *cmd)
{
	list_push_back(&h->held, &cmd->held);
}

static void
resume_held(struct ns_handle *h)
{
	struct list held = LIST_INIT(held);
	struct list *n;

	list_splice_back(&held, &h->held);
	while ((n = list_pop_front(&held)))
		cmd_resume(list_entry(n, struct cmd, held));
}

/* On the leg's reactor. */
static void
leg_close(struct op *op, int res, uint32_t flags)
{
	struct gate_leg *leg = container_of(op, struct gate_leg, op);
	struct gate *g = leg->gate;
	struct ns_handle *h = &g->ns->h[leg->r->id];

	(void)res;
	(void)flags;
	h->gate = g->for_good ? GATE_GONE : GATE_CLOSED;
	if (g->for_good) {
		resume_held(h);
		limit_release(g->ns->limit, leg->r);
	}
	if (still(h, g))
		leg_home(leg);
	else
		h->closing = g;
}

static void
leg_open(struct op *op, int res, uint32_t flags)
{
	struct gate_leg *leg = container_of(op, struct gate_leg, op);
	struct ns_handle *h = &leg->gate->ns->h[leg->r->id];

	(void)res;
	(void)flags;
	h->gate = GATE_OPEN;
	resume_held(h);
	leg_home(leg);
}

static void
send_legs(struct gate *g, void (*there)(struct op *op, int res, uint32_t flags),
          struct reactor *from)
{
	struct target *t = g->owner->target;
	unsigned i;

	g->waiting = t->nr_reactors;
	for (i = 0; i < t->nr_reactors; i++) {
		g->leg[i] = (struct gate_leg){ { there, "ns.gate" }, g, &t->reactors[i] };
		ring_post(from->ring, t->reactors[i].ring, &g->leg[i].op);
	}
}

/* The one in force is done with; the next has its turn. Lock held. */
static void
gate_next(struct ns *ns, struct reactor *from)
{
	struct list *n = list_pop_front(&ns->gates);

	ns->gate = n ? list_entry(n, struct gate, node) : NULL;
	if (ns->gate)
		send_legs(ns->gate, leg_close, from);
}

/* A leg is back at the owner, whichever way it was sent. */
static void
leg_arrived(struct op *op, int res, uint32_t flags)
{
	struct gate *g = container_of(op, struct gate_leg, op)->gate;
	struct target *t = g->owner->target;
	bool opened = g->opening;

	(void)res;
	(void)flags;
	if (--g->waiting > 0)
		return;
	if (!opened) {
		g->closed(g);
		return;
	}
	target_lock(t);
	gate_next(g->ns, g->owner);
	target_unlock(t);
	if (g->opened)
		g->opened(g);
}

void
gate_close(struct gate *g)
{
	g->opening = false;
	list_init(&g->node);
	if (g->ns->gate) {
		/* Removal overtakes nobody: those before it were promised a namespace. */
		list_push_back(&g->ns->gates, &g->node);
		return;
	}
	g->ns->gate = g;
	send_legs(g, leg_close, g->owner);
}

void
gate_open(struct gate *g)
{
	assert(!g->for_good);
	g->opening = true;
	send_legs(g, leg_open, g->owner);
}
