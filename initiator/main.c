/* sluice-initiator: options, start, signals, stop.
 *
 * Happy path: the file becomes a configuration; the reactors start; volumes and VMs are added, and
 * their paths get a moment to connect; a line is printed for each volume, "ready" when the shm
 * socket listens; reactor 0 runs on this thread until SIGTERM or SIGINT. SIGHUP loads the file
 * again, SIGUSR2 has a new program take over.
 *
 * What can fail: everything before "ready": one sentence on stderr and exit 1, or 2 when the
 * command line was wrong. A target that is not there is no failure: its volumes wait for it.
 * Stopping lets commands end, those that wait for a dead target with an error; a second SIGTERM
 * ends at once.
 */
#include "common/cli.h"
#include "common/ctl_path.h"
#include "common/log.h"
#include "common/report.h"
#include "common/signals.h"
#include "initiator/config.h"
#include "initiator/discovery.h"
#include "initiator/front_shm.h"
#include "initiator/front_vhost.h"
#include "initiator/front_ublk.h"
#include "initiator/hosts.h"
#include "initiator/upgrade.h"
#include "initiator/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SETTLE_NS 3000000000ull /* a target that is there has long since been identified */
/* Commands in flight have that long to end by themselves, then again to end with an error. */
#define DRAIN_NS 5000000000ull

struct options {
	const char *config, *control, *shm, *log_level;
	bool check;
};

#define OPT(member) offsetof(struct options, member)

static const struct cli_opt opts[] = {
	{"config", 'c', "FILE", "use what FILE says, see sluice-initiator.json(5)", CLI_STR,
	 OPT(config), 0, 0},
	{"control", 's', "SOCKET", "answer sluicectl on this Unix socket", CLI_STR, OPT(control), 0,
	 0},
	{"shm", 0, "SOCKET",
	 "take clients on this Unix socket; otherwise sluice/shm.sock\n"
	 "below $XDG_RUNTIME_DIR or /run",
	 CLI_STR, OPT(shm), 0, 0},
	{"check", 0, NULL, "judge the configuration and exit", CLI_FLAG, OPT(check), 0, 0},
	{"log-level", 0, "LEVEL", "error, warning, info or debug (info)", CLI_STR, OPT(log_level),
	 0, 0},
	CLI_COMMON_OPTS,
};

static const struct cli_program program = {
	.name = "sluice-initiator",
	.synopsis = "[OPTION]... -c FILE",
	.summary = "Gives programs and VMs volumes on NVMe/TCP targets",
	.opts = opts,
	.nopts = ARRAY_SIZE(opts),
};

static struct initiator initiator = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int
complain(const struct err *err, int code)
{
	fprintf(stderr, "sluice-initiator: %s\n", err->text);
	return code;
}

/* signals */

static void
stop(void)
{
	initiator.stopping = true;
	ring_stop(initiator.reactors[0].ring);
}

static void
reload(void)
{
	struct err err = { 0 };

	if (initiator_reload(&initiator, &err) < 0)
		log_error("reload: %s", err.text);
}

static void
upgrade(void)
{
	struct err err = { 0 };

	if (upgrade_begin(&initiator, &err) < 0)
		log_error("upgrade: %s", err.text);
}

static struct signals signals = { .reload = reload, .stop = stop, .upgrade = upgrade };

/* start */

static int
take_settings(const struct options *o, const struct config *c, struct err *err)
{
	struct initiator *in = &initiator;
	const char *shm = o->shm ? o->shm : c->shm, *control = o->control ? o->control : c->control;
	char path[108];

	in->started_ms = report_now_ms();
	in->nr_reactors = c->nr_reactors;
	memcpy(in->cpus, c->cpus, sizeof(in->cpus));
	in->poll_us = c->poll_us;
	in->buffers = c->buffers;
	in->zero_copy = c->zero_copy;
	in->placement_direct = c->placement_direct;
	in->config_path = strdup(o->config);
	in->shm_path = strdup(shm ? shm : ctl_default_path(path, sizeof(path), "shm.sock"));
	in->control_path = control ? strdup(control) : NULL;
	if (!in->config_path || !in->shm_path || (control && !in->control_path))
		return err_set(err, -ENOMEM, "no memory");
	return 0;
}

static void
show_volumes(void)
{
	const struct volume *v;
	char text[240];

	list_for_each(&initiator.volumes, v, node) {
		volume_describe(v, text, sizeof(text));
		printf("%s: %s\n", v->name, text);
	}
}

static bool
still_settling(void *arg)
{
	(void)arg;
	return !initiator.stopping && !volumes_settled(&initiator);
}

static bool
still_moving(void *arg)
{
	(void)arg;
	return !initiator.stopping && !front_ublk_settled(&initiator);
}

static int
serve(struct config *c, struct err *err)
{
	struct initiator *in = &initiator;
	int res = 0;

	if (in->control_path)
		res = verbs_start(in, in->control_path, err);
	if (res < 0)
		return res;
	front_ublk_look(in);
	res = front_ublk_apply(in, c, err);
	front_vhost_close_unclaimed(in);
	if (res < 0)
		return res;
	signals_start(&signals, initiator.reactors[0].ring);
	crew_turn_while(&in->crew, still_settling, NULL, SETTLE_NS);
	show_volumes();
	crew_turn_while(&in->crew, still_moving, NULL, SETTLE_NS);
	front_ublk_show(in);
	res = front_shm_new(in, in->shm_path, &in->shm, err);
	if (res < 0)
		return res;
	printf("ready\n");
	fflush(stdout);
	crew_run(&in->crew);
	if (in->upgrading)
		upgrade_exec(in);
	return in->upgrading ? err_set(err, -ENOEXEC, "the upgrade failed") : 0;
}

