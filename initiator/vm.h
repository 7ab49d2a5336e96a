/* Who may come, and which volumes are its disks: the entries of "vms". Reactor 0; takes the lock
 * itself. */
#ifndef SLUICE_VM_H
#define SLUICE_VM_H

#include "initiator/front.h"
#include "initiator/initiator.h"

struct vm_config {
	char name[64];
	uint32_t uid;
	unsigned nr_disks;
	char (*disks)[64]; /* names of volumes; the config's */
	struct qos_config qos;
};

struct vm {
	struct list node; /* initiator.vms */
	char name[64];
	uint32_t uid;
	unsigned nr_disks;
	struct volume *disks[VF_DISKS_MAX]; /* counted */
	struct sched_vm *qos;               /* counted */
};

int vm_add(struct initiator *in, const struct vm_config *cfg, struct err *err);
/* Its clients are disconnected. */
int vm_remove(struct initiator *in, const char *name, struct err *err);
/* Its limits, from now on. */
void vm_set_qos(struct initiator *in, struct vm *vm, const struct qos_config *q);
struct vm *vm_find(const struct initiator *in, const char *name);
bool vm_same(const struct vm *vm, const struct vm_config *cfg);
/* The first entry that has v as a disk, or NULL. */
const struct vm *vm_of_disk(const struct initiator *in, const struct volume *v);

#endif
