/* virtio-blk requests: what becomes of a chain, and of its status byte. */
#include "initiator/vblk.h"

#include "common/nvme.h"
#include "tests/lib/guest.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

enum {
	IN = 0,
	OUT = 1,
	FLUSH = 4,
	GET_ID = 8,
	DISCARD = 11,
	WRITE_ZEROES = 13,
	SECTORS = 1 << 20, /* of the volume */
	HEADER = 0x1000,
	DATA = 0x10000,
	STATUS = 0x2000, /* in the guest's ram */
	UNTOUCHED = 0xee,
};

struct bench {
	struct guest g;
	struct volume vol;
	struct vblk_dev dev;
	struct vblk_req req;
	struct iovec sg[IO_SG_MAX];
	struct io io;
	struct vring_chain c;
};

static struct bench b;

static void
begin_test(void)
{
	if (!b.g.mem)
		CHECK(guest_init(&b.g, 8, false, false));
	memset(b.g.ram, UNTOUCHED, GUEST_RAM);
	b.vol = (struct volume){ .bytes = (uint64_t)SECTORS * 512, .lba_shift = 9 };
	b.dev = (struct vblk_dev){
		.vol = &b.vol, .discard = true, .write_zeroes = true, .id = "serial"
	};
	b.io = (struct io){ .sg = b.sg, .fua = true, .deac = true, .nsg = 7 };
	b.c.nr = b.c.nr_out = 0;
	b.c.in_len = b.c.out_len = 0;
	b.c.cut = false;
}

static void
seg(uint32_t at, uint32_t len, bool writable)
{
	b.c.seg[b.c.nr++] = (struct vring_seg){ GUEST_ADDR + at, len };
	b.c.nr_out += !writable;
	*(writable ? &b.c.in_len : &b.c.out_len) += len;
}

static void
header(uint32_t type, uint64_t sector)
{
	memcpy(b.g.ram + HEADER, (le32[]){ le32_put(type), le32_put(0) }, 8);
	memcpy(b.g.ram + HEADER + 8, (le64[]){ le64_put(sector) }, 8);
}

/* Header, len bytes of data, status, each by a descriptor. */
static void
request(uint32_t type, uint64_t sector, uint32_t len, bool writable)
{
	begin_test();
	header(type, sector);
	seg(HEADER, 16, false);
	if (len)
		seg(DATA, len, writable);
	seg(STATUS, 1, true);
}

static void
range(unsigned i, uint64_t sector, uint32_t sectors, uint32_t flags)
{
	uint8_t *at = b.g.ram + DATA + 16 * (size_t)i;

	memcpy(at, (le64[]){ le64_put(sector) }, 8);
	memcpy(at + 8, (le32[]){ le32_put(sectors), le32_put(flags) }, 8);
}

static enum vblk_begun
go(void)
{
	const char *why = NULL;
	enum vblk_begun res = vblk_begin(&b.dev, b.g.mem, &b.c, &b.req, &b.io, &why);

	CHECK_EQ(res == VBLK_BROKEN, why != NULL);
	return res;
}

static void
check_answer(enum vblk_status status, uint32_t written)
{
	CHECK_EQ(go(), VBLK_ANSWERED);
	CHECK_EQ(b.g.ram[STATUS], status);
	CHECK_EQ(b.req.written, written);
}

static void
check_end(uint16_t nvme, enum vblk_status status, uint32_t written)
{
	b.io.status = nvme;
	CHECK_EQ(b.g.ram[STATUS], UNTOUCHED);
	CHECK(!vblk_next(&b.req, &b.io));
	CHECK_EQ(b.g.ram[STATUS], status);
	CHECK_EQ(b.req.written, written);
}

static void
test_vblk_in_and_out_become_a_read_and_a_write_of_the_same_bytes(void)
{
	for (unsigned out = 0; out < 2; out++) {
		unit_row("type %u", out);
		request(out, 77, 4096, !out);
		CHECK_EQ(go(), VBLK_START);
		CHECK_EQ(b.io.op, out ? nvme_cmd_write : nvme_cmd_read);
		CHECK(b.io.vol == &b.vol && !b.io.fua && !b.io.deac);
		CHECK_EQ(b.io.off, 77 * 512);
		CHECK_EQ(b.io.len, 4096);
		CHECK_EQ(b.io.nsg, 1);
		CHECK_EQ(b.io.sg[0].iov_len, 4096);
		memset(b.io.sg[0].iov_base, 0x5a, 4096);
		CHECK_EQ(b.g.ram[DATA], 0x5a);
		CHECK_EQ(b.g.ram[DATA + 4095], 0x5a);
		CHECK_EQ(b.g.ram[DATA + 4096], UNTOUCHED);
		check_end(0, VBLK_S_OK, out ? 1 : 4097);
	}
}

