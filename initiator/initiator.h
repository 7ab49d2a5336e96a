/* The whole of the initiator: reactors, volumes, paths, VFs; one lock for what is slow-path. */
#ifndef SLUICE_INITIATOR_H
#define SLUICE_INITIATOR_H

#include "common/ctl_events.h"
#include "initiator/reactor.h"

struct conf;
struct front_shm;
struct front_vhost;
struct volume;
struct front_ublk;

struct initiator {
	pthread_mutex_t lock;
	struct crew crew;
	struct reactor *reactors;
	unsigned nr_reactors;
	int cpus[REACTORS_MAX]; /* of "reactors": [0, 1]; -1: not pinned */
	unsigned poll_us;
	enum chan_zc zero_copy;
	bool placement_direct;  /* every payload by its own receive */
	size_t buffers;         /* bytes of buffer pool, all reactors */
	struct list volumes, paths, vfs, vms;
	struct sched_node *capacity; /* of "capacity"; without limits unless it is set */
	struct list path_uses;  /* volume.c: which paths exist for the volumes */
	struct list discoveries; /* discovery.c: those that run, and those that are ending */
	struct list ways;       /* what they tell: lists of ways to subsystems */
	struct path_config *hosts; /* every connection that "hosts" tells of, ours */
	unsigned nr_hosts;
	struct front_shm *shm;  /* NULL: not started or ended */
	struct front_vhost *vhost; /* NULL: no disk ever had a socket */
	struct front_ublk *ublk; /* NULL: not used */
	struct ctl_server *ctl; /* NULL: no control socket */
	char *config_path, *control_path, *shm_path; /* ours */
	uint64_t started_ms;    /* CLOCK_MONOTONIC */
	struct conf *heritage;  /* what the program before us left, see upgrade.h; NULL: nothing */
	bool stopping, upgrading;
	char hostnqn[224];
	uint8_t hostid[16];
	uint32_t next_vf;
	struct ctl_events events; /* for those who watch the control socket */
	/* A front that serves disks without a VF, too: a volume has another capacity or state. */
	void (*volume_changed)(struct initiator *in, const struct volume *vol);
};

static inline void
initiator_lock(struct initiator *in)
{
	pthread_mutex_lock(&in->lock);
}

static inline void
initiator_unlock(struct initiator *in)
{
	pthread_mutex_unlock(&in->lock);
}

#endif
