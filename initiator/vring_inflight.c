/* The inflight region: what a ring has in flight, noted where it outlives us. The layouts are those
 * of the vhost-user specification ("Inflight I/O tracking").
 *
 * Split: a line for each descriptor. A head's line is marked when it is popped. A batch is linked
 * from last_batch_head, the ring's used index moves, the lines are cleared, and the region's used
 * index follows: where the two indices differ the batch was shown, and its lines are cleared at the
 * next start.
 *
 * Packed: lines are entries, of which the free ones form a list. Lines are filled from the free
 * ones, then old_free_head moves. A batch's lines go back to the list at free_head and used_idx
 * moves; then the ring shows it; then old_free_head, old_used_idx and its wrap counter follow. At
 * the next start the ring itself says whether the batch was shown, and one of old and new is taken
 * for the other. Fields that belong together lie in one word and are stored as one, so that no kill
 * finds half of them.
 *
 * What can fail: a region that someone else has spoiled. It is judged once, at the start; while the
 * ring runs it is only written, from copies of our own.
 */
#include "initiator/vring.h"

#include "initiator/vring_inner.h"

#include <stdlib.h>

enum {
	REGION_VERSION = 1,
	SPLIT_HEAD = 16,
	SPLIT_LINE = 16,
	PACKED_HEAD = 32,
	PACKED_LINE = 32,
};

enum { /* both layouts */
       AT_VERSION = 8,
       AT_DESC_NUM = 10,
};

enum { /* split */
       AT_LAST_BATCH_HEAD = 12,
       AT_SPLIT_USED = 14,
       LINE_INFLIGHT = 0, /* both layouts: u8, and so is the counter's place */
       LINE_NEXT = 6,
       LINE_COUNTER = 8,
};

enum {               /* packed */
       AT_LISTS = 8, /* u64: version, desc_num, free_head, old_free_head */
       AT_USED = 16, /* u64: used_idx, old_used_idx, u8 and u8 their wrap counters */
       LINE_PACKED_NEXT = 2,
       LINE_LAST = 4,
       LINE_NUM = 6,
       LINE_DESC = 16, /* u16 id, u16 flags, u32 len, u64 addr */
};

size_t
vring_inflight_size(uint32_t size, bool packed)
{
	size_t n = packed ? PACKED_HEAD + (size_t)size * PACKED_LINE
	                  : SPLIT_HEAD + (size_t)size * SPLIT_LINE;

	return ROUND_UP(n, (size_t)VRING_INFLIGHT_ALIGN);
}

static uint8_t *
at(const struct vring *v, size_t off)
{
	return (uint8_t *)v->inflight + off;
}

static uint8_t *
line(const struct vring *v, uint16_t i)
{
	return v->packed ? at(v, PACKED_HEAD + (size_t)i * PACKED_LINE)
	                 : at(v, SPLIT_HEAD + (size_t)i * SPLIT_LINE);
}

static uint64_t
get64(const void *p)
{
	return le64toh(__atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED));
}

static void
mark(const struct vring *v, uint16_t i, bool inflight)
{
	if (VRING_STORE_REACHES())
		__atomic_store_n(line(v, i) + LINE_INFLIGHT, inflight, __ATOMIC_RELEASE);
}

static bool
marked(const struct vring *v, uint16_t i)
{
	return __atomic_load_n(line(v, i) + LINE_INFLIGHT, __ATOMIC_RELAXED);
}

/* split, while it runs */

void
inflight_note(struct vring *v, uint16_t head)
{
	if (!v->inflight)
		return;
	put64(line(v, head) + LINE_COUNTER, v->counter++);
	mark(v, head, true);
}

void
inflight_batch(struct vring *v)
{
	for (unsigned i = 0; v->inflight && i < v->nr_batch; i++) {
		uint16_t head = v->batch[i].token;

		put16(line(v, head) + LINE_NEXT, v->last_batch_head);
		put16(at(v, AT_LAST_BATCH_HEAD), head);
		v->last_batch_head = head;
	}
}

void
inflight_batch_shown(struct vring *v)
{
	if (!v->inflight)
		return;
	for (unsigned i = 0; i < v->nr_batch; i++)
		mark(v, v->batch[i].token, false);
	put16(at(v, AT_SPLIT_USED), v->used_idx);
}

/* packed, while it runs */

static void
put_lists(struct vring *v)
{
	put64(at(v, AT_LISTS), REGION_VERSION | (uint64_t)(uint16_t)v->size << 16 |
	                               (uint64_t)v->free_head << 32 |
	                               (uint64_t)v->old_free_head << 48);
}

static void
put_used(struct vring *v)
{
	put64(at(v, AT_USED), v->used_idx | (uint64_t)v->old_used_idx << 16 |
	                              (uint64_t)v->used_wrap << 32 |
	                              (uint64_t)v->old_used_wrap << 40);
}

