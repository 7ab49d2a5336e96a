/* What a host asks a controller before it can be used, in order, and what it learns from the
 * answers. The tables at the end are the flow.
 *
 * Happy path: CAP, VS, CC.EN, CSTS.RDY, Identify Controller, number of queues, then for each active
 * namespace Identify and its identifiers, then events. When namespaces change, the same again from
 * the changed list on.
 *
 * What can fail: a controller that Linux would refuse too (assoc_fail() says why). A namespace that
 * cannot be used (metadata, block size) is left out with a warning.
 */
#include "initiator/assoc_inner.h"

#include "common/log.h"
#include "common/zframe.h"
#include "common/zip.h"

#include <stdlib.h>

#define MS          1000000ull /* ns */
#define READY_UNIT  (500 * MS) /* of CAP.TO, CRTO.CRWMT */

enum {
	CAP_CSS_IOCS = BIT(6),  /* of the CSS field: I/O command sets, CC.CSS 6 */
	CAP_CSS_NVM = BIT(0),
	CAP_CRMS_CRWMS = BIT(0),
	IOCCSZ_UNIT = 16,       /* bytes */
	QUEUE_SIZE_MIN = 2,
	SQES = 6, CQES = 4,     /* log2 of entry sizes */
	MDTS_SHIFT_MAX = 31,
};

/* properties */

static void
build_property_get(struct nvme_sqe *sqe, uint32_t ofst, bool eight)
{
	struct nvme_property_sqe *p = (struct nvme_property_sqe *)sqe;

	p->opcode = nvme_admin_fabrics;
	p->fctype = nvme_fabrics_type_property_get;
	p->attrib = eight;
	p->ofst = le32_put(ofst);
}

void
assoc_build_cc(struct nvme_sqe *sqe, uint32_t cc)
{
	struct nvme_property_sqe *p = (struct nvme_property_sqe *)sqe;

	p->opcode = nvme_admin_fabrics;
	p->fctype = nvme_fabrics_type_property_set;
	p->ofst = le32_put(NVME_REG_CC);
	p->value = le64_put(cc);
}

static bool
build_cap(struct assoc *a, struct nvme_sqe *sqe)
{
	(void)a;
	build_property_get(sqe, NVME_REG_CAP, true);
	return true;
}

static enum took
take_cap(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)status;
	a->cap = (uint64_t)dw1 << 32 | dw0;
	if (!(NVME_CAP_CSS(a->cap) & (CAP_CSS_NVM | CAP_CSS_IOCS)))
		return assoc_fail(a, true, "the controller has no NVM command set");
	a->ready_by = NVME_CAP_TO(a->cap) * READY_UNIT;
	return TOOK_NEXT;
}

static bool
build_vs(struct assoc *a, struct nvme_sqe *sqe)
{
	(void)a;
	build_property_get(sqe, NVME_REG_VS, false);
	return true;
}

static enum took
take_vs(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)status;
	(void)dw1;
	a->vs = dw0;
	return TOOK_NEXT;
}

static bool
build_crto(struct assoc *a, struct nvme_sqe *sqe)
{
	build_property_get(sqe, NVME_REG_CRTO, false);
	return NVME_CAP_CRMS(a->cap) & CAP_CRMS_CRWMS;
}

/* The longer of the two, as Linux: controllers exist whose CRTO is shorter than what they need. */
static enum took
take_crto(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)dw1;
	if (status == 0)
		a->ready_by = MAX(a->ready_by, (dw0 & 0xffff) * READY_UNIT);
	return TOOK_NEXT;
}

uint32_t
assoc_cc(const struct assoc *a)
{
	uint32_t css = NVME_CAP_CSS(a->cap) & CAP_CSS_IOCS ? NVME_CC_CSS_CSI : NVME_CC_CSS_NVM;

	return 1u << NVME_CC_EN_SHIFT | css << NVME_CC_CSS_SHIFT | SQES << NVME_CC_IOSQES_SHIFT |
	       CQES << NVME_CC_IOCQES_SHIFT;
}

