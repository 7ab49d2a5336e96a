/* Applying a configuration to a running model: what changes, what does not, and what a failure
 * leaves behind; dumping it; namespaces that hosts made. */
#include "common/file.h"
#include "target/config_plain.h"

#include "target/ns_store.h"
#include "tests/lib/model.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

static struct target t;
static struct err err;

static int __attribute__((format(printf, 1, 2)))
apply(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int ret;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	va_end(ap);
	err = (struct err){ 0 };
	ret = model_apply(&t, text, &err);
	free(text);
	model_settle(&t);
	return ret;
}

static struct port *
first_port(void)
{
	return list_empty(&t.ports) ? NULL : list_entry(t.ports.next, struct port, node);
}

static unsigned
count_ports(void)
{
	const struct port *p;
	unsigned n = 0;

	list_for_each(&t.ports, p, node)
		n++;
	return n;
}

/* Does anything accept connections there? */
static bool
answers(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
	close(fd);
	return ok;
}

/* A listening socket of somebody else; *ret_port is where. */
static int
occupy(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&a, len) || listen(fd, 1))
		abort();
	getsockname(fd, (struct sockaddr *)&a, &len);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static uint16_t
unused_port(void)
{
	uint16_t port;

	close(occupy(&port));
	return port;
}

#define QUIET   "\"sluice\":{\"discovery_port\":0}"
#define TWO_NS  "{" QUIET ",\"subsystems\":[{\"nqn\":\"n\",\"namespaces\":[" \
	        "{\"nsid\":1,\"device\":{\"path\":\"%s\"}%s},"               \
	        "{\"nsid\":2,\"device\":{\"path\":\"%s\"}}]}]}"

static void
test_apply_the_same_again_touches_nothing(void)
{
	static const char json[] =
		"{" QUIET
		",\"ports\":[{\"portid\":1,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":0},"
		"\"subsystems\":[\"n\"],\"referrals\":[{\"name\":\"r\",\"addr\":{\"traddr\":\"::"
		"1\"}}]}],"
		"\"subsystems\":[{\"nqn\":\"n\",\"allowed_hosts\":[\"a\",\"b\"],"
		"\"namespaces\":[{\"nsid\":1,\"device\":{\"path\":\"ram:1M\"}}]}]}";
	struct subsys *s;
	struct port *p;
	struct ns *ns;
	uint64_t genctr;

	model_start(&t);
	CHECK_EQ(apply(json), 0);
	s = subsys_find(&t, "n");
	p = first_port();
	if (!CHECK(s && p && s->ns[0]))
		return;
	CHECK(port_serves(p, s));
	CHECK(subsys_allows(s, "b"));
	ns = s->ns[0];
	genctr = t.genctr;
	CHECK_EQ(genctr, 1); /* hosts were told once */
	CHECK_EQ(apply(json), 0);
	CHECK(subsys_find(&t, "n") == s);
	CHECK(first_port() == p);
	CHECK(s->ns[0] == ns);
	CHECK_EQ(t.genctr, genctr);
	CHECK(answers(p->bound_port));
	model_stop(&t);
}

static void
test_apply_changes_one_namespace_and_not_its_neighbour(void)
{
	const char *a = model_file("a.img", 1 << 20), *b = model_file("b.img", 1 << 20);
	struct ns *one, *two;
	struct subsys *s;

	model_start(&t);
	CHECK_EQ(apply(TWO_NS, a, "", b), 0);
	s = subsys_find(&t, "n");
	if (!CHECK(s && s->ns[0] && s->ns[1]))
		return;
	one = s->ns[0];
	two = s->ns[1];

	CHECK_EQ(apply(TWO_NS, a, ",\"sluice\":{\"size\":\"2M\"}", b), 0);
	CHECK(s->ns[0] == one); /* the size alone: the same namespace */
	CHECK_EQ(one->blocks, 4096);
	CHECK_EQ(apply(TWO_NS, a, ",\"sluice\":{\"size\":\"2M\",\"block_size\":4096}", b), 0);
	CHECK(s->ns[0] != one);
	CHECK_EQ(s->ns[0]->lba_shift, 12);
	one = s->ns[0];
	CHECK_EQ(apply(TWO_NS, a, ",\"enable\":0", b), 0);
	CHECK(!s->ns[0]);
	CHECK_EQ(apply(TWO_NS, b, "", b), 0); /* another file under the same NSID */
	CHECK(s->ns[0] != NULL);
	CHECK(s->ns[1] == two);
	model_stop(&t);
}

