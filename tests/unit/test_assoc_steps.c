/* What a host makes of answers: the take() of each step with an answer at hand, no connection. */
#include "initiator/assoc_inner.h"

#include "common/log.h"
#include "common/zframe.h"
#include "common/zip.h"
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define CAP_GOOD UINT64_C(0x20140103ff) /* NVM, TO 10 s, CQR, MQES 1023 */

static struct initiator in;
static struct reactor reactor;
static struct path_config cfg;
static struct assoc *a;

static struct nvme_id_ctrl *
id_ctrl(void)
{
	return (struct nvme_id_ctrl *)a->page;
}

static void
drop(void)
{
	if (a) {
		ring_timer_del(&a->timer); /* "down" would come by it */
		ring_timer_del(&a->ka_timer);
	}
	assoc_free(a);
}

/* An association that has come up, and a page that says what a good controller says. */
static void
begin(void)
{
	struct assoc_config c = { .r = &reactor, .cfg = &cfg, .name = "test" };
	struct nvme_id_ctrl *id;

	drop();
	cfg = (struct path_config){ .queue_size = 128, .keep_alive_tmo = 5 };
	a = assoc_new(&c);
	a->cntlid = 7;
	a->cap = CAP_GOOD;
	memset(a->page, 0, ASSOC_PAGE);
	id = id_ctrl();
	id->cntlid = htole16(7);
	id->cntrltype = NVME_CTRL_CNTRLTYPE_IO;
	id->kas = htole16(10);
	id->ioccsz = htole32(4 + 512);
	id->iorcsz = htole32(1);
	id->sgls = htole32(1);
	id->maxcmd = htole16(256);
	id->mdts = 5;
	id->vwc = 1;
}

static const struct step *
find(const char *name)
{
	const struct step *s;

	for (s = assoc_setup; s->name; s++)
		if (strcmp(s->name, name) == 0)
			return s;
	CHECK(!"no such step");
	exit(1);
}

static enum took
take(const char *name, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	return find(name)->take(a, status, dw0, dw1);
}

static bool
build(const char *name, struct nvme_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
	a->cmd.len = 0;
	return find(name)->build(a, sqe);
}

static void
offer(const char *magic, uint8_t version, int8_t level_max, uint32_t raw_max)
{
	struct zip_caps caps = {
		.version = version, .level_max = level_max, .raw_max = le32_put(raw_max) };

	memcpy(caps.magic, magic, MIN(strlen(magic), sizeof(caps.magic)));
	memcpy(id_ctrl()->vs, &caps, sizeof(caps));
}

/* What Set Features is sent, and what of it is known then: bytes of blocks. */
static uint32_t
negotiated(uint16_t status)
{
	struct nvme_sqe sqe;

	CHECK_EQ(take("Identify Controller", 0, 0, 0), TOOK_NEXT);
	if (!build("Set Features Compressed Transfers", &sqe))
		return 0;
	CHECK_EQ(sqe.opcode, nvme_admin_set_features);
	CHECK_EQ(le32_get(sqe.cdw10), ZIP_FID);
	CHECK_EQ(le32_get(sqe.cdw11), ZIP_FEATURE_ON);
	CHECK_EQ(take("Set Features Compressed Transfers", status, 0, 0), TOOK_NEXT);
	return a->lim.zip_max;
}

static void
test_compressed_transfers_are_turned_on_only_where_both_want_them(void)
{
	begin();
	offer(ZIP_MAGIC, ZIP_VERSION, ZFRAME_LEVEL_MAX, 65536);
	CHECK_EQ(negotiated(0), 0); /* no volume wants it */
	cfg.compress = true;
	CHECK_EQ(negotiated(0), 65536);
	CHECK_EQ(negotiated(NVME_SC_INVALID_FIELD), 0);
	offer(ZIP_MAGIC, ZIP_VERSION, ZFRAME_LEVEL_MAX, UINT32_MAX);
	CHECK_EQ(negotiated(0), ZFRAME_RAW_MAX);
	offer(ZIP_MAGIC, ZIP_VERSION + 1, ZFRAME_LEVEL_MAX, 65536);
	CHECK_EQ(negotiated(0), 0);
	offer(ZIP_MAGIC, ZIP_VERSION, ZFRAME_LEVEL_MAX - 1, 65536);
	CHECK_EQ(negotiated(0), 0);
	offer("another vendor's", ZIP_VERSION, ZFRAME_LEVEL_MAX, 65536);
	CHECK_EQ(negotiated(0), 0);
}

