/* One ublk device: its life at the driver, and its queues. Private to front_ublk*.c. Reactor 0. */
#ifndef SLUICE_FRONT_UBLK_DEV_H
#define SLUICE_FRONT_UBLK_DEV_H

#include "initiator/front_ublk.h"
#include "initiator/front_ublk_ctrl.h"
#include "initiator/front_ublk_queue.h"

enum ublk_state {
	UBLK_LEFT,      /* an initiator before us left it behind; nobody serves it */
	UBLK_WAITING,   /* for its volume to be ready */
	UBLK_ADDING,    /* ADD_DEV is out */
	UBLK_SETTING,   /* SET_PARAMS is out */
	UBLK_REVIVING,  /* START_USER_RECOVERY is out, or tried again soon: one that was left */
	UBLK_OPENING,   /* its character device is tried again soon */
	UBLK_ATTACHING, /* its queues are told to fetch */
	UBLK_STARTING,  /* START_DEV or END_USER_RECOVERY is out */
	UBLK_LIVE,
	UBLK_RESIZING, /* UPDATE_SIZE is out; live */
	UBLK_ASKING,   /* whether somebody uses it; live */
	UBLK_HOLDING,  /* its queues end what is under way */
	UBLK_KEPT,     /* for who starts next */
	UBLK_STOPPING, /* STOP_DEV is out */
	UBLK_ENDING,   /* its queues leave */
	UBLK_DELETING, /* DEL_DEV is out */
	UBLK_GONE,
	UBLK_STATES
};

struct front_ublk {
	struct initiator *in;
	struct ublk_ctrl ctrl;
	struct list devs;            /* ublk_dev.node */
	bool stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct op end;
};

enum ublk_end { UBLK_STAYS, UBLK_UNLESS_USED, UBLK_KEEP_USED, UBLK_ANYWAY };

struct ublk_dev {
	struct list node;
	struct front_ublk *f;
	enum ublk_state state;
	struct vf *vf;     /* NULL: left, or kept; its disk 0 is the volume */
	char volume[64];   /* "": unknown */
	char path[32];     /* /dev/ublkbN, "" until it has a number */
	bool was_left;     /* it is taken over, not made */
	bool listed;       /* in the configuration */
	unsigned asked;    /* bits of ublk_ask: verbs that wait for an answer */
	enum ublk_end end; /* it is to end, as soon as no command is out */
	const char *end_why;
	struct ublk_dev_info info;
	struct ublk_params params;
	uint64_t sectors; /* asked for with UPDATE_SIZE, or told that it cannot be */
	struct op cmd;    /* the control command that is out */
	struct op open;
	char open_path[32];
	struct ring_timer timer; /* until the next try */
	uint64_t give_up;        /* no more tries after that */
	int fd;                  /* of /dev/ublkcN, or -1 */
	struct ublk_queue *queues;
	unsigned nr_queues; /* that are initialised */
	unsigned legs;      /* messages that are not back */
	unsigned here;      /* attached, and have not left */
	int error;          /* why it failed, errno and sentence; 0: it did not */
	char why[240];
};

enum ublk_ask { UBLK_ASK_ADD = 1, UBLK_ASK_END = 2 };

const char *ublk_state_name(enum ublk_state s);
bool ublk_state_may(enum ublk_state from, enum ublk_state to);
/* It is on its way from one state that lasts to another. */
bool ublk_dev_moves(const struct ublk_dev *d);

/* Linked into f->devs, state UBLK_WAITING; or UBLK_LEFT, with info and params as the driver says.
 * NULL: no memory. */
struct ublk_dev *ublk_dev_new(struct front_ublk *f, const struct ublk_config *cfg);
struct ublk_dev *ublk_dev_found(struct front_ublk *f, const struct ublk_dev_info *info,
                                const struct ublk_params *params);
void ublk_dev_free(struct ublk_dev *d);

/* It is v's from now on. -ENOMEM. */
int ublk_dev_take_volume(struct ublk_dev *d, struct volume *v);
/* Makes it, or takes it over, if its volume is ready. */
void ublk_dev_start(struct ublk_dev *d);
/* Ends it, now or when what is out has come back. */
void ublk_dev_end(struct ublk_dev *d, enum ublk_end how, const char *why);

/* Between front_ublk_start.c and front_ublk_dev.c. */
void ublk_dev_move(struct ublk_dev *d, enum ublk_state to);
/* A control command about d; done gets its result. */
void ublk_dev_send(struct ublk_dev *d, uint32_t code, void *buf, uint16_t len, uint64_t data,
                   void (*done)(struct op *op, int res, uint32_t flags));
/* It cannot be served: the first reason is kept and logged. */
void ublk_dev_blame(struct ublk_dev *d, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same, and no command is out but START_DEV: what there is of it ends; one that was left
 * behind, and has no queues yet, is left alone again. */
void ublk_dev_fail(struct ublk_dev *d, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void ublk_dev_stop(struct ublk_dev *d);
/* It is live: what waited for that comes now. */
void ublk_dev_is_live(struct ublk_dev *d);
void ublk_dev_let_go_of_volume(struct ublk_dev *d);
void ublk_dev_queue_left(struct ublk_queue *q);
void ublk_dev_queue_failed(struct ublk_queue *q);
/* Tells the driver of a volume that has grown. False: it need not, or cannot, know. */
bool ublk_dev_resize(struct ublk_dev *d);

/* front_ublk.c's: told when d has come to a state that lasts; UBLK_GONE: frees it. */
void front_ublk_moved(struct ublk_dev *d);

#endif
