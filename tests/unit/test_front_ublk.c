/* The ublk front, as far as no driver is needed: what a device looks like, what its requests mean,
 * how it lives, what the configuration may say; and driver commands on a ring, by a socket's. */
#include "initiator/front_ublk.h"

#include "common/nvme.h"
#include "initiator/config.h"
#include "initiator/front_ublk_dev.h"
#include "initiator/front_ublk_params.h"

#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

enum { BOTH = NVME_CTRL_ONCS_DSM | NVME_CTRL_ONCS_WRITE_ZEROES };

/* A volume of that many members, of which nothing else is set up. */
static void
volume_fill(struct volume *v, struct member *members, unsigned n)
{
	memset(v, 0, sizeof(*v));
	snprintf(v->name, sizeof(v->name), "vol0");
	v->members = members;
	v->nr_members = n;
	v->block = 32 << 10;
	v->lba_shift = 9;
	v->max_transfer = VOLUME_TRANSFER_MAX;
	v->bytes = 64 * MIB;
	for (unsigned i = 0; i < n; i++) {
		memset(&members[i], 0, sizeof(members[i]));
		snprintf(members[i].nqn, sizeof(members[i].nqn), "nqn.%u", i);
		members[i].nsid = 1;
	}
}

/* ---- parameters ---- */

static void
test_params_say_what_the_volume_is(void)
{
	struct member m[4];
	struct ublk_params p;
	struct volume v;

	volume_fill(&v, m, 2);
	v.vwc = true;
	ublk_params_of(&v, BOTH, &p);
	CHECK_EQ(p.len, sizeof(p));
	CHECK_EQ(p.types, UBLK_PARAM_BASIC | UBLK_PARAM_DISCARD);
	CHECK_EQ(p.attrs, UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA);
	CHECK_EQ(p.logical_shift, 9);
	CHECK_EQ(p.physical_shift, 9);
	CHECK_EQ(p.io_min_shift, 9);
	CHECK_EQ(p.io_opt_shift, 16);
	CHECK_EQ(p.max_sectors, UBLK_IO_MAX / 512);
	CHECK_EQ(p.dev_sectors, 64 * MIB / 512);
	CHECK_EQ(p.discard_granularity, 512);
	CHECK_EQ(p.max_discard_segments, 1);
	CHECK_EQ(p.max_discard_sectors, UBLK_ZEROES_MAX / 512);
	CHECK_EQ(p.max_write_zeroes_sectors, UBLK_ZEROES_MAX / 512);
}

static void
test_params_promise_nothing_that_members_lack(void)
{
	struct member m[4];
	struct ublk_params p;
	struct volume v;

	volume_fill(&v, m, 3);
	v.lba_shift = 12;
	v.max_transfer = 128 << 10;
	ublk_params_of(&v, 0, &p);
	CHECK_EQ(p.types, UBLK_PARAM_BASIC);
	CHECK_EQ(p.attrs, 0);
	CHECK_EQ(p.logical_shift, 12);
	CHECK_EQ(p.io_opt_shift, 12); /* three stripe blocks are no power of two */
	CHECK_EQ(p.max_sectors, (128 << 10) / 512);
	ublk_params_of(&v, NVME_CTRL_ONCS_WRITE_ZEROES, &p);
	CHECK_EQ(p.max_discard_sectors, 0);
	CHECK_EQ(p.max_write_zeroes_sectors, UBLK_ZEROES_MAX / 512);
	CHECK_EQ(p.discard_granularity, 4096);
}

