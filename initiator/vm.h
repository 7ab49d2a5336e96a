/* Who may come, and which volumes are its disks: the entries of "vms". Reactor 0; takes the lock
 * itself. */
#ifndef SLUICE_VM_H
#define SLUICE_VM_H

#include "initiator/front.h"
#include "initiator/initiator.h"

enum { VHOST_QUEUES_MAX = 64, VHOST_SOCKET_BYTES = 107 /* sun_path */ };

/* How a disk is reached over vhost-user-blk. */
struct vhost_config {
	char socket[VHOST_SOCKET_BYTES + 1]; /* "": not at all, by shared-memory queues instead */
	bool read_only;
	unsigned queues; /* at most */
};

struct vm_config {
	char name[64];
	uint32_t uid;
	unsigned nr_disks;
	char (*disks)[64];          /* names of volumes; the config's */
	struct vhost_config *vhost; /* of each; NULL: none has a socket; the config's */
	struct qos_config qos;
};

struct vm {
	struct list node; /* initiator.vms */
	char name[64];
	uint32_t uid;
	unsigned nr_disks;
	struct volume *disks[VF_DISKS_MAX];     /* counted */
	struct vhost_dev *devices[VF_DISKS_MAX]; /* of those with a socket; front_vhost's */
	struct sched_vm *qos; /* counted */
};

int vm_add(struct initiator *in, const struct vm_config *cfg, struct err *err);
/* Its clients are disconnected. */
int vm_remove(struct initiator *in, const char *name, struct err *err);
/* Its limits, from now on. */
void vm_set_qos(struct initiator *in, struct vm *vm, const struct qos_config *q);
/* The process ends: no disk has a socket any more. */
void vms_close_sockets(struct initiator *in);
struct vm *vm_find(const struct initiator *in, const char *name);
bool vm_same(const struct vm *vm, const struct vm_config *cfg);
/* Clients of its uid come for disks by shared-memory queues: then the uid is no other's. */
bool vm_config_has_shm(const struct vm_config *cfg);
bool vm_has_shm(const struct vm *vm);
/* The first entry that has v as a disk, or NULL. */
const struct vm *vm_of_disk(const struct initiator *in, const struct volume *v);

#endif
