/* The frame of a compressed transfer: some logical blocks, each alone, smaller together than they
 * are. Between our initiator and our target it takes the place of the blocks themselves.
 *
 * A frame is struct zframe_hdr, one le16 for each block (bytes stored; 0: the block as it is), and
 * what is stored, in order. A compressed block is one zstd frame that tells its content size, which
 * must be the block's.
 *
 * Happy path: zframe_pack() takes blocks out of an SG list, zframe_unpack() puts them into one.
 * What can fail: blocks do not shrink by a sixteenth (0: send them as they are); a frame is not
 * exactly what it should be (a reason: blocks in front of the bad one are written then, nothing
 * outside the SG list is). Either side may be a stranger, and the memory may change meanwhile: what
 * zstd works on is always a block of our own. Memory is taken when contexts are made; no I/O
 * allocates.
 *
 * zstd's door.
 */
#ifndef SLUICE_ZFRAME_H
#define SLUICE_ZFRAME_H

#include "common/wire.h"

#include <stdbool.h>
#include <sys/uio.h>

enum {
	ZFRAME_RAW_MAX = 128 << 10, /* bytes of blocks in one frame: what may keep a reactor busy */
	ZFRAME_SHIFT_MIN = 9,
	ZFRAME_SHIFT_MAX = 16,
	ZFRAME_LEVEL_MIN = -100, /* negative: zstd --fast */
	ZFRAME_LEVEL_MAX = 9,    /* more costs much and gains nothing on blocks */
};

struct zframe_hdr {
	uint8_t magic[4];
	le16 blocks;
	uint8_t shift; /* log2 of the block size */
	uint8_t rsvd;  /* 0 */
};
WIRE_SIZE(struct zframe_hdr, 8);

struct zframe_data {            /* blocks << shift bytes, at most ZFRAME_RAW_MAX */
	const struct iovec *sg; /* at least so many */
	unsigned shift;
	uint32_t blocks;
};

struct zframe; /* contexts of one thread */

struct zframe *zframe_new(void); /* NULL: no memory */
void zframe_free(struct zframe *z);

/* The longest frame that is worth it for so many bytes. */
uint32_t zframe_limit(uint32_t raw);

/* Writes a frame to dst, which has room for zframe_limit(). Returns its length, or 0. */
uint32_t zframe_pack(struct zframe *z, int level, const struct zframe_data *d, uint8_t *dst);

/* NULL, or what is wrong with the frame. */
const char *zframe_unpack(struct zframe *z, const uint8_t *frame, uint32_t len,
                          const struct zframe_data *d);

#endif
