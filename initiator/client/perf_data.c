/* The memory of a job's commands, what is stamped into it and how it is judged; see perf_data.h.
 *
 * Happy path: perf_data_make() lays out the slots; perf_data_send() tells a command's extents and
 * stamps what it writes; perf_data_back() judges what it read, the canaries around it too, and
 * remembers the versions of what it wrote.
 *
 * What can fail: memory, at the start. What is wrong is told with its place, counted, and ends
 * nothing.
 */
#include "initiator/client/perf_data.h"

#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { TELL_MAX = 20 }; /* wrong blocks that a job describes; all are counted */

/* Versions of a block in memory besides real ones: */
#define VERSION_ANY  0u         /* not written in this run: may hold an older run's stamp */
#define VERSION_NONE UINT32_MAX /* a write failed, or it was trimmed: may hold anything */

uint64_t
perf_random(struct perf_data *d)
{
	uint64_t x = d->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return d->random = x;
}

/* Of each block, at its end. */
static uint32_t
zeroes_of(const struct perf_data *d)
{
	return d->plan->vol.block * d->plan->o->compressible / 100 / 8 * 8;
}

/* making */

void
perf_data_init(struct perf_data *d, const struct perf_plan *plan, struct perf_stats *stats,
               unsigned index)
{
	const struct perf_options *o = plan->o;

	d->plan = plan;
	d->stats = stats;
	d->random = (o->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
	            (index + 1) * UINT64_C(0xd1342543de82ef95);
	d->run = (uint64_t)time(NULL) << 32;
	d->first_lba = plan->units * plan->blocks * index;
	d->slot_size = ROUND_UP(o->bs, 4096);
	if (o->sg > 1 || o->verify)
		d->slot_size = ROUND_UP(o->bs + (size_t)(o->sg + 1) * PERF_CANARY, 4096);
	/* What was read must not be written elsewhere: a later --verify would find it there. */
	if (!o->verify && plan->read_percent > 0 && plan->read_percent < 100)
		d->write_off = d->slot_size * o->qd;
}

size_t
perf_data_size(const struct perf_data *d)
{
	return d->slot_size * d->plan->o->qd + d->write_off;
}

/* Cuts bs bytes into n extents of any length and lays them out in reverse, so that none touches its
 * neighbour. */
static void
lay_out(struct perf_data *d, struct perf_slot *s, unsigned index)
{
	uint32_t n = d->plan->o->sg, left = (uint32_t)d->plan->o->bs;
	size_t base = index * d->slot_size, at = d->slot_size - PERF_CANARY;

	memset((uint8_t *)d->mem + base, PERF_CANARY_BYTE, d->slot_size);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t rest = n - i - 1, len = left / (n - i);

		if (rest > 0 && len > 1)
			len = 1 + (uint32_t)(perf_random(d) % (2 * len - 1));
		if (rest == 0 || len > left - rest)
			len = left - rest;
		at -= len;
		s->ptr[i] = (uint8_t *)d->mem + base + at;
		s->sg[i] = (struct sluice_extent){ .addr = d->addr + base + at, .len = len };
		at -= PERF_CANARY;
		left -= len;
	}
}

/* One extent is a whole number of pages, as most programs have it. */
static void
lay_out_plain(struct perf_data *d, struct perf_slot *s, unsigned index)
{
	uint64_t bs = d->plan->o->bs, block = d->plan->vol.block;

	s->ptr[0] = (uint8_t *)d->mem + index * d->slot_size;
	s->sg[0] = (struct sluice_extent){ .addr = d->addr + index * d->slot_size,
		                           .len = (uint32_t)bs };
	if (d->plan->read_percent == 100)
		return; /* first touching much memory takes long */
	for (uint64_t k = 0; k + 8 <= bs; k += 8) {
		uint64_t x = k % block < block - zeroes_of(d) ? perf_random(d) : 0;

		memcpy(s->ptr[0] + d->write_off + k, &x, 8);
	}
}

