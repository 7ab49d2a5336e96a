/* Volumes: adding, removing, counting. Whether one is ready is decided in volume_look.c, its paths
 * are volume_paths.c's.
 *
 * Happy path: volume_add() judges the configuration against the volumes that are there, gives each
 * member its paths, lists the volume, and lets the paths connect. What can fail: a namespace that
 * is a member already, no path to one, memory; nothing has changed then.
 */
#include "initiator/volume.h"

#include "common/log.h"
#include "initiator/initiator.h"
#include "initiator/seal.h"
#include "initiator/vm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *
volume_state_name(enum volume_state s)
{
	static const char *const names[] = {"waiting", "ready", "failed"};

	return names[s];
}

struct volume *
volume_find(const struct initiator *in, const char *name)
{
	struct volume *v;

	list_for_each(&in->volumes, v, node)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

const struct volume *
volume_of_member(const struct initiator *in, const char *nqn, uint32_t nsid)
{
	const struct volume *v;

	list_for_each(&in->volumes, v, node)
		for (unsigned i = 0; i < v->nr_members; i++)
			if (v->members[i].nsid == nsid && !strcmp(v->members[i].nqn, nqn))
				return v;
	return NULL;
}

bool
volume_same(const struct volume *v, const struct volume_config *cfg)
{
	struct stage_config stage = v->stage ? v->stage->cfg : (struct stage_config){ 0 };

	if (v->block != cfg->block || v->max_part != cfg->max_part || v->merge != cfg->merge ||
	    v->nr_members != cfg->nr_members || !stage_config_same(&stage, &cfg->stage))
		return false;
	for (unsigned i = 0; i < v->nr_members; i++)
		if (v->members[i].nsid != cfg->members[i].nsid ||
		    strcmp(v->members[i].nqn, cfg->members[i].nqn))
			return false;
	return true;
}

static void
volume_free(struct volume *v)
{
	for (unsigned i = 0; i < v->nr_members; i++)
		member_put_paths(v->in, &v->members[i]);
	seal_free(v->seal); /* before the stage that it uses */
	stage_free(v->stage);
	sched_node_free(v->qos);
	free(v->members);
	free(v);
}

static struct volume *
volume_new(struct initiator *in, const struct volume_config *cfg)
{
	struct volume *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->members = calloc(cfg->nr_members, sizeof(*v->members));
	v->qos = sched_node_new(in->nr_reactors);
	if (!v->members || !v->qos) {
		sched_node_free(v->qos);
		free(v->members);
		free(v);
		return NULL;
	}
	if (in->capacity && qos_limited(&in->capacity->cfg))
		v->limits = 1;
	list_init(&v->node);
	v->in = in;
	snprintf(v->name, sizeof(v->name), "%s", cfg->name);
	snprintf(v->why, sizeof(v->why), "its targets are being connected");
	v->block = cfg->block;
	v->max_part = cfg->max_part;
	v->merge = cfg->merge;
	v->refs = 1;
	for (; v->nr_members < cfg->nr_members; v->nr_members++) {
		struct member *m = &v->members[v->nr_members];

		snprintf(m->nqn, sizeof(m->nqn), "%s", cfg->members[v->nr_members].nqn);
		m->nsid = cfg->members[v->nr_members].nsid;
	}
	return v;
}

static int
check_new(const struct initiator *in, const struct volume_config *cfg, struct err *err)
{
	if (volume_find(in, cfg->name))
		return err_set(err, -EEXIST, "there is a volume '%s' already", cfg->name);
	for (unsigned i = 0; i < cfg->nr_members; i++) {
		const struct member_config *m = &cfg->members[i];
		const struct volume *other = volume_of_member(in, m->nqn, m->nsid);

		if (other)
			return err_set(err, -EEXIST,
				       "namespace %u of %s is a member of volume '%s'", m->nsid,
				       m->nqn, other->name);
	}
	return 0;
}

static int
add(struct initiator *in, const struct volume_config *cfg, struct volume **ret, struct err *err)
{
	struct volume *v;
	int res = check_new(in, cfg, err);

	if (res)
		return res;
	v = volume_new(in, cfg);
	if (!v)
		return err_set(err, -ENOMEM, "no memory for volume '%s'", cfg->name);
	res = stage_new(&cfg->stage, in->nr_reactors, cfg->max_part, &v->stage, err);
	if (!res && cfg->stage.crypt.seal && !(v->seal = seal_new(v)))
		res = err_set(err, -ENOMEM, "no memory");
	for (unsigned i = 0; i < v->nr_members && !res; i++)
		res = member_find_paths(in, &v->members[i], err);
	if (res) {
		volume_free(v);
		return err_prefix(err, res, "volume '%s'", cfg->name);
	}
	list_push_back(&in->volumes, &v->node);
	*ret = v;
	return 0;
}

int
volume_add(struct initiator *in, const struct volume_config *cfg, struct volume **ret,
	   struct err *err)
{
	struct volume *v = NULL;
	int res;

	initiator_lock(in);
	res = add(in, cfg, &v, err);
	initiator_unlock(in);
	if (!res)
		volume_tell_paths(v);
	paths_settle(in);
	if (res)
		return res;
	volume_set_qos(v, &cfg->qos);
	volume_look(v); /* its paths may be other volumes' and long since live */
	if (ret)
		*ret = v;
	return 0;
}

void
volume_set_qos(struct volume *v, const struct qos_config *q)
{
	bool was = qos_limited(&v->qos->cfg), is = qos_limited(q);

	if (!was && !is)
		return;
	sched_set(v->qos, q, ring_now(v->in->reactors[0].ring));
	if (is && !was)
		atomic_fetch_add(&v->limits, 1);
	else if (was && !is)
		atomic_fetch_sub(&v->limits, 1);
	sched_kick(v->in);
}

void
volumes_set_capacity(struct initiator *in, const struct qos_config *q)
{
	bool was = qos_limited(&in->capacity->cfg), is = qos_limited(q);
	struct volume *v;

	if (!was && !is)
		return;
	sched_set(in->capacity, q, ring_now(in->reactors[0].ring));
	list_for_each (&in->volumes, v, node)
		if (was != is)
			atomic_fetch_add(&v->limits, is ? 1u : -1u);
	sched_kick(in);
}

struct volume *
volume_get(struct volume *v)
{
	v->refs++;
	return v;
}

void
volume_put(struct volume *v)
{
	struct initiator *in = v->in;

	initiator_lock(in);
	if (--v->refs > 0) {
		initiator_unlock(in);
		return;
	}
	volume_free(v);
	initiator_unlock(in);
	paths_settle(in);
}

/* The name of one that does not let v go, or NULL. */
static const char *
holder(const struct initiator *in, const struct volume *v)
{
	const struct vf *vf;

	list_for_each(&in->vfs, vf, node)
		for (unsigned i = 0; vf->holds && i < VF_DISKS_MAX; i++)
			if (vf->disks[i] == v)
				return vf->name;
	return NULL;
}

int
volume_remove(struct initiator *in, const char *name, struct err *err)
{
	struct volume *v = volume_find(in, name);
	const struct vm *vm;

	if (!v)
		return err_set(err, -ENOENT, "there is no volume '%s'", name);
	vm = vm_of_disk(in, v);
	if (vm)
		return err_set(err, -EBUSY, "volume '%s' is a disk of vm '%s': remove that first",
			       name, vm->name);
	if (holder(in, v))
		return err_set(err, -EBUSY, "volume '%s' is %s: delete that first", name,
			       holder(in, v));
	if (v->seal && seal_has_order(v->seal) && !in->stopping)
		return err_set(err, -EBUSY, "volume '%s' is being sealed", name);
	initiator_lock(in);
	list_del(&v->node);
	initiator_unlock(in);
	log_info("volume %s: removed", v->name);
	volume_put(v);
	return 0;
}

/* Connecting for the first time may take a moment; whoever failed once, waits for longer. */
static bool
member_settled(const struct member *m)
{
	for (unsigned i = 0; i < m->nr_paths; i++)
		if (m->paths[i] && path_state(m->paths[i]) == PATH_CONNECTING)
			return false;
	return true;
}

bool
volumes_settled(const struct initiator *in)
{
	const struct volume *v;

	list_for_each(&in->volumes, v, node) {
		if (v->seal && v->state == VOLUME_WAITING && seal_is_asking(v->seal))
			return false;
		for (unsigned i = 0; i < v->nr_members && v->state == VOLUME_WAITING; i++)
			if (!member_settled(&v->members[i]) ||
			    (v->members[i].nr_paths == 0 && !ways_settled(in)))
				return false;
	}
	return true;
}

static void
cut_off(struct volume *v)
{
	for (unsigned i = 0; i < v->nr_members; i++)
		member_put_paths(v->in, &v->members[i]);
}

void
volumes_cut_off(struct initiator *in)
{
	struct volume *v;
	struct vf *vf;

	initiator_lock(in);
	list_for_each(&in->volumes, v, node)
		cut_off(v);
	list_for_each(&in->vfs, vf, node) /* some may have been removed under their clients */
		for (unsigned i = 0; i < VF_DISKS_MAX && vf->disks[i]; i++)
			cut_off(vf->disks[i]);
	initiator_unlock(in);
	paths_settle(in);
}
