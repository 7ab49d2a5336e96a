/* Identify pages from the model. Every figure that a host may rely on is here.
 *
 * Happy path: the page is zero, which means "not supported" nearly everywhere; what is built is
 * put in. Nothing can fail.
 */
#include "target/identify.h"

#include "common/zframe.h"
#include "common/zip.h"
#include "target/ctrl_state.h"
#include "target/ids.h"
#include "target/io.h"
#include "target/keepalive.h"
#include "target/logpage.h"

#include <endian.h>
#include <stdio.h>

enum {
	PAGE_SHIFT = 12,        /* CAP.MPSMIN 0: the unit of MDTS */
	OPTIMAL_BYTES = 4096,   /* writes and deallocations of whole such pieces cost no read */
	RTD3E_US = 10000000,    /* Linux waits that long for a shutdown: flushes take time */
};

/* CNS 08h, NSFEAT: bit 5, no volatile write cache (Base 2.1; older hosts ignore it). */
#define INDEP_NSFEAT_VWCNP 0x20
/* CNS 08h, NSTAT: bit 0, ready. */
#define INDEP_NSTAT_NRDY 0x01

/* ---- controller ---- */

/* ASCII, padded with spaces. */
static void
put_padded(char *field, size_t n, const char *text)
{
	size_t len = strnlen(text, n);

	memset(field, ' ', n);
	memcpy(field, text, len);
}

static void
put_u128(uint8_t field[16], uint64_t v)
{
	le64 low = le64_put(v);

	memcpy(field, &low, sizeof(low));
}

static uint8_t
log2_of(uint64_t v)
{
	return (uint8_t)(63 - __builtin_clzll(v));
}

/* What discovery controllers say, too. */
static void
identify_common(const struct ctrl *c, struct nvme_id_ctrl *id)
{
	const struct subsys *s = c->subsys;
	const struct limits *l = &s->t->limits;

	put_padded(id->sn, sizeof(id->sn), s->serial);
	put_padded(id->mn, sizeof(id->mn), s->model);
	put_padded(id->fr, sizeof(id->fr), PACKAGE_VERSION);
	id->mdts = (uint8_t)(log2_of(l->mdts) - PAGE_SHIFT);
	id->cntlid = htole16(c->cntlid);
	id->ver = htole32(CTRL_VS);
	id->ctratt = htole32(NVME_CTRL_CTRATT_128_ID | NVME_CTRL_CTRATT_TBKAS);
	id->aerl = CTRL_AERS_MAX - 1;
	id->elpe = CTRL_ERRORS - 1;
	id->lpa = NVME_CTRL_LPA_EXTENDED;
	id->kas = htole16(KEEPALIVE_UNIT_MS / 100);
	id->maxcmd = htole16((uint16_t)l->depth);
	id->sgls = htole32(1 | NVME_CTRL_SGLS_OFFSET | (uint32_t)NVME_CTRL_SGLS_TPORT);
	memcpy(id->subnqn, s->nqn, strlen(s->nqn));
	id->iorcsz = htole32(sizeof(struct nvme_cqe) / 16);
	id->msdbd = 1;
}

static void
identify_discovery(const struct ctrl *c, struct nvme_id_ctrl *id)
{
	identify_common(c, id);
	id->cntrltype = NVME_CTRL_CNTRLTYPE_DISCOVERY;
	id->dctype = NVME_CTRL_DCTYPE_DDC;
	id->oaes = htole32((uint32_t)NVME_CTRL_OAES_DL);
	id->ioccsz = htole32(sizeof(struct nvme_sqe) / 16);
}

/* ONCS speaks for the controller: only when every namespace can. */
bool
identify_can_write_uncor(const struct subsys *s)
{
	bool any = false;

	for (unsigned i = 0; i < NS_MAX; i++) {
		const struct ns *ns = s->ns[i];

		if (ns && !ns->be->can_uncor)
			return false;
		any |= ns != NULL;
	}
	return any;
}

