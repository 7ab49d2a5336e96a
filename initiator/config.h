/* Configuration of the initiator: JSON to a plain struct, and how a change of it is applied.
 *
 * Happy path: config_load() reads and judges the whole file, "hosts" included; main starts the
 * reactors with its settings; config_apply() adds volumes and VMs. After SIGHUP or "sluicectl
 * reload" another struct config is applied: what is the same in both is not touched.
 *
 * What can fail: everything a human can mistype, told with file, line and place.
 */
#ifndef SLUICE_INITIATOR_CONFIG_H
#define SLUICE_INITIATOR_CONFIG_H

#include "common/conf.h"
#include "initiator/front_ublk.h"
#include "initiator/initiator.h"
#include "initiator/vm.h"
#include "initiator/volume.h"

struct config {                 /* ours, strings too */
	char *name;             /* of the file, for messages */
	char *control, *shm;    /* NULL: not set */
	int cpus[REACTORS_MAX]; /* -1: not pinned */
	unsigned nr_reactors;
	uint32_t poll_us;
	uint64_t buffers;
	enum chan_zc zero_copy;
	bool placement_direct;
	struct path_config *hosts;
	unsigned nr_hosts;
	struct qos_config capacity;
	struct volume_config *volumes;
	unsigned nr_volumes;
	struct vm_config *vms;
	unsigned nr_vms;
	struct ublk_config *ublks;
	unsigned nr_ublks;
};

/* in: who we are (hosts_identity()), for hosts that do not say. */
int config_load(const struct initiator *in, const char *path, struct config **ret, struct err *err);
int config_parse(const struct initiator *in, const char *text, const char *name,
		 struct config **ret, struct err *err);
void config_free(struct config *c);

/* One volume, one VM, as in the file or as the parameters of a verb. _fini() also after a failure.
 * dir: where relative names of files begin; NULL: here. */
int config_read_volume(const struct conf_node *n, const char *dir, struct volume_config *ret,
		       struct err *err);
/* "stages" and "staging" of a volume. */
int config_read_stage(const struct conf_node *volume, const char *dir, struct stage_config *ret,
		      struct err *err);
void volume_config_fini(struct volume_config *v);
int config_read_vm(const struct conf_node *n, struct vm_config *ret, struct err *err);
void vm_config_fini(struct vm_config *vm);

/* "reactors": [cpu...] or a number, and the other settings that are read at start only. */
int config_read_settings(struct config *c, const struct conf_node *root, struct err *err);

/* The file at path again, with qos in place of what its volume (else VM) of that name has as
 * "qos"; everything else stays. -ENOENT: no such entry is in the file. */
int config_save_qos(const char *path, bool volume, const char *name, const struct qos_config *q,
		    struct err *err);
/* The same with "capacity", which leaves the file when there is none. */
int config_save_capacity(const char *path, const struct qos_config *q, struct err *err);

/* Makes volumes and VMs what c says; front_ublk_apply() does that, and the ublk devices. Clients of
 * a VM that leaves or changes are disconnected. Reactor 0. On failure the rest is applied all the
 * same; err tells the first one. The hosts of c become the initiator's. */
int config_apply(struct initiator *in, struct config *c, struct err *err);

#endif
