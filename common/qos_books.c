/* The row of a limit in "qos show"; see qos_books.h. */
#include "common/qos_books.h"

#include <string.h>

void
qos_books_init(struct qos_books *b, const struct qos_config *cfg, struct rates *r, uint64_t now)
{
	memset(b, 0, sizeof(*b));
	b->cfg = cfg;
	b->tokens = rates_tokens(r, false, now);
	b->byte_tokens = rates_tokens(r, true, now);
}

/* null where there is no such limit. */
static void
put_tokens(struct conf_writer *w, const char *key, int64_t tokens)
{
	if (tokens == INT64_MAX)
		conf_put_null(w, key);
	else
		conf_put_i64(w, key, tokens);
}

void
qos_put_books(struct conf_writer *w, const struct qos_books *b)
{
	struct qos_text text;

	for (unsigned k = 0; k < QOS_KINDS; k++)
		conf_put_str(w, qos_names[k], qos_show(&text, b->cfg, k));
	conf_put_u64(w, "burst_ms", b->cfg->burst_ms);
	conf_put_u64(w, "passed", b->passed);
	conf_put_u64(w, "passed_bytes", b->passed_bytes);
	conf_put_u64(w, "held", b->held);
	conf_put_u64(w, "waiting", b->waiting);
	conf_put_u64(w, "wait_mean_ns", meter_hist_mean(&b->wait));
	conf_put_u64(w, "wait_p50_ns", meter_hist_quantile(&b->wait, 0.5));
	conf_put_u64(w, "wait_p99_ns", meter_hist_quantile(&b->wait, 0.99));
	conf_put_u64(w, "wait_max_ns", b->wait.max);
	put_tokens(w, "tokens", b->tokens);
	put_tokens(w, "byte_tokens", b->byte_tokens);
}