/* Any cut of header, data and status means the same. */
static void
test_vblk_the_borders_of_descriptors_mean_nothing(void)
{
	uint64_t seed = 3;

	for (unsigned row = 0; row < 400; row++) {
		unsigned out = row & 1;
		uint32_t out_bytes = out ? 16 + 1024 : 16, in_bytes = out ? 1 : 1025, at, n;
		uint32_t base = DATA + 0x8000;

		unit_row("row %u", row);
		begin_test();
		memcpy(b.g.ram + base, (le32[]){ le32_put(out) }, 4);
		memset(b.g.ram + base + 4, 0, 12);
		b.g.ram[base + 8] = 9;
		for (at = 0; at < out_bytes; at += n) {
			n = 1 + unit_random(&seed) % (unit_random(&seed) % 2 ? 20 : 900);
			n = MIN(n, out_bytes - at);
			seg(base + at, n, false);
		}
		for (at = 0; at < in_bytes; at += n) {
			n = 1 + unit_random(&seed) % (unit_random(&seed) % 2 ? 20 : 900);
			n = MIN(n, in_bytes - at);
			seg(base + 0x8000 + at, n, true);
		}
		CHECK_EQ(go(), VBLK_START);
		CHECK_EQ(b.io.off, 9 * 512);
		CHECK_EQ(b.io.len, 1024);
		CHECK_EQ(b.io.nsg, 1); /* what touches is one extent */
		CHECK_EQ(b.io.sg[0].iov_len, 1024);
		CHECK(b.io.sg[0].iov_base != NULL);
		CHECK(b.req.status != NULL);
		b.io.status = 0;
		CHECK(!vblk_next(&b.req, &b.io));
		CHECK_EQ(b.g.ram[base + 0x8000 + in_bytes - 1], VBLK_S_OK);
	}
}

static void
test_vblk_the_status_is_the_last_byte_of_all(void)
{
	begin_test();
	header(OUT, 0);
	seg(HEADER, 16, false);
	seg(DATA, 512, false);
	seg(STATUS - 31, 32, true);
	CHECK_EQ(go(), VBLK_START);
	check_end(0, VBLK_S_OK, 1);
	CHECK_EQ(b.g.ram[STATUS - 1], UNTOUCHED);
}

static void
test_vblk_flush_is_a_flush(void)
{
	request(FLUSH, 0, 0, false);
	CHECK_EQ(go(), VBLK_START);
	CHECK_EQ(b.io.op, nvme_cmd_flush);
	CHECK_EQ(b.io.nsg, 0);
	CHECK_EQ(b.io.len, 0);
	check_end(0, VBLK_S_OK, 1);
}

static void
test_vblk_get_id_gives_twenty_bytes_or_what_there_is_room_for(void)
{
	request(GET_ID, 0, 20, true);
	check_answer(VBLK_S_OK, 21);
	CHECK_MEM(b.g.ram + DATA, "serial\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
	request(GET_ID, 0, 4, true);
	check_answer(VBLK_S_OK, 5);
	CHECK_MEM(b.g.ram + DATA, "seri\xee", 5);
	request(GET_ID, 0, 100, true);
	check_answer(VBLK_S_OK, 21);
	CHECK_EQ(b.g.ram[DATA + 20], UNTOUCHED);
	b.vol.bytes = 0;
	check_answer(VBLK_S_OK, 21);
}

static void
test_vblk_writes_are_made_durable_where_the_guest_cannot_flush(void)
{
	static const struct {
		uint32_t type, len;
		bool fua;
	} rows[] = { { OUT, 512, true },
		     { IN, 512, false },
		     { FLUSH, 0, false },
		     { WRITE_ZEROES, 16, true },
		     { DISCARD, 16, false } };

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("type %u", rows[i].type);
		request(rows[i].type, 0, rows[i].len, rows[i].type == IN);
		range(0, 0, 8, 0);
		b.dev.durable = true;
		CHECK_EQ(go(), VBLK_START);
		CHECK_EQ(b.io.fua, rows[i].fua);
	}
}

