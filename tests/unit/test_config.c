/* Configurations: what is read, what is refused and where the message points, the one-line form. */
#include "target/config_plain.h"

#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* What nvmetcli 0.7 saves, unabridged. */
static const char nvmetcli[] =
	"{\n"
	"  \"hosts\": [ { \"nqn\": \"hostnqn\" } ],\n"
	"  \"ports\": [\n"
	"    {\n"
	"      \"addr\": { \"adrfam\": \"ipv4\", \"traddr\": \"192.0.2.1\", \"treq\": \"not "
	"specified\",\n"
	"                \"trsvcid\": \"4420\", \"trtype\": \"tcp\", \"tsas\": \"none\" },\n"
	"      \"ana_groups\": [ { \"ana\": { \"state\": \"optimized\" }, \"grpid\": 1 } ],\n"
	"      \"param\": { \"inline_data_size\": \"16384\", \"pi_enable\": \"0\" },\n"
	"      \"portid\": 2,\n"
	"      \"referrals\": [ { \"addr\": { \"adrfam\": \"ipv6\", \"portid\": 7, \"traddr\": "
	"\"2001:db8::1\",\n"
	"                       \"trsvcid\": \"8009\", \"trtype\": \"tcp\" }, \"enable\": 1, "
	"\"name\": \"r\" } ],\n"
	"      \"subsystems\": [ \"testnqn\" ]\n"
	"    }\n"
	"  ],\n"
	"  \"subsystems\": [\n"
	"    {\n"
	"      \"allowed_hosts\": [ \"hostnqn\" ],\n"
	"      \"attr\": { \"allow_any_host\": \"0\", \"cntlid_max\": \"200\", \"cntlid_min\": "
	"\"100\",\n"
	"                \"model\": \"Linux\", \"serial\": \"8d8e4ba0\", \"version\": \"1.3\" },\n"
	"      \"namespaces\": [\n"
	"        { \"ana\": { \"grpid\": 1 }, \"ana_grpid\": 1,\n"
	"          \"device\": { \"nguid\": \"ef90689c-6c46-d44c-89c1-4067801309a8\",\n"
	"                      \"path\": \"/dev/nvme0n1\",\n"
	"                      \"uuid\": \"39f36ae4-2870-4b3e-8e5a-6b6a1a6b7f11\" },\n"
	"          \"enable\": 1, \"nsid\": 1 },\n"
	"        { \"device\": { \"path\": \"/dev/nvme1n1\" }, \"enable\": 0, \"nsid\": 2 }\n"
	"      ],\n"
	"      \"nqn\": \"testnqn\"\n"
	"    }\n"
	"  ]\n"
	"}\n";

static void
test_config_reads_what_nvmetcli_saves(void)
{
	struct err err = { 0 };
	struct config *c;

	if (!CHECK_EQ(config_parse(nvmetcli, "n.json", &c, &err), 0))
		return;
	CHECK_EQ(c->nr_ports, 1);
	CHECK_EQ(c->ports[0].id, 2);
	CHECK_STR(c->ports[0].traddr, "192.0.2.1");
	CHECK_STR(c->ports[0].trsvcid, "4420");
	CHECK_EQ(c->ports[0].nr_links, 1);
	CHECK_EQ(c->ports[0].nr_referrals, 1);
	CHECK_STR(c->ports[0].referrals[0].traddr, "2001:db8::1");
	CHECK(c->ports[0].referrals[0].ipv6);
	CHECK_EQ(c->ports[0].referrals[0].portid, 7);
	CHECK_EQ(c->nr_subsys, 1);
	CHECK_STR(c->subsys[0].nqn, "testnqn");
	CHECK_STR(c->subsys[0].serial, "8d8e4ba0");
	CHECK_STR(c->subsys[0].model, "Linux");
	CHECK(!c->subsys[0].allow_any_host);
	CHECK_EQ(c->subsys[0].cntlid_min, 100);
	CHECK_EQ(c->subsys[0].cntlid_max, 200);
	CHECK_EQ(c->subsys[0].nr_hosts, 1);
	CHECK_STR(c->subsys[0].hosts[0], "hostnqn");
	CHECK_EQ(c->subsys[0].nr_ns, 1); /* the second is not enabled */
	CHECK_EQ(c->subsys[0].ns[0].ns.nsid, 1);
	CHECK_STR(c->subsys[0].ns[0].ns.spec, "file:/dev/nvme0n1");
	CHECK_EQ(c->subsys[0].ns[0].ns.uuid[0], 0x39);
	CHECK_EQ(c->subsys[0].ns[0].ns.nguid[15], 0xa8);
	CHECK_EQ(c->discovery_port, 8009);
	CHECK(!c->discovery_explicit);
	config_free(c);
}

