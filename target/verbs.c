/* The verb table, and the verbs about the process: status, statistics, configuration, log level.
 *
 * Happy path: the control server on reactor 0 finds the row and calls its function; lists are in
 * verbs_list.c, changes in verbs_change.c. What can fail is told in err and goes back to the
 * caller.
 */
#include "target/verbs.h"

#include "common/conf.h"
#include "common/ctl_server.h"
#include "common/file.h"
#include "common/log.h"
#include "common/meter.h"
#include "common/report.h"
#include "target/config.h"
#include "target/ctrl.h"
#include "target/verbs_table.h"

#include <errno.h>
#include <stdlib.h>

const struct ctl_verb target_verbs[] = {
	{"status", "", "What runs: version, counts, memory.", verb_status},
	{"stats", "", "Counters of reactors and namespaces.", verb_stats},
	{"subsystems", "", "Lists subsystems.", verb_subsystems},
	{"namespaces", "", "Lists namespaces.", verb_namespaces},
	{"ports", "", "Lists ports.", verb_ports},
	{"hosts", "", "Lists the hosts that subsystems allow.", verb_hosts},
	{"controllers", "", "Lists controllers: which hosts are connected.", verb_controllers},
	{"connections", "", "Lists the connections of controllers.", verb_connections},
	{"ns.add",
	 "nqn:string device:string [nsid:number] [block_size:number] [uuid:string] [nguid:string] "
	 "[eui64:string]",
	 "Adds a namespace; device is a path, ram:SIZE or null:SIZE.", verb_ns_add},
	{"ns.remove", "nqn:string nsid:number", "Removes a namespace.", verb_ns_remove},
	{"ns.resize", "nqn:string nsid:number [size:size]",
	 "Resizes a namespace; without size to what its file or device has.", verb_ns_resize},
	{"host.add", "nqn:string host:string", "Allows a host.", verb_host_add},
	{"host.remove", "nqn:string host:string", "Disallows a host and disconnects it.",
	 verb_host_remove},
	{"subsystem.add",
	 "nqn:string [allow_any_host:bool] [serial:string] [model:string] [ports:array]",
	 "Adds a subsystem on the given ports, or on all.", verb_subsystem_add},
	{"subsystem.remove", "nqn:string", "Removes a subsystem and disconnects its hosts.",
	 verb_subsystem_remove},
	{"port.add", "listen:string [portid:number] [subsystems:array]",
	 "Listens on ADDR:PORT for the given subsystems, or for all.", verb_port_add},
	{"port.remove", "portid:number", "Removes a port and disconnects the hosts on it.",
	 verb_port_remove},
	{"qos.show", "[name:string]", "Limits of namespaces and hosts, and what they held.",
	 verb_qos_show},
	{"qos.set", "name:string limits:object [save:bool]",
	 "Changes limits of NQN/NSID or NQN/HOSTNQN; what is not named stays, \"none\" takes one away.",
	 verb_qos_set},
	{"qos.clear", "name:string [save:bool]", "Takes all limits of a namespace or host away.",
	 verb_qos_clear},
	{"qos.refund", "name:string amount:string",
	 "Lets a namespace or host do so much more: 500iops, 1M, 4096bytes.", verb_qos_refund},
	{"reload", "", "Reads the configuration file again and applies what changed.", verb_reload},
	{"dump-config", "", "The running configuration.", verb_dump_config},
	{"save", "[path:string]", "Writes the running configuration to its file.", verb_save},
	{"log-level", "[level:string]", "Shows or sets the log level: error, warning, info, debug.",
	 report_log_level},
	{0},
};

/* ---- status ---- */

static void
put_counts(struct conf_writer *w, const struct target *t)
{
	unsigned subsystems = 0, namespaces = 0, ports = 0, ctrls = t->discovery->nr_ctrls;
	const struct subsys *s;
	const struct port *p;

	list_for_each(&t->subsystems, s, node) {
		subsystems++;
		ctrls += s->nr_ctrls;
		for (unsigned i = 0; i < NS_MAX; i++)
			namespaces += s->ns[i] != NULL;
	}
	list_for_each(&t->ports, p, node)
		ports++;
	conf_put_u64(w, "subsystems", subsystems);
	conf_put_u64(w, "namespaces", namespaces);
	conf_put_u64(w, "ports", ports);
	conf_put_u64(w, "controllers", ctrls);
	conf_put_u64(w, "connections", t->nr_conns);
}

int
verb_status(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct report_pools pools = { 0 };
	struct target *t = ctx;

	(void)params;
	(void)err;
	for (unsigned i = 0; i < t->nr_reactors; i++)
		report_pools_add(&pools, t->reactors[i].pool);
	conf_begin_object(w, NULL);
	report_process(w, t->started_ms, t->nr_reactors);
	target_lock(t);
	put_counts(w, t);
	conf_put_u64(w, "discovery_genctr", t->genctr);
	if (t->config_path)
		conf_put_str(w, "config", t->config_path);
	target_unlock(t);
	report_pools(w, "buffers", &pools);
	report_resident(w);
	conf_end(w);
	return 0;
}

/* ---- statistics ---- */

static void
put_reactor(struct conf_writer *w, const struct reactor *r)
{
	struct report_pools pools = { 0 };

	conf_begin_object(w, NULL);
	conf_put_u64(w, "id", r->id);
	conf_put_i64(w, "cpu", r->thread.cpu);
	conf_put_u64(w, "connections", r->nr_conns);
	report_loop(w, r->ring, &r->stats);
	report_pools_add(&pools, r->pool);
	report_pools(w, "buffers", &pools);
	conf_end(w);
}