static void
test_vblk_what_cannot_be_done_ends_with_its_status(void)
{
	static const struct {
		const char *name;
		uint32_t type;
		uint64_t sector;
		uint32_t len;
		bool writable;
		enum vblk_status status;
		uint32_t written;
	} rows[] = {
		{ "unknown type", 2, 0, 512, true, VBLK_S_UNSUPP, 1 },
		{ "lifetime", 10, 0, 24, true, VBLK_S_UNSUPP, 1 },
		{ "secure erase", 14, 0, 16, false, VBLK_S_UNSUPP, 1 },
		{ "huge type", 0x80000001, 0, 512, true, VBLK_S_UNSUPP, 1 },
		{ "half a sector", IN, 0, 511, true, VBLK_S_IOERR, 1 },
		{ "half a sector", OUT, 0, 513, false, VBLK_S_IOERR, 1 },
		{ "beyond the end", IN, SECTORS, 512, true, VBLK_S_IOERR, 1 },
		{ "across the end", IN, SECTORS - 1, 1024, true, VBLK_S_IOERR, 1 },
		{ "across the end", OUT, SECTORS - 1, 1024, false, VBLK_S_IOERR, 1 },
		{ "sector times 512 is 0", IN, UINT64_C(1) << 55, 512, true, VBLK_S_IOERR, 1 },
		{ "last sector of all", OUT, UINT64_MAX, 512, false, VBLK_S_IOERR, 1 },
		{ "nothing to read", IN, 0, 0, true, VBLK_S_OK, 1 },
		{ "nothing to write", OUT, 0, 0, true, VBLK_S_OK, 1 },
		{ "nothing beyond the end", OUT, SECTORS + 1, 0, true, VBLK_S_IOERR, 1 },
		{ "no range", DISCARD, 0, 0, true, VBLK_S_IOERR, 1 },
		{ "half a range", DISCARD, 0, 24, false, VBLK_S_IOERR, 1 },
		{ "too many ranges", DISCARD, 0, 16 * 17, false, VBLK_S_IOERR, 1 },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%s, type %u", rows[i].name, rows[i].type);
		request(rows[i].type, rows[i].sector, rows[i].len, rows[i].writable);
		check_answer(rows[i].status, rows[i].written);
	}
}

static void
test_vblk_the_last_sector_can_be_reached(void)
{
	request(IN, SECTORS - 1, 512, true);
	CHECK_EQ(go(), VBLK_START);
	CHECK_EQ(b.io.off, (uint64_t)(SECTORS - 1) * 512);
}

static void
test_vblk_half_a_block_of_the_volume_is_an_error(void)
{
	request(IN, 8, 4096, true);
	b.vol.lba_shift = 12;
	CHECK_EQ(go(), VBLK_START);
	CHECK(!b.req.odd);
	request(IN, 7, 4096, true);
	b.vol.lba_shift = 12;
	check_answer(VBLK_S_IOERR, 1);
	CHECK(b.req.odd);
	request(OUT, 8, 512, false);
	b.vol.lba_shift = 12;
	check_answer(VBLK_S_IOERR, 1);
	request(WRITE_ZEROES, 0, 16, false);
	range(0, 8, 9, 0);
	b.vol.lba_shift = 12;
	check_answer(VBLK_S_IOERR, 1);
}

static void
test_vblk_a_read_only_disk_takes_no_writes(void)
{
	static const uint32_t types[] = { OUT, DISCARD, WRITE_ZEROES };

	for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
		unit_row("type %u", types[i]);
		request(types[i], 0, types[i] == OUT ? 512 : 16, false);
		range(0, 0, 8, 0);
		b.dev.ro = true;
		check_answer(VBLK_S_IOERR, 1);
	}
	request(IN, 0, 512, true);
	b.dev.ro = true;
	CHECK_EQ(go(), VBLK_START);
}

static void
test_vblk_a_volume_that_is_not_ready_is_an_error(void)
{
	request(FLUSH, 0, 0, false);
	b.vol.bytes = 0;
	check_answer(VBLK_S_IOERR, 1);
}

static void
test_vblk_memory_that_is_not_there_is_an_error(void)
{
	begin_test();
	header(OUT, 0);
	seg(HEADER, 16, false);
	seg(GUEST_RAM - 256, 512, false);
	seg(STATUS, 1, true);
	check_answer(VBLK_S_IOERR, 1);
	begin_test();
	seg(GUEST_RAM - 8, 16, false);
	seg(STATUS, 1, true);
	check_answer(VBLK_S_IOERR, 1);
	begin_test();
	header(DISCARD, 0);
	seg(HEADER, 16, false);
	seg(GUEST_RAM + 4096, 16, false);
	seg(STATUS, 1, true);
	check_answer(VBLK_S_IOERR, 1);
	begin_test();
	header(GET_ID, 0);
	seg(HEADER, 16, false);
	seg(GUEST_RAM - 10, 20, true);
	seg(STATUS, 1, true);
	check_answer(VBLK_S_IOERR, 1);
}

