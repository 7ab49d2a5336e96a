/* Stages and their staging memory, with a stage that turns bytes around and marks them with their
 * place on the volume. Paths are made up here, and carry commands out on images of the members.
 */
#include "initiator/initiator.h"
#include "initiator/stage.h"

#include "tests/lib/made_path.h"
#include "tests/lib/unit.h"

#include <stdlib.h>

enum { LBA = 512, MEMBERS = 8, IMAGE = 1 << 19, BIG = 1 << 18, PART = 16 << 10, STRIPE = 4096 };

static uint64_t seed = 1;

static uint32_t
rnd(uint32_t below)
{
	return unit_random(&seed) % below;
}

/* ---- the stage ---- */

static struct stage marking;
static unsigned outs, ins, wrong_places;
static uint16_t out_status, in_status;

/* The mark of a block of the volume. */
static uint8_t
mark(uint64_t off)
{
	return (uint8_t)(0x5a ^ (off / LBA) ^ (off / LBA) >> 8);
}

static uint32_t
marking_room(const struct stage *s, const struct staged *t)
{
	(void)s;
	return t->sg || t->part->io->op == nvme_cmd_write_zeroes ? t->len : 0;
}

static void
mark_all(struct staged *t)
{
	uint32_t run;

	for (uint32_t at = 0; at < t->len; at += run) {
		uint64_t off = staged_run(t, at, &run);

		for (uint32_t i = 0; i < run; i++)
			t->buf.p[at + i] ^= mark(off + i);
	}
}

static uint16_t
marking_out(struct stage *s, struct reactor *r, struct staged *t)
{
	struct sg_walk w = sg_walk_start(t);

	(void)s;
	(void)r;
	outs++;
	if (t->part->to_host)
		return out_status;
	if (t->sg)
		sg_walk_get(&w, t->buf.p, t->len);
	else
		memset(t->buf.p, 0, t->len);
	mark_all(t);
	t->part->sqe.opcode = nvme_cmd_write;
	return out_status;
}

/* By pieces where that goes, else block by block. */
static uint16_t
marking_in(struct stage *s, struct reactor *r, struct staged *t, uint32_t dw0)
{
	struct sg_walk w = sg_walk_start(t);

	(void)s;
	(void)r;
	(void)dw0;
	ins++;
	if (!t->part->to_host || in_status)
		return in_status;
	mark_all(t);
	for (uint32_t at = 0; at < t->len; at += LBA) {
		uint8_t *p = sg_walk_piece(&w, LBA);

		if (p)
			memcpy(p, t->buf.p + at, LBA);
		else
			sg_walk_put(&w, t->buf.p + at, LBA);
	}
	return 0;
}

static bool
marking_allows(const struct stage *s, uint8_t op)
{
	(void)s;
	return op != nvme_cmd_dsm;
}

static const struct stage_ops marking_ops = {
	.room = marking_room,
	.out = marking_out,
	.in = marking_in,
	.allows = marking_allows,
};

static uint8_t memory[BIG + 4 * IO_SG_MAX], want[MEMBERS * IMAGE];

/* No target ever sees memory of the VM. */
static void
look(const struct part *part)
{
	for (unsigned i = 0; i < part->nsg; i++)
		if ((uint8_t *)part->sg[i].iov_base >= memory &&
		    (uint8_t *)part->sg[i].iov_base < memory + sizeof(memory))
			wrong_places++;
}

/* ---- a small world: one reactor, one queue; vols[0] striped and staged, vols[1] has one member
 * ---- */

static struct initiator in;
static struct reactor reactor;
static struct path path_of[MEMBERS + 1];
static struct member members[MEMBERS + 1];
static struct volume vols[2];
static struct stage other;
static struct vq queue;
static unsigned completed;
static uint16_t status;

static void
complete(struct vq *q, struct io *io)
{
	(void)q;
	completed++;
	status = io->status;
}

static void
flush(struct vq *q)
{
	(void)q;
}

static const struct vq_ops ops = { .complete = complete, .flush = flush };

