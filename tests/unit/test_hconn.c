/* The host side of a connection against a scripted target, most of all a hostile one: whatever it
 * says, no byte outside the granted memory changes, every part ends exactly once, and the
 * connection with it.
 */
#include "initiator/hconn.h"

#include "common/digest.h"
#include "common/log.h"
#include "tests/lib/hpeer.h"
#include "tests/lib/unit.h"

#include <stdlib.h>

static struct rig g;
static struct work w, w2;

/* every combination of digests */
static const struct terms digests[] = {
	{ 0 }, { .hdgst = true }, { .ddgst = true }, { .hdgst = true, .ddgst = true },
	{ .hdgst = true, .ddgst = true, .cpda = 7, .maxh2cdata = 4096 },
	{ .zc = CHAN_ZC_ALWAYS },
};

#define FOR_DIGESTS(t)                                                                             \
	for (const struct terms *t = digests; t < digests + ARRAY_SIZE(digests) &&                 \
	     (unit_row("terms %d", (int)(t - digests)), true); t++)

/* what works */

static void
test_read_in_several_pdus_ends_by_success(void)
{
	FOR_DIGESTS(t) {
		uint16_t cid;

		rig_up(&g, t);
		work_init(&w, true);
		cid = work_send(&g, &w);
		peer_data(&g, cid, 0, 512, 0);
		peer_data(&g, cid, 512, 3000, 0);
		peer_data(&g, cid, 3512, WORK_LEN - 3512, PEER_SUCCESS);
		peer_flush(&g);
		CHECK(rig_wait(&g, &w.ended, 1));
		CHECK_EQ(w.status, 0);
		work_check_read(&w, WORK_LEN);
		CHECK_EQ(hconn_stats(g.hc)->bytes_read, WORK_LEN);
		rig_end(&g);
		CHECK_EQ(w.ended, 1);
		CHECK_EQ(g.violations, 0);
	}
}

static void
test_read_ends_by_response(void)
{
	struct terms t = { .flow_control = true };
	uint16_t cid;

	rig_up(&g, &t);
	work_init(&w, true);
	cid = work_send(&g, &w);
	peer_data(&g, cid, 0, WORK_LEN, PDU_F_LAST);
	peer_flush(&g);
	for (unsigned i = 0; i < 5; i++)
		rig_turn(&g);
	CHECK_EQ(w.ended, 0);
	peer_resp(&g, cid, 0);
	peer_flush(&g);
	CHECK(rig_wait(&g, &w.ended, 1));
	CHECK_EQ(w.status, 0);
	work_check_read(&w, WORK_LEN);
	rig_end(&g);
}

static void
test_a_status_ends_a_part_and_nothing_else(void)
{
	struct terms t = { 0 };
	uint16_t cid, cid2;

	rig_up(&g, &t);
	work_init(&w, true);
	work_init(&w2, true);
	cid = work_send(&g, &w);
	cid2 = work_send(&g, &w2);
	CHECK(cid != cid2);
	peer_data(&g, cid, 0, 512, 0);
	peer_resp(&g, cid, NVME_NO_RETRY(NVME_SC_LBA_RANGE));
	peer_data(&g, cid2, 0, WORK_LEN, PEER_SUCCESS);
	peer_flush(&g);
	CHECK(rig_wait(&g, &w2.ended, 1));
	CHECK_EQ(w.ended, 1);
	CHECK_EQ(w.status, NVME_NO_RETRY(NVME_SC_LBA_RANGE));
	CHECK_EQ(w2.status, 0);
	work_check_read(&w, 512);
	work_check_read(&w2, WORK_LEN);
	rig_end(&g);
	CHECK_EQ(g.violations, 0);
}

