/* The log pages as pure functions: model in, zeroed bytes filled. Lock held by the caller. */
#ifndef SLUICE_LOGPAGE_H
#define SLUICE_LOGPAGE_H

#include "target/ctrl.h"

void log_supported(const struct subsys *s, struct nvme_supported_log_pages *ret);
/* Newest first. ret: CTRL_ERRORS entries. */
void log_errors(const struct ctrl *c, struct nvme_error_log_page *ret);
enum {                          /* kelvin */
	TEMP_NOW = 298,         /* there is no sensor; 0 would read as -273 C in every monitor */
	TEMP_WARNING = 0x157,   /* WCTEMP, and the threshold of feature 04h at first */
	TEMP_CRITICAL = 0x175,  /* CCTEMP */
};

/* The temperature has passed a threshold that the host has set. */
bool temp_warns(const struct ctrl *c);

/* Of one namespace, or of all when ns is NULL. now_ms as in target.started_ms. */
void log_smart(const struct ctrl *c, const struct ns *ns, uint64_t now_ms,
               struct nvme_smart_log *ret);
void log_firmware(struct nvme_firmware_slot *ret);
void log_changed_ns(const struct ctrl *c, struct nvme_ns_list *ret);
/* zips: with compressed transfers. */
void log_effects(const struct subsys *s, bool zips, struct nvme_cmd_effects_log *ret);
void log_feature_effects(const struct subsys *s, struct nvme_fid_supported_effects_log *ret);

#endif