void
inflight_packed_desc(struct vring *v, uint16_t entry, const struct desc *d)
{
	uint8_t *to;

	if (!v->inflight)
		return;
	to = line(v, entry) + LINE_DESC;
	put32(to, le16_get(d->packed.id) | (uint32_t)le16_get(d->packed.flags) << 16);
	put32(to + 4, le32_get(d->len));
	put64(to + 8, le64_get(d->addr));
}

void
inflight_packed_get(const struct vring *v, uint16_t entry, struct desc *ret)
{
	const uint8_t *from = line(v, entry) + LINE_DESC;

	copy_once(&ret->packed.id, from, 2);
	copy_once(&ret->packed.flags, from + 2, 2);
	copy_once(&ret->len, from + 4, 4);
	copy_once(&ret->addr, from + 8, 8);
}

void
inflight_packed_note(struct vring *v, uint16_t head)
{
	const struct vring_entry *e = &v->entries[head];

	if (!v->inflight)
		return;
	put16(line(v, head) + LINE_LAST, e->last);
	put16(line(v, head) + LINE_NUM, e->slots);
	put64(line(v, head) + LINE_COUNTER, v->counter++);
	mark(v, head, true);
	v->old_free_head = v->free_head;
	put_lists(v);
}

void
inflight_packed_batch(struct vring *v)
{
	if (!v->inflight)
		return;
	for (unsigned i = 0; i < v->nr_batch; i++) {
		uint16_t last = v->entries[v->batch[i].token].last;

		put16(line(v, last) + LINE_PACKED_NEXT, v->entries[last].next);
	}
	put_lists(v);
	put_used(v);
}

void
inflight_packed_shown(struct vring *v)
{
	if (!v->inflight)
		return;
	for (unsigned i = 0; i < v->nr_batch; i++)
		mark(v, v->batch[i].token, false);
	v->old_free_head = v->free_head;
	put_lists(v);
	v->old_used_idx = v->used_idx;
	v->old_used_wrap = v->used_wrap;
	put_used(v);
}

/* starting: what both have in common */

struct found { /* a chain that is in flight */
	uint64_t counter;
	uint16_t token;
};

static int
by_counter(const void *a, const void *b)
{
	uint64_t x = ((const struct found *)a)->counter, y = ((const struct found *)b)->counter;

	return x < y ? -1 : x > y;
}

/* All tokens whose lines are marked become v->again, in the order in which they came. */
static bool
collect(struct vring *v)
{
	struct found *found = calloc(v->size, sizeof(*found));

	if (!found)
		return false;
	for (uint32_t i = 0; i < v->size; i++)
		if (v->entries[i].busy)
			found[v->nr_again++] =
				(struct found){ get64(line(v, (uint16_t)i) + LINE_COUNTER),
				                (uint16_t)i };
	qsort(found, v->nr_again, sizeof(*found), by_counter);
	for (unsigned i = 0; i < v->nr_again; i++)
		v->again[i] = found[i].token;
	if (v->nr_again)
		v->counter = found[v->nr_again - 1].counter + 1;
	v->busy = v->nr_again;
	free(found);
	return true;
}

/* starting: split */

/* A batch that was shown, and not yet cleared. */
static const char *
split_clear_batch(struct vring *v, uint16_t n)
{
	uint16_t head = v->last_batch_head;

	for (; n > 0; n--) {
		if (head >= v->size)
			return "its inflight region names a descriptor beyond the ring";
		mark(v, head, false);
		head = get16(line(v, head) + LINE_NEXT);
	}
	return NULL;
}

static const char *
split_start(struct vring *v)
{
	uint16_t behind = (uint16_t)(v->used_idx - get16(at(v, AT_SPLIT_USED)));
	const char *why = NULL;

	v->last_batch_head = get16(at(v, AT_LAST_BATCH_HEAD));
	if (behind <= v->size)
		why = split_clear_batch(v, behind);
	else /* the ring began anew: nothing of its former life is in flight */
		for (uint32_t i = 0; i < v->size; i++)
			mark(v, (uint16_t)i, false);
	if (why)
		return why;
	put16(at(v, AT_SPLIT_USED), v->used_idx);
	for (uint32_t i = 0; i < v->size; i++) {
		v->entries[i].busy = marked(v, (uint16_t)i);
		v->busy += v->entries[i].busy;
	}
	v->avail_idx = (uint16_t)(v->used_idx + v->busy);
	return NULL;
}

static void
split_fresh(struct vring *v)
{
	put16(at(v, AT_DESC_NUM), (uint16_t)v->size);
	put16(at(v, AT_SPLIT_USED), v->used_idx);
	put16(at(v, AT_VERSION), REGION_VERSION);
}

/* starting: packed */

/* Flags of the place idx, as far as they say whose it is: as the guest made it available in the lap
 * of wrap? */
static bool
still_available(const struct vring *v, uint16_t idx, bool wrap)
{
	uint16_t flags = get16(&((struct desc *)v->at.desc + idx)->packed.flags);

	return !(flags & DESC_AVAIL) != wrap && !(flags & DESC_USED) == wrap;
}

