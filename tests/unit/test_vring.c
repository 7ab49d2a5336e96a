/* Virtqueues, device side: what a guest may do, in both formats, and what it may not. */
#include "initiator/vring.h"

#include "common/wire.h"
#include "tests/lib/guest.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct vring_chain chain; /* large */

static void
begin(struct guest *g, struct vring *v, uint32_t size, bool packed, bool event_idx)
{
	struct vring_setup s;
	const char *why = NULL;

	CHECK(guest_init(g, size, packed, event_idx));
	s = guest_setup(g);
	*v = (struct vring){ 0 };
	if (!CHECK_EQ(vring_start(v, &s, &why), 0))
		CHECK_STR(why, "");
}

static void
end(struct guest *g, struct vring *v)
{
	vring_end(v);
	guest_fini(g);
}

/* chains */

static void
check_chain(const struct guest_seg *segs, unsigned n)
{
	uint64_t out = 0, in = 0;
	unsigned nr_out = 0;

	if (!CHECK_EQ(chain.nr, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(chain.seg[i].addr, segs[i].addr);
		CHECK_EQ(chain.seg[i].len, segs[i].len);
		nr_out += !segs[i].writable;
		*(segs[i].writable ? &in : &out) += segs[i].len;
	}
	CHECK_EQ(chain.nr_out, nr_out);
	CHECK_EQ(chain.out_len, out);
	CHECK_EQ(chain.in_len, in);
	CHECK(!chain.cut);
}

static const struct guest_seg some[] = {
	{ 0x1000, 16, false }, { 0x2000, 0xffffffff, false }, { 0xfffffffffffff000, 4096, true },
	{ 0x4000, 512, true }, { 0x5000, 1, true },
};

static void
test_vring_a_chain_is_popped_as_the_guest_wrote_it(void)
{
	for (unsigned row = 0; row < 4; row++) {
		bool packed = row & 1, indirect = row & 2;
		struct guest g;
		struct vring v;
		uint16_t id;
		uint32_t len;
		int added;

		unit_row("packed %d, indirect %d", packed, indirect);
		begin(&g, &v, 8, packed, false);
		CHECK(!vring_has_work(&v));
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_NONE);
		added = guest_add(&g, some, ARRAY_SIZE(some), indirect);
		CHECK(added >= 0);
		CHECK(vring_has_work(&v));
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
		check_chain(some, ARRAY_SIZE(some));
		CHECK_EQ(v.busy, 1);
		CHECK(!vring_has_work(&v));
		CHECK(!guest_used(&g, &id, &len));
		vring_push(&v, chain.token, 513);
		CHECK(!guest_used(&g, &id, &len));
		vring_flush(&v);
		CHECK(guest_used(&g, &id, &len));
		CHECK_EQ(id, added);
		CHECK_EQ(len, 513);
		CHECK_EQ(v.busy, 0);
		end(&g, &v);
	}
}

static void
test_vring_direct_descriptors_before_an_indirect_one_are_part_of_the_chain(void)
{
	struct guest_seg three[] = { { 0x1000, 16, false },
		                     { 0x2000, 512, true },
		                     { 0x3000, 1, true } };

	for (unsigned packed = 0; packed < 2; packed++) {
		struct guest_seg table = { GUEST_ADDR + GUEST_TABLES, 32, false };
		struct guest g;
		struct vring v;
		struct guest_desc *t;

		unit_row("packed %u", packed);
		begin(&g, &v, 8, packed, false);
		t = guest_ptr(&g, table.addr);
		t[0] = (struct guest_desc){ 0x2000, 512, packed ? 0 : 3, packed ? 2 : 1 };
		t[1] = (struct guest_desc){ 0x3000, 1, packed ? 0 : 2, packed ? 2 : 0 };
		guest_add(&g, (struct guest_seg[]){ three[0], table }, 2, false);
		if (packed)
			guest_desc(&g, 1)->next_or_flags |= 4;
		else
			guest_desc(&g, 1)->flags_or_id |= 4;
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
		check_chain(three, 3);
		end(&g, &v);
	}
}

