/* Brings the running model to what a configuration says.
 *
 * Happy path: a plan opens and binds everything that is new (config_plan.c,
 * config_plan_ports.c); then, with nothing left that can fail, the old leaves and the new is
 * shown, and hosts are told once. What can fail: making the plan; it is forgotten then, and
 * nothing has changed.
 */
#include "target/config_plan.h"

#include "common/log.h"
#include "target/ctrl.h"
#include "target/model.h"
#include "target/ns_store.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what differs ---- */

static bool
hosts_equal(const struct list *a, const struct list *b)
{
	unsigned na = 0, nb = 0, found = 0;
	const struct host *x, *y;

	list_for_each(b, y, node)
		nb++;
	list_for_each(a, x, node) {
		na++;
		list_for_each(b, y, node)
			found += !strcmp(x->nqn, y->nqn);
	}
	return na == nb && found == na;
}

static bool
links_equal(const struct list *a, const struct list *b)
{
	unsigned na = 0, nb = 0, found = 0;
	const struct port_link *x, *y;

	list_for_each(b, y, node)
		nb++;
	list_for_each(a, x, node) {
		na++;
		list_for_each(b, y, node)
			found += x->subsys == y->subsys;
	}
	return na == nb && found == na;
}

static bool
referrals_equal(const struct list *a, const struct list *b)
{
	const struct list *i = a->next, *k = b->next;

	for (; i != a && k != b; i = i->next, k = k->next) {
		const struct referral *x = list_entry(i, const struct referral, node);
		const struct referral *y = list_entry(k, const struct referral, node);

		if (strcmp(x->name, y->name) || x->portid != y->portid ||
		    strcmp(x->traddr, y->traddr) || strcmp(x->trsvcid, y->trsvcid))
			return false;
	}
	return i == a && k == b;
}

static void
list_swap(struct list *a, struct list *b)
{
	struct list tmp = LIST_INIT(tmp);

	list_splice_back(&tmp, a);
	list_splice_back(a, b);
	list_splice_back(b, &tmp);
}

/* ---- what leaves ---- */

static bool
is_planned(const struct plan *plan, const struct subsys *s)
{
	const struct plan_subsys *ps;

	list_for_each(&plan->subsystems, ps, node)
		if (ps->s == s)
			return true;
	return false;
}

static void
remove_subsystems(struct plan *plan, struct reactor *from)
{
	struct subsys *s, *tmp;

	list_for_each_safe(&plan->t->subsystems, s, tmp, node)
		if (!is_planned(plan, s))
			subsys_remove(from, s);
}

static void
remove_ports(struct plan *plan, struct reactor *from)
{
	struct plan_drop *d, *tmp;

	list_for_each_safe(&plan->drops, d, tmp, node) {
		port_remove(from, d->p);
		free(d);
	}
	list_init(&plan->drops);
}

static bool
config_has_ns(const struct config_subsys *cfg, uint32_t nsid)
{
	for (unsigned i = 0; i < cfg->nr_ns; i++)
		if (cfg->ns[i].ns.nsid == nsid)
			return true;
	return false;
}

