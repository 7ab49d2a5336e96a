/* Log pages: order and wrap of the error log, sums and units of SMART, the changed list, and that
 * what the effects logs say is what is served. */
#include "target/logpage.h"

#include "target/admin_table.h"

#include "tests/lib/unit.h"

#include <endian.h>

static struct target t;
static struct subsys s;
static struct ctrl c;

static void
set_up(void)
{
	memset(&t, 0, sizeof(t));
	memset(&s, 0, sizeof(s));
	memset(&c, 0, sizeof(c));
	pthread_mutex_init(&t.lock, NULL);
	t.nr_reactors = 2;
	s.t = &t;
	c.subsys = &s;
	c.feat[NVME_FEAT_FID_TEMP_THRESH] = TEMP_WARNING;
}

/* ---- error log ---- */

static void
fail(uint16_t cid)
{
	struct conn conn = { .qid = 2 };
	struct cmd cmd = { .conn = &conn, .cid = cid };

	cmd.sqe.opcode = nvme_cmd_read;
	cmd.sqe.nsid = le32_put(3);
	cmd.sqe.cdw10 = le32_put(0x11223344);
	cmd.sqe.cdw11 = le32_put(0x55);
	ctrl_log_error(&c, &cmd, NVME_NO_RETRY(NVME_SC_LBA_RANGE));
}

static void
test_error_log_has_the_newest_first(void)
{
	static struct nvme_error_log_page log[CTRL_ERRORS];

	set_up();
	memset(log, 0, sizeof(log));
	log_errors(&c, log);
	CHECK_EQ(log[0].error_count, 0);
	fail(10);
	fail(11);
	log_errors(&c, log);
	CHECK_EQ(le64toh(log[0].error_count), 2);
	CHECK_EQ(le16toh(log[0].cmdid), 11);
	CHECK_EQ(le64toh(log[1].error_count), 1);
	CHECK_EQ(le16toh(log[1].cmdid), 10);
	CHECK_EQ(log[2].error_count, 0);
	CHECK_EQ(le16toh(log[0].sqid), 2);
	CHECK_EQ(le32toh(log[0].nsid), 3);
	CHECK_EQ(le64toh(log[0].lba), UINT64_C(0x5511223344));
	CHECK_EQ(le16toh(log[0].status_field), (0x4080 << 1) & 0xffff);
}

static void
test_error_log_keeps_the_last_64(void)
{
	static struct nvme_error_log_page log[CTRL_ERRORS];

	set_up();
	for (uint16_t i = 1; i <= CTRL_ERRORS + 6; i++)
		fail(i);
	log_errors(&c, log);
	CHECK_EQ(le16toh(log[0].cmdid), CTRL_ERRORS + 6);
	CHECK_EQ(le16toh(log[CTRL_ERRORS - 1].cmdid), 7);
}

/* ---- SMART ---- */

static void
test_smart_sums_reactors_and_namespaces_and_rounds_up(void)
{
	static struct ns a, b;
	struct nvme_smart_log log = { 0 };

	set_up();
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	s.ns[0] = &a;
	s.ns[9] = &b;
	a.h[0].stats.reads = 1;
	a.h[1].stats.reads = 2;
	b.h[1].stats.reads = 4;
	a.h[0].stats.read_bytes = 512000;
	b.h[0].stats.read_bytes = 1;
	b.h[0].stats.writes = 9;
	b.h[0].stats.write_bytes = 512000;
	log_smart(&c, NULL, 2 * 3600000 + 5, &log);
	CHECK_EQ(log.host_reads[0], 7);
	CHECK_EQ(log.data_units_read[0], 2);
	CHECK_EQ(log.host_writes[0], 9);
	CHECK_EQ(log.data_units_written[0], 1);
	CHECK_EQ(log.power_on_hours[0], 2);
	memset(&log, 0, sizeof(log));
	log_smart(&c, &a, 0, &log);
	CHECK_EQ(log.host_reads[0], 3);
	CHECK_EQ(log.host_writes[0], 0);
}