static void
test_vring_a_chain_longer_than_is_kept_has_its_end(void)
{
	enum { LONG = 2000 };
	struct guest_seg *segs = calloc(LONG, sizeof(*segs));

	for (unsigned row = 0; row < 4; row++) {
		bool packed = row & 1;
		unsigned readable = row & 2 ? LONG - 1 : 1;
		struct guest g;
		struct vring v;

		unit_row("packed %d, %u readable", packed, readable);
		for (unsigned i = 0; i < LONG; i++)
			segs[i] = (struct guest_seg){ 0x1000 + i, 2, i >= readable };
		begin(&g, &v, 2048, packed, false);
		CHECK(guest_add(&g, segs, LONG, false) >= 0);
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
		CHECK(chain.cut);
		CHECK_EQ(chain.nr, VRING_CHAIN_MAX);
		CHECK_EQ(chain.nr_out, MIN(readable, VRING_CHAIN_MAX - 1u));
		CHECK_EQ(chain.seg[VRING_CHAIN_MAX - 1].addr, 0x1000 + LONG - 1);
		CHECK_EQ(chain.out_len, 2 * readable);
		CHECK_EQ(chain.in_len, 2 * (LONG - readable));
		end(&g, &v);
	}
	free(segs);
}

static void
test_vring_descriptors_without_bytes_are_passed_over(void)
{
	struct guest_seg with[] = { { 0x1000, 0, false },
		                    { 0x1000, 16, false },
		                    { 0x2000, 0, true },
		                    { 0x3000, 1, true } };
	struct guest_seg without[] = { with[1], with[3] };
	struct guest g;
	struct vring v;

	begin(&g, &v, 8, false, false);
	guest_add(&g, with, 4, false);
	CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
	check_chain(without, 2);
	end(&g, &v);
}

/* many */

struct ours { /* what the device has */
	uint16_t token;
	uint32_t tag;
};

/* Requests of random length, answered in random order and batches; their tag is in the address. */
static void
run_many(uint32_t size, bool packed, bool event_idx, uint64_t seed)
{
	struct ours *have = calloc(size, sizeof(*have));
	uint32_t *tag_of = calloc(GUEST_RING_MAX, sizeof(*tag_of));
	unsigned nr = 0, sent = 0, seen = 0, tag = 0;
	struct guest g;
	struct vring v;

	begin(&g, &v, size, packed, event_idx);
	while (seen < 40 * size) {
		struct guest_seg segs[4];
		unsigned n = 1 + unit_random(&seed) % 4;
		uint16_t id;
		uint32_t len;
		int added;

		for (unsigned i = 0; i < n; i++)
			segs[i] = (struct guest_seg){ (uint64_t)(tag + 1) << 8, i + 1, i + 1 == n };
		added = guest_add(&g, segs, n, unit_random(&seed) % 3 == 0);
		if (added >= 0) {
			tag_of[added] = ++tag;
			sent++;
		}
		while (unit_random(&seed) % 3 && vring_pop(&v, g.mem, &chain) == VRING_CHAIN)
			have[nr++] =
				(struct ours){ chain.token, (uint32_t)(chain.seg[0].addr >> 8) };
		while (nr > 0 && unit_random(&seed) % 4) {
			unsigned k = unit_random(&seed) % nr;

			vring_push(&v, have[k].token, have[k].tag);
			have[k] = have[--nr];
		}
		if (unit_random(&seed) % 2)
			vring_flush(&v);
		while (guest_used(&g, &id, &len)) {
			if (!CHECK_EQ(len, tag_of[id]))
				goto out;
			tag_of[id] = 0;
			seen++;
		}
		if (!CHECK(v.why == NULL))
			break;
	}
	CHECK(seen <= sent);
out:
	end(&g, &v);
	free(have);
	free(tag_of);
}

static void
test_vring_every_request_is_answered_once_through_many_laps(void)
{
	static const uint32_t sizes[] = { 1, 2, 8, 128, 7, 100 };

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		for (unsigned packed = sizes[i] & (sizes[i] - 1) ? 1 : 0; packed < 2; packed++) {
			unit_row("size %u, packed %u", sizes[i], packed);
			run_many(sizes[i], packed, i & 1, i + 1);
		}
}

/* interrupts and kicks */

static void
use_one(struct guest *g, struct vring *v, bool want)
{
	struct guest_seg seg = { 0x1000, 1, true };
	uint16_t id;
	uint32_t len;

	guest_add(g, &seg, 1, false);
	CHECK_EQ(vring_pop(v, g->mem, &chain), VRING_CHAIN);
	vring_push(v, chain.token, 1);
	CHECK_EQ(vring_flush(v), want);
	while (guest_used(g, &id, &len))
		;
}

