/* Discovery controllers that "hosts" names, as long as the daemon runs: what they tell becomes ways
 * to the members of volumes.
 *
 * Happy path: discoveries_apply() begins an association with each discovery entry of in->hosts and
 * keeps it alive (an explicit persistent connection: Connect with a keep-alive time-out). Its log
 * is read, and read again when the controller says that it has changed, at most once a second; the
 * records become a list in in->ways, and volumes follow (volumes_follow()). Referrals are followed
 * one level.
 *
 * What can fail: connecting, keep-alive, reading. What the controller told last stays in force, and
 * the next attempt comes after reconnect_delay, for ever.
 */
#ifndef SLUICE_DISCOVERY_H
#define SLUICE_DISCOVERY_H

#include "common/conf_write.h"
#include "initiator/initiator.h"

/* Reactor 0, without the lock. Makes them what in->hosts says; stopping: none. */
void discoveries_apply(struct initiator *in);

/* An array of what there is, for "sluicectl discoveries". Under the lock. */
void discoveries_put(struct conf_writer *w, const struct initiator *in);

#endif
