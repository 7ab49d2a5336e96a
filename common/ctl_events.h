/* Events for those who watch the control socket ("sluicectl events"), from any reactor.
 *
 * Happy path: whoever has news begins an event, puts its members, says it in a sentence and hands
 * it over; it waits in a short list until reactor 0, which is told, passes it to the control
 * server.
 *
 *	ctl_event_begin(&w, "namespace");
 *	conf_put_str(&w, "nqn", s->nqn);
 *	conf_put_fmt(&w, "text", "namespace %u of %s has changed", nsid, s->nqn);
 *	ctl_events_take(&t->events, from->ring, ctl_event_end(&w));
 *
 * What can fail: more of them in a turn than CTL_EVENTS_MAX, or memory. They are counted, and the
 * event "missed" tells how many. All zeroes is a list that takes nothing, as before
 * ctl_events_start() and after ctl_events_stop().
 */
#ifndef SLUICE_CTL_EVENTS_H
#define SLUICE_CTL_EVENTS_H

#include "common/ctl_server.h"

#include <pthread.h>

enum { CTL_EVENTS_MAX = 256 };

struct ctl_events {
	_Atomic bool on;
	pthread_mutex_t lock;           /* of what follows */
	struct ring *ring;              /* reactor 0's */
	struct ctl_server *server;      /* its alone */
	struct op op;
	bool posted;                    /* op is on its way: it will find what is added meanwhile */
	unsigned nr, missed;
	char *lines[CTL_EVENTS_MAX];    /* ours */
};

/* On reactor 0, whose ring it is. */
void ctl_events_start(struct ctl_events *e, struct ring *ring, struct ctl_server *server);
void ctl_events_stop(struct ctl_events *e);

/* Any reactor; from is the calling one's ring, NULL: reactor 0's. The line is taken; NULL: there
 * was no memory. */
void ctl_events_take(struct ctl_events *e, struct ring *from, char *line);

#endif
