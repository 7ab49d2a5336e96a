/* The values behind Get and Set Features, one section a feature, and the table at the end.
 *
 * Happy path: admin_feat.c has judged FID, NSID, SEL and length, and calls get() or set() of the
 * row.
 * What can fail: values that we do not have (02h), what cannot change (10Eh). Write protection
 * waits for the namespace to stand still and completes its command later.
 */
#include "target/features.h"

#include "common/zip.h"
#include "target/keepalive.h"
#include "target/logpage.h"
#include "target/ns_job.h"

#define BAD_FIELD      NVME_NO_RETRY(NVME_SC_INVALID_FIELD)
#define NOT_CHANGEABLE NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_FEATURE_NOT_CHANGEABLE))
#define BAD_SEQUENCE   NVME_NO_RETRY(NVME_SC_CMD_SEQ_ERROR)

/* ---- 04h temperature thresholds: over in the low half of ctrl.feat[], under in the high ---- */

/* Shift of the half that CDW11 selects; negative: no such sensor or threshold. */
static int
temp_shift(uint32_t value)
{
	unsigned sensor = value >> 16 & 15, kind = value >> 20 & 3;

	if (sensor != 0 || kind > NVME_FEATURE_TEMPTHRESH_THSEL_UNDER)
		return -1;
	return kind == NVME_FEATURE_TEMPTHRESH_THSEL_UNDER ? 16 : 0;
}

static uint16_t
temp_get(struct feature_request *rq)
{
	int shift = temp_shift(rq->value);

	if (shift < 0)
		return BAD_FIELD;
	rq->cmd->dw0 = rq->c->feat[rq->fid] >> shift & 0xffff;
	return 0;
}

static void
temp_tell(struct ctrl *c)
{
	if (temp_warns(c))
		ctrl_event(c->admin_r, c, CTRL_EV_TEMPERATURE);
}

static uint16_t
temp_set(struct feature_request *rq)
{
	int shift = temp_shift(rq->value);

	if (shift < 0)
		return BAD_FIELD;
	rq->c->feat[rq->fid] &= ~(0xffffu << shift);
	rq->c->feat[rq->fid] |= (rq->value & 0xffff) << shift;
	temp_tell(rq->c);
	return 0;
}

static uint32_t
temp_default(struct feature_request *rq)
{
	return temp_shift(rq->value) == 0 ? TEMP_WARNING : 0;
}

/* ---- 07h number of queues: as many submission as completion queues ---- */

static uint32_t
queues_word(unsigned n)
{
	return (n - 1) | (n - 1) << 16;
}

static uint32_t
queues_default(struct feature_request *rq)
{
	return queues_word(rq->c->subsys->t->limits.queues);
}

static uint16_t
queues_get(struct feature_request *rq)
{
	rq->cmd->dw0 = queues_word(rq->c->nr_ioq);
	return 0;
}

static uint16_t
queues_set(struct feature_request *rq)
{
	unsigned nsq = rq->value & 0xffff, ncq = rq->value >> 16;

	if (nsq == 0xffff || ncq == 0xffff)
		return BAD_FIELD;
	if (ctrl_has_io_queues(rq->c))
		return BAD_SEQUENCE;
	rq->c->nr_ioq = (uint16_t)MIN(MIN(nsq, ncq) + 1, rq->c->subsys->t->limits.queues);
	return queues_get(rq);
}

/* ---- 0Bh asynchronous events ---- */

enum { AEN_SMART = 0xff };      /* critical warnings: may be asked for, one of them comes */

static uint16_t
aen_get(struct feature_request *rq)
{
	rq->cmd->dw0 = rq->c->aen_config;
	return 0;
}

static uint16_t
aen_set(struct feature_request *rq)
{
	uint32_t have = rq->c->subsys->discovery ?
	                        (uint32_t)NVME_FEATURE_AENCFG_NOTICE_DISCOVERY_CHANGE :
	                        AEN_SMART | NVME_FEATURE_AENCFG_NOTICE_NAMESPACE_ATTRIBUTES;

	if (rq->value & ~have)
		return BAD_FIELD;
	rq->c->aen_config = rq->value;
	temp_tell(rq->c);
	return 0;
}

/* ---- 0Eh timestamp ---- */