static void
test_mark_names_one_volume(void)
{
	struct member m[4], n[4];
	struct volume v, w;
	uint64_t mark;

	volume_fill(&v, m, 2);
	volume_fill(&w, n, 2);
	mark = ublk_mark_of(&v);
	CHECK(ublk_mark_is_ours(mark));
	CHECK(!ublk_mark_is_ours(0));
	CHECK(!ublk_mark_is_ours(UINT64_MAX));
	w.bytes = 128 * MIB; /* it may have grown meanwhile */
	CHECK_EQ(ublk_mark_of(&w), mark);
	w.block = 64 << 10;
	CHECK(ublk_mark_of(&w) != mark);
	volume_fill(&w, n, 2);
	n[1].nsid = 2;
	CHECK(ublk_mark_of(&w) != mark);
	volume_fill(&w, n, 2);
	snprintf(n[0].nqn, sizeof(n[0].nqn), "nqn.1");
	snprintf(n[1].nqn, sizeof(n[1].nqn), "nqn.0");
	CHECK(ublk_mark_of(&w) != mark);
	volume_fill(&w, n, 1);
	CHECK(ublk_mark_of(&w) != mark);
	volume_fill(&w, n, 2);
	snprintf(w.name, sizeof(w.name), "vol1");
	CHECK(ublk_mark_of(&w) != mark);
}

/* ---- requests ---- */

static void
test_requests_become_commands(void)
{
	static const struct {
		const char *name;
		uint32_t op, sectors;
		uint64_t start;
		int res;
		uint8_t cmd;
		bool data, fua;
	} rows[] = {
		{ "read", UBLK_OP_READ, 8, 0, 0, nvme_cmd_read, true, false },
		{ "write", UBLK_OP_WRITE, 1024, 131072 - 1024, 0, nvme_cmd_write, true, false },
		{ "FUA", UBLK_OP_WRITE | UBLK_OP_FUA, 8, 8, 0, nvme_cmd_write, true, true },
		{ "flush", UBLK_OP_FLUSH, 0, 0, 0, nvme_cmd_flush, false, false },
		{ "discard", UBLK_OP_DISCARD, 65536, 0, 0, nvme_cmd_dsm, false, false },
		{ "zeroes", UBLK_OP_WRITE_ZEROES, 65536, 0, 0, nvme_cmd_write_zeroes, false,
		  false },
		{ "write same", 4, 8, 0, -EOPNOTSUPP, 0, false, false },
		{ "zone append", 15, 8, 0, -EOPNOTSUPP, 0, false, false },
		{ "nothing", UBLK_OP_READ, 0, 0, -EIO, 0, false, false },
		{ "over the end", UBLK_OP_READ, 9, 131064, -EIO, 0, false, false },
		{ "behind the end", UBLK_OP_READ, 8, 131072, -EIO, 0, false, false },
		{ "far behind", UBLK_OP_READ, 8, UINT64_MAX / 512 + 1, -EIO, 0, false, false },
		{ "larger than a buffer", UBLK_OP_WRITE, 1025, 0, -EIO, 0, false, false },
	};
	struct member m[4];
	struct volume v;

	volume_fill(&v, m, 2);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ublk_desc d = { .op_flags = rows[i].op,
			               .nr_sectors = rows[i].sectors,
			               .start_sector = rows[i].start };
		struct ublk_range r;

		unit_row("%s", rows[i].name);
		if (!CHECK_EQ(ublk_judge(&d, &v, UBLK_IO_MAX, &r), rows[i].res) || rows[i].res)
			continue;
		CHECK_EQ(r.op, rows[i].cmd);
		CHECK_EQ(r.off, rows[i].start * 512);
		CHECK_EQ(r.len, (uint64_t)rows[i].sectors * 512);
		CHECK_EQ(r.has_data, rows[i].data);
		CHECK_EQ(r.fua, rows[i].fua);
	}
}

static void
test_requests_must_be_whole_blocks_of_a_ready_volume(void)
{
	struct ublk_desc d = { .op_flags = UBLK_OP_READ, .nr_sectors = 8, .start_sector = 1 };
	struct member m[4];
	struct ublk_range r;
	struct volume v;

	volume_fill(&v, m, 1);
	CHECK_EQ(ublk_judge(&d, &v, UBLK_IO_MAX, &r), 0);
	v.lba_shift = 12;
	CHECK_EQ(ublk_judge(&d, &v, UBLK_IO_MAX, &r), -EIO);
	d.start_sector = 8;
	CHECK_EQ(ublk_judge(&d, &v, UBLK_IO_MAX, &r), 0);
	v.bytes = 0;
	CHECK_EQ(ublk_judge(&d, &v, UBLK_IO_MAX, &r), -EIO);
}

