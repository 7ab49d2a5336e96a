/* sluice-target: options, start, signals, stop.
 *
 * Happy path: options become a configuration (a file or the one-line form); the reactors start; the
 * configuration is applied to the empty model, which opens backends and listeners; what is served
 * is printed, "listening on ADDR:PORT" last; reactor 0 runs on this thread until SIGTERM or SIGINT.
 * SIGHUP loads the file again.
 *
 * What can fail: everything before "listening on": one sentence on stderr and exit 1, or 2 when the
 * command line was wrong. A second SIGTERM ends at once.
 */
#include "common/cli.h"
#include "common/conf_write.h"
#include "common/ctl_client.h"
#include "common/ctl_path.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/units.h"
#include "target/config.h"
#include "target/listener.h"
#include "target/model.h"
#include "target/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct options {
	const char *config, *nqn, *control, *log_level;
	struct cli_list listen;
	bool dump, check;
	uint32_t reactors, poll_us;
	uint64_t buffers, in_capsule;
};

#define OPT(member) offsetof(struct options, member)

static const struct cli_opt opts[] = {
	{ "config", 'c', "FILE", "serve what FILE says, see sluice-target.json(5)", CLI_STR, OPT(config), 0, 0 },
	{ "listen", 'l', "ADDR:PORT", "listen there, port 0 picks one; may be given again (0.0.0.0:4420)",
	  CLI_LIST, OPT(listen), 0, 0 },
	{ "nqn", 'n', "NQN", "the subsystem's name (nqn.2026-11.io.sluice:default)", CLI_STR, OPT(nqn), 0, 0 },
	{ "control", 's', "SOCKET", "answer sluicectl on this Unix socket", CLI_STR, OPT(control), 0, 0 },
	{ "reactors", 'r', "N", "run N threads", CLI_U32, OPT(reactors), 1, REACTORS_MAX },
	{ "buffers", 0, "SIZE", "use at most SIZE of buffer memory", CLI_SIZE, OPT(buffers), 1 << 20, 1ull << 40 },
	{ "in-capsule", 0, "SIZE", "take writes of up to SIZE without a round trip", CLI_SIZE, OPT(in_capsule),
	  0, 64 << 10 },
	{ "poll-us", 0, "N", "spin up to N microseconds before sleeping", CLI_U32, OPT(poll_us), 0, 1000000 },
	{ "check", 0, NULL, "judge the configuration and exit", CLI_FLAG, OPT(check), 0, 0 },
	{ "dump-config", 0, NULL, "print the configuration of the running target and exit", CLI_FLAG, OPT(dump), 0, 0 },
	{ "log-level", 0, "LEVEL", "error, warning, info or debug (info)", CLI_STR, OPT(log_level), 0, 0 },
	CLI_COMMON_OPTS,
};

static const struct cli_program program = {
	.name = "sluice-target",
	.synopsis = "[OPTION]... -c FILE\n[OPTION]... SPEC...",
	.summary = "Serves files, block devices and memory to NVMe/TCP hosts",
	.opts = opts,
	.nopts = ARRAY_SIZE(opts),
	.max_operands = 256,
	.more = "SPEC is ram:SIZE, null:SIZE, file:PATH or a path, each with the options\n"
	        ",size=SIZE ,bs=512|4096 ,ro ,direct=on|off|auto behind it.\n",
};

static struct target target;

static int
complain(const struct err *err, int code)
{
	fprintf(stderr, "sluice-target: %s\n", err->text);
	return code;
}

/* signals */

static void
stop(void)
{
	ring_stop(target.reactors[0].ring);
}

static void
reload(void)
{
	struct err err = { 0 };

	if (target_reload(&target, &err) < 0)
		log_error("reload: %s; the running configuration stays", err.text);
	else
		log_info("reloaded");
}

static struct signals signals = { .reload = reload, .stop = stop };

/* start */

static int
make_config(const struct options *o, char **specs, unsigned n, struct config **ret, struct err *err)
{
	if (o->config && n > 0)
		return err_set(err, -EINVAL, "'%s': either -c FILE or SPECs; see --help", specs[0]);
	if (o->config && (o->listen.n > 0 || o->nqn))
		return err_set(err, -EINVAL, "--listen and --nqn belong to the form without -c; see --help");
	if (o->config)
		return config_load(o->config, ret, err);
	if (n == 0)
		return err_set(err, -EINVAL, "nothing to serve: give -c FILE or a SPEC; see --help");
	return config_from_args(o->listen.v, o->listen.n, o->nqn, (const char *const *)specs, n,
	                        ret, err);
}

