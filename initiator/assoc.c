/* The admin queue of a controller: connecting, asking step by step, keeping alive, hearing events.
 * See assoc.h.
 *
 * One step is asked at a time, with one part and one page for its data. Every answer has a limit; a
 * controller that does not answer costs nobody else anything, it is closed by a timer.
 *
 * What can fail ends in assoc_close(): the reason that came first is the one that is told.
 */
#include "initiator/assoc.h"

#include "common/log.h"
#include "initiator/assoc_inner.h"
#include "initiator/path_queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MS            1000000ull /* ns */
#define CONNECT_MS    5000  /* each stage: TCP, ICResp, Connect */
#define ANSWER_MS     10000 /* of an admin command */
#define SHUTDOWN_MS   1000  /* of the last one: nobody waits longer to say goodbye */
#define POLL_MS       50    /* between two looks at CSTS */
#define EVENT_MS      100   /* between two events: a controller that has more of them waits */

enum {
	ADMIN_SQSIZE = 31,      /* as Linux: 32 entries, which every controller must have */
};

static void assoc_ask(struct assoc *a);

/* addresses */

static int
parse_addr(const char *addr, const char *svc, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	in_port_t port = htons((uint16_t)strtoul(svc, NULL, 10));

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, addr, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = port;
		*ret_len = sizeof(*v4);
		return 0;
	}
	if (inet_pton(AF_INET6, addr, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = port;
		*ret_len = sizeof(*v6);
		return 0;
	}
	return -EINVAL;
}

int
path_config_addrs(const struct path_config *cfg, struct hconn_config *ret)
{
	int res = parse_addr(cfg->traddr, cfg->trsvcid, &ret->addr, &ret->addr_len);

	ret->local_len = 0;
	if (res == 0 && cfg->host_traddr[0])
		res = parse_addr(cfg->host_traddr, "0", &ret->local, &ret->local_len);
	return res;
}

/* ending */

static void
assoc_vclose(struct assoc *a, const char *fmt, va_list ap)
{
	char why[sizeof(a->why)]; /* an argument may be a->why */

	if (a->closing)
		return;
	a->closing = true;
	a->step = NULL;
	vsnprintf(why, sizeof(why), fmt, ap);
	memcpy(a->why, why, sizeof(why));
	ring_timer_del(&a->timer);
	ring_timer_del(&a->ka_timer);
	ring_timer_del(&a->aer_timer);
	if (a->hc)
		hconn_close(a->hc, a->why);
	else /* down, from the loop */
		ring_timer_set(a->c.r->ring, &a->timer, ring_now(a->c.r->ring));
}

enum took
assoc_fail(struct assoc *a, bool dnr, const char *fmt, ...)
{
	va_list ap;

	a->dnr = dnr;
	va_start(ap, fmt);
	assoc_vclose(a, fmt, ap);
	va_end(ap);
	return TOOK_FAILED;
}

void
assoc_close(struct assoc *a, const char *why)
{
	assoc_fail(a, false, "%s", why);
}

static void
assoc_down(struct assoc *a, const char *why, bool dnr)
{
	a->closing = false;
	a->live = false;
	a->shutting = false;
	a->ka_out = a->aer_out = a->rescan = false;
	a->step = NULL;
	ring_timer_del(&a->timer);
	ring_timer_del(&a->ka_timer);
	ring_timer_del(&a->aer_timer);
	a->c.ops->down(a->c.owner, why, dnr); /* may free a */
}

static void
hc_down(struct hconn *hc, void *owner, const char *why, bool dnr)
{
	struct assoc *a = owner;

	if (!a->closing) {
		a->dnr = dnr;
		snprintf(a->why, sizeof(a->why), "%s", why);
	}
	a->hc = NULL;
	hconn_free(hc);
	assoc_down(a, a->why, a->dnr);
}

/* asking */

void
assoc_want_page(struct assoc *a)
{
	a->cmd.len = ASSOC_PAGE;
	a->cmd.to_host = true;
}

static void
part_reset(struct part *p, void (*done)(struct part *p, uint16_t status, uint32_t dw0))
{
	memset(&p->sqe, 0, sizeof(p->sqe));
	p->len = 0;
	p->to_host = false;
	p->nsg = 0;
	p->sg = p->inl;
	p->done = done;
}

/* False: the connection is about to go down, and says so itself. */
static bool
assoc_out(struct assoc *a, struct part *p)
{
	if (a->closing || !a->hc || hconn_room(a->hc) == 0)
		return false;
	hconn_send(a->hc, p);
	return true;
}

static void
assoc_finished(struct assoc *a)
{
	bool rescan = a->rescan && !a->c.discovery; /* the log is the owner's to read */

	a->step = NULL;
	a->rescan = false;
	if (rescan) {
		a->step = assoc_rescan_from;
		assoc_ask(a);
	} else if (a->live) {
		a->c.ops->changed(a->c.owner);
	} else {
		a->live = true;
		a->c.ops->ready(a->c.owner);
	}
}

