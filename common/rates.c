/* Buckets of all kinds as one; see rates.h. */
#include "common/rates.h"

#include "common/wire.h"

enum {
	READS = BIT(QOS_IOPS) | BIT(QOS_BANDWIDTH) | BIT(QOS_READ_IOPS) | BIT(QOS_READ_BANDWIDTH),
	WRITES =
		BIT(QOS_IOPS) | BIT(QOS_BANDWIDTH) | BIT(QOS_WRITE_IOPS) | BIT(QOS_WRITE_BANDWIDTH),
	DIRECTED = BIT(QOS_READ_IOPS) | BIT(QOS_WRITE_IOPS) | BIT(QOS_READ_BANDWIDTH) |
	           BIT(QOS_WRITE_BANDWIDTH),
};

static unsigned
kinds_of(const struct rates *r)
{
	return atomic_load_explicit(&r->kinds, memory_order_relaxed);
}

void
rates_set(struct rates *r, const uint64_t rate[QOS_KINDS], uint32_t burst_ms, uint64_t now)
{
	unsigned kinds = 0;

	for (unsigned k = 0; k < QOS_KINDS; k++) {
		bucket_set(&r->bucket[k], rate[k], burst_ms, now);
		kinds |= rate[k] ? BIT(k) : 0;
	}
	atomic_store(&r->kinds, (uint8_t)kinds);
}

void
rates_want(const struct rates *r, bool read, uint64_t bytes, uint64_t now, struct rates_want *ret)
{
	unsigned kinds = kinds_of(r);

	ret->now = now;
	ret->bytes = bytes;
	ret->line = kinds & DIRECTED && !read ? RATES_WRITES : RATES_ALL;
	ret->kinds = kinds & (read ? READS : WRITES);
	if (!bytes)
		ret->kinds &= RATES_COMMANDS;
}

bool
rates_ready(struct rates *r, const struct rates_want *w)
{
	for_each_kind(w->kinds, m, k)
	{
		if (!bucket_ready(&r->bucket[k], rates_count(k, w), w->now))
			return false;
	}
	return true;
}

uint64_t
rates_wait(struct rates *r, const struct rates_want *w)
{
	uint64_t wait = 0;

	for_each_kind(w->kinds, m, k)
	{
		wait = MAX(wait, bucket_wait(&r->bucket[k], rates_count(k, w), w->now));
	}
	return wait;
}

void
rates_charge(struct rates *r, const struct rates_want *w)
{
	for_each_kind(w->kinds, m, k)
	{
		bucket_charge(&r->bucket[k], rates_count(k, w), w->now);
	}
}

void
rates_charge_capped(struct rates *r, const struct rates_want *w, uint64_t max_ns)
{
	for_each_kind(w->kinds, m, k)
	{
		bucket_charge_capped(&r->bucket[k], rates_count(k, w), w->now, max_ns);
	}
}

bool
rates_lease(struct rates *r, struct bucket_lease lease[QOS_KINDS], const struct rates_want *w)
{
	for_each_kind(w->kinds, m, k)
	{
		if (!bucket_lease_ready(&r->bucket[k], &lease[k], rates_count(k, w), w->now))
			return false;
	}
	for_each_kind(w->kinds, m, k)
	{
		bucket_lease_charge(&r->bucket[k], &lease[k], rates_count(k, w), w->now);
	}
	return true;
}

void
rates_uncharge(struct rates *r, const struct rates_want *w)
{
	for_each_kind(w->kinds & RATES_COMMANDS, m, k)
	{
		bucket_uncharge(&r->bucket[k], 1);
	}
}

void
rates_refund(struct rates *r, bool bytes, uint64_t n)
{
	for_each_kind(kinds_of(r) & (bytes ? ~RATES_COMMANDS : RATES_COMMANDS), m, k)
	{
		bucket_refund(&r->bucket[k], n);
	}
}

int64_t
rates_tokens(struct rates *r, bool bytes, uint64_t now)
{
	int64_t least = INT64_MAX;

	for_each_kind(kinds_of(r) & (bytes ? ~RATES_COMMANDS : RATES_COMMANDS), m, k)
	{
		least = MIN(least, bucket_tokens(&r->bucket[k], now));
	}
	return least;
}
