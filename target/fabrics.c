/* Fabrics commands: dispatch, what Connect answers, properties, Disconnect.
 *
 * Happy path: connect.c finds or makes the controller, which waits while its host has connections
 * that it has hung up on and that have not ended, conn_set_queue() gives the queue its slots, the
 * response carries the controller id. Property Get and Set read and write
 * ctrl_state.c's values. Disconnect ends the queue's other commands, answers last and closes our
 * side.
 * What can fail: everything that a stranger can send; it is refused with a status, and the
 * connection lives on until its handshake time is over.
 */
#include "target/fabrics.h"

#include "common/log.h"
#include "target/admin.h"
#include "target/connect.h"
#include "target/ctrl_state.h"
#include "target/keepalive.h"
#include "target/subsys.h"

#include <stdlib.h>

enum {
	PROPERTY_4 = 0,
	PROPERTY_8 = 1,
	CONNECT_POLL_NS = 1000000,
};

#define BAD_FIELD  NVME_NO_RETRY(NVME_SC_INVALID_FIELD)
#define BAD_OPCODE NVME_NO_RETRY(NVME_SC_INVALID_OPCODE)

/* ---- Connect ---- */

/* The host is told which byte was wrong: IPO and IATTR. */
static void
connect_refused(struct cmd *cmd, const struct connect_verdict *v)
{
	const struct nvme_connect_data *data = (const void *)cmd->data;
	bool have = cmd->data_len >= sizeof(*data);
	struct log_quoted host, subsys;

	cmd->dw0 = v->in_data ? v->offset | 1u << 16 : v->offset;
	log_quote(&host, have ? data->hostnqn : "", have ? sizeof(data->hostnqn) : 0);
	log_quote(&subsys, have ? data->subnqn : "", have ? sizeof(data->subnqn) : 0);
	log_warn("conn %u (%s): Connect of host %s to %s refused: %s", cmd->conn->id,
	         cmd->conn->peer, host.s, subsys.s, v->why);
	cmd_complete(cmd, v->status);
}

static void
connected(struct cmd *cmd, const struct ctrl *c, uint16_t qid)
{
	struct log_quoted host;

	if (qid == 0)
		log_info("conn %u (%s): host %s connected to %s, controller %u", cmd->conn->id,
		         cmd->conn->peer, log_quote(&host, c->hostnqn, sizeof(c->hostnqn)),
		         c->subsys->nqn, c->cntlid);
	else
		log_debug("conn %u (%s): I/O queue %u of controller %u", cmd->conn->id,
		          cmd->conn->peer, qid, c->cntlid);
	if (qid == 0)
		ctrl_tell(cmd->conn->r, c, "connected");
	cmd->dw0 = c->cntlid;
	cmd_complete(cmd, 0);
}

/* No memory for its commands: what Connect made is taken back. */
static void
connect_undo(struct target *t, struct ctrl *c, uint16_t qid)
{
	target_lock(t);
	c->queues[qid] = NULL;
	if (qid == 0) {
		keepalive_stop(c);
		c->dead = true;
	}
	ctrl_put(c);
	target_unlock(t);
}

static void
connect_now(struct cmd *cmd)
{
	const struct nvme_connect_sqe *sqe = (const void *)&cmd->sqe;
	const struct nvme_connect_data *data = (const void *)cmd->data;
	struct target *t = cmd->conn->r->target;
	uint16_t qid = le16_get(sqe->qid);
	struct connect_verdict v = { 0 };
	struct ctrl *c = NULL;

	if (connect_check(sqe, cmd->data, cmd->data_len, &v)) {
		target_lock(t);
		c = connect_queue(cmd->conn, sqe, data, &v);
		target_unlock(t);
	}
	if (!c) {
		connect_refused(cmd, &v);
		return;
	}
	if (conn_set_queue(cmd->conn, c, qid, le16_get(sqe->sqsize),
	                   sqe->cattr & CATTR_NO_SQ_FLOW_CONTROL)) {
		connect_undo(t, c, qid);
		cmd_complete(cmd, NVME_ST_CMD(NVME_SC_CONNECT_CTRL_BUSY));
		return;
	}
	connected(cmd, c, qid);
}

struct connecting { /* waits for what its host has left behind */
	struct cmd *cmd;
	struct ring_timer timer;
};

