/* A path: one controller of one target, as all reactors use it. assoc.c sets it up and keeps it;
 * path.c sends parts on it.
 *
 * The admin queue lives on reactor 0; each reactor has its own I/O queue, opened on first use.
 * Reactors beyond the number of queues hand their parts to the owner of one by message. What all
 * share (state, limits learnt in Identify, namespace sizes) is changed on reactor 0 under the
 * path's own lock and read elsewhere through the immutable, counted struct path_info that is
 * swapped whole.
 *
 * Losing it: every queue is reset, its parts come back and wait at the path; it reconnects every
 * reconnect_delay until ctrl_loss_tmo (then it is given up and parts end with Host Path Error);
 * after fast_io_fail_tmo waiting parts end at once, as in nvme-cli. A part that was lost is sent
 * again, on another path of its member when one is live.
 */
#ifndef SLUICE_PATH_H
#define SLUICE_PATH_H

#include "initiator/hconn.h"

enum path_state { PATH_CONNECTING, PATH_LIVE, PATH_RECONNECTING, PATH_FAILING, PATH_DEAD };

struct path_config {            /* one entry of nvme-cli's JSON: keys of the same names */
	char subnqn[224], hostnqn[224];
	uint8_t hostid[16];
	char traddr[64], trsvcid[8], host_traddr[64];
	unsigned nr_io_queues;  /* 0: one for each reactor */
	unsigned queue_size;    /* default 128 */
	bool hdr_digest, data_digest;
	unsigned keep_alive_tmo; /* s, default 5 */
	int reconnect_delay;    /* s, default 10 */
	int ctrl_loss_tmo;      /* s, default 600; -1: for ever */
	int fast_io_fail_tmo;   /* s, -1: off */
	bool discovery;         /* it leads to a discovery controller, which is no disk */
	bool compress;          /* a volume wants it: not of the file, see path_want_zip() */
};

/* Who connects to whom, from where: what there is once. */
static inline bool
path_same_way(const struct path_config *a, const struct path_config *b)
{
	return !strcmp(a->subnqn, b->subnqn) && !strcmp(a->traddr, b->traddr) &&
	       !strcmp(a->trsvcid, b->trsvcid) && !strcmp(a->host_traddr, b->host_traddr) &&
	       !strcmp(a->hostnqn, b->hostnqn);
}

/* All the rest. */
static inline bool
path_same_settings(const struct path_config *a, const struct path_config *b)
{
	return !memcmp(a->hostid, b->hostid, sizeof(a->hostid)) &&
	       a->nr_io_queues == b->nr_io_queues && a->queue_size == b->queue_size &&
	       a->hdr_digest == b->hdr_digest && a->data_digest == b->data_digest &&
	       a->keep_alive_tmo == b->keep_alive_tmo &&
	       a->reconnect_delay == b->reconnect_delay && a->ctrl_loss_tmo == b->ctrl_loss_tmo &&
	       a->fast_io_fail_tmo == b->fast_io_fail_tmo && a->discovery == b->discovery;
}

struct path_ns {                /* what Identify said of a namespace */
	uint32_t nsid;
	uint64_t blocks;
	uint8_t lba_shift;
	uint8_t uuid[16], nguid[16];
};

struct path_info {              /* immutable */
	uint16_t cntlid;
	uint32_t mdts;          /* bytes; UINT32_MAX: no limit */
	uint32_t in_capsule;    /* bytes on I/O queues */
	uint16_t mqes;          /* 0-based */
	uint16_t oncs;
	bool vwc;
	bool zip_asked;         /* a volume wanted compressed commands */
	uint32_t zip_max;       /* bytes of blocks in one of them; 0: they are not turned on */
	unsigned nr_ns;
	struct path_ns ns[];
};

struct path;

/* in->nr_reactors is known. Links it into in->paths; the caller holds in->lock or is alone. */
int path_new(struct initiator *in, const struct path_config *cfg, struct path **ret,
             struct err *err);
/* Reactor 0, all reactors run: begins to connect. On a dead path: begins again. */
void path_start(struct path *p);
/* Reactor 0. Ends it, with every part that waits; nobody sends on it any more. freed(arg) on
 * reactor 0, from the loop, when nothing is left of it; it takes in->lock itself just before, to
 * unlink the path. freed may be NULL. */
void path_stop(struct path *p, void (*freed)(void *arg), void *arg);
/* The path that follows p in in->paths, NULL: the first. Under in->lock. */
struct path *path_next(struct initiator *in, struct path *p);

enum path_state path_state(const struct path *p);
const char *path_state_name(enum path_state s);
const struct path_config *path_config(const struct path *p);
const char *path_name(const struct path *p); /* "NQN at ADDR:PORT" */
/* Any thread. Why it is not live, in a sentence; "" when it is. Returns buf. */
const char *path_why(struct path *p, char *buf, size_t size);
/* Any thread. The sums of all its I/O queues, those that are closed included. */
void path_stats_sum(struct path *p, struct hconn_stats *ret);
unsigned path_attempts(const struct path *p); /* connects since it was last live; any thread */
unsigned path_queues_open(struct path *p);    /* I/O queues that are connected now; any thread */
/* Calls each() for the parts in flight on the calling reactor's queue; reactor 0: the admin
 * queue's too. */
void path_each_grant(struct reactor *r, struct path *p,
                     void (*each)(void *arg, const struct part *part, uint64_t due), void *arg);
/* Any thread; counted, path_info_put() after use. NULL before the first connect. */
const struct path_info *path_info(struct path *p);
void path_info_put(const struct path_info *i);

/* Sends a part on the calling reactor's queue of this path, or holds it until the queue has room
 * or the path is back, as the time-outs say. part->done comes exactly once, never from inside
 * this call. */
void path_send(struct reactor *r, struct path *p, struct part *part);

/* A volume compresses: asks the target now, if it is there, and whenever it comes. Reactor 0,
 * or before it runs. */
void path_want_zip(struct path *p);
/* Bytes of blocks that a compressed command may be for; 0: its target, when it was last there,
 * could not. Any thread. */
uint32_t path_zip_max(const struct path *p);

/* Told on reactor 0 whenever state or info changed, without any lock. Several may watch. Reactor
 * 0, or before it runs. */
void path_watch(struct path *p, void (*changed)(struct path *p, void *arg), void *arg);
void path_unwatch(struct path *p, void (*changed)(struct path *p, void *arg), void *arg);

/* The discovery log of cfg's traddr and trsvcid, as nvme discover would print it: calls done on
 * reactor 0, from the loop, once. log is whole and consistent, and valid until done returns;
 * NULL: why is a sentence. cfg is copied; an empty subnqn means the well-known one. */
struct nvmf_discovery_log;
void path_discover(struct initiator *in, const struct path_config *cfg,
                   void (*done)(void *arg, const struct nvmf_discovery_log *log, const char *why),
                   void *arg);

#endif