static void
test_vring_interrupts_come_when_and_only_when_they_are_wanted(void)
{
	for (unsigned row = 0; row < 4; row++) {
		bool packed = row & 1, event_idx = row & 2;
		struct guest g;
		struct vring v;

		unit_row("packed %d, event index %d", packed, event_idx);
		begin(&g, &v, 4, packed, event_idx);
		CHECK(!vring_flush(&v)); /* nothing to be shown */
		for (unsigned lap = 0; lap < 9; lap++) {
			guest_want(&g, false, 1);
			for (unsigned i = 0; i < 3; i++)
				use_one(&g, &v, false);
			guest_want(&g, true, 1);
			use_one(&g, &v, true);
			use_one(&g, &v, !event_idx); /* it asked for one */
			guest_want(&g, true, 3);
			use_one(&g, &v, !event_idx);
			use_one(&g, &v, !event_idx);
			use_one(&g, &v, true);
		}
		end(&g, &v);
	}
}

/* A batch that goes beyond the event wakes too, and one interrupt is enough for all. */
static void
test_vring_a_batch_is_shown_at_once_and_interrupts_once(void)
{
	struct guest_seg seg = { 0x1000, 1, true };

	for (unsigned packed = 0; packed < 2; packed++) {
		uint16_t token[5], id;
		uint32_t len;
		struct guest g;
		struct vring v;

		unit_row("packed %u", packed);
		begin(&g, &v, 8, packed, true);
		for (unsigned lap = 0; lap < 20; lap++) {
			guest_want(&g, true, 2);
			for (unsigned i = 0; i < 5; i++) {
				guest_add(&g, &seg, 1, false);
				CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
				token[i] = chain.token;
			}
			for (unsigned i = 0; i < 5; i++) {
				vring_push(&v, token[(i + lap) % 5], 1);
				CHECK(!guest_used(&g, &id, &len));
			}
			CHECK(vring_flush(&v));
			for (unsigned i = 0; i < 5; i++)
				CHECK(guest_used(&g, &id, &len));
			CHECK(!guest_used(&g, &id, &len));
		}
		end(&g, &v);
	}
}

static void
test_vring_kicks_are_asked_for_only_while_it_is_armed(void)
{
	struct guest_seg seg = { 0x1000, 1, true };

	for (unsigned row = 0; row < 4; row++) {
		bool packed = row & 1, event_idx = row & 2;
		struct guest g;
		struct vring v;

		unit_row("packed %d, event index %d", packed, event_idx);
		begin(&g, &v, 4, packed, event_idx);
		for (unsigned lap = 0; lap < 9; lap++) {
			CHECK(vring_arm(&v));
			CHECK(!vring_arm(&v)); /* it was told already */
			guest_add(&g, &seg, 1, false);
			CHECK(guest_needs_kick(&g));
			vring_disarm(&v);
			guest_add(&g, &seg, 1, false);
			CHECK(!guest_needs_kick(&g));
			for (unsigned i = 0; i < 2; i++) {
				uint16_t id;
				uint32_t len;

				CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
				vring_push(&v, chain.token, 1);
				vring_flush(&v);
				CHECK(guest_used(&g, &id, &len));
			}
		}
		end(&g, &v);
	}
}

/* bases */

static void
test_vring_goes_on_from_its_base(void)
{
	struct guest_seg seg = { 0x1000, 1, true };

	for (unsigned packed = 0; packed < 2; packed++) {
		struct guest g;
		struct vring v;

		unit_row("packed %u", packed);
		begin(&g, &v, 4, packed, false);
		for (unsigned i = 0; i < 11; i++) {
			struct vring_setup s = guest_setup(&g);
			const char *why;

			s.base = vring_base(&v);
			CHECK_EQ(s.base, !packed     ? i
			                 : i / 4 % 2 ? (i % 4) * 0x10001
			                             : (i % 4) * 0x10001 + 0x80008000);
			vring_end(&v);
			CHECK_EQ(vring_start(&v, &s, &why), 0);
			guest_add(&g, &seg, 1, false);
			CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
			vring_push(&v, chain.token, i);
			vring_flush(&v);
			uint16_t id;
			uint32_t len;
			CHECK(guest_used(&g, &id, &len));
			CHECK_EQ(len, i);
		}
		end(&g, &v);
	}
}

