/* A node of the scheduler: its buckets, and what one I/O wants of them; see sched.h and
 * common/rates.h.
 *
 * Happy path: node_want() tells which limits apply to an I/O; those of the peak are asked directly,
 * what is committed through here, since all of it must be there. Nothing can fail but
 * sched_node_new(), for memory.
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
	VTIME_SHIFT = 14,    /* virtual time has 6 bits behind the point of ns */
	WEIGHT_RATIO = 1000, /* no weight is less than such a part of the peak */
};

void
node_want(const struct sched_node *n, const struct io *io, uint64_t now, struct rates_want *ret)
{
	rates_want(&n->peak, io->op == nvme_cmd_read, io->nsg ? io->len : 0, now, ret);
}

void
node_charge_capped(struct sched_node *n, const struct rates_want *w)
{
	rates_charge_capped(&n->peak, w, 100 * NS_PER_MS);
}

static bool
all_guaranteed(const struct sched_node *n, const struct rates_want *w)
{
	return !(w->kinds & ~atomic_load_explicit(&n->committed.kinds, memory_order_relaxed));
}

bool
committed_ready(struct sched_node *n, const struct rates_want *w)
{
	return all_guaranteed(n, w) && rates_ready(&n->committed, w);
}

uint64_t
committed_wait(struct sched_node *n, const struct rates_want *w)
{
	return all_guaranteed(n, w) ? rates_wait(&n->committed, w) : NS_PER_S;
}

void
node_uncharge(struct sched_node *n, const struct rates_want *w, bool committed)
{
	rates_uncharge(&n->peak, w);
	if (committed)
		rates_uncharge(&n->committed, w);
}

uint64_t
node_cost(const struct sched_node *n, const struct rates_want *w)
{
	uint64_t cost = 0;

	for_each_kind(w->kinds, m, k)
	{
		cost = MAX(cost, bucket_cost(&n->weight.bucket[k], rates_count(k, w)));
	}
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

void
sched_set(struct sched_node *n, const struct qos_config *q, uint64_t now)
{
	uint64_t peak[QOS_KINDS], committed[QOS_KINDS], weight[QOS_KINDS];

	for (unsigned k = 0; k < QOS_KINDS; k++) {
		peak[k] = q->limit[k].peak;
		committed[k] = q->limit[k].committed;
		weight[k] = peak[k] ? MAX(MAX(committed[k], peak[k] / WEIGHT_RATIO), 1u) : 0;
	}
	n->cfg = *q;
	rates_set(&n->committed, committed, q->burst_ms, now);
	rates_set(&n->weight, weight, 0, now);
	rates_set(&n->peak, peak, q->burst_ms, now);
}

void
sched_refund(struct sched_node *n, bool bytes, uint64_t tokens)
{
	rates_refund(&n->peak, bytes, tokens);
	rates_refund(&n->committed, bytes, tokens);
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
