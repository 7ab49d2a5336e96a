/* Connect, judged from the outside in: the capsule, the subsystem and the host, the controller,
 * the queue.
 *
 * Happy path: connect_check() finds nothing wrong with the bytes; find_subsys() finds who is
 * meant and that the host may come; connect_admin() makes a controller, connect_io() joins one.
 * Each refusal is one line that names the field; nothing was changed when there is one.
 */
#include "target/connect.h"

#include "target/ctrl_state.h"
#include "target/subsys.h"

enum {
	SQE_QID = offsetof(struct nvme_connect_sqe, qid),
	SQE_SQSIZE = offsetof(struct nvme_connect_sqe, sqsize),
	DATA_HOSTID = offsetof(struct nvme_connect_data, hostid),
	DATA_CNTLID = offsetof(struct nvme_connect_data, cntlid),
	DATA_SUBNQN = offsetof(struct nvme_connect_data, subnqn),
	DATA_HOSTNQN = offsetof(struct nvme_connect_data, hostnqn),
	CNTLID_DYNAMIC = 0xffff,
};

/* ---- verdicts ---- */

static bool
refuse(struct connect_verdict *v, uint16_t status, const char *why)
{
	*v = (struct connect_verdict){ .status = status, .why = why };
	return false;
}

static bool
bad_sqe(struct connect_verdict *v, uint16_t offset, const char *why)
{
	refuse(v, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CONNECT_INVALID_PARAM)), why);
	v->offset = offset;
	return false;
}

static bool
bad_data(struct connect_verdict *v, uint16_t offset, const char *why)
{
	bad_sqe(v, offset, why);
	v->in_data = true;
	return false;
}

/* ---- the capsule alone ---- */

/* Ends inside its field and is not too long; the form is nobody's business. */
static bool
name_ends(const char name[256])
{
	return strnlen(name, 256) <= NVME_NQN_MAX;
}

bool
connect_check(const struct nvme_connect_sqe *sqe, const uint8_t *bytes, uint32_t len,
              struct connect_verdict *ret_v)
{
	const struct nvme_connect_data *data = (const void *)bytes;

	if (le16_get(sqe->recfmt) != 0)
		return refuse(ret_v, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CONNECT_FORMAT)),
		              "record format is not 0");
	if (len != sizeof(*data))
		return refuse(ret_v, NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA),
		              "its data is not 1024 bytes long");
	if (le16_get(sqe->sqsize) == 0)
		return bad_sqe(ret_v, SQE_SQSIZE, "a queue of one entry");
	if (!name_ends(data->subnqn) || data->subnqn[0] == '\0')
		return bad_data(ret_v, DATA_SUBNQN, "subsystem name is empty or too long");
	if (!name_ends(data->hostnqn))
		return bad_data(ret_v, DATA_HOSTNQN, "host name is too long");
	return true;
}

/* ---- the model ---- */

static struct subsys *
find_subsys(struct conn *conn, const struct nvme_connect_data *data, struct connect_verdict *v)
{
	struct subsys *s = subsys_find(conn->r->target, data->subnqn);

	if (!s || s->gone || !conn->port || !port_serves(conn->port, s)) {
		bad_data(v, DATA_SUBNQN, "no such subsystem on this port");
		return NULL;
	}
	if (!subsys_allows(s, data->hostnqn)) {
		refuse(v, NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CONNECT_INVALID_HOST)),
		       "host is not allowed");
		v->offset = DATA_HOSTNQN;
		v->in_data = true;
		return NULL;
	}
	return s;
}

/* Any queue of a controller: it is gone when all that it had taken has ended. */
static bool
left_behind(const struct ctrl *c)
{
	for (unsigned i = 0; i <= CTRL_QUEUES_MAX; i++)
		if (c->queues[i] && conn_hung_up(c->queues[i]))
			return true;
	return false;
}

bool
connect_waits(const struct conn *conn, const struct nvme_connect_data *data)
{
	const struct subsys *s = subsys_find(conn->r->target, data->subnqn);
	const struct ctrl *c;

	if (s)
		list_for_each (&s->ctrls, c, node)
			if (!strcmp(c->hostnqn, data->hostnqn) &&
			    !memcmp(c->hostid, data->hostid, sizeof(c->hostid)) && left_behind(c))
				return true;
	return false;
}

static struct ctrl *
connect_admin(struct conn *conn, struct subsys *s, const struct nvme_connect_sqe *sqe,
              const struct nvme_connect_data *data, struct connect_verdict *v)
{
	unsigned depth = MAX(s->t->limits.depth, ADMIN_DEPTH_MAX);
	struct ctrl *c;

	if (le16_get(sqe->sqsize) >= depth) {
		bad_sqe(v, SQE_SQSIZE, "admin queue is too deep");
		return NULL;
	}
	if (le16_get(data->cntlid) != CNTLID_DYNAMIC) {
		bad_data(v, DATA_CNTLID, "only dynamic controllers are served");
		return NULL;
	}
	c = ctrl_new(s, conn, data, le32_get(sqe->kato), &v->status);
	if (!c)
		v->why = "no controller is free";
	return c;
}

/* The host has to be who the admin queue's was. */
static bool
same_host(const struct ctrl *c, const struct nvme_connect_data *data, struct connect_verdict *v)
{
	if (strcmp(c->hostnqn, data->hostnqn) != 0)
		return bad_data(v, DATA_HOSTNQN, "host name differs from the admin queue's");
	if (memcmp(c->hostid, data->hostid, sizeof(c->hostid)) != 0)
		return bad_data(v, DATA_HOSTID, "host id differs from the admin queue's");
	return true;
}

static bool
io_queue_ok(const struct ctrl *c, const struct nvme_connect_sqe *sqe, struct connect_verdict *v)
{
	uint16_t qid = le16_get(sqe->qid);

	if (c->subsys->discovery)
		return bad_sqe(v, SQE_QID, "a discovery controller has no I/O queues");
	if (!ctrl_enabled(c))
		return bad_sqe(v, SQE_QID, "controller is not enabled");
	if (qid > c->nr_ioq)
		return bad_sqe(v, SQE_QID, "more I/O queues than were granted");
	if (c->queues[qid])
		return bad_sqe(v, SQE_QID, "queue id is in use");
	if (le16_get(sqe->sqsize) >= c->subsys->t->limits.depth)
		return bad_sqe(v, SQE_SQSIZE, "I/O queue is deeper than CAP.MQES");
	return true;
}

static struct ctrl *
connect_io(struct conn *conn, struct subsys *s, const struct nvme_connect_sqe *sqe,
           const struct nvme_connect_data *data, struct connect_verdict *v)
{
	struct ctrl *c = ctrl_find(s, le16_get(data->cntlid));

	if (!c || c->dead || !c->queues[0] || c->queues[0]->port != conn->port) {
		bad_data(v, DATA_CNTLID, "no such controller");
		return NULL;
	}
	if (!same_host(c, data, v) || !io_queue_ok(c, sqe, v))
		return NULL;
	ctrl_get(c);
	c->queues[le16_get(sqe->qid)] = conn;
	return c;
}

struct ctrl *
connect_queue(struct conn *conn, const struct nvme_connect_sqe *sqe,
              const struct nvme_connect_data *data, struct connect_verdict *ret_v)
{
	struct subsys *s = find_subsys(conn, data, ret_v);

	if (!s)
		return NULL;
	if (le16_get(sqe->qid) == 0)
		return connect_admin(conn, s, sqe, data, ret_v);
	return connect_io(conn, s, sqe, data, ret_v);
}
