/* Which paths there are: one for each entry of "hosts", and each way that discovery tells of, that
 * leads to a member of some volume.
 *
 * Happy path: member_find_paths() counts a use of each path to the member's subsystem, making those
 * that are new; paths_settle() lets them connect. When the last member lets go of one,
 * paths_settle() ends it. A path that ends is not given to anybody else. volumes_follow() gives
 * members what is new since. What nobody tells of any more is kept while it works, and as long as
 * it is all that its member has: whoever tells may be wrong, and what is connected is there.
 *
 * What can fail: nothing leads to the member; memory. Reactor 0.
 */
#include "initiator/volume.h"

#include "common/log.h"
#include "initiator/initiator.h"
#include "initiator/ways.h"

#include <errno.h>
#include <stdlib.h>

struct path_use {
	struct list node; /* initiator.path_uses */
	struct path *p;
	unsigned users; /* members */
	bool started;
};

static void changed(struct path *p, void *arg);

static struct path_use *
use_get(struct initiator *in, const struct path_config *cfg, struct err *err)
{
	struct path_use *u;

	list_for_each(&in->path_uses, u, node)
		if (u->users > 0 && path_same_way(path_config(u->p), cfg)) {
			u->users++;
			return u;
		}
	u = calloc(1, sizeof(*u));
	if (!u) {
		err_set(err, -ENOMEM, "no memory for a path");
		return NULL;
	}
	if (path_new(in, cfg, &u->p, err) < 0) {
		free(u);
		return NULL;
	}
	path_watch(u->p, changed, in);
	u->users = 1;
	list_push_back(&in->path_uses, &u->node);
	return u;
}

static void
use_put(struct initiator *in, const struct path *p)
{
	struct path_use *u;

	list_for_each(&in->path_uses, u, node)
		if (u->p == p) {
			u->users--;
			return;
		}
}

/* Calls each() for every way to nqn, until it returns false. False: it has. */
static bool
each_way(const struct initiator *in, const char *nqn,
         bool (*each)(void *arg, const struct path_config *cfg), void *arg)
{
	const struct ways *w;

	for (unsigned i = 0; i < in->nr_hosts; i++)
		if (!in->hosts[i].discovery && !strcmp(in->hosts[i].subnqn, nqn) &&
		    !each(arg, &in->hosts[i]))
			return false;
	list_for_each(&in->ways, w, node)
		for (unsigned i = 0; i < w->nr; i++)
			if (!strcmp(w->to[i].subnqn, nqn) && !each(arg, &w->to[i]))
				return false;
	return true;
}

struct finding {
	struct initiator *in;
	struct member *m;
	unsigned added, left_out;
	struct err err;
};

static bool
find_one(void *arg, const struct path_config *cfg)
{
	struct finding *f = arg;
	struct member *m = f->m;
	unsigned place = m->nr_paths;
	struct path_use *u;

	for (unsigned i = m->nr_paths; i-- > 0;)
		if (!m->paths[i])
			place = i;
		else if (path_same_way(path_config(m->paths[i]), cfg))
			return true;
	if (place == VOLUME_PATHS_MAX) {
		f->left_out++;
		return true;
	}
	u = use_get(f->in, cfg, &f->err);
	if (!u)
		return false;
	m->paths[place] = u->p;
	m->nr_paths = MAX(m->nr_paths, place + 1); /* behind it: others look */
	f->added++;
	return true;
}

static bool
is_discovered(const struct initiator *in)
{
	for (unsigned i = 0; i < in->nr_hosts; i++)
		if (in->hosts[i].discovery)
			return true;
	return false;
}