void
put_ns_stats(struct conf_writer *w, const struct target *t, const struct ns *ns)
{
	uint64_t reads = 0, writes = 0, read_bytes = 0, write_bytes = 0, other = 0, errors = 0;
	uint64_t zip_read = 0, zip_write = 0;

	for (unsigned i = 0; i < t->nr_reactors; i++) {
		const struct ns_stats *s = &ns->h[i].stats;

		reads += METER_GET(s->reads);
		writes += METER_GET(s->writes);
		read_bytes += METER_GET(s->read_bytes);
		write_bytes += METER_GET(s->write_bytes);
		other += METER_GET(s->other);
		errors += METER_GET(s->errors);
		zip_read += METER_GET(s->zip_read_bytes);
		zip_write += METER_GET(s->zip_write_bytes);
	}
	conf_put_u64(w, "reads", reads);
	conf_put_u64(w, "writes", writes);
	conf_put_u64(w, "read_bytes", read_bytes);
	conf_put_u64(w, "write_bytes", write_bytes);
	conf_put_u64(w, "other", other);
	conf_put_u64(w, "errors", errors);
	conf_put_u64(w, "compressed_read_bytes", zip_read);
	conf_put_u64(w, "compressed_write_bytes", zip_write);
}

int
verb_stats(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	const struct subsys *s;

	(void)params;
	(void)err;
	conf_begin_object(w, NULL);
	conf_begin_array(w, "reactors");
	for (unsigned i = 0; i < t->nr_reactors; i++)
		put_reactor(w, &t->reactors[i]);
	conf_end(w);
	conf_begin_array(w, "namespaces");
	target_lock(t);
	list_for_each(&t->subsystems, s, node)
		for (unsigned i = 0; i < NS_MAX; i++) {
			if (!s->ns[i])
				continue;
			conf_begin_object(w, NULL);
			conf_put_str(w, "nqn", s->nqn);
			conf_put_u64(w, "nsid", i + 1);
			put_ns_stats(w, t, s->ns[i]);
			conf_end(w);
		}
	target_unlock(t);
	conf_end(w);
	conf_end(w);
	return 0;
}

/* ---- configuration ---- */

/* Settings that are read at start only. */
static void
warn_limits(const struct target *t, const struct config *c)
{
	const struct limits *a = &t->limits, *b = config_limits(c);

	if (a->reactors != b->reactors || a->connections != b->connections ||
	    a->queues != b->queues || a->depth != b->depth || a->controllers != b->controllers ||
	    a->mdts != b->mdts || a->in_capsule != b->in_capsule || a->buffers != b->buffers ||
	    a->poll_us != b->poll_us || a->handshake_ms != b->handshake_ms ||
	    a->header_ms != b->header_ms || a->zero_copy != b->zero_copy ||
	    a->compress != b->compress || a->pin != b->pin)
		log_warn("%s: settings under \"sluice\" changed, they wait for the next start",
		         t->config_path);
}

int
target_reload(struct target *t, struct err *err)
{
	struct config *c;
	int ret;

	if (!t->config_path)
		return err_set(err, -EINVAL, "there is no file: the target was started without -c");
	ret = config_load(t->config_path, &c, err);
	if (ret)
		return ret;
	warn_limits(t, c);
	target_lock(t);
	ret = config_apply(t, c, err);
	target_unlock(t);
	config_free(c);
	if (!ret)
		log_info("%s applied", t->config_path);
	return ret;
}

int
verb_reload(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	(void)params;
	(void)w;
	return target_reload(ctx, err);
}

static char *
dump(struct target *t, struct err *err)
{
	char *text;

	target_lock(t);
	text = config_dump(t);
	target_unlock(t);
	if (!text)
		err_set(err, -ENOMEM, "no memory");
	return text;
}

int
verb_dump_config(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	char *text = dump(ctx, err);
	struct conf *doc;

	(void)params;
	if (!text)
		return -ENOMEM;
	/* Replies are one line: the pretty text is read back. */
	doc = conf_parse(text, "dump", err);
	free(text);
	if (!doc)
		return -EINVAL;
	conf_put_node(w, NULL, conf_root(doc));
	conf_free(doc);
	return 0;
}

int
target_save(struct target *t, const char *path, struct conf_writer *w, struct err *err)
{
	char *text;
	int ret;

	if (!path)
		path = t->config_path;
	if (!path)
		return err_set(err, -EINVAL, "there is no file: say path");
	text = dump(t, err);
	if (!text)
		return -ENOMEM;
	ret = file_replace(path, text, err);
	free(text);
	if (ret)
		return ret;
	conf_begin_object(w, NULL);
	conf_put_str(w, "path", path);
	conf_end(w);
	return 0;
}

int
verb_save(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	const char *path = NULL;
	int ret = conf_get_str(params, "path", 3072, &path, err);

	return ret < 0 ? ret : target_save(ctx, path, w, err);
}

/* ---- the control socket ---- */

enum { CLIENTS_MAX = 32 };

int
verbs_start(struct target *t, const char *path, struct err *err)
{
	struct ctl_server_config cfg = {
		.ring = t->reactors[0].ring,
		.path = path,
		.verbs = target_verbs,
		.ctx = t,
		.max_clients = CLIENTS_MAX,
	};
	int ret;

	ret = ctl_server_new(&cfg, &t->ctl, err);
	if (ret)
		return ret;
	ctl_events_start(&t->events, cfg.ring, t->ctl);
	if (!t->control_path)
		t->control_path = strdup(path);
	return 0;
}

static void
stopped(void *arg)
{
	struct target *t = arg;

	ctl_server_free(t->ctl);
	t->ctl = NULL;
	free(t->control_path);
	t->control_path = NULL;
}

void
verbs_stop(struct target *t)
{
	ctl_events_stop(&t->events);
	if (t->ctl)
		ctl_server_stop(t->ctl, stopped, t);
}
