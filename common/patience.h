/* Patience with an address that is in use when a daemon starts: the one that was killed before it
 * may still hold its sockets, since the kernel ends the operations of its ring a moment after the
 * process.
 *
 *	while ((res = listen_there()) == -EADDRINUSE && patience_left(&p, "there"))
 *		;
 *
 * Later in a daemon's life nobody waits: it has other things to do, and its own sockets are not in
 * its way.
 */
#ifndef SLUICE_PATIENCE_H
#define SLUICE_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	PATIENCE_MS = 3000,         /* with one address */
	PATIENCE_START_MS = 10000,  /* what counts as a daemon's start: from its first attempt */
};

struct patience {
	uint64_t until; /* ms of CLOCK_MONOTONIC; 0: nothing was in use yet */
};

/* Call before the first attempt, so that the start is known. */
void patience_begin(struct patience *p);
/* Sleeps a moment. False: no longer, this is an error. Logs once for each address. */
bool patience_left(struct patience *p, const char *where);

#endif
