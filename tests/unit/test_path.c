/* A path against the real target daemon: associate, send from three reactors over two queues, lose
 * it, get it back, give it up, discover. The main thread is reactor 0 and turns its ring while it
 * waits; every wait is bounded.
 */
#include "initiator/path.h"

#include "common/log.h"
#include "initiator/hosts.h"
#include "initiator/initiator.h"
#include "initiator/io.h"
#include "initiator/volume.h"
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NQN     "nqn.2026-11.io.sluice:path"
#define TICK_NS 2000000ull

enum {
	REACTORS = 3,
	PATIENCE_S = 20,
	JOB_PARTS = 40,         /* for each reactor: more than a queue of 16 holds */
	JOB_LEN = 20000 / 512 * 512, /* not in the capsule */
};

struct job {                    /* parts of one reactor */
	struct op op;
	struct io io; /* of all its parts */
	struct reactor *r;
	struct path *path;
	struct member *member;
	struct part parts[JOB_PARTS];
	uint8_t mem[JOB_PARTS][JOB_LEN];
	uint16_t status[JOB_PARTS];
	_Atomic unsigned ended, wrong_thread;
	bool to_host;
};

static struct initiator in;
static struct reactor reactors[REACTORS];
static struct ring_timer tick;
static pid_t target;
static unsigned port;           /* 0: the target chooses */
static char image[] = "/tmp/test_path.XXXXXX", control[80];
static struct volume volume = { .bytes = 1 << 20 };
static struct job jobs[REACTORS];
static unsigned changes;
static bool freed;

/* reactors */

static void
ticked(struct ring_timer *t)
{
	ring_timer_set(reactors[0].ring, t, ring_now(reactors[0].ring) + TICK_NS);
}

static void
turn_hook(void *arg)
{
	chan_flush_all(&((struct reactor *)arg)->dirty);
}

static int
reactor_init(struct crew_thread *t, struct err *err)
{
	struct reactor *r = container_of(t, struct reactor, thread);

	r->ring = t->ring;
	list_init(&r->dirty);
	ring_set_turn_hook(r->ring, turn_hook, r);
	return buf_pool_new(r->ring, 4 << 20, 1 << 20, &r->pool, err);
}

static void
reactor_fini(struct crew_thread *t)
{
	buf_pool_free(container_of(t, struct reactor, thread)->pool);
}

static const struct crew_ops crew_ops = { reactor_init, NULL, reactor_fini };

