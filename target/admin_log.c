/* Get Log Page: the table of pages, offsets and lengths, and what a read with RAE 0 clears.
 *
 * Happy path: the page is built whole (they are 4 KiB at most; the discovery log builds just the
 * part), the wanted part is copied, the event of that page is armed again.
 * What can fail: unknown page (109h), offset unaligned or beyond the page (02h), NUMD and SGL
 * that differ (0Fh).
 */
#include "target/admin.h"

#include "target/admin_table.h"
#include "target/discovery.h"
#include "target/logpage.h"

#include <time.h>

#define BAD_FIELD NVME_NO_RETRY(NVME_SC_INVALID_FIELD)

enum {
	PAGE_MAX = 4096,
	CDW10_RAE = 1 << 15,
	CDW14_OT = 1 << 23,     /* the offset is an index: not supported */
};

struct request {
	struct ctrl *c;
	struct conn *conn;
	uint32_t nsid;
	uint8_t csi;
	bool clear;             /* RAE 0 */
	uint64_t off;
	uint32_t len;
	uint8_t *data;          /* of the command: len zeroed bytes */
	uint8_t *page;          /* PAGE_MAX zeroed bytes */
};

static uint16_t
page_supported(struct request *rq)
{
	log_supported(rq->c->subsys, (struct nvme_supported_log_pages *)rq->page);
	return 0;
}

static uint16_t
page_errors(struct request *rq)
{
	log_errors(rq->c, (struct nvme_error_log_page *)rq->page);
	return 0;
}

static uint16_t
page_smart(struct request *rq)
{
	const struct ns *ns = NULL;
	struct timespec now;

	if (rq->nsid != 0 && rq->nsid != NVME_NSID_ALL) {
		ns = ctrl_sees(rq->c, rq->nsid) ? rq->c->subsys->ns[rq->nsid - 1] : NULL;
		if (!ns)
			return NVME_NO_RETRY(NVME_SC_INVALID_NS);
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	log_smart(rq->c, ns, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
	          (struct nvme_smart_log *)rq->page);
	if (rq->clear)
		ctrl_event_rearm(rq->c, CTRL_EV_TEMPERATURE);
	return 0;
}

static uint16_t
page_firmware(struct request *rq)
{
	log_firmware((struct nvme_firmware_slot *)rq->page);
	return 0;
}

static uint16_t
page_changed_ns(struct request *rq)
{
	log_changed_ns(rq->c, (struct nvme_ns_list *)rq->page);
	if (rq->clear) {
		memset(rq->c->changed_ns, 0, sizeof(rq->c->changed_ns));
		ctrl_event_rearm(rq->c, CTRL_EV_NS_CHANGED);
	}
	return 0;
}

static uint16_t
page_effects(struct request *rq)
{
	if (rq->csi != NVME_CSI_NVM)
		return BAD_FIELD;
	log_effects(rq->c->subsys, ctrl_zips(rq->c), (struct nvme_cmd_effects_log *)rq->page);
	return 0;
}

static uint16_t
page_feature_effects(struct request *rq)
{
	log_feature_effects(rq->c->subsys, (struct nvme_fid_supported_effects_log *)rq->page);
	return 0;
}

/* No management command is served in band: zeroes. */
static uint16_t
page_mi_effects(struct request *rq)
{
	(void)rq;
	return 0;
}

static uint16_t
page_discovery(struct request *rq)
{
	discovery_log(rq->conn, rq->data, rq->off, rq->len);
	if (rq->clear)
		ctrl_event_rearm(rq->c, CTRL_EV_DISCOVERY);
	return 0;
}

enum { ON_IO = 1, ON_DISCOVERY = 2, ON_BOTH = 3 };

static const struct log_row {
	uint16_t (*fill)(struct request *rq);
	uint16_t size;          /* bytes; 0: it copies by itself */
	uint8_t on;
} rows[256] = {
	[NVME_LOG_LID_SUPPORTED_LOG_PAGES] =
		{ page_supported, sizeof(struct nvme_supported_log_pages), ON_BOTH },
	[NVME_LOG_LID_ERROR] =
		{ page_errors, CTRL_ERRORS * sizeof(struct nvme_error_log_page), ON_BOTH },
	[NVME_LOG_LID_SMART] = { page_smart, sizeof(struct nvme_smart_log), ON_IO },
	[NVME_LOG_LID_FW_SLOT] = { page_firmware, sizeof(struct nvme_firmware_slot), ON_IO },
	[NVME_LOG_LID_CHANGED_NS] = { page_changed_ns, sizeof(struct nvme_ns_list), ON_IO },
	[NVME_LOG_LID_CMD_EFFECTS] = { page_effects, sizeof(struct nvme_cmd_effects_log), ON_IO },
	[NVME_LOG_LID_FID_SUPPORTED_EFFECTS] =
		{ page_feature_effects, sizeof(struct nvme_fid_supported_effects_log), ON_IO },
	[NVME_LOG_LID_MI_CMD_SUPPORTED_EFFECTS] =
		{ page_mi_effects, sizeof(struct nvme_mi_cmd_supported_effects_log), ON_IO },
	[NVME_LOG_LID_DISCOVER] = { page_discovery, 0, ON_DISCOVERY },
};

bool
admin_log_served(const struct subsys *s, uint8_t lid)
{
	return rows[lid].on & (s->discovery ? ON_DISCOVERY : ON_IO);
}

static uint16_t
read_page(const struct log_row *row, struct request *rq)
{
	uint8_t page[PAGE_MAX] = { 0 };
	uint16_t status;

	if (row->size == 0)
		return row->fill(rq);
	if (rq->off > row->size)
		return BAD_FIELD;
	rq->page = page;
	status = row->fill(rq);
	if (status == 0)
		memcpy(rq->data, page + rq->off, MIN(rq->len, row->size - rq->off));
	return status;
}

/* Lock held. */
static uint16_t
get_log(struct cmd *cmd)
{
	uint32_t cdw10 = le32_get(cmd->sqe.cdw10), cdw11 = le32_get(cmd->sqe.cdw11);
	uint32_t cdw14 = le32_get(cmd->sqe.cdw14);
	uint64_t numd = (uint64_t)(cdw11 & UINT16_MAX) << 16 | cdw10 >> 16;
	struct request rq = {
		.c = cmd->conn->ctrl,
		.conn = cmd->conn,
		.nsid = le32_get(cmd->sqe.nsid),
		.csi = (uint8_t)(cdw14 >> 24),
		.clear = !(cdw10 & CDW10_RAE),
		.off = (uint64_t)le32_get(cmd->sqe.cdw13) << 32 | le32_get(cmd->sqe.cdw12),
		.len = cmd->data_len,
		.data = cmd->data,
	};
	uint8_t lid = (uint8_t)cdw10;

	if (!admin_log_served(rq.c->subsys, lid))
		return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_INVALID_LOG_PAGE));
	if (cdw14 & CDW14_OT || rq.off % 4)
		return BAD_FIELD;
	if ((numd + 1) * 4 != cmd->data_len)
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	return read_page(&rows[lid], &rq);
}

void
admin_get_log(struct cmd *cmd)
{
	struct ctrl *c = cmd->conn->ctrl;
	uint16_t status;

	target_lock(c->subsys->t);
	status = get_log(cmd);
	target_unlock(c->subsys->t);
	cmd_complete(cmd, status);
	/* What happened since the last event was told may be told now. */
	admin_aer_deliver(c);
}
