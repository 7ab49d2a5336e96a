/* Between sched.c, which lets I/O go, and sched_wait.c, which keeps who waits. */
#ifndef SLUICE_INITIATOR_SCHED_INNER_H
#define SLUICE_INITIATOR_SCHED_INNER_H

#include "initiator/front.h"
#include "initiator/initiator.h"
#include "initiator/io.h"
#include "initiator/sched.h"

enum {
	SCHED_CONTENDED_NS = 2000000, /* order counts for so long after somebody waited */
	/* Others that are before us, but do not go, are passed after a while, which is less than
	 * the default burst, so that no token lapses; meanwhile we look now and then. */
	SCHED_GRACE_NS = 5000000,
	SCHED_RECHECK_NS = 200000,
};

static inline struct io *
sched_head(const struct vq *q)
{
	return list_entry(q->sched.held.next, struct io, node);
}

/* NULL: nothing of that kind can limit it. */
static inline struct sched_node *
sched_node_of(const struct vq *q, const struct io *io, unsigned stage)
{
	switch (stage) {
	case SCHED_VM:
		return q->vf && q->vf->qos ? &q->vf->qos->node : NULL;
	case SCHED_VOLUME:
		return io->vol->qos;
	default:
		return q->r->in->capacity;
	}
}

static inline struct sched_local *
sched_local(const struct sched_node *n, const struct vq *q, unsigned line)
{
	return &n->local[q->r->id * SCHED_LINES + line];
}

/* Gives the first I/O of q, which has come to l, its tag there. */
void sched_tag(struct vq *q, const struct io *io, struct sched_local *l,
               const struct rates_want *w);
/* Its tag is not behind that of others. */
bool sched_in_order(const struct vq *q, struct sched_local *l, const struct rates_want *w);
/* It goes, having waited or not. */
void sched_served(const struct vq *q, struct sched_local *l, uint64_t now);

void sched_enqueue(struct vq *q); /* at q->sched.at; its first is held already */
void sched_dequeue(struct vq *q);
/* When the first who waits at l is to be looked at again. */
void sched_rekey(struct reactor *r, struct sched_local *l, uint64_t now);
/* When the committed tokens of q's first, which waits for capacity, are due. */
void sched_rekey_commit(struct vq *q, uint64_t now);
/* Sets the timer for whatever comes first. */
void sched_arm(struct reactor *r);
/* Everything is to be looked at now. */
void sched_look_at_all(struct reactor *r, uint64_t now);

#endif
