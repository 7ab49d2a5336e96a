/* The control socket: a real server on a ring in a process of its own, and clients that behave or
 * do not. (A process: valgrind lets no other thread run while one waits in io_uring_enter.) */
#include "common/ctl_client.h"
#include "common/ctl_events.h"
#include "common/ctl_server.h"
#include "common/log.h"

#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS_MAX = 4, BIG = 300000 };

/* One daemon: a child that owns ring and server. */
struct daemon {
	char dir[40], path[60];
	pid_t pid;
	struct ring *ring;              /* in the child alone */
	struct ctl_server *server;
	struct ctl_events events;
};

static void
stopped(void *arg)
{
	ring_stop(((struct daemon *)arg)->ring);
}

static int
run_echo(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	(void)ctx;
	(void)err;
	conf_put_node(w, NULL, conf_get(params, "text"));
	return 0;
}

static int
run_big(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	char *s = malloc(BIG);

	(void)ctx;
	(void)params;
	(void)err;
	memset(s, 'x', BIG);
	conf_put_strn(w, NULL, s, BIG);
	free(s);
	return 0;
}

/* Sends n events of 1 KiB each to the subscribers. */
static int
run_events(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct daemon *d = ctx;
	uint32_t n = 1;
	char pad[1024];

	(void)w;
	if (conf_get_u32(params, "n", 1, 100000, &n, err) < 0)
		return err->code;
	memset(pad, 'e', sizeof(pad));
	for (uint32_t i = 0; i < n; i++) {
		struct conf_writer e;

		ctl_event_begin(&e, "tick");
		conf_put_u64(&e, "i", i);
		conf_put_strn(&e, "pad", pad, sizeof(pad));
		ctl_server_take_event(d->server, ctl_event_end(&e));
	}
	return 0;
}

/* n events in one turn by way of the list that any reactor may use. */
static int
run_news(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct daemon *d = ctx;
	uint32_t n = 1;

	(void)w;
	if (conf_get_u32(params, "n", 1, 100000, &n, err) < 0)
		return err->code;
	for (uint32_t i = 0; i < n; i++) {
		struct conf_writer e;

		ctl_event_begin(&e, "news");
		conf_put_u64(&e, "i", i);
		ctl_events_take(&d->events, d->ring, ctl_event_end(&e));
	}
	return 0;
}

static int
run_stop(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct daemon *d = ctx;

	(void)params;
	(void)w;
	(void)err;
	ctl_events_stop(&d->events);
	run_news(d, NULL, NULL, NULL); /* too late: forgotten, not leaked */
	ctl_server_stop(d->server, stopped, d);
	return 0;
}

static const struct ctl_verb verbs[] = {
	{ "echo", "text:string", "", run_echo },     { "big", "", "", run_big },
	{ "events", "[n:number]", "", run_events }, { "stop", "", "", run_stop },
	{ "news", "[n:number]", "", run_news },
	{ 0 },
};

/* The child: says on up whether it listens, serves until it is stopped, exits. */
static void
daemon_main(struct daemon *d, int up)
{
	const struct ring_config rc = { .entries = 64, .name = "test" };
	struct ctl_server_config cfg = {
		.path = d->path,
		.verbs = verbs,
		.ctx = d,
		.max_clients = CLIENTS_MAX,
	};
	struct err err = { 0 };

	if (ring_new(&rc, &d->ring, &err) == 0) {
		cfg.ring = d->ring;
		if (ctl_server_new(&cfg, &d->server, &err) == 0) {
			ctl_events_start(&d->events, d->ring, d->server);
			if (write(up, "y", 1) == 1)
				ring_run(d->ring);
			ctl_server_free(d->server);
		}
		ring_free(d->ring);
	}
	if (err.code)
		fprintf(stderr, "%s\n", err.text);
	exit(err.code ? 1 : 0);
}

