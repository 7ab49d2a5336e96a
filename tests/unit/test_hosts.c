/* nvme-cli's JSON becomes path configurations; what cannot be done as described is refused with
 * its place. */
#include "initiator/hosts.h"

#include "common/log.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_NQN "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff"
#define HOST_ID  "01020304-0506-0708-090a-0b0c0d0e0f10"

static const uint8_t nqn_id[16] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
	                            0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };
static const uint8_t host_id[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static struct initiator in = { .hostnqn = "nqn.2026-11.io.sluice:me", .hostid = { 42 } };

static struct path_config *paths;
static unsigned nr;
static struct err err;

/* Reads text as the value of "hosts". */
static int
read_text(const char *text)
{
	struct conf *c = conf_parse(text, "hosts.json", &err);
	int res;

	free(paths);
	paths = NULL;
	nr = 0;
	memset(&err, 0, sizeof(err));
	if (!CHECK(c != NULL))
		return -EINVAL;
	res = hosts_read(&in, conf_root(c), NULL, &paths, &nr, &err);
	conf_free(c);
	return res;
}

/* Reads a file that holds one port with these members. */
static int
read_port(const char *members)
{
	char text[1024];

	snprintf(text, sizeof(text),
	         "[ { \"subsystems\": [ { \"nqn\": \"nqn.2026-11.io.sluice:a\", \"ports\": [ {\n"
	         "\"transport\": \"tcp\", \"traddr\": \"192.0.2.1\"%s%s } ] } ] } ]",
	         *members ? ",\n" : "", members);
	return read_text(text);
}

static void
test_a_port_without_more_has_the_defaults_of_nvme_cli(void)
{
	CHECK_EQ(read_port(""), 0);
	if (!CHECK_EQ(nr, 1))
		return;
	CHECK_STR(paths[0].subnqn, "nqn.2026-11.io.sluice:a");
	CHECK_STR(paths[0].traddr, "192.0.2.1");
	CHECK_STR(paths[0].trsvcid, "4420");
	CHECK_STR(paths[0].host_traddr, "");
	CHECK_STR(paths[0].hostnqn, in.hostnqn);
	CHECK_MEM(paths[0].hostid, in.hostid, 16);
	CHECK_EQ(paths[0].nr_io_queues, 0);
	CHECK_EQ(paths[0].queue_size, 128);
	CHECK_EQ(paths[0].keep_alive_tmo, 5);
	CHECK_EQ(paths[0].reconnect_delay, 10);
	CHECK_EQ(paths[0].ctrl_loss_tmo, 600);
	CHECK_EQ(paths[0].fast_io_fail_tmo, -1);
	CHECK(!paths[0].hdr_digest && !paths[0].data_digest);
}

static void
test_every_key_of_a_port_is_taken(void)
{
	CHECK_EQ(read_port("\"trsvcid\": \"4421\", \"host_traddr\": \"192.0.2.9\", "
	                   "\"nr_io_queues\": 4, \"queue_size\": 64, "
	                   "\"hdr_digest\": true, \"data_digest\": 1, \"keep_alive_tmo\": 7, "
	                   "\"reconnect_delay\": 3, "
	                   "\"ctrl_loss_tmo\": -1, \"fast_io_fail_tmo\": \"20\""),
	         0);
	if (!CHECK_EQ(nr, 1))
		return;
	CHECK_STR(paths[0].trsvcid, "4421");
	CHECK_STR(paths[0].host_traddr, "192.0.2.9");
	CHECK_EQ(paths[0].nr_io_queues, 4);
	CHECK_EQ(paths[0].queue_size, 64);
	CHECK(paths[0].hdr_digest && paths[0].data_digest);
	CHECK_EQ(paths[0].keep_alive_tmo, 7);
	CHECK_EQ(paths[0].reconnect_delay, 3);
	CHECK_EQ(paths[0].ctrl_loss_tmo, -1);
	CHECK_EQ(paths[0].fast_io_fail_tmo, 20);
}

static void
test_zero_is_not_given_but_for_ctrl_loss_tmo(void)
{
	CHECK_EQ(read_port("\"queue_size\": 0, \"keep_alive_tmo\": 0, \"reconnect_delay\": 0, "
	                   "\"ctrl_loss_tmo\": 0, "
	                   "\"fast_io_fail_tmo\": 0"),
	         0);
	if (!CHECK_EQ(nr, 1))
		return;
	CHECK_EQ(paths[0].queue_size, 128);
	CHECK_EQ(paths[0].keep_alive_tmo, 5);
	CHECK_EQ(paths[0].reconnect_delay, 10);
	CHECK_EQ(paths[0].ctrl_loss_tmo, 0);
	CHECK_EQ(paths[0].fast_io_fail_tmo, -1);
}

static void
test_hosts_subsystems_and_ports_multiply_and_keep_their_order(void)
{
	CHECK_EQ(read_text(
	        "[ { \"hostnqn\": \"" HOST_NQN "\", \"hostid\": \"" HOST_ID "\", \"subsystems\": ["
	        "  { \"nqn\": \"nqn.2026-11.io.sluice:a\", \"ports\": ["
	        "    { \"transport\": \"tcp\", \"traddr\": \"192.0.2.1\" },"
	        "    { \"transport\": \"tcp\", \"traddr\": \"192.0.2.1\", \"trsvcid\": 4421 },"
	        "    { \"transport\": \"tcp\", \"traddr\": \"2001:db8::1\" } ] },"
	        "  { \"nqn\": \"nqn.2026-11.io.sluice:b\", \"ports\": ["
	        "    { \"transport\": \"tcp\", \"traddr\": \"192.0.2.2\" } ] } ] },"
	        "  { \"hostnqn\": \"" HOST_NQN "\", \"subsystems\": ["
	        "  { \"nqn\": \"nqn.2026-11.io.sluice:c\", \"ports\": ["
	        "    { \"transport\": \"tcp\", \"traddr\": \"192.0.2.3\" } ] } ] } ]"), 0);
	if (!CHECK_EQ(nr, 5))
		return;
	CHECK_STR(paths[0].trsvcid, "4420");
	CHECK_STR(paths[1].trsvcid, "4421");
	CHECK_STR(paths[2].traddr, "2001:db8::1");
	CHECK_STR(paths[3].subnqn, "nqn.2026-11.io.sluice:b");
	CHECK_STR(paths[3].hostnqn, HOST_NQN);
	CHECK_MEM(paths[3].hostid, host_id, 16);
	CHECK_STR(paths[4].subnqn, "nqn.2026-11.io.sluice:c");
	CHECK_MEM(paths[4].hostid, nqn_id, 16);
}

static void
test_one_host_alone_may_stand_inline(void)
{
	CHECK_EQ(read_text("{ \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ "
	                   "{ \"transport\": \"tcp\", \"traddr\": \"::1\" } ] } ] }"), 0);
	CHECK_EQ(nr, 1);
}

static void
test_discovery_ports_are_marked(void)
{
	CHECK_EQ(read_port("\"discovery\": true, \"persistent\": true"), 0);
	if (CHECK_EQ(nr, 1))
		CHECK(paths[0].discovery);
	CHECK_EQ(read_text("{ \"subsystems\": [ {"
	                   "\"nqn\": \"nqn.2014-08.org.nvmexpress.discovery\", \"ports\": ["
	                   "{ \"transport\": \"tcp\", \"traddr\": \"::1\" } ] }, {"
	                   "\"nqn\": \"nqn.x\", \"ports\": ["
	                   "{ \"transport\": \"tcp\", \"traddr\": \"::1\" } ] } ] }"),
	         0);
	if (CHECK_EQ(nr, 2))
		CHECK(paths[0].discovery && !paths[1].discovery);
	CHECK(!strcmp(paths[0].trsvcid, "8009") && !strcmp(paths[1].trsvcid, "4420"));
}

static void
test_a_file_is_read_from_its_directory(void)
{
	static const char text[] =
		"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ "
		"{ \"transport\": \"tcp\", \"traddr\": \"192.0.2.1\" } ] } ] } ]";
	char dir[] = "/tmp/test_hosts.XXXXXX", path[64];
	struct conf *c = conf_parse("\"h.json\"", NULL, NULL);
	FILE *f;

	if (!CHECK(mkdtemp(dir) != NULL) || !CHECK(c != NULL))
		return;
	snprintf(path, sizeof(path), "%s/h.json", dir);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	free(paths);
	paths = NULL;
	CHECK_EQ(hosts_read(&in, conf_root(c), dir, &paths, &nr, &err), 0);
	CHECK_EQ(nr, 1);
	unlink(path);
	free(paths);
	paths = NULL;
	CHECK(hosts_read(&in, conf_root(c), dir, &paths, &nr, &err) < 0);
	CHECK(strstr(err.text, "h.json") != NULL);
	rmdir(dir);
	conf_free(c);
}

/* Each is refused, and the sentence holds these words: the line and the key. */
static const struct {
	const char *members, *says;
} bad_ports[] = {
	{ "\"trsvcid\": 0", "trsvcid" },
	{ "\"trsvcid\": \"nvme\"", "trsvcid" },
	{ "\"host_traddr\": \"eth0\"", "host_traddr" },
	{ "\"host_iface\": \"eth0\"", "host_iface" },
	{ "\"nr_io_queues\": 65", "nr_io_queues" },
	{ "\"queue_size\": 8", "queue_size: must be 16-1024" },
	{ "\"queue_size\": 1025", "queue_size" },
	{ "\"hdr_digest\": \"yes\"", "hdr_digest" },
	{ "\"keep_alive_tmo\": -1", "keep_alive_tmo" },
	{ "\"reconnect_delay\": -1", "reconnect_delay" },
	{ "\"ctrl_loss_tmo\": -2", "ctrl_loss_tmo: must be a whole number from -1" },
	{ "\"ctrl_loss_tmo\": \"--1\"", "ctrl_loss_tmo" },
	{ "\"fast_io_fail_tmo\": 1.5", "fast_io_fail_tmo" },
	{ "\"tls\": true", "TLS" },
	{ "\"dhchap_key\": \"DHHC-1:00:x:\"", "authentication" },
};

static void
test_a_bad_value_is_refused_with_its_place(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_ports); i++) {
		unit_row("%s", bad_ports[i].members);
		CHECK(read_port(bad_ports[i].members) < 0);
		CHECK(strstr(err.text, "hosts.json:3") != NULL);
		CHECK(strstr(err.text, bad_ports[i].says) != NULL);
	}
}

