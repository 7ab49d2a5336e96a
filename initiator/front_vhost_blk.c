/* What a vhost-user-blk device offers: features and configuration, made of its volume.
 *
 * Happy path: a VMM asks for features and for the configuration when it connects, and negotiates;
 * every queue that starts gets the disk as it was negotiated. Nothing can fail. What is told once
 * does not change while the volume lives, but for the capacity.
 */
#include "initiator/front_vhost_inner.h"

#include "common/nvme.h"
#include "initiator/volume.h"

#include <stdio.h>

enum {
	/* Segments of a request: the usual queue of 128 descriptors, less header and status, since
	 * a guest may have to do without indirect ones. More work, too. */
	SEG_MAX = 126,
	STRIPE_PAGE = 4096,
};

static bool
writable(const struct vhost_dev *d)
{
	return !d->cfg.read_only;
}

static bool
can_discard(const struct vhost_dev *d)
{
	return writable(d) && (d->vol->oncs & NVME_CTRL_ONCS_DSM);
}

static bool
can_write_zeroes(const struct vhost_dev *d)
{
	return writable(d) && (d->vol->oncs & NVME_CTRL_ONCS_WRITE_ZEROES);
}

uint64_t
vhost_blk_features(const struct vhost_dev *d)
{
	uint64_t f = BIT64(VBLK_F_SIZE_MAX) | BIT64(VBLK_F_SEG_MAX) | BIT64(VBLK_F_BLK_SIZE) |
	             BIT64(VBLK_F_FLUSH) | BIT64(VBLK_F_TOPOLOGY) | BIT64(VBLK_F_CONFIG_WCE) |
	             BIT64(VRING_F_INDIRECT_DESC) | BIT64(VRING_F_EVENT_IDX) |
	             BIT64(VHOST_F_PROTOCOL_FEATURES) | BIT64(VIRTIO_F_VERSION_1) |
	             BIT64(VIRTIO_F_RING_PACKED);

	if (!writable(d))
		f |= BIT64(VBLK_F_RO);
	if (d->cfg.queues > 1)
		f |= BIT64(VBLK_F_MQ);
	if (can_discard(d))
		f |= BIT64(VBLK_F_DISCARD);
	if (can_write_zeroes(d))
		f |= BIT64(VBLK_F_WRITE_ZEROES);
	return f;
}

/* A stripe block is what one target is asked for at a time, a stripe is what asks all of them. */
static void
put_topology(const struct volume *vol, struct vblk_config *cfg)
{
	uint32_t lba = 1u << vol->lba_shift, block = vol->block >> vol->lba_shift;

	if (lba < STRIPE_PAGE && vol->nr_members > 1) /* stripe blocks are multiples of that */
		cfg->physical_block_exp = (uint8_t)(12 - vol->lba_shift);
	if (vol->nr_members == 1)
		return;
	cfg->min_io_size = le16_put((uint16_t)block);
	cfg->opt_io_size = le32_put(block * vol->nr_members);
}

void
vhost_blk_config(const struct vhost_conn *c, uint8_t ret[VHOST_CONFIG_SIZE])
{
	const struct vhost_dev *d = c->d;
	uint32_t lba = 1u << d->vol->lba_shift;
	struct vblk_config cfg = {
		.capacity = le64_put(d->bytes / VBLK_SECTOR),
		.size_max = le32_put(VBLK_STEP_MAX),
		.seg_max = le32_put(SEG_MAX),
		.blk_size = le32_put(lba),
		.wce = c->wce,
		.num_queues = le16_put((uint16_t)d->cfg.queues),
	};

	put_topology(d->vol, &cfg);
	if (can_discard(d)) {
		cfg.max_discard_sectors = le32_put(VBLK_RANGE_SECTORS_MAX);
		cfg.max_discard_seg = le32_put(VBLK_RANGES_MAX);
		cfg.discard_sector_alignment = le32_put(lba / VBLK_SECTOR);
	}
	if (can_write_zeroes(d)) {
		cfg.max_write_zeroes_sectors = le32_put(VBLK_RANGE_SECTORS_MAX);
		cfg.max_write_zeroes_seg = le32_put(VBLK_RANGES_MAX);
		cfg.write_zeroes_may_unmap = 1;
	}
	memset(ret, 0, VHOST_CONFIG_SIZE);
	memcpy(ret, &cfg, sizeof(cfg));
}

void
vhost_blk_disk(const struct vhost_conn *c, struct vblk_dev *ret)
{
	const struct vhost_dev *d = c->d;
	size_t n = strnlen(d->vol->name, VBLK_ID_LEN);

	*ret = (struct vblk_dev){
		.vol = d->vol,
		.ro = !writable(d),
		.durable = d->vol->vwc && (!(c->features & BIT64(VBLK_F_FLUSH)) || !c->wce),
		.discard = can_discard(d),
		.write_zeroes = can_write_zeroes(d),
	};
	memcpy(ret->id, d->vol->name, n);
}
