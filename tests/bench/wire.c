/* The wire limit: how fast this machine's loopback moves NVMe-shaped traffic over one connection.
 *
 * Two threads, each with its own io_uring, move the bytes of reads or writes in the message sizes
 * of NVMe/TCP and do nothing else: no command is checked, no namespace read, no status made. Every
 * payload still ends in its command's own buffer, as it must in a real stack. What a target or an
 * initiator reaches divided by this is its efficiency on the machine at hand.
 *
 *   read             72 -> 24 + payload (-> 24 with --response)
 *   write, capsule   72 + payload -> 24
 *   write, R2T       72 -> 24 -> 24 + payload -> 24
 *
 * Happy path: connect a loopback socket to itself; try each staging size of the payload's receiver
 * for a moment and keep the best (which one wins depends on block size, depth and machine); run
 * warm-up and measurement; print. Failures end the program.
 */
#include "tests/bench/bench.h"
#include "tests/bench/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEPTH_MAX = 1024, BLOCK_MAX = 4 << 20 };
enum { SMALL_STAGE = 64 << 10 }; /* for a side that receives headers only */
enum phase { WARM, MEASURE, STOP };

struct wire_conf {
	const char *rw;
	uint32_t writes;        /* percent */
	bool digest, response, json;
	uint32_t bs, depth, incapsule, poll_us, send_max;
	uint32_t span;          /* bytes that the server's payload walks over; 0: stays hot */
	uint32_t stage;         /* 0: calibrate */
	double time;
	int cpu[2];             /* client, server */
};

struct side {
	struct link link;
	struct run *run;
	struct link_cost start, cost;
	uint64_t done, done_start; /* commands */
	uint16_t cid;           /* of the payload under way */
};

struct run {
	const struct wire_conf *conf;
	size_t stage, slot;     /* staging of the payload's receiver; bytes from buffer to buffer */
	int fd[2];
	uint8_t *buf[2];        /* client's and server's payload buffers, one for each command */
	size_t walk;            /* where the server's next payload is, with a span */
	uint64_t seed;          /* which commands write */
	_Atomic int phase;
	double seconds;
	struct side client, server;
};

static uint8_t *
slot_of(const struct run *r, unsigned side, uint16_t cid)
{
	if (cid >= r->conf->depth)
		bench_die("cid %u was never used", cid);
	return r->buf[side] + r->slot * cid;
}

/* The server's payload of a command: hot in one place, or walking over as much memory as a
 * namespace has. */
static uint8_t *
server_place(struct run *r, uint16_t cid, bool write)
{
	uint8_t *p = r->buf[1] + r->walk;

	if (!r->conf->span)
		return slot_of(r, 1, write ? cid : 0);
	r->walk += r->conf->bs;
	if (r->walk + r->conf->bs > r->conf->span)
		r->walk = 0;
	return p;
}

/* ---- the client ---- */

static void
client_issue(struct side *s, uint16_t cid)
{
	const struct wire_conf *c = s->run->conf;
	struct pdu_cmd *cmd = link_header(&s->link, sizeof(*cmd));
	bool write = c->writes == 100 ||
	             (c->writes && (bench_random(&s->run->seed) >> 32) % 100 < c->writes);

	memset(cmd, 0, sizeof(*cmd));
	cmd->hdr.type = PDU_CAPSULE_CMD;
	cmd->hdr.hlen = sizeof(*cmd);
	cmd->sqe.cid = le16_put(cid);
	cmd->sqe.opcode = write ? nvme_cmd_write : nvme_cmd_read;
	if (write && c->bs <= c->incapsule)
		link_seal(&s->link, &cmd->hdr, slot_of(s->run, 0, cid), c->bs);
	else
		link_seal(&s->link, &cmd->hdr, NULL, 0);
}

static void
client_done(struct side *s, uint16_t cid)
{
	s->done++;
	if (atomic_load_explicit(&s->run->phase, memory_order_relaxed) != STOP)
		client_issue(s, cid);
}

