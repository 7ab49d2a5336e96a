/* A controller: one host's association with one subsystem. Lives from the admin Connect until its
 * last connection is gone.
 *
 * Everything here is under the target's lock, but for the fields marked otherwise. The admin
 * queue's reactor runs keep alive and asynchronous events; other threads only set event bits and
 * post to it.
 */
#ifndef SLUICE_CTRL_H
#define SLUICE_CTRL_H

#include "target/cmd.h"

enum {
	CTRL_QUEUES_MAX = 128,
	CTRL_AERS_MAX = 4,      /* AERL + 1 */
	CTRL_ACL = 3,           /* Abort commands at a time, 0-based */
	CTRL_ERRORS = 64,       /* error log entries, ELPE + 1 */
};

enum ctrl_event {               /* bit numbers in events, also in armed and masked */
	CTRL_EV_NS_CHANGED,
	CTRL_EV_DISCOVERY,
	CTRL_EV_TEMPERATURE,
	CTRL_EV_NR
};

struct ctrl_error {             /* one error log entry */
	uint64_t count, lba;
	uint32_t nsid;
	uint16_t sqid, cid, status, loc;
	uint8_t trtype;
};

struct ctrl {
	struct list node;       /* subsys.ctrls */
	struct subsys *subsys;  /* counted */
	unsigned refs;          /* one for each connection */
	uint16_t cntlid;
	char hostnqn[NVME_NQN_MAX + 1];
	uint8_t hostid[16];
	struct conn *queues[CTRL_QUEUES_MAX + 1]; /* [0]: admin; NULL: free */
	struct reactor *admin_r; /* where the admin queue lives; fixed */
	uint16_t nr_ioq;        /* granted by Set Features 07h */
	/* Of its host, the subsystem's; NULL: there never was one. Set under the lock. */
	struct limit *_Atomic limit;
	bool dead;              /* being torn down: no new queues */

	uint32_t cc, csts;
	bool resetting;         /* CC.EN was cleared, I/O queues are still going */
	struct ctrl_shutdown *shutdown; /* normal shutdown in progress, see ctrl_state.c */

	uint32_t kato_ms;       /* 0: no timer */
	uint64_t ka_since;      /* when the timer was started, ring_now() */
	uint64_t ka_due;        /* what the timer is set to */
	uint64_t ka_graced;     /* last sign of life after which it came late and gave a round */
	struct ring_timer ka_timer; /* admin reactor */

	struct cmd *aers[CTRL_AERS_MAX]; /* admin reactor */
	unsigned nr_aers;
	unsigned nr_aborts;     /* on their way to other reactors; admin reactor */
	uint32_t aen_config;    /* feature 0Bh */
	uint32_t events;        /* BIT(enum ctrl_event): happened, not yet told */
	uint32_t masked;        /* told, its log not yet read with RAE 0 */
	struct op event_op;     /* posted to admin_r; events_posted while it is on its way */
	bool events_posted;

	uint32_t changed_ns[NS_MAX / 32]; /* changed namespace list */

	/* Bit nsid - 1; written under the lock, read anywhere. */
	_Atomic uint64_t attached[NS_MAX / 64];

	struct ctrl_error errors[CTRL_ERRORS];
	uint64_t nr_errors;

	/* features with a value of their own, see admin_feat.c */
	uint32_t feat[256];
	uint64_t timestamp_base_ms; /* feature 0Eh: its value at... */
	uint64_t timestamp_set_at; /* ...this ring_now() of the admin reactor */
	bool timestamp_set;     /* by the host; else it counts from the start or reset */
	uint8_t host_behavior[512]; /* feature 16h */
	_Atomic bool zips;      /* feature ZIP_FID: compressed transfers; read anywhere */
};

/* Makes a controller for an admin Connect; *ret_status is a Connect status on failure. The caller
 * has one reference, admin's. Lock held. */
struct ctrl *ctrl_new(struct subsys *s, struct conn *admin, const struct nvme_connect_data *data,
                      uint32_t kato_ms, uint16_t *ret_status);
struct ctrl *ctrl_find(struct subsys *s, uint16_t cntlid);

/* References besides those of connections, for work that outlives a command. Lock held. */
void ctrl_get(struct ctrl *c);
void ctrl_put(struct ctrl *c);

/* Called by the connection when it ends: forgets the queue. The loss of the admin queue tears the
 * controller down; the loss of an I/O queue only frees its id, since Linux closes them before it
 * writes CC for the last time, and other hosts connect a lost one again. Frees it with the last
 * connection. Takes the lock itself; conn's reactor. */
void ctrl_conn_gone(struct conn *c);
/* Tells those who watch the control socket: "connected", "gone". */
void ctrl_tell(struct reactor *from, const struct ctrl *c, const char *state);

/* Marks it dead and resets all its connections. Lock held, any thread. */
void ctrl_kill(struct ctrl *c, const char *why);

/* Something happened that its host wants to know; sends an AEN when one is armed. Lock held, any
 * reactor thread (from: the caller's reactor). */
void ctrl_event(struct reactor *from, struct ctrl *c, enum ctrl_event ev);
/* Namespace nsid appeared, went or changed: notes it in the changed list and tells every controller
 * that sees it. except may be NULL. Lock held. */
void ctrl_ns_changed(struct reactor *from, struct subsys *s, uint32_t nsid, struct ctrl *except);
/* The discovery log changed: genctr goes up, every persistent discovery controller is told. Lock
 * held. */
void ctrl_discovery_changed(struct reactor *from, struct target *t);

/* The log of ev was read with RAE 0: the next event may be told. Lock held. */
void ctrl_event_rearm(struct ctrl *c, enum ctrl_event ev);
/* Values of a controller that was just made or reset. Lock held. */
void ctrl_set_defaults(struct ctrl *c);


/* Pieces that ctrl.c, ctrl_state.c and admin_event.c have for each other. Lock held. */
void ctrl_free(struct ctrl *c);
bool ctrl_has_io_queues(const struct ctrl *c);
void ctrl_drop_io_queues(struct ctrl *c);
void ctrl_reset_done(struct ctrl *c);
void ctrl_event_arrived(struct op *op, int res, uint32_t cqe_flags);

/* Its host has turned compressed transfers on; any thread. */
static inline bool
ctrl_zips(const struct ctrl *c)
{
	return atomic_load_explicit(&c->zips, memory_order_relaxed);
}

bool ctrl_sees(const struct ctrl *c, uint32_t nsid); /* any thread: attached */
void ctrl_attach(struct ctrl *c, uint32_t nsid, bool attach);

/* Notes a failed command in the error log. Takes the lock; any thread. */
void ctrl_log_error(struct ctrl *c, const struct cmd *cmd, uint16_t status);

#endif
