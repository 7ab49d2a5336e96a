/* The scheduler's way of an I/O: from node to node, held where there is no token; see sched.h.
 *
 * Happy path: walk() takes the I/O through its nodes; admit() lets it pass one, or enters it there.
 * sched_turn() looks at what is due: serve() lets the first of a node go, run_queue() starts what
 * went through and has its queue fetched from at once, so that the next command of that queue has
 * its tag before others are served. Nothing can fail.
 */
#include "initiator/sched.h"

#include "initiator/sched_inner.h"

#define load(p) atomic_load_explicit((p), memory_order_relaxed)

static bool
has_capacity(const struct vq *q)
{
	const struct sched_node *c = q->r->in->capacity;

	return c && load(&c->peak.kinds);
}

/* ---- committed and excess ---- */

/* It has its tokens of the peak. What is committed covers it, or it needs idle capacity. */
static void
classify(struct vq *q, struct sched_node *n, const struct rates_want *w)
{
	if (q->sched.stage == SCHED_CAPACITY || !has_capacity(q))
		return;
	if (committed_ready(n, w))
		rates_charge(&n->committed, w);
	else
		q->sched.excess |= (uint8_t)BIT(q->sched.stage);
}

/* What is committed covers it by now, where it did not before. */
static bool
pay_committed(struct vq *q, const struct io *io, uint64_t now)
{
	struct rates_want w[SCHED_CAPACITY];
	struct sched_node *n[SCHED_CAPACITY] = { NULL };

	for (unsigned i = 0; i < SCHED_CAPACITY; i++) {
		if (!(q->sched.excess & BIT(i)))
			continue;
		n[i] = sched_node_of(q, io, i);
		node_want(n[i], io, now, &w[i]);
		if (!committed_ready(n[i], &w[i]))
			return false;
	}
	for (unsigned i = 0; i < SCHED_CAPACITY; i++)
		if (n[i])
			rates_charge(&n[i]->committed, &w[i]);
	q->sched.excess = 0;
	return true;
}

/* ---- passing a node ---- */

/* Out of the lease, while nobody waits. */
static bool
passes_by(struct sched_local *l, const struct rates_want *w)
{
	return !load(&l->line->waiters) && (int64_t)(load(&l->line->contended) - w->now) <= 0 &&
	       rates_lease(&l->node->peak, l->lease, w);
}

/* In its turn, if there is a token. */
static bool
passes_in_turn(struct sched_local *l, struct vq *q, const struct rates_want *w)
{
	if (!rates_ready(&l->node->peak, w) || !sched_in_order(q, l, w))
		return false;
	rates_charge(&l->node->peak, w);
	sched_served(q, l, w->now);
	return true;
}

/* False: it waits there. */
static bool
admit(struct vq *q, const struct io *io, struct sched_node *n)
{
	struct sched_local *l;
	struct rates_want w;

	node_want(n, io, ring_now(q->r->ring), &w);
	if (!w.kinds)
		return true;
	l = sched_local(n, q, w.line);
	if (q->sched.stage == SCHED_CAPACITY && pay_committed(q, io, w.now)) {
		node_charge_capped(n, &w);
		return true;
	}
	if (!passes_by(l, &w)) {
		sched_tag(q, io, l, &w);
		q->sched.at = l;
		if (!passes_in_turn(l, q, &w))
			return false;
		q->sched.at = NULL;
	}
	classify(q, n, &w);
	return true;
}

/* From the node where it is to the last. False: it waits at one. */
static bool
walk(struct vq *q, const struct io *io)
{
	for (; q->sched.stage < SCHED_STAGES; q->sched.stage++) {
		struct sched_node *n = sched_node_of(q, io, q->sched.stage);

		if (n && !admit(q, io, n))
			return false;
	}
	return true;
}

static bool
walk_from_start(struct vq *q, const struct io *io)
{
	q->sched.stage = q->sched.excess = 0;
	return walk(q, io);
}

/* ---- counting ---- */

static void
count(const struct vq *q, const struct io *io)
{
	for (unsigned i = 0; i < SCHED_STAGES; i++) {
		struct sched_node *n = sched_node_of(q, io, i);

		if (!n || !load(&n->peak.kinds))
			continue;
		METER_ADD(sched_local(n, q, 0)->stats.passed, 1);
		METER_ADD(sched_local(n, q, 0)->stats.passed_bytes, io->nsg ? io->len : 0);
	}
}

/* ---- queues that end ---- */

/* The nodes that it has not passed are charged, whether they have a token or not. */
static void
charge_rest(const struct vq *q, const struct io *io, unsigned stage)
{
	for (; stage < SCHED_STAGES; stage++) {
		struct sched_node *n = sched_node_of(q, io, stage);
		struct rates_want w;

		if (!n)
			continue;
		node_want(n, io, ring_now(q->r->ring), &w);
		if (stage == SCHED_CAPACITY)
			node_charge_capped(n, &w);
		else
			rates_charge(&n->peak, &w);
	}
}

/* ---- coming ---- */

static void
hold(struct vq *q, struct io *io)
{
	if (!q->sched.held.next)
		list_init(&q->sched.held);
	list_push_back(&q->sched.held, &io->node);
	q->sched.nr_held++;
}

