/* Controllers: made by an admin Connect, ended with their connections.
 *
 * Happy path: ctrl_new() takes a slot and an id, the new controller sees every namespace with
 * auto_attach; I/O queues join; the admin connection ends, takes the other connections with it,
 * and the last one frees it.
 * What can fail: no slot, no id, no memory: Connect gets "controller busy" and the host comes
 * again. An id is not used again before all the others were, so that a stale I/O Connect finds
 * nobody.
 */
#include "target/ctrl.h"

#include "common/log.h"
#include "target/admin.h"
#include "target/keepalive.h"
#include "target/model.h"
#include "target/subsys.h"

#include <stdlib.h>

/* ---- life ---- */

/* The next free id of the subsystem's range, or -1. */
static int
pick_cntlid(struct subsys *s)
{
	unsigned range = (unsigned)s->cntlid_max - s->cntlid_min + 1;

	for (unsigned i = 0; i < range; i++) {
		uint16_t id = s->next_cntlid;

		s->next_cntlid = id >= s->cntlid_max ? s->cntlid_min : (uint16_t)(id + 1);
		if (!ctrl_find(s, id))
			return id;
	}
	return -1;
}

static void
attach_all(struct ctrl *c)
{
	for (uint32_t nsid = 1; nsid <= NS_MAX; nsid++) {
		const struct ns *ns = c->subsys->ns[nsid - 1];

		if (ns && ns->auto_attach)
			ctrl_attach(c, nsid, true);
	}
}

void
ctrl_set_defaults(struct ctrl *c)
{
	c->nr_ioq = c->subsys->discovery ? 0 : (uint16_t)c->subsys->t->limits.queues;
	c->aen_config = 0;
	c->events = 0;
	c->masked = 0;
	memset(c->changed_ns, 0, sizeof(c->changed_ns));
	memset(c->host_behavior, 0, sizeof(c->host_behavior));
	c->timestamp_base_ms = 0;
	c->timestamp_set_at = ring_now(c->admin_r->ring);
	c->timestamp_set = false;
	atomic_store(&c->zips, false);
	admin_features_reset(c);
}

struct ctrl *
ctrl_new(struct subsys *s, struct conn *admin, const struct nvme_connect_data *data,
         uint32_t kato_ms, uint16_t *ret_status)
{
	int id = s->nr_ctrls < s->t->limits.controllers ? pick_cntlid(s) : -1;
	struct ctrl *c = id < 0 ? NULL : calloc(1, sizeof(*c));

	if (!c) {
		*ret_status = NVME_ST_CMD(NVME_SC_CONNECT_CTRL_BUSY);
		return NULL;
	}
	c->subsys = s;
	subsys_get(s);
	c->refs = 1;
	c->cntlid = (uint16_t)id;
	memcpy(c->hostnqn, data->hostnqn, strnlen(data->hostnqn, NVME_NQN_MAX));
	memcpy(c->hostid, data->hostid, sizeof(c->hostid));
	c->queues[0] = admin;
	c->admin_r = admin->r;
	c->kato_ms = keepalive_round(kato_ms);
	c->event_op = (struct op){ ctrl_event_arrived, "ctrl.event" };
	ring_timer_init(&c->ka_timer, NULL);
	ctrl_set_defaults(c);
	attach_all(c);
	c->limit = subsys_host_limit(s, c->hostnqn);
	list_push_back(&s->ctrls, &c->node);
	s->nr_ctrls++;
	keepalive_start(c);
	return c;
}

struct ctrl *
ctrl_find(struct subsys *s, uint16_t cntlid)
{
	struct ctrl *c;

	list_for_each(&s->ctrls, c, node)
		if (c->cntlid == cntlid)
			return c;
	return NULL;
}

void
ctrl_get(struct ctrl *c)
{
	c->refs++;
}

void
ctrl_free(struct ctrl *c)
{
	subsys_put(c->subsys);
	free(c);
}

void
ctrl_put(struct ctrl *c)
{
	if (--c->refs > 0)
		return;
	list_del(&c->node);
	c->subsys->nr_ctrls--;
	log_info("controller %u of %s is gone", c->cntlid, c->subsys->nqn);
	/* An event on its way pins it; ctrl_event_arrived() frees it then. */
	if (!c->events_posted)
		ctrl_free(c);
}