static void
test_status_becomes_an_errno(void)
{
	CHECK_EQ(ublk_errno(0), 0);
	CHECK_EQ(ublk_errno(NVME_NO_RETRY(NVME_SC_INVALID_OPCODE)), -EOPNOTSUPP);
	CHECK_EQ(ublk_errno(NVME_NO_RETRY(NVME_SC_LBA_RANGE)), -EIO);
	CHECK_EQ(ublk_errno(NVME_SC_CAP_EXCEEDED), -ENOSPC);
	CHECK_EQ(ublk_errno(NVME_ST_MEDIA(NVME_SC_READ_ERROR)), -ENODATA);
	CHECK_EQ(ublk_errno(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR)), -ENOLINK);
	CHECK_EQ(ublk_errno(NVME_NO_RETRY(NVME_SC_NS_WRITE_PROTECTED)), -EPERM);
}

/* ---- states ---- */

static void
test_states_are_all_reached_and_end(void)
{
	unsigned reached = BIT(UBLK_LEFT) | BIT(UBLK_WAITING);

	for (unsigned round = 0; round < UBLK_STATES; round++)
		for (unsigned from = 0; from < UBLK_STATES; from++)
			for (unsigned to = 0; to < UBLK_STATES && reached & BIT(from); to++)
				reached |= ublk_state_may(from, to) ? BIT(to) : 0;
	CHECK_EQ(reached, BIT(UBLK_STATES) - 1);
	for (unsigned s = 0; s < UBLK_STATES; s++) {
		unsigned next = 0;

		unit_row("%s", ublk_state_name(s));
		for (unsigned to = 0; to < UBLK_STATES; to++)
			next += ublk_state_may(s, to);
		CHECK_EQ(next == 0, s == UBLK_GONE || s == UBLK_KEPT);
	}
}

/* ---- configuration ---- */

#define UUID "2cd2c43b-a90a-45c1-a8cd-86b33ab273b5"
#define HOSTS                                                                                      \
	"\"hosts\":[{\"hostnqn\":\"nqn.2014-08.org.nvmexpress:uuid:" UUID "\",\"hostid\":\"" UUID  \
	"\",\"subsystems\":[{\"nqn\":\"nqn.a\",\"ports\":[{\"transport\":\"tcp\","                 \
	"\"traddr\":\"192.0.2.1\",\"trsvcid\":\"4420\"}]}]}]"
#define UBLK(list)                                                                                 \
	"{" HOSTS ",\"volumes\":[{\"name\":\"v\",\"members\":[\"nqn.a/1\"]},"                      \
	"{\"name\":\"w\",\"members\":[\"nqn.a/2\"]}],\"ublk\":" list "}"

static struct initiator in;

static void
test_config_lists_devices(void)
{
	struct err err = { 0 };
	struct config *c;

	if (!CHECK_EQ(config_parse(&in,
	                           UBLK("[\"w\",{\"volume\":\"v\",\"queues\":2,\"depth\":64}]"),
	                           "i.json", &c, &err),
	              0))
		return;
	CHECK_EQ(c->nr_ublks, 2);
	CHECK_STR(c->ublks[0].volume, "w");
	CHECK_EQ(c->ublks[0].queues, 0);
	CHECK_EQ(c->ublks[0].depth, UBLK_TAGS_DEFAULT);
	CHECK_STR(c->ublks[1].volume, "v");
	CHECK_EQ(c->ublks[1].queues, 2);
	CHECK_EQ(c->ublks[1].depth, 64);
	config_free(c);
}

