/* Connect judged: from bytes of a stranger to a queue of a controller.
 *
 * Happy path: connect_check() looks at the capsule alone (pure), connect_queue() at the model:
 * the subsystem exists and is served on this port, the host may come; an admin Connect makes a
 * controller, an I/O Connect joins one. What can fail fills a verdict: the Connect status and the
 * offending field.
 */
#ifndef SLUICE_CONNECT_H
#define SLUICE_CONNECT_H

#include "target/ctrl.h"

enum { ADMIN_DEPTH_MAX = 128 }; /* entries that an admin queue may always have */

struct connect_verdict {
	uint16_t status;
	uint16_t offset;        /* IPO */
	bool in_data;           /* IATTR: offset counts in the Connect data, else in the SQE */
	const char *why;        /* for the log */
};

/* False: *ret_v says why not. */
bool connect_check(const struct nvme_connect_sqe *sqe, const uint8_t *data, uint32_t len,
                   struct connect_verdict *ret_v);

/* An admin Connect has to wait: its host has hung up on another controller, and commands that it
 * left there may still be executed. Whoever comes after a host that was killed may send them again,
 * and then others for the same blocks, which those left behind must not overtake. Lock held. */
bool connect_waits(const struct conn *conn, const struct nvme_connect_data *data);

/* The controller, with a reference for conn and conn entered as its queue; or NULL and *ret_v.
 * Lock held. */
struct ctrl *connect_queue(struct conn *conn, const struct nvme_connect_sqe *sqe,
                           const struct nvme_connect_data *data, struct connect_verdict *ret_v);

#endif