static void
start_reactors(void)
{
	struct err err = { 0 };

	pthread_mutex_init(&in.lock, NULL);
	list_init(&in.paths);
	in.reactors = reactors;
	in.nr_reactors = in.crew.n = REACTORS;
	in.crew.ops = &crew_ops;
	in.crew.ring = (struct ring_config){ .entries = 256, .max_bufs = 4, .name = "test" };
	for (unsigned i = 0; i < REACTORS; i++) {
		reactors[i].in = &in;
		reactors[i].id = reactors[i].thread.id = i;
		reactors[i].thread.cpu = -1;
		in.crew.threads[i] = &reactors[i].thread;
	}
	if (crew_start(&in.crew, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	reactors[0].thread.thread = pthread_self();
	ring_timer_init(&tick, ticked);
	ticked(&tick);
}

static void
stop_reactors(void)
{
	ring_timer_del(&tick);
	crew_stop(&in.crew, NULL, NULL);
}

#define WAIT(cond)                                                               \
	do {                                                                     \
		time_t end_ = time(NULL) + PATIENCE_S;                           \
		while (!(cond) && time(NULL) <= end_)                            \
			ring_turn(reactors[0].ring);                             \
		CHECK(cond);                                                     \
	} while (0)

/* the target */

/* Its port, 0: it did not start. */
static unsigned
spawn_target(void)
{
	const char *build = getenv("TOP_BUILDDIR");
	char program[512], listen[64], spec[128], line[256];
	unsigned got = 0;
	int fds[2];
	FILE *f;

	snprintf(program, sizeof(program), "%s/target/sluice-target", build ? build : ".");
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
	snprintf(spec, sizeof(spec), "file:%s,size=8M", image);
	if (pipe(fds) < 0)
		exit(1);
	target = fork();
	if (target == 0) {
		dup2(fds[1], 1);
		close(fds[0]);
		close(fds[1]);
		alarm(120); /* whatever happens to the test */
		execl(program, program, "--listen", listen, "--nqn", NQN, "--control", control,
		      spec, NULL);
		_exit(127);
	}
	close(fds[1]);
	f = fdopen(fds[0], "r");
	while (!got && fgets(line, sizeof(line), f))
		sscanf(line, "listening on 127.0.0.1:%u", &got);
	fclose(f);
	if (!got)
		waitpid(target, NULL, 0);
	return got;
}

/* The kernel may hold the sockets of a killed process with a ring for a moment: its port is
 * tried again. */
static void
start_target(void)
{
	unsigned got = 0, tries;

	for (tries = 0; !got && tries < 50; tries++) {
		if (tries)
			usleep(100000);
		got = spawn_target();
	}
	CHECK(got != 0);
	port = got;
}

static void
kill_target(void)
{
	kill(target, SIGKILL);
	waitpid(target, NULL, 0);
}

/* jobs */

static void
part_ended(struct part *p, uint16_t status, uint32_t dw0)
{
	struct job *j = container_of(p->io, struct job, io);

	(void)dw0;
	j->wrong_thread += !pthread_equal(pthread_self(), j->r->thread.thread);
	j->status[p - j->parts] = status;
	j->ended++;
}

static bool once; /* all parts of the next jobs */
static _Atomic unsigned posted;

static void
job_posted(struct op *op, int res, uint32_t flags)
{
	struct job *j = container_of(op, struct job, op);
	unsigned i;

	(void)res;
	(void)flags;
	for (i = 0; i < JOB_PARTS; i++) {
		struct part *p = &j->parts[i];
		uint32_t slba = (j->r->id * JOB_PARTS + i) * (JOB_LEN / 512);

		memset(p, 0, sizeof(*p));
		list_init(&p->node);
		p->sqe.opcode = j->to_host ? nvme_cmd_read : nvme_cmd_write;
		p->sqe.nsid = le32_put(1);
		p->sqe.cdw10 = le32_put(slba);
		p->sqe.cdw12 = le32_put(JOB_LEN / 512 - 1);
		p->len = JOB_LEN;
		p->to_host = j->to_host;
		p->inl[0] = (struct iovec){ j->mem[i], JOB_LEN };
		p->sg = p->inl;
		p->nsg = 1;
		p->io = &j->io;
		p->member = j->member;
		p->once = once;
		p->done = part_ended;
		path_send(j->r, j->path, p);
	}
	posted++;
}

/* On path, as parts of member if that is not NULL. */
static void
start_member_jobs(struct path *path, struct member *member, bool to_host)
{
	unsigned r, i;

	for (r = 0; r < REACTORS; r++) {
		struct job *j = &jobs[r];

		j->op = (struct op){ job_posted, "test.job" };
		j->io.vol = &volume;
		j->r = &reactors[r];
		j->path = path;
		j->member = member;
		j->to_host = to_host;
		j->ended = j->wrong_thread = 0;
		for (i = 0; i < JOB_PARTS; i++)
			memset(j->mem[i], to_host ? 0 : (int)(1 + r * JOB_PARTS + i), JOB_LEN);
		ring_post(reactors[0].ring, reactors[r].ring, &j->op);
	}
}

static void
start_jobs(struct path *path, bool to_host)
{
	start_member_jobs(path, NULL, to_host);
}

static unsigned
jobs_ended(void)
{
	return jobs[0].ended + jobs[1].ended + jobs[2].ended;
}

/* Every part of all jobs ended with that status, on its own thread, and reads brought what was
 * written. */
static void
check_jobs(uint16_t status)
{
	unsigned r, i, bad = 0, wrong = 0;

	WAIT(jobs_ended() == REACTORS * JOB_PARTS);
	for (r = 0; r < REACTORS; r++) {
		CHECK_EQ(jobs[r].wrong_thread, 0);
		for (i = 0; i < JOB_PARTS; i++) {
			uint8_t want = (uint8_t)(1 + r * JOB_PARTS + i);

			bad += jobs[r].status[i] != status;
			wrong += status == 0 &&
				 (jobs[r].mem[i][0] != want || jobs[r].mem[i][JOB_LEN - 1] != want);
		}
	}
	CHECK_EQ(bad, 0);
	CHECK_EQ(wrong, 0);
}

/* paths */

static void
path_has_changed(struct path *p, void *arg)
{
	(void)p;
	(void)arg;
	changes++;
}

static void
path_was_freed(void *arg)
{
	*(bool *)arg = true;
}

static void
config(struct path_config *cfg)
{
	char svc[8];

	snprintf(svc, sizeof(svc), "%u", port);
	hosts_default(&in, cfg, NQN, "127.0.0.1", svc);
	cfg->nr_io_queues = 2;
	cfg->queue_size = 16;
	cfg->reconnect_delay = 1;
	cfg->keep_alive_tmo = 2;
}

static struct path *
open_path(const struct path_config *cfg)
{
	struct path *p = NULL;
	struct err err = { 0 };

	pthread_mutex_lock(&in.lock);
	CHECK_EQ(path_new(&in, cfg, &p, &err), 0);
	pthread_mutex_unlock(&in.lock);
	changes = 0;
	path_watch(p, path_has_changed, NULL);
	path_start(p);
	return p;
}

static void
close_path(struct path *p)
{
	freed = false;
	path_stop(p, path_was_freed, &freed);
	WAIT(freed);
}

static void
test_parts_of_three_reactors_go_over_two_queues(void)
{
	const struct path_info *i;
	struct hconn_stats sum;
	struct path_config cfg;
	struct path *p;

	start_target();
	config(&cfg);
	p = open_path(&cfg);
	CHECK(path_state(p) == PATH_CONNECTING);
	WAIT(path_state(p) == PATH_LIVE);
	CHECK(changes > 0);
	i = path_info(p);
	if (CHECK(i && i->nr_ns == 1)) {
		CHECK_EQ(i->ns[0].nsid, 1);
		CHECK_EQ(i->ns[0].blocks << i->ns[0].lba_shift, 8 << 20);
		CHECK(i->mdts >= 65536);
		CHECK(i->in_capsule > 0);
	}
	path_info_put(i);
	start_jobs(p, false);
	check_jobs(0);
	start_jobs(p, true);
	check_jobs(0);
	CHECK_EQ(path_queues_open(p), 2);
	path_stats_sum(p, &sum);
	CHECK_EQ(sum.parts, 2 * REACTORS * JOB_PARTS);
	CHECK_EQ(sum.bytes_read, (uint64_t)REACTORS * JOB_PARTS * JOB_LEN);
	close_path(p);
	kill_target();
}

static void
test_parts_survive_a_target_that_starts_again(void)
{
	struct path_config cfg;
	struct path *p;
	unsigned round;

	start_target();
	config(&cfg);
	p = open_path(&cfg);
	start_jobs(p, false); /* they wait for the path */
	check_jobs(0);
	for (round = 0; round < 3; round++) {
		start_jobs(p, round & 1);
		if (round == 1)
			WAIT(jobs_ended() > 5);
		kill_target();
		WAIT(path_state(p) == PATH_RECONNECTING);
		start_target();
		check_jobs(0);
		CHECK(path_state(p) == PATH_LIVE);
	}
	close_path(p);
	kill_target();
}

static void
test_parts_that_are_sent_once_end_with_their_connection(void)
{
	struct path_config cfg;
	struct path *p;

	start_target();
	config(&cfg);
	p = open_path(&cfg);
	WAIT(path_state(p) == PATH_LIVE);
	start_jobs(p, false);
	check_jobs(0);
	kill(target, SIGSTOP);
	once = true;
	posted = 0;
	start_jobs(p, false); /* more than a queue takes: some were sent, some wait */
	WAIT(posted == REACTORS);
	once = false;
	kill_target();
	check_jobs(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	start_target();
	WAIT(path_state(p) == PATH_LIVE);
	start_jobs(p, true);
	check_jobs(0);
	close_path(p);
	kill_target();
}

static unsigned
free_port(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
	close(fd);
	return ntohs(sa.sin_port);
}

/* A member with two paths: the target's, and one to where nobody listens yet. */
static void
open_member(struct member *m, struct path_config *cfg, unsigned other_port)
{
	memset(m, 0, sizeof(*m));
	m->paths[m->nr_paths++] = open_path(cfg);
	snprintf(cfg->trsvcid, sizeof(cfg->trsvcid), "%u", other_port);
	m->paths[m->nr_paths++] = open_path(cfg);
}

static void
close_member(struct member *m)
{
	while (m->nr_paths > 0)
		close_path(m->paths[--m->nr_paths]);
	CHECK(list_empty(&in.paths));
}

static uint64_t
parts_sent(struct path *p)
{
	struct hconn_stats sum;

	path_stats_sum(p, &sum);
	return sum.parts;
}

/* Parts that were never sent, then such that were, and some of a reactor that has no queue of its
 * own. */
static void
test_parts_that_wait_go_to_another_path_of_their_member_when_it_comes(void)
{
	unsigned here = free_port(), there = free_port();
	struct path_config cfg;
	struct member m;

	port = here;
	config(&cfg);
	open_member(&m, &cfg, there);
	start_member_jobs(m.paths[0], &m, false);
	WAIT(path_attempts(m.paths[0]) > 0 && path_attempts(m.paths[1]) > 0);
	CHECK_EQ(jobs_ended(), 0);
	port = there;
	start_target();
	check_jobs(0);
	CHECK(path_state(m.paths[0]) == PATH_CONNECTING);
	CHECK_EQ(parts_sent(m.paths[1]), REACTORS * JOB_PARTS);

	kill(target, SIGSTOP);
	start_member_jobs(m.paths[1], &m, true);
	WAIT(parts_sent(m.paths[1]) > REACTORS * JOB_PARTS + 16);
	kill_target();
	WAIT(path_state(m.paths[1]) == PATH_RECONNECTING);
	port = here;
	start_target();
	check_jobs(0);
	CHECK(path_state(m.paths[1]) == PATH_RECONNECTING);
	CHECK_EQ(parts_sent(m.paths[0]), REACTORS * JOB_PARTS);
	close_member(&m);
	kill_target();
}

static void
test_parts_do_not_end_while_another_path_may_come_back(void)
{
	unsigned here = free_port(), there = free_port();
	struct path_config cfg;
	struct member m;

	port = here;
	config(&cfg);
	memset(&m, 0, sizeof(m));
	cfg.ctrl_loss_tmo = 1;
	m.paths[m.nr_paths++] = open_path(&cfg);
	cfg.ctrl_loss_tmo = 600;
	snprintf(cfg.trsvcid, sizeof(cfg.trsvcid), "%u", there);
	m.paths[m.nr_paths++] = open_path(&cfg);
	start_member_jobs(m.paths[0], &m, false);
	WAIT(path_state(m.paths[0]) == PATH_DEAD);
	CHECK_EQ(jobs_ended(), 0);
	port = there;
	start_target();
	check_jobs(0);
	close_member(&m);
	kill_target();
}

static void
test_waiting_parts_fail_after_fast_io_fail_tmo_and_the_path_comes_back(void)
{
	struct path_config cfg;
	struct path *p;
	char why[256];

	start_target();
	config(&cfg);
	cfg.fast_io_fail_tmo = 1;
	p = open_path(&cfg);
	WAIT(path_state(p) == PATH_LIVE);
	kill_target();
	WAIT(path_state(p) != PATH_LIVE);
	start_jobs(p, false);
	check_jobs(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	CHECK(path_state(p) == PATH_FAILING);
	start_jobs(p, false); /* now at once */
	check_jobs(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	WAIT(strstr(path_why(p, why, sizeof(why)), "refused"));
	start_target();
	WAIT(path_state(p) == PATH_LIVE);
	CHECK_STR(path_why(p, why, sizeof(why)), "");
	start_jobs(p, false);
	check_jobs(0);
	close_path(p);
	kill_target();
}

static void
test_a_path_is_given_up_after_ctrl_loss_tmo_and_can_start_again(void)
{
	struct path_config cfg;
	struct path *p;

	config(&cfg); /* nobody listens there */
	cfg.ctrl_loss_tmo = 2;
	p = open_path(&cfg);
	start_jobs(p, false);
	check_jobs(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	CHECK(path_state(p) == PATH_DEAD);
	start_target();
	path_start(p);
	WAIT(path_state(p) == PATH_LIVE);
	start_jobs(p, false);
	check_jobs(0);
	close_path(p);
	kill_target();
}

static void
test_a_refusal_with_dnr_ends_the_attempts(void)
{
	struct path_config cfg;
	struct path *p;
	char why[256];

	start_target();
	config(&cfg);
	snprintf(cfg.subnqn, sizeof(cfg.subnqn), "nqn.2026-11.io.sluice:nobody");
	p = open_path(&cfg);
	WAIT(path_state(p) == PATH_DEAD);
	CHECK(strstr(path_why(p, why, sizeof(why)), "subnqn") != NULL);
	CHECK_EQ(path_attempts(p), 1);
	close_path(p);
	kill_target();
}

static void
test_parts_that_wait_end_when_the_path_is_stopped(void)
{
	struct path_config cfg;
	struct path *p;

	config(&cfg); /* nobody listens there */
	p = open_path(&cfg);
	start_jobs(p, false);
	WAIT(path_attempts(p) > 0);
	close_path(p);
	check_jobs(NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
}

/* Its exit status. */
static int
sluicectl(const char *object, const char *action, const char *a, const char *b)
{
	const char *build = getenv("TOP_BUILDDIR");
	char program[512];
	int status = -1;
	pid_t pid;

	snprintf(program, sizeof(program), "%s/common/sluicectl", build ? build : ".");
	pid = fork();
	if (pid == 0) {
		dup2(2, 1);
		execl(program, program, "-s", control, object, action, NQN, a, b, NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

static uint64_t
blocks_of(struct path *p, unsigned nr_ns, uint32_t nsid)
{
	const struct path_info *i = path_info(p);
	uint64_t blocks = 0;
	unsigned k;

	for (k = 0; i && i->nr_ns == nr_ns && k < i->nr_ns; k++)
		if (i->ns[k].nsid == nsid)
			blocks = i->ns[k].blocks;
	path_info_put(i);
	return blocks;
}

static void
test_namespaces_follow_the_events_of_the_controller(void)
{
	static const uint8_t zero[16];
	const struct path_info *old;
	struct path_config cfg;
	struct path *p;

	start_target();
	config(&cfg);
	p = open_path(&cfg);
	WAIT(path_state(p) == PATH_LIVE);
	old = path_info(p);
	CHECK(memcmp(old->ns[0].uuid, zero, 16) != 0);
	CHECK_EQ(sluicectl("ns", "add", "ram:4M", NULL), 0);
	WAIT(blocks_of(p, 2, 2) == 8192);
	CHECK_EQ(sluicectl("ns", "resize", "1", "16M"), 0); /* again: its log was read */
	WAIT(blocks_of(p, 2, 1) == 32768);
	CHECK_EQ(sluicectl("ns", "remove", "2", NULL), 0);
	WAIT(blocks_of(p, 1, 1) == 32768);
	CHECK_EQ(old->nr_ns, 1); /* what was looked at before is as it was */
	CHECK_EQ(old->ns[0].blocks, 16384);
	path_info_put(old);
	CHECK(path_state(p) == PATH_LIVE);
	CHECK(changes >= 4);
	close_path(p);
	kill_target();
}

/* Frozen: TCP lives on, nothing answers. */
static void
test_a_silent_target_is_noticed_by_keep_alive(void)
{
	struct path_config cfg;
	struct path *p;
	char why[256] = "";

	start_target();
	config(&cfg);
	cfg.keep_alive_tmo = 1;
	p = open_path(&cfg);
	WAIT(path_state(p) == PATH_LIVE);
	kill(target, SIGSTOP);
	WAIT(path_state(p) == PATH_RECONNECTING);
	CHECK(strstr(path_why(p, why, sizeof(why)), "Keep Alive") != NULL);
	kill(target, SIGCONT);
	WAIT(path_state(p) == PATH_LIVE);
	close_path(p);
	kill_target();
}

/* discovery */

struct found {
	unsigned calls, subsystems;
	char why[256];
};

static void
discovered(void *arg, const struct nvmf_discovery_log *log, const char *why)
{
	struct found *f = arg;
	uint64_t i;

	f->calls++;
	if (why)
		snprintf(f->why, sizeof(f->why), "%s", why);
	for (i = 0; log && i < le64toh(log->numrec); i++)
		f->subsystems += strcmp(log->entries[i].subnqn, NQN) == 0;
}

static void
test_discovery_tells_what_a_target_has(void)
{
	struct found f = { 0 };
	struct path_config cfg;

	start_target();
	config(&cfg);
	cfg.subnqn[0] = '\0';
	path_discover(&in, &cfg, discovered, &f);
	CHECK_EQ(f.calls, 0);
	WAIT(f.calls == 1);
	CHECK_STR(f.why, "");
	CHECK_EQ(f.subsystems, 1);
	kill_target();

	f = (struct found){ 0 };
	path_discover(&in, &cfg, discovered, &f);
	WAIT(f.calls == 1);
	CHECK(f.why[0] != '\0'); /* refused; or closed, if the dead target's socket still lingers */
	CHECK_EQ(f.subsystems, 0);
	snprintf(cfg.traddr, sizeof(cfg.traddr), "example");
	path_discover(&in, &cfg, discovered, &f);
	WAIT(f.calls == 2);
	CHECK(strstr(f.why, "numbers") != NULL);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_parts_of_three_reactors_go_over_two_queues),
	UNIT_TEST(test_parts_survive_a_target_that_starts_again),
	UNIT_TEST(test_parts_that_are_sent_once_end_with_their_connection),
	UNIT_TEST(test_parts_that_wait_go_to_another_path_of_their_member_when_it_comes),
	UNIT_TEST(test_parts_do_not_end_while_another_path_may_come_back),
	UNIT_TEST(test_waiting_parts_fail_after_fast_io_fail_tmo_and_the_path_comes_back),
	UNIT_TEST(test_a_path_is_given_up_after_ctrl_loss_tmo_and_can_start_again),
	UNIT_TEST(test_a_refusal_with_dnr_ends_the_attempts),
	UNIT_TEST(test_parts_that_wait_end_when_the_path_is_stopped),
	UNIT_TEST(test_namespaces_follow_the_events_of_the_controller),
	UNIT_TEST(test_a_silent_target_is_noticed_by_keep_alive),
	UNIT_TEST(test_discovery_tells_what_a_target_has),
};

int
main(int argc, char **argv)
{
	int fd, res;

	log_level = getenv("TEST_LOG") ? LOG_LVL_INFO : LOG_LVL_ERROR;
	snprintf(control, sizeof(control), "/tmp/test_path.%d.ctl", (int)getpid());
	fd = mkstemp(image);
	if (fd < 0)
		return 1;
	close(fd);
	if (hosts_identity(&in, NULL) < 0)
		return 1;
	start_reactors();
	res = unit_main(argc, argv, tests, ARRAY_SIZE(tests));
	stop_reactors();
	unlink(image);
	unlink(control);
	return res;
}
