/* The encrypt stage against the vectors of IEEE 1619, and over stripes against the plain map. Paths
 * are made up here; what is sent to a member lands in its image.
 */
#include "initiator/crypt_key.h"
#include "initiator/initiator.h"
#include "initiator/stage_crypt.h"

#include "tests/lib/made_path.h"
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 8, IMAGE = 1 << 18, BIG = 1 << 17, STRIPE = 4096, PART = 16 << 10 };

static uint64_t seed = 1;

static uint32_t
rnd(uint32_t below)
{
	return unit_random(&seed) % below;
}

static void
unhex(uint8_t *dst, const char *hex)
{
	unsigned byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		*dst++ = (uint8_t)byte;
}

/* ---- a world of one volume ---- */

static struct initiator in;
static struct reactor reactor;
static struct path path_of[MEMBERS];
static struct member members[MEMBERS];
static struct volume vol;
static struct vq queue;
static struct crypt_key key;
static uint8_t memory[BIG + 4 * IO_SG_MAX], want[BIG];
static unsigned completed, errors;

static void
complete(struct vq *q, struct io *io)
{
	(void)q;
	completed++;
	errors += io->status != 0;
}

static void
flush(struct vq *q)
{
	(void)q;
}

static const struct vq_ops ops = { .complete = complete, .flush = flush };

static void
world_begin(uint32_t nr, unsigned shift, const char *key_hex, bool discard)
{
	struct ring_config cfg = { .entries = 8, .max_bufs = 1, .name = "test" };
	struct stage_config sc = {
		.kind = STAGE_ENCRYPT,
		.staging = 1 << 20,
		.crypt = { .key = &key, .discard = discard },
	};
	struct err err = { 0 };

	reactor = (struct reactor){ .in = &in };
	if (!CHECK_EQ(ring_new(&cfg, &reactor.ring, &err), 0))
		exit(1);
	CHECK_EQ(io_pool_new(&reactor), 0);
	queue = (struct vq){ .r = &reactor, .ops = &ops };
	list_init(&queue.touched_node);
	for (unsigned i = 0; i < nr; i++) {
		made_path_init(&path_of[i], IMAGE, 1u << shift);
		members[i] = (struct member){ .nsid = 1, .paths = { &path_of[i] }, .nr_paths = 1 };
	}
	key = (struct crypt_key){ .refs = 2, .len = strlen(key_hex) / 2 };
	unhex(key.bytes, key_hex);
	vol = (struct volume){ .lba_shift = (uint8_t)shift, .members = members, .nr_members = nr };
	split_geometry(&vol.geo, nr, STRIPE, PART);
	CHECK_EQ(stage_new(&sc, 1, PART, &vol.stage, &err), 0);
	completed = errors = 0;
}

static void
world_end(void)
{
	CHECK_EQ(queue.inflight, 0);
	stage_free(vol.stage);
	CHECK_EQ(key.refs, 2);
	io_pool_free(&reactor);
	ring_free(reactor.ring);
	for (unsigned i = 0; i < vol.nr_members; i++)
		made_path_fini(&path_of[i]);
}

static struct io *
make_io(uint8_t op, uint64_t off, uint64_t len)
{
	struct io *io = io_get(&reactor);

	io->q = &queue;
	io->vol = &vol;
	io->op = op;
	io->fua = false;
	io->off = off;
	io->len = len;
	io->sg[0] = (struct iovec){ memory, len };
	io->nsg = 1;
	return io;
}

static void
scatter(struct io *io, unsigned most)
{
	made_scatter(io, memory, most, &seed);
}

static void
end_all(void)
{
	made_path_end_all(path_of, vol.nr_members, 0);
	io_turn(&reactor);
}

/* ---- tests ---- */

#define KEY_128                                                                                    \
	"27182818284590452353602874713526"                                                         \
	"31415926535897932384626433832795"
#define KEY_256                                                                                    \
	"2718281828459045235360287471352662497757247093699959574966967627"                         \
	"3141592653589793238462643383279502884197169399375105820974944592"

/* IEEE 1619-2007, annex B, vectors 4 to 14: 512 bytes 0, 1, 2... as a data unit; the beginning and
 * the end of what they become. */
