/* The signals of a daemon, as completions of its ring: SIGHUP reloads, SIGTERM and SIGINT stop,
 * SIGUSR2 upgrades where the daemon can.
 *
 * Happy path: signals_block() before any thread starts, so that all of them leave signals alone;
 * signals_start() on the ring that is to have them. A second signal to stop ends the process at
 * once. What can fail: making the descriptor (a sentence).
 */
#ifndef SLUICE_SIGNALS_H
#define SLUICE_SIGNALS_H

#include "common/ring.h"

struct signals {
	void (*reload)(void);
	void (*stop)(void);    /* once */
	void (*upgrade)(void); /* NULL: SIGUSR2 does what it always does */
	int fd;             /* private from here on */
	bool stopping;
	struct ring *ring;
	struct op op;
};

int signals_block(struct signals *s, struct err *err);
void signals_start(struct signals *s, struct ring *ring);
/* Cancels, if it was started; the ring turns until its op is done. */
void signals_end(struct signals *s);
void signals_close(struct signals *s);

/* One descriptor for each connection and queue, and a few more: takes what the process may have
 * without asking for a right. */
void raise_fd_limit(void);

#endif
