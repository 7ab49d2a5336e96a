/* A bare NVMe/TCP host that loads a target: one I/O queue, a fixed depth, no policy.
 *
 * Every command is issued again the moment its completion arrives, with the same cid and the same
 * buffer. Responses are checked cheaply but honestly: the cid is in flight, the status is zero, a
 * read got all its bytes. Writes go in the capsule when the controller's IOCCSZ allows it and wait
 * for R2T otherwise.
 *
 * Happy path: session_open() makes the association; issue depth commands; link_turn() until time
 * or count is up, counting from the end of the warm-up; let what is in flight end; print. Whatever
 * goes wrong ends the program.
 */
#include "tests/bench/bench.h"
#include "tests/bench/session.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 1023, BLOCK_MAX = 4 << 20 };
enum { LARGE = 64 << 10 };      /* from here on payloads are better received in place */
enum { STAGE_SMALL = 128 << 10, STAGE_LARGE = 32 << 10 }; /* as tests/bench/wire finds them */

struct slot {                   /* a command; its cid is its index */
	uint32_t got;           /* payload bytes that arrived */
	bool busy, write;
};

struct host {
	struct session session;
	bool random, stopping;
	uint32_t bs, depth, writes; /* writes: percent */
	size_t stride;          /* from buffer to buffer */
	uint8_t *buffers;
	struct slot *slots;
	struct pdu_cmd model[2]; /* what every capsule starts from: reads, writes */
	uint64_t chunks, next;  /* I/Os that fit the namespace; the next sequential one */
	uint64_t seed;
	uint64_t done;          /* commands ended */
	uint32_t busy;
	uint16_t cid;           /* of the C2HData under way */
	uint8_t flags;
};

struct host_conf {
	struct session_conf session;
	struct link_conf link;
	const char *rw;
	uint32_t bs, count, stage;
	bool random, json;
	double time;
	int cpu;
};

static struct host *
host_of(struct link *l)
{
	return container_of(l, struct host, session.io.link);
}

/* The high half times the range needs no division. */
static uint64_t
draw(struct host *h, uint64_t range)
{
	return (bench_random(&h->seed) >> 32) * range >> 32;
}

static uint64_t
next_chunk(struct host *h)
{
	if (h->random)
		return draw(h, h->chunks);
	if (h->next == h->chunks)
		h->next = 0;
	return h->next++;
}

static void
issue(struct host *h, uint16_t cid)
{
	struct link *l = &h->session.io.link;
	struct pdu_cmd *cmd = link_header(l, sizeof(*cmd));
	uint64_t lba = next_chunk(h) * (h->bs / h->session.block);
	bool write = h->writes == 100 || (h->writes && draw(h, 100) < h->writes);
	bool data = write && h->model[true].sqe.sgl.type == SGL_IN_CAPSULE;

	*cmd = h->model[write];
	cmd->sqe.cid = le16_put(cid);
	cmd->sqe.cdw10 = le32_put((uint32_t)lba);
	cmd->sqe.cdw11 = le32_put((uint32_t)(lba >> 32));
	h->slots[cid] = (struct slot){ .busy = true, .write = write };
	h->busy++;
	link_seal(l, &cmd->hdr, data ? h->buffers + h->stride * cid : NULL, data ? h->bs : 0);
}

static struct slot *
slot_of(struct host *h, uint16_t cid)
{
	if (cid >= h->depth || !h->slots[cid].busy)
		bench_die("cid %u is not in flight", cid);
	return &h->slots[cid];
}

static void
complete(struct host *h, uint16_t cid, uint16_t status)
{
	struct slot *s = slot_of(h, cid);

	if (status >> 1)
		bench_die("cid %u: status %03xh", cid, status >> 1);
	if (!s->write && s->got != h->bs)
		bench_die("cid %u: %u of %u bytes arrived", cid, s->got, h->bs);
	s->busy = false;
	h->busy--;
	h->done++;
	if (!h->stopping)
		issue(h, cid);
}

