/* Token buckets; see bucket.h.
 *
 * Happy path: a charge is one atomic addition to at; when more credit was saved than the burst, at
 * is moved up to now - burst in the same step. Reciprocals are computed when a rate is set, so
 * nothing divides later. Nothing can fail.
 */
#include "common/bucket.h"

enum {
	SEEN_SHIFT = 32,
	SEEN_MAX = 800, /* in 2^32 ns: 57 minutes; the clock of at reaches 2.4 hours either way */
	PRICE_BITS = 57,
};

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

#define load(p)     atomic_load_explicit((p), memory_order_relaxed)
#define store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define swap(p, old, v)                                                                            \
	atomic_compare_exchange_weak_explicit((p), (old), (v), memory_order_relaxed,               \
	                                      memory_order_relaxed)

static uint64_t
fixed(uint64_t ns)
{
	return ns << BUCKET_FRACTION;
}

/* How far a lies behind b. */
static int64_t
behind(uint64_t a, uint64_t b)
{
	return (int64_t)(b - a);
}

static uint64_t
price_of(uint64_t rate)
{
	unsigned __int128 token = (unsigned __int128)NS_PER_S << BUCKET_FRACTION;
	unsigned shift = 0;

	if (rate == 0)
		return 0;
	while (token / rate < (UINT64_C(1) << (PRICE_BITS - 1))) {
		token <<= 1;
		shift++;
	}
	return (uint64_t)((token + rate / 2) / rate) << 6 | shift;
}

static double
token_time(uint64_t price)
{
	return (double)(price >> 6) / (double)(UINT64_C(1) << (price & 63));
}

/* Whoever asks comes here first: after a long pause at would seem to lie ahead. */
static void
look(struct bucket *b, uint64_t now)
{
	uint32_t seen = atomic_load_explicit(&b->seen, memory_order_acquire);
	uint32_t here = (uint32_t)(now >> SEEN_SHIFT);

	if (seen == here)
		return;
	if ((int32_t)(here - seen) > SEEN_MAX)
		store(&b->at, fixed(now) - load(&b->burst));
	if ((int32_t)(here - seen) > 0)
		atomic_store_explicit(&b->seen, here, memory_order_release);
}

void
bucket_init(struct bucket *b, uint64_t rate, uint32_t burst_ms, uint64_t now)
{
	store(&b->price, price_of(rate));
	store(&b->burst, fixed(burst_ms * NS_PER_MS));
	store(&b->bonus, 0);
	store(&b->at, fixed(now) - fixed(burst_ms * NS_PER_MS));
	store(&b->seen, (uint32_t)(now >> SEEN_SHIFT));
}

/* Time of as many tokens in the new price. */
static double
repriced(double time, uint64_t old, uint64_t price)
{
	time *= token_time(price) / token_time(old);
	return time > (double)BUCKET_COST_MAX ? (double)BUCKET_COST_MAX : time;
}

/* Debt or credit of as many tokens; what a bucket without a limit has is nothing but the new
 * burst. */
static uint64_t
moved(uint64_t at, uint64_t now, uint64_t old, uint64_t price, uint64_t burst)
{
	double ahead;

	if (!old || !price)
		return now - burst;
	ahead = repriced((double)behind(now, at), old, price);
	if (ahead < -(double)burst)
		ahead = -(double)burst;
	return now + (uint64_t)(int64_t)ahead;
}

/* What was saved beyond the burst has lapsed, whatever the next burst is. */
static void
lapse(struct bucket *b, uint64_t now)
{
	uint64_t at = load(&b->at), full = fixed(now) - load(&b->burst);

	while (behind(at, full) > 0 && !swap(&b->at, &at, full))
		;
}

void
bucket_set(struct bucket *b, uint64_t rate, uint32_t burst_ms, uint64_t now)
{
	uint64_t price = price_of(rate), old = load(&b->price), at, bonus;
	uint64_t burst = fixed(burst_ms * NS_PER_MS);

	if (old == price && load(&b->burst) == burst)
		return;
	look(b, now);
	lapse(b, now);
	store(&b->burst, burst);
	store(&b->price, price);
	if (old == price)
		return;
	at = load(&b->at);
	while (!swap(&b->at, &at, moved(at, fixed(now), old, price, burst)))
		;
	bonus = load(&b->bonus);
	while (bonus > 0 &&
	       !swap(&b->bonus, &bonus, price ? (uint64_t)repriced((double)bonus, old, price) : 0))
		;
}

