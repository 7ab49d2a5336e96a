/* Who waits at a node, in which order, and until when; see sched.h.
 *
 * Happy path: sched_tag() gives the first I/O of a queue its place in the node's virtual time;
 * sched_enqueue() puts the queue into its reactor's heap of that node, which is in the reactor's
 * heap of what is due, whose first sets the timer. Other reactors see the least tag of each and let
 * it go first, but for some I/Os that they may be ahead, so that reactors need not take turns in
 * each microsecond. Who is let go first and does not go, because his thread is busy elsewhere, is
 * passed after a moment. Nothing can fail.
 */
#include "initiator/sched_inner.h"

enum {
	FLOW_STALE_NS = 1000000000, /* a flow that paused for so long begins afresh */
	DEFAULT_COST_NS = 1000000,  /* of an I/O whose VM has no limits: a thousand a second... */
	DEFAULT_BYTE_COST_NS = 60,  /* ...or 16 MB */
	COST_SHIFT = 6,
};

#define NS_PER_MS UINT64_C(1000000)

#define load(p)     atomic_load_explicit((p), memory_order_relaxed)
#define store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

static bool
before(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

/* ---- tags ---- */

static struct sched_flow *
flow_of(struct vq *q, const struct io *io, const struct sched_node *n, unsigned line)
{
	const struct vf *vf = q->vf;

	if (!vf || !vf->qos || n == &vf->qos->node)
		return &q->sched.flow[line];
	if (n != io->vol->qos)
		return &vf->qos->flow[SCHED_FLOWS][line];
	for (unsigned i = 0; i < SCHED_FLOWS; i++)
		if (vf->qos->disk[i] == io->vol)
			return &vf->qos->flow[i][line];
	return &q->sched.flow[line];
}

/* Virtual time of an I/O: queues of a VM take turns, VMs count by what is committed to them, or to
 * the volume where they have no limits. */
static uint64_t
cost_of(const struct vq *q, const struct io *io, const struct sched_node *n,
        const struct rates_want *w)
{
	const struct sched_node *vm = sched_node_of(q, io, SCHED_VM);
	struct rates_want own;
	uint64_t cost = 0;

	if (n == vm)
		return 1 << COST_SHIFT;
	if (vm) {
		node_want(vm, io, w->now, &own);
		cost = node_cost(vm, &own);
	}
	if (!cost && io->vol->qos && n != io->vol->qos) {
		node_want(io->vol->qos, io, w->now, &own);
		cost = node_cost(io->vol->qos, &own);
	}
	if (!cost)
		cost = MAX((uint64_t)DEFAULT_COST_NS, w->bytes * DEFAULT_BYTE_COST_NS)
		       << COST_SHIFT;
	return cost;
}

void
sched_tag(struct vq *q, const struct io *io, struct sched_local *l, const struct rates_want *w)
{
	struct sched_flow *f = flow_of(q, io, l->node, w->line);
	uint64_t vnow = load(&l->line->vnow), old = load(&f->tag), tag;
	uint64_t floor = vnow - 2 * load(&l->line->lead); /* behind those who are ahead */
	bool stale = w->now - load(&f->last) > FLOW_STALE_NS;

	q->sched.cost = cost_of(q, io, l->node, w);
	q->sched.tagged = f;
	store(&f->last, w->now);
	do {
		tag = stale ? vnow : before(old, floor) ? floor : old;
		if (tag == 0) /* says that nobody waits */
			tag = 1;
	} while (!atomic_compare_exchange_weak(&f->tag, &old, tag + q->sched.cost));
	q->sched.tag = tag;
}

/* The least tag that waits in the line on other reactors; 0: none. */
static uint64_t
least_elsewhere(const struct sched_local *l)
{
	const struct sched_node *n = l->node;
	uint64_t least = 0;

	for (unsigned i = 0; i < n->nr_reactors * SCHED_LINES; i++) {
		uint64_t tag = n->local[i].line == l->line && &n->local[i] != l
		                       ? load(&n->local[i].first)
		                       : 0;

		if (tag && (!least || before(tag, least)))
			least = tag;
	}
	return least;
}

/* Somebody on another reactor is before it, and goes on. */
static bool
others_first(const struct vq *q, struct sched_local *l, const struct rates_want *w)
{
	uint64_t least = least_elsewhere(l);

	if (!least || !before(least + load(&l->line->lead), q->sched.tag)) {
		l->blocked = 0;
		return false;
	}
	if (!l->blocked || l->blocker != least) {
		l->blocked = w->now;
		l->blocker = least;
	}
	return w->now - l->blocked < SCHED_GRACE_NS;
}

bool
sched_in_order(const struct vq *q, struct sched_local *l, const struct rates_want *w)
{
	const struct heap_node *top = heap_first(&l->waiters);

	if (top && top != &q->sched.waiting && !before(q->sched.tag, top->key))
		return false;
	return l->node->nr_reactors == 1 || !others_first(q, l, w);
}

/* Once a millisecond. */
static void
measure(struct sched_line *line, uint64_t now)
{
	uint64_t mark_ns = load(&line->mark_ns), vnow = load(&line->vnow), moved;

	if (now - mark_ns < NS_PER_MS ||
	    !atomic_compare_exchange_strong(&line->mark_ns, &mark_ns, now))
		return;
	moved = vnow - load(&line->mark);
	store(&line->mark, vnow);
	if (now - mark_ns > FLOW_STALE_NS || (int64_t)moved < 0)
		moved = 0;
	store(&line->lead, moved / ((now - mark_ns) / NS_PER_MS));
}

void
sched_served(const struct vq *q, struct sched_local *l, uint64_t now)
{
	uint64_t vnow = load(&l->line->vnow);

	measure(l->line, now);
	store(&q->sched.tagged->last, now);
	store(&l->line->contended, now + SCHED_CONTENDED_NS);
	while (before(vnow, q->sched.tag))
		if (atomic_compare_exchange_weak(&l->line->vnow, &vnow, q->sched.tag))
			return;
}

/* ---- waiting ---- */

void
sched_arm(struct reactor *r)
{
	struct sched_reactor *s = &r->sched;
	const struct heap_node *due = heap_first(&s->due), *commit = heap_first(&s->commits);
	uint64_t at;

	if (!due && !commit) {
		ring_timer_del(&s->timer);
		s->armed = 0;
		return;
	}
	at = due ? due->key : commit->key;
	if (commit && before(commit->key, at))
		at = commit->key;
	if (at == s->armed)
		return;
	s->armed = at;
	ring_timer_set(r->ring, &s->timer, at);
}

static void
set_due(struct reactor *r, struct sched_local *l, uint64_t at)
{
	if (l->is_due)
		heap_remove(&r->sched.due, &l->due);
	heap_insert(&r->sched.due, &l->due, at);
	l->is_due = true;
}

void
sched_rekey(struct reactor *r, struct sched_local *l, uint64_t now)
{
	const struct heap_node *top = heap_first(&l->waiters);
	struct rates_want w;
	const struct vq *q;
	uint64_t wait;

	if (!top) {
		store(&l->first, 0);
		l->blocked = 0;
		if (l->is_due)
			heap_remove(&r->sched.due, &l->due);
		l->is_due = false;
		return;
	}
	store(&l->first, top->key);
	q = container_of(top, struct vq, sched.waiting);
	node_want(l->node, sched_head(q), now, &w);
	wait = rates_wait(&l->node->peak, &w);
	if (wait == 0 && l->blocked) /* others first */
		wait = SCHED_RECHECK_NS;
	set_due(r, l, now + wait);
}

void
sched_rekey_commit(struct vq *q, uint64_t now)
{
	const struct io *io = sched_head(q);
	uint64_t wait = 0;

	for (unsigned stage = 0; stage < SCHED_CAPACITY; stage++) {
		struct rates_want w;
		struct sched_node *n;

		if (!(q->sched.excess & BIT(stage)))
			continue;
		n = sched_node_of(q, io, stage);
		node_want(n, io, now, &w);
		wait = MAX(wait, committed_wait(n, &w));
	}
	heap_insert(&q->r->sched.commits, &q->sched.commit, now + wait);
}

void
sched_enqueue(struct vq *q)
{
	struct sched_local *l = q->sched.at;
	uint64_t now = ring_now(q->r->ring);

	q->sched.since = now;
	METER_ADD(l->stats.held, 1);
	atomic_fetch_add(&l->line->waiters, 1);
	store(&l->line->contended, now + SCHED_CONTENDED_NS);
	heap_insert(&l->waiters, &q->sched.waiting, q->sched.tag);
	if (l->node == q->r->in->capacity)
		sched_rekey_commit(q, now);
	if (heap_first(&l->waiters) == &q->sched.waiting)
		sched_rekey(q->r, l, now);
}

void
sched_dequeue(struct vq *q)
{
	struct sched_local *l = q->sched.at;

	heap_remove(&l->waiters, &q->sched.waiting);
	if (l->node == q->r->in->capacity)
		heap_remove(&q->r->sched.commits, &q->sched.commit);
	atomic_fetch_sub(&l->line->waiters, 1);
	meter_hist_add(&l->stats.wait, ring_now(q->r->ring) - q->sched.since);
	q->sched.at = NULL;
}

void
sched_look_at_all(struct reactor *r, uint64_t now)
{
	struct heap old = r->sched.due;
	struct heap_node *n;

	r->sched.due = (struct heap){ NULL };
	while ((n = heap_pop(&old)))
		heap_insert(&r->sched.due, n, now);
	old = r->sched.commits;
	r->sched.commits = (struct heap){ NULL };
	while ((n = heap_pop(&old)))
		heap_insert(&r->sched.commits, n, now);
}

void
sched_drop(struct vq *q)
{
	struct sched_local *l = q->sched.at;
	struct list *n;

	sched_dequeue(q);
	sched_rekey(q->r, l, ring_now(q->r->ring));
	while ((n = list_pop_front(&q->sched.held))) {
		struct io *io = list_entry(n, struct io, node);

		q->sched.nr_held--;
		io->status = NVME_SC_ABORT_QUEUE;
		list_push_back(&q->r->ready, &io->node);
	}
	sched_arm(q->r);
}