static void
world_begin(uint32_t nr, uint32_t max_part, uint64_t staging)
{
	struct ring_config cfg = { .entries = 8, .max_bufs = 1, .name = "test" };
	struct stage_config sc = { .staging = staging };
	struct err err = { 0 };

	memset(vols, 0, sizeof(vols));
	memset(members, 0, sizeof(members));
	marking = other = (struct stage){ 0 };
	reactor = (struct reactor){ .in = &in };
	if (!CHECK_EQ(ring_new(&cfg, &reactor.ring, &err), 0))
		exit(1);
	CHECK_EQ(io_pool_new(&reactor), 0);
	queue = (struct vq){ .r = &reactor, .ops = &ops };
	list_init(&queue.touched_node);
	for (unsigned i = 0; i <= MEMBERS; i++) {
		made_path_init(&path_of[i], IMAGE, LBA);
		path_of[i].look = look;
		members[i] = (struct member){ .nsid = 1, .paths = { &path_of[i] }, .nr_paths = 1 };
	}
	vols[0] = (struct volume){
		.lba_shift = 9, .members = members, .nr_members = nr, .stage = &marking
	};
	vols[1] = (struct volume){
		.lba_shift = 9, .members = members + MEMBERS, .nr_members = 1, .stage = &other
	};
	split_geometry(&vols[0].geo, nr, STRIPE, max_part);
	split_geometry(&vols[1].geo, 1, STRIPE, max_part);
	CHECK_EQ(stage_init(&marking, &marking_ops, 1, &sc, max_part, &err), 0);
	CHECK_EQ(stage_init(&other, &marking_ops, 1, &sc, max_part, &err), 0);
	completed = status = outs = ins = wrong_places = out_status = in_status = 0;
}

static void
world_end(void)
{
	CHECK_EQ(wrong_places, 0);
	CHECK_EQ(queue.inflight, 0);
	CHECK_EQ(buf_pool_used(marking.pools[0]), 0);
	stage_fini(&marking);
	stage_fini(&other);
	io_pool_free(&reactor);
	ring_free(reactor.ring);
	for (unsigned i = 0; i <= MEMBERS; i++)
		made_path_fini(&path_of[i]);
}

static struct io *
make_io(struct volume *vol, uint8_t op, uint64_t off, uint64_t len)
{
	struct io *io = io_get(&reactor);

	io->q = &queue;
	io->vol = vol;
	io->op = op;
	io->fua = false;
	io->off = off;
	io->len = len;
	io->sg[0] = (struct iovec){ memory, len };
	io->nsg = 1;
	return io;
}

static void
start(struct volume *vol, uint8_t op, uint64_t off, uint64_t len)
{
	io_start(make_io(vol, op, off, len));
}

/* small: pieces far smaller than a block. */
static void
scatter(struct io *io, bool small)
{
	made_scatter(io, memory, small ? 200 : 5000, &seed);
}

/* All that the paths have, and what that brings, ends. */
static void
end_all(uint16_t with)
{
	made_path_end_all(path_of, MEMBERS + 1, with);
	io_turn(&reactor);
}

static void
fill(struct io *io, uint8_t *copy)
{
	for (unsigned i = 0; i < io->nsg; i++)
		for (size_t k = 0; k < io->sg[i].iov_len; k++)
			*copy++ = ((uint8_t *)io->sg[i].iov_base)[k] = (uint8_t)rnd(256);
}

static bool
holds(const struct io *io, const uint8_t *bytes)
{
	for (unsigned i = 0; i < io->nsg; bytes += io->sg[i++].iov_len)
		if (memcmp(io->sg[i].iov_base, bytes, io->sg[i].iov_len) != 0)
			return false;
	return true;
}

/* ---- tests ---- */

/* Byte off of the volume, as the member that has it holds it. */
static uint8_t
raw(const struct volume *v, uint64_t off)
{
	uint64_t k = off / STRIPE, nr = v->nr_members;

	return nr == 1 ? path_of[0].image[off]
	               : path_of[k % nr].image[k / nr * STRIPE + off % STRIPE];
}

