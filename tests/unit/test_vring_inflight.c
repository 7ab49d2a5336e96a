/* The inflight region: a ring's owner is killed in front of every store that it makes, and then its
 * successor, while it recovers or later. Whatever the guest then sees must be
 * what one owner who lived would have shown it: each request is answered once, none is run after it
 * was answered, and what is run again comes in the order in which it came first.
 *
 * The sources are compiled in here, with stores that stop reaching memory once we are "dead".
 */
#include <stdbool.h>

static bool store_reaches(void);
#define VRING_STORE_REACHES() store_reaches()

#include "initiator/vring.c"
#include "initiator/vring_inflight.c"
#include "initiator/vring_packed.c"
#include "initiator/vring_split.c"

#include "tests/lib/guest.h"
#include "tests/lib/unit.h"

#include <stdio.h>

static unsigned stores, die_at; /* 0: never */

static bool
store_reaches(void)
{
	stores++;
	return die_at == 0 || stores < die_at;
}

static bool
dead(void)
{
	return die_at && stores >= die_at;
}

/* a guest and what became of its requests */

enum { SIZE = 8, TAGS = 4096 };

enum fate { NOT_YET, SENT, RUNNING, DONE, ANSWERED };

struct play {
	struct guest g; /* memory is that of all plays */
	struct vring v;
	bool packed;
	void *region;
	uint64_t seed;
	enum fate fate[TAGS];
	uint32_t tag_of[GUEST_RING_MAX]; /* by id */
	uint32_t next_tag, answered;
	struct {
		uint16_t token;
		uint32_t tag;
	} have[SIZE]; /* popped, by the owner that lives */
	unsigned nr;
	bool ok;
};

static struct vring_chain chain;

static void
must(struct play *p, bool ok, const char *what)
{
	if (!ok && p->ok)
		CHECK_STR(what, "");
	p->ok &= ok;
}

static uint32_t
rnd(struct play *p, uint32_t n)
{
	return unit_random(&p->seed) % n;
}

static void
guest_sends(struct play *p)
{
	uint32_t tag = p->next_tag, n = 1 + rnd(p, 3);
	struct guest_seg segs[3];
	int id;

	for (uint32_t i = 0; i < n; i++)
		segs[i] = (struct guest_seg){ (uint64_t)tag << 8 | i, tag + 1, i > 0 };
	id = guest_add(&p->g, segs, n, rnd(p, 2));
	if (id < 0 || tag >= TAGS)
		return;
	p->next_tag++;
	p->tag_of[id] = tag;
	p->fate[tag] = SENT;
}

static void
guest_sees(struct play *p)
{
	uint16_t id;
	uint32_t len;

	while (guest_used(&p->g, &id, &len)) {
		uint32_t tag = p->tag_of[id];

		must(p, p->fate[tag] == DONE,
		     "the guest saw a request that was not done, or twice");
		must(p, len == tag + 1, "the guest saw a wrong length");
		p->fate[tag] = ANSWERED;
		p->answered++;
	}
}

static bool
owner_pops(struct play *p, uint32_t *ret_tag)
{
	uint32_t tag;

	if (vring_pop(&p->v, p->g.mem, &chain) != VRING_CHAIN || dead())
		return false;
	tag = (uint32_t)(chain.seg[0].addr >> 8);
	must(p, p->fate[tag] != ANSWERED, "a request is run after it was answered");
	must(p, chain.seg[0].len == tag + 1, "a request came back with another length");
	for (unsigned i = 0; i < chain.nr; i++)
		must(p, chain.seg[i].addr == ((uint64_t)tag << 8 | i), "a descriptor is another's");
	p->fate[tag] = RUNNING;
	p->have[p->nr].token = chain.token;
	p->have[p->nr++].tag = tag;
	*ret_tag = tag;
	return true;
}

static void
owner_pushes(struct play *p)
{
	unsigned k = rnd(p, p->nr);
	uint32_t tag = p->have[k].tag;

	vring_push(&p->v, p->have[k].token, tag + 1);
	p->fate[tag] = DONE;
	p->have[k] = p->have[--p->nr];
}