static void
test_write_that_fits_goes_in_the_capsule(void)
{
	FOR_DIGESTS(t) {
		struct terms in_capsule = *t;
		const struct pdu_hdr *hdr = (const struct pdu_hdr *)g.in;
		uint16_t cid;

		in_capsule.in_capsule = WORK_LEN;
		rig_up(&g, &in_capsule);
		work_init(&w, false);
		cid = work_send(&g, &w);
		CHECK_EQ(((const struct pdu_cmd *)hdr)->sqe.sgl.type, SGL_IN_CAPSULE);
		CHECK_EQ(pdu_data_len(hdr), WORK_LEN);
		work_check_write(&w, 0, WORK_LEN, g.in + pdu_head_len(hdr));
		if (t->ddgst) {
			le32 crc = le32_put(digest_of(g.in + pdu_head_len(hdr), WORK_LEN));

			CHECK_MEM(g.in + pdu_head_len(hdr) + WORK_LEN, &crc, sizeof(crc));
		}
		CHECK_EQ(hconn_stats(g.hc)->copied, t->ddgst ? WORK_LEN + 1024 : 0);
		peer_resp(&g, cid, 0);
		peer_flush(&g);
		CHECK(rig_wait(&g, &w.ended, 1));
		CHECK_EQ(w.status, 0);
		rig_end(&g);
	}
}

/* Reads H2CData until [off, off + len) of ttag is complete. */
static void
expect_h2c_data(uint16_t cid, uint16_t ttag, uint32_t off, uint32_t len)
{
	uint32_t end = off + len;

	while (off < end) {
		const struct pdu_data *pdu = (const struct pdu_data *)peer_read_pdu(&g);
		uint32_t datal;

		if (!CHECK(pdu != NULL))
			return;
		datal = le32_get(pdu->datal);
		CHECK_EQ(pdu->hdr.type, PDU_H2C_DATA);
		CHECK_EQ(pdu_data_len(&pdu->hdr), datal);
		CHECK_EQ(datal, MIN(end - off, g.t.maxh2cdata));
		CHECK_EQ(le16_get(pdu->cccid), cid);
		CHECK_EQ(le16_get(pdu->ttag), ttag);
		CHECK_EQ(le32_get(pdu->datao), off);
		CHECK_EQ(pdu->hdr.pdo, pdu_data_offset(sizeof(*pdu), g.t.hdgst, g.t.cpda));
		CHECK_EQ(!!(pdu->hdr.flags & PDU_F_LAST), off + datal == end);
		if (off + datal > end)
			return;
		work_check_write(&w, off, datal, g.in + pdu->hdr.pdo);
		off += datal;
	}
}

static void
test_write_is_sent_as_the_r2ts_ask(void)
{
	FOR_DIGESTS(t) {
		uint16_t cid;

		rig_up(&g, t);
		work_init(&w, false);
		cid = work_send(&g, &w);
		CHECK_EQ(((const struct pdu_cmd *)g.in)->sqe.sgl.type, SGL_TRANSPORT);
		peer_r2t(&g, cid, 0x1234, 0, 700);
		peer_r2t(&g, cid, 0xffff, 700, 4500);
		peer_flush(&g);
		expect_h2c_data(cid, 0x1234, 0, 700);
		expect_h2c_data(cid, 0xffff, 700, 4500);
		peer_r2t(&g, cid, 3, 5200, WORK_LEN - 5200);
		peer_flush(&g);
		expect_h2c_data(cid, 3, 5200, WORK_LEN - 5200);
		CHECK_EQ(w.ended, 0);
		peer_resp(&g, cid, 0);
		peer_flush(&g);
		CHECK(rig_wait(&g, &w.ended, 1));
		CHECK_EQ(w.status, 0);
		CHECK_EQ(hconn_stats(g.hc)->r2ts, 3);
		rig_end(&g);
		CHECK_EQ(g.violations, 0);
	}
}

/* The pool has one buffer of that size: the second write waits, and the connection's end takes it
 * along. */