/* ---- asking ---- */

bool
bucket_ready(struct bucket *b, uint64_t n, uint64_t now)
{
	uint64_t bonus;

	look(b, now);
	if (behind(load(&b->at), fixed(now)) >= 0 || !load(&b->price))
		return true;
	bonus = load(&b->bonus);
	return bonus > 0 && bonus >= bucket_cost(b, n);
}

uint64_t
bucket_wait(struct bucket *b, uint64_t n, uint64_t now)
{
	if (bucket_ready(b, n, now))
		return 0;
	return ((uint64_t)behind(fixed(now), load(&b->at)) >> BUCKET_FRACTION) + 1;
}

int64_t
bucket_tokens(struct bucket *b, uint64_t now)
{
	uint64_t price = load(&b->price), burst = load(&b->burst);
	int64_t credit;

	if (!price)
		return 0;
	look(b, now);
	credit = behind(load(&b->at), fixed(now));
	if (credit > (int64_t)burst)
		credit = (int64_t)burst;
	return (int64_t)(((double)credit + (double)load(&b->bonus)) / token_time(price));
}

/* ---- taking ---- */

static bool
spend_bonus(struct bucket *b, uint64_t cost)
{
	uint64_t bonus = load(&b->bonus);

	while (bonus > 0 && bonus >= cost)
		if (swap(&b->bonus, &bonus, bonus - cost))
			return true;
	return false;
}

static void
charge(struct bucket *b, uint64_t cost, uint64_t now)
{
	uint64_t at = load(&b->at), full = fixed(now) - load(&b->burst);

	if (behind(fixed(now), at) > 0 && spend_bonus(b, cost))
		return;
	while (behind(at, full) > 0)
		if (swap(&b->at, &at, full + cost))
			return;
	atomic_fetch_add_explicit(&b->at, cost, memory_order_relaxed);
}

void
bucket_charge(struct bucket *b, uint64_t n, uint64_t now)
{
	if (load(&b->price))
		charge(b, bucket_cost(b, n), now);
}

void
bucket_charge_capped(struct bucket *b, uint64_t n, uint64_t now, uint64_t max_ns)
{
	uint64_t at;

	bucket_charge(b, n, now);
	at = load(&b->at);
	while (load(&b->price) && behind(fixed(now + max_ns), at) > 0)
		if (swap(&b->at, &at, fixed(now + max_ns)))
			return;
}

void
bucket_uncharge(struct bucket *b, uint64_t n)
{
	if (load(&b->price))
		atomic_fetch_sub_explicit(&b->at, bucket_cost(b, n), memory_order_relaxed);
}

void
bucket_refund(struct bucket *b, uint64_t n)
{
	uint64_t bonus = load(&b->bonus), cost = bucket_cost(b, n), sum;

	if (!load(&b->price))
		return;
	do {
		sum = bonus > BUCKET_COST_MAX ? bonus : bonus + cost;
	} while (!swap(&b->bonus, &bonus, sum));
}

/* ---- leases ---- */

void
bucket_lease_return(struct bucket *b, struct bucket_lease *l)
{
	if (l->credit)
		atomic_fetch_sub_explicit(&b->at, l->credit, memory_order_relaxed);
	l->credit = 0;
}

static bool
lease_covers(const struct bucket_lease *l, uint64_t cost, uint64_t now)
{
	return l->credit > 0 && l->credit >= cost && now - l->since <= BUCKET_STALE_NS;
}

bool
bucket_lease_ready(struct bucket *b, const struct bucket_lease *l, uint64_t n, uint64_t now)
{
	return lease_covers(l, bucket_cost(b, n), now) || bucket_ready(b, n, now);
}

void
bucket_lease_charge(struct bucket *b, struct bucket_lease *l, uint64_t n, uint64_t now)
{
	const uint64_t chunk = fixed(BUCKET_LEASE_NS);
	uint64_t cost = bucket_cost(b, n);

	if (!load(&b->price))
		return;
	if (lease_covers(l, cost, now)) {
		l->credit -= cost;
		return;
	}
	bucket_lease_return(b, l);
	if (cost > chunk / 4 || behind(load(&b->at), fixed(now)) < (int64_t)(4 * chunk)) {
		charge(b, cost, now);
		return;
	}
	charge(b, cost + chunk, now);
	l->credit = chunk;
	l->since = now;
}