static void
identify_commands(const struct subsys *s, struct nvme_id_ctrl *id)
{
	uint16_t oacs = NVME_CTRL_OACS_FORMAT;

	if (s->ns_dir)
		oacs |= NVME_CTRL_OACS_NS_MGMT;
	id->oacs = htole16(oacs);
	id->acl = CTRL_ACL;
	id->frmw = NVME_CTRL_FRMW_1ST_RO | 1 << 1;
	id->lpa |= NVME_CTRL_LPA_SMART_PER_NS | NVME_CTRL_LPA_CMD_EFFECTS |
	           NVME_CTRL_LPA_LI0_LI5_LI12_LI13;
	id->oncs = htole16(NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_DSM |
	                   NVME_CTRL_ONCS_WRITE_ZEROES | NVME_CTRL_ONCS_SAVE_FEATURES |
	                   NVME_CTRL_ONCS_TIMESTAMP | NVME_CTRL_ONCS_VERIFY | NVME_CTRL_ONCS_COPY |
	                   (identify_can_write_uncor(s) ? NVME_CTRL_ONCS_WRITE_UNCORRECTABLE : 0));
	id->fuses = htole16(NVME_CTRL_FUSES_COMPARE_AND_WRITE);
	id->acwu = htole16(IO_FUSED_MAX_BLOCKS - 1);
	id->fna = NVME_CTRL_FNA_NSID_FFFFFFFF;
	/* A namespace with a cache can come at any time, and hosts look only once: so always
	 * present. Flush of NSID FFFFFFFFh is served. */
	id->vwc = NVME_CTRL_VWC_PRESENT | NVME_CTRL_VWC_FLUSH;
	id->nwpc = NVME_CTRL_NWPC_WRITE_PROTECT;
	id->ocfs = htole16(1);  /* Copy descriptor format 0 */
}

/* Hosts other than our initiator have no use for these bytes, and none must look at them. */
static void
put_zip_caps(const struct target *t, struct nvme_id_ctrl *id)
{
	struct zip_caps caps = {
		.magic = ZIP_MAGIC,
		.version = ZIP_VERSION,
		.level_max = ZFRAME_LEVEL_MAX,
		.raw_max = le32_put(io_zip_max(t)),
	};

	static_assert(offsetof(struct nvme_id_ctrl, vs) == ZIP_CAPS_AT, "vendor specific bytes");
	memcpy(id->vs, &caps, sizeof(caps));
}

void
identify_ctrl(const struct ctrl *c, const struct ns_capacity *cap, struct nvme_id_ctrl *ret)
{
	const struct subsys *s = c->subsys;

	if (s->discovery) {
		identify_discovery(c, ret);
		return;
	}
	identify_common(c, ret);
	identify_commands(s, ret);
	ret->cntrltype = NVME_CTRL_CNTRLTYPE_IO;
	ret->cmic = NVME_CTRL_CMIC_MULTI_PORT | NVME_CTRL_CMIC_MULTI_CTRL;
	ret->wctemp = htole16(TEMP_WARNING);
	ret->cctemp = htole16(TEMP_CRITICAL);
	ret->rtd3e = htole32(RTD3E_US);
	ret->oaes = htole32(NVME_CTRL_OAES_NA);
	ret->sqes = 0x66;
	ret->cqes = 0x44;
	ret->nn = htole32(NS_MAX);
	ret->mnan = htole32(NS_MAX);
	put_u128(ret->tnvmcap, cap->total);
	put_u128(ret->unvmcap, cap->unallocated);
	ret->ioccsz = htole32((uint32_t)(sizeof(struct nvme_sqe) + s->t->limits.in_capsule) / 16);
	ret->ofcs = htole16(NVME_CTRL_OFCS_DISCONNECT);
	if (s->t->limits.compress)
		put_zip_caps(s->t, ret);
}

void
identify_ctrl_nvm(struct nvme_id_ctrl_nvm *ret)
{
	/* VSL 0: no limit for Verify. DMRL, DMRSL, DMSL 0: no limits for Dataset Management. */
	ret->wzsl = IO_ZEROES_SHIFT - PAGE_SHIFT;
}

/* ---- namespace ---- */

uint8_t
lba_format_shift(const struct backend *be, unsigned index)
{
	static const uint8_t shifts[LBA_FORMATS] = { LBA_SHIFT_MIN, LBA_SHIFT_4K };

	if (index >= LBA_FORMATS || (be && 1u << shifts[index] < be->min_block))
		return 0;
	return shifts[index];
}

/* be NULL: of no particular namespace. */
static void
put_ns_common(const struct limits *l, const struct backend *be, unsigned lba_shift,
              struct nvme_id_ns *id)
{
	uint32_t per_range = MIN(l->mdts >> lba_shift, UINT16_MAX);

	id->nlbaf = LBA_FORMATS - 1;
	for (unsigned i = 0; i < LBA_FORMATS; i++)
		id->lbaf[i].ds = lba_format_shift(be, i);
	id->nmic = NVME_NS_NMIC_SHARED;
	id->dlfeat = NVME_NS_DLFEAT_RB_ALL_0S | NVME_NS_DLFEAT_WRITE_ZEROES;
	id->mssrl = htole16((uint16_t)per_range);
	id->mcl = htole32(per_range * IO_COPY_MAX_RANGES);
	id->msrc = IO_COPY_MAX_RANGES - 1;
}