static bool
connect_must_wait(const struct cmd *cmd)
{
	const struct nvme_connect_sqe *sqe = (const void *)&cmd->sqe;
	struct target *t = cmd->conn->r->target;
	struct connect_verdict v;
	bool must;

	if (le16_get(sqe->qid) != 0 || !connect_check(sqe, cmd->data, cmd->data_len, &v))
		return false;
	target_lock(t);
	must = connect_waits(cmd->conn, (const void *)cmd->data);
	target_unlock(t);
	return must;
}

/* Its connection ends; within the time for the handshake at the latest. */
static void
connect_cancel(struct cmd *cmd)
{
	struct connecting *w = cmd->priv;

	ring_timer_del(&w->timer);
	free(w);
	cmd_complete(cmd, NVME_SC_ABORT_REQ);
}

static void
connect_poll(struct ring_timer *timer)
{
	struct connecting *w = container_of(timer, struct connecting, timer);
	struct cmd *cmd = w->cmd;
	struct ring *ring = cmd_reactor(cmd)->ring;

	if (connect_must_wait(cmd)) {
		ring_timer_set(ring, timer, ring_now(ring) + CONNECT_POLL_NS);
		return;
	}
	free(w);
	cmd->cancel = NULL;
	connect_now(cmd);
}

static void
fabrics_connect(struct cmd *cmd)
{
	struct connecting *w;

	if (!connect_must_wait(cmd)) {
		connect_now(cmd);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		cmd_complete(cmd, NVME_ST_CMD(NVME_SC_CONNECT_CTRL_BUSY));
		return;
	}
	log_info("conn %u (%s): Connect waits for what its host has left behind", cmd->conn->id,
	         cmd->conn->peer);
	w->cmd = cmd;
	cmd->priv = w;
	cmd->cancel = connect_cancel;
	ring_timer_init(&w->timer, connect_poll);
	connect_poll(&w->timer);
}

/* ---- properties ---- */

/* Lock held. */
static uint16_t
property_read(const struct ctrl *c, uint32_t off, unsigned size, uint64_t *ret)
{
	if (off == NVME_REG_CAP && size == PROPERTY_8)
		*ret = ctrl_cap(c);
	else if (off == NVME_REG_VS && size == PROPERTY_4)
		*ret = CTRL_VS;
	else if (off == NVME_REG_CC && size == PROPERTY_4)
		*ret = c->cc;
	else if (off == NVME_REG_CSTS && size == PROPERTY_4)
		*ret = c->csts;
	else if (off == NVME_REG_CRTO && size == PROPERTY_4)
		*ret = ctrl_crto();
	else
		/* Not DNR: nvme-cli 2.3 takes a plain Invalid Field for "not there" and goes on,
		 * and any other status for the end of its show-regs. */
		return NVME_SC_INVALID_FIELD;
	return 0;
}

static void
property_get(struct cmd *cmd)
{
	const struct nvme_property_sqe *sqe = (const void *)&cmd->sqe;
	struct ctrl *c = cmd->conn->ctrl;
	uint64_t value = 0;
	uint16_t status;

	target_lock(c->subsys->t);
	status = property_read(c, le32_get(sqe->ofst), sqe->attrib & 7, &value);
	target_unlock(c->subsys->t);
	cmd->dw0 = (uint32_t)value;
	cmd->dw1 = (uint32_t)(value >> 32);
	cmd_complete(cmd, status);
}

static void
property_set(struct cmd *cmd)
{
	const struct nvme_property_sqe *sqe = (const void *)&cmd->sqe;
	struct ctrl *c = cmd->conn->ctrl;
	bool reset;

	if (le32_get(sqe->ofst) != NVME_REG_CC || (sqe->attrib & 7) != PROPERTY_4) {
		cmd_complete(cmd, BAD_FIELD);
		return;
	}
	target_lock(c->subsys->t);
	reset = ctrl_cc_write(c, (uint32_t)le64_get(sqe->value));
	target_unlock(c->subsys->t);
	if (reset)
		admin_aer_end_all(c);
	cmd_complete(cmd, 0);
}

/* ---- Disconnect: the last completion of its queue ---- */