bool
sched_start(struct io *io)
{
	struct vq *q = io->q;

	if (io->op == nvme_cmd_flush)
		return true;
	if (q->drains) { /* the next step of one that has begun */
		charge_rest(q, io, 0);
		count(q, io);
		return true;
	}
	if (q->sched.nr_held > 0) {
		hold(q, io);
		return false;
	}
	if (walk_from_start(q, io)) {
		count(q, io);
		return true;
	}
	hold(q, io);
	sched_enqueue(q);
	if (!q->r->sched.turning)
		sched_arm(q->r);
	return false;
}

/* ---- going ---- */

/* The first of q has passed all nodes: it goes, and after it whatever need not wait. */
static void
run_queue(struct vq *q)
{
	do {
		struct io *io = sched_head(q);

		list_del(&io->node);
		q->sched.nr_held--;
		count(q, io);
		io_go(io);
		if (q->sched.nr_held > 0 && !walk_from_start(q, sched_head(q))) {
			sched_enqueue(q);
			return;
		}
	} while (q->sched.nr_held > 0);
	if (!q->ending && q->ops->fetch)
		q->ops->fetch(q, &q->r->sched.free);
}

/* The first of q has passed the node where it waited. */
static void
go_on(struct vq *q)
{
	struct reactor *r = q->r;
	struct sched_local *l = q->sched.at;

	sched_dequeue(q);
	sched_rekey(r, l, ring_now(r->ring));
	q->sched.stage++;
	if (walk(q, sched_head(q)))
		run_queue(q);
	else
		sched_enqueue(q);
}

static void
serve(struct reactor *r, struct sched_local *l, uint64_t now)
{
	struct heap_node *top;

	while ((top = heap_first(&l->waiters))) {
		struct vq *q = container_of(top, struct vq, sched.waiting);
		struct rates_want w;

		node_want(l->node, sched_head(q), now, &w);
		if (w.kinds && !passes_in_turn(l, q, &w))
			break;
		if (w.kinds)
			classify(q, l->node, &w);
		go_on(q);
	}
	sched_rekey(r, l, now);
}

static bool
is_due(const struct heap *h, uint64_t now)
{
	const struct heap_node *n = heap_first(h);

	return n && (int64_t)(n->key - now) <= 0;
}

static void
serve_commits(struct reactor *r, uint64_t now)
{
	while (is_due(&r->sched.commits, now)) {
		struct heap_node *n = heap_first(&r->sched.commits);
		struct vq *q = container_of(n, struct vq, sched.commit);
		struct rates_want w;

		if (!pay_committed(q, sched_head(q), now)) {
			heap_remove(&r->sched.commits, n);
			sched_rekey_commit(q, now);
			continue;
		}
		node_want(r->in->capacity, sched_head(q), now, &w);
		node_charge_capped(r->in->capacity, &w);
		go_on(q);
	}
}

void
sched_turn(struct reactor *r)
{
	struct sched_reactor *s = &r->sched;
	uint64_t now = ring_now(r->ring);

	if (s->all)
		sched_look_at_all(r, now);
	s->all = false;
	if (!is_due(&s->due, now) && !is_due(&s->commits, now))
		return;
	s->turning = true;
	s->free = front_free(r);
	serve_commits(r, now);
	while (is_due(&s->due, now))
		serve(r, container_of(heap_first(&s->due), struct sched_local, due), now);
	s->turning = false;
	sched_arm(r);
}

void
sched_release(struct vq *q)
{
	struct sched_local *l = q->sched.at;
	unsigned stage = q->sched.stage;

	sched_dequeue(q);
	sched_rekey(q->r, l, ring_now(q->r->ring));
	for (; q->sched.nr_held > 0; stage = 0) {
		struct io *io = sched_head(q);

		charge_rest(q, io, stage);
		list_del(&io->node);
		q->sched.nr_held--;
		count(q, io);
		io_go(io);
	}
	sched_arm(q->r);
}

void
sched_merged(struct io *io)
{
	const struct vq *q = io->q;
	bool committed = has_capacity(q);

	for (unsigned i = 0; i < SCHED_STAGES; i++) {
		struct sched_node *n = sched_node_of(q, io, i);
		struct rates_want w;

		if (!n)
			continue;
		node_want(n, io, ring_now(q->r->ring), &w);
		if (!w.kinds)
			continue;
		node_uncharge(n, &w, committed && i != SCHED_CAPACITY);
		METER_ADD(sched_local(n, q, 0)->stats.merged, 1);
	}
}

/* ---- limits that change ---- */

static void
timer_due(struct ring_timer *t)
{
	container_of(t, struct sched_reactor, timer)->armed = 0; /* the turn's hook does the rest */
}

static void
kicked(struct op *op, int res, uint32_t flags)
{
	struct sched_reactor *s = container_of(op, struct sched_reactor, kick);

	(void)res;
	(void)flags;
	atomic_store(&s->kicked, false); /* what is set from now on comes by another message */
	s->all = true;
}

void
sched_init(struct reactor *r)
{
	r->sched.kick = (struct op){ kicked, "sched.kick" };
	ring_timer_init(&r->sched.timer, timer_due);
}
