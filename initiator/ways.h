/* Ways to subsystems that discovery controllers tell of. Pure: no ring, no socket.
 *
 * Happy path: ways_read() makes of a discovery log what can be used of it: NVMe/TCP ports of
 * subsystems, each a struct path_config with the settings of the entry of "hosts" that named the
 * discovery controller; and referrals, each the same for another discovery controller. Whoever has
 * such a list links it into initiator.ways, where volume_paths.c looks.
 *
 * What can fail: memory. Records that cannot be used are counted, and why one could not is told.
 */
#ifndef SLUICE_WAYS_H
#define SLUICE_WAYS_H

#include "initiator/path.h"

enum { REFERRALS_MAX = 16 }; /* of a log; more are left out */

struct ways {
	struct list node;       /* initiator.ways */
	struct path_config *to; /* ours */
	unsigned nr;
	bool settled; /* the controller has answered, or failed, once */
};

struct ways_found {
	struct path_config *to; /* heap memory, the caller's */
	unsigned nr;
	struct path_config referrals[REFERRALS_MAX];
	unsigned nr_referrals;
	unsigned unusable; /* records */
	char why[128];     /* the first of them could not be used */
};

int ways_read(const struct path_config *from, const struct nvmf_discovery_log *log,
              struct ways_found *ret);

#endif
