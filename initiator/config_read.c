/* The pieces of a configuration: settings, one volume, one VM. The verbs that add volumes and VMs
 * read the same pieces.
 *
 * Members and disks have a short form, a string, since there is little to say: "NQN/NSID" (or "NQN"
 * for namespace 1) and the volume's name. What can fail: what a human wrote, told with its place.
 */
#include "initiator/config.h"

#include "common/zframe.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CPU_MAX = 1023, PATH_BYTES = 107 /* sun_path */ };

/* ---- settings ---- */

static int
read_cpus(struct config *c, const struct conf_node *list, struct err *err)
{
	const struct conf_node *e;
	uint64_t cpu;
	int ret;

	if (conf_len(list) < 1 || conf_len(list) > REACTORS_MAX)
		return conf_err(list, err, -EINVAL, "must name 1 to %u cpus", REACTORS_MAX);
	c->nr_reactors = 0;
	conf_for_each (list, e) {
		ret = conf_as_u64(e, 0, CPU_MAX, &cpu, err);
		if (ret < 0)
			return ret;
		for (unsigned i = 0; i < c->nr_reactors; i++)
			if (c->cpus[i] == (int)cpu)
				return conf_err(e, err, -EINVAL, "cpu %d stands there twice",
						(int)cpu);
		c->cpus[c->nr_reactors++] = (int)cpu;
	}
	return 0;
}

static int
read_reactors(struct config *c, const struct conf_node *root, struct err *err)
{
	const struct conf_node *n = conf_get(root, "reactors");
	uint64_t count = 1;
	int ret = 0;

	if (n && conf_type(n) == CONF_ARRAY)
		return read_cpus(c, n, err);
	if (n)
		ret = conf_as_u64(n, 1, REACTORS_MAX, &count, err);
	c->nr_reactors = (unsigned)count;
	for (unsigned i = 0; i < c->nr_reactors; i++)
		c->cpus[i] = -1;
	return ret;
}

static int
read_path(const struct conf_node *root, const char *key, char **ret_path, struct err *err)
{
	const char *text = NULL;
	int ret = conf_get_str(root, key, PATH_BYTES, &text, err);

	if (ret <= 0)
		return ret;
	if (!text[0])
		return conf_err(conf_get(root, key), err, -EINVAL, "must not be empty");
	*ret_path = strdup(text);
	return *ret_path ? 0 : err_set(err, -ENOMEM, "no memory");
}

int
config_read_settings(struct config *c, const struct conf_node *root, struct err *err)
{
	static const char *const zc[] = {"auto", "always", "never", NULL}; /* enum chan_zc */
	static const char *const placements[] = {"auto", "direct", NULL};
	unsigned zero_copy = c->zero_copy, placement = 0;
	int ret;

	ret = read_path(root, "control", &c->control, err);
	if (ret >= 0)
		ret = read_path(root, "shm", &c->shm, err);
	if (ret >= 0)
		ret = read_reactors(c, root, err);
	if (ret >= 0)
		ret = conf_get_u32(root, "poll_us", 0, 1000000, &c->poll_us, err);
	if (ret >= 0)
		ret = conf_get_size(root, "buffers", 1 << 20, UINT64_C(1) << 40, &c->buffers, err);
	if (ret >= 0 && c->buffers / c->nr_reactors < VOLUME_PART_MAX)
		return conf_err(conf_get(root, "buffers"), err, -EINVAL,
				"must hold 1M for each reactor: at least %uM", c->nr_reactors);
	if (ret >= 0)
		ret = conf_get_word(root, "zero_copy", zc, &zero_copy, err);
	if (ret >= 0)
		ret = conf_get_word(root, "placement", placements, &placement, err);
	if (ret < 0)
		return ret;
	c->zero_copy = zero_copy;
	c->placement_direct = placement == 1;
	return 0;
}

/* ---- what volumes and VMs share ---- */

static int
check_name(const struct conf_node *n, const char *text, struct err *err)
{
	if (!text[0])
		return conf_err(n, err, -EINVAL, "must not be empty");
	for (const char *p = text; *p; p++)
		if (*p <= 0x20 || *p > 0x7e)
			return conf_err(n, err, -EINVAL, "must be printable ASCII without blanks");
	return 0;
}

static int
read_name(const struct conf_node *o, const char *key, char ret_name[64], struct err *err)
{
	const char *text = NULL;
	int ret;

	if (!conf_need(o, key, err))
		return -EINVAL;
	ret = conf_get_str(o, key, 63, &text, err);
	if (ret >= 0)
		ret = check_name(conf_get(o, key), text, err);
	if (ret < 0)
		return ret;
	snprintf(ret_name, 64, "%s", text);
	return 0;
}

/* ---- volumes ---- */

