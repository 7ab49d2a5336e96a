/* A configuration as a plain struct: what config.c reads, config_apply.c applies.
 *
 * Strings are owned by the struct. Counts and pointers go together; everything is in the file's
 * order. Nothing here refers to the running model.
 */
#ifndef SLUICE_CONFIG_PLAIN_H
#define SLUICE_CONFIG_PLAIN_H

#include "common/qos.h"
#include "target/config.h"
#include "target/subsys.h"

struct config_ns {
	struct ns_config ns;    /* .spec is ours; .nsid is set */
	struct qos_config qos;
};

struct config_host {            /* a host's limits in a subsystem */
	char nqn[NVME_NQN_MAX + 1];
	struct qos_config qos;
};

struct config_subsys {
	char nqn[NVME_NQN_MAX + 1];
	char serial[21], model[41];
	bool allow_any_host;
	uint16_t cntlid_min, cntlid_max;
	char **hosts;
	unsigned nr_hosts;
	struct config_host *limits;
	unsigned nr_limits;
	struct config_ns *ns;
	unsigned nr_ns;
	char *ns_dir;           /* NULL: none */
	uint64_t ns_dir_limit;
};

struct config_referral {
	char name[64];
	uint16_t portid;
	bool ipv6;
	char traddr[64], trsvcid[8];
};

struct config_port {
	uint16_t id;
	bool ipv6;
	char traddr[64], trsvcid[8];
	unsigned *links;        /* indices into config.subsys */
	unsigned nr_links;
	struct config_referral *referrals;
	unsigned nr_referrals;
};

struct config {
	char *name;             /* file, for messages */
	struct limits limits;
	char *control;          /* NULL: not set */
	uint16_t discovery_port; /* 0: no implicit discovery listener */
	bool discovery_explicit;
	struct config_subsys *subsys;
	unsigned nr_subsys;
	struct config_port *ports;
	unsigned nr_ports;
};

extern const struct limits config_default_limits;

/* A zeroed struct with defaults; NULL: no memory. */
struct config *config_new(const char *name);
/* One more zeroed element behind *array, which has *n; NULL: no memory. */
void *config_grow(void *array, unsigned *n, size_t size);

/* kind + path with options behind, for backend_spec_parse(); heap. size, block 0: left out. */
char *config_spec_text(const char *kind, const char *path, uint64_t size, uint32_t block,
                       const char *direct, bool readonly);

struct conf_node;

/* The sections of a file (config_read.c, config_subsys.c). */
int config_read_limits(struct config *c, const struct conf_node *root, struct err *err);
int config_read_subsystems(struct config *c, const struct conf_node *root, struct err *err);
int config_read_ports(struct config *c, const struct conf_node *root, struct err *err);

/* ADDR:PORT, ADDR, [ADDR]:PORT or [ADDR] of the command line. */
int config_parse_listen(const char *text, struct config_port *p, struct err *err);
/* Is text a literal address? Sets *ret_ipv6. */
int config_check_addr(const char *text, bool *ret_ipv6);

#endif