static bool
build_enable(struct assoc *a, struct nvme_sqe *sqe)
{
	assoc_build_cc(sqe, assoc_cc(a));
	return true;
}

static enum took
take_enable(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)status;
	(void)dw0;
	(void)dw1;
	a->ready_by += ring_now(a->c.r->ring);
	return TOOK_NEXT;
}

static bool
build_csts(struct assoc *a, struct nvme_sqe *sqe)
{
	(void)a;
	build_property_get(sqe, NVME_REG_CSTS, false);
	return true;
}

static enum took
take_csts(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)status;
	(void)dw1;
	if (NVME_CSTS_CFS(dw0))
		return assoc_fail(a, false, "the controller reports a fatal status (CSTS.CFS)");
	if (!NVME_CSTS_RDY(dw0)) {
		if (ring_now(a->c.r->ring) > a->ready_by)
			return assoc_fail(a, false,
			                  "the controller did not become ready within CAP.TO");
		return TOOK_LATER;
	}
	assoc_keep_alive(a);
	return TOOK_NEXT;
}

/* controller */

static void
build_identify(struct assoc *a, struct nvme_sqe *sqe, uint8_t cns, uint32_t nsid)
{
	sqe->opcode = nvme_admin_identify;
	sqe->nsid = le32_put(nsid);
	sqe->cdw10 = le32_put(cns);
	assoc_want_page(a);
}

static bool
build_identify_ctrl(struct assoc *a, struct nvme_sqe *sqe)
{
	build_identify(a, sqe, NVME_IDENTIFY_CNS_CTRL, 0);
	return true;
}

/* What Linux refuses, refused with the field's name. */
static bool
judge_ctrl(struct assoc *a, const struct nvme_id_ctrl *id)
{
	if (le16toh(id->cntlid) != a->cntlid)
		assoc_fail(a, true, "Identify says controller %u, Connect said %u",
		           le16toh(id->cntlid), a->cntlid);
	else if (a->c.discovery)
		return true;
	else if (id->cntrltype == NVME_CTRL_CNTRLTYPE_DISCOVERY)
		assoc_fail(a, true,
		           "it is a discovery controller: its subsystem cannot be used as a disk");
	else if (id->kas == 0 && a->c.cfg->keep_alive_tmo > 0)
		assoc_fail(a, true, "the controller has no Keep Alive (KAS 0)");
	else if (le32toh(id->ioccsz) * IOCCSZ_UNIT < sizeof(struct nvme_sqe))
		assoc_fail(a, true, "IOCCSZ %u is shorter than a command", le32toh(id->ioccsz));
	else if (le32toh(id->iorcsz) * IOCCSZ_UNIT < sizeof(struct nvme_cqe))
		assoc_fail(a, true, "IORCSZ %u is shorter than a response", le32toh(id->iorcsz));
	else if (id->icdoff != 0)
		assoc_fail(a, true, "ICDOFF is %u, only 0 can be used", le16toh(id->icdoff));
	else if (!(le32toh(id->sgls) & 3))
		assoc_fail(a, true, "the controller has no SGLs");
	else
		return true;
	return false;
}

/* 0 is "no limit", and the unit is the smallest page of the controller, not ours. */
static uint32_t
mdts_bytes(const struct assoc *a, uint8_t mdts)
{
	unsigned shift = mdts + 12u + (unsigned)NVME_CAP_MPSMIN(a->cap);

	return mdts == 0 || shift > MDTS_SHIFT_MAX ? UINT32_MAX : 1u << shift;
}

static uint16_t
sqsize_of(const struct assoc *a, uint16_t maxcmd)
{
	unsigned n = MIN(a->c.cfg->queue_size, (unsigned)NVME_CAP_MQES(a->cap) + 1);

	if (maxcmd)
		n = MIN(n, maxcmd);
	return (uint16_t)(MAX(n, (unsigned)QUEUE_SIZE_MIN) - 1);
}

