/* Subsystems: who is served, and who may come.
 *
 * Happy path: subsys_new() makes one that nobody sees, subsys_publish() lists it; controllers
 * and namespaces count themselves in; subsys_remove() takes it out of the list and of every
 * port, kills its controllers, and the last reference frees it. What can fail: names that are no
 * names, names twice, no memory. Everything wants the target's lock.
 */
#include "target/subsys.h"

#include "common/log.h"
#include "target/ctrl.h"
#include "target/ids.h"
#include "target/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const char *
nqn_fault(const char *nqn)
{
	size_t n = strlen(nqn);

	if (n == 0)
		return "is empty";
	if (n > NVME_NQN_MAX)
		return "is longer than 223 bytes";
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)nqn[i] < 0x20 || nqn[i] == 0x7f)
			return "has a control character";
	return NULL;
}

/* ---- pieces ---- */

struct host *
host_new(const char *nqn)
{
	struct host *h = calloc(1, sizeof(*h));

	if (h)
		snprintf(h->nqn, sizeof(h->nqn), "%s", nqn);
	return h;
}

void
hosts_free(struct list *hosts)
{
	struct host *h, *tmp;

	list_for_each_safe(hosts, h, tmp, node) {
		list_del(&h->node);
		free(h);
	}
}

struct subsys *
subsys_new(struct target *t, const char *nqn, struct err *err)
{
	const char *fault = nqn_fault(nqn);
	struct subsys *s;

	if (fault) {
		err_set(err, -EINVAL, "the name of the subsystem %s", fault);
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		err_set(err, -ENOMEM, "no memory for subsystem %s", nqn);
		return NULL;
	}
	list_init(&s->node);
	list_init(&s->hosts);
	list_init(&s->host_limits);
	list_init(&s->ctrls);
	s->t = t;
	snprintf(s->nqn, sizeof(s->nqn), "%s", nqn);
	ids_derive_serial(s->serial, nqn);
	snprintf(s->model, sizeof(s->model), "Sluice");
	s->cntlid_min = 1;
	s->cntlid_max = 0xffef;
	s->next_cntlid = s->cntlid_min;
	s->refs = 1;
	return s;
}

void
subsys_publish(struct subsys *s)
{
	list_push_back(&s->t->subsystems, &s->node);
}

void
subsys_free(struct subsys *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < NS_MAX; i++)
		ns_free(s->ns[i]);
	hosts_free(&s->hosts);
	host_limits_free(&s->host_limits);
	list_del(&s->node);
	free(s->ns_dir);
	free(s);
}

/* ---- the model ---- */

int
target_model_init(struct target *t, struct err *err)
{
	int ret = -pthread_mutex_init(&t->lock, NULL);
	struct timespec now;

	if (ret)
		return err_set(err, ret, "cannot make a lock");
	clock_gettime(CLOCK_MONOTONIC, &now);
	t->started_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	list_init(&t->subsystems);
	list_init(&t->ports);
	t->discovery = subsys_new(t, DISCOVERY_NQN, err);
	if (!t->discovery)
		return -ENOMEM;
	t->discovery->discovery = true;
	t->discovery->allow_any_host = true;
	return 0;
}

void
target_model_fini(struct target *t)
{
	struct subsys *s, *stmp;
	struct port *p, *ptmp;

	list_for_each_safe(&t->ports, p, ptmp, node)
		port_free(p);
	list_for_each_safe(&t->subsystems, s, stmp, node)
		subsys_free(s);
	subsys_free(t->discovery);
	t->discovery = NULL;
	pthread_mutex_destroy(&t->lock);
}

struct subsys *
subsys_find(struct target *t, const char *nqn)
{
	struct subsys *s;

	if (!strcmp(nqn, t->discovery->nqn))
		return t->discovery;
	list_for_each(&t->subsystems, s, node)
		if (!strcmp(s->nqn, nqn))
			return s;
	return NULL;
}

struct subsys *
subsys_add(struct target *t, const char *nqn, struct err *err)
{
	struct subsys *s;

	if (subsys_find(t, nqn)) {
		err_set(err, -EEXIST, "subsystem %s exists already", nqn);
		return NULL;
	}
	s = subsys_new(t, nqn, err);
	if (s)
		subsys_publish(s);
	return s;
}

void
subsys_get(struct subsys *s)
{
	s->refs++;
}

void
subsys_put(struct subsys *s)
{
	if (--s->refs == 0)
		subsys_free(s);
}

static void
unlink_everywhere(struct subsys *s)
{
	struct port_link *l, *tmp;
	struct port *p;

	list_for_each(&s->t->ports, p, node)
		list_for_each_safe(&p->links, l, tmp, node)
			if (l->subsys == s) {
				list_del(&l->node);
				free(l);
			}
}

void
subsys_remove(struct reactor *from, struct subsys *s)
{
	struct ctrl *c, *tmp;

	if (s->gone)
		return;
	s->gone = true;
	list_del(&s->node);
	unlink_everywhere(s);
	for (unsigned i = 0; i < NS_MAX; i++)
		if (s->ns[i])
			ns_remove(from, s->ns[i]);
	list_for_each_safe(&s->ctrls, c, tmp, node)
		ctrl_kill(c, "its subsystem was removed");
	ctrl_discovery_changed(from, s->t);
	log_info("subsystem %s removed", s->nqn);
	subsys_put(s);
}

/* ---- access ---- */

static struct host *
host_find(const struct subsys *s, const char *hostnqn)
{
	struct host *h;

	list_for_each(&s->hosts, h, node)
		if (!strcmp(h->nqn, hostnqn))
			return h;
	return NULL;
}

bool
subsys_allows(const struct subsys *s, const char *hostnqn)
{
	return s->allow_any_host || host_find(s, hostnqn);
}

int
subsys_allow(struct reactor *from, struct subsys *s, const char *hostnqn, struct err *err)
{
	const char *fault = nqn_fault(hostnqn);
	struct host *h;

	if (fault)
		return err_set(err, -EINVAL, "the name of the host %s", fault);
	if (host_find(s, hostnqn))
		return err_set(err, -EEXIST, "host %s is allowed already", hostnqn);
	h = host_new(hostnqn);
	if (!h)
		return err_set(err, -ENOMEM, "no memory for host %s", hostnqn);
	list_push_back(&s->hosts, &h->node);
	ctrl_discovery_changed(from, s->t);
	return 0;
}

int
subsys_disallow(struct reactor *from, struct subsys *s, const char *hostnqn, struct err *err)
{
	struct host *h = host_find(s, hostnqn);

	if (!h)
		return err_set(err, -ENOENT, "host %s is not in the list of %s", hostnqn, s->nqn);
	list_del(&h->node);
	free(h);
	subsys_enforce(s);
	ctrl_discovery_changed(from, s->t);
	return 0;
}

void
subsys_enforce(struct subsys *s)
{
	struct ctrl *c, *tmp;

	list_for_each_safe(&s->ctrls, c, tmp, node) {
		const struct conn *admin = c->queues[0];

		if (!subsys_allows(s, c->hostnqn))
			ctrl_kill(c, "its host is no longer allowed");
		else if (admin && !port_serves(admin->port, s))
			ctrl_kill(c, "its port no longer serves the subsystem");
	}
}