static void
test_writes_with_digests_wait_for_a_buffer(void)
{
	static uint8_t big[128 << 10];
	struct terms t = { .ddgst = true, .in_capsule = 1 << 20, .pool = 128 << 10 };
	struct part *parts[3] = { &w.p, &w2.p, NULL };
	static struct work w3;
	uint16_t cids[3];

	parts[2] = &w3.p;
	rig_up(&g, &t);
	work_init(&w, false);
	work_init(&w2, false);
	work_init(&w3, false);
	for (unsigned i = 0; i < 3; i++) {
		parts[i]->inl[0] = (struct iovec){ big, sizeof(big) };
		parts[i]->nsg = 1;
		parts[i]->len = sizeof(big);
		hconn_send(g.hc, parts[i]);
	}
	CHECK_EQ(buf_pool_waits(g.r.pool), 1); /* the third is behind it */
	for (unsigned i = 0; i < 2; i++) {
		const struct pdu_cmd *cmd = (const struct pdu_cmd *)peer_read_pdu(&g);

		if (!CHECK(cmd != NULL))
			break;
		CHECK_EQ(pdu_data_len(&cmd->hdr), sizeof(big));
		cids[i] = le16_get(cmd->sqe.cid);
		peer_resp(&g, cids[i], 0);
	}
	peer_flush(&g);
	CHECK(rig_wait(&g, &w2.ended, 1));
	CHECK_EQ(w.ended, 1);
	hconn_close(g.hc, "enough");
	rig_end(&g);
	CHECK_EQ(w3.ended, 1);
	CHECK_EQ(w3.status, PART_LOST);
	CHECK_STR(g.why, "enough");
}

/* An R2T for more than one buffer holds: the same buffer takes the rest when it was sent, in order.
 */
static void
test_one_r2t_for_more_than_a_buffer(void)
{
	enum { LEN = 300 << 10 };
	struct terms t = { .ddgst = true, .pool = 128 << 10, .maxh2cdata = 64 << 10 };
	static uint8_t big[LEN];
	uint64_t rng = 1;
	uint32_t off = 0;
	uint16_t cid;

	rig_up(&g, &t);
	work_init(&w, false);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)unit_random(&rng);
	w.p.inl[0] = (struct iovec){ big, LEN };
	w.p.nsg = 1;
	w.p.len = LEN;
	cid = work_send(&g, &w);
	peer_r2t(&g, cid, 1, 0, LEN - 4096);
	peer_r2t(&g, cid, 2, LEN - 4096, 4096);
	peer_flush(&g);
	while (off < LEN) {
		const struct pdu_data *pdu = (const struct pdu_data *)peer_read_pdu(&g);

		if (!CHECK(pdu != NULL) || !CHECK_EQ(le32_get(pdu->datao), off))
			break;
		CHECK_EQ(le16_get(pdu->ttag), off < LEN - 4096 ? 1 : 2);
		CHECK_MEM(g.in + pdu->hdr.pdo, big + off, le32_get(pdu->datal));
		off += le32_get(pdu->datal);
		CHECK_EQ(!!(pdu->hdr.flags & PDU_F_LAST), off == LEN - 4096 || off == LEN);
	}
	peer_resp(&g, cid, 0);
	peer_flush(&g);
	CHECK(rig_wait(&g, &w.ended, 1));
	CHECK_EQ(w.status, 0);
	rig_end(&g);
	CHECK_EQ(g.violations, 0);
}

static void
test_bad_data_digest_fails_that_read_only(void)
{
	struct terms t = { .ddgst = true };
	uint16_t cid;

	rig_up(&g, &t);
	work_init(&w, true);
	cid = work_send(&g, &w);
	peer_data(&g, cid, 0, 4096, 0);
	g.out[g.n - 1] ^= 1;
	peer_data(&g, cid, 4096, WORK_LEN - 4096, PEER_SUCCESS);
	peer_flush(&g);
	CHECK(rig_wait(&g, &w.ended, 1));
	CHECK_EQ(w.status, NVME_SC_TRAN_TPORT_ERROR);
	CHECK_EQ(hconn_stats(g.hc)->ddgst_errors, 1);
	work_init(&w, true);
	cid = work_send(&g, &w);
	peer_data(&g, cid, 0, WORK_LEN, PEER_SUCCESS);
	peer_flush(&g);
	CHECK(rig_wait(&g, &w.ended, 1));
	CHECK_EQ(w.status, 0);
	rig_end(&g);
	CHECK_EQ(g.violations, 0);
}