/* Runs a daemon at d->path. */
static bool
daemon_fork(struct daemon *d)
{
	int up[2];
	char c = 0;

	fflush(stdout);
	if (!CHECK_EQ(pipe2(up, O_CLOEXEC), 0))
		return false;
	d->pid = fork();
	if (d->pid == 0) {
		close(up[0]);
		daemon_main(d, up[1]);
	}
	close(up[1]);
	CHECK(read(up[0], &c, 1) == 1);
	close(up[0]);
	return CHECK(c == 'y');
}

/* Runs a daemon at name in a directory of its own. */
static bool
daemon_start(struct daemon *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->dir, sizeof(d->dir), "/tmp/test_ctl.XXXXXX");
	if (!mkdtemp(d->dir))
		return false;
	snprintf(d->path, sizeof(d->path), "%s/%s", d->dir, name);
	return daemon_fork(d);
}

/* It ended well: also for valgrind and the sanitizers, which speak through its exit status. */
static void
daemon_wait(struct daemon *d)
{
	int status = -1;

	CHECK(waitpid(d->pid, &status, 0) == d->pid);
	CHECK_EQ(status, 0);
}

static int
raw_connect(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct timeval patience = { 20, 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.100s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	CHECK(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	return fd;
}

static void
raw_send(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);

		if (!CHECK(k > 0))
			return;
		bytes += k;
		n -= (size_t)k;
	}
}

/* Reads until end of file or lines newlines have come; returns how many came. Keeps the first
 * bytes. */
static size_t
raw_lines(int fd, size_t lines, char *keep, size_t size)
{
	static char buf[65536];
	size_t seen = 0, kept = 0;
	ssize_t n;

	while (seen < lines && (n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			seen += buf[i] == '\n';
			if (kept + 1 < size)
				keep[kept++] = buf[i];
		}
	}
	if (size)
		keep[kept] = '\0';
	return seen;
}

static void
daemon_stop(struct daemon *d)
{
	static const char stop[] = "{\"jsonrpc\":\"2.0\",\"method\":\"stop\"}\n";
	struct stat st;

	/* Again where the places of clients that have just gone are not free yet. */
	for (int i = 0; i < 200 && lstat(d->path, &st) == 0; i++) {
		int fd = raw_connect(d->path);

		send(fd, stop, sizeof(stop) - 1, MSG_NOSIGNAL);
		CHECK_EQ(raw_lines(fd, 1, NULL, 0), 0); /* closed, nothing said */
		close(fd);
		if (lstat(d->path, &st) == 0)
			usleep(10000);
	}
	daemon_wait(d);
	CHECK(lstat(d->path, &st) < 0 && errno == ENOENT);
	*strrchr(d->path, '/') = '\0';
	if (strcmp(d->path, d->dir) != 0)
		rmdir(d->path);
	CHECK(rmdir(d->dir) == 0);
}

#define ECHO(id, text)                                                                         \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"echo\",\"params\":{\"text\":\"" text \
	"\"}}\n"
#define ECHOED(id, text) "{\"jsonrpc\": \"2.0\", \"id\": " id ", \"result\": \"" text "\"}\n"