/* Where there is discovery a member may have no path yet. */
int
member_find_paths(struct initiator *in, struct member *m, struct err *err)
{
	struct finding f = { .in = in, .m = m };

	if (!each_way(in, m->nqn, find_one, &f))
		return err_set(err, f.err.code ? f.err.code : -ENOMEM, "%s", f.err.text);
	if (m->nr_paths == 0 && !is_discovered(in))
		return err_set(err, -ENOENT, "no entry of \"hosts\" leads to subsystem '%s'",
			       m->nqn);
	if (f.left_out > 0 && f.added > 0)
		log_warn("%s: there are %u paths to it, the first %u are used", m->nqn,
			 f.left_out + VOLUME_PATHS_MAX, VOLUME_PATHS_MAX);
	return 0;
}

void
member_put_paths(struct initiator *in, struct member *m)
{
	while (m->nr_paths > 0) {
		m->nr_paths--;
		if (m->paths[m->nr_paths])
			use_put(in, m->paths[m->nr_paths]);
	}
}

/* Starting and stopping may tell of a change at once, which takes the lock: so neither is done
 * under it. */
void
paths_settle(struct initiator *in)
{
	struct path_use *u, *tmp;

	list_for_each_safe(&in->path_uses, u, tmp, node) {
		if (u->users == 0) {
			list_del(&u->node);
			path_unwatch(u->p, changed, in);
			path_stop(u->p, NULL, NULL);
			free(u);
		} else if (!u->started) {
			u->started = true;
			path_start(u->p);
		}
	}
}

/* following */

static bool
is_another_way(void *arg, const struct path_config *cfg)
{
	return !path_same_way(path_config(arg), cfg);
}

static bool
has_live(const struct member *m, const struct path *except)
{
	const struct path *p = member_path(m, except);

	return p && path_state(p) == PATH_LIVE;
}

/* Takes away what nobody tells of, does not work, and is not missed. */
static void
drop_paths(struct initiator *in, struct member *m)
{
	for (unsigned i = 0; i < m->nr_paths; i++) {
		struct path *p = m->paths[i];

		if (!p || path_state(p) == PATH_LIVE || !has_live(m, p) ||
		    !each_way(in, m->nqn, is_another_way, p))
			continue;
		log_info("path %s: nobody tells of it any more, it is taken away", path_name(p));
		m->paths[i] = NULL;
		use_put(in, p);
	}
}

/* Lock held. */
static bool
uses(const struct volume *v, const struct path *p)
{
	for (unsigned i = 0; i < v->nr_members; i++)
		for (unsigned k = 0; k < v->members[i].nr_paths; k++)
			if (v->members[i].paths[k] == p)
				return true;
	return false;
}

void
volume_tell_paths(const struct volume *v)
{
	if (!v->stage || v->stage->cfg.kind != STAGE_COMPRESS)
		return;
	for (unsigned i = 0; i < v->nr_members; i++)
		for (unsigned k = 0; k < v->members[i].nr_paths; k++)
			if (v->members[i].paths[k])
				path_want_zip(v->members[i].paths[k]);
}

static void
changed(struct path *p, void *arg)
{
	struct initiator *in = arg;
	struct volume *v, *tmp;

	list_for_each_safe(&in->volumes, v, tmp, node) {
		if (!uses(v, p))
			continue;
		volume_look(v);
		initiator_lock(in);
		for (unsigned i = 0; i < v->nr_members && !in->stopping; i++)
			drop_paths(in, &v->members[i]);
		initiator_unlock(in);
	}
	paths_settle(in);
}

void
volumes_follow(struct initiator *in)
{
	struct volume *v;

	if (in->stopping)
		return;
	list_for_each(&in->volumes, v, node) {
		struct err err = { 0 };

		initiator_lock(in);
		for (unsigned i = 0; i < v->nr_members; i++) {
			drop_paths(in, &v->members[i]); /* first: it makes room */
			if (member_find_paths(in, &v->members[i], &err) < 0)
				log_error("volume %s: %s", v->name, err.text);
		}
		initiator_unlock(in);
		volume_tell_paths(v);
		volume_look(v); /* for what it waits */
	}
	paths_settle(in);
}

bool
ways_settled(const struct initiator *in)
{
	const struct ways *w;

	list_for_each(&in->ways, w, node)
		if (!w->settled)
			return false;
	return true;
}
