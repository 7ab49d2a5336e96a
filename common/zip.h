/* What our initiator and our target agree on to carry blocks compressed: a vendor extension, which
 * a target shows in Identify Controller and a host turns on for its controller.
 *
 * Set Features ZIP_FID, CDW11 bit 0, turns it on. Until then the two opcodes end with Invalid
 * Command Opcode.
 *
 * ZIP_WRITE is Write, but for its data, which is a frame (zframe.h) and shorter than its blocks.
 * ZIP_READ is Read with a level in CDW13 (bits 7:0, signed). Its buffer is as long as the blocks.
 * Dword 0 of its completion tells what came: a frame of so many bytes, or, when 0, the blocks as
 * they are. A frame is shorter than the buffer, so its last C2HData ends early and never has the
 * SUCCESS flag.
 */
#ifndef SLUICE_ZIP_H
#define SLUICE_ZIP_H

#include "common/wire.h"

enum {
	ZIP_WRITE = 0xc1, /* bits 1:0 of an opcode are the direction of its data */
	ZIP_READ = 0xc2,
	ZIP_FID = 0xd0,
	ZIP_FEATURE_ON = 1,
	ZIP_CAPS_AT = 3072, /* in Identify Controller: vendor specific */
	ZIP_VERSION = 1,
};

#define ZIP_MAGIC "SluiceCompress" /* padded with zeroes */

struct zip_caps {
	char magic[16];
	uint8_t version;
	int8_t level_max; /* of ZIP_READ */
	uint8_t rsvd[2];
	le32 raw_max; /* bytes of blocks in one command */
};
WIRE_SIZE(struct zip_caps, 24);

#endif