static void
test_vblk_half_a_header_and_a_cut_chain_are_errors(void)
{
	begin_test();
	header(FLUSH, 0);
	seg(HEADER, 15, false);
	seg(STATUS, 1, true);
	check_answer(VBLK_S_IOERR, 1);
	request(IN, 0, 512, true);
	b.c.cut = true;
	check_answer(VBLK_S_IOERR, 1);
}

static void
test_vblk_what_cannot_be_answered_breaks_the_ring(void)
{
	begin_test();
	header(FLUSH, 0);
	seg(HEADER, 16, false);
	CHECK_EQ(go(), VBLK_BROKEN);
	begin_test();
	header(FLUSH, 0);
	seg(HEADER, 16, false);
	seg(GUEST_RAM, 1, true);
	CHECK_EQ(go(), VBLK_BROKEN);
	begin_test();
	CHECK_EQ(go(), VBLK_BROKEN); /* of empty descriptors */
	begin_test();
	seg(HEADER, 16, false);
	b.c.seg[b.c.nr++] = (struct vring_seg){ UINT64_MAX - 15, 16 };
	b.c.in_len += 16;
	CHECK_EQ(go(), VBLK_BROKEN);
}

static void
test_vblk_ranges_are_done_one_after_the_other(void)
{
	for (unsigned zero = 0; zero < 2; zero++) {
		unit_row("write zeroes %u", zero);
		request(zero ? WRITE_ZEROES : DISCARD, 0, 48, false);
		range(0, 100, 8, zero);
		range(1, 7, 0, 0); /* nothing */
		range(2, SECTORS - 1, 1, 0);
		CHECK_EQ(go(), VBLK_START);
		CHECK_EQ(b.io.op, zero ? nvme_cmd_write_zeroes : nvme_cmd_dsm);
		CHECK_EQ(b.io.nsg, 0);
		CHECK_EQ(b.io.off, 100 * 512);
		CHECK_EQ(b.io.len, 8 * 512);
		CHECK_EQ(b.io.deac, zero);
		b.io.status = 0;
		CHECK(vblk_next(&b.req, &b.io));
		CHECK_EQ(b.g.ram[STATUS], UNTOUCHED);
		CHECK_EQ(b.io.off, (uint64_t)(SECTORS - 1) * 512);
		CHECK_EQ(b.io.len, 512);
		CHECK(!b.io.deac);
		check_end(0, VBLK_S_OK, 1);
	}
}

static void
test_vblk_a_range_that_cannot_be_stops_all_before_the_first(void)
{
	static const struct {
		uint32_t type;
		uint64_t sector;
		uint32_t sectors, flags;
		enum vblk_status status;
	} rows[] = {
		{ DISCARD, SECTORS, 1, 0, VBLK_S_IOERR },
		{ DISCARD, UINT64_MAX, 1, 0, VBLK_S_IOERR },
		{ DISCARD, 0, VBLK_RANGE_SECTORS_MAX + 1, 0, VBLK_S_IOERR },
		{ DISCARD, 0, UINT32_MAX, 0, VBLK_S_IOERR },
		{ DISCARD, 0, 1, 1, VBLK_S_UNSUPP },
		{ WRITE_ZEROES, SECTORS - 1, 2, 1, VBLK_S_IOERR },
		{ WRITE_ZEROES, 0, 1, 2, VBLK_S_UNSUPP },
		{ WRITE_ZEROES, 0, 1, 0x80000001, VBLK_S_UNSUPP },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("row %u", i);
		request(rows[i].type, 0, 32, false);
		range(0, 0, 8, 0);
		range(1, rows[i].sector, rows[i].sectors, rows[i].flags);
		check_answer(rows[i].status, 1);
	}
}

static void
test_vblk_what_was_not_offered_is_unsupported(void)
{
	request(DISCARD, 0, 16, false);
	range(0, 0, 8, 0);
	b.dev.discard = false;
	check_answer(VBLK_S_UNSUPP, 1);
	request(WRITE_ZEROES, 0, 16, false);
	range(0, 0, 8, 0);
	b.dev.write_zeroes = false;
	check_answer(VBLK_S_UNSUPP, 1);
}