static void
test_properties_are_asked_by_offset_and_size(void)
{
	struct nvme_property_sqe p;

	begin();
	CHECK(build("Property Get CAP", (struct nvme_sqe *)&p));
	CHECK_EQ(p.opcode, nvme_admin_fabrics);
	CHECK_EQ(p.fctype, nvme_fabrics_type_property_get);
	CHECK_EQ(p.attrib, 1);
	CHECK_EQ(le32_get(p.ofst), 0);
	CHECK(build("Property Get CSTS", (struct nvme_sqe *)&p));
	CHECK_EQ(p.attrib, 0);
	CHECK_EQ(le32_get(p.ofst), 0x1c);
	CHECK(!build("Property Get CRTO", (struct nvme_sqe *)&p)); /* CAP.CRMS is 0 */
	a->cap |= UINT64_C(1) << 59;
	CHECK(build("Property Get CRTO", (struct nvme_sqe *)&p));
	CHECK_EQ(le32_get(p.ofst), 0x68);
}

static void
test_cc_enables_with_the_command_sets_that_cap_offers(void)
{
	struct nvme_property_sqe p;

	begin();
	CHECK(build("Property Set CC", (struct nvme_sqe *)&p));
	CHECK_EQ(p.fctype, nvme_fabrics_type_property_set);
	CHECK_EQ(le32_get(p.ofst), 0x14);
	CHECK_EQ(le64_get(p.value), 0x460001);
	a->cap |= UINT64_C(1) << 43;
	CHECK(build("Property Set CC", (struct nvme_sqe *)&p));
	CHECK_EQ(le64_get(p.value), 0x460061);
}

static void
test_a_controller_without_nvm_commands_is_refused(void)
{
	begin();
	CHECK(take("Property Get CAP", 0, (uint32_t)CAP_GOOD, CAP_GOOD >> 32) == TOOK_NEXT);
	CHECK_EQ(a->cap, CAP_GOOD);
	begin();
	CHECK(take("Property Get CAP", 0, (uint32_t)CAP_GOOD, 0) == TOOK_FAILED);
	CHECK(a->dnr);
}

static void
test_rdy_is_awaited_until_cap_to_and_cfs_ends_it(void)
{
	begin();
	CHECK(ring_now(reactor.ring) > 1);
	a->ready_by = ring_now(reactor.ring) + 1000000000;
	CHECK(take("Property Get CSTS", 0, 0, 0) == TOOK_LATER);
	CHECK(take("Property Get CSTS", 0, 1, 0) == TOOK_NEXT);
	a->ready_by = 1;
	CHECK(take("Property Get CSTS", 0, 0, 0) == TOOK_FAILED);
	CHECK(strstr(a->why, "CAP.TO") != NULL);
	begin();
	CHECK(take("Property Get CSTS", 0, 3, 0) == TOOK_FAILED);
	CHECK(strstr(a->why, "CFS") != NULL);
}

static void
test_limits_are_learnt_from_identify_controller(void)
{
	begin();
	if (!CHECK(take("Identify Controller", 0, 0, 0) == TOOK_NEXT))
		return;
	CHECK_EQ(a->lim.mdts, 128 << 10);
	CHECK_EQ(a->lim.in_capsule, 8192);
	CHECK_EQ(a->lim.mqes, 1023);
	CHECK_EQ(a->sqsize, 127);
	CHECK(a->lim.vwc);
	a->cap |= UINT64_C(1) << 48; /* MPSMIN: 8 KiB pages */
	take("Identify Controller", 0, 0, 0);
	CHECK_EQ(a->lim.mdts, 256 << 10);
	id_ctrl()->mdts = 0;
	take("Identify Controller", 0, 0, 0);
	CHECK_EQ(a->lim.mdts, UINT32_MAX);
	id_ctrl()->mdts = 255;
	take("Identify Controller", 0, 0, 0);
	CHECK_EQ(a->lim.mdts, UINT32_MAX);
}

