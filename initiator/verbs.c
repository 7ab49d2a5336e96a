/* The verb table, and the verbs about the process: status, reload, log level; events and the
 * socket.
 *
 * Happy path: the control server on reactor 0 finds the row and calls its function; lists are in
 * verbs_list.c, changes in verbs_change.c, what has to ask others first in verbs_later.c. What can
 * fail is told in err and goes back to the caller.
 */
#include "initiator/verbs.h"

#include "common/ctl_server.h"
#include "common/log.h"
#include "common/report.h"
#include "initiator/config.h"
#include "initiator/front_vhost.h"
#include "initiator/upgrade.h"
#include "initiator/verbs_table.h"

#include <errno.h>
#include <stdlib.h>

const struct ctl_verb initiator_verbs[] = {
	{"status", "", "What runs: version, counts, memory.", verb_status},
	{"stats", "", "Counters and latencies of reactors, volumes and paths.", verb_stats},
	{"volumes", "", "Lists volumes.", verb_volumes},
	{"paths", "", "Lists paths: controllers of targets.", verb_paths},
	{"vms", "", "Lists VMs and their clients.", verb_vms},
	{"grants", "", "Lists live grants: which memory a target may move now.", verb_grants},
	{"discoveries", "", "Lists the discovery controllers of \"hosts\" and what they tell.",
	 verb_discoveries},
	{"discover", "addr:string", "What the discovery service at ADDR[:PORT] tells.",
	 verb_discover},
	{"volume.add", "name:string members:array [block:size] [max_part:size] [merge:bool] [qos:object] [stages:array] [staging:size]",
	 "Adds a volume; a member is {nqn, nsid} or \"NQN/NSID\".", verb_volume_add},
	{"volume.remove", "name:string", "Removes a volume that is no VM's disk.",
	 verb_volume_remove},
	{"volume.seal", "name:string [force:bool]",
	 "Writes the seal of an encrypted volume, by which its key proves to be right.",
	 verb_volume_seal},
	{"vm.add", "name:string disks:array [uid:number] [qos:object]",
	 "Adds a VM: who comes with that uid gets these volumes as disks.", verb_vm_add},
	{"vm.remove", "name:string", "Removes a VM and disconnects its clients.", verb_vm_remove},
	{"qos.show", "[name:string]", "Limits of volumes and VMs, and what they held.",
	 verb_qos_show},
	{"qos.set", "name:string limits:object [save:bool]",
	 "Changes limits of a volume or VM; what is not named stays, \"none\" takes one away.",
	 verb_qos_set},
	{"qos.clear", "name:string [save:bool]", "Takes all limits of a volume or VM away.",
	 verb_qos_clear},
	{"qos.refund", "name:string amount:string",
	 "Lets a volume or VM do so much more: 500iops, 1M, 4096bytes.", verb_qos_refund},
	{"capacity.show", "", "What the daemon may do in all, and how much of it is left.",
	 verb_capacity_show},
	{"capacity.set", "limits:object [save:bool]",
	 "Changes \"iops\" or \"bandwidth\" of that; \"none\" takes one away.", verb_capacity_set},
	{"ublk.add", "volume:string [queues:number] [depth:number]",
	 "Makes a volume a block device of this host.", verb_ublk_add},
	{"ublk.del", "name:string [force:bool]", "Deletes such a device.", verb_ublk_del},
	{"ublk.list", "", "Lists ublk devices.", verb_ublk_list},
	{"reload", "", "Reads the configuration file again and applies what changed.", verb_reload},
	{"upgrade", "", "Has the program file run anew, under running VMs.", verb_upgrade},
	{"log-level", "[level:string]", "Shows or sets the log level: error, warning, info, debug.",
	 report_log_level},
	{ 0 },
};

/* ---- status ---- */

static unsigned
list_len(const struct list *l)
{
	const struct list *n;
	unsigned len = 0;

	for (n = l->next; n != l; n = n->next)
		len++;
	return len;
}

