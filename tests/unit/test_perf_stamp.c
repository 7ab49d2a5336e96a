/* What sluice-perf --verify writes into a block, and that each kind of wrong block is told from a
 * right one. */
#include "initiator/client/perf.h"

#include "tests/lib/unit.h"

enum { SIZE = 512 };

static const struct stamp_want id = { .volume = 0x1234, .lba = 77, .version = 5 };

static enum stamp_verdict
judge(const uint8_t *block, uint64_t volume, uint64_t lba, uint64_t version)
{
	struct stamp_want want = { .volume = volume, .lba = lba, .version = version };
	struct stamp_found found;

	return stamp_judge(block, SIZE, &want, &found);
}

static void
test_block_is_right_where_it_was_written(void)
{
	uint8_t block[SIZE];

	stamp_write(block, SIZE, &id);
	CHECK_EQ(judge(block, id.volume, id.lba, id.version), STAMP_OK);
	CHECK_EQ(judge(block, id.volume, id.lba, 0), STAMP_OK);
}

static void
test_block_that_was_never_stamped_is_foreign(void)
{
	uint8_t block[SIZE] = { 0 };

	CHECK_EQ(judge(block, id.volume, id.lba, id.version), STAMP_FOREIGN);
}

static void
test_block_of_another_place_or_volume_is_misplaced(void)
{
	struct stamp_want want = id;
	struct stamp_found found;
	uint8_t block[SIZE];

	stamp_write(block, SIZE, &id);
	want.lba++;
	CHECK_EQ(stamp_judge(block, SIZE, &want, &found), STAMP_MISPLACED);
	CHECK_EQ(found.lba, id.lba);
	CHECK_EQ(found.version, id.version);
	CHECK_EQ(judge(block, id.volume + 1, id.lba, id.version), STAMP_MISPLACED);
}

static void
test_block_of_another_version_is_stale(void)
{
	uint8_t block[SIZE];

	stamp_write(block, SIZE, &id);
	CHECK_EQ(judge(block, id.volume, id.lba, id.version + 1), STAMP_STALE);
	CHECK_EQ(judge(block, id.volume, id.lba, id.version - 1), STAMP_STALE);
}

/* The first 8 bytes are the magic: without them it is no stamp at all. */
static void
test_any_wrong_byte_of_a_block_is_found(void)
{
	struct stamp_found found;
	uint8_t block[SIZE];

	stamp_write(block, SIZE, &id);
	for (uint32_t at = 0; at < SIZE; at++) {
		unit_row("byte %u", at);
		block[at] ^= 0x10;
		CHECK_EQ(stamp_judge(block, SIZE, &id, &found),
		         at < 8 ? STAMP_FOREIGN : STAMP_DAMAGED);
		if (at >= 40)
			CHECK_EQ(found.at, at);
		block[at] ^= 0x10;
	}
}

/* Halves of two versions, as a torn write would leave. */
static void
test_torn_block_is_damaged(void)
{
	struct stamp_want newer = id;
	uint8_t block[SIZE], other[SIZE];

	newer.version++;
	stamp_write(block, SIZE, &id);
	stamp_write(other, SIZE, &newer);
	memcpy(block + SIZE / 2, other + SIZE / 2, SIZE / 2);
	CHECK_EQ(judge(block, id.volume, id.lba, id.version), STAMP_DAMAGED);
}

static void
test_zeroes_at_the_end_of_a_block_are_judged_too(void)
{
	struct stamp_want zeroed = id;
	struct stamp_found found;
	uint8_t block[SIZE];

	zeroed.zeroes = 128;
	stamp_write(block, SIZE, &zeroed);
	CHECK_EQ(block[SIZE - 128], 0);
	CHECK(block[SIZE - 129] | block[SIZE - 130]);
	CHECK_EQ(stamp_judge(block, SIZE, &zeroed, &found), STAMP_OK);
	CHECK_EQ(stamp_judge(block, SIZE, &id, &found), STAMP_DAMAGED);
	block[SIZE - 1] = 1;
	CHECK_EQ(stamp_judge(block, SIZE, &zeroed, &found), STAMP_DAMAGED);
	CHECK_EQ(found.at, SIZE - 1);
}

static void
test_volumes_of_different_names_have_different_hashes(void)
{
	CHECK_EQ(stamp_hash(""), UINT64_C(14695981039346656037));
	CHECK_EQ(stamp_hash("a"), UINT64_C(0xaf63dc4c8601ec8c)); /* FNV-1a, as published */
	CHECK(stamp_hash("vol0") != stamp_hash("vol1"));
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_block_is_right_where_it_was_written),
	UNIT_TEST(test_block_that_was_never_stamped_is_foreign),
	UNIT_TEST(test_block_of_another_place_or_volume_is_misplaced),
	UNIT_TEST(test_block_of_another_version_is_stale),
	UNIT_TEST(test_any_wrong_byte_of_a_block_is_found),
	UNIT_TEST(test_torn_block_is_damaged),
	UNIT_TEST(test_zeroes_at_the_end_of_a_block_are_judged_too),
	UNIT_TEST(test_volumes_of_different_names_have_different_hashes),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
