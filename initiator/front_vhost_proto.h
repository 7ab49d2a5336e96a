/* The vhost-user protocol as bytes: messages, features, the virtio-blk configuration. Integers of
 * messages are in the machine's own order, those of the configuration are little-endian. */
#ifndef SLUICE_FRONT_VHOST_PROTO_H
#define SLUICE_FRONT_VHOST_PROTO_H

#include "common/wire.h"

enum vhost_id {
	VHOST_GET_FEATURES = 1,
	VHOST_SET_FEATURES = 2,
	VHOST_SET_OWNER = 3,
	VHOST_RESET_OWNER = 4,
	VHOST_SET_MEM_TABLE = 5,
	VHOST_SET_VRING_NUM = 8,
	VHOST_SET_VRING_ADDR = 9,
	VHOST_SET_VRING_BASE = 10,
	VHOST_GET_VRING_BASE = 11,
	VHOST_SET_VRING_KICK = 12,
	VHOST_SET_VRING_CALL = 13,
	VHOST_SET_VRING_ERR = 14,
	VHOST_GET_PROTOCOL_FEATURES = 15,
	VHOST_SET_PROTOCOL_FEATURES = 16,
	VHOST_GET_QUEUE_NUM = 17,
	VHOST_SET_VRING_ENABLE = 18,
	VHOST_SET_BACKEND_REQ_FD = 21,
	VHOST_GET_CONFIG = 24,
	VHOST_SET_CONFIG = 25,
	VHOST_GET_INFLIGHT_FD = 31,
	VHOST_SET_INFLIGHT_FD = 32,
	VHOST_RESET_DEVICE = 34,
	VHOST_GET_MAX_MEM_SLOTS = 36,
	VHOST_ADD_MEM_REG = 37,
	VHOST_REM_MEM_REG = 38,
	VHOST_SET_STATUS = 39,
	VHOST_GET_STATUS = 40,

	VHOST_BACKEND_CONFIG_CHANGE = 2, /* ours, on the channel back */
};

enum { /* of a header */
       VHOST_VERSION = 1,
       VHOST_VERSION_MASK = 3,
       VHOST_REPLY = 1 << 2,
       VHOST_NEED_REPLY = 1 << 3,
};

enum { /* protocol features, by bit */
       VHOST_P_MQ = 0,
       VHOST_P_REPLY_ACK = 3,
       VHOST_P_BACKEND_REQ = 5,
       VHOST_P_CONFIG = 9,
       VHOST_P_INFLIGHT_SHMFD = 12,
       VHOST_P_RESET_DEVICE = 13,
       VHOST_P_CONFIGURE_MEM_SLOTS = 15,
       VHOST_P_STATUS = 16,
};

enum { /* device features, by bit */
       VBLK_F_SIZE_MAX = 1,
       VBLK_F_SEG_MAX = 2,
       VBLK_F_RO = 5,
       VBLK_F_BLK_SIZE = 6,
       VBLK_F_FLUSH = 9,
       VBLK_F_TOPOLOGY = 10,
       VBLK_F_CONFIG_WCE = 11,
       VBLK_F_MQ = 12,
       VBLK_F_DISCARD = 13,
       VBLK_F_WRITE_ZEROES = 14,
       VRING_F_INDIRECT_DESC = 28,
       VRING_F_EVENT_IDX = 29,
       VHOST_F_PROTOCOL_FEATURES = 30,
       VIRTIO_F_VERSION_1 = 32,
       VIRTIO_F_RING_PACKED = 34,
};

#define BIT64(n) (UINT64_C(1) << (n))

enum {
	VHOST_PAYLOAD_MAX = 4096,
	VHOST_FDS_MAX = 8,   /* of one message: SET_MEM_TABLE */
	VHOST_TABLE_MAX = 8, /* regions of SET_MEM_TABLE */
	VHOST_CONFIG_SIZE = 256,
	VHOST_NO_FD = 1 << 8, /* of a KICK, CALL or ERR: none comes with it */
	VHOST_STATUS_RESET = 0,
};

struct vhost_hdr {
	uint32_t id, flags, size;
};

struct vhost_state {
	uint32_t index, num;
};

struct vhost_addr {
	uint32_t index, flags;
	uint64_t desc, used, avail, log;
};

struct vhost_mem_region {
	uint64_t gpa, size, uva, off;
};

struct vhost_mem {
	uint32_t nr, pad;
	struct vhost_mem_region regions[VHOST_TABLE_MAX];
};

struct vhost_one_region {
	uint64_t pad;
	struct vhost_mem_region region;
};

struct vhost_config_msg {
	uint32_t off, size, flags;
	uint8_t bytes[VHOST_CONFIG_SIZE];
};

struct vhost_inflight { /* 20 bytes; often sent padded to 24 */
	uint64_t size, off;
	uint16_t queues, queue_size;
};

struct vhost_msg { /* header and payload follow each other on the wire, not here */
	struct vhost_hdr hdr;
	union {
		uint64_t u64;
		struct vhost_state state;
		struct vhost_addr addr;
		struct vhost_mem mem;
		struct vhost_one_region one;
		struct vhost_config_msg config;
		struct vhost_inflight inflight;
		uint8_t bytes[VHOST_PAYLOAD_MAX];
	};
};

WIRE_SIZE(struct vhost_hdr, 12);
WIRE_SIZE(struct vhost_addr, 40);
WIRE_SIZE(struct vhost_mem_region, 32);
WIRE_AT(struct vhost_mem, regions, 8);
WIRE_SIZE(struct vhost_one_region, 40);
WIRE_AT(struct vhost_config_msg, bytes, 12);
WIRE_AT(struct vhost_inflight, queue_size, 18);

struct vblk_config {   /* the device's configuration; VIRTIO 1.2, 5.2.4 */
	le64 capacity; /* sectors of 512 bytes */
	le32 size_max, seg_max;
	uint8_t geometry[4];
	le32 blk_size;
	uint8_t physical_block_exp, alignment_offset;
	le16 min_io_size;
	le32 opt_io_size;
	uint8_t wce, unused;
	le16 num_queues;
	le32 max_discard_sectors, max_discard_seg, discard_sector_alignment;
	le32 max_write_zeroes_sectors, max_write_zeroes_seg;
	uint8_t write_zeroes_may_unmap, pad[3];
	uint8_t secure_erase[12];
};

WIRE_SIZE(struct vblk_config, 72);
WIRE_AT(struct vblk_config, wce, 32);
WIRE_AT(struct vblk_config, num_queues, 34);
WIRE_AT(struct vblk_config, max_write_zeroes_sectors, 48);

#endif