static void
test_apply_does_not_undo_a_live_resize(void)
{
	const char *a = model_file("live.img", 1 << 20);
	struct subsys *s;

	model_start(&t);
	CHECK_EQ(apply(TWO_NS, a, ",\"sluice\":{\"size\":\"1M\"}", "ram:1M"), 0);
	s = subsys_find(&t, "n");
	if (!CHECK(s && s->ns[0]))
		return;
	CHECK_EQ(ns_resize(&t.reactors[0], s->ns[0], 2 << 20, NULL), 0);
	model_settle(&t);
	CHECK_EQ(apply(TWO_NS, a, ",\"sluice\":{\"size\":\"1M\"}", "ram:1M"), 0);
	CHECK_EQ(s->ns[0]->blocks, 4096);
	CHECK_EQ(apply(TWO_NS, a, ",\"sluice\":{\"size\":\"3M\"}", "ram:2M"), 0);
	CHECK_EQ(s->ns[0]->blocks, 6144);
	CHECK_EQ(s->ns[1]->blocks, 4096);
	model_stop(&t);
}

static void
test_apply_serves_a_file_that_grew(void)
{
	const char *a = model_file("grew.img", 1 << 20);
	struct subsys *s;

	model_start(&t);
	CHECK_EQ(apply(TWO_NS, a, "", "ram:1M"), 0);
	s = subsys_find(&t, "n");
	model_file("grew.img", 5 << 20);
	CHECK_EQ(apply(TWO_NS, a, "", "ram:1M"), 0);
	CHECK(s && s->ns[0] && s->ns[0]->blocks == 10240);
	model_stop(&t);
}

static void
test_apply_failure_leaves_everything_as_it_was(void)
{
	uint16_t taken, other = unused_port(), mine = unused_port();
	int fd = occupy(&taken);
	const struct { const char *subsystems, *ports, *what;
	} rows[] = {
		{"{\"nqn\":\"n\",\"namespaces\":[{\"nsid\":1,\"device\":{\"path\":\"ram:2M\"}},"
		 "{\"nsid\":2,\"device\":{\"path\":\"/nonexistent/x\"}}]}",
		 "", "/nonexistent/x"},
		{"{\"nqn\":\"new\",\"namespaces\":[{\"nsid\":1,\"device\":{\"path\":\"ram:1M\"}}]},"
		 "{\"nqn\":\"n\",\"sluice\":{\"ns_dir\":\"/nonexistent\"}}",
		 "", "/nonexistent"},
		{"{\"nqn\":\"new\"}",
		 "{\"portid\":2,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":%u}},"
		 "{\"portid\":3,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":%u}}",
		 "port 3"},
	};

	model_start(&t);
	CHECK_EQ(apply("{" QUIET
		       ",\"subsystems\":[{\"nqn\":\"n\",\"allowed_hosts\":[\"h\"],\"namespaces\":["
		       "{\"nsid\":1,\"device\":{\"path\":\"ram:1M\"}}]}],\"ports\":[{\"portid\":1,"
		       "\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":%u},\"subsystems\":[\"n\"]}]"
		       "}",
		       mine),
		 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct subsys *s = subsys_find(&t, "n");
		struct port *p = first_port();
		struct ns *ns = s ? s->ns[0] : NULL;
		uint64_t genctr = t.genctr;
		char ports[300];

		unit_row("%s", rows[i].what);
		snprintf(ports, sizeof(ports), rows[i].ports, other, taken);
		CHECK(apply("{" QUIET ",\"subsystems\":[%s],\"ports\":[%s]}", rows[i].subsystems,
			    ports) < 0);
		if (!strstr(err.text, rows[i].what) || strncmp(err.text, "test.json: ", 11))
			CHECK_STR(err.text, rows[i].what);
		CHECK(subsys_find(&t, "n") == s);
		CHECK(!subsys_find(&t, "new"));
		CHECK(s && s->ns[0] == ns && !s->ns[1] && subsys_allows(s, "h"));
		CHECK(first_port() == p && count_ports() == 1);
		CHECK(answers(mine)); /* it was stopped for the plan and listens again */
		CHECK(!answers(other));
		CHECK_EQ(t.genctr, genctr);
	}
	close(fd);
	model_stop(&t);
}