static void
test_the_queue_is_as_long_as_all_three_limits_allow(void)
{
	static const struct {
		unsigned queue_size, mqes, maxcmd, sqsize;
	} rows[] = {
		{ 128, 1023, 256, 127 }, { 128, 63, 256, 63 }, { 128, 1023, 32, 31 },
		{ 128, 1023, 0, 127 },   { 1024, 0xffff, 0xffff, 1023 }, { 128, 0, 256, 1 },
		{ 128, 1023, 1, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%u %u %u", rows[i].queue_size, rows[i].mqes, rows[i].maxcmd);
		begin();
		cfg.queue_size = rows[i].queue_size;
		a->cap = (CAP_GOOD & ~UINT64_C(0xffff)) | rows[i].mqes;
		id_ctrl()->maxcmd = htole16((uint16_t)rows[i].maxcmd);
		CHECK(take("Identify Controller", 0, 0, 0) == TOOK_NEXT);
		CHECK_EQ(a->sqsize, rows[i].sqsize);
	}
}

static void
bad_cntlid(struct nvme_id_ctrl *id)
{
	id->cntlid = htole16(8);
}

static void
bad_type(struct nvme_id_ctrl *id)
{
	id->cntrltype = NVME_CTRL_CNTRLTYPE_DISCOVERY;
}

static void
bad_kas(struct nvme_id_ctrl *id)
{
	id->kas = 0;
}

static void
bad_ioccsz(struct nvme_id_ctrl *id)
{
	id->ioccsz = htole32(3);
}

static void
bad_iorcsz(struct nvme_id_ctrl *id)
{
	id->iorcsz = 0;
}

static void
bad_icdoff(struct nvme_id_ctrl *id)
{
	id->icdoff = htole16(1);
}

static void
bad_sgls(struct nvme_id_ctrl *id)
{
	id->sgls = htole32(1 << 20);
}

static void
test_what_linux_refuses_is_refused_for_good(void)
{
	static const struct {
		void (*spoil)(struct nvme_id_ctrl *id);
		const char *says;
	} rows[] = {
		{ bad_cntlid, "controller 8" }, { bad_type, "discovery" }, { bad_kas, "KAS" },
		{ bad_ioccsz, "IOCCSZ" },       { bad_iorcsz, "IORCSZ" },  { bad_icdoff, "ICDOFF" },
		{ bad_sgls, "SGL" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%s", rows[i].says);
		begin();
		rows[i].spoil(id_ctrl());
		CHECK(take("Identify Controller", 0, 0, 0) == TOOK_FAILED);
		CHECK(strstr(a->why, rows[i].says) != NULL);
		CHECK(a->dnr);
	}
}

static void
test_no_more_queues_than_granted_are_used(void)
{
	struct nvme_sqe sqe;

	begin();
	CHECK(build("Set Features Number of Queues", &sqe));
	CHECK_EQ(le32_get(sqe.cdw11), 7 << 16 | 7); /* one for each reactor */
	CHECK(take("Set Features Number of Queues", 0, 3 << 16 | 63, 0) == TOOK_NEXT);
	CHECK_EQ(assoc_nr_queues(a), 4);
	cfg.nr_io_queues = 2;
	CHECK(build("Set Features Number of Queues", &sqe));
	CHECK_EQ(le32_get(sqe.cdw11), 1 << 16 | 1);
	take("Set Features Number of Queues", 0, 63 << 16 | 63, 0);
	CHECK_EQ(assoc_nr_queues(a), 2);
}

/* Of the discovery controller: what it is asked to tell, by the step of its own table. */
static void
test_discovery_controllers_tell_of_their_log_if_the_connection_stays(void)
{
	const struct step *events = NULL, *s;
	struct nvme_sqe sqe = { 0 };

	for (s = assoc_setup_discovery; s->name; s++)
		events = s;
	begin();
	a->c.discovery = true;
	a->oaes = UINT32_C(1) << 31 | 1 << 8;
	CHECK(events->build(a, &sqe));
	CHECK_EQ(le32_get(sqe.cdw10), 0x0b);
	CHECK_EQ(le32_get(sqe.cdw11), UINT32_C(1) << 31);
	a->oaes = 1 << 8;
	CHECK(!events->build(a, &sqe));
	a->oaes = UINT32_C(1) << 31;
	cfg.keep_alive_tmo = 0; /* "sluicectl discover" */
	CHECK(!events->build(a, &sqe));
}

/* namespaces */

static void
list(uint32_t first, unsigned n)
{
	struct nvme_ns_list *l = (struct nvme_ns_list *)a->page;

	memset(a->page, 0, ASSOC_PAGE);
	for (unsigned i = 0; i < n; i++)
		l->ns[i] = htole32(first + i);
}

static void
test_the_list_of_namespaces_comes_in_pages_in_order(void)
{
	struct nvme_sqe sqe;

	begin();
	CHECK(!build("reset", &sqe));
	CHECK(build("Identify Active Namespaces", &sqe));
	CHECK_EQ(le32_get(sqe.nsid), 0);
	CHECK_EQ(a->cmd.len, ASSOC_PAGE);
	list(1, 1024);
	CHECK(take("Identify Active Namespaces", 0, 0, 0) == TOOK_AGAIN);
	CHECK(build("Identify Active Namespaces", &sqe));
	CHECK_EQ(le32_get(sqe.nsid), 1024);
	list(2000, 3);
	CHECK(take("Identify Active Namespaces", 0, 0, 0) == TOOK_NEXT);
	CHECK_EQ(a->nr_nsids, 1027);
	list(2002, 1); /* a controller that repeats itself would never end */
	CHECK(take("Identify Active Namespaces", 0, 0, 0) == TOOK_FAILED);
	CHECK(!a->dnr);
}

static void
test_the_list_of_namespaces_ends_at_our_limit(void)
{
	unsigned pages = 0;

	begin();
	do
		list(1 + 1024 * pages, 1024);
	while (take("Identify Active Namespaces", 0, 0, 0) == TOOK_AGAIN && ++pages < 100);
	CHECK_EQ(pages, 4);
	CHECK_EQ(a->nr_nsids, ASSOC_NS_MAX);
}

static void
put_ns(uint64_t blocks, uint8_t ds, uint16_t ms)
{
	struct nvme_id_ns *id = (struct nvme_id_ns *)a->page;

	memset(a->page, 0, ASSOC_PAGE);
	id->nsze = htole64(blocks);
	id->flbas = 0x21; /* index 1 and, in bits 6:5, 16 more */
	id->lbaf[17].ds = ds;
	id->lbaf[17].ms = htole16(ms);
	id->nguid[0] = 9;
}

static void
test_namespaces_that_cannot_be_used_are_left_out(void)
{
	struct nvme_sqe sqe;

	begin();
	list(1, 6);
	take("Identify Active Namespaces", 0, 0, 0);
	CHECK(build("Identify Namespace", &sqe));
	CHECK_EQ(le32_get(sqe.nsid), 1);
	put_ns(0, 9, 0);
	CHECK(take("Identify Namespace", 0, 0, 0) == TOOK_AGAIN);
	put_ns(100, 9, 8);
	CHECK(take("Identify Namespace", 0, 0, 0) == TOOK_AGAIN);
	put_ns(100, 0, 0);
	CHECK(take("Identify Namespace", 0, 0, 0) == TOOK_AGAIN);
	put_ns(UINT64_MAX, 12, 0);
	CHECK(take("Identify Namespace", 0, 0, 0) == TOOK_AGAIN);
	put_ns(100, 12, 0);
	CHECK(take("Identify Namespace", NVME_SC_INVALID_NS, 0, 0) == TOOK_AGAIN);
	CHECK(take("Identify Namespace", 0, 0, 0) == TOOK_NEXT);
	CHECK_EQ(a->nr_ns, 1);
	CHECK_EQ(a->ns[0].nsid, 6);
	CHECK_EQ(a->ns[0].blocks, 100);
	CHECK_EQ(a->ns[0].lba_shift, 12);
	CHECK_EQ(a->ns[0].nguid[0], 9);
	memset(a->page, 0, ASSOC_PAGE);
	CHECK(take("Identify Namespace Descriptors", 0, 0, 0) == TOOK_BACK);
	CHECK(!build("Identify Namespace", &sqe));
	CHECK(!build("Identify Namespace Descriptors", &sqe));
}

static void
test_descriptors_of_any_length_are_walked_inside_the_page(void)
{
	uint8_t *p;

	begin();
	a->nr_ns = 1;
	a->nsids[0] = a->nr_nsids = 1;
	memset(a->ns, 0, sizeof(a->ns[0]));
	p = a->page;
	memset(p, 0, ASSOC_PAGE);
	p[0] = NVME_NIDT_CSI;
	p[1] = 1;
	p += 5;                 /* from here on nothing is aligned */
	p[0] = NVME_NIDT_UUID;
	p[1] = 16;
	memset(p + 4, 0x11, 16);
	p += 20;
	p[0] = NVME_NIDT_NGUID;
	p[1] = 8;               /* not what an NGUID has */
	memset(p + 4, 0x22, 8);
	CHECK(take("Identify Namespace Descriptors", 0, 0, 0) == TOOK_BACK);
	CHECK_EQ(a->ns[0].uuid[15], 0x11);
	CHECK_EQ(a->ns[0].nguid[0], 0);

	memset(a->page, 0xff, ASSOC_PAGE); /* lengths of 255 up to the end, and beyond */
	CHECK(take("Identify Namespace Descriptors", 0, 0, 0) == TOOK_BACK);
	memset(a->page, NVME_NIDT_UUID, ASSOC_PAGE);
	CHECK(take("Identify Namespace Descriptors", 0, 0, 0) == TOOK_BACK);
	CHECK(take("Identify Namespace Descriptors", NVME_SC_INVALID_FIELD, 0, 0) == TOOK_BACK);
}

static void
test_events_are_asked_for_only_where_they_exist(void)
{
	struct nvme_sqe sqe;

	begin();
	CHECK(!build("Set Features Asynchronous Event Configuration", &sqe));
	a->oaes = NVME_CTRL_OAES_NA | NVME_CTRL_OAES_ANA;
	CHECK(build("Set Features Asynchronous Event Configuration", &sqe));
	CHECK_EQ(le32_get(sqe.cdw11), NVME_CTRL_OAES_NA);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_compressed_transfers_are_turned_on_only_where_both_want_them),
	UNIT_TEST(test_properties_are_asked_by_offset_and_size),
	UNIT_TEST(test_cc_enables_with_the_command_sets_that_cap_offers),
	UNIT_TEST(test_a_controller_without_nvm_commands_is_refused),
	UNIT_TEST(test_rdy_is_awaited_until_cap_to_and_cfs_ends_it),
	UNIT_TEST(test_limits_are_learnt_from_identify_controller),
	UNIT_TEST(test_the_queue_is_as_long_as_all_three_limits_allow),
	UNIT_TEST(test_what_linux_refuses_is_refused_for_good),
	UNIT_TEST(test_no_more_queues_than_granted_are_used),
	UNIT_TEST(test_discovery_controllers_tell_of_their_log_if_the_connection_stays),
	UNIT_TEST(test_the_list_of_namespaces_comes_in_pages_in_order),
	UNIT_TEST(test_the_list_of_namespaces_ends_at_our_limit),
	UNIT_TEST(test_namespaces_that_cannot_be_used_are_left_out),
	UNIT_TEST(test_descriptors_of_any_length_are_walked_inside_the_page),
	UNIT_TEST(test_events_are_asked_for_only_where_they_exist),
};

int
main(int argc, char **argv)
{
	struct ring_config rc = { .entries = 8, .max_bufs = 1, .name = "test" };
	struct err err;
	int res;

	log_level = LOG_LVL_ERROR;
	if (ring_new(&rc, &reactor.ring, &err) < 0) {
		printf("%s\n", err.text);
		return 77;
	}
	in.nr_reactors = 8;
	reactor.in = &in;
	res = unit_main(argc, argv, tests, ARRAY_SIZE(tests));
	drop();
	ring_free(reactor.ring);
	return res;
}
