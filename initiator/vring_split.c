/* A split virtqueue: VIRTIO 1.2, 2.7.
 *
 * Happy path: the guest writes a head behind avail.idx; pop() follows its chain through the
 * descriptor table; flush() writes the batch behind used.idx and moves that once.
 *
 * What can fail: see vring.h. A head that is in flight and comes again is refused: nothing good
 * could be said about it twice.
 */
#include "initiator/vring.h"

#include "initiator/vring_inner.h"

enum { NO_INTERRUPT = 1, NO_NOTIFY = 1 };

static uint8_t *
avail(const struct vring *v)
{
	return v->at.avail;
}

static uint8_t *
used(const struct vring *v)
{
	return v->at.used;
}

/* The index at which the guest wants the next interrupt, and we the next kick. */
static uint8_t *
used_event(const struct vring *v)
{
	return avail(v) + 4 + 2 * (size_t)v->size;
}

static uint8_t *
avail_event(const struct vring *v)
{
	return used(v) + 4 + 8 * (size_t)v->size;
}

static const char *
follow(struct vring *v, const struct mem_table *mem, uint16_t head, struct vring_chain *c)
{
	uint16_t i = head;

	for (uint32_t steps = 0; steps < v->size; steps++) {
		struct desc d;
		unsigned flags;
		const char *why;

		if (i >= v->size)
			return "a descriptor's next is beyond the ring";
		copy_once(&d, (struct desc *)v->at.desc + i, sizeof(d));
		flags = le16_get(d.split.flags);
		if (flags & DESC_INDIRECT)
			return chain_add_table(c, v, mem, &d, flags, false);
		if ((why = chain_add(c, &d, flags)))
			return why;
		if (!(flags & DESC_NEXT))
			return NULL;
		i = le16_get(d.split.next);
	}
	return "a chain of descriptors goes round";
}

/* The next head. VRING_BROKEN: v->why. */
static enum vring_popped
next_head(struct vring *v, uint16_t *ret)
{
	uint16_t n = (uint16_t)(get16_acquire(avail(v) + 2) - v->avail_idx), head;

	if (n == 0)
		return VRING_NONE;
	head = get16(avail(v) + 4 + 2 * (size_t)(v->avail_idx & (v->size - 1)));
	if (n > v->size)
		vring_break(v, "its available index is more than its size ahead");
	else if (head >= v->size)
		vring_break(v, "a head is beyond the ring");
	else if (v->entries[head].busy)
		vring_break(v, "a head is made available that is in flight");
	*ret = head;
	return v->why ? VRING_BROKEN : VRING_CHAIN;
}

enum vring_popped
vring_split_pop(struct vring *v, const struct mem_table *mem, struct vring_chain *c)
{
	bool again = v->at_again < v->nr_again;
	enum vring_popped res;
	const char *why;

	if (again)
		c->token = v->again[v->at_again];
	else if ((res = next_head(v, &c->token)) != VRING_CHAIN)
		return res;
	if ((why = follow(v, mem, c->token, c))) {
		vring_break(v, why);
		return VRING_BROKEN;
	}
	if (again) {
		v->at_again++;
		return VRING_CHAIN;
	}
	v->avail_idx++;
	v->entries[c->token].busy = true;
	v->busy++;
	inflight_note(v, c->token);
	return VRING_CHAIN;
}

bool
vring_split_has_work(const struct vring *v)
{
	return get16_acquire(avail(v) + 2) != v->avail_idx;
}

static bool
split_wants_interrupt(const struct vring *v, uint16_t old)
{
	fence(); /* it moves used_event, then looks at used.idx: one of us sees the other */
	if (v->event_idx)
		return passed(get16(used_event(v)), v->used_idx, old);
	return !(get16(avail(v)) & NO_INTERRUPT);
}

bool
vring_split_flush(struct vring *v)
{
	uint16_t old = v->used_idx;

	inflight_batch(v);
	for (unsigned i = 0; i < v->nr_batch; i++) {
		uint8_t *e = used(v) + 4 + 8 * (size_t)(v->used_idx++ & (v->size - 1));

		put32(e, v->batch[i].token);
		put32(e + 4, v->batch[i].written);
	}
	put16(used(v) + 2, v->used_idx);
	inflight_batch_shown(v);
	return split_wants_interrupt(v, old);
}

void
vring_split_arm(struct vring *v)
{
	if (v->event_idx)
		put16(avail_event(v), v->avail_idx);
	else
		put16(used(v), 0);
}

/* With event indices there is nothing to do: the guest has passed the one that it was told. */
void
vring_split_disarm(struct vring *v)
{
	if (!v->event_idx)
		put16(used(v), NO_NOTIFY);
}
