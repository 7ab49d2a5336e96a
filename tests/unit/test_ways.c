/* What is made of a discovery log: ways, referrals, and what cannot be used. */
#include "initiator/ways.h"

#include "common/nvme.h"
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 100 };

static const struct path_config from = {
	.subnqn = NVME_DISC_SUBSYS_NAME,
	.hostnqn = "nqn.me",
	.hostid = { 7 },
	.traddr = "192.0.2.1",
	.trsvcid = "8009",
	.host_traddr = "192.0.2.200",
	.queue_size = 64,
	.data_digest = true,
	.ctrl_loss_tmo = -1,
	.discovery = true,
};

static struct nvmf_discovery_log *plog;
static struct ways_found found;

static struct nvmf_disc_log_entry *
add(const char *nqn, const char *traddr, const char *trsvcid)
{
	uint64_t n = le64toh(plog->numrec);
	struct nvmf_disc_log_entry *e = &plog->entries[n];

	plog->numrec = htole64(n + 1);
	memset(e, 0, sizeof(*e));
	e->trtype = NVMF_TRTYPE_TCP;
	e->adrfam = NVMF_ADDR_FAMILY_IP4;
	e->subtype = NVME_NQN_NVME;
	snprintf(e->subnqn, sizeof(e->subnqn), "%s", nqn);
	snprintf(e->traddr, sizeof(e->traddr), "%s", traddr);
	snprintf(e->trsvcid, sizeof(e->trsvcid), "%s", trsvcid);
	return e;
}

static void
begin(void)
{
	plog->numrec = 0;
}

static void
look(void)
{
	free(found.to);
	CHECK_EQ(ways_read(&from, plog, &found), 0);
}

static void
test_way_has_the_settings_of_the_entry_that_led_to_it(void)
{
	begin();
	add("nqn.a", "192.0.2.5", "4420");
	add("nqn.b", "2001:db8::1", "4421")->adrfam = NVMF_ADDR_FAMILY_IP6;
	look();
	if (!CHECK_EQ(found.nr, 2))
		return;
	CHECK_STR(found.to[0].subnqn, "nqn.a");
	CHECK_STR(found.to[0].traddr, "192.0.2.5");
	CHECK_STR(found.to[0].trsvcid, "4420");
	CHECK_STR(found.to[0].hostnqn, "nqn.me");
	CHECK_STR(found.to[0].host_traddr, "192.0.2.200");
	CHECK(path_same_settings(&found.to[0], &found.to[1]));
	CHECK(!found.to[0].discovery && found.to[0].data_digest);
	CHECK_EQ(found.to[0].queue_size, 64);
	CHECK_EQ(found.to[0].ctrl_loss_tmo, -1);
	CHECK_STR(found.to[1].traddr, "2001:db8::1");
	CHECK_EQ(found.unusable, 0);
}

static void
test_referrals_are_discovery_controllers_and_the_log_itself_is_none(void)
{
	begin();
	add(NVME_DISC_SUBSYS_NAME, "192.0.2.7", "8009")->subtype = NVME_NQN_DISC;
	add(NVME_DISC_SUBSYS_NAME, "192.0.2.1", "8009")->subtype = NVME_NQN_CURR;
	look();
	CHECK_EQ(found.nr, 0);
	CHECK_EQ(found.unusable, 0);
	if (!CHECK_EQ(found.nr_referrals, 1))
		return;
	CHECK(found.referrals[0].discovery);
	CHECK_STR(found.referrals[0].traddr, "192.0.2.7");
}

static void
test_referrals_end_at_our_limit(void)
{
	char addr[32];

	begin();
	for (unsigned i = 0; i < REFERRALS_MAX + 5; i++) {
		snprintf(addr, sizeof(addr), "192.0.2.%u", i);
		add(NVME_DISC_SUBSYS_NAME, addr, "8009")->subtype = NVME_NQN_DISC;
	}
	look();
	CHECK_EQ(found.nr_referrals, REFERRALS_MAX);
	CHECK_EQ(found.unusable, 5);
	CHECK_STR(found.why, "too many referrals");
}