/* stop */

static unsigned fronts_left; /* that say when they are gone */
static bool devices_kept; /* ublk devices that are in use: whoever starts next goes on with them */

static void
front_gone(void *arg)
{
	(void)arg;
	fronts_left--;
}

static bool
has_fronts(void *arg)
{
	(void)arg;
	return fronts_left > 0 || front_vhost_busy(&initiator);
}

static bool
has_control(void *arg)
{
	(void)arg;
	return initiator.ctl;
}

static bool
has_paths(void *arg)
{
	(void)arg;
	return !list_empty(&initiator.paths) || !list_empty(&initiator.discoveries);
}

static void
give_up(const char *what)
{
	log_error("%s: leaving without waiting any longer", what);
	_exit(1);
}

/* Lets clients' commands end: by themselves, else without their paths. Those of VMs are not failed
 * then: they stand in the VMM's memory, for the daemon that comes next. */
static void
end_clients(void)
{
	struct initiator *in = &initiator;

	fronts_left = (in->shm ? 1 : 0) + (in->ublk ? 1 : 0);
	if (in->shm)
		front_shm_stop(in->shm, front_gone, NULL);
	if (in->ublk)
		front_ublk_stop(in->ublk, front_gone, NULL);
	vms_close_sockets(in);
	crew_turn_while(&in->crew, has_fronts, NULL, DRAIN_NS);
	if (has_fronts(NULL)) {
		log_warn("commands wait for targets that do not answer, they end with an error");
		front_vhost_abandon(in); /* its messages arrive before those to the paths */
		volumes_cut_off(in);
		crew_turn_while(&in->crew, has_fronts, NULL, DRAIN_NS);
	}
	if (has_fronts(NULL))
		give_up("clients have commands that do not end");
	front_shm_free(in->shm);
	in->shm = NULL;
	front_vhost_free(in);
	devices_kept = front_ublk_free(in->ublk);
	in->ublk = NULL;
}

static void
end_volumes(void)
{
	struct initiator *in = &initiator;
	struct list *n;

	while ((n = list_first(&in->vms)))
		vm_remove(in, list_entry(n, struct vm, node)->name, NULL);
	while ((n = list_first(&in->volumes)))
		volume_remove(in, list_entry(n, struct volume, node)->name, NULL);
	crew_turn_while(&in->crew, has_paths, NULL, DRAIN_NS);
	if (has_paths(NULL))
		give_up("paths do not end");
}

static void
end_all(void)
{
	struct initiator *in = &initiator;

	in->stopping = true;
	discoveries_apply(in);
	end_clients();
	end_volumes();
	verbs_stop(in);
	if (devices_kept) { /* the driver has commands in the rings: these end with the process */
		crew_turn_while(&in->crew, has_control, NULL, DRAIN_NS);
		return;
	}
	signals_end(&signals);
	reactors_stop(in);
	signals_close(&signals);
	sched_node_free(in->capacity);
	free(in->hosts);
	free(in->config_path);
	free(in->control_path);
	free(in->shm_path);
	conf_free(in->heritage);
}

static int
run(const struct options *o, struct config *c, struct err *err)
{
	int res;

	if ((res = take_settings(o, c, err)) || (res = signals_block(&signals, err)))
		return res;
	raise_fd_limit();
	initiator.capacity = sched_node_new(initiator.nr_reactors);
	if (!initiator.capacity)
		return err_set(err, -ENOMEM, "no memory");
	res = reactors_start(&initiator, err);
	if (res < 0)
		return res;
	res = serve(c, err);
	end_all();
	return res;
}

int
main(int argc, char **argv)
{
	struct initiator *in = &initiator;
	struct options o = { 0 };
	struct config *config = NULL;
	struct err err = { 0 };
	int n, res = cli_parse(&program, argc, argv, &o, &n, &err);

	if (res == CLI_DONE)
		return 0;
	if (res < 0)
		return complain(&err, 2);
	if (o.log_level && log_level_parse(o.log_level, &log_level) < 0) {
		err_set(&err, -EINVAL, "--log-level: '%s' is none of error, warning, info, debug",
			o.log_level);
		return complain(&err, 2);
	}
	if (!o.config) {
		err_set(&err, -EINVAL, "-c FILE is missing; see --help");
		return complain(&err, 2);
	}
	if (!o.check)
		upgrade_inherit(in, argv);
	list_init(&in->volumes);
	list_init(&in->paths);
	list_init(&in->path_uses);
	list_init(&in->discoveries);
	list_init(&in->ways);
	list_init(&in->vfs);
	list_init(&in->vms);
	res = hosts_identity(in, &err);
	if (res == 0)
		res = config_load(in, o.config, &config, &err);
	if (res == 0 && !o.check)
		res = run(&o, config, &err);
	config_free(config);
	res = res < 0 ? complain(&err, 1) : 0;
	if (devices_kept)
		_exit(res);
	return res;
}