static void
client_send_data(struct side *s, uint16_t cid)
{
	struct pdu_data *d = link_header(&s->link, sizeof(*d));

	memset(d, 0, sizeof(*d));
	d->hdr.type = PDU_H2C_DATA;
	d->hdr.flags = PDU_F_LAST;
	d->hdr.hlen = sizeof(*d);
	d->cccid = le16_put(cid);
	d->datal = le32_put(s->run->conf->bs);
	link_seal(&s->link, &d->hdr, slot_of(s->run, 0, cid), s->run->conf->bs);
}

static void *
client_header(struct link *l, const struct pdu_hdr *hdr, uint32_t len)
{
	struct side *s = container_of(l, struct side, link);

	switch (hdr->type) {
	case PDU_C2H_DATA:
		if (len != s->run->conf->bs)
			bench_die("%u bytes came for a block", len);
		s->cid = le16_get(((const struct pdu_data *)hdr)->cccid);
		return slot_of(s->run, 0, s->cid);
	case PDU_R2T:
		client_send_data(s, le16_get(((const struct pdu_r2t *)hdr)->cccid));
		return NULL;
	case PDU_CAPSULE_RESP:
		client_done(s, le16_get(((const struct pdu_resp *)hdr)->cqe.cid));
		return NULL;
	}
	bench_die("unexpected message %u", hdr->type);
}

static void
client_payload(struct link *l)
{
	struct side *s = container_of(l, struct side, link);

	if (!s->run->conf->response)
		client_done(s, s->cid);
}

static const struct link_ops client_ops = { client_header, client_payload };

static void
client_run(struct run *r)
{
	struct side *s = &r->client;
	double begin, now;

	for (uint32_t i = 0; i < r->conf->depth; i++)
		client_issue(s, (uint16_t)i);
	for (begin = bench_now(); bench_now() < begin + r->conf->time * 0.2;)
		link_turn(&s->link);
	s->start = link_cost_now(&s->link);
	s->done_start = s->done;
	r->phase = MEASURE;
	begin = bench_now();
	do {
		link_turn(&s->link);
		now = bench_now();
	} while (now < begin + r->conf->time && !s->link.closed);
	r->phase = STOP;
	r->seconds = now - begin;
	s->cost = link_cost_since(&s->link, &s->start);
	s->done -= s->done_start;
	if (s->link.closed)
		bench_die("the server went away");
	shutdown(r->fd[0], SHUT_RDWR);
}

/* ---- the server ---- */

static void
server_respond(struct side *s, uint16_t cid)
{
	struct pdu_resp *resp = link_header(&s->link, sizeof(*resp));

	memset(resp, 0, sizeof(*resp));
	resp->hdr.type = PDU_CAPSULE_RESP;
	resp->hdr.hlen = sizeof(*resp);
	resp->cqe.cid = le16_put(cid);
	link_seal(&s->link, &resp->hdr, NULL, 0);
}

static void
server_send_data(struct side *s, uint16_t cid)
{
	const struct wire_conf *c = s->run->conf;
	struct pdu_data *d = link_header(&s->link, sizeof(*d));

	memset(d, 0, sizeof(*d));
	d->hdr.type = PDU_C2H_DATA;
	d->hdr.flags = (uint8_t)(PDU_F_LAST | (c->response ? 0 : PDU_F_SUCCESS));
	d->hdr.hlen = sizeof(*d);
	d->cccid = le16_put(cid);
	d->datal = le32_put(c->bs);
	link_seal(&s->link, &d->hdr, server_place(s->run, cid, false), c->bs);
	if (c->response)
		server_respond(s, cid);
}

static void
server_send_r2t(struct side *s, uint16_t cid)
{
	struct pdu_r2t *r2t = link_header(&s->link, sizeof(*r2t));

	memset(r2t, 0, sizeof(*r2t));
	r2t->hdr.type = PDU_R2T;
	r2t->hdr.hlen = sizeof(*r2t);
	r2t->cccid = le16_put(cid);
	r2t->r2tl = le32_put(s->run->conf->bs);
	link_seal(&s->link, &r2t->hdr, NULL, 0);
}