static void
test_ctl_server_socket_is_private_and_its_directory_is_made(void)
{
	struct daemon d;
	struct stat st;

	if (!daemon_start(&d, "sub/ctl"))
		return;
	CHECK(stat(d.path, &st) == 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	daemon_stop(&d);
}

static void
test_ctl_server_answers_lines_however_they_are_cut(void)
{
	static const char lines[] =
		ECHO("1", "a") "\n\r\n" ECHO("2", "b") "nonsense\n" ECHO("3", "c");
	char got[2000];
	struct daemon d;

	if (!daemon_start(&d, "ctl"))
		return;
	for (size_t cut = 1; cut < sizeof(lines); cut += 7) {
		int fd = raw_connect(d.path);

		unit_row("pieces of %zu", cut);
		for (size_t i = 0; i < sizeof(lines) - 1; i += cut)
			raw_send(fd, lines + i, MIN(cut, sizeof(lines) - 1 - i));
		shutdown(fd, SHUT_WR);
		CHECK_EQ(raw_lines(fd, 100, got, sizeof(got)), 5); /* a lone CR is a line, too */
		CHECK(strncmp(got, ECHOED("1", "a"), strlen(ECHOED("1", "a"))) == 0);
		CHECK(strstr(got, ECHOED("2", "b")) && strstr(got, ECHOED("3", "c")));
		CHECK(strstr(got, "-32700"));
		close(fd);
	}
	daemon_stop(&d);
}

static void
test_ctl_server_takes_a_last_line_without_newline(void)
{
	static const char line[] = ECHO("1", "a");
	char got[200];
	struct daemon d;
	int fd;

	if (!daemon_start(&d, "ctl"))
		return;
	fd = raw_connect(d.path);
	raw_send(fd, line, sizeof(line) - 2);
	shutdown(fd, SHUT_WR);
	raw_lines(fd, 100, got, sizeof(got));
	CHECK_STR(got, ECHOED("1", "a"));
	close(fd);
	daemon_stop(&d);
}

static void
test_ctl_server_skips_a_line_that_is_too_long(void)
{
	static char longer[3 * CTL_LINE_MAX];
	char got[2000];
	struct daemon d;
	int fd;

	if (!daemon_start(&d, "ctl"))
		return;
	memset(longer, ' ', sizeof(longer));
	longer[sizeof(longer) - 1] = '\n';
	fd = raw_connect(d.path);
	raw_send(fd, longer, sizeof(longer));
	raw_send(fd, ECHO("1", "a"), strlen(ECHO("1", "a")));
	CHECK_EQ(raw_lines(fd, 2, got, sizeof(got)), 2);
	CHECK(strstr(got, "the line is longer than 1048576 bytes"));
	CHECK(strstr(got, ECHOED("1", "a")));
	close(fd);
	daemon_stop(&d);
}

static void
test_ctl_server_does_not_read_a_client_that_does_not_read(void)
{
	static const char big[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"big\"}\n";
	struct daemon d;
	unsigned sent = 0;
	int fd;

	if (!daemon_start(&d, "ctl"))
		return;
	fd = raw_connect(d.path);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	/* The daemon stops reading, so that the socket fills up. */
	for (int quiet = 0; quiet < 20 && sent < 1000000;) {
		if (send(fd, big, sizeof(big) - 1, MSG_NOSIGNAL) == sizeof(big) - 1) {
			sent++;
			quiet = 0;
		} else {
			usleep(10000);
			quiet++;
		}
	}
	CHECK(sent > 4 && sent < 50000);
	/* It goes on for others, and with this one as soon as that reads. */
	daemon_stop(&d);
	close(fd);
}

static void
test_ctl_server_answers_all_requests_of_a_slow_reader(void)
{
	static const char big[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"big\"}\n";
	struct daemon d;
	int fd;

	if (!daemon_start(&d, "ctl"))
		return;
	fd = raw_connect(d.path);
	for (int i = 0; i < 50; i++)
		raw_send(fd, big, sizeof(big) - 1);
	shutdown(fd, SHUT_WR);
	CHECK_EQ(raw_lines(fd, 1000, NULL, 0), 50);
	close(fd);
	daemon_stop(&d);
}

static void
test_ctl_server_events_go_to_subscribers_only(void)
{
	static const char subscribe[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscribe\"}\n";
	static const char events[] =
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"events\",\"params\":{\"n\":3}}\n";
	struct daemon d;
	int heard, deaf;

	if (!daemon_start(&d, "ctl"))
		return;
	heard = raw_connect(d.path);
	deaf = raw_connect(d.path);
	raw_send(heard, subscribe, sizeof(subscribe) - 1);
	CHECK_EQ(raw_lines(heard, 1, NULL, 0), 1);
	raw_send(deaf, events, sizeof(events) - 1);
	CHECK_EQ(raw_lines(heard, 3, NULL, 0), 3);
	shutdown(deaf, SHUT_WR);
	CHECK_EQ(raw_lines(deaf, 100, NULL, 0), 1); /* the reply alone */
	close(heard);
	close(deaf);
	daemon_stop(&d);
}

static void
test_ctl_server_drops_a_subscriber_that_does_not_read(void)
{
	static const char subscribe[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscribe\"}\n";
	static const char events[] =
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"events\",\"params\":{\"n\":10000}}\n";
	struct daemon d;
	int sleepy, other;
	size_t lines;

	if (!daemon_start(&d, "ctl"))
		return;
	sleepy = raw_connect(d.path);
	raw_send(sleepy, subscribe, sizeof(subscribe) - 1);
	CHECK_EQ(raw_lines(sleepy, 1, NULL, 0), 1);
	other = raw_connect(d.path);
	raw_send(other, events, sizeof(events) - 1);
	CHECK_EQ(raw_lines(other, 1, NULL, 0), 1);
	lines = raw_lines(sleepy, 20000, NULL, 0);
	CHECK(lines < 10000);
	close(sleepy);
	close(other);
	daemon_stop(&d);
}

static void
test_ctl_events_come_in_order_and_those_that_are_too_many_are_counted(void)
{
	const struct conf_node *result, *params;
	struct ctl_client c, other;
	uint64_t n = 0, count = 0;
	struct err err = { 0 };
	struct conf *doc;
	struct daemon d;

	if (!daemon_start(&d, "ctl"))
		return;
	CHECK_EQ(ctl_client_open(&c, d.path, &err), 0);
	CHECK_EQ(ctl_client_open(&other, d.path, &err), 0);
	CHECK_EQ(ctl_client_call(&c, "subscribe", NULL, &doc, &result, &err), 0);
	conf_free(doc);
	CHECK_EQ(ctl_client_call(&other, "news", "{\"n\":1000}", &doc, &result, &err), 0);
	conf_free(doc);
	for (unsigned i = 0; i <= CTL_EVENTS_MAX; i++) {
		if (!CHECK_EQ(ctl_client_event(&c, &doc, &err), 0))
			return;
		params = conf_get(conf_root(doc), "params");
		if (i < CTL_EVENTS_MAX)
			CHECK(conf_get_u64(params, "i", 0, UINT64_MAX, &n, &err) == 1 && n == i);
		else
			conf_get_u64(params, "count", 0, UINT64_MAX, &count, &err);
		conf_free(doc);
	}
	CHECK_EQ(count, 1000 - CTL_EVENTS_MAX);
	ctl_client_close(&other);
	daemon_stop(&d);
	CHECK_EQ(ctl_client_event(&c, &doc, &err), -ECONNRESET);
	ctl_client_close(&c);
}

static void
test_ctl_server_closes_clients_above_its_limit(void)
{
	int fds[CLIENTS_MAX + 1];
	struct daemon d;
	char got[200];

	if (!daemon_start(&d, "ctl"))
		return;
	for (int i = 0; i <= CLIENTS_MAX; i++) {
		fds[i] = raw_connect(d.path);
		if (i < CLIENTS_MAX) {
			raw_send(fds[i], ECHO("1", "a"), strlen(ECHO("1", "a")));
			CHECK_EQ(raw_lines(fds[i], 1, got, sizeof(got)), 1);
		}
	}
	CHECK_EQ(raw_lines(fds[CLIENTS_MAX], 1, NULL, 0), 0);
	for (int i = 0; i <= CLIENTS_MAX; i++)
		close(fds[i]);
	/* Their places are free again, sooner or later. */
	for (int i = 0; i < 200; i++) {
		int fd = raw_connect(d.path);

		send(fd, ECHO("1", "a"), strlen(ECHO("1", "a")), MSG_NOSIGNAL);
		i = raw_lines(fd, 1, got, sizeof(got)) ? 1000 : i;
		close(fd);
		usleep(10000);
	}
	CHECK_STR(got, ECHOED("1", "a"));
	daemon_stop(&d);
}

static void
test_ctl_server_path_that_is_taken_is_left_alone(void)
{
	struct ctl_server_config cfg = { .verbs = verbs };
	struct ctl_server *none = NULL;
	struct err err = { 0 };
	struct daemon d;
	char path[80];
	FILE *f;

	if (!daemon_start(&d, "ctl"))
		return;
	cfg.path = d.path;
	CHECK(ctl_server_new(&cfg, &none, &err) == -EADDRINUSE);
	CHECK(strstr(err.text, "another daemon answers there"));
	snprintf(path, sizeof(path), "%s/file", d.dir);
	f = fopen(path, "w");
	fclose(f);
	cfg.path = path;
	CHECK(ctl_server_new(&cfg, &none, &err) == -EEXIST);
	CHECK(strstr(err.text, "is there and is no socket"));
	CHECK(access(path, F_OK) == 0);
	unlink(path);
	daemon_stop(&d);
}

static void
test_ctl_server_replaces_what_a_killed_daemon_left(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char dir[] = "/tmp/test_ctl.XXXXXX";
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct daemon d = { 0 };

	if (!CHECK(mkdtemp(dir) != NULL))
		return;
	memcpy(d.dir, dir, sizeof(dir));
	snprintf(d.path, sizeof(d.path), "%s/ctl", dir);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", d.path);
	CHECK(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	close(fd); /* the socket's file stays, nobody answers */
	if (daemon_fork(&d))
		daemon_stop(&d);
}

static void
test_ctl_client_calls_and_tells_why_not(void)
{
	const struct conf_node *result;
	struct ctl_client c;
	struct conf *reply;
	struct err err = { 0 };
	const char *s = "";
	struct daemon d;

	CHECK(ctl_client_open(&c, "/nonexistent/ctl", &err) == -ENOENT);
	CHECK_STR(err.text, "/nonexistent/ctl: no daemon there (no such socket)");
	if (!daemon_start(&d, "ctl"))
		return;
	if (CHECK_EQ(ctl_client_open(&c, d.path, &err), 0)) {
		for (int i = 0; i < 3; i++) {
			if (!CHECK_EQ(ctl_client_call(&c, "big", NULL, &reply, &result, &err), 0))
				break;
			CHECK_EQ(conf_as_str(result, BIG, &s, &err), 0);
			CHECK_EQ(strlen(s), BIG);
			conf_free(reply);
		}
		CHECK_EQ(ctl_client_call(&c, "subscribe", NULL, &reply, &result, &err), 0);
		conf_free(reply);
		/* Events that come before the reply are not taken for it. */
		CHECK_EQ(ctl_client_call(&c, "events", "{\"n\":5}", &reply, &result, &err), 0);
		conf_free(reply);
		CHECK(ctl_client_call(&c, "ehco", NULL, &reply, &result, &err) == -EREMOTEIO);
		CHECK_STR(err.text, "unknown method 'ehco', did you mean 'echo'?");
		CHECK(ctl_client_call(&c, "stop", NULL, &reply, &result, &err) == -ECONNRESET);
		ctl_client_close(&c);
	}
	daemon_wait(&d);
	rmdir(d.dir);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_ctl_server_socket_is_private_and_its_directory_is_made),
	UNIT_TEST(test_ctl_server_answers_lines_however_they_are_cut),
	UNIT_TEST(test_ctl_server_takes_a_last_line_without_newline),
	UNIT_TEST(test_ctl_server_skips_a_line_that_is_too_long),
	UNIT_TEST(test_ctl_server_does_not_read_a_client_that_does_not_read),
	UNIT_TEST(test_ctl_server_answers_all_requests_of_a_slow_reader),
	UNIT_TEST(test_ctl_server_events_go_to_subscribers_only),
	UNIT_TEST(test_ctl_server_drops_a_subscriber_that_does_not_read),
	UNIT_TEST(test_ctl_events_come_in_order_and_those_that_are_too_many_are_counted),
	UNIT_TEST(test_ctl_server_closes_clients_above_its_limit),
	UNIT_TEST(test_ctl_server_path_that_is_taken_is_left_alone),
	UNIT_TEST(test_ctl_server_replaces_what_a_killed_daemon_left),
	UNIT_TEST(test_ctl_client_calls_and_tells_why_not),
};

int
main(int argc, char **argv)
{
	log_level = LOG_LVL_ERROR; /* clients that are dropped are part of the tests */
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
