/* Which namespaces and hosts have limits: the part of the model that limit.c is asked through.
 *
 * Happy path: a limit is made when it is set for the first time, shown to the I/O path by one
 * pointer, and stays; the subsystem's flag tells the I/O path whether to look for limits at all.
 * What can fail is memory. Everything wants the target's lock.
 */
#include "target/limit.h"

#include "target/ctrl.h"
#include "target/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static bool
limits(const struct limit *l)
{
	return l && qos_limited(&l->cfg);
}

void
subsys_count_limits(struct subsys *s)
{
	const struct host_limit *h;
	bool limited = false;

	for (unsigned i = 0; i < NS_MAX && !limited; i++)
		limited = s->ns[i] && limits(s->ns[i]->limit);
	list_for_each (&s->host_limits, h, node)
		limited |= limits(h->limit);
	s->limited = limited;
}

int
ns_set_limit(struct ns *ns, const struct qos_config *q)
{
	struct target *t = ns->subsys->t;
	struct limit *l = ns->limit;

	if (!l && !qos_limited(q))
		return 0;
	if (!l)
		l = limit_new(t->nr_reactors);
	if (!l)
		return -ENOMEM;
	limit_set(l, q, t);
	atomic_store_explicit(&ns->limit, l, memory_order_release);
	subsys_count_limits(ns->subsys);
	return 0;
}

/* ---- hosts ---- */

static struct host_limit *
host_limit_find(const struct subsys *s, const char *hostnqn)
{
	struct host_limit *h;

	list_for_each (&s->host_limits, h, node)
		if (!strcmp(h->nqn, hostnqn))
			return h;
	return NULL;
}

struct limit *
subsys_host_limit(const struct subsys *s, const char *hostnqn)
{
	const struct host_limit *h = host_limit_find(s, hostnqn);

	return h ? h->limit : NULL;
}

static struct host_limit *
host_limit_add(struct subsys *s, const char *hostnqn)
{
	struct host_limit *h = calloc(1, sizeof(*h));
	struct ctrl *c;

	if (!h)
		return NULL;
	h->limit = limit_new(s->t->nr_reactors);
	if (!h->limit) {
		free(h);
		return NULL;
	}
	snprintf(h->nqn, sizeof(h->nqn), "%s", hostnqn);
	list_push_back(&s->host_limits, &h->node);
	list_for_each (&s->ctrls, c, node)
		if (!strcmp(c->hostnqn, hostnqn))
			atomic_store_explicit(&c->limit, h->limit, memory_order_release);
	return h;
}

int
subsys_set_host_limit(struct subsys *s, const char *hostnqn, const struct qos_config *q)
{
	struct host_limit *h = host_limit_find(s, hostnqn);

	if (!h && !qos_limited(q))
		return 0;
	if (!h)
		h = host_limit_add(s, hostnqn);
	if (!h)
		return -ENOMEM;
	limit_set(h->limit, q, s->t);
	subsys_count_limits(s);
	return 0;
}

void
host_limits_free(struct list *limits)
{
	struct host_limit *h, *tmp;

	list_for_each_safe (limits, h, tmp, node) {
		list_del(&h->node);
		limit_free(h->limit);
		free(h);
	}
}