static const struct {
	const char *text, *says;
} bad_texts[] = {
	{"5", "must be an array of hosts"},
	{"[ 5 ]", "[0]"},
	{"[ { \"hostnqn\": \"me\" } ]", "hostnqn"},
	{"[ { \"hostid\": \"me\" } ]", "hostid"},
	{"[ { \"hostid\": \"00000000-0000-0000-0000-000000000000\" } ]", "not zero"},
	{"[ { \"dhchap_key\": \"x\" } ]", "authentication"},
	{"[ { \"subsystems\": {} } ]", "subsystems"},
	{"[ { \"subsystems\": [ {} ] } ]", "nqn"},
	{"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ { \"traddr\": \"::1\" } ] } ] } "
	 "]",
	 "transport"},
	{"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ { \"transport\": \"tcp\" } ] } "
	 "] } ]",
	 "traddr"},
	{"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ "
	 "{ \"transport\": \"rdma\", \"traddr\": \"::1\" } ] } ] } ]",
	 "tcp"},
	{"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ "
	 "{ \"transport\": \"tcp\", \"traddr\": \"disks.example\" } ] } ] } ]",
	 "in numbers"},
	{"[ { \"subsystems\": [ { \"nqn\": \"nqn.x\", \"ports\": [ "
	 "{ \"transport\": \"tcp\", \"traddr\": \"::1\" }, { \"transport\": \"tcp\", \"traddr\": "
	 "\"::1\" } ] } ] } ]",
	 "there already"},
};