/* One thing after the other, until all is answered or death. */
static void
play_on(struct play *p, unsigned turns)
{
	uint32_t tag;

	for (unsigned i = 0; p->ok && !dead() && (i < turns || p->answered < p->next_tag); i++) {
		if (i < turns)
			guest_sends(p);
		while (p->nr < SIZE && rnd(p, 3) && owner_pops(p, &tag))
			;
		while (p->nr > 0 && !dead() && rnd(p, 3))
			owner_pushes(p);
		if (rnd(p, 2))
			vring_flush(&p->v);
		if (!dead())
			guest_sees(p);
		must(p, dead() || !p->v.why, p->v.why ? p->v.why : "");
		must(p, i < turns + 1000, "it never ends");
	}
}

static int
owner_starts(struct play *p)
{
	struct vring_setup s = guest_setup(&p->g);
	const char *why = NULL;
	int res;

	s.inflight = p->region;
	p->nr = 0;
	res = vring_start(&p->v, &s, &why);
	must(p, dead() || !why, why ? why : "");
	return res;
}

static void
play_begin(struct play *p, bool packed, uint64_t seed)
{
	static struct guest memory;
	static _Alignas(VRING_INFLIGHT_ALIGN) uint8_t region[512];

	*p = (struct play){ .packed = packed, .seed = seed, .ok = true };
	if (!memory.mem)
		CHECK(guest_init(&memory, SIZE, packed, false));
	p->g = memory;
	guest_reset(&p->g, SIZE, packed, seed & 1);
	assert(vring_inflight_size(SIZE, packed) <= sizeof(region));
	memset(region, 0, sizeof(region));
	p->region = region;
	stores = die_at = 0;
}

/* The successor's first: all that was running and not answered, in the order of tags, which is the
 * order in which it was popped. */
static void
check_again(struct play *p)
{
	unsigned nr = p->v.nr_again;
	uint32_t before = 0, tag;
	bool any = false;

	for (unsigned i = 0; i < nr && p->ok; i++) {
		bool popped = owner_pops(p, &tag);

		if (dead())
			return;
		must(p, popped, "what was in flight does not come back");
		must(p, !any || tag > before, "the order is not that in which it came");
		before = tag;
		any = true;
	}
	for (tag = 0; tag < p->next_tag; tag++)
		must(p, p->fate[tag] == SENT || p->fate[tag] == RUNNING || p->fate[tag] == ANSWERED,
		     "a request that was done is neither answered nor run again");
}

/* Killed at the n-th store of its life. False: it had fewer. */
static bool
kill_at(bool packed, uint64_t seed, unsigned n, unsigned again)
{
	struct play p;
	bool died;

	play_begin(&p, packed, seed);
	die_at = n;
	owner_starts(&p);
	if (!dead())
		play_on(&p, 12);
	died = dead();
	vring_end(&p.v);
	stores = 0;
	die_at = again;
	guest_sees(&p);
	if (again) { /* the successor is killed too */
		owner_starts(&p);
		if (!dead())
			check_again(&p);
		play_on(&p, 4);
		died &= dead();
		vring_end(&p.v);
		die_at = 0;
		guest_sees(&p);
	}
	owner_starts(&p);
	check_again(&p);
	play_on(&p, 12);
	if (p.ok)
		CHECK_EQ(p.answered, p.next_tag);
	died &= p.ok;
	vring_end(&p.v);
	return died;
}

static void
test_inflight_a_kill_at_any_store_loses_and_doubles_nothing(void)
{
	for (unsigned packed = 0; packed < 2; packed++)
		for (uint64_t seed = 1; seed <= 25; seed++) {
			unsigned n = 1;

			while (kill_at(packed, seed, n, 0)) {
				n++;
				unit_row("packed %u, seed %u, store %u", packed, (unsigned)seed, n);
			}
			CHECK(n > 60);
		}
}