static void
test_apply_moves_a_port_to_an_overlapping_address(void)
{
	static const char json[] =
		"{" QUIET ",\"ports\":[{\"portid\":1,\"addr\":{\"traddr\":\"%s\","
		"\"trsvcid\":%u}}]}";
	uint16_t number = unused_port();
	struct port *p;

	model_start(&t);
	CHECK_EQ(apply(json, "127.0.0.1", number), 0);
	p = first_port();
	CHECK_EQ(apply(json, "0.0.0.0", number), 0);
	CHECK(first_port() != p);
	CHECK_EQ(count_ports(), 1);
	CHECK(answers(number));
	CHECK_EQ(apply("{}"), 0);
	CHECK_EQ(count_ports(), 0);
	CHECK(!answers(number));
	model_stop(&t);
}

static void
test_apply_follows_hosts_links_and_subsystems(void)
{
	static const char json[] =
		"{" QUIET
		",\"ports\":[{\"portid\":1,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":0},"
		"\"subsystems\":[%s]}],\"subsystems\":[{\"nqn\":\"a\",\"allowed_hosts\":[%s],"
		"\"attr\":{\"serial\":\"%s\"}},{\"nqn\":\"b\"}]}";
	struct subsys *a;
	uint64_t genctr;

	model_start(&t);
	CHECK_EQ(apply(json, "\"a\"", "\"h1\"", "s1"), 0);
	a = subsys_find(&t, "a");
	genctr = t.genctr;
	CHECK_EQ(apply(json, "\"a\"", "\"h2\"", "s1"), 0);
	CHECK(!subsys_allows(a, "h1") && subsys_allows(a, "h2"));
	CHECK_EQ(t.genctr, genctr + 1);
	CHECK_EQ(apply(json, "\"a\",\"b\"", "\"h2\"", "s1"), 0);
	CHECK(port_serves(first_port(), subsys_find(&t, "b")));
	CHECK_EQ(t.genctr, genctr + 2);
	CHECK_EQ(apply(json, "\"b\",\"a\"", "\"h2\"", "s2"), 0);
	CHECK_STR(a->serial, "s2");
	CHECK_EQ(t.genctr, genctr + 2); /* order and serial are not in the discovery log */
	CHECK_EQ(apply("{" QUIET ",\"subsystems\":[{\"nqn\":\"b\"}]}"), 0);
	CHECK(!subsys_find(&t, "a"));
	CHECK(t.genctr > genctr + 2);
	model_stop(&t);
}

static void
test_apply_opens_discovery_listeners_once_for_each_address(void)
{
	static const char json[] =
		"{\"sluice\":{\"discovery_port\":%u},\"ports\":["
		"{\"portid\":1,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":0}},"
		"{\"portid\":2,\"addr\":{\"traddr\":\"127.0.0.1\",\"trsvcid\":0}}]}";
	uint16_t number = unused_port(), taken;
	int fd = occupy(&taken);

	model_start(&t);
	CHECK_EQ(apply(json, number), 0);
	CHECK_EQ(count_ports(), 3);
	CHECK(answers(number));
	CHECK_EQ(apply(json, number), 0);
	CHECK_EQ(count_ports(), 3);
	CHECK_EQ(apply(json, taken), -EADDRINUSE); /* it was asked for by name */
	CHECK(strstr(err.text, "discovery port") != NULL);
	CHECK(answers(number));
	CHECK_EQ(apply(json, 0), 0);
	CHECK_EQ(count_ports(), 2);
	CHECK(!answers(number));
	close(fd);
	model_stop(&t);
}

