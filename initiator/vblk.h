/* virtio-blk: from a chain of descriptors to an I/O, from its end to the status byte. Pure, as
 * vring.h is.
 *
 * Happy path: vblk_begin() reads the header by bytes, wherever the guest put its descriptors, maps
 * the data into io->sg, and fills op, off, len and fua; the front starts the io. When it has ended
 * vblk_next() either prepares the next step of the same request in the same io (a large transfer, a
 * further range to discard), or writes the status byte and the request is to be pushed.
 *
 * What can fail: a request. It ends with IOERR or UNSUPP in its status byte, without an io; so does
 * one for a part of a block, since a driver is told of the size of blocks (req->odd). One whose
 * status byte has no place in the guest's memory cannot be answered: the ring is broken.
 */
#ifndef SLUICE_VBLK_H
#define SLUICE_VBLK_H

#include "initiator/io.h"
#include "initiator/vring.h"

enum {
	VBLK_ID_LEN = 20,
	VBLK_SECTOR = 512,
	/* Bytes of one io of a request; the rest follows when it has ended. */
	VBLK_STEP_MAX = 4 << 20,
	/* For the device's configuration: ranges of a DISCARD or WRITE_ZEROES and sectors of one.
	 * Requests have as many segments of data as a guest likes, up to IO_SG_MAX. */
	VBLK_RANGES_MAX = 16,
	VBLK_RANGE_SECTORS_MAX = 1 << 17, /* 64 MiB */
};

enum vblk_status { VBLK_S_OK, VBLK_S_IOERR, VBLK_S_UNSUPP }; /* on the wire */

struct vblk_dev { /* the disk as this guest sees it; the queue's reactor reads it */
	struct volume *vol;
	bool ro;
	bool durable; /* no FLUSH negotiated, or write-through: every write is made so */
	bool discard, write_zeroes; /* offered to the guest */
	char id[VBLK_ID_LEN];       /* for GET_ID; padded with NULs */
};

struct vblk_range {
	uint64_t off, len; /* bytes of the volume */
	bool unmap;
};

struct vblk_req {         /* the front's, one for each token of the ring */
	uint8_t *status;  /* in guest memory: io->mem holds it */
	uint32_t written; /* for vring_push() */
	uint32_t data_in; /* what will be written when all goes well, without the status */
	uint64_t rest;    /* bytes of IN or OUT behind the step that runs */
	bool odd;         /* it was refused since it is not whole blocks of the volume */
	unsigned nr_ranges, at_range;
	struct vblk_range ranges[VBLK_RANGES_MAX];
};

enum vblk_begun {
	VBLK_START,    /* io_start(): vol, op, fua, deac, off, len, sg, nsg are filled in */
	VBLK_ANSWERED, /* the status is there: vring_push(), and io_put() */
	VBLK_BROKEN,   /* *ret_why; io_put() */
};

enum vblk_begun vblk_begin(const struct vblk_dev *dev, const struct mem_table *mem,
                           const struct vring_chain *c, struct vblk_req *req, struct io *io,
                           const char **ret_why);
/* In the front's complete(), io->status is set. True: io is filled in for the next step; set
 * io->again. False: the status byte was written; vring_push(token, req->written). */
bool vblk_next(struct vblk_req *req, struct io *io);

#endif