static void
test_vring_a_base_with_one_index_is_that_of_both(void)
{
	struct guest g;
	struct vring v;
	struct vring_setup s;
	const char *why;

	begin(&g, &v, 4, true, false);
	vring_end(&v);
	s = guest_setup(&g);
	s.base = 0x8002;
	CHECK_EQ(vring_start(&v, &s, &why), 0);
	CHECK_EQ(vring_base(&v), 0x80028002);
	end(&g, &v);
}

static void
test_vring_goes_on_where_its_memory_was_moved(void)
{
	struct guest_seg seg = { 0x1000, 1, true };
	struct guest g;
	struct vring v;
	struct vring_places to;

	begin(&g, &v, 4, false, false);
	use_one(&g, &v, true);
	to = (struct vring_places){ g.ram + 0x40000, g.ram + 0x50000, g.ram + 0x60000 };
	memcpy(to.desc, g.at.desc, 64);
	memcpy(to.avail, g.at.avail, 32);
	memcpy(to.used, g.at.used, 64);
	g.at = to;
	to.desc = g.ram + 0x40008;
	CHECK(!vring_move(&v, &to));
	CHECK(vring_move(&v, &g.at));
	CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_NONE);
	guest_add(&g, &seg, 1, false);
	CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
	end(&g, &v);
}

/* what cannot be */

static void
test_vring_refuses_a_size_and_an_address_that_cannot_be(void)
{
	static const struct {
		uint32_t size;
		bool packed;
		uint32_t base;
		unsigned desc, avail, used, inflight;
		const char *why;
	} rows[] = {
		{ 0, false, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 0, true, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 3, false, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 65536, false, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 0x80000000, false, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 32769, true, 0, 0, 0, 0, 0, "its size cannot be" },
		{ 4, false, 0, 8, 0, 0, 0, "its address is not aligned" },
		{ 4, false, 0, 0, 1, 0, 0, "its address is not aligned" },
		{ 4, false, 0, 0, 0, 2, 0, "its address is not aligned" },
		{ 4, true, 0, 0, 2, 0, 0, "its address is not aligned" },
		{ 4, true, 0x80008004, 0, 0, 0, 0, "its base is beyond its size" },
		{ 4, true, 0x80048000, 0, 0, 0, 0, "its base is beyond its size" },
		{ 4, false, 0, 0, 0, 0, 4, "its inflight region is not aligned" },
	};
	struct guest g;
	struct vring v = { 0 };

	CHECK(guest_init(&g, 4, false, false));
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct vring_setup s = {
			.size = rows[i].size,
			.packed = rows[i].packed,
			.base = rows[i].base,
			.at = { g.ram + rows[i].desc, g.ram + 0x20000 + rows[i].avail,
			        g.ram + 0x30000 + rows[i].used },
			.inflight = rows[i].inflight ? g.ram + 0x40000 + rows[i].inflight : NULL,
		};
		const char *why = NULL;

		unit_row("row %u", i);
		CHECK_EQ(vring_start(&v, &s, &why), -EINVAL);
		CHECK_STR(why, rows[i].why);
	}
	guest_fini(&g);
}

static void
test_vring_parts_have_the_size_of_the_specification(void)
{
	CHECK_EQ(vring_part_size(256, false, VRING_DESC), 4096);
	CHECK_EQ(vring_part_size(256, false, VRING_AVAIL), 6 + 512);
	CHECK_EQ(vring_part_size(256, false, VRING_USED), 6 + 2048);
	CHECK_EQ(vring_part_size(256, true, VRING_DESC), 4096);
	CHECK_EQ(vring_part_size(256, true, VRING_AVAIL), 4);
	CHECK_EQ(vring_part_size(256, true, VRING_USED), 4);
}

enum { TABLE = GUEST_ADDR + GUEST_TABLES };

struct evil { /* one request was added: a chain of three, direct or by a table of three */
	const char *name;
	int formats; /* 1 split, 2 packed */
	bool indirect;
	void (*spoil)(struct guest *g);
	const char *why;
};

static uint16_t *
flags_of(struct guest *g, struct guest_desc *d)
{
	return g->packed ? &d->next_or_flags : &d->flags_or_id;
}

static struct guest_desc *
in_table(struct guest *g, unsigned i)
{
	return (struct guest_desc *)guest_ptr(g, TABLE) + i;
}