static void
test_config_reads_every_setting(void)
{
	struct err err = { 0 };
	struct config *c;

	if (!CHECK_EQ(config_parse("{\"sluice\":{\"reactors\":2,\"connections\":7,\"queues\":\"3\","
	                           "\"depth\":64,\"controllers\":5,\"mdts\":\"128K\","
	                           "\"in_capsule\":4096,\"buffers\":\"16M\",\"poll_us\":50,"
	                           "\"handshake_timeout\":\"500ms\",\"header_timeout\":2,"
	                           "\"zero_copy\":\"never\",\"compress\":false,\"pin\":true,\"control\":\"/x\","
	                           "\"discovery_port\":false}}",
	                           "s.json", &c, &err), 0))
		return;
	CHECK_EQ(c->limits.reactors, 2);
	CHECK_EQ(c->limits.connections, 7);
	CHECK_EQ(c->limits.queues, 3);
	CHECK_EQ(c->limits.depth, 64);
	CHECK_EQ(c->limits.controllers, 5);
	CHECK_EQ(c->limits.mdts, 128 << 10);
	CHECK_EQ(c->limits.in_capsule, 4096);
	CHECK_EQ(c->limits.buffers, 16 << 20);
	CHECK_EQ(c->limits.poll_us, 50);
	CHECK_EQ(c->limits.handshake_ms, 500);
	CHECK_EQ(c->limits.header_ms, 2000);
	CHECK_EQ(c->limits.zero_copy, CHAN_ZC_NEVER);
	CHECK(!c->limits.compress);
	CHECK(c->limits.pin);
	CHECK_STR(config_control(c), "/x");
	CHECK_EQ(c->discovery_port, 0);
	config_free(c);
}

static void
test_config_defaults_stand_where_nothing_is_said(void)
{
	struct config *c;

	if (!CHECK_EQ(config_parse("{}", "e.json", &c, NULL), 0))
		return;
	CHECK(!memcmp(config_limits(c), &config_default_limits, sizeof(struct limits)));
	CHECK(!config_control(c));
	CHECK_EQ(c->discovery_port, 8009);
	config_free(c);
}