enum { TIMESTAMP_ORIGIN_HOST = 1 << 1 };

static uint16_t
timestamp_get(struct feature_request *rq)
{
	const struct ctrl *c = rq->c;
	uint64_t ms = c->timestamp_base_ms +
	              (ring_now(c->admin_r->ring) - c->timestamp_set_at) / 1000000;
	struct nvme_timestamp *ts = (struct nvme_timestamp *)rq->cmd->data;
	le64 wire = le64_put(ms);

	memcpy(ts->timestamp, &wire, sizeof(ts->timestamp));
	ts->attr = c->timestamp_set ? TIMESTAMP_ORIGIN_HOST : 0;
	return 0;
}

static uint16_t
timestamp_set(struct feature_request *rq)
{
	const struct nvme_timestamp *ts = (const struct nvme_timestamp *)rq->cmd->data;
	le64 wire = { { 0 } };

	memcpy(&wire, ts->timestamp, sizeof(ts->timestamp));
	rq->c->timestamp_base_ms = le64_get(wire);
	rq->c->timestamp_set_at = ring_now(rq->c->admin_r->ring);
	rq->c->timestamp_set = true;
	return 0;
}

/* ---- 0Fh keep alive ---- */

static uint16_t
kato_get(struct feature_request *rq)
{
	rq->cmd->dw0 = rq->c->kato_ms;
	return 0;
}

static uint16_t
kato_set(struct feature_request *rq)
{
	rq->c->kato_ms = keepalive_round(rq->value);
	keepalive_start(rq->c);
	return 0;
}

/* ---- 16h host behaviour ---- */

static uint16_t
behavior_get(struct feature_request *rq)
{
	memcpy(rq->cmd->data, rq->c->host_behavior, sizeof(rq->c->host_behavior));
	return 0;
}

/* ACRE alone means something here: the others belong to formats that we do not have. */
static uint16_t
behavior_set(struct feature_request *rq)
{
	if (rq->cmd->data[0] > 1)
		return BAD_FIELD;
	for (size_t i = 1; i < sizeof(rq->c->host_behavior); i++)
		if (rq->cmd->data[i])
			return BAD_FIELD;
	memcpy(rq->c->host_behavior, rq->cmd->data, sizeof(rq->c->host_behavior));
	return 0;
}

/* ---- 19h command set profile: combination 0 is the only one ---- */

static uint16_t
profile_set(struct feature_request *rq)
{
	if (rq->value & 0x1ff)
		return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_IOCS_COMBINATION_REJECTED));
	return 0;
}

/* ---- 81h host identifier: Connect set it ---- */

static uint16_t
hostid_get(struct feature_request *rq)
{
	if (!(rq->value & NVME_FEAT_HOSTID_EXHID_MASK))
		return BAD_FIELD;
	memcpy(rq->cmd->data, rq->c->hostid, sizeof(rq->c->hostid));
	return 0;
}

/* ---- 84h namespace write protection ---- */

static uint16_t
protect_get(struct feature_request *rq)
{
	rq->cmd->dw0 = atomic_load(&rq->ns->write_protected) ? NVME_FEAT_NS_WRITE_PROTECT :
	                                                       NVME_FEAT_NS_NO_WRITE_PROTECT;
	return 0;
}

static void
protect_end(struct ns_job *job)
{
	ns_job_end(job, job->io.res < 0 ? NVME_SC_INTERNAL : 0, true);
}

static void
protect_flushed(struct backend_io *io)
{
	protect_end(container_of(io, struct ns_job, io));
}

/* Nothing is in flight. What was written before is durable before it is protected. */
static void
protect_run(struct ns_job *job)
{
	atomic_store(&job->ns->write_protected, job->protect);
	job->io.op = BACKEND_FLUSH;
	job->io.done = protect_flushed;
	if (!job->protect || job->io.be->ops->submit(&job->io))
		protect_end(job);
}

static uint16_t
protect_set(struct feature_request *rq)
{
	bool protect = rq->value & 1;
	struct ns_job *job;
	uint16_t status;

	if (rq->value & ~1u)    /* NWPC: neither until power cycle nor permanent */
		return BAD_FIELD;
	if (atomic_load(&rq->ns->write_protected) == protect)
		return 0;
	if (rq->ns->be->readonly)
		return NOT_CHANGEABLE;
	status = ns_job_new(rq->cmd, rq->ns, protect_run, &job);
	if (status)
		return status;
	job->protect = protect;
	rq->later = true;
	return 0;
}

