/* The functions behind the control verbs, by file. Each takes the initiator's lock itself. */
#ifndef SLUICE_INITIATOR_VERBS_TABLE_H
#define SLUICE_INITIATOR_VERBS_TABLE_H

#include "common/ctl.h"
#include "initiator/verbs.h"

#define VERB(name)                                                                                 \
	int verb_##name(void *ctx, const struct conf_node *params, struct conf_writer *w,          \
			struct err *err)

/* verbs.c */
VERB(status);
VERB(reload);
VERB(upgrade);

/* verbs_list.c */
VERB(volumes);
VERB(paths);
VERB(vms);
VERB(stats);
VERB(discoveries);

/* verbs_change.c */
VERB(volume_add);
VERB(volume_remove);
VERB(volume_seal);
VERB(vm_add);
VERB(vm_remove);

/* verbs_qos.c */
VERB(qos_show);
VERB(qos_set);
VERB(qos_clear);
VERB(qos_refund);
VERB(capacity_show);
VERB(capacity_set);

/* verbs_later.c: they answer when others have. */
VERB(grants);
VERB(discover);

/* verbs_ublk.c: adding and deleting answer when the driver has. */
VERB(ublk_add);
VERB(ublk_del);
VERB(ublk_list);

extern const struct ctl_verb initiator_verbs[];

#endif
