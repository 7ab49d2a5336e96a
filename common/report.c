/* See report.h. */
#include "common/report.h"

#include "common/log.h"
#include "common/meter.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

uint64_t
report_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void
report_process(struct conf_writer *w, uint64_t started_ms, unsigned nr_reactors)
{
	conf_put_str(w, "version", PACKAGE_VERSION);
	conf_put_u64(w, "pid", (uint64_t)getpid());
	conf_put_u64(w, "uptime_ms", report_now_ms() - started_ms);
	conf_put_u64(w, "reactors", nr_reactors);
}

/* Bytes; 0 when /proc is not there. */
static uint64_t
resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long total, pages = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%lu %lu", &total, &pages) != 2)
		pages = 0;
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void
report_resident(struct conf_writer *w)
{
	conf_put_u64(w, "resident_bytes", resident());
}

void
report_loop(struct conf_writer *w, const struct ring *ring, const struct chan_stats *chan)
{
	const struct ring_stats *r = ring_stats(ring);

	conf_put_u64(w, "turns", METER_GET(r->turns));
	conf_put_u64(w, "enters", METER_GET(r->enters));
	conf_put_u64(w, "sqes", METER_GET(r->sqes));
	conf_put_u64(w, "cqes", METER_GET(r->cqes));
	conf_put_u64(w, "sleeps", METER_GET(r->sleeps));
	conf_put_u64(w, "spins", METER_GET(r->spins));
	conf_put_u64(w, "rx_calls", METER_GET(chan->rx_calls));
	conf_put_u64(w, "rx_bytes", METER_GET(chan->rx_bytes));
	conf_put_u64(w, "rx_direct", METER_GET(chan->rx_direct));
	conf_put_u64(w, "rx_staged", METER_GET(chan->rx_staged));
	conf_put_u64(w, "tx_calls", METER_GET(chan->tx_calls));
	conf_put_u64(w, "tx_bytes", METER_GET(chan->tx_bytes));
	conf_put_u64(w, "tx_zc_bytes", METER_GET(chan->tx_zc_bytes));
	conf_put_u64(w, "tx_zc_copied_bytes", METER_GET(chan->tx_zc_copied_bytes));
}

void
report_pools_add(struct report_pools *sum, const struct buf_pool *pool)
{
	sum->size += buf_pool_size(pool);
	sum->used += buf_pool_used(pool);
	sum->waits += buf_pool_waits(pool);
}

void
report_pools(struct conf_writer *w, const char *key, const struct report_pools *sum)
{
	conf_begin_object(w, key);
	conf_put_u64(w, "size", sum->size);
	conf_put_u64(w, "used", sum->used);
	conf_put_u64(w, "waits", sum->waits);
	conf_end(w);
}

int
report_log_level(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	static const char *const words[] = { "error", "warning", "info", "debug" };
	const char *word = NULL;
	int ret;

	(void)ctx;
	ret = conf_get_str(params, "level", 16, &word, err);
	if (ret < 0)
		return ret;
	if (word && log_level_parse(word, &log_level))
		return err_set(err, -EINVAL,
		               "level must be error, warning, info or debug, not '%s'", word);
	conf_begin_object(w, NULL);
	conf_put_str(w, "level", words[log_level]);
	conf_end(w);
	return 0;
}
