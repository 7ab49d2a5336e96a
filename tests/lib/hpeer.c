/* The scripted target; see the header. PDUs are built with common/pdu.h, which has tests of its
 * own. */
#include "tests/lib/hpeer.h"

#include "common/digest.h"
#include "initiator/initiator.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 5 };        /* far beyond what any step takes */

#define TICK_NS 1000000ull

/* the ring */

static void
ticked(struct ring_timer *t)
{
	struct rig *g = container_of(t, struct rig, tick);

	ring_timer_set(g->r.ring, t, ring_now(g->r.ring) + TICK_NS);
}

static void
turn_hook(void *arg)
{
	struct rig *g = arg;

	chan_flush_all(&g->r.dirty);
}

void
rig_turn(struct rig *g)
{
	ring_turn(g->r.ring);
}

bool
rig_wait(struct rig *g, const unsigned *counter, unsigned want)
{
	time_t end = time(NULL) + PATIENCE_S;

	while (*counter < want && time(NULL) <= end)
		rig_turn(g);
	return *counter >= want;
}

/* the owner of the connection */

static void
was_up(struct hconn *hc, void *owner, uint32_t dw0)
{
	struct rig *g = owner;

	CHECK(hconn_is_up(hc));
	g->ups++;
	g->dw0 = dw0;
}

static void
was_down(struct hconn *hc, void *owner, const char *why, bool dnr)
{
	struct rig *g = owner;

	g->downs++;
	g->dnr = dnr;
	snprintf(g->why, sizeof(g->why), "%s", why);
	hconn_free(hc);
	if (hc == g->hc)
		g->hc = NULL;
}

static void
was_violated(struct hconn *hc, void *owner, enum hconn_violation kind, uint16_t cid, uint64_t off,
	     uint64_t len)
{
	struct rig *g = owner;

	(void)cid;
	(void)off;
	(void)len;
	CHECK_EQ(hconn_stats(hc)->violations[kind], 1);
	g->violations++;
	g->kind = kind;
}

static void
rig_listen(struct rig *g)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)&g->cfg.addr;

	g->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	g->cfg.addr_len = sizeof(*sin);
	if (bind(g->listener, (struct sockaddr *)sin, sizeof(*sin)) < 0 ||
	    listen(g->listener, 1) < 0 ||
	    getsockname(g->listener, (struct sockaddr *)sin, &g->cfg.addr_len) < 0)
		abort();
}

static void
rig_reactor(struct rig *g)
{
	static struct initiator in;
	static struct ring *ring; /* one for all: ending a ring is slow */
	struct ring_config rc = { .entries = 64, .max_bufs = 1, .name = "test" };
	struct err err;

	list_init(&g->r.dirty);
	if ((!ring && ring_new(&rc, &ring, &err) < 0) ||
	    buf_pool_new(NULL, g->t.pool, 128 << 10, &g->r.pool, &err) < 0) {
		fprintf(stderr, "no ring\n");
		exit(77);
	}
	g->r.ring = ring;
	g->r.in = &in;
	ring_set_turn_hook(g->r.ring, turn_hook, g);
	ring_timer_init(&g->tick, ticked);
	ring_timer_set(g->r.ring, &g->tick, ring_now(g->r.ring) + TICK_NS);
}

static void
rig_terms(struct rig *g)
{
	const struct terms *t = &g->t;
	struct hconn_config *cfg = &g->cfg;

	cfg->r = &g->r;
	cfg->owner = g;
	cfg->sqsize = t->sqsize ? t->sqsize : 31;
	cfg->hdgst = t->hdgst;
	cfg->ddgst = t->ddgst;
	cfg->no_sq_flow_control = !t->flow_control;
	cfg->in_capsule = t->in_capsule;
	cfg->connect_ms = t->connect_ms ? t->connect_ms : 5000;
	cfg->io_ms = t->io_ms;
	cfg->zc = t->zc;
}