static void
test_a_bad_structure_is_refused_with_its_place(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_texts); i++) {
		unit_row("%s", bad_texts[i].text);
		CHECK(read_text(bad_texts[i].text) < 0);
		CHECK(strstr(err.text, "hosts.json:1") != NULL);
		CHECK(strstr(err.text, bad_texts[i].says) != NULL);
		CHECK(paths == NULL);
	}
}

static void
test_identity_is_an_nqn_and_an_id_that_is_not_zero(void)
{
	static const uint8_t zero[16];
	struct initiator me = { 0 };

	CHECK_EQ(hosts_identity(&me, &err), 0);
	CHECK(strncmp(me.hostnqn, "nqn.", 4) == 0);
	CHECK(memcmp(me.hostid, zero, 16) != 0);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_a_port_without_more_has_the_defaults_of_nvme_cli),
	UNIT_TEST(test_every_key_of_a_port_is_taken),
	UNIT_TEST(test_zero_is_not_given_but_for_ctrl_loss_tmo),
	UNIT_TEST(test_hosts_subsystems_and_ports_multiply_and_keep_their_order),
	UNIT_TEST(test_one_host_alone_may_stand_inline),
	UNIT_TEST(test_discovery_ports_are_marked),
	UNIT_TEST(test_a_file_is_read_from_its_directory),
	UNIT_TEST(test_a_bad_value_is_refused_with_its_place),
	UNIT_TEST(test_a_bad_structure_is_refused_with_its_place),
	UNIT_TEST(test_identity_is_an_nqn_and_an_id_that_is_not_zero),
};

int
main(int argc, char **argv)
{
	int res;

	log_level = LOG_LVL_ERROR;
	res = unit_main(argc, argv, tests, ARRAY_SIZE(tests));
	free(paths);
	return res;
}