static bool
ns_read_only(const struct ns *ns)
{
	return ns->be->readonly || atomic_load(&ns->write_protected);
}

void
identify_ns(const struct ns *ns, struct nvme_id_ns *ret)
{
	uint64_t blocks = atomic_load(&ns->blocks);
	uint16_t optimal = (uint16_t)((OPTIMAL_BYTES >> ns->lba_shift) - 1);

	put_ns_common(&ns->subsys->t->limits, ns->be, ns->lba_shift, ret);
	ret->nsze = htole64(blocks);
	ret->ncap = htole64(blocks);
	ret->nuse = htole64(blocks);
	ret->flbas = ns->lba_shift == LBA_SHIFT_4K;
	ret->nsfeat = NVME_NS_FEAT_NATOMIC | NVME_NS_FEAT_IO_OPT;
	ret->nacwu = htole16(IO_FUSED_MAX_BLOCKS - 1);
	ret->npwg = htole16(optimal);
	ret->npwa = htole16(optimal);
	ret->npdg = htole16(optimal);
	ret->npda = htole16(optimal);
	put_u128(ret->nvmcap, blocks << ns->lba_shift);
	if (ns_read_only(ns))
		ret->nsattr = NVME_NS_NSATTR_WRITE_PROTECTED;
	memcpy(ret->nguid, ns->nguid, sizeof(ret->nguid));
	memcpy(ret->eui64, ns->eui64, sizeof(ret->eui64));
}

void
identify_ns_common(const struct subsys *s, struct nvme_id_ns *ret)
{
	put_ns_common(&s->t->limits, NULL, LBA_SHIFT_MIN, ret);
}

void
identify_ns_independent(const struct ns *ns, struct nvme_id_independent_id_ns *ret)
{
	ret->nmic = NVME_NS_NMIC_SHARED;
	ret->nstat = INDEP_NSTAT_NRDY;
	if (!ns->be->volatile_cache)
		ret->nsfeat = INDEP_NSFEAT_VWCNP;
	if (ns_read_only(ns))
		ret->nsattr = NVME_NS_NSATTR_WRITE_PROTECTED;
}

static uint8_t *
put_desc(uint8_t *at, uint8_t type, const uint8_t *id, uint8_t n)
{
	at[0] = type;
	at[1] = n;
	memcpy(at + 4, id, n);
	return at + 4 + n;
}

void
identify_ns_descs(const struct ns *ns, uint8_t ret[NVME_IDENTIFY_DATA_SIZE])
{
	static const uint8_t csi = NVME_CSI_NVM;
	uint8_t *at = ret;

	if (ids_set(ns->eui64, sizeof(ns->eui64)))
		at = put_desc(at, NVME_NIDT_EUI64, ns->eui64, NVME_NIDT_EUI64_LEN);
	if (ids_set(ns->nguid, sizeof(ns->nguid)))
		at = put_desc(at, NVME_NIDT_NGUID, ns->nguid, NVME_NIDT_NGUID_LEN);
	if (ids_set(ns->uuid, sizeof(ns->uuid)))
		at = put_desc(at, NVME_NIDT_UUID, ns->uuid, NVME_NIDT_UUID_LEN);
	put_desc(at, NVME_NIDT_CSI, &csi, NVME_NIDT_CSI_LEN);
}

/* ---- lists ---- */

void
identify_ns_list(const struct ctrl *c, uint32_t after, bool all, struct nvme_ns_list *ret)
{
	unsigned n = 0;

	for (uint32_t nsid = after + 1; nsid <= NS_MAX && n < NVME_ID_NS_LIST_MAX; nsid++)
		if (c->subsys->ns[nsid - 1] && (all || ctrl_sees(c, nsid)))
			ret->ns[n++] = htole32(nsid);
}

void
identify_ctrl_list(const struct subsys *s, uint16_t first, uint32_t nsid,
                   struct nvme_ctrl_list *ret)
{
	const struct ctrl *c;
	unsigned n = 0;

	/* Ids are given out in a circle: the list of controllers is not sorted. */
	for (unsigned id = first; id <= s->cntlid_max && n < NVME_ID_CTRL_LIST_MAX; id++)
		list_for_each(&s->ctrls, c, node)
			if (c->cntlid == id && !c->dead && (nsid == 0 || ctrl_sees(c, nsid)))
				ret->identifier[n++] = htole16((uint16_t)id);
	ret->num = htole16((uint16_t)n);
}
