/* The ublk driver's interface, as Linux has it: structures, command codes, flags. Native byte
 * order. Our own copy, since the header of Linux 6.1 lacks half of it.
 *
 * Control commands go to /dev/ublk-control, I/O commands to /dev/ublkcN; both are driver commands
 * of io_uring with ioctl-encoded codes, which Linux 6.4 and newer take.
 */
#ifndef SLUICE_FRONT_UBLK_ABI_H
#define SLUICE_FRONT_UBLK_ABI_H

#include "common/wire.h"

#define UBLK_CONTROL "/dev/ublk-control"

/* _IOR (2) or _IOWR (3) of type 'u' and that many bytes. */
#define UBLK_CODE(dir, nr, bytes)                                                                  \
	((uint32_t)(dir) << 30 | (uint32_t)(bytes) << 16 | (uint32_t)'u' << 8 | (nr))
#define UBLK_GET_DEV_INFO        UBLK_CODE(2, 0x02, 32)
#define UBLK_ADD_DEV             UBLK_CODE(3, 0x04, 32)
#define UBLK_DEL_DEV             UBLK_CODE(3, 0x05, 32)
#define UBLK_START_DEV           UBLK_CODE(3, 0x06, 32)
#define UBLK_STOP_DEV            UBLK_CODE(3, 0x07, 32)
#define UBLK_SET_PARAMS          UBLK_CODE(3, 0x08, 32)
#define UBLK_GET_PARAMS          UBLK_CODE(2, 0x09, 32)
#define UBLK_START_USER_RECOVERY UBLK_CODE(3, 0x10, 32)
#define UBLK_END_USER_RECOVERY   UBLK_CODE(3, 0x11, 32)
#define UBLK_GET_FEATURES        UBLK_CODE(2, 0x13, 32) /* 6.5 */
#define UBLK_UPDATE_SIZE         UBLK_CODE(3, 0x15, 32) /* 6.16 */
#define UBLK_FETCH_REQ           UBLK_CODE(3, 0x20, 16)
#define UBLK_COMMIT_AND_FETCH    UBLK_CODE(3, 0x21, 16)

enum { /* device flags and features */
       UBLK_F_USER_RECOVERY = 1 << 3,
       UBLK_F_USER_RECOVERY_REISSUE = 1 << 4,
       UBLK_F_CMD_IOCTL_ENCODE = 1 << 6,
       UBLK_F_UPDATE_SIZE = 1 << 10,
};

enum { UBLK_S_DEAD, UBLK_S_LIVE, UBLK_S_QUIESCED, UBLK_S_FAIL_IO };

struct ublk_ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id; /* FFFFh: none */
	uint16_t len;      /* of the buffer at addr */
	uint64_t addr;
	uint64_t data;
	uint16_t dev_path_len, pad;
	uint32_t reserved;
};
WIRE_SIZE(struct ublk_ctrl_cmd, 32);

struct ublk_dev_info {
	uint16_t nr_hw_queues, queue_depth, state, pad0;
	uint32_t max_io_buf_bytes;
	uint32_t dev_id;
	int32_t pid; /* of the server */
	uint32_t pad1;
	uint64_t flags;
	uint64_t server; /* ours to fill; the driver keeps it */
	uint32_t uid, gid;
	uint64_t reserved[2];
};
WIRE_SIZE(struct ublk_dev_info, 64);
WIRE_AT(struct ublk_dev_info, server, 32);

enum { UBLK_PARAM_BASIC = 1 << 0, UBLK_PARAM_DISCARD = 1 << 1 };
enum { UBLK_ATTR_READ_ONLY = 1 << 0, UBLK_ATTR_VOLATILE_CACHE = 1 << 2, UBLK_ATTR_FUA = 1 << 3 };

struct ublk_params { /* as far as we use it; sectors have 512 bytes */
	uint32_t len, types;
	uint32_t attrs;
	uint8_t logical_shift, physical_shift, io_opt_shift, io_min_shift;
	uint32_t max_sectors, chunk_sectors;
	uint64_t dev_sectors, virt_boundary_mask;
	uint32_t discard_alignment, discard_granularity;
	uint32_t max_discard_sectors, max_write_zeroes_sectors;
	uint16_t max_discard_segments, reserved;
};
WIRE_SIZE(struct ublk_params, 64);
WIRE_AT(struct ublk_params, dev_sectors, 24);
WIRE_AT(struct ublk_params, max_discard_segments, 56);

struct ublk_io_cmd {
	uint16_t q_id, tag;
	int32_t result; /* bytes, or -errno */
	uint64_t addr;  /* the buffer of the next request with that tag */
};
WIRE_SIZE(struct ublk_io_cmd, 16);

struct ublk_desc { /* mapped from /dev/ublkcN, one for each tag; the driver writes it */
	uint32_t op_flags;
	uint32_t nr_sectors;
	uint64_t start_sector;
	uint64_t addr;
};
WIRE_SIZE(struct ublk_desc, 24);

enum { UBLK_DEPTH_MAX = 4096 }; /* the driver's; gives the distance of two queues' descriptors */
enum { UBLK_OP_READ, UBLK_OP_WRITE, UBLK_OP_FLUSH, UBLK_OP_DISCARD, UBLK_OP_WRITE_ZEROES = 5 };
#define UBLK_OP(desc) ((desc)->op_flags & 0xff)
#define UBLK_OP_FUA   (1u << 13)

#endif