static void
test_inflight_a_second_kill_at_any_store_does_no_harm(void)
{
	for (unsigned packed = 0; packed < 2; packed++)
		for (uint64_t seed = 1; seed <= 4; seed++)
			for (unsigned n = 1 + seed; n < 160; n += 8) {
				unsigned again = 1;

				while (kill_at(packed, seed, n, again)) {
					again++;
					unit_row("packed %u, seed %u, store %u, then %u", packed,
					         (unsigned)seed, n, again);
				}
				CHECK(again > 1 || n > 60);
			}
}

/* regions that nobody can have written */

struct spoilt {
	bool packed;
	unsigned at, bytes;
	uint64_t value;
	const char *why;
};

static const struct spoilt spoilt[] = {
	{ false, 8, 2, 2, "its inflight region is of an unknown version" },
	{ false, 10, 2, 16, "its inflight region is of another size" },
	{ false, 12, 2, 8, "its inflight region names a descriptor beyond the ring" },
	{ true, 8, 2, 0xffff, "its inflight region is of an unknown version" },
	{ true, 10, 2, 7, "its inflight region is of another size" },
	{ true, 14, 2, 9, "the free list of its inflight region goes astray" },
	{ true, 64 + 32 + 2, 2, 2, "the free list of its inflight region goes astray" },
	{ true, 16, 2, 8, "the used index of its inflight region is beyond the ring" },
	{ true, 18, 2, 0xffff, "the used index of its inflight region is beyond the ring" },
	{ true, 32 + 6, 2, 0, "a chain in its inflight region has an impossible length" },
	{ true, 32 + 6, 2, 9, "a chain in its inflight region has an impossible length" },
	{ true, 32 + 6, 2, 8, "a chain in its inflight region goes astray" },
	{ true, 32 + 2, 2, 0xffff, "a chain in its inflight region goes astray" },
	{ true, 32 + 2, 2, 0, "a chain in its inflight region goes astray" },
	{ true, 32, 1, 0, "its inflight region has lost a descriptor" },
	{ true, 32 + 6, 2, 1, "its inflight region has lost a descriptor" },
};

/* One chain of two was answered, one of two is in flight. */
static void
one_in_flight(struct play *p, bool packed)
{
	struct guest_seg segs[2] = { { 0, 1, false }, { 1, 1, true } };
	uint32_t tag;

	play_begin(p, packed, 1);
	owner_starts(p);
	guest_add(&p->g, segs, 2, false);
	if (!packed) { /* so that a batch can have been under way */
		owner_pops(p, &tag);
		owner_pushes(p);
		vring_flush(&p->v);
		guest_add(&p->g, segs, 2, false);
	}
	owner_pops(p, &tag);
	vring_end(&p->v);
}

static void
test_inflight_a_region_that_cannot_be_is_refused(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(spoilt); i++) {
		struct vring_setup s;
		const char *why = NULL;
		struct play p;

		unit_row("row %u", i);
		one_in_flight(&p, spoilt[i].packed);
		memcpy((uint8_t *)p.region + spoilt[i].at, &spoilt[i].value, spoilt[i].bytes);
		if (spoilt[i].at == 12)
			*(uint16_t *)((uint8_t *)p.region + 14) =
				0; /* a batch of one is to be undone */
		s = guest_setup(&p.g);
		s.inflight = p.region;
		CHECK_EQ(vring_start(&p.v, &s, &why), -EINVAL);
		CHECK_STR(why, spoilt[i].why);
		vring_end(&p.v);
	}
}

static void
test_inflight_any_bytes_in_the_region_end_in_a_sentence_or_a_ring(void)
{
	uint64_t seed = 7;

	for (unsigned i = 0; i < 20000; i++) {
		bool packed = i & 1;
		struct vring_setup s;
		const char *why;
		struct play p;

		one_in_flight(&p, packed);
		for (unsigned n = 1 + unit_random(&seed) % 6; n > 0; n--) {
			size_t at = unit_random(&seed) % vring_inflight_size(SIZE, packed);

			((uint8_t *)p.region)[at] = (uint8_t)(unit_random(&seed) % 12);
		}
		s = guest_setup(&p.g);
		s.inflight = p.region;
		if (vring_start(&p.v, &s, &why) == 0)
			for (unsigned n = 0; n < 20; n++)
				if (vring_pop(&p.v, p.g.mem, &chain) == VRING_CHAIN)
					vring_push(&p.v, chain.token, 1);
		vring_flush(&p.v);
		vring_end(&p.v);
	}
}