static int
make_slots(struct perf_data *d)
{
	const struct perf_options *o = d->plan->o;
	size_t n = (size_t)o->qd * o->sg;
	struct sluice_extent *sg = calloc(2 * n, sizeof(*sg)); /* sg, then told, of all slots */
	uint8_t **ptr = calloc(n, sizeof(*ptr));

	d->slots = calloc(o->qd, sizeof(*d->slots));
	if (!sg || !ptr || !d->slots) {
		free(sg);
		free(ptr);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < o->qd; i++) {
		struct perf_slot *s = &d->slots[i];

		s->sg = sg + (size_t)i * o->sg;
		s->told = s->sg + n;
		s->ptr = ptr + (size_t)i * o->sg;
		if (o->sg > 1 || o->verify)
			lay_out(d, s, i);
		else
			lay_out_plain(d, s, i);
	}
	return 0;
}

int
perf_data_make(struct perf_data *d, void *mem, uint64_t addr)
{
	const struct perf_plan *p = d->plan;

	d->mem = mem;
	d->addr = addr;
	if (make_slots(d) < 0)
		return -ENOMEM;
	if (!p->o->verify)
		return 0;
	d->flat = malloc(p->o->bs);
	d->versions = calloc(p->units * p->blocks, sizeof(*d->versions));
	return d->flat && d->versions ? 0 : -ENOMEM;
}

void
perf_data_fini(struct perf_data *d)
{
	if (d->slots) {
		free(d->slots[0].sg);
		free(d->slots[0].ptr);
	}
	free(d->slots);
	free(d->flat);
	free(d->versions);
}

/* sending */

static uint32_t *
versions_of(const struct perf_data *d, const struct perf_slot *s)
{
	return d->versions + s->unit * d->plan->blocks + s->first;
}

/* As many of the extents as the command is long; the last one may be cut. */
static void
tell_extents(struct perf_data *d, struct perf_slot *s)
{
	uint32_t left = s->blocks * d->plan->vol.block;
	uint64_t off = s->op == SLUICE_WRITE ? d->write_off : 0;

	for (s->nr_told = 0; left > 0; s->nr_told++) {
		struct sluice_extent *e = &s->told[s->nr_told];

		*e = s->sg[s->nr_told];
		e->addr += off;
		e->len = MIN(e->len, left);
		left -= e->len;
	}
}

/* Copies between the one piece and the extents. */
static void
spread(struct perf_data *d, const struct perf_slot *s, bool out)
{
	uint8_t *flat = d->flat;

	for (uint32_t i = 0; i < s->nr_told; i++) {
		if (out)
			memcpy(s->ptr[i], flat, s->told[i].len);
		else
			memcpy(flat, s->ptr[i], s->told[i].len);
		flat += s->told[i].len;
	}
}

static uint64_t
lba_of(const struct perf_data *d, const struct perf_slot *s)
{
	return d->first_lba + s->unit * d->plan->blocks + s->first;
}

static void
stamp_all(struct perf_data *d, struct perf_slot *s)
{
	const struct perf_plan *p = d->plan;
	struct stamp_want id = { .volume = p->name_hash, .zeroes = zeroes_of(d) };

	if (++d->version == VERSION_NONE)
		d->version = VERSION_ANY + 1;
	s->version = d->version;
	id.version = d->run | s->version;
	for (uint32_t i = 0; i < s->blocks; i++) {
		id.lba = lba_of(d, s) + i;
		stamp_write(d->flat + (size_t)i * p->vol.block, p->vol.block, &id);
	}
	spread(d, s, true);
}

static uint8_t *
memory_of(const struct perf_data *d, const struct perf_slot *s)
{
	return (uint8_t *)d->mem + (size_t)(s - d->slots) * d->slot_size;
}

void
perf_data_send(struct perf_data *d, struct perf_slot *s)
{
	const struct perf_options *o = d->plan->o;

	tell_extents(d, s);
	if (!o->verify)
		return;
	if (s->op == SLUICE_WRITE)
		stamp_all(d, s);
	else if (o->bs_min < o->bs) /* what a longer one left is no canary */
		memset(memory_of(d, s), PERF_CANARY_BYTE, d->slot_size);
}

/* judging what came back */

