/* Reads the discovery log of a controller, whole and consistent, over an association that is there.
 *
 * Happy path: disc_log_start() reads the header (GENCTR, NUMREC), in pieces of a page all records,
 * and the header again: when GENCTR is the same the log is whole, done() gets it.
 *
 * What can fail: a status; no answer in time; a log that changes again and again (tried ten times,
 * as nvme-cli), or that is absurdly long. done() gets a sentence then, and the association has to
 * be ended: an answer may still be on its way.
 */
#ifndef SLUICE_DISC_LOG_H
#define SLUICE_DISC_LOG_H

#include "initiator/assoc.h"

struct nvmf_discovery_log;

enum { DISC_RECORDS_MAX = 4096 };

struct disc_log {
	struct ring *ring;   /* reactor 0's */
	struct assoc *assoc; /* the owner's */
	/* log is valid until the next start or _fini(); NULL: why is a sentence. From the loop. */
	void (*done)(struct disc_log *d, const struct nvmf_discovery_log *log, const char *why);

	struct ring_timer timer; /* limit of the answer */
	struct part part;
	uint8_t *piece;                 /* ours: where the kernel puts them */
	struct nvmf_discovery_log *log; /* ours */
	size_t size, at;                /* bytes of the log, and of it read so far */
	unsigned tries;
	bool checking; /* the header is being read again */
};

int disc_log_init(struct disc_log *d, struct ring *ring, struct assoc *assoc,
                  void (*done)(struct disc_log *d, const struct nvmf_discovery_log *log,
                               const char *why));
void disc_log_fini(struct disc_log *d); /* after the association's down */

/* Reactor 0, while none is being read. */
void disc_log_start(struct disc_log *d);
/* The association is down: done() will not come any more. */
void disc_log_stop(struct disc_log *d);

#endif
