/* Frames of compressed blocks: what comes back, what is refused. */
#include "common/zframe.h"

#include "tests/lib/unit.h"

#include <stdlib.h>
#include <zstd.h>

enum { SHIFT = 12, SIZE = 1 << SHIFT, BLOCKS = 8, RAW = SIZE * BLOCKS, TABLE = 8 + 2 * BLOCKS };

static uint8_t src[ZFRAME_RAW_MAX], frame[ZFRAME_RAW_MAX], back[ZFRAME_RAW_MAX + 64];
static struct zframe *z;

static void
fill_random(uint8_t *p, size_t n, uint64_t seed)
{
	while (n-- > 0)
		*p++ = (uint8_t)unit_random(&seed);
}

/* Text: a third of it is left by any level. */
static void
fill_text(uint8_t *p, size_t n, uint64_t seed)
{
	static const char words[] = "the quick brown fox jumps over the lazy dog and is gone ";

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)words[unit_random(&seed) % 9 ? i % 56 : unit_random(&seed) % 56];
}

static struct zframe_data
data_of(const struct iovec *sg, unsigned shift, uint32_t blocks)
{
	return (struct zframe_data){ sg, shift, blocks };
}

static uint32_t
pack(int level, unsigned shift, uint32_t blocks)
{
	struct iovec sg = { src, (size_t)blocks << shift };
	struct zframe_data d = data_of(&sg, shift, blocks);

	return zframe_pack(z, level, &d, frame);
}

/* From a copy of exactly len bytes, so that the sanitizers see a read beyond. */
static const char *
unpack(uint32_t len, unsigned shift, uint32_t blocks)
{
	struct iovec sg = { back, (size_t)blocks << shift };
	struct zframe_data d = data_of(&sg, shift, blocks);
	uint8_t *exact = malloc(len ? len : 1);
	const char *why;

	memcpy(exact, frame, len);
	memset(back, 0xee, sizeof(back));
	why = zframe_unpack(z, exact, len, &d);
	free(exact);
	for (size_t i = (size_t)blocks << shift; i < sizeof(back); i++)
		if (!CHECK_EQ(back[i], 0xee))
			break;
	return why;
}

static uint32_t
pack_text(void)
{
	fill_text(src, RAW, 1);
	return pack(1, SHIFT, BLOCKS);
}

static void
setup(void)
{
	if (!z)
		z = zframe_new();
	CHECK(z != NULL);
}

static void
test_every_level_and_block_size_comes_back(void)
{
	setup();
	fill_text(src, sizeof(src), 3);
	for (unsigned shift = ZFRAME_SHIFT_MIN; shift <= ZFRAME_SHIFT_MAX; shift++) {
		for (int level = ZFRAME_LEVEL_MIN; level <= ZFRAME_LEVEL_MAX; level++) {
			uint32_t blocks = ZFRAME_RAW_MAX >> shift, n = pack(level, shift, blocks);

			unit_row("shift %u level %d", shift, level);
			if (level < -1 && n == 0)
				continue; /* too fast to find anything */
			CHECK(n > 0 && n <= zframe_limit(ZFRAME_RAW_MAX));
			CHECK(unpack(n, shift, blocks) == NULL);
			CHECK_MEM(back, src, ZFRAME_RAW_MAX);
		}
	}
}

static void
test_random_blocks_make_no_frame(void)
{
	setup();
	fill_random(src, RAW, 5);
	CHECK_EQ(pack(1, SHIFT, BLOCKS), 0);
	CHECK_EQ(pack(ZFRAME_LEVEL_MAX, SHIFT, 1), 0);
}

static void
test_a_frame_holds_random_blocks_as_they_are(void)
{
	uint32_t n;

	setup();
	fill_text(src, RAW, 7);
	fill_random(src + SIZE, SIZE, 8);
	fill_random(src + 5 * SIZE, SIZE, 9);
	n = pack(3, SHIFT, BLOCKS);
	CHECK(n > 2 * SIZE && n < RAW);
	CHECK_EQ(frame[8 + 2] | frame[8 + 3], 0); /* the second block's table word */
	CHECK(unpack(n, SHIFT, BLOCKS) == NULL);
	CHECK_MEM(back, src, RAW);
}

static void
test_one_random_block_more_than_pays_makes_no_frame(void)
{
	setup();
	fill_random(src, RAW, 11);
	fill_text(src, SIZE / 2, 12); /* saves less than a sixteenth of all */
	CHECK_EQ(pack(1, SHIFT, BLOCKS), 0);
}