static void
idx_far(struct guest *g)
{
	*((uint16_t *)g->at.avail + 1) = 9;
}

static void
idx_back(struct guest *g)
{
	*((uint16_t *)g->at.avail + 1) = 0xffff;
}

static void
head_beyond(struct guest *g)
{
	*((uint16_t *)g->at.avail + 2) = 8;
}

static void
next_beyond(struct guest *g)
{
	guest_desc(g, 1)->next_or_flags = 8;
}

static void
loop(struct guest *g)
{
	*flags_of(g, guest_desc(g, 1)) = 1;
	guest_desc(g, 1)->next_or_flags = 0;
}

static void
self_loop(struct guest *g)
{
	guest_desc(g, 0)->next_or_flags = 0;
}

static void
endless(struct guest *g)
{
	for (unsigned i = 0; i < g->size; i++)
		*flags_of(g, guest_desc(g, i)) = 1 | 1 << 7;
}

static void
read_behind_write(struct guest *g)
{
	*flags_of(g, guest_desc(g, 0)) |= 2;
	*flags_of(g, guest_desc(g, 1)) &= (uint16_t)~2;
}

static void
beyond_the_end(struct guest *g)
{
	guest_desc(g, 1)->addr = UINT64_MAX - 510;
	guest_desc(g, 1)->len = 512;
}

static void
table_empty(struct guest *g)
{
	guest_desc(g, 0)->len = 0;
}

static void
table_odd(struct guest *g)
{
	guest_desc(g, 0)->len = 40;
}

static void
table_huge(struct guest *g)
{
	guest_desc(g, 0)->len = 0xfffffff0;
}

static void
table_outside(struct guest *g)
{
	guest_desc(g, 0)->addr = GUEST_ADDR + GUEST_RAM - 32;
}

static void
table_nowhere(struct guest *g)
{
	guest_desc(g, 0)->addr = UINT64_MAX - 15;
}

static void
table_nested(struct guest *g)
{
	*flags_of(g, in_table(g, 2)) |= 4;
}

static void
table_next(struct guest *g)
{
	*flags_of(g, guest_desc(g, 0)) |= 1;
}

static void
table_loop(struct guest *g)
{
	in_table(g, 1)->next_or_flags = 0;
}

static void
table_next_beyond(struct guest *g)
{
	in_table(g, 1)->next_or_flags = 3;
}

static void
table_reads_behind_writes(struct guest *g)
{
	*flags_of(g, in_table(g, 1)) |= 2;
	*flags_of(g, in_table(g, 2)) &= (uint16_t)~2;
}

static const struct evil evils[] = {
	{ "index far ahead", 1, false, idx_far, "its available index is more than its size ahead" },
	{ "index behind", 1, false, idx_back, "its available index is more than its size ahead" },
	{ "head beyond", 1, false, head_beyond, "a head is beyond the ring" },
	{ "next beyond", 1, false, next_beyond, "a descriptor's next is beyond the ring" },
	{ "loop", 1, false, loop, "a chain of descriptors goes round" },
	{ "self loop", 1, false, self_loop, "a chain of descriptors goes round" },
	{ "endless", 2, false, endless, "a chain is longer than the places that are free" },
	{ "order", 3, false, read_behind_write,
	  "a descriptor to be read follows one to be written" },
	{ "overflow", 3, false, beyond_the_end, "a descriptor goes beyond the last address" },
	{ "empty table", 3, true, table_empty,
	  "a table of indirect descriptors has an impossible length" },
	{ "odd table", 3, true, table_odd,
	  "a table of indirect descriptors has an impossible length" },
	{ "huge table", 3, true, table_huge,
	  "a table of indirect descriptors has an impossible length" },
	{ "table outside", 3, true, table_outside,
	  "a table of indirect descriptors is outside the memory" },
	{ "table nowhere", 3, true, table_nowhere,
	  "a table of indirect descriptors is outside the memory" },
	{ "nested", 3, true, table_nested, "an indirect descriptor in a table of them" },
	{ "next and table", 3, true, table_next, "a descriptor follows an indirect one" },
	{ "table loop", 1, true, table_loop, "a table of indirect descriptors goes round" },
	{ "next beyond table", 1, true, table_next_beyond,
	  "a descriptor's next is beyond its table" },
	{ "order in table", 3, true, table_reads_behind_writes,
	  "a descriptor to be read follows one to be written" },
};

