/* A node of the scheduler: its buckets, and what one I/O wants of them; see sched.h.
 *
 * Happy path: node_want() tells which limits apply to an I/O: those of all commands, those of its
 * direction, those of bytes if it has a payload. The rest loops over them. Limits change while
 * reactors use them: each number is atomic, and an I/O that sees some old and some new ones is
 * charged a little wrong, once. Nothing can fail but sched_node_new(), for memory.
 */
#include "initiator/sched.h"

#include "common/nvme.h"
#include "initiator/initiator.h"
#include "initiator/io.h"

#include <errno.h>
#include <stdlib.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

enum {
	READS = BIT(QOS_IOPS) | BIT(QOS_BANDWIDTH) | BIT(QOS_READ_IOPS) | BIT(QOS_READ_BANDWIDTH),
	WRITES =
		BIT(QOS_IOPS) | BIT(QOS_BANDWIDTH) | BIT(QOS_WRITE_IOPS) | BIT(QOS_WRITE_BANDWIDTH),
	DIRECTED = BIT(QOS_READ_IOPS) | BIT(QOS_WRITE_IOPS) | BIT(QOS_READ_BANDWIDTH) |
	           BIT(QOS_WRITE_BANDWIDTH),
	COMMANDS = BIT(QOS_IOPS) | BIT(QOS_READ_IOPS) | BIT(QOS_WRITE_IOPS),
	VTIME_SHIFT = 14,    /* virtual time has 6 bits behind the point of ns */
	WEIGHT_RATIO = 1000, /* no weight is less than such a part of the peak */
};

#define for_each_kind(mask, m, k)                                                                  \
	for (unsigned m = (mask), k; m && ((k = (unsigned)__builtin_ctz(m)), true); m &= m - 1)

static uint64_t
count(unsigned kind, const struct sched_want *w)
{
	return kind >= QOS_BANDWIDTH ? w->bytes : 1;
}

void
node_want(const struct sched_node *n, const struct io *io, uint64_t now, struct sched_want *ret)
{
	unsigned kinds = atomic_load_explicit(&n->kinds, memory_order_relaxed);

	ret->now = now;
	ret->bytes = io->nsg ? io->len : 0;
	ret->line = kinds & DIRECTED && io->op != nvme_cmd_read ? SCHED_WRITES : SCHED_ALL;
	ret->kinds = kinds & (io->op == nvme_cmd_read ? READS : WRITES);
	if (!ret->bytes)
		ret->kinds &= COMMANDS;
}

bool
node_ready(struct sched_node *n, const struct sched_want *w)
{
	for_each_kind(w->kinds, m,
	              k) if (!bucket_ready(&n->limit[k].peak, count(k, w), w->now)) return false;
	return true;
}

uint64_t
node_wait(struct sched_node *n, const struct sched_want *w)
{
	uint64_t wait = 0;

	for_each_kind(w->kinds, m, k) wait =
		MAX(wait, bucket_wait(&n->limit[k].peak, count(k, w), w->now));
	return wait;
}

void
node_charge(struct sched_node *n, const struct sched_want *w)
{
	for_each_kind(w->kinds, m, k) bucket_charge(&n->limit[k].peak, count(k, w), w->now);
}

void
node_charge_capped(struct sched_node *n, const struct sched_want *w)
{
	for_each_kind(w->kinds, m, k)
		bucket_charge_capped(&n->limit[k].peak, count(k, w), w->now, 100 * NS_PER_MS);
}

bool
node_lease(struct sched_node *n, struct sched_local *l, const struct sched_want *w)
{
	for_each_kind(w->kinds, m, k) if (!bucket_lease_ready(&n->limit[k].peak, &l->lease[k],
	                                                      count(k, w), w->now)) return false;
	for_each_kind(w->kinds, m, k)
		bucket_lease_charge(&n->limit[k].peak, &l->lease[k], count(k, w), w->now);
	return true;
}

/* ---- what is committed ---- */

static bool
all_guaranteed(const struct sched_node *n, const struct sched_want *w)
{
	return !(w->kinds & ~atomic_load_explicit(&n->guaranteed, memory_order_relaxed));
}

bool
committed_ready(struct sched_node *n, const struct sched_want *w)
{
	if (!all_guaranteed(n, w))
		return false;
	for_each_kind(w->kinds, m, k) if (!bucket_ready(&n->limit[k].committed, count(k, w),
	                                                w->now)) return false;
	return true;
}

uint64_t
committed_wait(struct sched_node *n, const struct sched_want *w)
{
	uint64_t wait = 0;

	if (!all_guaranteed(n, w))
		return NS_PER_S;
	for_each_kind(w->kinds, m, k) wait =
		MAX(wait, bucket_wait(&n->limit[k].committed, count(k, w), w->now));
	return wait;
}