/* Answers an R2T with as many H2CData as MAXH2CDATA asks for. */
static void
send_data(struct host *h, const struct pdu_r2t *r2t)
{
	uint16_t cid = le16_get(r2t->cccid);
	uint32_t at = le32_get(r2t->r2to), left = le32_get(r2t->r2tl);
	struct link *l = &h->session.io.link;

	if (!slot_of(h, cid)->write || at > h->bs || left > h->bs - at || !left)
		bench_die("cid %u: R2T for %u bytes at %u", cid, left, at);
	while (left) {
		uint32_t n = MIN(left, h->session.io.max_h2c);
		struct pdu_data *d = link_header(l, sizeof(*d));

		*d = (struct pdu_data){
			.hdr = { .type = PDU_H2C_DATA, .hlen = sizeof(*d) },
			.cccid = r2t->cccid, .ttag = r2t->ttag,
			.datao = le32_put(at), .datal = le32_put(n),
		};
		d->hdr.flags = n == left ? PDU_F_LAST : 0;
		link_seal(l, &d->hdr, h->buffers + h->stride * cid + at, n);
		at += n;
		left -= n;
	}
}

static void *
host_header(struct link *l, const struct pdu_hdr *hdr, uint32_t len)
{
	struct host *h = host_of(l);
	const struct pdu_data *d = (const struct pdu_data *)hdr;
	const struct pdu_resp *r = (const struct pdu_resp *)hdr;
	struct slot *s;
	uint32_t at;

	switch (hdr->type) {
	case PDU_C2H_DATA:
		h->cid = le16_get(d->cccid);
		h->flags = hdr->flags;
		at = le32_get(d->datao);
		s = slot_of(h, h->cid);
		if (s->write || at != s->got || len > h->bs - at || !len)
			bench_die("cid %u: C2HData of %u bytes at %u", h->cid, len, at);
		s->got += len;
		return h->buffers + h->stride * h->cid + at;
	case PDU_CAPSULE_RESP:
		complete(h, le16_get(r->cqe.cid), le16_get(r->cqe.status));
		return NULL;
	case PDU_R2T:
		send_data(h, (const struct pdu_r2t *)hdr);
		return NULL;
	}
	bench_die("unexpected %s", pdu_type_name(hdr->type));
}

static void
host_payload(struct link *l)
{
	struct host *h = host_of(l);

	if (h->flags & PDU_F_SUCCESS)
		complete(h, h->cid, 0);
}

static const struct link_ops host_ops = { host_header, host_payload };

static struct pdu_cmd
model_of(const struct host_conf *c, const struct session *s, bool write)
{
	bool capsule = write && c->bs <= s->in_capsule;

	return (struct pdu_cmd){
		.hdr = { .type = PDU_CAPSULE_CMD, .hlen = sizeof(struct pdu_cmd) },
		.sqe = {
			.opcode = write ? nvme_cmd_write : nvme_cmd_read,
			.flags = NVME_PSDT_SGL << 6,
			.nsid = le32_put(c->session.nsid),
			.sgl = { .type = capsule ? SGL_IN_CAPSULE : SGL_TRANSPORT,
			         .len = le32_put(c->bs) },
			.cdw12 = le32_put(c->bs / s->block - 1),
		},
	};
}

static void
prepare(struct host *h, const struct host_conf *c)
{
	const struct session *s = &h->session;

	if (c->bs % s->block || c->bs > s->max_transfer || c->bs / s->block > 65536)
		bench_die("--bs %u: blocks are %u bytes, transfers at most %u", c->bs, s->block,
		          s->max_transfer);
	h->writes = bench_writes(c->rw);
	h->random = c->random;
	h->bs = c->bs;
	h->depth = c->session.depth;
	h->seed = 0x9e3779b97f4a7c15ull;
	h->chunks = s->blocks / (c->bs / s->block);
	if (!h->chunks || h->chunks > UINT32_MAX)
		bench_die("the namespace has %llu blocks", (unsigned long long)s->blocks);
	h->stride = ROUND_UP((size_t)c->bs + PDU_DIGEST_LEN, 4096);
	h->buffers = bench_alloc(h->stride * h->depth);
	h->slots = bench_alloc(h->depth * sizeof(*h->slots));
	memset(h->slots, 0, h->depth * sizeof(*h->slots));
	h->model[false] = model_of(c, s, false);
	h->model[true] = model_of(c, s, true);
}

static void
turn(struct host *h)
{
	link_turn(&h->session.io.link);
	if (h->session.io.link.closed)
		bench_die("the target closed the connection");
}

/* Runs the load; returns the seconds measured and what they cost. */
static double
run(struct host *h, const struct host_conf *c, struct link_cost *ret_cost, uint64_t *ret_done)
{
	struct link *l = &h->session.io.link;
	struct link_cost start;
	double begin, now;
	uint64_t done;

	l->ops = &host_ops;
	for (uint32_t i = 0; i < h->depth; i++)
		issue(h, (uint16_t)i);
	for (begin = bench_now(); !c->count && bench_now() < begin + c->time * 0.2;)
		turn(h);
	start = link_cost_now(l);
	done = h->done;
	begin = bench_now();
	do {
		turn(h);
		now = bench_now();
	} while (c->count ? h->done < c->count : now < begin + c->time);
	*ret_cost = link_cost_since(l, &start);
	*ret_done = h->done - done;
	h->stopping = true;
	while (h->busy)
		turn(h);
	return now - begin;
}