static void
test_vblk_the_status_of_the_io_becomes_that_of_the_request(void)
{
	static const struct {
		uint16_t nvme;
		enum vblk_status status;
	} rows[] = {
		{ NVME_SC_LBA_RANGE, VBLK_S_IOERR },
		{ NVME_ST_MEDIA(NVME_SC_UNWRITTEN_BLOCK), VBLK_S_IOERR },
		{ NVME_NO_RETRY(NVME_SC_INVALID_OPCODE), VBLK_S_UNSUPP },
		{ NVME_SC_INVALID_OPCODE, VBLK_S_UNSUPP },
		{ NVME_ST_CMD(NVME_SC_INVALID_OPCODE), VBLK_S_IOERR },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("status %x", rows[i].nvme);
		request(IN, 0, 512, true);
		CHECK_EQ(go(), VBLK_START);
		check_end(rows[i].nvme, rows[i].status, 1);
	}
	/* and an error ends what would have had further steps */
	request(DISCARD, 0, 32, false);
	range(0, 0, 8, 0);
	range(1, 8, 8, 0);
	CHECK_EQ(go(), VBLK_START);
	check_end(NVME_SC_INTERNAL, VBLK_S_IOERR, 1);
}

/* One descriptor of 64 KiB again and again: 10 MiB and a bit. */
static void
test_vblk_a_large_transfer_is_done_in_steps(void)
{
	enum { PIECE = 65536 - 512, PIECES = 161 };
	uint64_t total = (uint64_t)PIECE * PIECES, done = 0;
	unsigned steps = 0;

	begin_test();
	header(IN, 5);
	seg(HEADER, 16, false);
	for (unsigned i = 0; i < PIECES; i++)
		seg(DATA, PIECE, true);
	seg(STATUS, 1, true);
	CHECK_EQ(go(), VBLK_START);
	for (;; steps++) {
		uint64_t have = 0, in_piece = done % PIECE;

		CHECK_EQ(b.io.off, 5 * 512 + done);
		CHECK_EQ(b.io.len, MIN(total - done, (uint64_t)VBLK_STEP_MAX));
		CHECK(b.io.sg[0].iov_len == PIECE - in_piece);
		for (unsigned i = 0; i < b.io.nsg; i++)
			have += b.io.sg[i].iov_len;
		CHECK_EQ(have, total - done);
		done += b.io.len;
		b.io.status = 0;
		if (!vblk_next(&b.req, &b.io))
			break;
	}
	CHECK_EQ(steps, 2);
	CHECK_EQ(done, total);
	CHECK_EQ(b.g.ram[STATUS], VBLK_S_OK);
	CHECK_EQ(b.req.written, total + 1);
}

static void
test_vblk_as_many_extents_as_a_chain_can_have_work(void)
{
	begin_test();
	header(IN, 0);
	seg(HEADER, 16, false);
	for (unsigned i = 0; i < IO_SG_MAX; i++) /* none touches the one before */
		seg(DATA + (i & 1) * 2048, 512, true);
	seg(STATUS, 1, true);
	CHECK_EQ(b.c.nr, VRING_CHAIN_MAX);
	CHECK_EQ(go(), VBLK_START);
	CHECK_EQ(b.io.nsg, IO_SG_MAX);
	check_end(0, VBLK_S_OK, IO_SG_MAX * 512 + 1);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_vblk_in_and_out_become_a_read_and_a_write_of_the_same_bytes),
	UNIT_TEST(test_vblk_the_borders_of_descriptors_mean_nothing),
	UNIT_TEST(test_vblk_the_status_is_the_last_byte_of_all),
	UNIT_TEST(test_vblk_flush_is_a_flush),
	UNIT_TEST(test_vblk_get_id_gives_twenty_bytes_or_what_there_is_room_for),
	UNIT_TEST(test_vblk_writes_are_made_durable_where_the_guest_cannot_flush),
	UNIT_TEST(test_vblk_what_cannot_be_done_ends_with_its_status),
	UNIT_TEST(test_vblk_the_last_sector_can_be_reached),
	UNIT_TEST(test_vblk_half_a_block_of_the_volume_is_an_error),
	UNIT_TEST(test_vblk_a_read_only_disk_takes_no_writes),
	UNIT_TEST(test_vblk_a_volume_that_is_not_ready_is_an_error),
	UNIT_TEST(test_vblk_memory_that_is_not_there_is_an_error),
	UNIT_TEST(test_vblk_half_a_header_and_a_cut_chain_are_errors),
	UNIT_TEST(test_vblk_what_cannot_be_answered_breaks_the_ring),
	UNIT_TEST(test_vblk_ranges_are_done_one_after_the_other),
	UNIT_TEST(test_vblk_a_range_that_cannot_be_stops_all_before_the_first),
	UNIT_TEST(test_vblk_what_was_not_offered_is_unsupported),
	UNIT_TEST(test_vblk_the_status_of_the_io_becomes_that_of_the_request),
	UNIT_TEST(test_vblk_a_large_transfer_is_done_in_steps),
	UNIT_TEST(test_vblk_as_many_extents_as_a_chain_can_have_work),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
