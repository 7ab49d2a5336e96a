/* The control device of the ublk driver, on reactor 0. Private to front_ublk*.c.
 *
 * Control commands need wide SQEs, so they have a ring of their own, which reactor 0's polls while
 * any is out. The kernel runs each in a worker thread: START_DEV, which ends only when every queue
 * fetches and the partitions were read, holds up nobody, least of all the queues that it waits for.
 */
#ifndef SLUICE_FRONT_UBLK_CTRL_H
#define SLUICE_FRONT_UBLK_CTRL_H

#include "initiator/front_ublk_abi.h"
#include "initiator/reactor.h"

struct ublk_ctrl {
	struct reactor *r; /* 0 */
	struct ring *ring; /* wide */
	int fd;            /* UBLK_CONTROL */
	uint64_t features; /* UBLK_F_* that this driver knows; 0 before Linux 6.5 */
	struct op poll;
	bool polling;
};

/* A sentence says what is missing: the driver, the right to use it, or a newer kernel. */
int ublk_ctrl_open(struct ublk_ctrl *c, struct reactor *r, struct err *err);
/* No command is out. */
void ublk_ctrl_close(struct ublk_ctrl *c);

/* cmd is copied, its buffer stays valid until op is done. */
void ublk_ctrl_send(struct ublk_ctrl *c, struct op *op, uint32_t code,
                    const struct ublk_ctrl_cmd *cmd);
/* Makes a command that may wait for ever end. */
void ublk_ctrl_cancel(struct ublk_ctrl *c, struct op *op);
/* Waits for it: for what answers at once, while no other command is out. */
int ublk_ctrl_ask(struct ublk_ctrl *c, uint32_t code, uint32_t dev_id, void *buf, uint16_t len);

#endif