static void
report(const struct host_conf *c, double seconds, const struct link_cost *cost, uint64_t done,
       uint64_t total)
{
	double n = done ? (double)done : 1;

	printf(c->json ? "{\"rw\":\"%s\",\"bs\":%u,\"qd\":%u,\"ios\":%llu,\"seconds\":%.3f,"
	                 "\"iops\":%.0f,\"mb_s\":%.1f,\"cpu_us\":%.3f,\"enters\":%.4f,"
	                 "\"total\":%llu}\n"
	               : "%s bs %u qd %u: %llu I/Os in %.3f s, %.0f IOPS, %.1f MB/s, "
	                 "host CPU us/IO %.3f, enters/IO %.4f, %llu with warm-up\n",
	       c->rw, c->bs, c->session.depth, (unsigned long long)done,
	       seconds, n / seconds, n / seconds * c->bs / 1e6, cost->cpu / n * 1e6,
	       (double)cost->enters / n, (unsigned long long)total);
}

static void
parse(int argc, char **argv, struct host_conf *c)
{
	const struct bench_opt opts[] = {
		{ "connect", BENCH_WORD, &c->session.address, "ADDR:PORT of the target" },
		{ "nqn", BENCH_WORD, &c->session.subnqn, "subsystem" },
		{ "hostnqn", BENCH_WORD, &c->session.hostnqn, "this host" },
		{ "nsid", BENCH_SIZE, &c->session.nsid, "namespace" },
		{ "rw", BENCH_WORD, &c->rw, "read, write or mix, 70 to 30" },
		{ "bs", BENCH_SIZE, &c->bs, "bytes of an I/O" },
		{ "qd", BENCH_SIZE, &c->session.depth, "commands in flight" },
		{ "time", BENCH_SECONDS, &c->time, "seconds to measure" },
		{ "count", BENCH_SIZE, &c->count, "run so many I/Os instead" },
		{ "random", BENCH_FLAG, &c->random, "random addresses" },
		{ "hdgst", BENCH_FLAG, &c->session.hdgst, "header digests" },
		{ "ddgst", BENCH_FLAG, &c->session.ddgst, "data digests" },
		{ "no-sq-flow-control", BENCH_FLAG, &c->session.no_sq_flow_control,
		  "reads may end without a response" },
		{ "stage", BENCH_SIZE, &c->stage, "of the receiver, 0: by block size" },
		{ "cpu", BENCH_CPU, &c->cpu, "core, -1: any" },
		{ "poll-us", BENCH_SIZE, &c->link.poll_us, "spin so long before sleeping" },
		{ "json", BENCH_FLAG, &c->json, "one JSON object" },
		{ 0 },
	};

	bench_options(argc, argv, opts);
	bench_writes(c->rw);
	if (c->session.depth == 0 || c->session.depth > DEPTH_MAX)
		bench_die("--qd: 1 to %d", DEPTH_MAX);
	if (c->bs == 0 || c->bs > BLOCK_MAX)
		bench_die("--bs: 1 to %d bytes", BLOCK_MAX);
}

int
main(int argc, char **argv)
{
	static struct host h;
	struct host_conf c = {
		.session = {
			.address = "127.0.0.1:4420", .subnqn = "nqn.2026-11.io.sluice:default",
			.hostnqn = "nqn.2026-11.io.sluice:bench-host", .nsid = 1, .depth = 32,
		},
		.rw = "read", .bs = 4096, .time = 1, .cpu = -1,
	};
	struct link_cost cost;
	uint64_t done;
	double seconds;

	parse(argc, argv, &c);
	bench_pin(c.cpu);
	c.link.stage = c.bs >= LARGE ? STAGE_LARGE : STAGE_SMALL;
	if (c.stage)
		c.link.stage = c.stage;
	/* MAXH2CDATA is at least 4096: so many PDUs can one turn hold at worst. */
	c.link.depth = c.session.depth * (1 + c.bs / 4096 / 2);
	session_open(&h.session, &c.session, &c.link);
	prepare(&h, &c);
	seconds = run(&h, &c, &cost, &done);
	report(&c, seconds, &cost, done, h.done);
	session_close(&h.session);
	return 0;
}
