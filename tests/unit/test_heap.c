/* The pairing heap against a plain search, with keys that wrap. */
#include "common/heap.h"

#include "tests/lib/unit.h"

enum { NODES = 200, STEPS = 100000 };

static struct heap_node nodes[NODES];
static bool inside[NODES];
static struct heap heap;

static struct heap_node *
least(uint64_t base)
{
	struct heap_node *best = NULL;

	for (unsigned i = 0; i < NODES; i++)
		if (inside[i] && (!best || nodes[i].key - base < best->key - base))
			best = &nodes[i];
	return best;
}

static void
test_the_least_key_is_first_whatever_is_put_in_and_taken_out(void)
{
	uint64_t random = 3, base = UINT64_MAX - 5000;

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = unit_random(&random) % NODES;
		struct heap_node *want;

		if (!inside[i])
			heap_insert(&heap, &nodes[i], base + unit_random(&random) % 10000);
		else
			heap_remove(&heap, &nodes[i]);
		inside[i] = !inside[i];
		want = least(base);
		if (!CHECK(want ? heap_first(&heap) && heap_first(&heap)->key == want->key
		                : !heap_first(&heap)))
			return;
	}
}

static void
test_all_come_out_in_order(void)
{
	uint64_t base = UINT64_MAX - 5000, last = base;
	struct heap_node *n;

	while ((n = heap_pop(&heap))) {
		CHECK(inside[n - nodes]);
		inside[n - nodes] = false;
		CHECK(n->key - base >= last - base);
		last = n->key;
	}
	for (unsigned i = 0; i < NODES; i++)
		CHECK(!inside[i]);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_the_least_key_is_first_whatever_is_put_in_and_taken_out),
	UNIT_TEST(test_all_come_out_in_order),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
