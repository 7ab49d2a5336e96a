/* Control verbs that list the model: one array of flat objects each, so that they print as
 * tables.
 *
 * Connections are reached through their controllers' queues, under the lock; those that have not
 * connected to a controller yet are only counted (status). Nothing can fail.
 */
#include "target/verbs_table.h"

#include "common/meter.h"
#include "target/ctrl.h"
#include "target/ids.h"
#include "target/model.h"

#include <stdio.h>

#define UNUSED_PARAMS (void)params, (void)err

/* ---- subsystems, namespaces, hosts, ports ---- */

static unsigned
count_ns(const struct subsys *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NS_MAX; i++)
		n += s->ns[i] != NULL;
	return n;
}

int
verb_subsystems(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	const struct subsys *s;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	target_lock(t);
	list_for_each(&t->subsystems, s, node) {
		conf_begin_object(w, NULL);
		conf_put_str(w, "nqn", s->nqn);
		conf_put_str(w, "serial", s->serial);
		conf_put_str(w, "model", s->model);
		conf_put_bool(w, "allow_any_host", s->allow_any_host);
		conf_put_u64(w, "namespaces", count_ns(s));
		conf_put_u64(w, "controllers", s->nr_ctrls);
		if (s->ns_dir)
			conf_put_str(w, "ns_dir", s->ns_dir);
		conf_end(w);
	}
	target_unlock(t);
	conf_end(w);
	return 0;
}

static void
put_ns(struct conf_writer *w, const struct ns *ns)
{
	struct ids_text id;

	conf_begin_object(w, NULL);
	conf_put_str(w, "nqn", ns->subsys->nqn);
	conf_put_u64(w, "nsid", ns->nsid);
	conf_put_u64(w, "size", ns->blocks << ns->lba_shift);
	conf_put_u64(w, "block_size", UINT64_C(1) << ns->lba_shift);
	conf_put_str(w, "device", ns->spec);
	conf_put_str(w, "backend", ns->be->how);
	conf_put_str(w, "uuid", ids_format(&id, ns->uuid, 16));
	if (ids_set(ns->nguid, 16))
		conf_put_str(w, "nguid", ids_format(&id, ns->nguid, 16));
	if (ids_set(ns->eui64, 8))
		conf_put_str(w, "eui64", ids_format(&id, ns->eui64, 8));
	conf_put_bool(w, "readonly", ns->be->readonly);
	conf_put_bool(w, "write_protected", ns->write_protected);
	conf_put_bool(w, "managed", ns->managed);
	conf_put_bool(w, "auto_attach", ns->auto_attach);
	conf_end(w);
}

int
verb_namespaces(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	const struct subsys *s;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	target_lock(t);
	list_for_each(&t->subsystems, s, node)
		for (unsigned i = 0; i < NS_MAX; i++)
			if (s->ns[i])
				put_ns(w, s->ns[i]);
	target_unlock(t);
	conf_end(w);
	return 0;
}

int
verb_hosts(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	const struct subsys *s;
	const struct host *h;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	target_lock(t);
	list_for_each(&t->subsystems, s, node)
		list_for_each(&s->hosts, h, node) {
			conf_begin_object(w, NULL);
			conf_put_str(w, "nqn", s->nqn);
			conf_put_str(w, "host", h->nqn);
			conf_end(w);
		}
	target_unlock(t);
	conf_end(w);
	return 0;
}

static void
put_port(struct conf_writer *w, const struct port *p)
{
	const struct port_link *l;
	const struct referral *r;

	conf_begin_object(w, NULL);
	conf_put_u64(w, "portid", p->id);
	conf_put_str(w, "traddr", p->traddr);
	conf_put_u64(w, "port", p->bound_port);
	conf_put_bool(w, "listening", p->listener != NULL);
	conf_put_bool(w, "discovery_only", p->implicit_discovery);
	conf_begin_array(w, "subsystems");
	list_for_each(&p->links, l, node)
		conf_put_str(w, NULL, l->subsys->nqn);
	conf_end(w);
	conf_begin_array(w, "referrals");
	list_for_each(&p->referrals, r, node)
		conf_put_fmt(w, NULL, r->ipv6 ? "[%s]:%s" : "%s:%s", r->traddr, r->trsvcid);
	conf_end(w);
	conf_end(w);
}