/* ---- D0h, ours: compressed transfers ---- */

static uint16_t
zip_get(struct feature_request *rq)
{
	rq->cmd->dw0 = ctrl_zips(rq->c) ? ZIP_FEATURE_ON : 0;
	return 0;
}

static uint16_t
zip_set(struct feature_request *rq)
{
	if (rq->value & ~(uint32_t)ZIP_FEATURE_ON)
		return BAD_FIELD;
	atomic_store(&rq->c->zips, rq->value == ZIP_FEATURE_ON);
	return 0;
}

/* ---- the table ---- */

static const struct feature features[256] = {
	[NVME_FEAT_FID_ARBITRATION] = {
		.on = FEATURE_ON_IO, .changeable = true, .bits = 0xffffff07,
	},
	/* One power state: 0. The workload hint is kept. */
	[NVME_FEAT_FID_POWER_MGMT] = {
		.on = FEATURE_ON_IO, .changeable = true,
		.bits = NVME_FEAT_PWRMGMT_WH_MASK << NVME_FEAT_PWRMGMT_WH_SHIFT,
	},
	[NVME_FEAT_FID_TEMP_THRESH] = {
		.on = FEATURE_ON_IO, .changeable = true, .initial = TEMP_WARNING,
		.default_of = temp_default, .get = temp_get, .set = temp_set,
	},
	/* No retries that TLER could limit, no DULBE. */
	[NVME_FEAT_FID_ERR_RECOVERY] = {
		.on = FEATURE_ON_IO, .per_ns = true, .set_refused = NOT_CHANGEABLE,
	},
	/* WCE: the page cache cannot be switched off for a namespace that uses it. */
	[NVME_FEAT_FID_VOLATILE_WC] = {
		.on = FEATURE_ON_IO, .initial = 1, .set_refused = NOT_CHANGEABLE,
	},
	[NVME_FEAT_FID_NUM_QUEUES] = {
		.on = FEATURE_ON_IO, .changeable = true, .default_of = queues_default,
		.get = queues_get, .set = queues_set,
	},
	[NVME_FEAT_FID_WRITE_ATOMIC] = {
		.on = FEATURE_ON_IO, .changeable = true, .bits = NVME_FEAT_WA_DN_MASK,
	},
	[NVME_FEAT_FID_ASYNC_EVENT] = {
		.on = FEATURE_ON_BOTH, .changeable = true, .get = aen_get, .set = aen_set,
	},
	[NVME_FEAT_FID_TIMESTAMP] = {
		.on = FEATURE_ON_IO, .changeable = true, .data_len = sizeof(struct nvme_timestamp),
		.get = timestamp_get, .set = timestamp_set,
	},
	[NVME_FEAT_FID_KATO] = {
		.on = FEATURE_ON_BOTH, .changeable = true, .get = kato_get, .set = kato_set,
	},
	[NVME_FEAT_FID_HOST_BEHAVIOR] = {
		.on = FEATURE_ON_IO, .changeable = true,
		.data_len = sizeof(struct nvme_feat_host_behavior),
		.get = behavior_get, .set = behavior_set,
	},
	[NVME_FEAT_FID_IOCS_PROFILE] = {
		.on = FEATURE_ON_IO, .changeable = true, .set = profile_set,
	},
	[NVME_FEAT_FID_HOST_ID] = {
		.on = FEATURE_ON_IO, .data_len = 16, .get = hostid_get, .set_refused = BAD_SEQUENCE,
	},
	[NVME_FEAT_FID_WRITE_PROTECT] = {
		.on = FEATURE_ON_IO, .changeable = true, .per_ns = true, .ncc = true,
		.get = protect_get, .set = protect_set,
	},
	[ZIP_FID] = {
		.on = FEATURE_ON_IO, .zip = true, .changeable = true,
		.get = zip_get, .set = zip_set,
	},
};

const struct feature *
feature_find(uint8_t fid)
{
	return features[fid].on ? &features[fid] : NULL;
}