void
rig_open(struct rig *g, const struct terms *t)
{
	static const struct hconn_config plain = {
		.name = "test queue",
		.subnqn = "nqn.2026-11.io.sluice:subsystem",
		.hostnqn = "nqn.2026-11.io.sluice:host",
		.hostid = { 1, 2, 3 },
		.qid = 1,
		.cntlid = 7,
		.up = was_up,
		.down = was_down,
		.violation = was_violated,
	};

	memset(g, 0, sizeof(*g));
	g->t = *t;
	g->t.pool = t->pool ? t->pool : 1 << 20;
	g->t.maxh2cdata = t->maxh2cdata ? t->maxh2cdata : 128 << 10;
	g->cfg = plain;
	rig_reactor(g);
	rig_listen(g);
	rig_terms(g);
	g->hc = hconn_open(&g->cfg);
	rig_turn(g);
	g->fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC); /* the handshake is the kernel's */
}

void
rig_up(struct rig *g, const struct terms *t)
{
	rig_open(g, t);
	peer_ic(g, g->t.maxh2cdata, t->cpda,
	        (t->hdgst ? PDU_DGST_HDR : 0) | (t->ddgst ? PDU_DGST_DATA : 0));
	peer_connect(g, 0, 7);
	CHECK(rig_wait(g, &g->ups, 1));
}

void
rig_end(struct rig *g)
{
	if (g->hc)
		hconn_close(g->hc, "the test ends");
	CHECK(rig_wait(g, &g->downs, 1));
	CHECK_EQ(g->downs, 1);
	peer_close(g);
	close(g->listener);
	CHECK_EQ(buf_pool_used(g->r.pool), 0);
	CHECK_EQ(ring_inflight(g->r.ring), 0);
	buf_pool_free(g->r.pool);
	ring_timer_del(&g->tick);
}

/* the peer */

bool
peer_read(struct rig *g, void *into, size_t n)
{
	time_t end = time(NULL) + PATIENCE_S;
	uint8_t *p = into;

	while (n > 0 && time(NULL) <= end) {
		ssize_t got = recv(g->fd, p, n, MSG_DONTWAIT);

		if (got == 0 || (got < 0 && errno != EAGAIN))
			return false;
		if (got < 0) {
			rig_turn(g);
			continue;
		}
		p += got;
		n -= (size_t)got;
	}
	return n == 0;
}

const struct pdu_hdr *
peer_read_pdu(struct rig *g)
{
	const struct pdu_hdr *hdr = (const struct pdu_hdr *)g->in;
	uint32_t plen;

	if (!peer_read(g, g->in, sizeof(*hdr)))
		return NULL;
	plen = le32_get(hdr->plen);
	if (!CHECK(plen <= sizeof(g->in)) ||
	    !peer_read(g, g->in + sizeof(*hdr), plen - sizeof(*hdr)))
		return NULL;
	return hdr;
}

void
peer_raw(struct rig *g, const void *bytes, size_t n)
{
	if (g->n + n > sizeof(g->out))
		abort();
	memcpy(g->out + g->n, bytes, n);
	g->n += n;
}

