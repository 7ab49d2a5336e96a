/* See front_ublk_params.h.
 *
 * Attributes are honest: a volatile cache is told of when a member has one, and FUA with it, since
 * it means something then only; discard and write zeroes when all members can. The mark is a
 * signature of 16 bits and a hash of 48.
 */
#include "initiator/front_ublk_params.h"

#include "common/nvme.h"

#include <errno.h>

enum { SECTOR_SHIFT = 9, MARK_BITS = 48 };

#define BIT64(n) (UINT64_C(1) << (n))

#define MARK_SIGNATURE UINT64_C(0x534c) /* "SL" */
#define FNV_OFFSET     UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME      UINT64_C(0x100000001b3)

static uint8_t
log2_of(uint64_t n)
{
	return n ? (uint8_t)(63 - __builtin_clzll(n)) : 0;
}

/* A whole stripe, if that is a power of two. */
static uint8_t
opt_shift(const struct volume *v)
{
	uint64_t stripe = (uint64_t)v->block * v->nr_members;

	if (v->nr_members == 1 || (stripe & (stripe - 1)) || log2_of(stripe) > UBLK_OPT_SHIFT_MAX)
		return v->lba_shift;
	return log2_of(stripe);
}

void
ublk_params_of(const struct volume *v, uint16_t oncs, struct ublk_params *ret)
{
	uint32_t zeroes = UBLK_ZEROES_MAX >> SECTOR_SHIFT;

	*ret = (struct ublk_params){
		.len = sizeof(*ret),
		.types = UBLK_PARAM_BASIC,
		.attrs = v->vwc ? UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA : 0,
		.logical_shift = v->lba_shift,
		.physical_shift = v->lba_shift,
		.io_min_shift = v->lba_shift,
		.io_opt_shift = opt_shift(v),
		.max_sectors = MIN((uint32_t)UBLK_IO_MAX, v->max_transfer) >> SECTOR_SHIFT,
		.dev_sectors = v->bytes >> SECTOR_SHIFT,
	};
	if (!(oncs & (NVME_CTRL_ONCS_DSM | NVME_CTRL_ONCS_WRITE_ZEROES)))
		return;
	ret->types |= UBLK_PARAM_DISCARD;
	ret->discard_granularity = 1u << v->lba_shift;
	ret->max_discard_segments = 1;
	if (oncs & NVME_CTRL_ONCS_DSM)
		ret->max_discard_sectors = zeroes;
	if (oncs & NVME_CTRL_ONCS_WRITE_ZEROES)
		ret->max_write_zeroes_sectors = zeroes;
}

static uint64_t
hash(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *b = bytes;

	while (n-- > 0)
		h = (h ^ *b++) * FNV_PRIME;
	return h;
}

uint64_t
ublk_mark_of(const struct volume *v)
{
	uint64_t h = hash(FNV_OFFSET, v->name, strlen(v->name) + 1);

	for (unsigned i = 0; i < v->nr_members; i++) {
		const struct member *m = &v->members[i];

		h = hash(h, m->nqn, strlen(m->nqn) + 1);
		h = hash(h, &m->nsid, sizeof(m->nsid));
	}
	if (v->nr_members > 1)
		h = hash(h, &v->block, sizeof(v->block));
	return MARK_SIGNATURE << MARK_BITS | ((h ^ h >> MARK_BITS) & (BIT64(MARK_BITS) - 1));
}

bool
ublk_mark_is_ours(uint64_t mark)
{
	return mark >> MARK_BITS == MARK_SIGNATURE;
}

int
ublk_errno(uint16_t status)
{
	switch (status & NVME_STATUS_MASK) {
	case 0:
		return 0;
	case NVME_SC_CAP_EXCEEDED:
		return -ENOSPC;
	case NVME_SC_INVALID_OPCODE:
		return -EOPNOTSUPP;
	case NVME_SC_NS_WRITE_PROTECTED:
		return -EPERM;
	case NVME_SC_RESERVATION_CONFLICT:
		return -EBADE;
	case NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR):
	case NVME_ST_PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR):
		return -ENOLINK;
	case NVME_ST_MEDIA(NVME_SC_WRITE_FAULT):
	case NVME_ST_MEDIA(NVME_SC_READ_ERROR):
		return -ENODATA;
	default:
		return -EIO;
	}
}

static const struct {
	uint8_t known, op, has_range, has_data;
} ops[] = {
	[UBLK_OP_READ] = { 1, nvme_cmd_read, 1, 1 },
	[UBLK_OP_WRITE] = { 1, nvme_cmd_write, 1, 1 },
	[UBLK_OP_FLUSH] = { 1, nvme_cmd_flush, 0, 0 },
	[UBLK_OP_DISCARD] = { 1, nvme_cmd_dsm, 1, 0 },
	[UBLK_OP_WRITE_ZEROES] = { 1, nvme_cmd_write_zeroes, 1, 0 },
};

int
ublk_judge(const struct ublk_desc *d, const struct volume *v, uint32_t max, struct ublk_range *ret)
{
	uint64_t bytes = atomic_load_explicit(&v->bytes, memory_order_acquire);
	uint64_t off = d->start_sector << SECTOR_SHIFT;
	uint64_t len = (uint64_t)d->nr_sectors << SECTOR_SHIFT;
	unsigned op = UBLK_OP(d);

	if (op >= ARRAY_SIZE(ops) || !ops[op].known)
		return -EOPNOTSUPP;
	if (bytes == 0)
		return -EIO;
	*ret = (struct ublk_range){ .op = ops[op].op, .has_data = ops[op].has_data };
	if (!ops[op].has_range)
		return 0;
	if (len == 0 || d->start_sector >= bytes >> SECTOR_SHIFT || len > bytes - off ||
	    (off | len) & (BIT64(v->lba_shift) - 1))
		return -EIO;
	if (ret->has_data && len > max)
		return -EIO;
	ret->fua = d->op_flags & UBLK_OP_FUA;
	ret->off = off;
	ret->len = len;
	return 0;
}