/* Tags are used again, with another generation, and never FFFFh; the queue is never over-run. */
static void
test_room_is_the_queue_size_and_cids_are_fresh(void)
{
	struct terms t = { .sqsize = 3 };
	uint16_t last = 0xffff;

	rig_up(&g, &t);
	CHECK_EQ(hconn_room(g.hc), 3);
	for (unsigned i = 0; i < 70; i++) {
		uint16_t cid;

		work_init(&w, true);
		cid = work_send(&g, &w);
		CHECK_EQ(hconn_room(g.hc), 2);
		CHECK(cid != last && cid != 0xffff);
		last = cid;
		peer_resp(&g, cid, NVME_SC_LBA_RANGE);
		peer_flush(&g);
		if (!CHECK(rig_wait(&g, &w.ended, 1)))
			break;
	}
	rig_end(&g);
}

/* the hostile target */

enum { READ, WRITE, CAPSULE };

/* What it says; cid is that of the work, xor other. */
struct say {
	enum { NOTHING, DATA, R2T, RESP, BYTE } what;
	uint16_t other;
	uint32_t off, len;
	uint8_t flags;
};

#define SAY_DATA(...) { DATA, 0, __VA_ARGS__ }
#define SAY_R2T(...)  { R2T, 0, __VA_ARGS__, 0 }
#define SAY_GOOD      { RESP, 0, 0, 0, 0 }
#define SAY_ALL       SAY_DATA(0, WORK_LEN, PEER_SUCCESS)
#define SAY_WITH(...) { BYTE, 0, __VA_ARGS__, 0 } /* all the data, one byte of its header changed */

