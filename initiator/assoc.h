/* One association: the admin queue of a controller, from connecting to the last keep-alive. Lives
 * on reactor 0.
 *
 * Happy path: assoc_start() connects and walks the steps of assoc_steps.c (properties, enable,
 * Identify, number of queues, namespaces, events); ops->ready says that all is learnt; keep-alives
 * go out every half KATO, an AER is always outstanding, and a "namespaces changed" event makes it
 * read them again (ops->changed). Of a discovery controller the event is "discovery log changed",
 * and the log is the owner's to read.
 *
 * What can fail: any stage by an answer, or by none in its time. The admin queue is then reset and
 * ops->down comes once, with a sentence, when nothing is in flight any more; then assoc_start() may
 * begin anew.
 */
#ifndef SLUICE_ASSOC_H
#define SLUICE_ASSOC_H

#include "initiator/hconn.h"
#include "initiator/path.h"

struct assoc;

struct assoc_ops {
	void (*ready)(void *owner);
	void (*changed)(void *owner);
	/* dnr: it would fail in the same way again. */
	void (*down)(void *owner, const char *why, bool dnr);
};

struct assoc_config {
	struct reactor *r;      /* reactor 0 */
	const struct path_config *cfg; /* borrowed for the association's life, as name is */
	const char *name;
	bool discovery;         /* a discovery controller: no namespaces, no queues */
	const struct assoc_ops *ops;
	void *owner;
};

struct assoc *assoc_new(const struct assoc_config *cfg); /* NULL: no memory */
void assoc_free(struct assoc *a);       /* never started, or after down */

void assoc_start(struct assoc *a);      /* down may follow, from the loop */
/* Ends it at once: the socket is reset. down follows, from the loop. */
void assoc_close(struct assoc *a, const char *why);
/* Tells the controller first (CC.SHN) if it is there to listen. down follows. */
void assoc_shutdown(struct assoc *a, const char *why);

/* After ready: asks again for all that may have changed, namespaces and what cfg wants of the
 * controller. changed follows. */
void assoc_rescan(struct assoc *a);

/* After ready. A part of the owner's: sqe, len, to_host, sg and done are filled; ends by done,
 * with PART_LOST when the association went down. False: it is on its way down, done will not
 * come. */
bool assoc_send(struct assoc *a, struct part *part);

/* What was learnt, after ready. The info is counted: path_info_put(). NULL: no memory. */
const struct path_info *assoc_info(const struct assoc *a);
unsigned assoc_nr_queues(const struct assoc *a); /* granted I/O queues */
uint16_t assoc_sqsize(const struct assoc *a);    /* of I/O queues, 0-based */

void assoc_each(struct assoc *a, void (*each)(void *arg, const struct part *part, uint64_t due),
                void *arg);

/* Fills addr and local from traddr, trsvcid and host_traddr, which must be numbers. */
int path_config_addrs(const struct path_config *cfg, struct hconn_config *ret);

#endif
