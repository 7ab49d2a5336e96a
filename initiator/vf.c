/* Who a client is: credentials become a VF with the disks of a "vms" entry. See vf.h and vm.h.
 *
 * Happy path: vm_add() holds the volumes of an entry; vf_for_peer() makes a VF of the entry with
 * the peer's uid, which holds them too; vf_put() lets go. Removing an entry disconnects its VFs,
 * each of which ends when its front has let go of everything.
 *
 * What can fail: a volume that is not there, a uid that has an entry already or none at all;
 * memory.
 */
#include "initiator/vf.h"

#include "common/log.h"
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

static struct vm *
vm_of_uid(const struct initiator *in, uint32_t uid)
{
	struct vm *vm;

	list_for_each(&in->vms, vm, node)
		if (vm->uid == uid)
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
		if (strcmp(vm->disks[i]->name, cfg->disks[i]))
			return false;
	return true;
}

static int
check_new(const struct initiator *in, const struct vm_config *cfg, struct err *err)
{
	const struct vm *other = vm_of_uid(in, cfg->uid);

	if (vm_find(in, cfg->name))
		return err_set(err, -EEXIST, "there is a vm '%s' already", cfg->name);
	if (other)
		return err_set(err, -EEXIST, "uid %u is vm '%s' already", cfg->uid, other->name);
	for (unsigned i = 0; i < cfg->nr_disks; i++)
		if (!volume_find(in, cfg->disks[i]))
			return err_set(err, -ENOENT, "there is no volume '%s'", cfg->disks[i]);
	return 0;
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
		vm->disks[vm->nr_disks] = volume_get(volume_find(in, cfg->disks[vm->nr_disks]));
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
	while (vm->nr_disks > 0)
		volume_put(vm->disks[--vm->nr_disks]);
	initiator_lock(in);
	sched_vm_put(vm->qos);
	initiator_unlock(in);
	free(vm);
	return 0;
}

/* ---- clients ---- */

struct vf *
vf_for_peer(struct initiator *in, uint32_t uid, uint32_t pid, struct err *err)
{
	const struct vm *vm = vm_of_uid(in, uid);
	struct vf *vf;

	if (!vm) {
		err_set(err, -EACCES, "no entry of \"vms\" has uid %u", uid);
		return NULL;
	}
	vf = calloc(1, sizeof(*vf));
	if (!vf) {
		err_set(err, -ENOMEM, "no memory for a client");
		return NULL;
	}
	snprintf(vf->name, sizeof(vf->name), "%s", vm->name);
	vf->uid = uid;
	vf->pid = pid;
	initiator_lock(in);
	vf->id = ++in->next_vf;
	for (unsigned i = 0; i < vm->nr_disks; i++)
		vf->disks[i] = volume_get(vm->disks[i]);
	vf->qos = vm->qos;
	vf->qos->refs++;
	vf->in = in;
	list_push_back(&in->vfs, &vf->node);
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