static const struct attack {
	const char *name;
	int work;               /* READ, WRITE or CAPSULE */
	enum hconn_violation kind;
	enum pdu_fes fes;
	uint32_t placed;        /* bytes that were rightly placed before */
	struct say say[5];
} attacks[] = {
	{ "data for another cid", READ, VIOL_UNKNOWN_TAG, FES_INVALID_FIELD, 0, { { DATA, 1, 0, 512, 0 } } },
	{ "data for a cid far off", READ, VIOL_UNKNOWN_TAG, FES_INVALID_FIELD, 0, { { DATA, 0xffff, 0, 512, 0 } } },
	{ "offset beyond", READ, VIOL_RANGE, FES_OUT_OF_RANGE, 0, { SAY_DATA(WORK_LEN, 512, 0) } },
	{ "offset near 4 GiB", READ, VIOL_RANGE, FES_OUT_OF_RANGE, 0, { SAY_DATA(0xffffff00, 512, 0) } },
	{ "longer than the command", READ, VIOL_RANGE, FES_OUT_OF_RANGE, 0, { SAY_DATA(0, WORK_LEN + 16, PDU_F_LAST) } },
	{ "gap", READ, VIOL_ORDER, FES_SEQUENCE, 0, { SAY_DATA(4096, 4096, PEER_SUCCESS) } },
	{ "repeat", READ, VIOL_ORDER, FES_SEQUENCE, 4096, { SAY_DATA(0, 4096, 0), SAY_DATA(0, 4096, 0) } },
	{ "overlap", READ, VIOL_ORDER, FES_SEQUENCE, 4096, { SAY_DATA(0, 4096, 0), SAY_DATA(4000, 4192, PEER_SUCCESS) } },
	{ "good without data", READ, VIOL_SHORT, FES_SEQUENCE, 0, { SAY_GOOD } },
	{ "good with half", READ, VIOL_SHORT, FES_SEQUENCE, 4096, { SAY_DATA(0, 4096, 0), SAY_GOOD } },
	{ "SUCCESS with half", READ, VIOL_SHORT, FES_SEQUENCE, 0, { SAY_DATA(0, 4096, PEER_SUCCESS) } },
	{ "SUCCESS without LAST", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_DATA(0, WORK_LEN, PDU_F_SUCCESS) } },
	{ "all without LAST", READ, VIOL_PDU, FES_SEQUENCE, 0, { SAY_DATA(0, WORK_LEN, 0) } },
	{ "response for another cid", READ, VIOL_UNKNOWN_TAG, FES_INVALID_FIELD, 0, { { RESP, 2, 0, 0, 0 } } },
	{ "R2T for a read", READ, VIOL_DIRECTION, FES_SEQUENCE, 0, { SAY_R2T(0, 512) } },
	{ "DATAL is not the data", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(16, 0xff) } },
	{ "a PDU of hosts", READ, VIOL_PDU, FES_SEQUENCE, 0, { SAY_WITH(0, PDU_H2C_DATA) } },
	{ "unknown type", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(0, 0x55) } },
	{ "another ICResp", READ, VIOL_PDU, FES_SEQUENCE, 0, { SAY_WITH(0, PDU_ICRESP) } },
	{ "HLEN", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(2, 200) } },
	{ "PDO", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(3, 128) } },
	{ "PLEN below HLEN", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(5, 0) } },
	{ "PLEN near 4 GiB", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(7, 0xff) } },
	{ "digest not agreed", READ, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_WITH(1, PDU_F_LAST | PDU_F_DDGST) } },
	{ "R2T beyond", WRITE, VIOL_RANGE, FES_OUT_OF_RANGE, 0, { SAY_R2T(0, WORK_LEN + 4) } },
	{ "R2T that wraps", WRITE, VIOL_RANGE, FES_OUT_OF_RANGE, 0, { SAY_R2T(4096, 0xfffff800) } },
	{ "R2T for nothing", WRITE, VIOL_PDU, FES_INVALID_FIELD, 0, { SAY_R2T(0, 0) } },
	{ "R2T with a gap", WRITE, VIOL_ORDER, FES_SEQUENCE, 0, { SAY_R2T(4096, 4096) } },
	{ "R2T twice", WRITE, VIOL_ORDER, FES_SEQUENCE, 0, { SAY_R2T(0, 512), SAY_R2T(0, 512) } },
	{ "R2T for another cid", WRITE, VIOL_UNKNOWN_TAG, FES_INVALID_FIELD, 0, { { R2T, 1, 0, 512, 0 } } },
	{ "five R2Ts at once", WRITE, VIOL_R2T_LIMIT, FES_LIMIT, 0,
	  { SAY_R2T(0, 512), SAY_R2T(512, 512), SAY_R2T(1024, 512), SAY_R2T(1536, 512),
	    SAY_R2T(2048, 512) } },
	{ "data for a write", WRITE, VIOL_DIRECTION, FES_SEQUENCE, 0, { SAY_ALL } },
	{ "good without asking", WRITE, VIOL_SHORT, FES_SEQUENCE, 0, { SAY_GOOD } },
	{ "R2T for a capsule", CAPSULE, VIOL_ORDER, FES_SEQUENCE, 0, { SAY_R2T(0, 512) } },
	{ "data for a capsule", CAPSULE, VIOL_DIRECTION, FES_SEQUENCE, 0, { SAY_ALL } },
};

static void
say(const struct say *s, uint16_t cid)
{
	size_t start = g.n;

	cid ^= s->other;
	if (s->what == DATA)
		peer_data(&g, cid, s->off, s->len, s->flags);
	else if (s->what == R2T)
		peer_r2t(&g, cid, 1, s->off, s->len);
	else if (s->what == RESP)
		peer_resp(&g, cid, 0);
	else if (s->what == BYTE) {
		peer_data(&g, cid, 0, WORK_LEN, PDU_F_LAST);
		g.out[start + s->off] = (uint8_t)s->len;
	}
}