int
verb_ports(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	const struct port *p;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	target_lock(t);
	list_for_each(&t->ports, p, node)
		put_port(w, p);
	target_unlock(t);
	conf_end(w);
	return 0;
}

/* ---- controllers, connections ---- */

typedef void ctrl_fn(struct conf_writer *w, const struct ctrl *c);

/* Every controller, those of the discovery subsystem last. */
static void
for_each_ctrl(struct target *t, struct conf_writer *w, ctrl_fn *fn)
{
	const struct subsys *s;
	const struct ctrl *c;

	target_lock(t);
	list_for_each(&t->subsystems, s, node)
		list_for_each(&s->ctrls, c, node)
			fn(w, c);
	list_for_each(&t->discovery->ctrls, c, node)
		fn(w, c);
	target_unlock(t);
}

static void
put_ctrl(struct conf_writer *w, const struct ctrl *c)
{
	struct ids_text id;
	unsigned queues = 0;

	for (unsigned i = 1; i <= CTRL_QUEUES_MAX; i++)
		queues += c->queues[i] != NULL;
	conf_begin_object(w, NULL);
	conf_put_str(w, "nqn", c->subsys->nqn);
	conf_put_u64(w, "cntlid", c->cntlid);
	conf_put_str(w, "host", c->hostnqn);
	conf_put_str(w, "hostid", ids_format(&id, c->hostid, 16));
	conf_put_str(w, "peer", c->queues[0] ? c->queues[0]->peer : "");
	conf_put_u64(w, "queues", queues);
	conf_put_u64(w, "kato_ms", c->kato_ms);
	conf_put_bool(w, "enabled", c->csts & 1);
	conf_put_bool(w, "dead", c->dead);
	conf_put_u64(w, "errors", c->nr_errors);
	conf_end(w);
}

int
verb_controllers(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	for_each_ctrl(ctx, w, put_ctrl);
	conf_end(w);
	return 0;
}

/* A connection of ctrl. It lives on another reactor, where Connect may not have come to its end:
 * c->ctrl is not there yet. */
static void
put_conn(struct conf_writer *w, const struct ctrl *ctrl, unsigned qid, const struct conn *c)
{
	conf_begin_object(w, NULL);
	conf_put_u64(w, "id", c->id);
	conf_put_str(w, "peer", c->peer);
	conf_put_str(w, "local", c->local);
	conf_put_str(w, "state", conn_state_name(c));
	conf_put_str(w, "nqn", ctrl->subsys->nqn);
	conf_put_u64(w, "cntlid", ctrl->cntlid);
	conf_put_u64(w, "qid", qid);
	conf_put_u64(w, "depth", METER_GET(c->sqsize) + 1u);
	conf_put_u64(w, "reactor", c->r->id);
	conf_put_u64(w, "commands", METER_GET(c->nr_done));
	conf_put_u64(w, "in_flight", METER_GET(c->nr_cmds));
	conf_put_bool(w, "header_digest", c->in.terms.hdgst);
	conf_put_bool(w, "data_digest", c->in.terms.ddgst);
	conf_end(w);
}

static void
put_conns(struct conf_writer *w, const struct ctrl *c)
{
	for (unsigned i = 0; i <= CTRL_QUEUES_MAX; i++)
		if (c->queues[i])
			put_conn(w, c, i, c->queues[i]);
}

int
verb_connections(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	for_each_ctrl(ctx, w, put_conns);
	conf_end(w);
	return 0;
}