static void
test_config_namespace_keys_become_a_spec(void)
{
	static const struct { const char *own, *path, *spec; } rows[] = {
		{ "{}", "/a", "file:/a" },
		{ "{\"size\":\"1G\"}", "/a", "file:/a,size=1073741824" },
		{ "{\"block_size\":4096,\"direct\":\"off\",\"readonly\":true}", "/a",
		  "file:/a,bs=4096,direct=off,ro" },
		{ "{\"direct\":\"auto\",\"readonly\":0}", "file:/a", "file:/a" },
		{ "{}", "ram:1G", "ram:1G" },
		{ "{\"block_size\":4096}", "null:1T", "null:1T,bs=4096" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct config *c;
		struct err err = { 0 };
		char text[600];

		unit_row("%s", rows[i].spec);
		snprintf(text, sizeof(text),
			 "{\"subsystems\":[{\"nqn\":\"n\",\"namespaces\":[{\"nsid\":9,"
			 "\"device\":{\"path\":\"%s\"},\"sluice\":%s}]}]}",
			 rows[i].path, rows[i].own);
		if (!CHECK_EQ(config_parse(text, "x", &c, &err), 0))
			continue;
		CHECK_STR(c->subsys[0].ns[0].ns.spec, rows[i].spec);
		CHECK(c->subsys[0].ns[0].ns.auto_attach);
		config_free(c);
	}
}

#define SUBSYS(members) "{\"subsystems\":[{\"nqn\":\"n\"," members "}]}"
#define NS(members)     SUBSYS("\"namespaces\":[{" members "}]")
#define PORT(members)   "{\"subsystems\":[{\"nqn\":\"n\"}],\"ports\":[" members "]}"
#define ADDR            "\"addr\":{\"traddr\":\"127.0.0.1\"}"
#define LONG_NQN        "0123456789012345678901234567890123456789012345678901234567890123456789" \
	                "0123456789012345678901234567890123456789012345678901234567890123456789" \
	                "0123456789012345678901234567890123456789012345678901234567890123456789"

static void
test_config_refuses_and_says_where(void)
{
	static const struct { const char *text, *place, *what;
	} rows[] = {
		{"[]", "x:1", "object"},
		{"{\n\"sluice\":{\"reactors\":0}}", "x:2: sluice.reactors", "1-64"},
		{"{\"sluice\":{\"reactors\":65}}", "sluice.reactors", "64"},
		{"{\"sluice\":{\"reactor\":1}}", "sluice.reactor", "reactors"},
		{"{\"sluice\":{\"depth\":1025}}", "sluice.depth", "1024"},
		{"{\"sluice\":{\"queues\":129}}", "sluice.queues", "128"},
		{"{\"sluice\":{\"mdts\":\"96K\"}}", "sluice.mdts", "power of two"},
		{"{\"sluice\":{\"mdts\":\"4M\"}}", "sluice.mdts", "2M"},
		{"{\"sluice\":{\"in_capsule\":100}}", "sluice.in_capsule", "multiple of 16"},
		{"{\"sluice\":{\"buffers\":\"1M\"}}", "sluice", "two transfers"},
		{"{\"sluice\":{\"zero_copy\":\"maybe\"}}", "sluice.zero_copy", "never"},
		{"{\"sluice\":{\"discovery_port\":65536}}", "sluice.discovery_port", "65535"},
		{"{\"sluice\":{\"handshake_timeout\":0}}", "sluice.handshake_timeout", "100"},
		{"{\"hosts\":[{}]}", "hosts[0]", "nqn"},
		{"{\"hosts\":[{\"nqn\":\"h\",\"dhchap_key\":\"DHHC-1:00:x\"}]}",
		 "hosts[0].dhchap_key", "authentication"},
		{"{\"subsystems\":[{}]}", "subsystems[0]", "nqn"},
		{"{\"subsystems\":[{\"nqn\":\"\"}]}", "subsystems[0].nqn", "empty"},
		{"{\"subsystems\":[{\"nqn\":\"" LONG_NQN LONG_NQN "\"}]}", "subsystems[0].nqn",
		 "223"},
		{"{\"subsystems\":[{\"nqn\":\"a\\u0001\"}]}", "subsystems[0].nqn", "control"},
		{"{\"subsystems\":[{\"nqn\":\"" DISCOVERY_NQN "\"}]}", "subsystems[0].nqn",
		 "discovery"},
		{"{\"subsystems\":[{\"nqn\":\"a\"},{\"nqn\":\"a\"}]}", "subsystems[1].nqn",
		 "twice"},
		{SUBSYS("\"attr\":{\"serial\":\"123456789012345678901\"}"), "attr.serial", "20"},
		{SUBSYS("\"attr\":{\"model\":\"\\u00e9\"}"), "attr.model", "ASCII"},
		{SUBSYS("\"attr\":{\"allow_any_host\":\"x\"}"), "attr.allow_any_host", ""},
		{SUBSYS("\"attr\":{\"cntlid_min\":9,\"cntlid_max\":8}"), "attr", "cntlid_min"},
		{SUBSYS("\"allowed_hosts\":[\"h\",\"h\"]"), "allowed_hosts[1]", "twice"},
		{SUBSYS("\"allowed_hosts\":[\"\"]"), "allowed_hosts[0]", "empty"},
		{SUBSYS("\"sluice\":{\"nsdir\":\"/x\"}"), "sluice.nsdir", "ns_dir"},
		{NS("\"device\":{\"path\":\"/a\"}"), "namespaces[0]", "nsid"},
		{NS("\"nsid\":1"), "namespaces[0]", "device"},
		{NS("\"nsid\":0,\"device\":{\"path\":\"/a\"}"), "namespaces[0].nsid", "1-1024"},
		{NS("\"nsid\":1025,\"device\":{\"path\":\"/a\"}"), "namespaces[0].nsid", "1024"},
		{NS("\"nsid\":1,\"device\":{}"), "device", "path"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"\"}"), "device.path", "empty"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"ram:x\"}"), "device.path", "size"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"/a\",\"uuid\":\"q\"}"), "device.uuid",
		 "16 bytes"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"/a\",\"eui64\":\"0011\"}"), "device.eui64",
		 "8 bytes"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"/a\"},\"sluice\":{\"block_size\":1024}"),
		 "sluice.block_size", "4096"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"/a\"}},{\"nsid\":1,\"device\":{\"path\":\"/"
		    "b\"}"),
		 "namespaces[1]", "twice"},
		{NS("\"nsid\":1,\"device\":{\"path\":\"/a\",\"eui64\":\"0011223344556677\"}},"
		    "{\"nsid\":2,\"device\":{\"path\":\"/b\",\"eui64\":\"0011223344556677\"}"),
		 "namespaces[1]", "same id"},
		{PORT("{\"portid\":1}"), "ports[0]", "addr"},
		{PORT("{" ADDR "}"), "ports[0]", "portid"},
		{PORT("{\"portid\":0," ADDR "}"), "ports[0].portid", "65535"},
		{PORT("{\"portid\":1,\"addr\":{}}"), "ports[0].addr", "traddr"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"host\"}}"), "addr.traddr", "host"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"1\"}}"), "addr.traddr", "address"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"adrfam\":\"ipv4\"}}"),
		 "addr.adrfam", "ipv6"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"trsvcid\":\"x\"}}"),
		 "addr.trsvcid", ""},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"treq\":\"required\"}}"),
		 "addr.treq", "secure"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"tsas\":\"tls1.3\"}}"),
		 "addr.tsas", "TLS"},
		{PORT("{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"trtype\":\"rdma\"}}"), "ports",
		 "only trtype tcp"},
		{PORT("{\"portid\":1," ADDR ",\"subsystems\":[\"m\"]}"), "ports[0].subsystems[0]",
		 "no subsystem 'm'"},
		{PORT("{\"portid\":1," ADDR ",\"subsystems\":[\"n\",\"n\"]}"), "subsystems[1]",
		 "twice"},
		{PORT("{\"portid\":1," ADDR "},{\"portid\":1,\"addr\":{\"traddr\":\"::1\"}}"),
		 "ports[1]", "twice"},
		{PORT("{\"portid\":1," ADDR "},{\"portid\":2," ADDR "}"), "ports[1]",
		 "same address"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { 0 };
		struct config *c = NULL;

		unit_row("%s", rows[i].text);
		if (!CHECK(config_parse(rows[i].text, "x", &c, &err) < 0)) {
			config_free(c);
			continue;
		}
		CHECK(err.code < 0);
		if (!strstr(err.text, rows[i].place) || !strstr(err.text, rows[i].what))
			CHECK_STR(err.text, rows[i].place);
	}
}