/* The batch that was under way was shown or it was not: all of the state is made to say so. */
static void
packed_settle(struct vring *v)
{
	bool moved = v->used_idx != v->old_used_idx || v->used_wrap != v->old_used_wrap;

	if (moved && !still_available(v, v->old_used_idx, v->old_used_wrap)) {
		v->old_free_head = v->free_head;
		put_lists(v);
		v->old_used_idx = v->used_idx;
		v->old_used_wrap = v->used_wrap;
	} else {
		v->free_head = v->old_free_head;
		v->used_idx = v->old_used_idx;
		v->used_wrap = v->old_used_wrap;
		put_lists(v);
	}
	put_used(v);
}

static const char *
packed_free_list(struct vring *v, bool *seen)
{
	uint16_t i = v->free_head;

	for (; i != v->size; i = v->entries[i].next) {
		if (i > v->size || seen[i])
			return "the free list of its inflight region goes astray";
		seen[i] = true;
		v->entries[i].next = get16(line(v, i) + LINE_PACKED_NEXT);
		mark(v, i, false);
	}
	return NULL;
}

static const char *
packed_chain(struct vring *v, uint16_t head, bool *seen)
{
	struct vring_entry *e = &v->entries[head];
	uint16_t i = head;

	e->busy = true;
	e->slots = get16(line(v, head) + LINE_NUM);
	if (e->slots == 0 || e->slots > v->size)
		return "a chain in its inflight region has an impossible length";
	for (unsigned n = 0; n < e->slots; n++) {
		if (i >= v->size || seen[i])
			return "a chain in its inflight region goes astray";
		seen[i] = true;
		e->last = i;
		v->entries[i].next = get16(line(v, i) + LINE_PACKED_NEXT);
		i = v->entries[i].next;
	}
	e->id = get16(line(v, e->last) + LINE_DESC);
	v->busy_slots += e->slots;
	return NULL;
}

static const char *
packed_chains(struct vring *v, bool *seen)
{
	const char *why = packed_free_list(v, seen);

	for (uint32_t i = 0; i < v->size && !why; i++)
		if (!seen[i] && marked(v, (uint16_t)i))
			why = packed_chain(v, (uint16_t)i, seen);
	for (uint32_t i = 0; i < v->size && !why; i++)
		if (!seen[i])
			why = "its inflight region has lost a descriptor";
	return why;
}

/* A batch that was not shown may have left used descriptors behind the place that the guest looks
 * at. It must not find them once that one is shown. */
static void
packed_take_back(struct vring *v)
{
	uint16_t i = v->used_idx;
	bool wrap = v->used_wrap;

	for (unsigned n = 0; n < v->busy_slots; n++) {
		le16 *flags = &((struct desc *)v->at.desc + i)->packed.flags;

		if (!still_available(v, i, wrap))
			put16(flags, wrap ? DESC_AVAIL : DESC_USED);
		vring_packed_step(v, &i, &wrap, 1);
	}
	v->avail_idx = i;
	v->avail_wrap = wrap;
}

static const char *
packed_start(struct vring *v, bool *ret_nomem)
{
	uint64_t lists = get64(at(v, AT_LISTS)), used = get64(at(v, AT_USED));
	bool *seen = calloc(v->size, sizeof(*seen));
	const char *why;

	*ret_nomem = !seen;
	if (!seen)
		return NULL;
	v->free_head = (uint16_t)(lists >> 32);
	v->old_free_head = (uint16_t)(lists >> 48);
	v->used_idx = (uint16_t)used;
	v->old_used_idx = (uint16_t)(used >> 16);
	v->used_wrap = used >> 32 & 1;
	v->old_used_wrap = used >> 40 & 1;
	if (v->used_idx >= v->size || v->old_used_idx >= v->size) {
		why = "the used index of its inflight region is beyond the ring";
	} else {
		packed_settle(v);
		why = packed_chains(v, seen);
	}
	if (!why)
		packed_take_back(v);
	free(seen);
	return why;
}

static void
packed_fresh(struct vring *v)
{
	for (uint32_t i = 0; i < v->size; i++)
		put16(line(v, (uint16_t)i) + LINE_PACKED_NEXT, (uint16_t)(i + 1));
	v->old_free_head = v->free_head;
	v->old_used_idx = v->used_idx;
	v->old_used_wrap = v->used_wrap;
	put_used(v);
	put_lists(v); /* and the version */
}

const char *
inflight_start(struct vring *v, bool *ret_nomem)
{
	uint16_t version;
	const char *why;

	if (!v->inflight)
		return NULL;
	version = get16(at(v, AT_VERSION));
	if (version == 0) {
		if (v->packed)
			packed_fresh(v);
		else
			split_fresh(v);
		return NULL;
	}
	if (version != REGION_VERSION)
		return "its inflight region is of an unknown version";
	if (get16(at(v, AT_DESC_NUM)) != v->size)
		return "its inflight region is of another size";
	why = v->packed ? packed_start(v, ret_nomem) : split_start(v);
	if (!why && !*ret_nomem)
		*ret_nomem = !collect(v);
	return why;
}
