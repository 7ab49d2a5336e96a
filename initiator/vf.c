/* Who a client is: credentials become a VF with the disks of a "vms" entry. See vf.h and vm.h.
 *
 * Happy path: vm_add() holds the volumes of an entry, and opens the sockets of disks that have one;
 * vf_for_peer() makes a VF of the entry with the peer's uid, which holds them too; vf_put() lets
 * go. Removing an entry disconnects its VFs, each of which ends when its front has let go of
 * everything.
 *
 * What can fail: a volume that is not there, a uid that has an entry already or none at all;
 * memory.
 */
#include "initiator/vf.h"

#include "common/log.h"
#include "initiator/front_vhost.h"
#include "initiator/vm.h"
#include "initiator/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- entries ---- */

struct vm *
vm_find(const struct initiator *in, const char *name)
{
	struct vm *vm;

	list_for_each(&in->vms, vm, node)
		if (!strcmp(vm->name, name))
			return vm;
	return NULL;
}

bool
vm_has_shm(const struct vm *vm)
{
	unsigned i;

	for (i = 0; i < vm->nr_disks && vm->devices[i]; i++)
		;
	return vm->nr_disks == 0 || i < vm->nr_disks;
}

bool
vm_config_has_shm(const struct vm_config *cfg)
{
	unsigned i;

	for (i = 0; i < cfg->nr_disks && cfg->vhost && cfg->vhost[i].socket[0]; i++)
		;
	return cfg->nr_disks == 0 || i < cfg->nr_disks;
}

/* The entry for clients of shared-memory queues. */
static struct vm *
vm_of_uid(const struct initiator *in, uint32_t uid)
{
	struct vm *vm;

	list_for_each(&in->vms, vm, node)
		if (vm->uid == uid && vm_has_shm(vm))
			return vm;
	return NULL;
}

const struct vm *
vm_of_disk(const struct initiator *in, const struct volume *v)
{
	const struct vm *vm;

	list_for_each(&in->vms, vm, node)
		for (unsigned i = 0; i < vm->nr_disks; i++)
			if (vm->disks[i] == v)
				return vm;
	return NULL;
}

bool
vm_same(const struct vm *vm, const struct vm_config *cfg)
{
	if (vm->uid != cfg->uid || vm->nr_disks != cfg->nr_disks)
		return false;
	for (unsigned i = 0; i < vm->nr_disks; i++)
		if (strcmp(vm->disks[i]->name, cfg->disks[i]) ||
		    !vhost_dev_same(vm->devices[i], cfg->vhost ? &cfg->vhost[i] : NULL))
			return false;
	return true;
}

static int
check_new(const struct initiator *in, const struct vm_config *cfg, struct err *err)
{
	const struct vm *other = vm_of_uid(in, cfg->uid);

	if (vm_find(in, cfg->name))
		return err_set(err, -EEXIST, "there is a vm '%s' already", cfg->name);
	if (other && vm_config_has_shm(cfg))
		return err_set(err, -EEXIST, "uid %u is vm '%s' already", cfg->uid, other->name);
	for (unsigned i = 0; i < cfg->nr_disks; i++)
		if (!volume_find(in, cfg->disks[i]))
			return err_set(err, -ENOENT, "there is no volume '%s'", cfg->disks[i]);
	return 0;
}

static void
close_sockets(struct vm *vm)
{
	for (unsigned i = 0; i < vm->nr_disks; i++) {
		if (vm->devices[i])
			vhost_dev_remove(vm->devices[i]);
		vm->devices[i] = NULL;
	}
}

void
vms_close_sockets(struct initiator *in)
{
	struct vm *vm;

	list_for_each(&in->vms, vm, node)
		close_sockets(vm);
}

static void
vm_free(struct vm *vm)
{
	close_sockets(vm);
	while (vm->nr_disks > 0)
		volume_put(vm->disks[--vm->nr_disks]);
	sched_vm_put(vm->qos);
	free(vm);
}

static int
open_sockets(struct initiator *in, struct vm *vm, const struct vm_config *cfg, struct err *err)
{
	int res = 0;

	for (unsigned i = 0; i < vm->nr_disks && cfg->vhost && !res; i++)
		if (cfg->vhost[i].socket[0])
			res = vhost_dev_add(in, vm, i, &cfg->vhost[i], &vm->devices[i], err);
	return res;
}

int
vm_add(struct initiator *in, const struct vm_config *cfg, struct err *err)
{
	int res = check_new(in, cfg, err);
	struct vm *vm;

	if (res)
		return err_prefix(err, res, "vm '%s'", cfg->name);
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return err_set(err, -ENOMEM, "no memory for vm '%s'", cfg->name);
	snprintf(vm->name, sizeof(vm->name), "%s", cfg->name);
	vm->uid = cfg->uid;
	vm->qos = sched_vm_new(in->nr_reactors);
	if (!vm->qos) {
		free(vm);
		return err_set(err, -ENOMEM, "no memory for vm '%s'", cfg->name);
	}
	initiator_lock(in);
	for (; vm->nr_disks < cfg->nr_disks; vm->nr_disks++)
		vm->qos->disk[vm->nr_disks] = vm->disks[vm->nr_disks] =
			volume_get(volume_find(in, cfg->disks[vm->nr_disks]));
	initiator_unlock(in);
	res = open_sockets(in, vm, cfg, err);
	if (res) {
		vm_free(vm);
		return err_prefix(err, res, "vm '%s'", cfg->name);
	}
	initiator_lock(in);
	list_push_back(&in->vms, &vm->node);
	initiator_unlock(in);
	vm_set_qos(in, vm, &cfg->qos);
	return 0;
}

