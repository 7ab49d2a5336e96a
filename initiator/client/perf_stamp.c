/* What sluice-perf --verify writes into each logical block, and how it judges what comes back.
 * Pure.
 *
 * A block begins with its stamp (magic, volume, LBA, version, a check over these), and is filled
 * with a pattern that follows from LBA and version, so that any byte that is wrong shows. What can
 * be found: no stamp at all (foreign), that of another place (misplaced), another version (stale),
 * a wrong byte (damaged).
 */
#include "initiator/client/perf.h"

#define MAGIC UINT64_C(0x454349554c530001)
#define STEP  UINT64_C(0x9e3779b97f4a7c15)

struct stamp {
	uint64_t magic, volume, lba, version, check;
};

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t
check_of(const struct stamp *s)
{
	return mix(s->volume ^ mix(s->lba ^ mix(s->version ^ s->magic)));
}

uint64_t
stamp_hash(const char *name)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
	return h;
}

void
stamp_write(uint8_t *block, uint32_t size, const struct stamp_want *id)
{
	struct stamp s = {MAGIC, id->volume, id->lba, id->version, 0};
	uint64_t x;

	s.check = x = check_of(&s);
	memcpy(block, &s, sizeof(s));
	for (uint32_t at = sizeof(s); at < size; at += 8) {
		x = at < size - id->zeroes ? x + STEP : 0;
		memcpy(block + at, &x, 8);
	}
}

/* The first byte from at on that is not x's, which is known to exist. */
static uint32_t
first_wrong(const uint8_t *block, uint32_t at, uint64_t x)
{
	uint8_t want[8];

	memcpy(want, &x, 8);
	for (uint32_t i = 0; i < 8; i++)
		if (block[at + i] != want[i])
			return at + i;
	return at;
}

enum stamp_verdict
stamp_judge(const uint8_t *block, uint32_t size, const struct stamp_want *want,
	    struct stamp_found *ret)
{
	struct stamp s;
	uint64_t x, is;

	memcpy(&s, block, sizeof(s));
	*ret = (struct stamp_found){s.volume, s.lba, s.version, 0};
	if (s.magic != MAGIC)
		return STAMP_FOREIGN;
	if (s.check != check_of(&s))
		return STAMP_DAMAGED;
	if (s.volume != want->volume || s.lba != want->lba)
		return STAMP_MISPLACED;
	if (want->version && s.version != want->version)
		return STAMP_STALE;
	x = s.check;
	for (uint32_t at = sizeof(s); at < size; at += 8) {
		x = at < size - want->zeroes ? x + STEP : 0;
		memcpy(&is, block + at, 8);
		if (is != x) {
			ret->at = first_wrong(block, at, x);
			return STAMP_DAMAGED;
		}
	}
	return STAMP_OK;
}