static void
step_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct assoc *a = container_of(p, struct assoc, cmd);
	const struct step *s = a->step;

	if (status == PART_LOST || a->closing)
		return; /* down follows */
	ring_timer_del(&a->timer);
	if (status != 0 && !s->may_fail) {
		assoc_fail(a, status & NVME_SC_DNR, "%s failed with status %03xh", s->name,
		           status & NVME_STATUS_MASK);
		return;
	}
	switch (s->take(a, status, dw0, p->dw1)) {
	case TOOK_NEXT:
		a->step = s + 1;
		break;
	case TOOK_AGAIN:
		break;
	case TOOK_BACK:
		a->step = s - 1;
		break;
	case TOOK_LATER:
		a->pausing = true;
		ring_timer_set(a->c.r->ring, &a->timer, ring_now(a->c.r->ring) + POLL_MS * MS);
		return;
	case TOOK_FAILED:
		return;
	}
	assoc_ask(a);
}

/* Sends the command of the current step, or of the next one that is needed. */
static void
assoc_ask(struct assoc *a)
{
	part_reset(&a->cmd, step_done);
	while (a->step->name && !a->step->build(a, &a->cmd.sqe))
		a->step++;
	if (!a->step->name) {
		assoc_finished(a);
		return;
	}
	if (a->cmd.len > 0) {
		memset(a->page, 0, ASSOC_PAGE);
		a->cmd.inl[0] = (struct iovec){ a->page, a->cmd.len };
		a->cmd.nsg = 1;
	}
	ring_timer_set(a->c.r->ring, &a->timer, ring_now(a->c.r->ring) + ANSWER_MS * MS);
	assoc_out(a, &a->cmd);
}

static void
timer_fired(struct ring_timer *t)
{
	struct assoc *a = container_of(t, struct assoc, timer);

	if (a->closing && !a->hc) { /* it never had a connection */
		assoc_down(a, a->why, a->dnr);
	} else if (a->shutting) {
		assoc_close(a, a->why);
	} else if (a->pausing) {
		a->pausing = false;
		assoc_ask(a);
	} else {
		assoc_fail(a, false, "%s was not answered within %u s", a->step->name,
		           ANSWER_MS / 1000);
	}
}

static void
hc_up(struct hconn *hc, void *owner, uint32_t connect_dw0)
{
	struct assoc *a = owner;

	(void)hc;
	if (a->closing)
		return;
	if (connect_dw0 >> 16 & 3) {
		assoc_fail(a, true,
		           "the controller asks for authentication, which is not built in");
		return;
	}
	a->cntlid = (uint16_t)connect_dw0;
	a->step = a->c.discovery ? assoc_setup_discovery : assoc_setup;
	assoc_ask(a);
}

/* keep-alive */

static uint64_t
kato_ns(const struct assoc *a)
{
	return a->c.cfg->keep_alive_tmo * 1000 * MS;
}

static void
ka_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct assoc *a = container_of(p, struct assoc, ka);

	(void)dw0;
	a->ka_out = false;
	if (status != 0 && status != PART_LOST)
		assoc_fail(a, false, "Keep Alive failed with status %03xh",
		           status & NVME_STATUS_MASK);
}

void
assoc_keep_alive(struct assoc *a)
{
	uint64_t now = ring_now(a->c.r->ring);

	if (kato_ns(a) == 0)
		return;
	if (!a->ka_out) {
		part_reset(&a->ka, ka_done);
		a->ka.sqe.opcode = nvme_admin_keep_alive;
		a->ka_out = assoc_out(a, &a->ka);
		a->ka_sent = now;
	} else if (now - a->ka_sent >= kato_ns(a)) {
		assoc_fail(a, false, "no answer to Keep Alive for %u s", a->c.cfg->keep_alive_tmo);
		return;
	}
	ring_timer_set(a->c.r->ring, &a->ka_timer, now + kato_ns(a) / 2);
}

static void
ka_timer_fired(struct ring_timer *t)
{
	assoc_keep_alive(container_of(t, struct assoc, ka_timer));
}

/* events */

void
assoc_rescan(struct assoc *a)
{
	a->rescan = true;
	if (!a->step && a->live && !a->shutting && !a->closing)
		assoc_finished(a); /* nothing is being asked: begins at once */
}

#define AER_TYPE(dw0) ((dw0)&7)
#define AER_INFO(dw0) ((dw0) >> 8 & 0xff)

static void aer_send(struct assoc *a);

/* What is known of it has changed. */
static bool
is_change(const struct assoc *a, uint32_t dw0)
{
	unsigned info = a->c.discovery ? NVME_AER_NOTICE_DISC_CHANGED : NVME_AER_NOTICE_NS_CHANGED;

	return AER_TYPE(dw0) == NVME_AER_NOTICE && AER_INFO(dw0) == info;
}