static void
test_config_refuses_devices_that_cannot_be(void)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ UBLK("{}"), "ublk: must be an array" },
		{ UBLK("[\"x\"]"), "ublk[0]: there is no volume 'x'" },
		{ UBLK("[\"\"]"), "ublk[0]: must not be empty" },
		{ UBLK("[{}]"), "ublk[0]" },
		{ UBLK("[\"v\",{\"volume\":\"v\"}]"), "ublk[1]: volume 'v' has a device already" },
		{ UBLK("[{\"volume\":\"v\",\"queues\":0}]"), "ublk[0].queues: must be 1-64" },
		{ UBLK("[{\"volume\":\"v\",\"queues\":65}]"), "ublk[0].queues: must be 1-64" },
		{ UBLK("[{\"volume\":\"v\",\"depth\":513}]"), "ublk[0].depth: must be 1-512" },
		{ UBLK("[{\"volume\":\"v\",\"dept\":1}]"), "depth" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { 0 };
		struct config *c;

		unit_row("%s", rows[i].why);
		if (!CHECK(config_parse(&in, rows[i].text, "i.json", &c, &err) < 0)) {
			config_free(c);
			continue;
		}
		if (!CHECK(strstr(err.text, rows[i].why)))
			fprintf(stderr, "%s\n", err.text);
	}
}

/* ---- commands on a ring ---- */

static int answer;

static void
answered(struct op *op, int res, uint32_t flags)
{
	(void)op;
	(void)flags;
	answer = res;
}

enum { SOCKET_SIOCINQ = 0 }; /* bytes that can be read: a driver command of sockets, Linux 6.7 */

/* A socket that has sent itself five bytes. */
static int
socket_with_five(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
		                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&sin, len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sin, &len) < 0 ||
	    connect(fd, (struct sockaddr *)&sin, len) < 0 || send(fd, "abcde", 5, 0) != 5)
		return -1;
	return fd;
}

static void
ask_socket(bool wide)
{
	struct ring_config cfg = { .entries = 8, .wide = wide };
	uint8_t nothing[RING_CMD_WIDE_MAX] = { 0 };
	struct op op = { answered, "test" };
	int fd = socket_with_five();
	struct ring *r;

	if (!CHECK(fd >= 0) || !CHECK_EQ(ring_new(&cfg, &r, NULL), 0))
		return;
	answer = 0;
	ring_cmd(r, &op, fd, SOCKET_SIOCINQ, nothing, wide ? RING_CMD_WIDE_MAX : RING_CMD_MAX);
	if (wide) {
		struct pollfd p = { .fd = ring_fd(r), .events = POLLIN };

		ring_submit(r);
		CHECK_EQ(poll(&p, 1, 10000), 1);
	}
	ring_turn(r);
	CHECK_EQ(ring_inflight(r), 0);
	CHECK(answer == 5 || answer == -EOPNOTSUPP);
	if (wide)
		ring_turn(r); /* nothing is there: it does not sleep */
	close(fd);
	ring_free(r);
}

static void
test_ring_carries_driver_commands(void)
{
	unit_row("narrow");
	ask_socket(false);
	unit_row("wide");
	ask_socket(true);
}

static void
test_ring_opens_without_blocking(void)
{
	struct ring_config cfg = { .entries = 8 };
	struct op op = { answered, "test" };
	struct ring *r;

	if (!CHECK_EQ(ring_new(&cfg, &r, NULL), 0))
		return;
	ring_open(r, &op, "/dev/null", O_RDONLY);
	while (ring_inflight(r) > 0)
		ring_turn(r);
	CHECK(answer >= 0);
	CHECK_EQ(fcntl(answer, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(answer);
	ring_open(r, &op, "/nowhere/at all", O_RDONLY);
	while (ring_inflight(r) > 0)
		ring_turn(r);
	CHECK_EQ(answer, -ENOENT);
	ring_free(r);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_params_say_what_the_volume_is),
	UNIT_TEST(test_params_promise_nothing_that_members_lack),
	UNIT_TEST(test_mark_names_one_volume),
	UNIT_TEST(test_requests_become_commands),
	UNIT_TEST(test_requests_must_be_whole_blocks_of_a_ready_volume),
	UNIT_TEST(test_status_becomes_an_errno),
	UNIT_TEST(test_states_are_all_reached_and_end),
	UNIT_TEST(test_config_lists_devices),
	UNIT_TEST(test_config_refuses_devices_that_cannot_be),
	UNIT_TEST(test_ring_carries_driver_commands),
	UNIT_TEST(test_ring_opens_without_blocking),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
