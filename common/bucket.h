/* Token buckets as virtual time: how much may pass, from one token a second to 10^11. Pure: no
 * clock, no fd; any thread.
 *
 * A bucket is one number: at, the time up to which all tokens are spent, in fixed-point ns. Credit
 * is how far it lies behind now, at most the burst; debt is how far it lies ahead. What asks while
 * there is no debt passes, however large it is, and is paid back: so a check and a charge need not
 * be one step, and the long-run rate is exact though all threads share one bucket.
 *
 * Happy path: bucket_ready() asks, bucket_charge() takes; who was refused comes again after
 * bucket_wait(). A lease keeps threads off each other's cache line where rates are high: a thread
 * takes a chunk of the credit ahead and spends that alone; there are none where one piece costs
 * more than a part of a chunk, or where there is little credit.
 *
 * Nothing can fail. All times are ns of one monotonic clock; what a bucket holds wraps, so it must
 * be behind or ahead of now by less than an hour: a bucket that was not asked for longer is full.
 */
#ifndef SLUICE_BUCKET_H
#define SLUICE_BUCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BUCKET_RATE_MAX UINT64_C(100000000000)

enum {
	BUCKET_FRACTION = 20, /* bits behind the point: 10^-4 of a token at the highest rate */
	BUCKET_BURST_MS_MAX = 60000,
	BUCKET_LEASE_NS = 20000,   /* 20 I/Os at a million a second: a fifth of an atomic each */
	BUCKET_STALE_NS = 1000000, /* a lease that is older goes back */
};

/* The most that one charge costs, half an hour. What costs more is forgiven: 1 MiB at 1 KiB/s is 17
 * minutes. */
#define BUCKET_COST_MAX (UINT64_C(1) << 61)

struct bucket {
	_Atomic uint64_t at;    /* fixed point, wraps */
	_Atomic uint64_t price; /* time of a token: mantissa << 6 | shift; 0: no limit */
	_Atomic uint64_t burst; /* fixed point */
	_Atomic uint64_t bonus; /* fixed point: refunds, beside the burst */
	_Atomic uint32_t seen;  /* when it was asked last, in 2^32 ns */
};

struct bucket_lease {    /* of one thread */
	uint64_t credit; /* fixed point, paid for */
	uint64_t since;  /* ns */
};

/* Starts full. rate: tokens a second, at most BUCKET_RATE_MAX; 0: no limit, all passes. */
void bucket_init(struct bucket *b, uint64_t rate, uint32_t burst_ms, uint64_t now);
/* Any time. Tokens that are owed or saved stay so many tokens: changes neither give nor take. */
void bucket_set(struct bucket *b, uint64_t rate, uint32_t burst_ms, uint64_t now);

/* Fixed-point ns that n tokens cost. */
static inline uint64_t
bucket_cost(const struct bucket *b, uint64_t n)
{
	uint64_t price = atomic_load_explicit(&b->price, memory_order_relaxed);
	unsigned __int128 cost = (unsigned __int128)n * (price >> 6) >> (price & 63);

	return cost > BUCKET_COST_MAX ? BUCKET_COST_MAX : (uint64_t)cost;
}

/* There is no debt, or a refund covers n. */
bool bucket_ready(struct bucket *b, uint64_t n, uint64_t now);
/* ns until bucket_ready() if nobody else takes anything; 0: now. */
uint64_t bucket_wait(struct bucket *b, uint64_t n, uint64_t now);
/* Whether or not it was ready. */
void bucket_charge(struct bucket *b, uint64_t n, uint64_t now);
/* The same, but debt stays below max_ns: for a bucket that has no say in what passes. */
void bucket_charge_capped(struct bucket *b, uint64_t n, uint64_t now, uint64_t max_ns);
/* Takes back a charge of this moment. */
void bucket_uncharge(struct bucket *b, uint64_t n);
/* A gift that does not lapse: n more may pass than the rate allows, now or later. */
void bucket_refund(struct bucket *b, uint64_t n);
/* Tokens that may pass now; negative: that are owed. */
int64_t bucket_tokens(struct bucket *b, uint64_t now);

bool bucket_lease_ready(struct bucket *b, const struct bucket_lease *l, uint64_t n, uint64_t now);
void bucket_lease_charge(struct bucket *b, struct bucket_lease *l, uint64_t n, uint64_t now);
void bucket_lease_return(struct bucket *b, struct bucket_lease *l);

#endif