static void
test_each_byte_is_staged_by_its_place_on_the_volume_for_any_shape_and_stripe(void)
{
	for (unsigned round = 0; round < 200; round++) {
		uint32_t nr = 1 + rnd(MEMBERS), blocks = 1 + rnd(BIG / LBA / 4), bad = 0;
		uint64_t off = (uint64_t)rnd(IMAGE / LBA - blocks) * LBA;
		struct iovec sg[IO_SG_MAX];
		struct io *io;

		unit_row("round %u: %u members, %u blocks at %lu", round, nr, blocks,
		         (unsigned long)off / LBA);
		world_begin(nr, LBA * (1 + rnd(40)), rnd(2) ? 1 : 1 << 20);
		io = make_io(&vols[0], nvme_cmd_write, off, (uint64_t)blocks * LBA);
		scatter(io, rnd(4) == 0);
		memcpy(sg, io->sg, io->nsg * sizeof(*sg));
		fill(io, want);
		io_start(io);
		end_all(0);
		CHECK(completed == 1 && status == 0);
		for (uint32_t i = 0; i < blocks * LBA; i++)
			bad += raw(&vols[0], off + i) != (want[i] ^ mark(off + i));
		CHECK_EQ(bad, 0);
		memset(memory, 0, sizeof(memory));
		io = make_io(&vols[0], nvme_cmd_read, off, (uint64_t)blocks * LBA);
		scatter(io, rnd(4) == 0);
		io_start(io);
		end_all(0);
		CHECK(completed == 2 && status == 0);
		CHECK(holds(io, want));
		world_end();
	}
}

static void
test_a_part_that_is_sent_again_is_transformed_once(void)
{
	uint8_t first[PART], *mem;

	world_begin(1, PART, 1 << 20);
	memset(memory, 7, PART);
	start(&vols[0], nvme_cmd_write, 0, PART);
	mem = made_path_first(&path_of[0])->sg->iov_base;
	memcpy(first, mem, PART);
	memset(memory, 8, PART); /* the VM changes its mind */
	for (unsigned i = 0; i < IO_RETRIES; i++)
		made_path_end_one(&path_of[0], NVME_SC_NS_NOT_READY);
	CHECK_EQ(path_of[0].nr_sent, IO_RETRIES + 1);
	CHECK_EQ(outs, 1);
	CHECK_MEM(mem, first, PART);
	end_all(0);
	CHECK(completed == 1 && status == 0);
	world_end();
}

static void
test_memory_of_the_vm_is_written_only_when_the_read_has_ended_well(void)
{
	static uint8_t zeroes[PART];

	world_begin(1, PART, 1 << 20);
	memset(memory, 0, PART);
	start(&vols[0], nvme_cmd_read, 0, PART);
	memset(made_path_first(&path_of[0])->sg->iov_base, 0xff,
	       PART);
	end_all(NVME_SC_DATA_XFER_ERROR);
	CHECK_EQ(status, NVME_SC_DATA_XFER_ERROR);
	CHECK_EQ(ins, 0);
	CHECK_MEM(memory, zeroes, PART);
	world_end();
}

static void
test_parts_wait_in_order_for_staging_memory_and_all_of_it_is_used(void)
{
	struct path *p = &path_of[0];
	uint32_t next = 0;
	struct list *n;

	world_begin(1, PART, 4 * PART);
	for (unsigned i = 0; i < 4; i++)
		start(&vols[0], nvme_cmd_read, (uint64_t)i * 4 * PART, 4 * PART);
	CHECK_EQ(p->nr_sent, 4);
	CHECK_EQ(buf_pool_used(marking.pools[0]), 4 * PART);
	CHECK_EQ(vols[0].stats[0].stage_waits, 12);
	while ((n = list_first(&p->sent))) {
		CHECK_EQ(le32_get(list_entry(n, struct part, node)->sqe.cdw10),
		         next++ * (PART / LBA));
		made_path_end_one(p, 0);
		CHECK(buf_pool_used(marking.pools[0]) <= 4 * PART);
	}
	io_turn(&reactor);
	CHECK_EQ(next, 16);
	CHECK_EQ(completed, 4);
	CHECK_EQ(vols[0].stats[0].staged_in, 16 * PART);
	world_end();
}

