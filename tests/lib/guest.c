/* A guest's side of a virtqueue. See guest.h; VIRTIO 1.2, 2.7.13 and 2.8.21. */
#include "tests/lib/guest.h"

#include "common/wire.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NEXT = 1, WRITE = 2, INDIRECT = 4, AVAIL = 1 << 7, USED = 1 << 15 };

static uint16_t
load16(const void *p)
{
	return __atomic_load_n((const uint16_t *)p, __ATOMIC_ACQUIRE);
}

static void
store16(void *p, uint16_t v)
{
	__atomic_store_n((uint16_t *)p, v, __ATOMIC_RELEASE);
}

static bool
guest_memory(struct guest *g)
{
	int fd = memfd_create("guest", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct mem_table *empty = mem_table_new();
	uint64_t addr = GUEST_ADDR;
	bool ok = fd >= 0 && empty && ftruncate(fd, GUEST_RAM) == 0 &&
	          fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;

	if (ok)
		g->ram = mmap(NULL, GUEST_RAM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ok = ok && g->ram != MAP_FAILED &&
	     mem_table_add(empty, fd, 0, GUEST_RAM, true, &addr, &g->mem, NULL) == 0;
	mem_table_put(empty);
	return ok;
}

void
guest_reset(struct guest *g, uint32_t size, bool packed, bool event_idx)
{
	*g = (struct guest){
		.mem = g->mem,
		.ram = g->ram,
		.size = size,
		.packed = packed,
		.event_idx = event_idx,
		.avail_wrap = true,
		.used_wrap = true,
		.free = size,
		.at = { g->ram, g->ram + 0x20000, g->ram + 0x30000 },
	};
	memset(g->at.desc, 0, 16 * (size_t)size);
	memset(g->at.avail, 0, 6 + 2 * (size_t)size);
	memset(g->at.used, 0, 6 + 8 * (size_t)size);
}

bool
guest_init(struct guest *g, uint32_t size, bool packed, bool event_idx)
{
	if (!guest_memory(g))
		return false;
	guest_reset(g, size, packed, event_idx);
	return true;
}

void
guest_fini(struct guest *g)
{
	mem_table_put(g->mem);
	munmap(g->ram, GUEST_RAM);
}

void *
guest_ptr(struct guest *g, uint64_t addr)
{
	return g->ram + (addr - GUEST_ADDR);
}

struct vring_setup
guest_setup(const struct guest *g)
{
	return (struct vring_setup){ .size = g->size,
		                     .packed = g->packed,
		                     .event_idx = g->event_idx,
		                     .indirect = true,
		                     .at = g->at,
		                     .base = g->packed ? 0x80008000 : 0 };
}

struct guest_desc *
guest_desc(struct guest *g, uint32_t i)
{
	return (struct guest_desc *)g->at.desc + i;
}

static uint16_t
find_free(bool *used)
{
	uint16_t i = 0;

	while (used[i])
		i++;
	used[i] = true;
	return i;
}

/* What stands in the ring instead: one descriptor of a table. */
static struct guest_seg
make_table(struct guest *g, uint16_t id, const struct guest_seg *segs, unsigned n)
{
	uint64_t addr = GUEST_ADDR + GUEST_TABLES +
	                (uint64_t)(id % 1024) * GUEST_TABLE_MAX * sizeof(struct guest_desc);
	struct guest_desc *t = guest_ptr(g, addr);

	for (unsigned i = 0; i < n; i++) {
		uint16_t flags = segs[i].writable ? WRITE : 0;

		t[i] = (struct guest_desc){ segs[i].addr, segs[i].len, 0, flags };
		if (!g->packed) {
			t[i].flags_or_id = flags | (i + 1 < n ? NEXT : 0);
			t[i].next_or_flags = (uint16_t)(i + 1);
		}
	}
	return (struct guest_seg){ addr, (uint32_t)(n * sizeof(*t)), false };
}

static void
add_split(struct guest *g, uint16_t head, const struct guest_seg *segs, unsigned n, uint16_t extra)
{
	uint16_t at = head;

	for (unsigned i = 0; i < n; i++) {
		struct guest_desc *d = guest_desc(g, at);

		*d = (struct guest_desc){ segs[i].addr, segs[i].len,
			                  extra | (segs[i].writable ? WRITE : 0), 0 };
		if (i + 1 < n) {
			at = find_free(g->desc_used);
			d->flags_or_id |= NEXT;
			d->next_or_flags = at;
		}
	}
	store16((uint8_t *)g->at.avail + 4 + 2 * (g->avail_idx % g->size), head);
	g->avail_idx++;
	store16((uint8_t *)g->at.avail + 2, g->avail_idx);
}

static void
step(const struct guest *g, uint16_t *idx, bool *wrap, unsigned n)
{
	*idx = (uint16_t)(*idx + n);
	if (*idx >= g->size) {
		*idx = (uint16_t)(*idx - g->size);
		*wrap = !*wrap;
	}
}

static void
add_packed(struct guest *g, uint16_t id, const struct guest_seg *segs, unsigned n, uint16_t extra)
{
	uint16_t first = g->avail_idx, first_flags = 0;

	for (unsigned i = 0; i < n; i++) {
		struct guest_desc *d = guest_desc(g, g->avail_idx);
		uint16_t flags = extra | (segs[i].writable ? WRITE : 0) | (i + 1 < n ? NEXT : 0) |
		                 (g->avail_wrap ? AVAIL : USED);

		d->addr = segs[i].addr;
		d->len = segs[i].len;
		d->flags_or_id = id;
		if (i == 0)
			first_flags = flags;
		else
			store16(&d->next_or_flags, flags);
		step(g, &g->avail_idx, &g->avail_wrap, 1);
	}
	store16(&guest_desc(g, first)->next_or_flags, first_flags);
}

int
guest_add(struct guest *g, const struct guest_seg *segs, unsigned n, bool indirect)
{
	struct guest_seg table;
	uint16_t id;

	if (n == 0 || (indirect ? 1 : n) > g->free)
		return -1;
	id = find_free(g->packed ? g->id_used : g->desc_used);
	if (indirect) {
		table = make_table(g, id, segs, n);
		segs = &table;
		n = 1;
	}
	g->free -= n;
	g->slots[id] = (uint16_t)n;
	if (g->packed)
		add_packed(g, id, segs, n, indirect ? INDIRECT : 0);
	else
		add_split(g, id, segs, n, indirect ? INDIRECT : 0);
	return id;
}

static bool
used_packed(struct guest *g, uint16_t *ret_id, uint32_t *ret_len)
{
	const struct guest_desc *d = guest_desc(g, g->used_idx);
	uint16_t flags = load16(&d->next_or_flags);

	if (!(flags & AVAIL) == g->used_wrap || !(flags & USED) == g->used_wrap)
		return false;
	*ret_id = d->flags_or_id;
	*ret_len = d->len;
	step(g, &g->used_idx, &g->used_wrap, g->slots[*ret_id]);
	g->id_used[*ret_id] = false;
	return true;
}

static void
free_chain(struct guest *g, uint16_t head)
{
	uint16_t i = head;

	while (guest_desc(g, i)->flags_or_id & NEXT) {
		g->desc_used[i] = false;
		i = guest_desc(g, i)->next_or_flags;
	}
	g->desc_used[i] = false;
}

bool
guest_used(struct guest *g, uint16_t *ret_id, uint32_t *ret_len)
{
	uint8_t *e = (uint8_t *)g->at.used + 4 + 8 * (g->used_idx % g->size);
	uint32_t id;

	if (g->packed) {
		if (!used_packed(g, ret_id, ret_len))
			return false;
	} else {
		if (load16((uint8_t *)g->at.used + 2) == g->used_idx)
			return false;
		memcpy(&id, e, sizeof(id));
		memcpy(ret_len, e + 4, sizeof(*ret_len));
		*ret_id = (uint16_t)id;
		g->used_idx++;
		free_chain(g, *ret_id);
	}
	g->free += g->slots[*ret_id];
	return true;
}

/* event lies in (old, new], counted as the ring counts. */
static bool
passes(uint16_t event, uint16_t new, uint16_t old)
{
	return (uint16_t)(new - event - 1) < (uint16_t)(new - old);
}

bool
guest_needs_kick(struct guest *g)
{
	uint16_t old = g->kicked_at, off, flags;

	g->kicked_at = g->avail_idx;
	if (!g->packed && g->event_idx)
		return passes(load16((uint8_t *)g->at.used + 4 + 8 * g->size), g->avail_idx, old);
	if (!g->packed)
		return !(load16(g->at.used) & 1);
	flags = load16((uint8_t *)g->at.used + 2);
	if (flags != 2)
		return flags == 0;
	off = load16(g->at.used);
	off = (uint16_t)((off & 0x7fff) - (!(off >> 15) == g->avail_wrap ? g->size : 0));
	if (old > g->avail_idx)
		old = (uint16_t)(old - g->size);
	return passes(off, g->avail_idx, old);
}

void
guest_want(struct guest *g, bool interrupts, unsigned n)
{
	uint16_t at = g->used_idx;
	bool wrap = g->used_wrap;

	if (!g->packed && g->event_idx) {
		store16((uint8_t *)g->at.avail + 4 + 2 * g->size,
		        (uint16_t)(at + (interrupts ? n - 1 : 0x8000)));
	} else if (!g->packed) {
		store16(g->at.avail, !interrupts);
	} else {
		step(g, &at, &wrap, n - 1);
		store16(g->at.avail, (uint16_t)(at | wrap << 15));
		store16((uint8_t *)g->at.avail + 2, !interrupts ? 1 : g->event_idx ? 2 : 0);
	}
}
