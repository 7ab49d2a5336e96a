/* The inside of an association, shared by assoc.c (connection, timers, keep-alive, events) and
 * assoc_steps.c (what is asked and learnt).
 */
#ifndef SLUICE_ASSOC_INNER_H
#define SLUICE_ASSOC_INNER_H

#include "initiator/assoc.h"
#include "initiator/initiator.h"

enum {
	ASSOC_PAGE = 4096,
	ASSOC_NS_MAX = 4096,    /* namespaces of one controller; more are left out, told */
};

struct assoc {
	struct assoc_config c;
	struct hconn *hc;       /* NULL: not started, or down */
	bool closing;
	bool dnr;
	bool live;              /* ready was called */
	bool shutting;          /* CC.SHN was written */
	char why[256];          /* why it is being closed; "": the connection says */

	const struct step *step; /* NULL: nothing is being asked */
	bool pausing;           /* until the same step is asked again */
	bool rescan;            /* namespaces changed while something was being asked */
	struct ring_timer timer; /* limit for the answer, or the pause */
	struct part cmd;        /* of the step */
	uint8_t *page;          /* ASSOC_PAGE bytes, ours: data of cmd */

	struct part ka;         /* Keep Alive */
	bool ka_out;
	uint64_t ka_sent;
	struct ring_timer ka_timer;
	struct part aer;
	bool aer_out;
	struct ring_timer aer_timer; /* the next AER is sent then */

	uint64_t violations[VIOL_NR]; /* METER_GET: of all its connections */

	/* learnt */
	uint16_t cntlid;
	uint64_t cap;
	uint32_t vs;
	uint64_t ready_by;      /* CSTS.RDY is awaited until then */
	uint16_t sqsize;
	unsigned nr_queues;
	uint32_t oaes;
	uint32_t zip_offered;   /* bytes of blocks of a compressed command; 0: it cannot */
	uint32_t *nsids;        /* ASSOC_NS_MAX, ours: what Identify listed */
	unsigned nr_nsids, ns_at;
	struct path_ns *ns;     /* ASSOC_NS_MAX, ours: those that can be used */
	unsigned nr_ns;
	struct path_info lim;   /* all but its namespaces */
};

enum took {                     /* what follows after an answer */
	TOOK_NEXT,              /* the next step */
	TOOK_AGAIN,             /* the same step at once, with what it built anew */
	TOOK_LATER,             /* the same step after a pause */
	TOOK_BACK,              /* the step before */
	TOOK_FAILED,            /* assoc_fail() has said why */
};

struct step {
	const char *name;       /* "Identify Controller", for sentences */
	/* Fills cmd.sqe, which is zero, and says how much data comes (assoc_want_page). False:
	 * not needed, next step. */
	bool (*build)(struct assoc *a, struct nvme_sqe *sqe);
	/* status is 0 unless may_fail. */
	enum took (*take)(struct assoc *a, uint16_t status, uint32_t dw0, uint32_t dw1);
	bool may_fail;
};

extern const struct step assoc_setup[];  /* of an I/O controller; ends with a NULL name */
extern const struct step assoc_setup_discovery[];
extern const struct step assoc_rescan_from[]; /* of an I/O controller whose namespaces changed */

enum took assoc_fail(struct assoc *a, bool dnr, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void assoc_want_page(struct assoc *a);
void assoc_keep_alive(struct assoc *a);  /* begins, or goes on */
void assoc_hear_events(struct assoc *a); /* keeps an AER outstanding from now on */

/* A Property Set of CC. */
void assoc_build_cc(struct nvme_sqe *sqe, uint32_t cc);
uint32_t assoc_cc(const struct assoc *a);

#endif
