/* Configuration: the JSON that nvmetcli saves, the one-line form, and how a change is applied.
 *
 * A file becomes a plain struct first and is judged whole; only then anything changes. Keys are
 * nvmetcli's; ours are under "sluice", at the top (limits, control) and in a namespace
 * (block_size, direct, qos), a subsystem (ns_dir, ns_dir_limit, hosts). What can fail: everything a
 * human can mistype, told with file and place; the running configuration then stays.
 */
#ifndef SLUICE_CONFIG_H
#define SLUICE_CONFIG_H

#include "target/target.h"

struct config;                  /* see config.c; immutable once loaded */

int config_load(const char *path, struct config **ret, struct err *err);
int config_parse(const char *text, const char *name, struct config **ret, struct err *err);
/* The one-line form: listen "ADDR:PORT" ("[::1]:4420"), one subsystem nqn, n SPECs. NULL: defaults
 * (0.0.0.0:4420, nqn.2026-11.io.sluice:default). */
int config_from_args(const char *const *listen, unsigned nr_listen, const char *nqn,
		     const char *const *specs, unsigned n, struct config **ret, struct err *err);
void config_free(struct config *c);

/* Limits and control path, needed before the reactors start. */
const struct limits *config_limits(const struct config *c);
const char *config_control(const struct config *c); /* NULL: not set */

/* Brings the model to what c says: adds, removes, changes, touches nothing else. Checks what can
 * be checked first; on failure (a port that cannot be bound, a file that cannot be opened) what
 * was added is taken back and the rest stays. Lock held; runs on reactor 0. */
int config_apply(struct target *t, const struct config *c, struct err *err);

/* The running configuration in the same JSON, to be freed. Lock held. */
char *config_dump(struct target *t);

#endif
