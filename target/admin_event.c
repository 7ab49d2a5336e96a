/* Asynchronous events: held requests, what happened, what was told.
 *
 * Happy path: the host leaves AERs with us; something happens, on whatever thread: a bit is set
 * and the admin reactor is posted to; there the oldest AER ends with the event. The event is then
 * masked until its log is read with RAE 0; what happens meanwhile stays noted and is told after
 * that.
 * What can fail: an AER too many (105h). An event that the host has not enabled is not told.
 */
#include "target/admin.h"

#include "target/subsys.h"

static const struct {
	uint32_t enable;        /* its bit in feature 0Bh */
	uint32_t dw0;           /* type, info, log page */
} kinds[CTRL_EV_NR] = {
	[CTRL_EV_NS_CHANGED] = { NVME_FEATURE_AENCFG_NOTICE_NAMESPACE_ATTRIBUTES,
	                         NVME_AER_NOTICE | NVME_AER_NOTICE_NS_CHANGED << 8 |
	                                 NVME_LOG_LID_CHANGED_NS << 16 },
	[CTRL_EV_DISCOVERY] = { (uint32_t)NVME_FEATURE_AENCFG_NOTICE_DISCOVERY_CHANGE,
	                        NVME_AER_NOTICE | NVME_AER_NOTICE_DISC_CHANGED << 8 |
	                                NVME_LOG_LID_DISCOVER << 16 },
	[CTRL_EV_TEMPERATURE] = { NVME_FEATURE_AENCFG_SMART_CRIT_TEMPERATURE,
	                          NVME_AER_SMART | NVME_AER_SMART_TEMPERATURE_THRESHOLD << 8 |
	                                  NVME_LOG_LID_SMART << 16 },
};

/* ---- what happens, on any thread ---- */

void
ctrl_event(struct reactor *from, struct ctrl *c, enum ctrl_event ev)
{
	if (c->dead || !(c->aen_config & kinds[ev].enable))
		return;
	c->events |= BIT(ev);
	if (c->events_posted)
		return;
	c->events_posted = true;
	ring_post(from->ring, c->admin_r->ring, &c->event_op);
}

/* Those who watch the control socket. */
static void
tell_ns(const struct reactor *from, const struct subsys *s, uint32_t nsid)
{
	const struct ns *ns = s->ns[nsid - 1];
	uint64_t size = ns ? ns->blocks << ns->lba_shift : 0;
	struct conf_writer w;

	ctl_event_begin(&w, "namespace");
	conf_put_str(&w, "nqn", s->nqn);
	conf_put_u64(&w, "nsid", nsid);
	conf_put_str(&w, "state", ns ? "there" : "removed");
	conf_put_u64(&w, "size", size);
	if (ns)
		conf_put_fmt(&w, "text", "%u of %s: %llu blocks of %u bytes", nsid, s->nqn,
		             (unsigned long long)ns->blocks, 1u << ns->lba_shift);
	else
		conf_put_fmt(&w, "text", "%u of %s: removed", nsid, s->nqn);
	ctl_events_take(&s->t->events, from->ring, ctl_event_end(&w));
}

void
ctrl_ns_changed(struct reactor *from, struct subsys *s, uint32_t nsid, struct ctrl *except)
{
	struct ctrl *c;

	tell_ns(from, s, nsid);
	list_for_each(&s->ctrls, c, node) {
		if (c == except || !ctrl_sees(c, nsid))
			continue;
		c->changed_ns[(nsid - 1) / 32] |= BIT((nsid - 1) % 32);
		ctrl_event(from, c, CTRL_EV_NS_CHANGED);
	}
}

void
ctrl_discovery_changed(struct reactor *from, struct target *t)
{
	struct ctrl *c;

	t->genctr++;
	if (!t->discovery)
		return;
	list_for_each(&t->discovery->ctrls, c, node)
		ctrl_event(from, c, CTRL_EV_DISCOVERY);
}

void
ctrl_event_rearm(struct ctrl *c, enum ctrl_event ev)
{
	c->masked &= ~BIT(ev);
	/* The list of changed namespaces is read in one piece: nothing is left to be told. The
	 * discovery log is read in pieces, and a change between two of them must be told again. */
	if (ev == CTRL_EV_NS_CHANGED)
		c->events &= ~BIT(ev);
}

/* ---- telling, on the admin reactor ---- */

static void
aer_forget(struct ctrl *c, unsigned at)
{
	c->nr_aers--;
	memmove(&c->aers[at], &c->aers[at + 1], (c->nr_aers - at) * sizeof(c->aers[0]));
}

/* The connection goes, or it was aborted. */
static void
aer_cancel(struct cmd *cmd)
{
	struct ctrl *c = cmd->conn->ctrl;

	for (unsigned i = 0; i < c->nr_aers; i++)
		if (c->aers[i] == cmd) {
			aer_forget(c, i);
			break;
		}
	cmd_complete(cmd, NVME_SC_ABORT_REQ);
}

static struct cmd *
aer_take(struct ctrl *c)
{
	struct cmd *aer = c->aers[0];

	aer_forget(c, 0);
	return aer;
}

/* An event that may be told now, or CTRL_EV_NR. Lock held. */
static enum ctrl_event
next_event(const struct ctrl *c)
{
	for (unsigned ev = 0; ev < CTRL_EV_NR; ev++)
		if (c->events & ~c->masked & BIT(ev) && c->aen_config & kinds[ev].enable)
			return ev;
	return CTRL_EV_NR;
}

void
admin_aer_deliver(struct ctrl *c)
{
	struct target *t = c->subsys->t;

	while (c->nr_aers > 0) {
		enum ctrl_event ev;
		struct cmd *aer;

		target_lock(t);
		ev = next_event(c);
		if (ev != CTRL_EV_NR) {
			c->events &= ~BIT(ev);
			c->masked |= BIT(ev);
		}
		target_unlock(t);
		if (ev == CTRL_EV_NR)
			return;
		aer = aer_take(c);
		aer->dw0 = kinds[ev].dw0;
		cmd_complete(aer, 0);
	}
}

void
ctrl_event_arrived(struct op *op, int res, uint32_t cqe_flags)
{
	struct ctrl *c = container_of(op, struct ctrl, event_op);
	struct target *t = c->subsys->t;
	bool gone;

	(void)res;
	(void)cqe_flags;
	target_lock(t);
	c->events_posted = false;
	gone = c->refs == 0;
	if (gone)
		ctrl_free(c);
	target_unlock(t);
	if (!gone)
		admin_aer_deliver(c);
}

void
admin_aer(struct cmd *cmd)
{
	struct ctrl *c = cmd->conn->ctrl;

	if (c->nr_aers == CTRL_AERS_MAX) {
		cmd_complete(cmd, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_ASYNC_LIMIT)));
		return;
	}
	cmd->cancel = aer_cancel;
	c->aers[c->nr_aers++] = cmd;
	admin_aer_deliver(c);
}

void
admin_aer_end_all(struct ctrl *c)
{
	while (c->nr_aers > 0)
		cmd_complete(aer_take(c), NVME_SC_ABORT_REQ);
}