/* ---- the end ---- */

static void
reset_queues(struct ctrl *c, unsigned first)
{
	for (unsigned i = first; i <= CTRL_QUEUES_MAX; i++)
		if (c->queues[i])
			conn_shutdown(c->queues[i]);
}

void
ctrl_drop_io_queues(struct ctrl *c)
{
	reset_queues(c, 1);
}

void
ctrl_kill(struct ctrl *c, const char *why)
{
	struct log_quoted host;

	if (c->dead)
		return;
	c->dead = true;
	log_warn("controller %u of %s (host %s): %s, resetting its connections", c->cntlid,
	         c->subsys->nqn, log_quote(&host, c->hostnqn, sizeof(c->hostnqn)), why);
	reset_queues(c, 0);
}

bool
ctrl_has_io_queues(const struct ctrl *c)
{
	for (unsigned i = 1; i <= CTRL_QUEUES_MAX; i++)
		if (c->queues[i])
			return true;
	return false;
}

void
ctrl_tell(struct reactor *from, const struct ctrl *c, const char *state)
{
	struct log_quoted host;
	struct conf_writer w;

	log_quote(&host, c->hostnqn, sizeof(c->hostnqn));
	ctl_event_begin(&w, "controller");
	conf_put_str(&w, "nqn", c->subsys->nqn);
	conf_put_u64(&w, "cntlid", c->cntlid);
	conf_put_str(&w, "host", c->hostnqn);
	conf_put_str(&w, "state", state);
	conf_put_fmt(&w, "text", "%u of %s: host %s: %s", c->cntlid, c->subsys->nqn, host.s, state);
	ctl_events_take(&c->subsys->t->events, from->ring, ctl_event_end(&w));
}

void
ctrl_conn_gone(struct conn *conn)
{
	struct ctrl *c = conn->ctrl;
	struct target *t;

	if (!c)
		return;
	t = c->subsys->t;
	target_lock(t);
	conn->ctrl = NULL;
	if (c->queues[conn->qid] == conn)
		c->queues[conn->qid] = NULL;
	if (conn->qid == 0) {
		keepalive_stop(c);
		c->dead = true;
		reset_queues(c, 1);
		ctrl_tell(conn->r, c, "gone");
	} else if (c->resetting && !ctrl_has_io_queues(c)) {
		ctrl_reset_done(c);
	}
	ctrl_put(c);
	target_unlock(t);
}

/* ---- namespaces it sees ---- */

bool
ctrl_sees(const struct ctrl *c, uint32_t nsid)
{
	uint64_t word;

	if (nsid == 0 || nsid > NS_MAX)
		return false;
	word = atomic_load_explicit(&c->attached[(nsid - 1) / 64], memory_order_relaxed);
	return word >> (nsid - 1) % 64 & 1;
}

void
ctrl_attach(struct ctrl *c, uint32_t nsid, bool attach)
{
	_Atomic uint64_t *word = &c->attached[(nsid - 1) / 64];
	uint64_t bit = UINT64_C(1) << (nsid - 1) % 64;

	if (attach)
		atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
}

/* ---- error log ---- */

void
ctrl_log_error(struct ctrl *c, const struct cmd *cmd, uint16_t status)
{
	struct target *t = c->subsys->t;
	struct ctrl_error *e;

	target_lock(t);
	e = &c->errors[c->nr_errors++ % CTRL_ERRORS];
	*e = (struct ctrl_error){
		.count = c->nr_errors,
		.sqid = cmd->conn->qid,
		.cid = cmd->cid,
		.status = status,
		.loc = UINT16_MAX,
		.trtype = NVMF_TRTYPE_TCP,
	};
	if (cmd->sqe.opcode != nvme_admin_fabrics)
		e->nsid = le32_get(cmd->sqe.nsid);
	if (cmd->conn->qid != 0)
		e->lba = (uint64_t)le32_get(cmd->sqe.cdw11) << 32 | le32_get(cmd->sqe.cdw10);
	target_unlock(t);
}