/* A VF of that name whose front was not told yet. */
static struct vf *
vf_to_kick(const struct initiator *in, const char *name)
{
	struct vf *vf;

	list_for_each(&in->vfs, vf, node)
		if (vf->kick && !strcmp(vf->name, name))
			return vf;
	return NULL;
}

void
vm_set_qos(struct initiator *in, struct vm *vm, const struct qos_config *q)
{
	bool was = qos_limited(&vm->qos->node.cfg), is = qos_limited(q);

	if (!was && !is)
		return;
	sched_set(&vm->qos->node, q, ring_now(in->reactors[0].ring));
	for (unsigned i = 0; i < vm->nr_disks && was != is; i++)
		atomic_fetch_add(&vm->disks[i]->limits, is ? 1u : -1u);
	sched_kick(in);
}

int
vm_remove(struct initiator *in, const char *name, struct err *err)
{
	struct vm *vm = vm_find(in, name);
	struct qos_config none;
	struct vf *vf;

	if (!vm)
		return err_set(err, -ENOENT, "there is no vm '%s'", name);
	initiator_lock(in);
	list_del(&vm->node);
	initiator_unlock(in);
	while ((vf = vf_to_kick(in, name))) {
		void (*kick)(struct vf * vf, const char *why) = vf->kick;

		vf->kick = NULL;
		kick(vf, "its vm was removed");
	}
	qos_init(&none);
	vm_set_qos(in, vm, &none);
	vm_free(vm);
	return 0;
}

/* ---- clients ---- */

static struct vf *
vf_new(struct initiator *in, const char *name, uint32_t uid, uint32_t pid)
{
	struct vf *vf = calloc(1, sizeof(*vf));

	if (!vf)
		return NULL;
	snprintf(vf->name, sizeof(vf->name), "%s", name);
	vf->in = in;
	vf->uid = uid;
	vf->pid = pid;
	return vf;
}

/* With the lock. */
static void
vf_list(struct initiator *in, struct vf *vf)
{
	vf->id = ++in->next_vf;
	list_push_back(&in->vfs, &vf->node);
}

struct vf *
vf_for_peer(struct initiator *in, uint32_t uid, uint32_t pid, struct err *err)
{
	const struct vm *vm = vm_of_uid(in, uid);
	struct vf *vf;

	if (!vm) {
		err_set(err, -EACCES, "no entry of \"vms\" has uid %u", uid);
		return NULL;
	}
	vf = vf_new(in, vm->name, uid, pid);
	if (!vf) {
		err_set(err, -ENOMEM, "no memory for a client");
		return NULL;
	}
	initiator_lock(in);
	for (unsigned i = 0, k = 0; i < vm->nr_disks; i++)
		if (!vm->devices[i])
			vf->disks[k++] = volume_get(vm->disks[i]);
	vf->qos = sched_vm_get(vm->qos);
	vf_list(in, vf);
	initiator_unlock(in);
	return vf;
}

struct vf *
vf_for_disk(struct initiator *in, const char *name, struct volume *disk, uint32_t uid, uint32_t pid)
{
	struct vf *vf = vf_new(in, name, uid, pid);
	const struct vm *vm = vm_find(in, name);

	if (!vf)
		return NULL;
	initiator_lock(in);
	vf->of_device = true;
	if (vm)
		vf->qos = sched_vm_get(vm->qos);
	vf->disks[0] = volume_get(disk);
	vf_list(in, vf);
	initiator_unlock(in);
	return vf;
}

void
vf_put(struct vf *vf)
{
	initiator_lock(vf->in);
	list_del(&vf->node);
	sched_vm_put(vf->qos);
	initiator_unlock(vf->in);
	for (unsigned i = 0; i < VF_DISKS_MAX && vf->disks[i]; i++)
		volume_put(vf->disks[i]);
	free(vf);
}

static void
describe(const struct volume *v, uint32_t nsid, struct sluice_volume *ret)
{
	*ret = (struct sluice_volume){
		.nsid = nsid,
		.members = v->nr_members,
		.stripe = v->nr_members > 1 ? v->block : 0,
	};
	snprintf(ret->name, sizeof(ret->name), "%s", v->name);
	if (v->state != VOLUME_READY)
		return;
	ret->block = 1u << v->lba_shift;
	ret->blocks = v->bytes >> v->lba_shift;
	ret->max_transfer = v->max_transfer;
	ret->flags = v->vwc ? SLUICE_VOL_FLUSH : 0;
}

int
vf_disk_find(struct vf *vf, const char *name, uint32_t index, struct sluice_volume *ret)
{
	uint32_t i = name[0] ? 0 : index;

	for (; i < VF_DISKS_MAX && vf->disks[i]; i++)
		if (!name[0] || !strcmp(vf->disks[i]->name, name)) {
			describe(vf->disks[i], i + 1, ret);
			return 0;
		}
	return -ENOENT;
}