static void
test_inflight_a_chain_in_the_region_is_judged_like_one_in_the_ring(void)
{
	static const struct {
		unsigned at;
		uint16_t flags;
		const char *why;
	} rows[] = {
		{ 32 + 18, 1 | 4, "a descriptor follows an indirect one" },
		{ 64 + 18, 1 | 2, "a chain in the inflight region does not end" },
		{ 32 + 18, 1 | 2, "a descriptor to be read follows one to be written" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct play p;

		unit_row("row %u", i);
		one_in_flight(&p, true);
		memcpy((uint8_t *)p.region + rows[i].at, &rows[i].flags, 2);
		if (i == 2)
			memset((uint8_t *)p.region + 64 + 18, 0, 2);
		CHECK_EQ(owner_starts(&p), 0);
		CHECK_EQ(vring_pop(&p.v, p.g.mem, &chain), VRING_BROKEN);
		CHECK_STR(p.v.why, rows[i].why);
		vring_end(&p.v);
	}
}

/* layouts: what other owners of the same region rely on */

static void
test_inflight_the_regions_are_those_of_the_specification(void)
{
	struct play p;
	const uint8_t *r;

	CHECK_EQ(vring_inflight_size(128, false), 16 + 128 * 16 + 48);
	CHECK_EQ(vring_inflight_size(128, true), 32 + 128 * 32 + 32);
	one_in_flight(&p, false);
	r = p.region;
	CHECK_MEM(r, "\0\0\0\0\0\0\0\0\1\0\10\0\0\0\1\0", 16); /* version, size, batch, used */
	CHECK_EQ(r[16 + 2 * 16], 1);                           /* the head in flight is 2 or 0 */
	vring_end(&p.v);
	one_in_flight(&p, true);
	r = p.region;
	CHECK_MEM(r + 8, "\1\0\10\0\2\0\2\0", 8); /* version, size, both free heads */
	CHECK_MEM(r + 16, "\0\0\0\0\1\1\0\0", 8); /* used indices and wrap counters */
	CHECK_MEM(r + 32, "\1\0\1\0\1\0\2\0\0\0\0\0\0\0\0\0", 16); /* next, last, num, counter */
	CHECK_MEM(r + 64 + 20, "\1\0\0\0\1\0\0\0\0\0\0\0", 12);    /* the second's len, addr */
	vring_end(&p.v);
}

static void
test_inflight_a_split_ring_that_began_anew_has_nothing_in_flight(void)
{
	struct play p;

	one_in_flight(&p, false);
	memset(p.g.at.avail, 0, 32);
	memset(p.g.at.used, 0, 96);
	*(uint16_t *)((uint8_t *)p.region + 14) = 300;
	CHECK_EQ(owner_starts(&p), 0);
	CHECK_EQ(p.v.nr_again, 0);
	CHECK_EQ(vring_base(&p.v), 0);
	vring_end(&p.v);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_inflight_a_kill_at_any_store_loses_and_doubles_nothing),
	UNIT_TEST(test_inflight_a_second_kill_at_any_store_does_no_harm),
	UNIT_TEST(test_inflight_a_region_that_cannot_be_is_refused),
	UNIT_TEST(test_inflight_any_bytes_in_the_region_end_in_a_sentence_or_a_ring),
	UNIT_TEST(test_inflight_a_chain_in_the_region_is_judged_like_one_in_the_ring),
	UNIT_TEST(test_inflight_the_regions_are_those_of_the_specification),
	UNIT_TEST(test_inflight_a_split_ring_that_began_anew_has_nothing_in_flight),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