static void
test_a_volume_whose_target_is_dead_leaves_the_staging_memory_of_others(void)
{
	world_begin(1, PART, 1);
	path_of[0].state = PATH_RECONNECTING;
	for (unsigned i = 0; i < 100; i++)
		start(&vols[0], nvme_cmd_write, 0, BIG);
	start(&vols[1], nvme_cmd_write, 0, BIG);
	while (made_path_end_one(&path_of[MEMBERS], 0))
		;
	io_turn(&reactor);
	CHECK_EQ(path_of[0].nr_sent, 1);
	CHECK(completed == 1 && status == 0);
	path_of[0].state = PATH_DEAD; /* what waited finds no path, one after the other */
	end_all(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	CHECK_EQ(path_of[0].nr_sent, 1);
	CHECK_EQ(completed, 101);
	CHECK_EQ(status, NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	world_end();
}

static void
test_a_stage_that_fails_ends_the_command_and_nothing_is_sent(void)
{
	world_begin(1, PART, 1 << 20);
	out_status = NVME_SC_NS_NOT_READY; /* of a target it would be sent again */
	start(&vols[0], nvme_cmd_write, 0, PART);
	io_turn(&reactor);
	CHECK_EQ(path_of[0].nr_sent, 0);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, NVME_NO_RETRY(NVME_SC_NS_NOT_READY));
	out_status = 0;
	in_status = NVME_SC_DATA_XFER_ERROR;
	start(&vols[0], nvme_cmd_read, 0, PART);
	end_all(0);
	CHECK_EQ(completed, 2);
	CHECK_EQ(status, NVME_SC_DATA_XFER_ERROR);
	world_end();
}

static void
test_zeroes_are_staged_though_the_vm_sends_none(void)
{
	struct io *io;
	unsigned bad = 0;

	world_begin(3, PART, 1 << 20);
	io = make_io(&vols[0], nvme_cmd_write_zeroes, 0, BIG);
	io->nsg = 0;
	io_start(io);
	end_all(0);
	CHECK(completed == 1 && status == 0);
	for (unsigned i = 0; i < BIG; i++)
		bad += raw(&vols[0], i) != mark(i);
	CHECK_EQ(bad, 0);
	world_end();
}

static void
test_a_flush_passes_and_what_the_stage_does_not_allow_is_refused(void)
{
	struct io *io;

	world_begin(2, PART, 1 << 20);
	io = make_io(&vols[0], nvme_cmd_flush, 0, 0);
	io->nsg = 0;
	io_start(io);
	CHECK_EQ(path_of[0].nr_sent + path_of[1].nr_sent, 2);
	end_all(0);
	CHECK(completed == 1 && status == 0);
	CHECK_EQ(outs + ins, 0);
	io = make_io(&vols[0], nvme_cmd_dsm, 0, PART);
	io->nsg = 0;
	io_start(io);
	io_turn(&reactor);
	CHECK_EQ(path_of[0].nr_sent + path_of[1].nr_sent, 2);
	CHECK_EQ(status, NVME_NO_RETRY(NVME_SC_INVALID_OPCODE));
	world_end();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_each_byte_is_staged_by_its_place_on_the_volume_for_any_shape_and_stripe),
	UNIT_TEST(test_a_part_that_is_sent_again_is_transformed_once),
	UNIT_TEST(test_memory_of_the_vm_is_written_only_when_the_read_has_ended_well),
	UNIT_TEST(test_parts_wait_in_order_for_staging_memory_and_all_of_it_is_used),
	UNIT_TEST(test_a_volume_whose_target_is_dead_leaves_the_staging_memory_of_others),
	UNIT_TEST(test_a_stage_that_fails_ends_the_command_and_nothing_is_sent),
	UNIT_TEST(test_zeroes_are_staged_though_the_vm_sends_none),
	UNIT_TEST(test_a_flush_passes_and_what_the_stage_does_not_allow_is_refused),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