static void
test_config_names_of_223_bytes_in_any_form_are_taken(void)
{
	struct config *c;
	char text[1200];
	char nqn[NVME_NQN_MAX + 1];

	memset(nqn, 'x', sizeof(nqn) - 1);
	nqn[NVME_NQN_MAX] = 0;
	snprintf(text, sizeof(text),
		 "{\"subsystems\":[{\"nqn\":\"%s\",\"allowed_hosts\":[\"%s\"]}]}", nqn, nqn);
	if (!CHECK_EQ(config_parse(text, "x", &c, NULL), 0))
		return;
	CHECK_STR(c->subsys[0].nqn, nqn);
	CHECK_STR(c->subsys[0].hosts[0], nqn);
	config_free(c);
}

static void
test_config_a_port_of_another_transport_is_left_out(void)
{
	struct config *c;

	if (!CHECK_EQ(config_parse(
			      PORT("{\"portid\":1,\"addr\":{\"trtype\":\"rdma\",\"traddr\":\"x\"}},"
				   "{\"portid\":2," ADDR "}"),
			      "x", &c, NULL),
		      0))
		return;
	CHECK_EQ(c->nr_ports, 1);
	CHECK_EQ(c->ports[0].id, 2);
	config_free(c);
}

static void
test_config_listen_is_split_into_address_and_port(void)
{
	static const struct { const char *text, *addr, *svc; bool ipv6; } rows[] = {
		{ "127.0.0.1:4420", "127.0.0.1", "4420", false },
		{ "127.0.0.1", "127.0.0.1", "4420", false },
		{ "0.0.0.0:0", "0.0.0.0", "0", false },
		{ "[::1]:4421", "::1", "4421", true },
		{ "[::1]", "::1", "4420", true },
		{ "::1", "::1", "4420", true },
		{ "127.0.0.1:65536", NULL, NULL, false },
		{ "127.0.0.1:", NULL, NULL, false },
		{ "127.0.0.1:x", NULL, NULL, false },
		{ "[::1]x", NULL, NULL, false },
		{ "[::1", NULL, NULL, false },
		{ "localhost:1", NULL, NULL, false },
		{ "127.1:1", NULL, NULL, false },
		{ "", NULL, NULL, false },
		{ ":1", NULL, NULL, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct config_port p = { 0 };
		int ret;

		unit_row("'%s'", rows[i].text);
		ret = config_parse_listen(rows[i].text, &p, NULL);
		if (!CHECK_EQ(ret, rows[i].addr ? 0 : -EINVAL) || ret)
			continue;
		CHECK_STR(p.traddr, rows[i].addr);
		CHECK_STR(p.trsvcid, rows[i].svc);
		CHECK_EQ(p.ipv6, rows[i].ipv6);
	}
}

static void
test_config_one_line_form_serves_one_subsystem_to_everybody(void)
{
	static const char *const listen[] = { "127.0.0.1:0", "[::1]:4421" };
	static const char *const specs[] = { "ram:1M", "null:1G,bs=4096" };
	struct config *c;

	if (!CHECK_EQ(config_from_args(listen, 2, "n", specs, 2, &c, NULL), 0))
		return;
	CHECK_EQ(c->nr_ports, 2);
	CHECK_EQ(c->ports[1].id, 2);
	CHECK_STR(c->ports[1].traddr, "::1");
	CHECK_EQ(c->nr_subsys, 1);
	CHECK_STR(c->subsys[0].nqn, "n");
	CHECK(c->subsys[0].allow_any_host);
	CHECK_EQ(c->subsys[0].nr_ns, 2);
	CHECK_EQ(c->subsys[0].ns[1].ns.nsid, 2);
	CHECK_EQ(c->subsys[0].ns[1].ns.block, 4096);
	CHECK_EQ(c->discovery_port, 0);
	config_free(c);
}

static void
test_config_one_line_form_has_defaults_and_refuses_bad_words(void)
{
	static const char *const bad[] = { "ram:" };
	struct err err = { 0 };
	struct config *c;

	if (CHECK_EQ(config_from_args(NULL, 0, NULL, NULL, 0, &c, NULL), 0)) {
		CHECK_STR(c->ports[0].traddr, "0.0.0.0");
		CHECK_STR(c->ports[0].trsvcid, "4420");
		CHECK_STR(c->subsys[0].nqn, "nqn.2026-11.io.sluice:default");
		config_free(c);
	}
	CHECK(config_from_args(NULL, 0, NULL, bad, 1, &c, &err) < 0);
	CHECK(strstr(err.text, "ram:") != NULL);
	CHECK_EQ(config_from_args(NULL, 0, DISCOVERY_NQN, NULL, 0, &c, &err), -EINVAL);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_config_reads_what_nvmetcli_saves),
	UNIT_TEST(test_config_reads_every_setting),
	UNIT_TEST(test_config_defaults_stand_where_nothing_is_said),
	UNIT_TEST(test_config_namespace_keys_become_a_spec),
	UNIT_TEST(test_config_refuses_and_says_where),
	UNIT_TEST(test_config_names_of_223_bytes_in_any_form_are_taken),
	UNIT_TEST(test_config_a_port_of_another_transport_is_left_out),
	UNIT_TEST(test_config_listen_is_split_into_address_and_port),
	UNIT_TEST(test_config_one_line_form_serves_one_subsystem_to_everybody),
	UNIT_TEST(test_config_one_line_form_has_defaults_and_refuses_bad_words),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