static bool
same_dir(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static void
remove_namespaces(struct plan_subsys *ps, struct reactor *from)
{
	bool dir_stays = same_dir(ps->s->ns_dir, ps->ns_dir);

	for (unsigned i = 0; i < NS_MAX; i++) {
		struct ns *ns = ps->s->ns[i];

		if (ns && (ns->managed ? !dir_stays : !config_has_ns(ps->cfg, i + 1)))
			ns_remove(from, ns);
	}
}

/* ---- what comes and changes ---- */

static void
commit_namespaces(struct plan_subsys *ps, struct reactor *from)
{
	struct plan_resize *r;
	struct plan_ns *pn;

	list_for_each(&ps->nss, pn, node) {
		if (pn->old)
			ns_remove(from, pn->old);
		ns_publish(from, ps->s, pn->fresh);
		pn->fresh = NULL;
	}
	list_for_each(&ps->resizes, r, node) {
		struct err err = { 0 };

		if (r->bytes && ns_resize(from, r->ns, r->bytes, &err))
			log_error("namespace %u of %s keeps its size: %s", r->ns->nsid, ps->s->nqn,
			          err.text);
		free(r->ns->spec);
		r->ns->spec = r->spec;
		r->spec = NULL;
	}
}

static void
note(int ret, const struct subsys *s)
{
	if (ret)
		log_error("subsystem %s: no memory for limits, they are left out", s->nqn);
}

/* Limits are what the file says; those of namespaces that hosts have made stay. */
static void
commit_limits(struct plan_subsys *ps)
{
	const struct config_subsys *cfg = ps->cfg;
	struct subsys *s = ps->s;
	struct host_limit *h;

	for (unsigned i = 0; i < cfg->nr_ns; i++) {
		struct ns *ns = s->ns[cfg->ns[i].ns.nsid - 1];

		if (!ns->limit || !qos_same(&ns->limit->cfg, &cfg->ns[i].qos))
			note(ns_set_limit(ns, &cfg->ns[i].qos), s);
	}
	list_for_each (&s->host_limits, h, node) {
		struct qos_config q;
		bool is_there = false;

		qos_init(&q);
		for (unsigned i = 0; i < cfg->nr_limits; i++)
			is_there |= !strcmp(cfg->limits[i].nqn, h->nqn);
		if (!is_there)
			limit_set(h->limit, &q, s->t);
	}
	for (unsigned i = 0; i < cfg->nr_limits; i++) {
		struct limit *l = subsys_host_limit(s, cfg->limits[i].nqn);

		if (!l || !qos_same(&l->cfg, &cfg->limits[i].qos))
			note(subsys_set_host_limit(s, cfg->limits[i].nqn, &cfg->limits[i].qos), s);
	}
	subsys_count_limits(s);
}

static void
commit_ns_dir(struct plan_subsys *ps, struct reactor *from)
{
	struct subsys *s = ps->s;
	bool changed = !same_dir(s->ns_dir, ps->ns_dir);
	struct err err = { 0 };
	char *old = s->ns_dir;

	s->ns_dir_limit = ps->cfg->ns_dir_limit;
	if (!changed)
		return;
	s->ns_dir = ps->ns_dir;
	ps->ns_dir = old;
	if (s->ns_dir && ns_store_load(from, s, &err))
		log_error("subsystem %s: %s", s->nqn, err.text);
}

/* Returns whether the discovery log differs. */
static bool
commit_subsys(struct plan_subsys *ps, struct reactor *from)
{
	const struct config_subsys *cfg = ps->cfg;
	struct subsys *s = ps->s;
	bool visible = ps->fresh || s->allow_any_host != cfg->allow_any_host ||
	               !hosts_equal(&s->hosts, &ps->hosts);

	snprintf(s->serial, sizeof(s->serial), "%s", cfg->serial);
	snprintf(s->model, sizeof(s->model), "%s", cfg->model);
	s->allow_any_host = cfg->allow_any_host;
	if (ps->fresh || s->cntlid_min != cfg->cntlid_min || s->cntlid_max != cfg->cntlid_max)
		s->next_cntlid = cfg->cntlid_min;
	s->cntlid_min = cfg->cntlid_min;
	s->cntlid_max = cfg->cntlid_max;
	list_swap(&s->hosts, &ps->hosts);
	if (ps->fresh)
		subsys_publish(s);
	ps->fresh = false;
	remove_namespaces(ps, from);
	commit_namespaces(ps, from);
	commit_limits(ps);
	commit_ns_dir(ps, from);
	return visible;
}

static bool
commit_port(struct plan_port *pp)
{
	struct port *p = pp->p;
	bool visible = pp->fresh || !links_equal(&p->links, &pp->links) ||
	               !referrals_equal(&p->referrals, &pp->referrals);

	list_swap(&p->links, &pp->links);
	list_swap(&p->referrals, &pp->referrals);
	if (pp->fresh)
		port_publish(p);
	pp->fresh = false;
	return visible;
}

void
plan_commit(struct plan *plan)
{
	struct target *t = plan->t;
	struct reactor *from = &t->reactors[0];
	struct plan_subsys *ps;
	struct plan_port *pp;
	bool visible = false;

	remove_subsystems(plan, from);
	remove_ports(plan, from);
	t->discovery_port = plan->c->discovery_port;
	t->discovery_explicit = plan->c->discovery_explicit;
	list_for_each(&plan->subsystems, ps, node)
		visible |= commit_subsys(ps, from);
	list_for_each(&plan->ports, pp, node)
		visible |= commit_port(pp);
	list_for_each(&plan->subsystems, ps, node)
		subsys_enforce(ps->s);
	if (visible)
		ctrl_discovery_changed(from, t);
}

int
config_apply(struct target *t, const struct config *c, struct err *err)
{
	struct plan plan;
	int ret;

	ret = plan_make(&plan, t, c, err);
	if (ret)
		err_prefix(err, ret, "%s", c->name);
	else
		plan_commit(&plan);
	plan_free(&plan);
	return ret;
}