/* The TermReq, after whatever H2CData was under way. */
static void
expect_term(enum pdu_fes fes)
{
	const struct pdu_term *term;

	do
		term = (const struct pdu_term *)peer_read_pdu(&g);
	while (term && term->hdr.type == PDU_H2C_DATA);
	if (!CHECK(term != NULL))
		return;
	CHECK_EQ(term->hdr.type, PDU_H2C_TERM);
	CHECK_EQ(le16_get(term->fes), fes);
	peer_close(&g);
}

/* A header that makes no sense as such names no command: that is sent again. One whose PLEN and
 * DATAL differ does. */
static bool
names_the_command(const struct attack *a)
{
	const struct say *s = &a->say[0];

	if (a->kind == VIOL_PDU)
		return s->what == BYTE ? s->off > offsetof(struct pdu_hdr, plen) + 1 : !s->flags;
	return a->kind != VIOL_UNKNOWN_TAG;
}

static void
run_attack(const struct attack *a, size_t piece)
{
	struct terms t = { .in_capsule = a->work == CAPSULE ? WORK_LEN : 0 };
	static struct work before;
	uint16_t cid;
	size_t n;

	rig_up(&g, &t);
	work_init(&w, a->work == READ);
	before = w;
	cid = work_send(&g, &w);
	for (size_t i = 0; i < ARRAY_SIZE(a->say); i++)
		say(&a->say[i], cid);
	/* In pieces, so that what follows is received with its place known, or not at all. */
	n = g.n;
	for (size_t at = 0; at < n && g.violations == 0; at += piece) {
		memmove(g.out, g.out + (at ? piece : 0), n - at);
		g.n = MIN(piece, n - at);
		peer_flush(&g);
		rig_turn(&g);
	}
	g.n = 0;
	CHECK(rig_wait(&g, &g.violations, 1));
	CHECK_EQ(g.kind, a->kind);
	expect_term(a->fes);
	CHECK(rig_wait(&g, &g.downs, 1));
	if (a->work == READ)
		work_check_read(&w, a->placed);
	else
		CHECK_MEM(w.mem, before.mem, sizeof(w.mem));
	rig_end(&g);
	CHECK_EQ(w.ended, 1);
	CHECK_EQ(w.status, names_the_command(a) ? NVME_SC_DATA_XFER_ERROR : PART_LOST);
	CHECK_EQ(g.violations, 1);
}

static void
test_hostile_target_moves_nothing_and_is_left(void)
{
	log_level = LOG_LVL_ERROR;
	for (size_t i = 0; i < ARRAY_SIZE(attacks); i++) {
		unit_row("%s", attacks[i].name);
		run_attack(&attacks[i], PEER_MAX);
		unit_row("%s, in pieces", attacks[i].name);
		run_attack(&attacks[i], attacks[i].kind == VIOL_R2T_LIMIT ? PEER_MAX : 1500);
	}
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_read_in_several_pdus_ends_by_success),
	UNIT_TEST(test_read_ends_by_response),
	UNIT_TEST(test_a_status_ends_a_part_and_nothing_else),
	UNIT_TEST(test_write_that_fits_goes_in_the_capsule),
	UNIT_TEST(test_write_is_sent_as_the_r2ts_ask),
	UNIT_TEST(test_writes_with_digests_wait_for_a_buffer),
	UNIT_TEST(test_one_r2t_for_more_than_a_buffer),
	UNIT_TEST(test_bad_data_digest_fails_that_read_only),
	UNIT_TEST(test_room_is_the_queue_size_and_cids_are_fresh),
	UNIT_TEST(test_hostile_target_moves_nothing_and_is_left),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