static const struct {
	const char *nqn, *traddr, *trsvcid, *why;
} bad[] = {
	{ "", "192.0.2.5", "4420", "no NQN" },
	{ "nqn with blanks", "192.0.2.5", "4420", "no NQN" },
	{ "nqn.a", "disks.example", "4420", "no address and port in numbers" },
	{ "nqn.a", "2001:db8::1", "4420", "no address and port in numbers" }, /* says it is IPv4 */
	{ "nqn.a", "", "4420", "no address and port in numbers" },
	{ "nqn.a", "192.0.2.5", "", "no address and port in numbers" },
	{ "nqn.a", "192.0.2.5", "0", "no address and port in numbers" },
	{ "nqn.a", "192.0.2.5", "65536", "no address and port in numbers" },
	{ "nqn.a", "192.0.2.5", "4420x", "no address and port in numbers" },
};

static void
test_record_that_cannot_be_is_left_out_and_why_is_told(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		unit_row("%s %s %s", bad[i].nqn, bad[i].traddr, bad[i].trsvcid);
		begin();
		add(bad[i].nqn, bad[i].traddr, bad[i].trsvcid);
		add("nqn.good", "192.0.2.5", "4420");
		look();
		CHECK_EQ(found.nr, 1);
		CHECK_EQ(found.unusable, 1);
		CHECK_STR(found.why, bad[i].why);
	}
}

static void
test_record_of_another_kind_is_left_out(void)
{
	begin();
	add("nqn.a", "192.0.2.5", "4420")->trtype = NVMF_TRTYPE_RDMA;
	add("nqn.a", "192.0.2.5", "4420")->treq = NVMF_TREQ_REQUIRED | NVMF_TREQ_DISABLE_SQFLOW;
	add("nqn.a", "192.0.2.5", "4420")->tsas.tcp.sectype = NVMF_TCP_SECTYPE_TLS13;
	add("nqn.a", "192.0.2.5", "4420")->subtype = 0;
	add("nqn.a", "192.0.2.5", "4420")->treq = NVMF_TREQ_NOT_REQUIRED;
	look();
	CHECK_EQ(found.nr, 1);
	CHECK_EQ(found.unusable, 4);
	CHECK_STR(found.why, "another transport than TCP");
}

static void
test_fields_without_an_end_do_not_run_into_the_next(void)
{
	struct nvmf_disc_log_entry *e;

	begin();
	e = add("nqn.a", "192.0.2.5", "4420");
	memset(e->subnqn, 'n', sizeof(e->subnqn));
	e = add("nqn.a", "192.0.2.5", "4420");
	memset(e->traddr, '1', sizeof(e->traddr));
	e = add("nqn.a", "192.0.2.5", "4420");
	memset(e->trsvcid, '4', sizeof(e->trsvcid));
	e = add("nqn.a", "192.0.2.5", "4420");
	memset(e->subnqn + 5, ' ', sizeof(e->subnqn) - 5);
	memset(e->trsvcid + 4, ' ', sizeof(e->trsvcid) - 4);
	look();
	CHECK_EQ(found.unusable, 3);
	if (CHECK_EQ(found.nr, 1))
		CHECK_STR(found.to[0].subnqn, "nqn.a");
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_way_has_the_settings_of_the_entry_that_led_to_it),
	UNIT_TEST(test_referrals_are_discovery_controllers_and_the_log_itself_is_none),
	UNIT_TEST(test_referrals_end_at_our_limit),
	UNIT_TEST(test_record_that_cannot_be_is_left_out_and_why_is_told),
	UNIT_TEST(test_record_of_another_kind_is_left_out),
	UNIT_TEST(test_fields_without_an_end_do_not_run_into_the_next),
};

int
main(int argc, char **argv)
{
	int res;

	plog = calloc(1, sizeof(*plog) + ROOM * sizeof(plog->entries[0]));
	res = unit_main(argc, argv, tests, ARRAY_SIZE(tests));
	free(found.to);
	free(plog);
	return res;
}
