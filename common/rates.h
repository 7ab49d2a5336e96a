/* The limits of one level as buckets, one of each kind, and what one command wants of them.
 *
 * Happy path: rates_want() tells which limits apply to a command: those of all commands, those of
 * its direction, those of bytes if it has a payload. rates_ready() asks all of these buckets,
 * rates_charge() takes from them; who was refused comes again after rates_wait(). rates_lease() is
 * both in one, out of a thread's leases where rates are high.
 *
 * Limits change while threads use them: each number is atomic, and a command that sees some old and
 * some new ones is charged a little wrong, once. Nothing can fail.
 */
#ifndef SLUICE_RATES_H
#define SLUICE_RATES_H

#include "common/bucket.h"
#include "common/qos.h"

/* Where reads and writes have limits of their own, they do not wait behind each other. */
enum { RATES_ALL, RATES_WRITES = 1, RATES_LINES };

#define RATES_COMMANDS (1u << QOS_IOPS | 1u << QOS_READ_IOPS | 1u << QOS_WRITE_IOPS)

struct rates {                 /* all zeroes: no limits */
	_Atomic uint8_t kinds; /* 1 << kind: there is such a limit */
	struct bucket bucket[QOS_KINDS];
};

struct rates_want {     /* of one command */
	unsigned kinds; /* limits that apply */
	unsigned line;
	uint64_t bytes, now;
};

#define for_each_kind(mask, m, k)                                                                  \
	for (unsigned m = (mask), k; m && ((k = (unsigned)__builtin_ctz(m)), true); m &= m - 1)

/* rate: of each kind a second; 0: no such limit. */
void rates_set(struct rates *r, const uint64_t rate[QOS_KINDS], uint32_t burst_ms, uint64_t now);
void rates_want(const struct rates *r, bool read, uint64_t bytes, uint64_t now,
                struct rates_want *ret);

/* Tokens of that kind that it takes. */
static inline uint64_t
rates_count(unsigned kind, const struct rates_want *w)
{
	return kind >= QOS_BANDWIDTH ? w->bytes : 1;
}

bool rates_ready(struct rates *r, const struct rates_want *w);
uint64_t rates_wait(struct rates *r, const struct rates_want *w); /* ns */
void rates_charge(struct rates *r, const struct rates_want *w);
/* See bucket_charge_capped(). */
void rates_charge_capped(struct rates *r, const struct rates_want *w, uint64_t max_ns);
/* lease: of this thread. False: there are no tokens. */
bool rates_lease(struct rates *r, struct bucket_lease lease[QOS_KINDS], const struct rates_want *w);
/* The command, not its bytes, was none. */
void rates_uncharge(struct rates *r, const struct rates_want *w);
/* To the limits of bytes, or to those of commands. */
void rates_refund(struct rates *r, bool bytes, uint64_t n);
/* Of the tightest limit of bytes, or of commands; INT64_MAX: there is none. */
int64_t rates_tokens(struct rates *r, bool bytes, uint64_t now);

#endif
