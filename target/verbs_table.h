/* The functions behind the control verbs, by file. Each takes the target's lock itself. */
#ifndef SLUICE_VERBS_TABLE_H
#define SLUICE_VERBS_TABLE_H

#include "common/ctl.h"
#include "target/verbs.h"

#define VERB(name)                                                                                 \
	int verb_##name(void *ctx, const struct conf_node *params, struct conf_writer *w,          \
			struct err *err)

/* verbs.c */
VERB(status);
VERB(stats);
VERB(reload);
VERB(dump_config);
VERB(save);

/* verbs_list.c */
VERB(subsystems);
VERB(namespaces);
VERB(ports);
VERB(hosts);
VERB(controllers);
VERB(connections);

/* verbs_change.c */
VERB(ns_add);
VERB(ns_remove);
VERB(ns_resize);
VERB(host_add);
VERB(host_remove);
VERB(subsystem_add);
VERB(subsystem_remove);
VERB(port_add);
VERB(port_remove);

/* verbs_limit.c */
VERB(qos_show);
VERB(qos_set);
VERB(qos_clear);
VERB(qos_refund);

extern const struct ctl_verb target_verbs[];

/* Writes the running configuration to path, NULL: to its file, and tells which that was. */
int target_save(struct target *t, const char *path, struct conf_writer *w, struct err *err);
/* The members of one namespace's statistics, summed over the reactors, into the open object. */
void put_ns_stats(struct conf_writer *w, const struct target *t, const struct ns *ns);

#endif
