/* I/O contexts over paths that are made up here: what is sent, how much of it at a time, and that
 * it ends once. No socket, no ring that runs.
 */
#include "initiator/initiator.h"

#include "tests/lib/made_path.h"
#include "tests/lib/unit.h"

#include <stdlib.h>

enum { LBA = 512, PART = 4096, BIG = 1 << 20 };

/* ---- a small world: one reactor, one queue, two volumes of one member each ---- */

static struct initiator in;
static struct reactor reactor;
static struct path path_of[2];
static struct member members[2];
static struct volume vols[2];
static struct vq queue;
static uint8_t memory[BIG];
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
world_begin(void)
{
	struct ring_config cfg = { .entries = 8, .max_bufs = 1, .name = "test" };
	struct err err = { 0 };

	memset(vols, 0, sizeof(vols));
	memset(members, 0, sizeof(members));
	reactor = (struct reactor){ .in = &in };
	if (!CHECK_EQ(ring_new(&cfg, &reactor.ring, &err), 0))
		exit(1);
	CHECK_EQ(io_pool_new(&reactor), 0);
	queue = (struct vq){ .r = &reactor, .ops = &ops };
	list_init(&queue.touched_node);
	for (unsigned i = 0; i < 2; i++) {
		made_path_init(&path_of[i], 0, LBA);
		members[i] = (struct member){ .nsid = 1, .paths = { &path_of[i] }, .nr_paths = 1 };
		vols[i].lba_shift = 9;
		vols[i].members = &members[i];
		vols[i].nr_members = 1;
		split_geometry(&vols[i].geo, 1, VOLUME_BLOCK_MIN, PART);
	}
	completed = status = 0;
}

static void
world_end(void)
{
	CHECK_EQ(queue.inflight, 0);
	io_pool_free(&reactor);
	ring_free(reactor.ring);
}

static bool
start_read(struct volume *vol, uint64_t len)
{
	struct io *io = io_get(&reactor);

	if (!io)
		return false;
	io->q = &queue;
	io->vol = vol;
	io->op = nvme_cmd_read;
	io->fua = false;
	io->off = 0;
	io->len = len;
	io->sg[0] = (struct iovec){ memory, len };
	io->nsg = 1;
	io_start(io);
	return true;
}

/* Everything that the path has, and what that brings, ends. */
static void
end_all(struct path *p, uint16_t with)
{
	made_path_end_all(p, 1, with);
	io_turn(&reactor);
}

/* ---- tests ---- */

static void
test_parts_that_wait_for_a_dead_target_leave_parts_for_others(void)
{
	unsigned waiting = 0;

	world_begin();
	path_of[0].state = PATH_RECONNECTING;
	while (waiting < IO_CONTEXTS - 1 && start_read(&vols[0], BIG))
		waiting++;
	CHECK_EQ(waiting, IO_CONTEXTS - 1);
	io_turn(&reactor);
	CHECK_EQ(completed, 0);
	CHECK(start_read(&vols[1], PART));
	CHECK_EQ(made_path_in_flight(&path_of[1]), 1);
	end_all(&path_of[1], 0);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, 0);
	end_all(&path_of[0], NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	CHECK_EQ(completed, IO_CONTEXTS);
	CHECK_EQ(status, NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	world_end();
}

static void
test_a_large_command_goes_on_as_its_parts_end(void)
{
	bool seen[BIG / PART] = { false };
	struct path *p = &path_of[0];
	unsigned twice = 0;
	struct list *n;

	world_begin();
	CHECK(start_read(&vols[0], BIG));
	CHECK_EQ(made_path_in_flight(p), IO_PARTS);
	while ((n = list_first(&p->sent))) {
		const struct part *part = list_entry(n, struct part, node);
		unsigned at = le32_get(part->sqe.cdw10) / (PART / LBA);

		twice += seen[at];
		seen[at] = true;
		CHECK(part->sg[0].iov_base == memory + (size_t)at * PART);
		CHECK(made_path_in_flight(p) <= IO_PARTS);
		CHECK_EQ(completed, 0);
		made_path_end_one(p, 0);
		io_turn(&reactor);
	}
	CHECK_EQ(twice, 0);
	CHECK_EQ(p->nr_sent, BIG / PART);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, 0);
	world_end();
}

static void
test_the_first_error_of_a_part_is_the_commands_and_it_ends_once(void)
{
	struct path *p = &path_of[0];

	world_begin();
	CHECK(start_read(&vols[0], BIG));
	made_path_end_one(p, 0);
	made_path_end_one(p, NVME_SC_DATA_XFER_ERROR);
	made_path_end_one(p, NVME_SC_INTERNAL);
	io_turn(&reactor);
	CHECK_EQ(completed, 0);
	end_all(p, 0);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, NVME_SC_DATA_XFER_ERROR);
	world_end();
}

static void
test_a_command_without_any_path_fails_at_once(void)
{
	world_begin();
	path_of[0].state = PATH_DEAD;
	CHECK(start_read(&vols[0], BIG));
	io_turn(&reactor);
	CHECK_EQ(path_of[0].nr_sent, 0);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	world_end();
}

static void
test_a_part_that_may_pass_is_sent_again_but_not_for_ever(void)
{
	struct path *p = &path_of[0];

	world_begin();
	CHECK(start_read(&vols[0], PART));
	for (unsigned i = 0; i < IO_RETRIES; i++)
		CHECK(made_path_end_one(p, NVME_SC_NS_NOT_READY));
	CHECK_EQ(made_path_in_flight(p), 1);
	end_all(p, NVME_SC_NS_NOT_READY);
	CHECK_EQ(p->nr_sent, IO_RETRIES + 1);
	CHECK_EQ(completed, 1);
	CHECK_EQ(status, NVME_SC_NS_NOT_READY);
	world_end();
}

static void
test_small_writes_that_touch_become_one_command_and_end_each(void)
{
	struct path *p = &path_of[0];

	world_begin();
	vols[0].merge = true;
	for (unsigned i = 0; i < 2; i++) {
		struct io *io = io_get(&reactor);

		io->q = &queue;
		io->vol = &vols[0];
		io->op = nvme_cmd_write;
		io->off = (uint64_t)i * LBA;
		io->len = LBA;
		io->sg[0] = (struct iovec){ memory + i * LBA, LBA };
		io->nsg = 1;
		io_start(io);
	}
	CHECK_EQ(p->nr_sent, 0);
	io_turn(&reactor);
	CHECK_EQ(p->nr_sent, 1);
	CHECK_EQ(made_path_first(p)->len, 2 * LBA);
	end_all(p, 0);
	CHECK_EQ(completed, 2);
	world_end();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_parts_that_wait_for_a_dead_target_leave_parts_for_others),
	UNIT_TEST(test_a_large_command_goes_on_as_its_parts_end),
	UNIT_TEST(test_the_first_error_of_a_part_is_the_commands_and_it_ends_once),
	UNIT_TEST(test_a_command_without_any_path_fails_at_once),
	UNIT_TEST(test_a_part_that_may_pass_is_sent_again_but_not_for_ever),
	UNIT_TEST(test_small_writes_that_touch_become_one_command_and_end_each),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