static void *
server_header(struct link *l, const struct pdu_hdr *hdr, uint32_t len)
{
	struct side *s = container_of(l, struct side, link);
	const struct pdu_cmd *cmd = (const struct pdu_cmd *)hdr;

	s->done += hdr->type == PDU_CAPSULE_CMD;
	if (hdr->type == PDU_CAPSULE_CMD)
		s->cid = le16_get(cmd->sqe.cid);
	else
		s->cid = le16_get(((const struct pdu_data *)hdr)->cccid);
	if (len) {
		if (len != s->run->conf->bs)
			bench_die("%u bytes came for a block", len);
		return server_place(s->run, s->cid, true);
	}
	if (cmd->sqe.opcode == nvme_cmd_write)
		server_send_r2t(s, s->cid);
	else
		server_send_data(s, s->cid);
	return NULL;
}

static void
server_payload(struct link *l)
{
	struct side *s = container_of(l, struct side, link);

	server_respond(s, s->cid);
}

static const struct link_ops server_ops = { server_header, server_payload };

static void
link_conf_of(const struct run *r, unsigned side, struct link_conf *ret)
{
	const struct wire_conf *c = r->conf;
	bool receiver = side == 1 ? c->writes > 0 : c->writes < 100;

	*ret = (struct link_conf){
		.fd = r->fd[side], .depth = c->depth, .send_max = c->send_max,
		.stage = receiver ? r->stage : SMALL_STAGE, .poll_us = c->poll_us,
		.hdgst = c->digest, .ddgst = c->digest,
	};
}

static void *
server_main(void *arg)
{
	struct run *r = arg;
	struct side *s = &r->server;
	struct link_conf conf;
	int phase = WARM;

	bench_pin(r->conf->cpu[1]);
	link_conf_of(r, 1, &conf);
	link_open(&s->link, &server_ops, &conf);
	while (!s->link.closed) {
		int now = atomic_load_explicit(&r->phase, memory_order_relaxed);

		if (now != phase && phase == WARM) {
			s->start = link_cost_now(&s->link);
			s->done_start = s->done;
		}
		if (now != phase && now == STOP)
			break;
		phase = now;
		link_turn(&s->link);
	}
	s->cost = link_cost_since(&s->link, &s->start);
	s->done -= s->done_start;
	link_close(&s->link);
	return NULL;
}

/* ---- a run ---- */

static void
loopback_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int lfd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (lfd < 0 || fd[0] < 0 || bind(lfd, (struct sockaddr *)&a, sizeof(a)) || listen(lfd, 1) ||
	    getsockname(lfd, (struct sockaddr *)&a, &len) ||
	    connect(fd[0], (struct sockaddr *)&a, sizeof(a)))
		bench_die("loopback connection: %s", strerror(errno));
	fd[1] = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
	if (fd[1] < 0)
		bench_die("accept: %s", strerror(errno));
	close(lfd);
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Runs once with this staging size; the caller owns buf and gives the result structure. */
static void
run_once(struct run *r, const struct wire_conf *conf, size_t stage, uint8_t *buf[2], size_t slot)
{
	struct link_conf lc;
	pthread_t server;

	memset(r, 0, sizeof(*r));
	r->conf = conf;
	r->seed = 0x9e3779b97f4a7c15ull;
	r->stage = stage;
	r->slot = slot;
	r->buf[0] = buf[0];
	r->buf[1] = buf[1];
	r->client.run = r->server.run = r;
	loopback_pair(r->fd);
	if (pthread_create(&server, NULL, server_main, r))
		bench_die("no thread");
	bench_pin(conf->cpu[0]);
	link_conf_of(r, 0, &lc);
	link_open(&r->client.link, &client_ops, &lc);
	client_run(r);
	pthread_join(server, NULL);
	link_close(&r->client.link);
	close(r->fd[0]);
	close(r->fd[1]);
}

/* The receiver's staging sizes worth trying; 80: the next header only, payloads land directly. */
static const size_t stages[] = {
	80, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10,
};

static size_t
calibrate(const struct wire_conf *conf, uint8_t *buf[2], size_t slot)
{
	struct wire_conf quick = *conf;
	struct run r;
	double best[ARRAY_SIZE(stages)] = { 0 };
	size_t ret = 0;

	quick.time = 0.1;
	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(stages); i++) {
			run_once(&r, &quick, stages[i], buf, slot);
			best[i] = MAX(best[i], (double)r.client.done / r.seconds);
		}
	}
	for (size_t i = 1; i < ARRAY_SIZE(stages); i++)
		if (best[i] > best[ret])
			ret = i;
	return stages[ret];
}