static void
test_dump_is_read_back_as_no_change(void)
{
	const char *file = model_file("dump.img", 1 << 20);
	struct subsys *s;
	struct ns *one, *two;
	char *text, *again;
	uint64_t genctr;

	model_start(&t);
	t.limits = config_default_limits;
	CHECK_EQ(
		apply("{" QUIET
		      ",\"ports\":[{\"portid\":1,\"addr\":{\"traddr\":\"::1\",\"trsvcid\":0},"
		      "\"subsystems\":[\"n\"],\"referrals\":[{\"name\":\"r\",\"addr\":{\"traddr\":"
		      "\"::1\"}}]}],"
		      "\"subsystems\":[{\"nqn\":\"n\",\"allowed_hosts\":[\"a\",\"b\"],"
		      "\"attr\":{\"model\":\"M \\\"x\\\"\"},\"namespaces\":[{\"nsid\":3,\"device\":"
		      "{\"path\":\"ram:1M\",\"eui64\":\"0011223344556677\"}},{\"nsid\":9,"
		      "\"device\":"
		      "{\"path\":\"%s\"},\"sluice\":{\"size\":\"2M\",\"direct\":\"off\","
		      "\"readonly\":0}}]}]}",
		      file),
		0);
	s = subsys_find(&t, "n");
	if (!CHECK(s && s->ns[2] && s->ns[8]))
		return;
	one = s->ns[2];
	two = s->ns[8];
	genctr = t.genctr;
	text = config_dump(&t);
	if (!CHECK(text != NULL))
		return;
	CHECK_EQ(apply("%s", text), 0);
	CHECK(s->ns[2] == one && s->ns[8] == two);
	CHECK_EQ(t.genctr, genctr);
	again = config_dump(&t);
	CHECK_STR(again, text);
	free(again);
	free(text);
	model_stop(&t);
}

/* ---- namespaces that hosts made ---- */

#define MANAGED "{" QUIET ",\"subsystems\":[{\"nqn\":\"n\",\"sluice\":{\"ns_dir\":\"%s\"," \
	        "\"ns_dir_limit\":\"4M\"}}]}"

static struct subsys *
start_managed(void)
{
	const char *file = model_path("x");

	model_start(&t);
	CHECK_EQ(apply(MANAGED, (file = strdup(file), *strrchr(file, '/') = 0, file)), 0);
	free((char *)file);
	return subsys_find(&t, "n");
}

static void
test_store_brings_namespaces_back_after_a_restart(void)
{
	struct subsys *s = start_managed();
	struct ns *ns = NULL;
	uint8_t uuid[16];

	CHECK_EQ(ns_store_create(&t.reactors[0], s, 256, 4096, &ns, &err), 0);
	if (!CHECK(ns != NULL))
		return;
	CHECK_EQ(ns->nsid, 1);
	CHECK(ns->managed && !ns->auto_attach);
	ns_store_set_attach(ns, true);
	CHECK_EQ(ns_resize(&t.reactors[0], ns, 2 << 20, NULL), 0);
	model_settle(&t);
	memcpy(uuid, ns->uuid, 16);
	model_stop(&t);

	s = start_managed();
	ns = s->ns[0];
	if (!CHECK(ns != NULL))
		return;
	CHECK(ns->managed && ns->auto_attach);
	CHECK_EQ(ns->lba_shift, 12);
	CHECK_EQ(ns->blocks, 512);
	CHECK_MEM(ns->uuid, uuid, 16);
	CHECK_EQ(ns_store_delete(&t.reactors[0], ns, &err), 0);
	model_stop(&t);

	s = start_managed();
	CHECK(!s->ns[0]);
	/* Another namespace, although NSID and file name are the same. */
	CHECK_EQ(ns_store_create(&t.reactors[0], s, 256, 4096, &ns, &err), 0);
	CHECK(memcmp(ns->uuid, uuid, 16) != 0);
	CHECK_EQ(ns_store_delete(&t.reactors[0], ns, &err), 0);
	model_stop(&t);
}

