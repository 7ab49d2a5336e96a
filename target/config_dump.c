/* The running configuration in the JSON that config_load() reads.
 *
 * Happy path: hosts are the union of all access lists, then ports, subsystems and settings, each
 * with the words that nvmetcli uses. Ids are written as they are served, so that they stay when
 * a path changes. Managed namespaces are left out: their directory describes them. What can fail
 * is memory: NULL.
 */
#include "target/config.h"

#include "common/conf_write.h"
#include "common/units.h"
#include "target/config_plain.h"
#include "target/ids.h"
#include "target/model.h"

#include <stdlib.h>

/* ---- hosts ---- */

/* Is hostnqn in the list of a subsystem before s, or before h in s's own? */
static bool
told_before(struct target *t, const struct subsys *upto, const char *hostnqn)
{
	const struct subsys *s;
	const struct host *h;

	list_for_each(&t->subsystems, s, node) {
		if (s == upto)
			return false;
		list_for_each(&s->hosts, h, node)
			if (!strcmp(h->nqn, hostnqn))
				return true;
	}
	return false;
}

static void
dump_hosts(struct conf_writer *w, struct target *t)
{
	const struct subsys *s;
	const struct host *h;

	conf_begin_array(w, "hosts");
	list_for_each(&t->subsystems, s, node)
		list_for_each(&s->hosts, h, node) {
			if (told_before(t, s, h->nqn))
				continue;
			conf_begin_object(w, NULL);
			conf_put_str(w, "nqn", h->nqn);
			conf_end(w);
		}
	conf_end(w);
}

/* ---- ports ---- */

static void
dump_addr(struct conf_writer *w, bool ipv6, const char *traddr, const char *trsvcid)
{
	conf_put_str(w, "adrfam", ipv6 ? "ipv6" : "ipv4");
	conf_put_str(w, "traddr", traddr);
	conf_put_str(w, "treq", "not specified");
	conf_put_str(w, "trsvcid", trsvcid);
	conf_put_str(w, "trtype", "tcp");
}

static void
dump_port(struct conf_writer *w, const struct port *p)
{
	const struct port_link *l;
	const struct referral *r;

	conf_begin_object(w, NULL);
	conf_begin_object(w, "addr");
	dump_addr(w, p->ipv6, p->traddr, p->trsvcid);
	conf_end(w);
	conf_put_u64(w, "portid", p->id);
	conf_begin_array(w, "referrals");
	list_for_each(&p->referrals, r, node) {
		conf_begin_object(w, NULL);
		conf_begin_object(w, "addr");
		dump_addr(w, r->ipv6, r->traddr, r->trsvcid);
		conf_put_u64(w, "portid", r->portid);
		conf_end(w);
		conf_put_u64(w, "enable", 1);
		conf_put_str(w, "name", r->name);
		conf_end(w);
	}
	conf_end(w);
	conf_begin_array(w, "subsystems");
	list_for_each(&p->links, l, node)
		conf_put_str(w, NULL, l->subsys->nqn);
	conf_end(w);
	conf_end(w);
}

/* ---- subsystems ---- */

static void
dump_device(struct conf_writer *w, const struct ns *ns, const struct backend_ops *ops,
            const struct backend_spec *spec)
{
	struct units_text size;
	struct ids_text id;

	conf_begin_object(w, "device");
	conf_put_str(w, "nguid", ids_format(&id, ns->nguid, 16));
	if (spec->path)
		conf_put_str(w, "path", spec->path);
	else
		conf_put_fmt(w, "path", "%s:%s", ops->name, units_size(&size, ns->be->size));
	conf_put_str(w, "uuid", ids_format(&id, ns->uuid, 16));
	if (ids_set(ns->eui64, 8))
		conf_put_str(w, "eui64", ids_format(&id, ns->eui64, 8));
	conf_end(w);
}

/* NULL: there never was one. */
static void
dump_limit(struct conf_writer *w, const struct limit *l)
{
	if (l && qos_limited(&l->cfg))
		qos_put(w, "qos", &l->cfg);
}

static void
dump_ns(struct conf_writer *w, const struct ns *ns)
{
	char *path = malloc(strlen(ns->spec) + 1);
	const struct backend_ops *ops;
	struct backend_spec spec;
	struct units_text size;

	if (!path || backend_spec_parse(ns->spec, path, strlen(ns->spec) + 1, &ops, &spec, NULL)) {
		free(path);
		w->failed = true;
		return;
	}
	conf_begin_object(w, NULL);
	dump_device(w, ns, ops, &spec);
	conf_put_u64(w, "enable", 1);
	conf_put_u64(w, "nsid", ns->nsid);
	conf_begin_object(w, "sluice");
	conf_put_u64(w, "block_size", UINT64_C(1) << ns->lba_shift);
	if (spec.direct != DIRECT_AUTO)
		conf_put_str(w, "direct", spec.direct == DIRECT_ON ? "on" : "off");
	if (spec.readonly)
		conf_put_bool(w, "readonly", true);
	if (spec.path && spec.size)
		conf_put_str(w, "size", units_size(&size, ns->be->size));
	dump_limit(w, ns->limit);
	conf_end(w);
	conf_end(w);
	free(path);
}

