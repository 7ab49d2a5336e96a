/* Reading and writing limits; see qos.h. */
#include "common/qos.h"

#include "common/bucket.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const qos_names[QOS_KINDS + 1] = { "iops",      "read_iops",      "write_iops",
	                                       "bandwidth", "read_bandwidth", "write_bandwidth",
	                                       NULL };

void
qos_init(struct qos_config *q)
{
	*q = (struct qos_config){ .burst_ms = QOS_BURST_MS };
}

bool
qos_limited(const struct qos_config *q)
{
	for (unsigned k = 0; k < QOS_KINDS; k++)
		if (q->limit[k].peak)
			return true;
	return false;
}

bool
qos_same(const struct qos_config *a, const struct qos_config *b)
{
	return memcmp(a->limit, b->limit, sizeof(a->limit)) == 0 && a->burst_ms == b->burst_ms;
}

/* ---- reading ---- */

/* The least that a limit may be. */
static uint64_t
least(enum qos_kind kind)
{
	return kind >= QOS_BANDWIDTH ? QOS_BANDWIDTH_MIN : 1;
}

static int
read_rate(const struct conf_node *n, enum qos_kind kind, uint64_t min, uint64_t *ret,
          struct err *err)
{
	return kind >= QOS_BANDWIDTH ? conf_as_size(n, min, BUCKET_RATE_MAX, ret, err)
	                             : conf_as_u64(n, min, BUCKET_RATE_MAX, ret, err);
}

static int
read_pair(const struct conf_node *n, enum qos_kind kind, struct qos_limit *l, struct err *err)
{
	const struct conf_node *first = conf_first(n), *second = first ? conf_next(first) : NULL;
	int res;

	if (conf_len(n) != 2)
		return conf_err(n, err, -EINVAL, "must be [committed, peak]");
	res = read_rate(first, kind, 0, &l->committed, err);
	if (!res)
		res = read_rate(second, kind, least(kind), &l->peak, err);
	if (!res && l->committed > l->peak)
		res = conf_err(n, err, -EINVAL, "the peak must not be below what is committed");
	return res;
}

static int
read_limit(const struct conf_node *n, enum qos_kind kind, struct qos_limit *ret, struct err *err)
{
	struct qos_limit l = { 0 };
	const char *word = "";
	int res = 0;

	if (conf_type(n) == CONF_STRING && conf_as_str(n, 64, &word, err) == 0 &&
	    strcmp(word, "none") == 0) {
		*ret = l;
		return 0;
	}
	if (conf_type(n) == CONF_ARRAY) {
		res = read_pair(n, kind, &l, err);
	} else {
		res = read_rate(n, kind, least(kind), &l.peak, err);
		l.committed = l.peak;
	}
	if (!res)
		*ret = l;
	return res;
}

int
qos_read(const struct conf_node *n, struct qos_config *ret, struct err *err)
{
	static const char *const known[] = { "iops",           "read_iops",
		                             "write_iops",     "bandwidth",
		                             "read_bandwidth", "write_bandwidth",
		                             "burst_ms",       NULL };
	struct qos_config q = *ret;
	int res;

	if (!n)
		return 0;
	res = conf_as_object(n, err);
	if (!res)
		res = conf_check_keys(n, known, err);
	if (!res)
		res = conf_get_u32(n, "burst_ms", 0, BUCKET_BURST_MS_MAX, &q.burst_ms, err);
	for (unsigned k = 0; k < QOS_KINDS && res >= 0; k++) {
		const struct conf_node *v = conf_get(n, qos_names[k]);

		if (v)
			res = read_limit(v, k, &q.limit[k], err);
	}
	if (res < 0)
		return res;
	*ret = q;
	return 0;
}

int
qos_read_single(const struct conf_node *n, struct qos_config *ret, struct err *err)
{
	const struct conf_node *e;
	int res;

	if (!n)
		return 0;
	res = conf_as_object(n, err);
	if (res)
		return res;
	conf_for_each (n, e) {
		if (conf_type(e) == CONF_ARRAY)
			return conf_err(e, err, -EINVAL, "must be one number");
	}
	return qos_read(n, ret, err);
}

int
qos_read_capacity(const struct conf_node *n, struct qos_config *ret, struct err *err)
{
	static const char *const known[] = { "iops", "bandwidth", NULL };
	int res;

	if (!n)
		return 0;
	res = conf_as_object(n, err);
	if (!res)
		res = conf_check_keys(n, known, err);
	return res ? res : qos_read_single(n, ret, err);
}

int
qos_read_amount(const struct conf_node *params, uint64_t *ret, bool *ret_bytes, struct err *err)
{
	const struct conf_node *n = conf_get(params, "amount");
	const char *text = "";
	char number[32];
	size_t digits;
	int res = conf_get_str(params, "amount", sizeof(number) - 1, &text, err);

	if (res < 0)
		return res;
	digits = strspn(text, "0123456789");
	snprintf(number, sizeof(number), "%.*s", (int)digits, text);
	*ret_bytes = strcmp(text + digits, "bytes") == 0;
	if (!*ret_bytes && text[digits] && strcmp(text + digits, "iops") != 0) {
		*ret_bytes = true;
		res = units_parse_size(text, ret);
	} else {
		res = units_parse_u64(number, ret);
	}
	if (res || *ret == 0)
		return conf_err(n, err, -EINVAL,
		                "must be a number of commands or bytes, such as 500iops, "
		                "4096bytes or 1M, not '%s'",
		                text);
	return 0;
}

/* ---- writing ---- */

static void
put_rate(struct conf_writer *w, const char *key, enum qos_kind kind, uint64_t rate)
{
	struct units_text text;

	if (kind >= QOS_BANDWIDTH)
		conf_put_str(w, key, units_size(&text, rate));
	else
		conf_put_u64(w, key, rate);
}

void
qos_put(struct conf_writer *w, const char *key, const struct qos_config *q)
{
	conf_begin_object(w, key);
	for (unsigned k = 0; k < QOS_KINDS; k++) {
		const struct qos_limit *l = &q->limit[k];

		if (l->peak && l->committed == l->peak) {
			put_rate(w, qos_names[k], k, l->peak);
		} else if (l->peak) {
			conf_begin_array(w, qos_names[k]);
			put_rate(w, NULL, k, l->committed);
			put_rate(w, NULL, k, l->peak);
			conf_end(w);
		}
	}
	if (q->burst_ms != QOS_BURST_MS)
		conf_put_u64(w, "burst_ms", q->burst_ms);
	conf_end(w);
}

static const char *
rate_text(struct units_text *buf, enum qos_kind kind, uint64_t rate)
{
	if (kind >= QOS_BANDWIDTH)
		return units_size(buf, rate);
	snprintf(buf->s, sizeof(buf->s), "%llu", (unsigned long long)rate);
	return buf->s;
}

const char *
qos_show(struct qos_text *buf, const struct qos_config *q, enum qos_kind kind)
{
	const struct qos_limit *l = &q->limit[kind];
	struct units_text a, b;

	if (!l->peak)
		snprintf(buf->s, sizeof(buf->s), "-");
	else if (l->committed == l->peak)
		snprintf(buf->s, sizeof(buf->s), "%s", rate_text(&a, kind, l->peak));
	else
		snprintf(buf->s, sizeof(buf->s), "%s-%s", rate_text(&a, kind, l->committed),
		         rate_text(&b, kind, l->peak));
	return buf->s;
}