static const struct vector {
	const char *key;
	uint64_t lba;
	const char *head, *tail;
} vectors[] = {
	{ KEY_128, 0, "27a7479befa1d476489f308cd4cfa6e2", "0a282df920147beabe421ee5319d0568" },
	{ KEY_128, 1, "bbf9d6a74a7465fee20f42adf9a623fc", "9b1c84a52a6a5dc065db2496fc4e84cb" },
	{ KEY_128, 2, "6fc5047ca79b062207be6385d3b6bd44", "6a36b623396a7da26dbfc8ba575f8335" },
	{ KEY_128, 0xfd, "9bc399f00564200c68ff389d37d5aa47", "0c02c015cc609a03ccc2c6dda6bd1974" },
	{ KEY_128, 0xfe, "3f843eabbe68ff5f96ff5d9cfe254295", "7d448441ddb71791ed3024fb9d7fea50" },
	{ KEY_128, 0xff, "555f52df35547853ce1f81fc4443ed13", "24c56bf3d68c8cc43c41b52db819717a" },
	{ KEY_256, 0xff, "1c3b3a102f770386e4836c99e370cf9b", "c4f36ffda9fcea70b9c6e693e148c151" },
	{ KEY_256, 0xffff, "77a31251618a15e6b92d1d66dffe7b50", "a4f9e27b42af8100cb9d59cef9645803" },
	{ KEY_256, 0xffffff, "e387aaa58ba483afa7e8eb469778317e",
	  "2263a1eef52dd6888c309f5a7d712826" },
	{ KEY_256, 0xffffffff, "bf53d2dade78e822a4d949a9bc6766b0",
	  "4c82f335abb152c4a93411373aaa8220" },
	{ KEY_256, 0xffffffffff, "64497e5a831e4a932c09be3e5393376d",
	  "d609d273ad5b0d59631c531f6a0a57b9" },
};

static void
test_a_block_is_what_ieee_1619_makes_of_it_with_its_lba_as_the_sequence_number(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		uint8_t head[16], tail[16], *sent;

		unit_row("vector %zu", i + 4);
		unhex(head, v->head);
		unhex(tail, v->tail);
		world_begin(1, 9, v->key, false);
		made_path_fini(&path_of[0]); /* LBAs like these are on no image */
		for (unsigned k = 0; k < 512; k++)
			memory[k] = (uint8_t)k;
		io_start(make_io(nvme_cmd_write, v->lba * 512, 512));
		sent = made_path_first(&path_of[0])->sg->iov_base;
		CHECK_MEM(sent, head, 16);
		CHECK_MEM(sent + 496, tail, 16);
		memcpy(want, sent, 512);
		end_all();
		memset(memory, 0, 512);
		io_start(make_io(nvme_cmd_read, v->lba * 512, 512));
		memcpy(made_path_first(&path_of[0])->sg->iov_base, want, 512);
		end_all();
		for (unsigned k = 0; k < 512; k++)
			want[k] = (uint8_t)k;
		CHECK_MEM(memory, want, 512);
		CHECK(completed == 2 && errors == 0);
		world_end();
	}
}

/* The image of a member, decrypted block by block with the LBAs of the plain map. */
static bool
members_hold(uint64_t off, const uint8_t *plain, uint64_t len)
{
	uint64_t block = 1u << vol.lba_shift, nr = vol.nr_members;
	uint8_t one[4096];

	for (uint64_t at = off; at < off + len; at += block) {
		uint64_t k = at / STRIPE;
		const uint8_t *raw =
			nr == 1 ? path_of[0].image + at
				: path_of[k % nr].image + k / nr * STRIPE + at % STRIPE;

		memcpy(one, raw, block);
		if (!memcmp(one, plain + (at - off), block))
			return false; /* that is no secret */
		crypt_unit(vol.stage, false, one, block, at / block);
		if (memcmp(one, plain + (at - off), block) != 0)
			return false;
	}
	return true;
}