static void
test_vring_what_cannot_be_breaks_the_ring_with_a_sentence(void)
{
	struct guest_seg segs[] = { { 0x1000, 16, false },
		                    { 0x2000, 512, false },
		                    { 0x3000, 1, true } };

	for (unsigned i = 0; i < ARRAY_SIZE(evils); i++)
		for (unsigned packed = 0; packed < 2; packed++) {
			struct guest g;
			struct vring v;

			if (!(evils[i].formats & 1 << packed))
				continue;
			unit_row("%s, packed %u", evils[i].name, packed);
			begin(&g, &v, 8, packed, false);
			CHECK_EQ(guest_add(&g, segs, 3, evils[i].indirect), 0);
			evils[i].spoil(&g);
			CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_BROKEN);
			CHECK_STR(v.why, evils[i].why);
			CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_BROKEN);
			CHECK(!vring_has_work(&v));
			CHECK(!vring_arm(&v));
			end(&g, &v);
		}
}

static void
test_vring_a_head_that_is_in_flight_is_not_taken_again(void)
{
	struct guest_seg seg = { 0x1000, 1, true };
	struct guest g;
	struct vring v;

	begin(&g, &v, 8, false, false);
	guest_add(&g, &seg, 1, false);
	*((uint16_t *)g.at.avail + 3) = 0;
	*((uint16_t *)g.at.avail + 1) = 2;
	CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
	CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_BROKEN);
	CHECK_STR(v.why, "a head is made available that is in flight");
	end(&g, &v);
}

static void
test_vring_an_indirect_descriptor_must_have_been_negotiated(void)
{
	struct guest_seg seg = { 0x1000, 1, true };

	for (unsigned packed = 0; packed < 2; packed++) {
		struct guest g;
		struct vring v;

		begin(&g, &v, 8, packed, false);
		v.indirect = false;
		guest_add(&g, &seg, 1, true);
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_BROKEN);
		CHECK_STR(v.why, "an indirect descriptor, which was not negotiated");
		end(&g, &v);
	}
}

static void
test_vring_a_broken_ring_shows_nothing_more(void)
{
	struct guest_seg seg = { 0x1000, 1, true };

	for (unsigned packed = 0; packed < 2; packed++) {
		struct guest g;
		struct vring v;
		uint16_t id;
		uint32_t len;

		begin(&g, &v, 8, packed, false);
		guest_add(&g, &seg, 1, false);
		CHECK_EQ(vring_pop(&v, g.mem, &chain), VRING_CHAIN);
		vring_break(&v, "a reason");
		vring_break(&v, "another");
		CHECK_STR(v.why, "a reason");
		vring_push(&v, chain.token, 1);
		CHECK(!vring_flush(&v));
		CHECK(!guest_used(&g, &id, &len));
		CHECK_EQ(v.busy, 0);
		end(&g, &v);
	}
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_vring_a_chain_is_popped_as_the_guest_wrote_it),
	UNIT_TEST(test_vring_direct_descriptors_before_an_indirect_one_are_part_of_the_chain),
	UNIT_TEST(test_vring_a_chain_longer_than_is_kept_has_its_end),
	UNIT_TEST(test_vring_descriptors_without_bytes_are_passed_over),
	UNIT_TEST(test_vring_every_request_is_answered_once_through_many_laps),
	UNIT_TEST(test_vring_interrupts_come_when_and_only_when_they_are_wanted),
	UNIT_TEST(test_vring_a_batch_is_shown_at_once_and_interrupts_once),
	UNIT_TEST(test_vring_kicks_are_asked_for_only_while_it_is_armed),
	UNIT_TEST(test_vring_goes_on_from_its_base),
	UNIT_TEST(test_vring_a_base_with_one_index_is_that_of_both),
	UNIT_TEST(test_vring_goes_on_where_its_memory_was_moved),
	UNIT_TEST(test_vring_refuses_a_size_and_an_address_that_cannot_be),
	UNIT_TEST(test_vring_parts_have_the_size_of_the_specification),
	UNIT_TEST(test_vring_what_cannot_be_breaks_the_ring_with_a_sentence),
	UNIT_TEST(test_vring_a_head_that_is_in_flight_is_not_taken_again),
	UNIT_TEST(test_vring_an_indirect_descriptor_must_have_been_negotiated),
	UNIT_TEST(test_vring_a_broken_ring_shows_nothing_more),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