static int
set_nqn(struct member_config *m, const struct conf_node *n, const char *text, size_t len,
	struct err *err)
{
	if (len == 0 || len >= sizeof(m->nqn))
		return conf_err(n, err, -EINVAL, "the name of a subsystem has 1 to %zu bytes",
				sizeof(m->nqn) - 1);
	snprintf(m->nqn, sizeof(m->nqn), "%.*s", (int)len, text);
	return 0;
}

/* "NQN/NSID", or "NQN" for namespace 1. */
static int
read_member_text(struct member_config *m, const struct conf_node *n, struct err *err)
{
	const char *text, *slash;
	uint64_t nsid = 1;
	int ret = conf_as_str(n, 240, &text, err);

	if (ret < 0)
		return ret;
	slash = strrchr(text, '/');
	if (slash && (units_parse_u64(slash + 1, &nsid) || nsid < 1 || nsid > 0xfffffffe))
		return conf_err(n, err, -EINVAL, "'%s' is no number of a namespace", slash + 1);
	m->nsid = (uint32_t)nsid;
	return set_nqn(m, n, text, slash ? (size_t)(slash - text) : strlen(text), err);
}

static int
read_member(struct member_config *m, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = {"nqn", "nsid", NULL};
	const char *nqn = "";
	int ret;

	if (conf_type(n) == CONF_STRING)
		return read_member_text(m, n, err);
	m->nsid = 1;
	ret = conf_as_object(n, err);
	if (ret >= 0)
		ret = conf_check_keys(n, known, err);
	if (ret >= 0 && !conf_need(n, "nqn", err))
		return -EINVAL;
	if (ret >= 0)
		ret = conf_get_str(n, "nqn", sizeof(m->nqn) - 1, &nqn, err);
	if (ret >= 0)
		ret = conf_get_u32(n, "nsid", 1, 0xfffffffe, &m->nsid, err);
	return ret < 0 ? ret : set_nqn(m, conf_get(n, "nqn"), nqn, strlen(nqn), err);
}

static int
read_members(struct volume_config *v, const struct conf_node *n, struct err *err)
{
	const struct conf_node *list = NULL, *e;
	int ret;

	if (!conf_need(n, "members", err))
		return -EINVAL;
	ret = conf_get_array(n, "members", &list, err);
	if (ret < 0)
		return ret;
	if (conf_len(list) < 1 || conf_len(list) > SPLIT_MEMBERS_MAX)
		return conf_err(list, err, -EINVAL, "a volume has 1 to %u members, not %zu",
				SPLIT_MEMBERS_MAX, conf_len(list));
	v->members = calloc(conf_len(list), sizeof(*v->members));
	if (!v->members)
		return err_set(err, -ENOMEM, "no memory");
	conf_for_each (list, e) {
		ret = read_member(&v->members[v->nr_members], e, err);
		if (ret < 0)
			return ret;
		v->nr_members++;
	}
	for (unsigned i = 0; i < v->nr_members; i++)
		for (unsigned k = 0; k < i; k++)
			if (v->members[k].nsid == v->members[i].nsid &&
			    !strcmp(v->members[k].nqn, v->members[i].nqn))
				return conf_err(list, err, -EINVAL,
						"namespace %u of '%s' stands there twice",
						v->members[i].nsid, v->members[i].nqn);
	return 0;
}

static int
read_geometry(struct volume_config *v, const struct conf_node *n, struct err *err)
{
	uint64_t block = VOLUME_BLOCK_DEFAULT, max_part = VOLUME_PART_DEFAULT;
	int ret;

	ret = conf_get_size(n, "block", VOLUME_BLOCK_MIN, VOLUME_BLOCK_MAX, &block, err);
	if (ret >= 0 && (block & (block - 1)))
		return conf_err(conf_get(n, "block"), err, -EINVAL, "must be a power of two");
	if (ret >= 0)
		ret = conf_get_size(n, "max_part", VOLUME_PART_MIN, VOLUME_PART_MAX, &max_part,
				    err);
	if (ret >= 0 && max_part % VOLUME_PART_MIN)
		return conf_err(conf_get(n, "max_part"), err, -EINVAL, "must be a multiple of 4K");
	if (ret >= 0)
		ret = conf_get_bool(n, "merge", &v->merge, err);
	v->block = (uint32_t)block;
	v->max_part = (uint32_t)max_part;
	return ret < 0 ? ret : 0;
}

int
config_read_volume(const struct conf_node *n, const char *dir, struct volume_config *v,
		   struct err *err)
{
	static const char *const known[] = {"name", "block",  "max_part", "members", "merge",
					    "qos",  "stages", "staging",  NULL};
	int ret;