static void
test_the_tweak_is_the_lba_of_the_volume_on_any_stripe_and_shape(void)
{
	for (unsigned round = 0; round < 200; round++) {
		uint32_t nr = 1 + rnd(MEMBERS), shift = rnd(2) ? 9 : 12, block = 1u << shift;
		uint32_t blocks = 1 + rnd(BIG / block), at = 0;
		uint64_t off = (uint64_t)rnd(IMAGE / block - blocks) * block;
		struct io *io;
		bool good = true;

		unit_row("round %u: %u members, %u blocks of %u at %lu", round, nr, blocks, block,
		         (unsigned long)off);
		world_begin(nr, shift, rnd(2) ? KEY_128 : KEY_256, false);
		io = make_io(nvme_cmd_write, off, (uint64_t)blocks * block);
		scatter(io, rnd(2) ? 300 : 9000);
		for (unsigned i = 0; i < io->nsg; i++)
			for (size_t k = 0; k < io->sg[i].iov_len; k++)
				want[at++] = ((uint8_t *)io->sg[i].iov_base)[k] = (uint8_t)rnd(256);
		io_start(io);
		end_all();
		CHECK(members_hold(off, want, (uint64_t)blocks * block));
		memset(memory, 0, sizeof(memory));
		io = make_io(nvme_cmd_read, off, (uint64_t)blocks * block);
		scatter(io, rnd(2) ? 300 : 9000);
		io_start(io);
		end_all();
		at = 0;
		for (unsigned i = 0; i < io->nsg; at += io->sg[i++].iov_len)
			good &= !memcmp(io->sg[i].iov_base, want + at, io->sg[i].iov_len);
		CHECK(good);
		CHECK(completed == 2 && errors == 0);
		world_end();
	}
}

static void
test_a_scattered_read_leaves_no_plain_text_in_staging_memory(void)
{
	uint8_t *staging;
	struct io *io;

	world_begin(1, 12, KEY_256, false);
	memset(memory, 'x', 4096);
	io_start(make_io(nvme_cmd_write, 0, 4096));
	end_all();
	io = make_io(nvme_cmd_read, 0, 4096);
	scatter(io, 100);
	memset(memory, 0, sizeof(memory));
	io_start(io);
	staging = made_path_first(&path_of[0])->sg->iov_base;
	end_all();
	CHECK_EQ(*(uint8_t *)io->sg[0].iov_base, 'x');
	CHECK(memmem(staging, 4096, "xxxx", 4) == NULL);
	world_end();
}

static void
test_zeroes_are_written_as_what_decrypts_to_zeroes(void)
{
	struct io *io;

	world_begin(3, 9, KEY_256, false);
	memset(want, 0, BIG);
	io = make_io(nvme_cmd_write_zeroes, 0, BIG);
	io->nsg = 0;
	io->deac = io->fua = true;
	io_start(io);
	CHECK_EQ(made_path_first(&path_of[0])->sqe.opcode, nvme_cmd_write);
	CHECK_EQ(le32_get(made_path_first(&path_of[0])->sqe.cdw12),
	         (PART / 512 - 1) | (uint32_t)NVME_IO_FUA << 16);
	end_all();
	CHECK(completed == 1 && errors == 0);
	CHECK(members_hold(0, want, BIG));
	world_end();
}

static void
test_a_compare_compares_what_would_have_been_written(void)
{
	world_begin(1, 9, KEY_256, false);
	memset(memory, 'c', 512);
	io_start(make_io(nvme_cmd_write, 512, 512));
	memcpy(want, made_path_first(&path_of[0])->sg->iov_base, 512);
	end_all();
	io_start(make_io(nvme_cmd_compare, 512, 512));
	CHECK_EQ(made_path_first(&path_of[0])->sqe.opcode, nvme_cmd_compare);
	CHECK_MEM(made_path_first(&path_of[0])->sg->iov_base, want, 512);
	end_all();
	CHECK(completed == 2 && errors == 0);
	world_end();
}

static void
test_discards_pass_only_where_they_are_allowed(void)
{
	for (unsigned allowed = 0; allowed < 2; allowed++) {
		struct io *io;
		uint16_t oncs;

		world_begin(1, 9, KEY_256, allowed);
		io = make_io(nvme_cmd_dsm, 0, 4096);
		io->nsg = 0;
		io_start(io);
		CHECK_EQ(list_empty(&path_of[0].sent), !allowed);
		end_all();
		CHECK_EQ(errors, !allowed);
		oncs = vol.stage->ops->oncs(vol.stage, NVME_CTRL_ONCS_DSM);
		CHECK_EQ(oncs, NVME_CTRL_ONCS_WRITE_ZEROES | (allowed ? NVME_CTRL_ONCS_DSM : 0));
		world_end();
	}
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_a_block_is_what_ieee_1619_makes_of_it_with_its_lba_as_the_sequence_number),
	UNIT_TEST(test_the_tweak_is_the_lba_of_the_volume_on_any_stripe_and_shape),
	UNIT_TEST(test_a_scattered_read_leaves_no_plain_text_in_staging_memory),
	UNIT_TEST(test_zeroes_are_written_as_what_decrypts_to_zeroes),
	UNIT_TEST(test_a_compare_compares_what_would_have_been_written),
	UNIT_TEST(test_discards_pass_only_where_they_are_allowed),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
