/* What a ublk device on a volume looks like, and what its requests mean: pure, no driver needed. */
#ifndef SLUICE_FRONT_UBLK_PARAMS_H
#define SLUICE_FRONT_UBLK_PARAMS_H

#include "initiator/front_ublk_abi.h"
#include "initiator/volume.h"

enum {
	UBLK_IO_MAX = 512 << 10,    /* bytes of one request, and of each tag's buffer */
	UBLK_ZEROES_MAX = 32 << 20, /* of a discard or write zeroes: at most 256 parts of 128K */
	UBLK_OPT_SHIFT_MAX = 24,
};

/* The parameters of a device on v, which is ready. oncs: what all of its members can do. */
void ublk_params_of(const struct volume *v, uint16_t oncs, struct ublk_params *ret);

/* Kept by the driver for a device of ours, so that whoever starts after us finds it again: says
 * that it is Sluice's, and on which volume: one with the same name, members and stripes. */
uint64_t ublk_mark_of(const struct volume *v);
bool ublk_mark_is_ours(uint64_t mark);

/* The negative errno that becomes the block layer's status for an NVMe status. */
int ublk_errno(uint16_t status);

struct ublk_range { /* of a request, judged */
	uint8_t op; /* nvme_cmd_* */
	bool has_data, fua;
	uint64_t off, len; /* bytes */
};

/* What a descriptor asks of v. -EOPNOTSUPP: an operation that we did not offer; -EIO: beyond the
 * end, or larger than the buffer of max bytes, or v is not ready. */
int ublk_judge(const struct ublk_desc *d, const struct volume *v, uint32_t max,
               struct ublk_range *ret);

#endif
