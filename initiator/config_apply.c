/* Makes the running volumes and VMs what a configuration says.
 *
 * Happy path: VMs that left or changed go first, so that nothing holds the volumes that left or
 * changed; then these; then the new volumes come, then the new VMs. What is the same in both is not
 * touched, nor are its clients. What can fail: adding (memory); the file itself was judged before.
 * A volume that clients still have ends when they are gone.
 */
#include "initiator/config.h"

#include "common/log.h"
#include "initiator/discovery.h"

#include <errno.h>
#include <stdlib.h>

static const struct volume_config *
volume_of(const struct config *c, const char *name)
{
	for (unsigned i = 0; i < c->nr_volumes; i++)
		if (!strcmp(c->volumes[i].name, name))
			return &c->volumes[i];
	return NULL;
}

static bool
volume_stays(const struct config *c, const struct volume *v)
{
	const struct volume_config *cfg = volume_of(c, v->name);

	return cfg && volume_same(v, cfg);
}

static bool
vm_stays(const struct config *c, const struct vm *vm)
{
	for (unsigned i = 0; i < vm->nr_disks; i++)
		if (!volume_stays(c, vm->disks[i]))
			return false;
	for (unsigned i = 0; i < c->nr_vms; i++)
		if (!strcmp(c->vms[i].name, vm->name))
			return vm_same(vm, &c->vms[i]);
	return false;
}

/* Keeps the first error, logs the others. */
static void
note(struct err *first, const struct err *e)
{
	if (!first->code)
		*first = *e;
	else
		log_error("%s", e->text);
}

static void
leave(struct initiator *in, const struct config *c, struct err *first)
{
	struct volume *v, *next_v;
	struct vm *vm, *next_vm;
	struct err e = { 0 };

	list_for_each_safe(&in->vms, vm, next_vm, node)
		if (!vm_stays(c, vm) && vm_remove(in, vm->name, &e) < 0)
			note(first, &e);
	list_for_each_safe(&in->volumes, v, next_v, node)
		if (!volume_stays(c, v) && volume_remove(in, v->name, &e) < 0)
			note(first, &e);
}

static void
come(struct initiator *in, const struct config *c, struct err *first)
{
	struct err e = { 0 };

	for (unsigned i = 0; i < c->nr_volumes; i++)
		if (!volume_find(in, c->volumes[i].name) &&
		    volume_add(in, &c->volumes[i], NULL, &e) < 0)
			note(first, &e);
	for (unsigned i = 0; i < c->nr_vms; i++)
		if (!vm_find(in, c->vms[i].name) && vm_add(in, &c->vms[i], &e) < 0)
			note(first, &e);
}

/* Limits change under those who stay. */
static void
set_limits(struct initiator *in, const struct config *c)
{
	struct volume *v;
	struct vm *vm;

	list_for_each(&in->volumes, v, node) {
		const struct volume_config *cfg = volume_of(c, v->name);

		if (cfg && !qos_same(&v->qos->cfg, &cfg->qos))
			volume_set_qos(v, &cfg->qos);
	}
	for (unsigned i = 0; i < c->nr_vms; i++) {
		vm = vm_find(in, c->vms[i].name);
		if (vm && !qos_same(&vm->qos->node.cfg, &c->vms[i].qos))
			vm_set_qos(in, vm, &c->vms[i].qos);
	}
	volumes_set_capacity(in, &c->capacity);
}

int
config_apply(struct initiator *in, struct config *c, struct err *err)
{
	struct err first = { 0 };

	initiator_lock(in);
	free(in->hosts);
	in->hosts = c->hosts;
	in->nr_hosts = c->nr_hosts;
	c->hosts = NULL;
	c->nr_hosts = 0;
	initiator_unlock(in);
	discoveries_apply(in);
	leave(in, c, &first);
	come(in, c, &first);
	volumes_follow(in);
	set_limits(in, c);
	if (first.code && err)
		*err = first;
	return first.code;
}