enum {
	DISCONNECT_POLL_NS = 1000000,
	CLOSE_WAIT_NS = 1000000000, /* then we close, if the host has not */
};

struct disconnect {             /* waits for the queue's other commands */
	struct cmd *cmd;
	struct ring_timer timer;
};

static void
disconnect_cancel(struct cmd *cmd)
{
	struct disconnect *d = cmd->priv;

	ring_timer_del(&d->timer);
	free(d);
	cmd_complete(cmd, NVME_SC_ABORT_REQ);
}

static bool
others_running(const struct cmd *cmd)
{
	const struct cmd *other;

	list_for_each(&cmd->conn->cmds, other, node)
		if (other != cmd && other->state != CMD_SENDING)
			return true;
	return false;
}

static void
disconnect_done(struct cmd *cmd)
{
	struct conn *conn = cmd->conn;
	struct ctrl *c = conn->ctrl;
	struct ring *ring = conn->r->ring;

	log_debug("conn %u (%s): disconnected by its host", conn->id, conn->peer);
	/* The host may connect the queue again as soon as it has the response. */
	target_lock(c->subsys->t);
	c->queues[conn->qid] = NULL;
	target_unlock(c->subsys->t);
	cmd_complete(cmd, 0);
	/* The response leaves first, then our side of the connection is closed. */
	chan_finish(conn->chan);
	ring_timer_set(ring, &conn->timer, ring_now(ring) + CLOSE_WAIT_NS);
}

static void
disconnect_poll(struct ring_timer *timer)
{
	struct disconnect *d = container_of(timer, struct disconnect, timer);
	struct cmd *cmd = d->cmd;
	struct ring *ring = cmd_reactor(cmd)->ring;

	if (others_running(cmd)) {
		ring_timer_set(ring, timer, ring_now(ring) + DISCONNECT_POLL_NS);
		return;
	}
	free(d);
	disconnect_done(cmd);
}

/* One that can still be aborted and was not told yet; cmd_abort() may end several, so each search
 * starts anew. */
static bool
abort_one(struct cmd *cmd)
{
	struct cmd *other;

	list_for_each(&cmd->conn->cmds, other, node)
		if (other != cmd && other->state != CMD_SENDING && !other->aborted &&
		    cmd_abort(other))
			return true;
	return false;
}

static void
fabrics_disconnect(struct cmd *cmd)
{
	struct disconnect *d;

	if (le32_get(cmd->sqe.cdw10) & UINT16_MAX) {    /* RECFMT */
		cmd_complete(cmd, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CONNECT_FORMAT)));
		return;
	}
	if (cmd->conn->qid == 0) {
		cmd_complete(cmd, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_DISCONNECT_INVALID_QTYPE)));
		return;
	}
	while (abort_one(cmd))
		;
	cmd_end_waiting(cmd->conn);
	if (!others_running(cmd)) {
		disconnect_done(cmd);
		return;
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		cmd_complete(cmd, NVME_SC_INTERNAL);
		return;
	}
	d->cmd = cmd;
	cmd->priv = d;
	cmd->cancel = disconnect_cancel;
	ring_timer_init(&d->timer, disconnect_poll);
	disconnect_poll(&d->timer);
}

/* ---- dispatch ---- */

void
fabrics_execute(struct cmd *cmd)
{
	uint8_t fctype = cmd->sqe.nsid.b[0];
	bool connected = cmd->conn->ctrl != NULL;

	if (NVME_SQE_FUSE(cmd->sqe.flags))
		cmd_complete(cmd, BAD_FIELD);
	else if (fctype == nvme_fabrics_type_connect && !connected)
		fabrics_connect(cmd);
	else if (fctype == nvme_fabrics_type_connect)
		cmd_complete(cmd, NVME_NO_RETRY(NVME_SC_CMD_SEQ_ERROR));
	else if (!connected)
		cmd_complete(cmd, BAD_OPCODE);
	else if (fctype == nvme_fabrics_type_property_get && cmd->conn->qid == 0)
		property_get(cmd);
	else if (fctype == nvme_fabrics_type_property_set && cmd->conn->qid == 0)
		property_set(cmd);
	else if (fctype == nvme_fabrics_type_disconnect)
		fabrics_disconnect(cmd);
	else
		cmd_complete(cmd, BAD_OPCODE);
}
