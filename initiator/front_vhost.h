/* The vhost-user-blk front: VMs that reach a disk through a socket of its own, one for each disk.
 *
 * A device is a listening socket and at most one connection, of the VMM; both are reactor 0's, each
 * virtqueue lives on the reactor that has the fewest. Happy path: vhost_dev_add() when a "vms"
 * entry comes, a VMM connects, front_vhost_msg.c talks with it, its queues run; vhost_dev_remove()
 * when the entry goes: requests that were taken are completed, then the connection is closed.
 *
 * What can fail: the socket (a sentence); a VMM that breaks the protocol: its connection ends, with
 * a line in the log, and nobody else notices. Requests that were taken and not completed then are
 * done again when it connects again: they stand in the area that the VMM keeps (see vring.h).
 */
#ifndef SLUICE_FRONT_VHOST_H
#define SLUICE_FRONT_VHOST_H

#include "common/conf_write.h"
#include "common/err.h"
#include "initiator/vm.h"

struct vhost_dev;

/* All on reactor 0, without the lock. */

/* For disk i of vm, whose volume it counts. */
int vhost_dev_add(struct initiator *in, const struct vm *vm, unsigned i,
                  const struct vhost_config *cfg, struct vhost_dev **ret, struct err *err);
/* Its socket is gone at once; the rest follows when its requests have ended. */
void vhost_dev_remove(struct vhost_dev *d);
/* Nothing has to be changed: d is what cfg says. Either may be NULL: no socket. */
bool vhost_dev_same(const struct vhost_dev *d, const struct vhost_config *cfg);

/* The process ends: is anything of any device left? */
bool front_vhost_busy(const struct initiator *in);
/* ...and will not wait any longer: what is still in flight is left to the one that comes next. */
void front_vhost_abandon(struct initiator *in);
void front_vhost_free(struct initiator *in);

/* With the lock: a row for each device, as "vms" has them; an array "vhost" with their counters;
 * how many there are, and with how many a VMM is connected. */
void front_vhost_put_rows(struct conf_writer *w, const struct initiator *in);
void front_vhost_put_stats(struct conf_writer *w, const struct initiator *in);
unsigned front_vhost_count(const struct initiator *in, unsigned *ret_connected);

#endif
