/* Limits as people write them: {"iops": [20000, 40000], "bandwidth": "200M"}.
 *
 * Happy path: qos_read() takes the object of a file or of a verb; qos_put() writes one that reads
 * the same. A pair is [committed, peak], a single value both. What can fail: what a human wrote,
 * told with its place.
 */
#ifndef SLUICE_QOS_H
#define SLUICE_QOS_H

#include "common/conf.h"
#include "common/conf_write.h"

enum qos_kind {
	QOS_IOPS,
	QOS_READ_IOPS,
	QOS_WRITE_IOPS,
	QOS_BANDWIDTH, /* from here on bytes a second */
	QOS_READ_BANDWIDTH,
	QOS_WRITE_BANDWIDTH,
	QOS_KINDS,
};

enum { QOS_BURST_MS = 10, QOS_BANDWIDTH_MIN = 1024 };

struct qos_limit {
	uint64_t committed, peak; /* a second; peak 0: no limit */
};

struct qos_config {
	struct qos_limit limit[QOS_KINDS];
	uint32_t burst_ms;
};

extern const char *const qos_names[QOS_KINDS + 1]; /* the keys */

/* No limits, and the burst that is the default. */
void qos_init(struct qos_config *q);
bool qos_limited(const struct qos_config *q);
bool qos_same(const struct qos_config *a, const struct qos_config *b);
/* The keys that are there replace what *ret has; the word "none" takes a limit away. n may be NULL.
 * On failure *ret is as it was. */
int qos_read(const struct conf_node *n, struct qos_config *ret, struct err *err);
/* The same with single values only. */
int qos_read_single(const struct conf_node *n, struct qos_config *ret, struct err *err);
/* "capacity": single values, "iops" and "bandwidth". */
int qos_read_capacity(const struct conf_node *n, struct qos_config *ret, struct err *err);
/* "500", "500iops", "1M", "4096bytes" of "amount": a number of commands unless it says bytes. */
int qos_read_amount(const struct conf_node *params, uint64_t *ret, bool *ret_bytes,
                    struct err *err);
void qos_put(struct conf_writer *w, const char *key, const struct qos_config *q);
/* "20000-40000", "20000", "-": for tables. */
struct qos_text {
	char s[72];
};
const char *qos_show(struct qos_text *buf, const struct qos_config *q, enum qos_kind kind);

#endif
