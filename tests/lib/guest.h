/* A guest's side of a virtqueue: memory, and a driver of split and packed rings, for tests of the
 * device's side. It survives the device, as a guest does.
 */
#ifndef SLUICE_TESTS_GUEST_H
#define SLUICE_TESTS_GUEST_H

#include "initiator/vring.h"

enum {
	GUEST_RING_MAX = 4096,
	GUEST_RAM = 1 << 20,
	GUEST_ADDR = 0x40000000, /* where the ram begins for the guest */
	GUEST_TABLES = 0x80000,  /* in the ram: a table of indirect descriptors for each id */
	GUEST_TABLE_MAX = 32,
};

struct guest_seg {
	uint64_t addr;
	uint32_t len;
	bool writable;
};

struct guest {
	struct mem_table *mem;
	uint8_t *ram;
	uint32_t size;
	bool packed, event_idx;
	struct vring_places at;
	uint16_t avail_idx, used_idx; /* as in struct vring */
	bool avail_wrap, used_wrap;
	unsigned free; /* descriptors */
	bool id_used[GUEST_RING_MAX], desc_used[GUEST_RING_MAX];
	uint16_t slots[GUEST_RING_MAX]; /* by id */
	uint16_t kicked_at;             /* avail_idx when it last asked whether to kick */
};

/* False: there is no memory. */
bool guest_init(struct guest *g, uint32_t size, bool packed, bool event_idx);
void guest_fini(struct guest *g);
/* Another ring in the same memory. */
void guest_reset(struct guest *g, uint32_t size, bool packed, bool event_idx);
void *guest_ptr(struct guest *g, uint64_t addr);
struct vring_setup guest_setup(const struct guest *g); /* base of a new ring, no region */

/* Makes a request available; its id, or -1: no room. indirect: by a table. */
int guest_add(struct guest *g, const struct guest_seg *segs, unsigned n, bool indirect);
/* Must it kick, after all that was added since the last call? */
bool guest_needs_kick(struct guest *g);
bool guest_used(struct guest *g, uint16_t *ret_id, uint32_t *ret_len);
/* No interrupts, any interrupt, or (with event indices) one when n more have been used. */
void guest_want(struct guest *g, bool interrupts, unsigned n);

/* Raw access, for what a guest should not do: descriptor i of the ring or of a table. */
struct guest_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags_or_id, next_or_flags; /* split, packed */
};
struct guest_desc *guest_desc(struct guest *g, uint32_t i);

#endif