	*v = (struct volume_config){ 0 };
	qos_init(&v->qos);
	ret = conf_as_object(n, err);
	if (!ret)
		ret = conf_check_keys(n, known, err);
	if (!ret)
		ret = read_name(n, "name", v->name, err);
	if (!ret)
		ret = qos_read(conf_get(n, "qos"), &v->qos, err);
	if (!ret)
		ret = read_geometry(v, n, err);
	if (!ret)
		ret = read_members(v, n, err);
	if (!ret)
		ret = config_read_stage(n, dir, &v->stage, err);
	if (v->stage.kind == STAGE_COMPRESS)
		v->max_part = MIN(v->max_part, (uint32_t)ZFRAME_RAW_MAX);
	return ret;
}

void
volume_config_fini(struct volume_config *v)
{
	free(v->members);
	v->members = NULL;
	stage_config_fini(&v->stage);
}

/* ---- VMs ---- */

/* The socket of a disk, and what only a disk with a socket has. */
static int
read_vhost(struct vhost_config *v, const struct conf_node *n, struct err *err)
{
	static const char *const need[] = {"read-only", "queues", NULL};
	const char *path = NULL;
	uint32_t queues = VHOST_QUEUES_MAX;
	int ret = conf_get_str(n, "vhost-user-blk", VHOST_SOCKET_BYTES, &path, err);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; !path && need[i]; i++)
		if (conf_get(n, need[i]))
			return conf_err(conf_get(n, need[i]), err, -EINVAL,
					"is for a disk that has \"vhost-user-blk\" only");
	if (!path)
		return 0;
	if (!path[0])
		return conf_err(conf_get(n, "vhost-user-blk"), err, -EINVAL, "must not be empty");
	snprintf(v->socket, sizeof(v->socket), "%s", path);
	ret = conf_get_bool(n, "read-only", &v->read_only, err);
	if (ret >= 0)
		ret = conf_get_u32(n, "queues", 1, VHOST_QUEUES_MAX, &queues, err);
	v->queues = queues;
	return ret < 0 ? ret : 0;
}

static int
read_disk(char ret_name[64], struct vhost_config *vhost, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = {"volume", "vhost-user-blk", "read-only", "queues",
					    NULL};
	const char *text;
	int ret;

	if (conf_type(n) == CONF_STRING) {
		ret = conf_as_str(n, 63, &text, err);
		if (!ret)
			ret = check_name(n, text, err);
		if (!ret)
			snprintf(ret_name, 64, "%s", text);
		return ret;
	}
	ret = conf_as_object(n, err);
	if (!ret)
		ret = conf_check_keys(n, known, err);
	if (!ret)
		ret = read_vhost(vhost, n, err);
	return ret ? ret : read_name(n, "volume", ret_name, err);
}

static int
read_disks(struct vm_config *vm, const struct conf_node *n, struct err *err)
{
	const struct conf_node *list = NULL, *e;
	int ret;

	if (!conf_need(n, "disks", err))
		return -EINVAL;
	ret = conf_get_array(n, "disks", &list, err);
	if (ret < 0)
		return ret;
	if (conf_len(list) > VF_DISKS_MAX)
		return conf_err(list, err, -EINVAL, "at most %u disks, not %zu", VF_DISKS_MAX,
				conf_len(list));
	vm->disks = calloc(conf_len(list) + 1, sizeof(*vm->disks));
	vm->vhost = calloc(conf_len(list) + 1, sizeof(*vm->vhost));
	if (!vm->disks || !vm->vhost)
		return err_set(err, -ENOMEM, "no memory");
	conf_for_each (list, e) {
		ret = read_disk(vm->disks[vm->nr_disks], &vm->vhost[vm->nr_disks], e, err);
		if (ret < 0)
			return ret;
		for (unsigned i = 0; i < vm->nr_disks; i++)
			if (!strcmp(vm->disks[i], vm->disks[vm->nr_disks]))
				return conf_err(e, err, -EINVAL, "'%s' stands there twice",
						vm->disks[i]);
		vm->nr_disks++;
	}
	return 0;
}

int
config_read_vm(const struct conf_node *n, struct vm_config *vm, struct err *err)
{
	static const char *const known[] = {"name", "uid", "qos", "disks", NULL};
	int ret;

	*vm = (struct vm_config){.uid = geteuid()};
	qos_init(&vm->qos);
	ret = conf_as_object(n, err);
	if (!ret)
		ret = conf_check_keys(n, known, err);
	if (!ret)
		ret = read_name(n, "name", vm->name, err);
	if (!ret)
		ret = qos_read(conf_get(n, "qos"), &vm->qos, err);
	if (!ret)
		ret = conf_get_u32(n, "uid", 0, 0xfffffffe, &vm->uid, err);
	return ret < 0 ? ret : read_disks(vm, n, err);
}

void
vm_config_fini(struct vm_config *vm)
{
	free(vm->disks);
	free(vm->vhost);
	vm->disks = NULL;
	vm->vhost = NULL;
}
