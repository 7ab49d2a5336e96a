/* Get and Set Features: a table of what there is, and the values.
 *
 * Happy path: the row is found, select or save bit and NSID are judged, get() or set() of the row
 * does the rest; features that are just a number have none and live in ctrl.feat[].
 * What can fail: unknown (02h), save (10Dh), not changeable (10Eh), a namespace where none
 * belongs (10Fh) or none where one belongs (0Bh), values that we do not have (02h). No feature is
 * saveable: the controllers are dynamic.
 */
#include "target/admin.h"

#include "target/admin_table.h"
#include "target/features.h"

#define BAD_FIELD NVME_NO_RETRY(NVME_SC_INVALID_FIELD)
#define BAD_NS    NVME_NO_RETRY(NVME_SC_INVALID_NS)

enum {
	CAP_SAVEABLE = 1 << 0,  /* dw0 of Get Features with SEL 3; never set */
	CAP_PER_NS = 1 << 1,
	CAP_CHANGEABLE = 1 << 2,
};

#define CDW10_SV (1u << 31)

static const struct feature *
find(const struct subsys *s, uint8_t fid)
{
	const struct feature *f = feature_find(fid);

	if (!f || !(f->on & (s->discovery ? FEATURE_ON_DISCOVERY : FEATURE_ON_IO)) ||
	    (f->zip && !s->t->limits.compress))
		return NULL;
	return f;
}

uint32_t
admin_feature_effects(const struct subsys *s, uint8_t fid)
{
	const struct feature *f = find(s, fid);
	unsigned scope;

	if (!f)
		return 0;
	scope = f->per_ns ? NVME_FID_SUPPORTED_EFFECTS_SCOPE_NS :
	                    NVME_FID_SUPPORTED_EFFECTS_SCOPE_CTRL;
	return NVME_FID_SUPPORTED_EFFECTS_FSUPP | (f->ncc ? NVME_FID_SUPPORTED_EFFECTS_NCC : 0) |
	       scope << NVME_FID_SUPPORTED_EFFECTS_SCOPE_SHIFT;
}

void
admin_features_reset(struct ctrl *c)
{
	memset(c->feat, 0, sizeof(c->feat));
	for (unsigned fid = 0; fid < ARRAY_SIZE(c->feat); fid++) {
		const struct feature *f = feature_find((uint8_t)fid);

		if (f)
			c->feat[fid] = f->initial;
	}
}

/* The namespace of a feature that has one for each. Lock held. */
static uint16_t
judge_ns(const struct feature *f, struct feature_request *rq, bool set)
{
	if (!f->per_ns) {
		if (set && rq->nsid != 0 && rq->nsid != NVME_NSID_ALL)
			return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_FEATURE_NOT_PER_NS));
		return 0;
	}
	rq->ns = ctrl_sees(rq->c, rq->nsid) ? rq->c->subsys->ns[rq->nsid - 1] : NULL;
	return rq->ns ? 0 : BAD_NS;
}

static struct feature_request
request_of(struct cmd *cmd)
{
	return (struct feature_request){
		.cmd = cmd,
		.c = cmd->conn->ctrl,
		.nsid = le32_get(cmd->sqe.nsid),
		.value = le32_get(cmd->sqe.cdw11),
		.fid = (uint8_t)le32_get(cmd->sqe.cdw10),
	};
}

static uint16_t
get_initial(const struct feature *f, struct feature_request *rq)
{
	rq->cmd->dw0 = f->default_of ? f->default_of(rq) : f->initial;
	return 0;
}

/* Lock held. */
static uint16_t
get_feature(struct cmd *cmd)
{
	struct feature_request rq = request_of(cmd);
	unsigned sel = le32_get(cmd->sqe.cdw10) >> 8 & 7;
	const struct feature *f = find(rq.c->subsys, rq.fid);
	uint16_t status;

	if (!f || sel > NVME_GET_FEATURES_SEL_SUPPORTED)
		return BAD_FIELD;
	if (sel == NVME_GET_FEATURES_SEL_SUPPORTED) {
		cmd->dw0 = (f->per_ns ? CAP_PER_NS : 0u) | (f->changeable ? CAP_CHANGEABLE : 0u);
		return 0;
	}
	status = judge_ns(f, &rq, false);
	if (status)
		return status;
	if (f->data_len && cmd->data_len < f->data_len)
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	/* What cannot be saved has its default there. */
	if (sel != NVME_GET_FEATURES_SEL_CURRENT)
		return get_initial(f, &rq);
	if (f->get)
		return f->get(&rq);
	cmd->dw0 = rq.c->feat[rq.fid];
	return 0;
}

void
admin_get_features(struct cmd *cmd)
{
	struct target *t = cmd->conn->ctrl->subsys->t;
	uint16_t status;

	target_lock(t);
	status = get_feature(cmd);
	target_unlock(t);
	cmd_complete(cmd, status);
}

/* Lock held. */
static uint16_t
set_feature(struct cmd *cmd, bool *ret_later)
{
	struct feature_request rq = request_of(cmd);
	const struct feature *f = find(rq.c->subsys, rq.fid);
	uint16_t status;

	if (!f)
		return BAD_FIELD;
	if (le32_get(cmd->sqe.cdw10) & CDW10_SV)
		return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_FEATURE_NOT_SAVEABLE));
	if (f->set_refused)
		return f->set_refused;
	status = judge_ns(f, &rq, true);
	if (status)
		return status;
	if (f->data_len && cmd->data_len < f->data_len)
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	if (f->set) {
		status = f->set(&rq);
		*ret_later = rq.later;
		return status;
	}
	if (rq.value & ~f->bits)
		return BAD_FIELD;
	rq.c->feat[rq.fid] = rq.value;
	return 0;
}

void
admin_set_features(struct cmd *cmd)
{
	struct ctrl *c = cmd->conn->ctrl;
	bool later = false;
	uint16_t status;

	target_lock(c->subsys->t);
	status = set_feature(cmd, &later);
	target_unlock(c->subsys->t);
	if (later)
		return;
	cmd_complete(cmd, status);
	admin_aer_deliver(c);   /* feature 0Bh may have enabled what is waiting */
}