static void
tell(struct perf_data *d, uint64_t lba, enum stamp_verdict v, const struct stamp_want *want,
     const struct stamp_found *f)
{
	if (d->told++ >= TELL_MAX)
		return;
	switch (v) {
	case STAMP_FOREIGN:
		log_error("LBA %llu: holds no block of ours, version %llx was written",
		          (unsigned long long)lba, (unsigned long long)want->version);
		break;
	case STAMP_MISPLACED:
		log_error("LBA %llu: holds LBA %llu%s, version %llx", (unsigned long long)lba,
		          (unsigned long long)f->lba,
		          f->volume == want->volume ? "" : " of another volume",
		          (unsigned long long)f->version);
		break;
	case STAMP_STALE:
		log_error("LBA %llu: holds version %llx, %llx was written", (unsigned long long)lba,
		          (unsigned long long)f->version, (unsigned long long)want->version);
		break;
	default:
		log_error("LBA %llu: byte %u is wrong, version %llx", (unsigned long long)lba,
		          f->at, (unsigned long long)f->version);
	}
}

/* One complaint for each stretch of canaries. */
static void
check_stretch(struct perf_data *d, const uint8_t *at, const uint8_t *to, uint32_t extent)
{
	for (const uint8_t *p = at; p < to; p++) {
		if (*p == PERF_CANARY_BYTE)
			continue;
		METER_ADD(d->stats->canaries, 1);
		log_error("memory behind extent %u, byte %zu, was written to", extent,
		          (size_t)(p - at));
		return;
	}
}

/* Extents lie in reverse: behind extent i a canary, then extent i - 1. */
static void
check_canaries(struct perf_data *d, const struct perf_slot *s)
{
	uint8_t *base = memory_of(d, s), *end = base + d->slot_size;
	uint64_t hit = d->stats->canaries;

	for (uint32_t i = 0; i < s->nr_told; i++) {
		check_stretch(d, s->ptr[i] + s->told[i].len, end, i);
		end = s->ptr[i];
	}
	check_stretch(d, base, end, s->nr_told);
	if (d->stats->canaries != hit) /* tell it once */
		memset(base, PERF_CANARY_BYTE, d->slot_size);
}

static void
check_read(struct perf_data *d, const struct perf_slot *s)
{
	const struct perf_plan *p = d->plan;
	const uint32_t *versions = versions_of(d, s);
	struct stamp_want want = { .volume = p->name_hash, .zeroes = zeroes_of(d) };
	struct stamp_found found;

	spread(d, s, false);
	check_canaries(d, s);
	for (uint32_t i = 0; i < s->blocks; i++) {
		enum stamp_verdict v;

		if (versions[i] == VERSION_NONE)
			continue;
		want.lba = lba_of(d, s) + i;
		want.version = versions[i] == VERSION_ANY ? 0 : d->run | versions[i];
		v = stamp_judge(d->flat + (size_t)i * p->vol.block, p->vol.block, &want, &found);
		/* A disk that nobody has stamped yet is no error. */
		if (v == STAMP_FOREIGN && versions[i] == VERSION_ANY)
			continue;
		METER_ADD(d->stats->checked, 1);
		if (v == STAMP_OK)
			continue;
		METER_ADD(d->stats->bad, 1);
		tell(d, want.lba, v, &want, &found);
	}
}

void
perf_data_back(struct perf_data *d, const struct perf_slot *s, bool good)
{
	uint32_t *v, is = s->op == SLUICE_WRITE && good ? s->version : VERSION_NONE;

	if (!d->versions || s->op == SLUICE_FLUSH)
		return;
	if (s->op == SLUICE_READ) {
		if (good)
			check_read(d, s);
		return;
	}
	v = versions_of(d, s);
	for (uint32_t i = 0; i < s->blocks; i++)
		v[i] = is;
}

bool
perf_data_knows(const struct perf_data *d, uint64_t unit)
{
	const uint32_t *v = d->versions + unit * d->plan->blocks;

	for (uint32_t i = 0; i < d->plan->blocks; i++)
		if (v[i] != VERSION_ANY && v[i] != VERSION_NONE)
			return true;
	return false;
}