static bool
has_host_limits(const struct subsys *s)
{
	const struct host_limit *h;

	list_for_each (&s->host_limits, h, node)
		if (qos_limited(&h->limit->cfg))
			return true;
	return false;
}

static void
dump_own(struct conf_writer *w, const struct subsys *s)
{
	const struct host_limit *h;

	conf_begin_object(w, "sluice");
	if (s->ns_dir) {
		conf_put_str(w, "ns_dir", s->ns_dir);
		conf_put_u64(w, "ns_dir_limit", s->ns_dir_limit);
	}
	if (has_host_limits(s))
		conf_begin_array(w, "hosts");
	list_for_each (&s->host_limits, h, node) {
		if (!qos_limited(&h->limit->cfg))
			continue;
		conf_begin_object(w, NULL);
		conf_put_str(w, "nqn", h->nqn);
		dump_limit(w, h->limit);
		conf_end(w);
	}
	if (has_host_limits(s))
		conf_end(w);
	conf_end(w);
}

static void
dump_subsys(struct conf_writer *w, const struct subsys *s)
{
	const struct host *h;

	conf_begin_object(w, NULL);
	conf_begin_array(w, "allowed_hosts");
	list_for_each(&s->hosts, h, node)
		conf_put_str(w, NULL, h->nqn);
	conf_end(w);
	conf_begin_object(w, "attr");
	conf_put_str(w, "allow_any_host", s->allow_any_host ? "1" : "0");
	conf_put_fmt(w, "cntlid_max", "%u", s->cntlid_max);
	conf_put_fmt(w, "cntlid_min", "%u", s->cntlid_min);
	conf_put_str(w, "model", s->model);
	conf_put_str(w, "serial", s->serial);
	conf_end(w);
	conf_begin_array(w, "namespaces");
	for (unsigned i = 0; i < NS_MAX; i++)
		if (s->ns[i] && !s->ns[i]->managed)
			dump_ns(w, s->ns[i]);
	conf_end(w);
	conf_put_str(w, "nqn", s->nqn);
	if (s->ns_dir || has_host_limits(s))
		dump_own(w, s);
	conf_end(w);
}

/* ---- settings ---- */

static void
dump_settings(struct conf_writer *w, const struct target *t)
{
	static const char *const zc[] = { "auto", "always", "never" };
	const struct limits *l = &t->limits;
	struct units_text size;

	conf_begin_object(w, "sluice");
	conf_put_u64(w, "reactors", l->reactors);
	conf_put_u64(w, "connections", l->connections);
	conf_put_u64(w, "queues", l->queues);
	conf_put_u64(w, "depth", l->depth);
	conf_put_u64(w, "controllers", l->controllers);
	conf_put_str(w, "mdts", units_size(&size, l->mdts));
	conf_put_str(w, "in_capsule", units_size(&size, l->in_capsule));
	conf_put_str(w, "buffers", units_size(&size, l->buffers));
	conf_put_u64(w, "poll_us", l->poll_us);
	conf_put_fmt(w, "handshake_timeout", "%ums", l->handshake_ms);
	conf_put_fmt(w, "header_timeout", "%ums", l->header_ms);
	conf_put_str(w, "zero_copy", zc[l->zero_copy]);
	conf_put_bool(w, "compress", l->compress);
	conf_put_bool(w, "pin", l->pin);
	if (t->control_path)
		conf_put_str(w, "control", t->control_path);
	/* The default one is only tried; writing it down would make its failure an error. */
	if (t->discovery_explicit || !t->discovery_port)
		conf_put_u64(w, "discovery_port", t->discovery_port);
	conf_end(w);
}

char *
config_dump(struct target *t)
{
	const struct subsys *s;
	const struct port *p;
	struct conf_writer w;

	conf_writer_init(&w, true);
	conf_begin_object(&w, NULL);
	dump_hosts(&w, t);
	conf_begin_array(&w, "ports");
	list_for_each(&t->ports, p, node)
		if (!p->implicit_discovery)
			dump_port(&w, p);
	conf_end(&w);
	conf_begin_array(&w, "subsystems");
	list_for_each(&t->subsystems, s, node)
		dump_subsys(&w, s);
	conf_end(&w);
	dump_settings(&w, t);
	conf_end(&w);
	return conf_writer_take(&w);
}