/* Everything that was said, in one piece, turning when the socket is full. */
void
peer_flush(struct rig *g)
{
	time_t end = time(NULL) + PATIENCE_S;

	for (size_t at = 0; at < g->n && time(NULL) <= end;) {
		ssize_t res = send(g->fd, g->out + at, g->n - at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (res < 0 && errno != EAGAIN)
			break;
		if (res < 0)
			rig_turn(g);
		else
			at += (size_t)res;
	}
	g->n = 0;
}

void
peer_close(struct rig *g)
{
	if (g->fd >= 0)
		close(g->fd);
	g->fd = -1;
}

void
peer_data(struct rig *g, uint16_t cid, uint32_t off, uint32_t len, uint8_t flags)
{
	uint8_t head[sizeof(struct pdu_data) + PDU_DIGEST_LEN + PDU_PAD_MAX];
	struct pdu_data *pdu = (struct pdu_data *)head;
	uint8_t *payload;

	*pdu = (struct pdu_data){
		.cccid = le16_put(cid), .datao = le32_put(off), .datal = le32_put(len)};
	pdu_begin(&pdu->hdr, PDU_C2H_DATA, sizeof(*pdu), flags, len, g->t.hdgst, g->t.ddgst, 0);
	peer_raw(g, head, pdu_seal(&pdu->hdr));
	payload = g->out + g->n;
	memset(payload, PAYLOAD, len);
	g->n += len;
	if (g->t.ddgst) {
		le32 crc = le32_put(digest_of(payload, len));

		peer_raw(g, &crc, sizeof(crc));
	}
}

void
peer_r2t(struct rig *g, uint16_t cid, uint16_t ttag, uint32_t off, uint32_t len)
{
	uint8_t head[sizeof(struct pdu_r2t) + PDU_DIGEST_LEN];
	struct pdu_r2t *pdu = (struct pdu_r2t *)head;

	*pdu = (struct pdu_r2t){.cccid = le16_put(cid),
				.ttag = le16_put(ttag),
				.r2to = le32_put(off),
				.r2tl = le32_put(len)};
	pdu_begin(&pdu->hdr, PDU_R2T, sizeof(*pdu), 0, 0, g->t.hdgst, false, 0);
	peer_raw(g, head, pdu_seal(&pdu->hdr));
}

static void
say_resp(struct rig *g, uint16_t cid, uint16_t status, uint32_t dw0)
{
	uint8_t head[sizeof(struct pdu_resp) + PDU_DIGEST_LEN];
	struct pdu_resp *pdu = (struct pdu_resp *)head;

	*pdu = (struct pdu_resp){ .cqe = { .dw0 = le32_put(dw0), .cid = le16_put(cid),
		                           .status = le16_put((uint16_t)(status << 1)) } };
	pdu_begin(&pdu->hdr, PDU_CAPSULE_RESP, sizeof(*pdu), 0, 0, g->t.hdgst, false, 0);
	peer_raw(g, head, pdu_seal(&pdu->hdr));
}

void
peer_resp(struct rig *g, uint16_t cid, uint16_t status)
{
	say_resp(g, cid, status, 0);
}

void
peer_ic(struct rig *g, uint32_t maxh2cdata, uint8_t cpda, uint8_t dgst)
{
	struct pdu_icresp resp = { .cpda = cpda, .dgst = dgst, .maxh2cdata = le32_put(maxh2cdata) };
	const struct pdu_icreq *req = (const struct pdu_icreq *)peer_read_pdu(g);

	if (!CHECK(req != NULL))
		return;
	CHECK_EQ(req->hdr.type, PDU_ICREQ);
	CHECK_EQ(le16_get(req->pfv), 0);
	CHECK_EQ(req->hpda, 0);
	CHECK_EQ(req->dgst, (g->t.hdgst ? PDU_DGST_HDR : 0) | (g->t.ddgst ? PDU_DGST_DATA : 0));
	CHECK_EQ(le32_get(req->maxr2t), 3);
	pdu_begin(&resp.hdr, PDU_ICRESP, sizeof(resp), 0, 0, false, false, 0);
	peer_raw(g, &resp, sizeof(resp));
	peer_flush(g);
}

void
peer_connect(struct rig *g, uint16_t status, uint32_t dw0)
{
	const struct pdu_cmd *cmd = (const struct pdu_cmd *)peer_read_pdu(g);
	const struct nvme_connect_sqe *sqe;
	const struct nvme_connect_data *data;

	if (!CHECK(cmd != NULL))
		return;
	sqe = (const struct nvme_connect_sqe *)&cmd->sqe;
	data = (const struct nvme_connect_data *)(g->in + pdu_head_len(&cmd->hdr));
	CHECK_EQ(cmd->hdr.type, PDU_CAPSULE_CMD);
	CHECK_EQ(pdu_data_len(&cmd->hdr), sizeof(*data));
	CHECK_EQ(cmd->hdr.pdo, pdu_data_offset(sizeof(*cmd), g->t.hdgst, g->t.cpda));
	CHECK_EQ(sqe->opcode, nvme_admin_fabrics);
	CHECK_EQ(sqe->fctype, nvme_fabrics_type_connect);
	CHECK_EQ(sqe->sgl.type, SGL_IN_CAPSULE);
	CHECK_EQ(le16_get(sqe->qid), 1);
	CHECK_EQ(sqe->cattr, g->t.flow_control ? 0 : CATTR_NO_SQ_FLOW_CONTROL);
	CHECK_EQ(le16_get(data->cntlid), 7);
	CHECK_EQ(data->hostid[2], 3);
	CHECK_STR(data->subnqn, "nqn.2026-11.io.sluice:subsystem");
	CHECK_STR(data->hostnqn, "nqn.2026-11.io.sluice:host");
	say_resp(g, le16_get(cmd->sqe.cid), status, dw0);
	peer_flush(g);
}

/* work */

static const struct {
	uint32_t at, len;
} pieces[] = {{100, 1000}, {5000, 4096}, {12000, 3096}};

static void
work_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct work *w = container_of(p, struct work, p);

	w->ended++;
	w->status = status;
	w->dw0 = dw0;
}