static int
take_limits(const struct options *o, const struct config *config)
{
	struct limits *l = &target.limits;

	*l = *config_limits(config);
	if (o->reactors)
		l->reactors = o->reactors;
	if (o->buffers)
		l->buffers = o->buffers;
	if (o->poll_us != UINT32_MAX)
		l->poll_us = o->poll_us;
	if (o->in_capsule != UINT64_MAX)
		l->in_capsule = (uint32_t)o->in_capsule & ~15u;
	return 0;
}

static void
show_subsystem(const struct subsys *s)
{
	unsigned i;

	for (i = 0; i < NS_MAX; i++) {
		struct ns *ns = s->ns[i];
		struct units_text size;

		if (ns)
			printf("%s namespace %u: %s, %s, %u-byte blocks (%s)\n", s->nqn, ns->nsid,
			       ns->spec, units_show_size(&size, ns->be->size), 1u << ns->lba_shift,
			       ns->be->how);
	}
}

static void
show_what_is_served(void)
{
	const struct subsys *s;
	const struct port *p;

	list_for_each(&target.subsystems, s, node)
		show_subsystem(s);
	list_for_each(&target.ports, p, node)
		printf(p->ipv6 ? "listening on [%s]:%u\n" : "listening on %s:%u\n", p->traddr, p->bound_port);
	fflush(stdout);
}

static int
serve(const struct options *o, const struct config *config, struct err *err)
{
	const char *control = o->control ? o->control : config_control(config);
	int res;

	target_lock(&target);
	res = config_apply(&target, config, err);
	target_unlock(&target);
	if (res == 0 && control)
		res = verbs_start(&target, control, err);
	if (res < 0)
		return res;
	target.config_path = o->config ? strdup(o->config) : NULL;
	show_what_is_served();
	signals_start(&signals, target.reactors[0].ring);
	reactors_run(&target);
	return 0;
}

static void
stop_listening(void)
{
	struct port *p;

	target_lock(&target);
	list_for_each(&target.ports, p, node)
		listener_stop(p);
	target_unlock(&target);
}

static int
run(const struct options *o, const struct config *config, struct err *err)
{
	int res;

	if ((res = take_limits(o, config)) || (res = signals_block(&signals, err)) ||
	    (res = target_model_init(&target, err)))
		return res;
	raise_fd_limit();
	res = reactors_start(&target, err);
	if (res < 0)
		return res;
	res = serve(o, config, err);
	signals_end(&signals);
	stop_listening();
	verbs_stop(&target);
	reactors_stop(&target);
	target_model_fini(&target);
	free(target.config_path);
	signals_close(&signals);
	return res;
}

/* other things to do than serving */

static int
dump_running(const char *control, struct err *err)
{
	struct ctl_client client;
	struct conf *reply;
	const struct conf_node *result;
	struct conf_writer w;
	char *text;
	int res = ctl_client_open(&client, control, err);

	if (res < 0)
		return res;
	res = ctl_client_call(&client, "dump-config", NULL, &reply, &result, err);
	ctl_client_close(&client);
	if (res < 0)
		return res;
	conf_writer_init(&w, true);
	conf_put_node(&w, NULL, result);
	text = conf_writer_take(&w);
	conf_free(reply);
	if (!text)
		return err_set(err, -ENOMEM, "no memory");
	puts(text);
	free(text);
	return 0;
}

int
main(int argc, char **argv)
{
	struct options o = { .poll_us = UINT32_MAX, .in_capsule = UINT64_MAX };
	struct config *config = NULL;
	struct err err = { 0 };
	char path[108];
	int n, res = cli_parse(&program, argc, argv, &o, &n, &err);

	if (res == CLI_DONE)
		return 0;
	if (res < 0)
		return complain(&err, 2);
	if (o.log_level && log_level_parse(o.log_level, &log_level) < 0) {
		err_set(&err, -EINVAL, "--log-level: '%s' is none of error, warning, info, debug", o.log_level);
		return complain(&err, 2);
	}
	if (o.dump)
		return dump_running(o.control ? o.control : ctl_default_path(path, sizeof(path), "target.ctl"),
		                    &err) < 0 ? complain(&err, 1) : 0;
	res = make_config(&o, argv + 1, (unsigned)n, &config, &err);
	if (res < 0)
		return complain(&err, o.config && n == 0 && o.listen.n == 0 && !o.nqn ? 1 : 2);
	if (!o.check)
		res = run(&o, config, &err);
	config_free(config);
	return res < 0 ? complain(&err, 1) : 0;
}
