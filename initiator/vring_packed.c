/* A packed virtqueue: VIRTIO 1.2, 2.8.
 *
 * Happy path: the guest writes a chain into the places from avail_idx on, the flags of the first
 * last; pop() copies it. flush() writes one used descriptor for each chain from used_idx on, the
 * flags of the first last, so that the batch is shown at once, and steps over as many places as the
 * chains had.
 *
 * A chain's token is the first of its entries; entries are taken from and given back to a list that
 * the inflight region mirrors, since the ring's own descriptors are overwritten while chains are in
 * flight.
 */
#include "initiator/vring.h"

#include "initiator/vring_inner.h"

enum { EVENT_ENABLE, EVENT_DISABLE, EVENT_DESC }; /* flags of an event area */

#define WRAP (1u << 15)

static struct desc *
place(const struct vring *v, uint16_t idx)
{
	return (struct desc *)v->at.desc + idx;
}

void
vring_packed_step(const struct vring *v, uint16_t *idx, bool *wrap, unsigned n)
{
	uint32_t to = *idx + n;

	if (to >= v->size) {
		to -= v->size;
		*wrap = !*wrap;
	}
	*idx = (uint16_t)to;
}

static bool
available(const struct vring *v)
{
	uint16_t flags = get16_acquire(&place(v, v->avail_idx)->packed.flags);

	return !(flags & DESC_AVAIL) != v->avail_wrap && !(flags & DESC_USED) == v->avail_wrap;
}

bool
vring_packed_has_work(const struct vring *v)
{
	return available(v);
}

/* One descriptor of the ring, or of the region, becomes part of the chain. */
static const char *
add(struct vring *v, const struct mem_table *mem, struct vring_chain *c, const struct desc *d,
    bool *ret_more)
{
	unsigned flags = le16_get(d->packed.flags);

	*ret_more = flags & DESC_NEXT;
	if (flags & DESC_INDIRECT)
		return chain_add_table(c, v, mem, d, flags, true);
	return chain_add(c, d, flags);
}

/* Copies the chain at avail_idx: head's slots, last and id, and where the free list goes on. */
static const char *
take(struct vring *v, const struct mem_table *mem, struct vring_chain *c, uint16_t *ret_free)
{
	struct vring_entry *head = &v->entries[v->free_head];
	uint16_t at = v->avail_idx, entry = v->free_head;
	bool wrap = v->avail_wrap, more = true;

	for (head->slots = 0; more; head->slots++) {
		struct desc d;
		const char *why;

		if (v->busy_slots + head->slots == v->size)
			return "a chain is longer than the places that are free";
		copy_once(&d, place(v, at), sizeof(d));
		if ((why = add(v, mem, c, &d, &more)))
			return why;
		inflight_packed_desc(v, entry, &d);
		head->last = entry;
		head->id = le16_get(d.packed.id);
		entry = v->entries[entry].next;
		vring_packed_step(v, &at, &wrap, 1);
	}
	*ret_free = entry;
	return NULL;
}

static const char *
take_again(struct vring *v, const struct mem_table *mem, struct vring_chain *c)
{
	uint16_t entry = c->token;
	const char *why = NULL;
	bool more = true;

	for (unsigned i = 0; i < v->entries[c->token].slots && !why; i++) {
		struct desc d;

		inflight_packed_get(v, entry, &d);
		why = add(v, mem, c, &d, &more);
		entry = v->entries[entry].next;
	}
	return why ? why : more ? "a chain in the inflight region does not end" : NULL;
}

static enum vring_popped
broken(struct vring *v, const char *why)
{
	vring_break(v, why);
	return VRING_BROKEN;
}

enum vring_popped
vring_packed_pop(struct vring *v, const struct mem_table *mem, struct vring_chain *c)
{
	struct vring_entry *head;
	const char *why;
	uint16_t next;

	if (v->at_again < v->nr_again) {
		c->token = v->again[v->at_again];
		if ((why = take_again(v, mem, c)))
			return broken(v, why);
		v->at_again++;
		return VRING_CHAIN;
	}
	if (!available(v))
		return VRING_NONE;
	if (v->free_head == v->size)
		return broken(v, "a chain is longer than the places that are free");
	c->token = v->free_head;
	if ((why = take(v, mem, c, &next)))
		return broken(v, why);
	head = &v->entries[c->token];
	head->busy = true;
	v->free_head = next;
	v->busy++;
	v->busy_slots += head->slots;
	vring_packed_step(v, &v->avail_idx, &v->avail_wrap, head->slots);
	inflight_packed_note(v, c->token);
	return VRING_CHAIN;
}

static bool
packed_wants_interrupt(const struct vring *v, unsigned places)
{
	uint32_t event;
	uint16_t off, flags;

	fence(); /* it sets its area, then looks at the next used descriptor */
	event = le32toh(__atomic_load_n((const uint32_t *)v->at.avail, __ATOMIC_RELAXED));
	off = event & 0x7fff;
	flags = event >> 16 & 3;
	if (flags != EVENT_DESC || !v->event_idx)
		return flags != EVENT_DISABLE;
	if (!(event & WRAP) == v->used_wrap) /* of the lap before this one */
		off = (uint16_t)(off - v->size);
	return passed(off, v->used_idx, (uint16_t)(v->used_idx - places));
}

/* Gives the entries of the batch back; returns how many places it had. */
static unsigned
give_back(struct vring *v)
{
	unsigned places = 0;

	for (unsigned i = 0; i < v->nr_batch; i++) {
		struct vring_entry *e = &v->entries[v->batch[i].token];

		v->entries[e->last].next = v->free_head;
		v->free_head = v->batch[i].token;
		places += e->slots;
	}
	v->busy_slots -= places;
	return places;
}

/* A used descriptor, all but its flags, which are returned. */
static uint16_t
write_used(struct vring *v, const struct vring_batch *b, uint16_t at, bool wrap)
{
	struct desc *d = place(v, at);

	put32(&d->len, b->written);
	put16(&d->packed.id, v->entries[b->token].id);
	return (uint16_t)((wrap ? DESC_AVAIL | DESC_USED : 0) | (b->written ? DESC_WRITE : 0));
}

bool
vring_packed_flush(struct vring *v)
{
	uint16_t first_at = v->used_idx, at = first_at, first_flags = 0;
	bool wrap = v->used_wrap;
	unsigned places = give_back(v);

	vring_packed_step(v, &v->used_idx, &v->used_wrap, places);
	inflight_packed_batch(v);
	for (unsigned i = 0; i < v->nr_batch; i++) {
		uint16_t flags = write_used(v, &v->batch[i], at, wrap);

		if (i == 0)
			first_flags = flags;
		else
			put16(&place(v, at)->packed.flags, flags);
		vring_packed_step(v, &at, &wrap, v->entries[v->batch[i].token].slots);
	}
	put16(&place(v, first_at)->packed.flags, first_flags);
	inflight_packed_shown(v);
	return packed_wants_interrupt(v, places);
}

void
vring_packed_arm(struct vring *v)
{
	uint8_t *area = v->at.used;

	if (v->event_idx)
		put16(area, (uint16_t)(v->avail_idx | (v->avail_wrap ? WRAP : 0)));
	put16(area + 2, v->event_idx ? EVENT_DESC : EVENT_ENABLE);
}

void
vring_packed_disarm(struct vring *v)
{
	put16((uint8_t *)v->at.used + 2, EVENT_DISABLE);
}