/* Whether the vendor's bytes are ours, and say what we know. */
static uint32_t
zip_offered(const struct nvme_id_ctrl *id)
{
	struct zip_caps caps;

	memcpy(&caps, id->vs, sizeof(caps));
	if (strncmp(caps.magic, ZIP_MAGIC, sizeof(caps.magic)) != 0 ||
	    caps.version != ZIP_VERSION || caps.level_max < ZFRAME_LEVEL_MAX)
		return 0;
	return MIN(le32_get(caps.raw_max), (uint32_t)ZFRAME_RAW_MAX);
}

static enum took
take_identify_ctrl(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	const struct nvme_id_ctrl *id = (const struct nvme_id_ctrl *)a->page;

	(void)status;
	(void)dw0;
	(void)dw1;
	if (!judge_ctrl(a, id))
		return TOOK_FAILED;
	if (id->maxcmd == 0 && !a->c.discovery && !a->live)
		log_warn("path %s: the controller does not tell MAXCMD", a->c.name);
	a->oaes = le32toh(id->oaes);
	a->zip_offered = zip_offered(id);
	a->sqsize = sqsize_of(a, le16toh(id->maxcmd));
	a->lim = (struct path_info){
		.cntlid = a->cntlid,
		.mdts = mdts_bytes(a, id->mdts),
		.mqes = (uint16_t)NVME_CAP_MQES(a->cap),
		.oncs = le16toh(id->oncs),
		.vwc = id->vwc & 1,
	};
	if (!a->c.discovery)
		a->lim.in_capsule =
			le32toh(id->ioccsz) * IOCCSZ_UNIT - (uint32_t)sizeof(struct nvme_sqe);
	return TOOK_NEXT;
}

static bool
build_queues(struct assoc *a, struct nvme_sqe *sqe)
{
	unsigned want = a->c.r->in->nr_reactors;

	if (a->c.cfg->nr_io_queues > 0)
		want = MIN(want, a->c.cfg->nr_io_queues);
	a->nr_queues = want;
	sqe->opcode = nvme_admin_set_features;
	sqe->cdw10 = le32_put(NVME_FEAT_FID_NUM_QUEUES);
	sqe->cdw11 = le32_put((want - 1) << 16 | (want - 1));
	return true;
}

static enum took
take_queues(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	unsigned granted = MIN(dw0 & 0xffff, dw0 >> 16) + 1;

	(void)status;
	(void)dw1;
	a->nr_queues = MIN(a->nr_queues, granted);
	return TOOK_NEXT;
}

/* compressed transfers */

static bool
build_zip(struct assoc *a, struct nvme_sqe *sqe)
{
	a->lim.zip_asked = a->c.cfg->compress;
	if (!a->c.cfg->compress || a->zip_offered == 0 || a->lim.zip_max > 0)
		return false;
	sqe->opcode = nvme_admin_set_features;
	sqe->cdw10 = le32_put(ZIP_FID);
	sqe->cdw11 = le32_put(ZIP_FEATURE_ON);
	return true;
}

static enum took
take_zip(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)dw0;
	(void)dw1;
	if (status == 0)
		a->lim.zip_max = a->zip_offered;
	else
		log_warn("path %s: the controller offers compressed transfers and refuses them: "
		         "status %03xh",
		         a->c.name, status & NVME_STATUS_MASK);
	return TOOK_NEXT;
}

/* namespaces */

/* Reading the log is what lets the controller send the event again, so it comes before what it
 * announces. */
static bool
build_changed_list(struct assoc *a, struct nvme_sqe *sqe)
{
	if (!a->live)
		return false; /* the first reading of all */
	sqe->opcode = nvme_admin_get_log_page;
	sqe->nsid = le32_put(NVME_NSID_ALL);
	sqe->cdw10 = le32_put(NVME_LOG_LID_CHANGED_NS | (uint32_t)(ASSOC_PAGE / 4 - 1) << 16);
	assoc_want_page(a);
	return true;
}