static void
test_any_sg_list_gives_the_same_frame_and_takes_the_same_blocks(void)
{
	static uint8_t other[ZFRAME_RAW_MAX];
	struct iovec sg[64];
	struct zframe_data d = data_of(sg, SHIFT, BLOCKS);
	uint64_t seed = 17;
	uint32_t n;

	setup();
	n = pack_text();
	memcpy(other, frame, n);
	for (unsigned round = 0; round < 200; round++) {
		size_t at = 0;
		unsigned i = 0;

		while (at < RAW) {
			size_t left = RAW - at, len = 1 + unit_random(&seed) % 3000;

			if (i == 63 || len > left)
				len = left;
			sg[i++] = (struct iovec){ src + at, len };
			at += len;
		}
		CHECK_EQ(zframe_pack(z, 1, &d, frame), n);
		CHECK_MEM(frame, other, n);
		while (i-- > 0)
			sg[i].iov_base = back + ((uint8_t *)sg[i].iov_base - src);
		memset(back, 0, RAW);
		CHECK(zframe_unpack(z, frame, n, &d) == NULL);
		CHECK_MEM(back, src, RAW);
	}
}

static void
test_a_frame_cut_anywhere_or_longer_is_refused(void)
{
	uint32_t n;

	setup();
	n = pack_text();
	for (uint32_t len = 0; len < n; len++)
		if (!CHECK(unpack(len, SHIFT, BLOCKS) != NULL))
			break;
	frame[n] = 0;
	CHECK(unpack(n + 1, SHIFT, BLOCKS) != NULL);
	CHECK(unpack(n, SHIFT, BLOCKS) == NULL);
}

static void
test_a_frame_of_other_blocks_is_refused(void)
{
	uint32_t n;

	setup();
	n = pack_text();
	CHECK_STR(unpack(n, SHIFT, BLOCKS - 1), "it is of other blocks");
	CHECK_STR(unpack(n, SHIFT + 1, BLOCKS / 2), "it is of other blocks");
	frame[7] = 1;
	CHECK_STR(unpack(n, SHIFT, BLOCKS), "it is no frame");
	frame[7] = 0;
	frame[0] ^= 1;
	CHECK_STR(unpack(n, SHIFT, BLOCKS), "it is no frame");
}

static void
test_lengths_that_lie_are_refused(void)
{
	uint32_t n;

	setup();
	n = pack_text();
	frame[8]++;
	CHECK_STR(unpack(n, SHIFT, BLOCKS), "its length is not that of its blocks");
	frame[10]--; /* the sum is right again */
	CHECK_STR(unpack(n, SHIFT, BLOCKS), "a block is not one zstd frame");
	n = pack_text();
	frame[8] = SIZE & 0xff;
	frame[9] = SIZE >> 8;
	CHECK_STR(unpack(n, SHIFT, BLOCKS), "a block is stored longer than it is");
}

/* A frame of one block, which zstd made with this parameter out of n bytes. */
static uint32_t
one_block(size_t n, ZSTD_cParameter param, int value)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t len;

	CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(c, param, value)));
	memset(src, 'x', RAW);
	len = ZSTD_compress2(c, frame + 10, sizeof(frame) - 10, src, n);
	CHECK(!ZSTD_isError(len) && len < SIZE);
	ZSTD_freeCCtx(c);
	memcpy(frame, "SZF1\1\0\14\0", 8);
	frame[8] = (uint8_t)len;
	frame[9] = (uint8_t)(len >> 8);
	return 10 + (uint32_t)len;
}

static void
test_a_block_of_another_size_is_refused(void)
{
	static const size_t sizes[] = { 0, 1, SIZE - 1, SIZE + 1, RAW };
	uint32_t n;

	setup();
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		n = one_block(sizes[i], ZSTD_c_checksumFlag, 0);
		unit_row("%zu bytes", sizes[i]);
		CHECK_STR(unpack(n, SHIFT, 1), "a block tells another size");
	}
	n = one_block(SIZE, ZSTD_c_checksumFlag, 1);
	CHECK(unpack(n, SHIFT, 1) == NULL);
	CHECK_MEM(back, src, SIZE);
	n = one_block(SIZE, ZSTD_c_contentSizeFlag, 0);
	CHECK_STR(unpack(n, SHIFT, 1), "a block tells another size");
}

