/* Log pages from the model.
 *
 * Happy path: the page is zero, what there is to tell is put in. Nothing can fail.
 */
#include "target/logpage.h"

#include "common/meter.h"
#include "common/zip.h"
#include "target/admin_table.h"
#include "target/identify.h"

#include <endian.h>
#include <stdio.h>

enum {
	DATA_UNIT = 512000,     /* SMART: thousands of 512 bytes, rounded up */
	HOUR_MS = 3600000,
	SPARE_PERCENT = 100,
};

static void
put_u128(uint8_t field[16], uint64_t v)
{
	le64 low = le64_put(v);

	memcpy(field, &low, sizeof(low));
}

void
log_supported(const struct subsys *s, struct nvme_supported_log_pages *ret)
{
	for (unsigned lid = 0; lid < NVME_LOG_SUPPORTED_LOG_PAGES_MAX; lid++)
		ret->lid_support[lid] = htole32(admin_log_served(s, (uint8_t)lid));
}

void
log_errors(const struct ctrl *c, struct nvme_error_log_page *ret)
{
	uint64_t n = MIN(c->nr_errors, CTRL_ERRORS);

	for (uint64_t i = 0; i < n; i++) {
		const struct ctrl_error *e = &c->errors[(c->nr_errors - 1 - i) % CTRL_ERRORS];

		ret[i] = (struct nvme_error_log_page){
			.error_count = htole64(e->count),
			.sqid = htole16(e->sqid),
			.cmdid = htole16(e->cid),
			.status_field = htole16((uint16_t)(e->status << 1)),
			.parm_error_location = htole16(e->loc),
			.lba = htole64(e->lba),
			.nsid = htole32(e->nsid),
			.trtype = e->trtype,
		};
	}
}

/* ---- SMART ---- */

bool
temp_warns(const struct ctrl *c)
{
	uint32_t over = c->feat[NVME_FEAT_FID_TEMP_THRESH] & 0xffff;
	uint32_t under = c->feat[NVME_FEAT_FID_TEMP_THRESH] >> 16;

	return TEMP_NOW >= over || TEMP_NOW <= under;
}

static void
add_ns(struct ns_stats *sum, const struct ns *ns, unsigned reactors)
{
	for (unsigned i = 0; i < reactors; i++) {
		const struct ns_stats *st = &ns->h[i].stats;

		sum->reads += METER_GET(st->reads);
		sum->writes += METER_GET(st->writes);
		sum->read_bytes += METER_GET(st->read_bytes);
		sum->write_bytes += METER_GET(st->write_bytes);
		sum->errors += METER_GET(st->errors);
	}
}

void
log_smart(const struct ctrl *c, const struct ns *ns, uint64_t now_ms,
          struct nvme_smart_log *ret)
{
	const struct subsys *s = c->subsys;
	struct ns_stats sum = { 0 };

	if (ns)
		add_ns(&sum, ns, s->t->nr_reactors);
	for (unsigned i = 0; !ns && i < NS_MAX; i++)
		if (s->ns[i])
			add_ns(&sum, s->ns[i], s->t->nr_reactors);
	ret->critical_warning = temp_warns(c) ? NVME_SMART_CRIT_TEMPERATURE : 0;
	ret->temperature[0] = TEMP_NOW & 0xff;
	ret->temperature[1] = TEMP_NOW >> 8;
	ret->avail_spare = SPARE_PERCENT;
	put_u128(ret->data_units_read, (sum.read_bytes + DATA_UNIT - 1) / DATA_UNIT);
	put_u128(ret->data_units_written, (sum.write_bytes + DATA_UNIT - 1) / DATA_UNIT);
	put_u128(ret->host_reads, sum.reads);
	put_u128(ret->host_writes, sum.writes);
	put_u128(ret->media_errors, sum.errors);
	put_u128(ret->power_cycles, 1); /* since this process started */
	put_u128(ret->power_on_hours, (now_ms - s->t->started_ms) / HOUR_MS);
	put_u128(ret->num_err_log_entries, c->nr_errors);
}

/* ---- the others ---- */

void
log_firmware(struct nvme_firmware_slot *ret)
{
	char revision[sizeof(ret->frs[0]) + 1];

	snprintf(revision, sizeof(revision), "%-8.8s", PACKAGE_VERSION);
	ret->afi = 1;
	memcpy(ret->frs[0], revision, sizeof(ret->frs[0]));
}

void
log_changed_ns(const struct ctrl *c, struct nvme_ns_list *ret)
{
	unsigned n = 0;

	/* As many as there can be NSIDs: it cannot overflow. */
	static_assert((int)NS_MAX <= (int)NVME_ID_NS_LIST_MAX, "the list must tell its overflow");
	for (uint32_t i = 0; i < NS_MAX; i++)
		if (c->changed_ns[i / 32] & BIT(i % 32))
			ret->ns[n++] = htole32(i + 1);
}

void
log_effects(const struct subsys *s, bool zips, struct nvme_cmd_effects_log *ret)
{
	/* What io*.c executes; b1 for those that change data. */
	static const struct { uint8_t opcode; bool writes; } io[] = {
		{ nvme_cmd_flush, false },        { nvme_cmd_write, true },
		{ nvme_cmd_read, false },         { nvme_cmd_compare, false },
		{ nvme_cmd_write_zeroes, true },  { nvme_cmd_dsm, true },
		{ nvme_cmd_verify, false },       { nvme_cmd_copy, true },
	};

	for (unsigned op = 0; op < ARRAY_SIZE(ret->acs); op++)
		ret->acs[op] = htole32(admin_op_effects(s, (uint8_t)op));
	if (s->discovery)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(io); i++)
		ret->iocs[io[i].opcode] = htole32(
			NVME_CMD_EFFECTS_CSUPP | (io[i].writes ? NVME_CMD_EFFECTS_LBCC : 0));
	if (identify_can_write_uncor(s))
		ret->iocs[nvme_cmd_write_uncor] =
			htole32(NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC);
	if (zips) {
		ret->iocs[ZIP_WRITE] = htole32(NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC);
		ret->iocs[ZIP_READ] = htole32(NVME_CMD_EFFECTS_CSUPP);
	}
}

void
log_feature_effects(const struct subsys *s, struct nvme_fid_supported_effects_log *ret)
{
	for (unsigned fid = 0; fid < ARRAY_SIZE(ret->fid_support); fid++)
		ret->fid_support[fid] = htole32(admin_feature_effects(s, (uint8_t)fid));
}