static enum took
take_changed_list(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)dw0;
	(void)dw1;
	if (status != 0)
		log_warn("path %s: cannot read the list of changed namespaces: status %03xh",
		         a->c.name, status & NVME_STATUS_MASK);
	return TOOK_NEXT; /* whatever changed: all are read again */
}

/* The list comes in pages; nsids behind the last one that is known. */
static bool
build_ns_list(struct assoc *a, struct nvme_sqe *sqe)
{
	build_identify(a, sqe, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST,
	               a->nr_nsids ? a->nsids[a->nr_nsids - 1] : 0);
	return true;
}

static bool
build_reset_ns(struct assoc *a, struct nvme_sqe *sqe)
{
	(void)sqe;
	a->nr_nsids = a->nr_ns = a->ns_at = 0;
	return false;
}

static enum took
take_ns_list(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	const struct nvme_ns_list *list = (const struct nvme_ns_list *)a->page;
	uint32_t last = a->nr_nsids ? a->nsids[a->nr_nsids - 1] : 0;
	unsigned i;

	(void)status;
	(void)dw0;
	(void)dw1;
	for (i = 0; i < NVME_ID_NS_LIST_MAX && list->ns[i] != 0; i++) {
		uint32_t nsid = le32toh(list->ns[i]);

		if (nsid <= last)
			return assoc_fail(a, false, "the list of namespaces is not in order");
		if (a->nr_nsids == ASSOC_NS_MAX) {
			log_warn("path %s: more than %u namespaces, the rest is left out",
			         a->c.name, ASSOC_NS_MAX);
			return TOOK_NEXT;
		}
		a->nsids[a->nr_nsids++] = last = nsid;
	}
	return i == NVME_ID_NS_LIST_MAX ? TOOK_AGAIN : TOOK_NEXT;
}

static bool
build_identify_ns(struct assoc *a, struct nvme_sqe *sqe)
{
	if (a->ns_at == a->nr_nsids)
		return false;
	build_identify(a, sqe, NVME_IDENTIFY_CNS_NS, a->nsids[a->ns_at]);
	return true;
}

static const char *
cannot_use(const struct nvme_id_ns *id, const struct nvme_lbaf *f)
{
	if (id->nsze == 0)
		return "it has no blocks";
	if (f->ms != 0)
		return "it has metadata";
	if (f->ds < 9 || f->ds > 16)
		return "its block size is not 512 bytes to 64 KiB";
	if (le64toh(id->nsze) > UINT64_MAX >> f->ds)
		return "its size cannot be";
	return NULL;
}

static enum took
take_identify_ns(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	const struct nvme_id_ns *id = (const struct nvme_id_ns *)a->page;
	const struct nvme_lbaf *f = &id->lbaf[(id->flbas & 0xf) | (id->flbas >> 5 & 3) << 4];
	const char *why = status ? "it does not let itself be identified" : cannot_use(id, f);
	struct path_ns *ns = &a->ns[a->nr_ns];

	(void)dw0;
	(void)dw1;
	if (why) {
		log_warn("path %s: namespace %u is left out: %s", a->c.name, a->nsids[a->ns_at],
		         why);
		a->ns_at++;
		return TOOK_AGAIN;
	}
	*ns = (struct path_ns){
		.nsid = a->nsids[a->ns_at],
		.blocks = le64toh(id->nsze),
		.lba_shift = f->ds,
	};
	memcpy(ns->nguid, id->nguid, sizeof(ns->nguid));
	a->nr_ns++;
	return TOOK_NEXT;
}

static bool
build_descriptors(struct assoc *a, struct nvme_sqe *sqe)
{
	if (a->ns_at == a->nr_nsids)
		return false;
	build_identify(a, sqe, NVME_IDENTIFY_CNS_NS_DESC_LIST, a->nsids[a->ns_at]);
	return true;
}