static void
put_counts(struct conf_writer *w, struct initiator *in)
{
	unsigned ready = 0, live = 0, connected = 0;
	const struct volume *v;
	struct path *p;

	list_for_each(&in->volumes, v, node)
		ready += v->state == VOLUME_READY;
	for (p = path_next(in, NULL); p; p = path_next(in, p))
		live += path_state(p) == PATH_LIVE;
	conf_put_u64(w, "volumes", list_len(&in->volumes));
	conf_put_u64(w, "volumes_ready", ready);
	conf_put_u64(w, "paths", list_len(&in->paths));
	conf_put_u64(w, "paths_live", live);
	conf_put_u64(w, "vms", list_len(&in->vms));
	conf_put_u64(w, "clients", list_len(&in->vfs));
	conf_put_u64(w, "vhost_devices", front_vhost_count(in, &connected));
	conf_put_u64(w, "vhost_connected", connected);
}

int
verb_status(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct report_pools pools = { 0 };
	struct initiator *in = ctx;

	(void)params;
	(void)err;
	for (unsigned i = 0; i < in->nr_reactors; i++)
		report_pools_add(&pools, in->reactors[i].pool);
	conf_begin_object(w, NULL);
	report_process(w, in->started_ms, in->nr_reactors);
	initiator_lock(in);
	put_counts(w, in);
	initiator_unlock(in);
	conf_put_str(w, "hostnqn", in->hostnqn);
	if (in->config_path)
		conf_put_str(w, "config", in->config_path);
	if (in->shm_path)
		conf_put_str(w, "shm", in->shm_path);
	report_pools(w, "buffers", &pools);
	report_resident(w);
	conf_end(w);
	return 0;
}

/* ---- configuration ---- */

/* Settings that are read at start only. */
static void
warn_settings(const struct initiator *in, const struct config *c)
{
	bool cpus = in->nr_reactors != c->nr_reactors ||
		    memcmp(in->cpus, c->cpus, c->nr_reactors * sizeof(*c->cpus)) != 0;

	if (cpus || in->poll_us != c->poll_us || in->buffers != c->buffers ||
	    in->zero_copy != c->zero_copy || in->placement_direct != c->placement_direct)
		log_warn("%s: settings of reactors, buffers or sending changed, they wait for the "
		         "next start", in->config_path);
}

int
initiator_reload(struct initiator *in, struct err *err)
{
	struct config *c;
	int ret;

	if (in->stopping)
		return err_set(err, -ESHUTDOWN, "the initiator stops");
	ret = config_load(in, in->config_path, &c, err);
	if (ret)
		return ret;
	warn_settings(in, c);
	ret = front_ublk_apply(in, c, err);
	config_free(c);
	if (!ret)
		log_info("%s applied", in->config_path);
	return ret;
}

int
verb_reload(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	(void)params;
	(void)w;
	return initiator_reload(ctx, err);
}

int
verb_upgrade(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	(void)params;
	(void)w;
	return upgrade_begin(ctx, err);
}

/* ---- the control socket ---- */

enum { CLIENTS_MAX = 32 };

int
verbs_start(struct initiator *in, const char *path, struct err *err)
{
	struct ctl_server_config cfg = {
		.ring = in->reactors[0].ring,
		.path = path,
		.verbs = initiator_verbs,
		.ctx = in,
		.max_clients = CLIENTS_MAX,
	};
	int ret;

	ret = ctl_server_new(&cfg, &in->ctl, err);
	if (ret)
		return ret;
	ctl_events_start(&in->events, in->reactors[0].ring, in->ctl);
	return 0;
}

static void
stopped(void *arg)
{
	struct initiator *in = arg;

	ctl_server_free(in->ctl);
	in->ctl = NULL;
}

void
verbs_stop(struct initiator *in)
{
	ctl_events_stop(&in->events);
	if (in->ctl)
		ctl_server_stop(in->ctl, stopped, in);
}
