/* Pieces of the model that nobody sees yet: config_apply() prepares all of a new configuration with
 * these, so that whatever can fail has failed before anything changes.
 *
 * _new makes, _publish shows (it takes the piece and cannot fail), _free forgets what was never
 * shown. The one-step functions of subsys.h are made of them. Lock held everywhere.
 */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H

#include "target/subsys.h"

struct subsys *subsys_new(struct target *t, const char *nqn, struct err *err);
void subsys_publish(struct subsys *s);
void subsys_free(struct subsys *s);     /* with its namespaces; no I/O runs */

/* Opens the backend. nsid must be set; nqn is what the ids are derived from. */
struct ns *ns_new(const struct target *t, const char *nqn, const struct ns_config *cfg,
                  struct err *err);
void ns_publish(struct reactor *from, struct subsys *s, struct ns *ns); /* the slot must be free */
void ns_free(struct ns *ns);
/* The nsid if it is free, the lowest free one for 0, or 0 with err filled. */
uint32_t ns_pick_nsid(const struct subsys *s, uint32_t nsid, struct err *err);
/* Fills the ids that are not set with derived ones; path as backend_spec_parse() tells it. */
void ns_default_ids(struct ns_config *cfg, const char *nqn, const char *path);

/* Bound and listening. svc "0": any port. implicit: serves discovery alone. */
struct port *port_new(struct target *t, uint16_t id, const char *addr, const char *svc,
                      bool implicit, struct err *err);
void port_publish(struct port *p);
void port_free(struct port *p);         /* stops listening */
bool port_is_wildcard(const struct port *p);

/* List members on the heap. NULL: no memory. */
struct host *host_new(const char *nqn);
struct port_link *port_link_new(struct subsys *s);
void hosts_free(struct list *hosts);
void links_free(struct list *links);
void referrals_free(struct list *referrals);

/* Ends what is no longer allowed after an access list, a link or a port has changed: controllers
 * whose host s does not allow, or whose port no longer serves s. */
void subsys_enforce(struct subsys *s);

/* Limits, from now on; q may say that there are none. -ENOMEM. */
int ns_set_limit(struct ns *ns, const struct qos_config *q);
int subsys_set_host_limit(struct subsys *s, const char *hostnqn, const struct qos_config *q);
/* Of a host; NULL: it never had any. */
struct limit *subsys_host_limit(const struct subsys *s, const char *hostnqn);
/* Something about its limits has changed. */
void subsys_count_limits(struct subsys *s);
void host_limits_free(struct list *limits);

/* NULL, or what is wrong with a subsystem's or host's name. */
const char *nqn_fault(const char *nqn);

#endif