static void
test_store_keeps_to_its_limit(void)
{
	struct subsys *s = start_managed();
	struct ns *one = NULL, *two = NULL;
	uint64_t total, left;

	ns_store_capacity(s, &total, &left);
	CHECK_EQ(total, 4 << 20);
	CHECK_EQ(left, 4 << 20);
	CHECK_EQ(ns_store_create(&t.reactors[0], s, 6144, 512, &one, &err), 0);
	ns_store_capacity(s, &total, &left);
	CHECK_EQ(left, 1 << 20);
	CHECK_EQ(ns_store_create(&t.reactors[0], s, 2049, 512, &two, &err), -ENOSPC);
	CHECK_EQ(ns_store_create(&t.reactors[0], s, UINT64_MAX / 2, 512, &two, &err), -EINVAL);
	CHECK_EQ(ns_store_create(&t.reactors[0], s, 2048, 512, &two, &err), 0);
	if (CHECK(one && two)) {
		CHECK_EQ(ns_store_delete(&t.reactors[0], one, &err), 0);
		CHECK_EQ(ns_store_delete(&t.reactors[0], two, &err), 0);
	}
	model_settle(&t);
	ns_store_capacity(s, &total, &left);
	CHECK_EQ(left, 4 << 20);
	model_stop(&t);
}

static void
test_store_namespaces_are_not_the_configurations(void)
{
	struct subsys *s = start_managed();
	struct ns_config cfg = { .spec = "ram:1M" };
	struct ns *ns = NULL, *own;
	char *dir;

	CHECK_EQ(ns_store_create(&t.reactors[0], s, 2048, 512, &ns, &err), 0);
	if (!CHECK(ns != NULL))
		return;
	dir = strdup(s->ns_dir);
	CHECK_EQ(apply(MANAGED, dir), 0);
	CHECK(s->ns[0] == ns); /* a reload leaves it alone */
	CHECK(apply("{" QUIET ",\"subsystems\":[{\"nqn\":\"n\",\"sluice\":{\"ns_dir\":\"%s\"},"
	            "\"namespaces\":[{\"nsid\":1,\"device\":{\"path\":\"ram:1M\"}}]}]}", dir) < 0);
	CHECK(strstr(err.text, "host") != NULL);
	CHECK(s->ns[0] == ns);
	own = ns_add(&t.reactors[0], s, &cfg, NULL);
	CHECK_EQ(ns_store_delete(&t.reactors[0], own, &err), -EPERM);
	CHECK_EQ(ns_store_delete(&t.reactors[0], ns, &err), 0);
	free(dir);
	model_stop(&t);
}

static void
test_store_leaves_damaged_descriptions_alone(void)
{
	static const char *const rows[] = { "{", "{}", "{\"size\":\"x\"}", "{\"size\":1048576}" };
	const char *path;
	struct subsys *s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%s", rows[i]);
		path = model_path("ns-7.json");
		CHECK_EQ(file_replace(path, rows[i], &err), 0);
		s = start_managed();
		CHECK(!s->ns[6]); /* the last is whole, but has no image */
		CHECK_EQ(access(path, F_OK), 0);
		model_stop(&t);
		unlink(path);
	}
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_apply_the_same_again_touches_nothing),
	UNIT_TEST(test_apply_changes_one_namespace_and_not_its_neighbour),
	UNIT_TEST(test_apply_does_not_undo_a_live_resize),
	UNIT_TEST(test_apply_serves_a_file_that_grew),
	UNIT_TEST(test_apply_failure_leaves_everything_as_it_was),
	UNIT_TEST(test_apply_moves_a_port_to_an_overlapping_address),
	UNIT_TEST(test_apply_follows_hosts_links_and_subsystems),
	UNIT_TEST(test_apply_opens_discovery_listeners_once_for_each_address),
	UNIT_TEST(test_dump_is_read_back_as_no_change),
	UNIT_TEST(test_store_brings_namespaces_back_after_a_restart),
	UNIT_TEST(test_store_keeps_to_its_limit),
	UNIT_TEST(test_store_namespaces_are_not_the_configurations),
	UNIT_TEST(test_store_leaves_damaged_descriptions_alone),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