/* Older controllers have none of them, and one may be gone by now: then it has no UUID, that is
 * all. */
static enum took
take_descriptors(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	struct path_ns *ns = &a->ns[a->nr_ns - 1];
	size_t at = 0;

	(void)dw0;
	(void)dw1;
	/* Byte by byte: their lengths leave them anywhere. */
	while (status == 0 && at + sizeof(struct nvme_ns_id_desc) <= ASSOC_PAGE) {
		uint8_t nidt = a->page[at + offsetof(struct nvme_ns_id_desc, nidt)];
		uint8_t nidl = a->page[at + offsetof(struct nvme_ns_id_desc, nidl)];
		const uint8_t *nid = a->page + at + sizeof(struct nvme_ns_id_desc);

		at += sizeof(struct nvme_ns_id_desc) + nidl;
		if (nidt == 0 || at > ASSOC_PAGE)
			break;
		if (nidt == NVME_NIDT_UUID && nidl == sizeof(ns->uuid))
			memcpy(ns->uuid, nid, sizeof(ns->uuid));
		else if (nidt == NVME_NIDT_NGUID && nidl == sizeof(ns->nguid))
			memcpy(ns->nguid, nid, sizeof(ns->nguid));
	}
	a->ns_at++;
	return TOOK_BACK;
}

/* events */

static bool
build_events(struct assoc *a, struct nvme_sqe *sqe)
{
	uint32_t want = a->c.discovery ? (uint32_t)NVME_CTRL_OAES_DL : NVME_CTRL_OAES_NA;

	if (a->live || (a->c.discovery && a->c.cfg->keep_alive_tmo == 0))
		return false; /* it is asked for once, by who stays */
	if (!(a->oaes & want)) {
		if (a->c.discovery)
			log_warn("path %s: the controller does not tell when its log changes",
			         a->c.name);
		return false;
	}
	sqe->opcode = nvme_admin_set_features;
	sqe->cdw10 = le32_put(NVME_FEAT_FID_ASYNC_EVENT);
	sqe->cdw11 = le32_put(want);
	return true;
}

static enum took
take_events(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	(void)dw0;
	(void)dw1;
	if (status != 0)
		log_warn("path %s: cannot ask for events (status %03xh): changes are not seen",
		         a->c.name, status & NVME_STATUS_MASK);
	else
		assoc_hear_events(a);
	return TOOK_NEXT;
}

/* the flow */

#define SETUP_COMMON                                                                 \
	{ "Property Get CAP", build_cap, take_cap, false },                          \
	{ "Property Get VS", build_vs, take_vs, false },                             \
	{ "Property Get CRTO", build_crto, take_crto, true },                        \
	{ "Property Set CC", build_enable, take_enable, false },                     \
	{ "Property Get CSTS", build_csts, take_csts, false },                       \
	{ "Identify Controller", build_identify_ctrl, take_identify_ctrl, false }

#define NAMESPACES                                                                   \
	{ "Set Features Compressed Transfers", build_zip, take_zip, true },          \
	{ "Get Log Page Changed Namespace List", build_changed_list, take_changed_list, true }, \
	{ "reset", build_reset_ns, NULL, false },                                    \
	{ "Identify Active Namespaces", build_ns_list, take_ns_list, false },        \
	{ "Identify Namespace", build_identify_ns, take_identify_ns, true },         \
	{ "Identify Namespace Descriptors", build_descriptors, take_descriptors, true }

#define END { NULL, NULL, NULL, false }

#define EVENTS { "Set Features Asynchronous Event Configuration", build_events, take_events, true }

const struct step assoc_setup[] = {
	SETUP_COMMON,
	{ "Set Features Number of Queues", build_queues, take_queues, false },
	NAMESPACES,
	EVENTS,
	END
};

const struct step assoc_setup_discovery[] = { SETUP_COMMON, EVENTS, END };
const struct step assoc_rescan_from[] = { NAMESPACES, END };