static void
report(const struct run *r)
{
	const struct wire_conf *c = r->conf;
	const struct side *s = &r->client, *t = &r->server;
	double n = s->done ? (double)s->done : 1, m = t->done ? (double)t->done : 1;
	const struct link_cost *landed = c->writes ? &t->cost : &s->cost;
	double bytes = (double)(landed->direct + landed->staged);

	printf(c->json ? "{\"rw\":\"%s\",\"bs\":%u,\"qd\":%u,\"digest\":%s,"
	                 "\"stage\":%zu,\"iops\":%.0f,\"mb_s\":%.1f,\"client_cpu_us\":%.3f,"
	                 "\"server_cpu_us\":%.3f,\"client_enters\":%.4f,"
	                 "\"server_enters\":%.4f,\"direct\":%.3f}\n"
	               : "%s bs %u qd %u digest %s stage %zu: %.0f IOPS, %.1f MB/s, "
	                 "CPU us/IO client %.3f server %.3f, "
	                 "enters/IO client %.4f server %.4f, direct %.3f\n",
	       c->rw, c->bs, c->depth, c->digest ? "true" : "false", r->stage,
	       n / r->seconds, n / r->seconds * c->bs / 1e6, s->cost.cpu / n * 1e6,
	       t->cost.cpu / m * 1e6, (double)s->cost.enters / n, (double)t->cost.enters / m,
	       bytes > 0 ? (double)landed->direct / bytes : 0);
}

static void
parse(int argc, char **argv, struct wire_conf *c)
{
	const struct bench_opt opts[] = {
		{ "rw", BENCH_WORD, &c->rw, "read, write or mix, 70 to 30" },
		{ "bs", BENCH_SIZE, &c->bs, "bytes of an I/O" },
		{ "qd", BENCH_SIZE, &c->depth, "commands in flight" },
		{ "time", BENCH_SECONDS, &c->time, "seconds to measure" },
		{ "digest", BENCH_FLAG, &c->digest, "header and data digests on both sides" },
		{ "in-capsule", BENCH_SIZE, &c->incapsule, "larger writes wait for an R2T" },
		{ "response", BENCH_FLAG, &c->response, "reads end with a response of their own" },
		{ "client-cpu", BENCH_CPU, &c->cpu[0], "core of the client, -1: any" },
		{ "server-cpu", BENCH_CPU, &c->cpu[1], "core of the server, -1: any" },
		{ "stage", BENCH_SIZE, &c->stage, "of the payload's receiver, 0: try them" },
		{ "server-span", BENCH_SIZE, &c->span, "memory that its payload walks over" },
		{ "send-max", BENCH_SIZE, &c->send_max, "most bytes in one send, 0: no limit" },
		{ "poll-us", BENCH_SIZE, &c->poll_us, "spin so long before sleeping" },
		{ "json", BENCH_FLAG, &c->json, "one JSON object" },
		{ 0 },
	};

	bench_options(argc, argv, opts);
	c->writes = bench_writes(c->rw);
	if (c->depth == 0 || c->depth > DEPTH_MAX)
		bench_die("--qd: 1 to %d", DEPTH_MAX);
	if (c->bs == 0 || c->bs > BLOCK_MAX)
		bench_die("--bs: 1 to %d bytes", BLOCK_MAX);
	if (c->span && c->span < 2 * c->depth * c->bs)
		bench_die("--server-span: too small for %u commands", c->depth);
}

int
main(int argc, char **argv)
{
	struct wire_conf conf = {
		.rw = "read", .bs = 4096, .depth = 32, .incapsule = 8192, .time = 1, .cpu = { 1, 0 },
	};
	static struct run r;
	uint8_t *buf[2];
	size_t slot;

	parse(argc, argv, &conf);
	slot = ROUND_UP((size_t)conf.bs + PDU_DIGEST_LEN, 4096);
	buf[0] = bench_alloc(slot * conf.depth);
	buf[1] = bench_alloc(MAX(slot * conf.depth, (size_t)conf.span + PDU_DIGEST_LEN));
	if (conf.stage == 0)
		conf.stage = (uint32_t)calibrate(&conf, buf, slot);
	run_once(&r, &conf, conf.stage, buf, slot);
	report(&r);
	return 0;
}