void
work_init(struct work *w, bool to_host)
{
	uint64_t rng = 0x5eed;

	memset(w, 0, sizeof(*w));
	memset(w->mem, CANARY, sizeof(w->mem));
	w->p.sqe.opcode = to_host ? nvme_cmd_read : nvme_cmd_write;
	w->p.to_host = to_host;
	w->p.len = WORK_LEN;
	w->p.sg = w->p.inl;
	w->p.nsg = ARRAY_SIZE(pieces);
	w->p.done = work_done;
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		w->p.inl[i] = (struct iovec){ w->mem + pieces[i].at, pieces[i].len };
	for (size_t i = 0; !to_host && i < sizeof(w->mem); i++)
		w->mem[i] = (uint8_t)unit_random(&rng);
}

uint16_t
work_send(struct rig *g, struct work *w)
{
	const struct pdu_cmd *cmd;

	hconn_send(g->hc, &w->p);
	CHECK_EQ(w->ended, 0);
	cmd = (const struct pdu_cmd *)peer_read_pdu(g);
	if (!CHECK(cmd != NULL))
		return 0;
	CHECK_EQ(cmd->hdr.type, PDU_CAPSULE_CMD);
	CHECK_EQ(cmd->sqe.opcode, w->p.sqe.opcode);
	CHECK_EQ(NVME_SQE_PSDT(cmd->sqe.flags), NVME_PSDT_SGL);
	CHECK_EQ(le32_get(cmd->sqe.sgl.len), w->p.len);
	return le16_get(cmd->sqe.cid);
}

/* Where byte i of the data is. */
static size_t
place(uint32_t i)
{
	unsigned k = 0;

	for (; i >= pieces[k].len; k++)
		i -= pieces[k].len;
	return pieces[k].at + i;
}

void
work_check_read(const struct work *w, uint32_t n)
{
	static uint8_t want[WORK_MEM];

	memset(want, CANARY, sizeof(want));
	for (uint32_t i = 0; i < n; i++)
		want[place(i)] = PAYLOAD;
	CHECK_MEM(w->mem, want, sizeof(want));
}

void
work_check_write(const struct work *w, uint32_t off, uint32_t len, const uint8_t *p)
{
	static uint8_t want[WORK_LEN];

	for (uint32_t i = 0; i < len; i++)
		want[i] = w->mem[place(off + i)];
	CHECK_MEM(p, want, len);
}
