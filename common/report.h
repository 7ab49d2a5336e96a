/* What both daemons tell of themselves on the control socket: members of replies, and the verb that
 * sets the log level. Nothing can fail but the verb, for a word that is no level.
 */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H

#include "common/buf.h"
#include "common/chan.h"
#include "common/ctl.h"

struct report_pools { /* sums over the pools of all reactors */
	uint64_t size, used, waits;
};

uint64_t report_now_ms(void); /* CLOCK_MONOTONIC */

/* Each puts members into the object that is open. started_ms: by report_now_ms(). */
void report_process(struct conf_writer *w, uint64_t started_ms, unsigned nr_reactors);
void report_resident(struct conf_writer *w);
void report_loop(struct conf_writer *w, const struct ring *ring, const struct chan_stats *chan);

void report_pools_add(struct report_pools *sum, const struct buf_pool *pool);
void report_pools(struct conf_writer *w, const char *key, const struct report_pools *sum);

/* "log-level", for a table of verbs. */
int report_log_level(void *ctx, const struct conf_node *params, struct conf_writer *w,
                     struct err *err);

#endif