void
committed_charge(struct sched_node *n, const struct sched_want *w)
{
	for_each_kind(w->kinds, m, k) bucket_charge(&n->limit[k].committed, count(k, w), w->now);
}

void
node_uncharge(struct sched_node *n, const struct sched_want *w, bool committed)
{
	for_each_kind(w->kinds & COMMANDS, m, k)
	{
		bucket_uncharge(&n->limit[k].peak, 1);
		if (committed)
			bucket_uncharge(&n->limit[k].committed, 1);
	}
}

/* ---- weights ---- */

uint64_t
node_cost(const struct sched_node *n, const struct sched_want *w)
{
	uint64_t cost = 0;

	for_each_kind(w->kinds, m, k) cost =
		MAX(cost, bucket_cost(&n->limit[k].weight, count(k, w)));
	return w->kinds ? (cost >> VTIME_SHIFT) + 1 : 0;
}

/* ---- slow path ---- */

int
sched_node_init(struct sched_node *n, unsigned nr_reactors)
{
	memset(n, 0, sizeof(*n));
	qos_init(&n->cfg);
	n->nr_reactors = nr_reactors;
	nr_reactors *= SCHED_LINES;
	n->local = aligned_alloc(_Alignof(struct sched_local), nr_reactors * sizeof(*n->local));
	if (!n->local)
		return -ENOMEM;
	memset(n->local, 0, nr_reactors * sizeof(*n->local));
	for (unsigned i = 0; i < nr_reactors; i++) {
		n->local[i].node = n;
		n->local[i].line = &n->line[i % SCHED_LINES];
	}
	return 0;
}

void
sched_node_fini(struct sched_node *n)
{
	free(n->local);
	n->local = NULL;
}

struct sched_node *
sched_node_new(unsigned nr_reactors)
{
	struct sched_node *n = malloc(sizeof(*n));

	if (n && sched_node_init(n, nr_reactors) < 0) {
		free(n);
		return NULL;
	}
	return n;
}

void
sched_node_free(struct sched_node *n)
{
	if (n)
		sched_node_fini(n);
	free(n);
}

static void
set_limit(struct sched_limit *l, const struct qos_limit *q, uint32_t burst_ms, uint64_t now)
{
	uint64_t weight = q->peak ? MAX(MAX(q->committed, q->peak / WEIGHT_RATIO), 1u) : 0;

	bucket_set(&l->peak, q->peak, burst_ms, now);
	bucket_set(&l->committed, q->committed, burst_ms, now);
	bucket_set(&l->weight, weight, 0, now);
}

void
sched_set(struct sched_node *n, const struct qos_config *q, uint64_t now)
{
	unsigned kinds = 0, guaranteed = 0;

	for (unsigned k = 0; k < QOS_KINDS; k++) {
		set_limit(&n->limit[k], &q->limit[k], q->burst_ms, now);
		kinds |= q->limit[k].peak ? BIT(k) : 0;
		guaranteed |= q->limit[k].committed ? BIT(k) : 0;
	}
	n->cfg = *q;
	atomic_store(&n->guaranteed, (uint8_t)guaranteed);
	atomic_store(&n->kinds, (uint8_t)kinds);
}

void
sched_refund(struct sched_node *n, bool bytes, uint64_t tokens)
{
	unsigned kinds = atomic_load(&n->kinds) & (bytes ? ~(unsigned)COMMANDS : COMMANDS);

	for_each_kind(kinds, m, k)
	{
		bucket_refund(&n->limit[k].peak, tokens);
		bucket_refund(&n->limit[k].committed, tokens);
	}
	n->refunds += tokens;
}

void
sched_kick(struct initiator *in)
{
	for (unsigned i = 0; i < in->nr_reactors && !in->stopping; i++) {
		struct reactor *r = &in->reactors[i];

		if (!atomic_exchange(&r->sched.kicked, true))
			ring_post(in->reactors[0].ring, r->ring, &r->sched.kick);
	}
}

struct sched_vm *
sched_vm_new(unsigned nr_reactors)
{
	struct sched_vm *vm = calloc(1, sizeof(*vm));

	if (!vm || sched_node_init(&vm->node, nr_reactors) < 0) {
		free(vm);
		return NULL;
	}
	vm->refs = 1;
	return vm;
}

struct sched_vm *
sched_vm_get(struct sched_vm *vm)
{
	vm->refs++;
	return vm;
}

void
sched_vm_put(struct sched_vm *vm)
{
	if (!vm || --vm->refs > 0)
		return;
	sched_node_fini(&vm->node);
	free(vm);
}