static void
test_smart_warns_of_thresholds_that_are_passed(void)
{
	static const struct { uint16_t over, under; bool warns; } rows[] = {
		{ TEMP_WARNING, 0, false },  { TEMP_NOW + 1, TEMP_NOW - 1, false },
		{ TEMP_NOW, 0, true },       { 0, 0, true },
		{ TEMP_WARNING, TEMP_NOW, true }, { 0xffff, 0xffff, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nvme_smart_log log = { 0 };

		unit_row("over %u under %u", rows[i].over, rows[i].under);
		set_up();
		c.feat[NVME_FEAT_FID_TEMP_THRESH] = rows[i].over | (uint32_t)rows[i].under << 16;
		log_smart(&c, NULL, 0, &log);
		CHECK_EQ(log.critical_warning, rows[i].warns ? 2 : 0);
	}
}

/* ---- lists ---- */

static void
test_changed_list_is_ascending_and_holds_all(void)
{
	static struct nvme_ns_list list;

	set_up();
	memset(&list, 0, sizeof(list));
	c.changed_ns[0] = BIT(0) | BIT(31);
	c.changed_ns[NS_MAX / 32 - 1] = BIT(31);
	log_changed_ns(&c, &list);
	CHECK_EQ(le32toh(list.ns[0]), 1);
	CHECK_EQ(le32toh(list.ns[1]), 32);
	CHECK_EQ(le32toh(list.ns[2]), NS_MAX);
	CHECK_EQ(list.ns[3], 0);
	memset(c.changed_ns, 0xff, sizeof(c.changed_ns));
	log_changed_ns(&c, &list);
	CHECK_EQ(le32toh(list.ns[NS_MAX - 1]), NS_MAX);
}

static void
test_effects_say_what_is_served(void)
{
	static struct nvme_cmd_effects_log log;
	char dir[] = "/srv";

	set_up();
	memset(&log, 0, sizeof(log));
	log_effects(&s, false, &log);
	CHECK_EQ(log.acs[nvme_admin_identify], NVME_CMD_EFFECTS_CSUPP);
	CHECK_EQ(log.acs[nvme_admin_ns_mgmt], 0);
	CHECK_EQ(log.acs[nvme_admin_create_sq], 0);
	CHECK_EQ(log.acs[nvme_admin_sanitize_nvm], 0);
	CHECK(log.acs[nvme_admin_format_nvm] & NVME_CMD_EFFECTS_LBCC);
	CHECK_EQ(log.iocs[nvme_cmd_read], NVME_CMD_EFFECTS_CSUPP);
	CHECK_EQ(log.iocs[nvme_cmd_write], NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC);
	CHECK_EQ(log.iocs[nvme_cmd_resv_register], 0);
	s.ns_dir = dir;
	log_effects(&s, false, &log);
	CHECK(log.acs[nvme_admin_ns_mgmt] & NVME_CMD_EFFECTS_NIC);
}

static void
test_supported_pages_of_a_discovery_controller_are_its_own(void)
{
	static struct nvme_supported_log_pages log;

	set_up();
	memset(&log, 0, sizeof(log));
	log_supported(&s, &log);
	CHECK_EQ(log.lid_support[NVME_LOG_LID_SMART], 1);
	CHECK_EQ(log.lid_support[NVME_LOG_LID_DISCOVER], 0);
	CHECK_EQ(log.lid_support[NVME_LOG_LID_ANA], 0);
	s.discovery = true;
	log_supported(&s, &log);
	CHECK_EQ(log.lid_support[NVME_LOG_LID_SMART], 0);
	CHECK_EQ(log.lid_support[NVME_LOG_LID_DISCOVER], 1);
}

static void
test_feature_effects_tell_their_scope(void)
{
	static struct nvme_fid_supported_effects_log log;

	set_up();
	memset(&log, 0, sizeof(log));
	log_feature_effects(&s, &log);
	CHECK_EQ(log.fid_support[NVME_FEAT_FID_KATO], 1 | 1 << 21);
	CHECK_EQ(log.fid_support[NVME_FEAT_FID_WRITE_PROTECT], 1 | 1 << 2 | 1 << 20);
	CHECK_EQ(log.fid_support[NVME_FEAT_FID_LBA_RANGE], 0);
	s.discovery = true;
	CHECK_EQ(admin_feature_effects(&s, NVME_FEAT_FID_NUM_QUEUES), 0);
	CHECK(admin_feature_effects(&s, NVME_FEAT_FID_ASYNC_EVENT) != 0);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_error_log_has_the_newest_first),
	UNIT_TEST(test_error_log_keeps_the_last_64),
	UNIT_TEST(test_smart_sums_reactors_and_namespaces_and_rounds_up),
	UNIT_TEST(test_smart_warns_of_thresholds_that_are_passed),
	UNIT_TEST(test_changed_list_is_ascending_and_holds_all),
	UNIT_TEST(test_effects_say_what_is_served),
	UNIT_TEST(test_supported_pages_of_a_discovery_controller_are_its_own),
	UNIT_TEST(test_feature_effects_tell_their_scope),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