static void
test_a_block_that_wants_a_dictionary_is_refused(void)
{
	uint32_t n;

	setup();
	n = one_block(SIZE, ZSTD_c_checksumFlag, 0);
	memmove(frame + 16, frame + 15, n - 15);
	frame[14] |= 1; /* one byte of dictionary id follows */
	frame[15] = 7;
	frame[8] = (uint8_t)(n + 1 - 10);
	frame[9] = (uint8_t)((n + 1 - 10) >> 8);
	CHECK_STR(unpack(n + 1, SHIFT, 1), "a block wants a dictionary");
}

/* Says that it has a block's size, and would decompress to a quarter of a MiB of zeroes. */
static void
test_a_bomb_that_lies_about_its_size_is_refused(void)
{
	static const uint8_t head[] = {
		'S',  'Z',  'F', '1', 1, 0, SHIFT, 0, 0, 0, 0x28, 0xb5, 0x2f, 0xfd, /* zstd */
		0x60, 0x00, 0x0f
	}; /* single segment, 2 bytes of content size: 4096 */
	uint8_t *p = frame + sizeof(head);
	uint32_t rle = 2 << 1 | 0x10000u << 3; /* 64 KiB of one byte */

	setup();
	memcpy(frame, head, sizeof(head));
	for (unsigned i = 0; i < 4; i++) {
		uint32_t h = rle | (i == 3);

		*p++ = (uint8_t)h;
		*p++ = (uint8_t)(h >> 8);
		*p++ = (uint8_t)(h >> 16);
		*p++ = 0;
	}
	frame[8] = (uint8_t)(p - frame - 10);
	CHECK(unpack((uint32_t)(p - frame), SHIFT, 1) != NULL);
	for (unsigned i = 0; i < SIZE; i++)
		if (!CHECK_EQ(back[i], 0xee))
			break;
}

static void
test_two_frames_in_one_block_or_a_skippable_one_are_refused(void)
{
	uint32_t n;

	setup();
	n = one_block(SIZE, ZSTD_c_checksumFlag, 0);
	memcpy(frame + n, "\x50\x2a\x4d\x18\0\0\0\0", 8);
	frame[8] = (uint8_t)(n + 8 - 10);
	frame[9] = (uint8_t)((n + 8 - 10) >> 8);
	CHECK_STR(unpack(n + 8, SHIFT, 1), "a block is not one zstd frame");
	memcpy(frame + 10, "\x50\x2a\x4d\x18\0\0\0\0", 8);
	frame[8] = 8;
	frame[9] = 0;
	CHECK_STR(unpack(18, SHIFT, 1), "a block tells another size");
}

static void
test_a_flipped_byte_never_reaches_beyond_the_blocks(void)
{
	uint64_t seed = 29;
	uint32_t n;

	setup();
	n = pack_text();
	for (unsigned round = 0; round < 3000; round++) {
		uint32_t at = unit_random(&seed) % n;
		uint8_t was = frame[at];

		frame[at] = (uint8_t)unit_random(&seed);
		unpack(n, SHIFT, BLOCKS);
		frame[at] = was;
	}
	CHECK(unpack(n, SHIFT, BLOCKS) == NULL);
	zframe_free(z);
	z = NULL;
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_every_level_and_block_size_comes_back),
	UNIT_TEST(test_random_blocks_make_no_frame),
	UNIT_TEST(test_a_frame_holds_random_blocks_as_they_are),
	UNIT_TEST(test_one_random_block_more_than_pays_makes_no_frame),
	UNIT_TEST(test_any_sg_list_gives_the_same_frame_and_takes_the_same_blocks),
	UNIT_TEST(test_a_frame_cut_anywhere_or_longer_is_refused),
	UNIT_TEST(test_a_frame_of_other_blocks_is_refused),
	UNIT_TEST(test_lengths_that_lie_are_refused),
	UNIT_TEST(test_a_block_of_another_size_is_refused),
	UNIT_TEST(test_a_block_that_wants_a_dictionary_is_refused),
	UNIT_TEST(test_a_bomb_that_lies_about_its_size_is_refused),
	UNIT_TEST(test_two_frames_in_one_block_or_a_skippable_one_are_refused),
	UNIT_TEST(test_a_flipped_byte_never_reaches_beyond_the_blocks),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