static void
aer_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct assoc *a = container_of(p, struct assoc, aer);

	a->aer_out = false;
	if (status == PART_LOST || a->closing)
		return;
	if (status != 0) {
		log_warn("path %s: no events from the controller: status %03xh", a->c.name,
		         status & NVME_STATUS_MASK);
		return;
	}
	if (is_change(a, dw0)) {
		log_info("path %s: %s changed, reading again", a->c.name,
		         a->c.discovery ? "the discovery log has" : "namespaces have");
		assoc_rescan(a);
	} else {
		log_warn("path %s: the controller reports event %06xh", a->c.name, dw0);
	}
	ring_timer_set(a->c.r->ring, &a->aer_timer, ring_now(a->c.r->ring) + EVENT_MS * MS);
}

static void
aer_send(struct assoc *a)
{
	part_reset(&a->aer, aer_done);
	a->aer.sqe.opcode = nvme_admin_async_event;
	a->aer_out = assoc_out(a, &a->aer);
}

static void
aer_timer_fired(struct ring_timer *t)
{
	aer_send(container_of(t, struct assoc, aer_timer));
}

void
assoc_hear_events(struct assoc *a)
{
	if (!a->aer_out)
		aer_send(a);
}

/* the owner's side */

static void
hc_violation(struct hconn *hc, void *owner, enum hconn_violation kind, uint16_t cid, uint64_t off,
             uint64_t len)
{
	struct assoc *a = owner;

	(void)hc;
	METER_ADD(a->violations[kind], 1);
	path_tell_violation(a->c.r, a->c.name, 0, kind, cid, off, len);
}

void
assoc_start(struct assoc *a)
{
	const struct path_config *cfg = a->c.cfg;
	struct hconn_config hc = {
		.r = a->c.r,
		.subnqn = cfg->subnqn,
		.hostnqn = cfg->hostnqn,
		.qid = 0,
		.cntlid = 0xffff,
		.sqsize = ADMIN_SQSIZE,
		.kato_ms = cfg->keep_alive_tmo * 1000,
		.hdgst = cfg->hdr_digest,
		.ddgst = cfg->data_digest,
		.no_sq_flow_control = true,
		.in_capsule = PDU_ADMIN_CAPSULE_DATA,
		.connect_ms = CONNECT_MS,
		.io_ms = 0, /* AER waits for ever; steps have limits of their own */
		.zc = CHAN_ZC_NEVER,
		.owner = a,
		.up = hc_up,
		.down = hc_down,
		.violation = hc_violation,
	};

	a->dnr = a->rescan = false;
	a->pausing = false;
	a->why[0] = '\0';
	memcpy(hc.hostid, cfg->hostid, sizeof(hc.hostid));
	path_config_addrs(cfg, &hc); /* judged before */
	snprintf(hc.name, sizeof(hc.name), "%.100s admin queue", a->c.name);
	a->hc = hconn_open(&hc);
	if (!a->hc)
		assoc_close(a, "no memory for a connection");
}

static void
shutdown_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct assoc *a = container_of(p, struct assoc, cmd);

	(void)dw0;
	if (status != PART_LOST)
		assoc_close(a, a->why);
}

void
assoc_shutdown(struct assoc *a, const char *why)
{
	if (!a->live || a->closing || a->step || !hconn_is_up(a->hc)) {
		assoc_close(a, why);
		return;
	}
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->shutting = true;
	ring_timer_del(&a->ka_timer);
	part_reset(&a->cmd, shutdown_done);
	assoc_build_cc(&a->cmd.sqe, assoc_cc(a) | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT);
	ring_timer_set(a->c.r->ring, &a->timer, ring_now(a->c.r->ring) + SHUTDOWN_MS * MS);
	assoc_out(a, &a->cmd);
}

bool
assoc_send(struct assoc *a, struct part *part)
{
	return assoc_out(a, part);
}

void
assoc_each(struct assoc *a, void (*each)(void *arg, const struct part *part, uint64_t due),
           void *arg)
{
	if (a->hc)
		hconn_each(a->hc, each, arg);
}

unsigned
assoc_nr_queues(const struct assoc *a)
{
	return a->nr_queues;
}

uint16_t
assoc_sqsize(const struct assoc *a)
{
	return a->sqsize;
}

struct assoc *
assoc_new(const struct assoc_config *cfg)
{
	struct assoc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->c = *cfg;
	ring_timer_init(&a->timer, timer_fired);
	ring_timer_init(&a->ka_timer, ka_timer_fired);
	ring_timer_init(&a->aer_timer, aer_timer_fired);
	list_init(&a->cmd.node);
	list_init(&a->ka.node);
	list_init(&a->aer.node);
	a->page = malloc(ASSOC_PAGE);
	a->nsids = malloc(ASSOC_NS_MAX * sizeof(*a->nsids));
	a->ns = malloc(ASSOC_NS_MAX * sizeof(*a->ns));
	if (a->page && a->nsids && a->ns)
		return a;
	assoc_free(a);
	return NULL;
}

void
assoc_free(struct assoc *a)
{
	if (!a)
		return;
	free(a->page);
	free(a->nsids);
	free(a->ns);
	free(a);
}
