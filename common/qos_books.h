/* What limits did, for people: the same of every kind of limit, in both daemons. */
#ifndef SLUICE_QOS_BOOKS_H
#define SLUICE_QOS_BOOKS_H

#include "common/conf_write.h"
#include "common/meter.h"
#include "common/rates.h"

struct qos_books { /* some KiB */
	const struct qos_config *cfg;
	int64_t tokens, byte_tokens; /* INT64_MAX: no such limit */
	uint64_t passed, passed_bytes, held, waiting, merged, refunds;
	struct meter_hist wait; /* ns */
};

/* Counters are zero, the caller adds to them. */
void qos_books_init(struct qos_books *b, const struct qos_config *cfg, struct rates *r,
                    uint64_t now);
/* All but merged and refunds, into the open object. */
void qos_put_books(struct conf_writer *w, const struct qos_books *b);

#endif
