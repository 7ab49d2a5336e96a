/* One job of sluice-perf: a queue, a thread, a part of the volume. See perf.h.
 *
 * Happy path: fill() prepares a command for every free slot, as rate and count allow, and submits
 * them at once; the thread waits; every completion is judged, its latency counted. When time or
 * count is over the rest is awaited; with --sweep, what was written is then read once more.
 *
 * Under --verify no two commands of a job touch the same blocks at a time; perf_data.c knows what
 * is in them. What can fail: a command (counted by status); what was read is wrong (told with its
 * place, counted); the daemon goes: the job ends.
 */
#include "initiator/client/perf_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	DRAIN_MS = 60000, /* for what is still out at the end */
	TRIES = 64,       /* to find a place that is free and random */
};
#define NS_PER_S 1000000000ull

struct job_state {
	struct perf_data data;
	uint32_t *free, nr_free; /* slots */
	struct sluice_io *ios;
	struct sluice_completion *cqes;
	uint8_t *busy;          /* units that a command is out for; --verify */
	uint64_t next;          /* sequential */
	uint64_t issued, limit; /* commands */
	uint64_t writes_since_flush;
	uint64_t began, end; /* ns; end 0: no limit */
	bool sweep;          /* the load is over */
};

static uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* making */

static uint32_t
entries_for(uint32_t qd)
{
	uint32_t n = 2;

	while (n < qd + 1)
		n *= 2;
	return n;
}

static int
make_lists(struct job_state *st, const struct perf_plan *p)
{
	uint32_t qd = p->o->qd;

	st->free = calloc(qd, sizeof(*st->free));
	st->ios = calloc(qd, sizeof(*st->ios));
	st->cqes = calloc(qd, sizeof(*st->cqes));
	if (p->o->verify)
		st->busy = calloc(p->units, 1);
	if (!st->free || !st->ios || !st->cqes || (p->o->verify && !st->busy))
		return -ENOMEM;
	while (st->nr_free < qd) {
		st->free[st->nr_free] = qd - 1 - st->nr_free;
		st->nr_free++;
	}
	return 0;
}

int
perf_job_init(struct perf_job *j, struct err *err)
{
	const struct perf_options *o = j->plan->o;
	struct job_state *st = calloc(1, sizeof(*st));
	uint64_t addr;
	void *mem;
	int res;

	if (!st)
		return err_set(err, -ENOMEM, "no memory for job %u", j->index);
	j->state = st;
	perf_data_init(&st->data, j->plan, &j->stats, j->index);
	st->limit = o->count ? (o->count + o->jobs - 1 - j->index) / o->jobs : UINT64_MAX;
	res = sluice_register(j->s, perf_data_size(&st->data), &mem, &addr);
	if (res == 0)
		res = sluice_queue_new(j->s, entries_for(o->qd), &j->q);
	if (res < 0)
		return err_set(err, res, "%s", sluice_error(j->s));
	if (perf_data_make(&st->data, mem, addr) < 0 || make_lists(st, j->plan) < 0)
		return err_set(err, -ENOMEM, "no memory for job %u; try a smaller --size",
		               j->index);
	return 0;
}

void
perf_job_fini(struct perf_job *j)
{
	struct job_state *st = j->state;

	if (!st)
		return;
	perf_data_fini(&st->data);
	free(st->free);
	free(st->ios);
	free(st->cqes);
	free(st->busy);
	free(st);
	j->state = NULL;
}

/* choosing and preparing a command */

/* False: every place that was tried is busy. */
static bool
choose_unit(struct perf_job *j, uint64_t *ret)
{
	const struct perf_plan *p = j->plan;
	struct job_state *st = j->state;

	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t unit;

		if (p->random) {
			unit = perf_random(&st->data) % p->units;
		} else {
			unit = st->next;
			st->next = unit + 1 == p->units ? 0 : unit + 1;
		}
		if (!st->busy || !st->busy[unit]) {
			*ret = unit;
			return true;
		}
	}
	return false;
}

/* Any number of blocks from the least on, anywhere in the unit. */
static void
choose_blocks(struct perf_job *j, struct perf_slot *s)
{
	const struct perf_plan *p = j->plan;
	struct perf_data *d = &j->state->data;

	s->first = 0;
	s->blocks = p->blocks;
	if (p->least == p->blocks)
		return;
	s->blocks = p->least + (uint32_t)(perf_random(d) % (p->blocks - p->least + 1));
	s->first = (uint32_t)(perf_random(d) % (p->blocks - s->blocks + 1));
}

static enum sluice_op
choose_op(struct perf_job *j)
{
	const struct perf_options *o = j->plan->o;
	struct job_state *st = j->state;

	if (o->flush && st->writes_since_flush >= o->flush) {
		st->writes_since_flush = 0;
		return SLUICE_FLUSH;
	}
	if (o->trim && perf_random(&st->data) % 100 < o->trim)
		return SLUICE_DISCARD;
	if (j->plan->read_percent == 100 ||
	    (j->plan->read_percent && perf_random(&st->data) % 100 < j->plan->read_percent))
		return SLUICE_READ;
	st->writes_since_flush++;
	return SLUICE_WRITE;
}

/* The next unit that this run has written; false: that was all. */
static bool
choose_sweep(struct perf_job *j, struct perf_slot *s)
{
	const struct perf_plan *p = j->plan;
	struct job_state *st = j->state;

	while (st->next < p->units && !perf_data_knows(&st->data, st->next))
		st->next++;
	if (st->next == p->units)
		return false;
	s->op = SLUICE_READ;
	s->unit = st->next++;
	s->first = 0;
	s->blocks = p->blocks;
	return true;
}

static bool
choose(struct perf_job *j, struct perf_slot *s)
{
	s->sweep = j->state->sweep;
	if (s->sweep)
		return choose_sweep(j, s);
	s->unit = 0;
	s->op = choose_op(j);
	if (s->op == SLUICE_FLUSH)
		return true;
	choose_blocks(j, s);
	return choose_unit(j, &s->unit);
}

static bool
prepare(struct perf_job *j, struct sluice_io *io, uint64_t now)
{
	const struct perf_plan *p = j->plan;
	struct job_state *st = j->state;
	struct perf_slot *s = &st->data.slots[st->free[st->nr_free - 1]];

	if (!choose(j, s))
		return false;
	st->nr_free--;
	s->started = now;
	*io = (struct sluice_io){ .op = s->op,
		                  .nsid = p->vol.nsid,
		                  .user = (uint64_t)(s - st->data.slots) };
	if (s->op == SLUICE_FLUSH)
		return true;
	io->lba = st->data.first_lba + s->unit * p->blocks + s->first;
	io->blocks = s->blocks;
	if (st->busy)
		st->busy[s->unit] = 1;
	if (s->op == SLUICE_DISCARD)
		return true;
	perf_data_send(&st->data, s);
	io->sg = s->told;
	io->nsg = s->nr_told;
	return true;
}

/* what came back */

static void
count_error(struct perf_stats *st, uint16_t status)
{
	unsigned i;

	METER_ADD(st->errors, 1);
	for (i = 0; i < PERF_STATUSES - 1; i++)
		if (st->statuses[i].count == 0 || st->statuses[i].status == status)
			break;
	st->statuses[i].status = status;
	st->statuses[i].count++;
}

static void
count_good(struct perf_job *j, const struct perf_slot *s, uint64_t now)
{
	struct perf_stats *stats = &j->stats;
	uint64_t ns = now - s->started, bytes = (uint64_t)s->blocks * j->plan->vol.block;

	switch (s->op) {
	case SLUICE_READ:
		METER_ADD(stats->reads, 1);
		METER_ADD(stats->read_bytes, bytes);
		meter_hist_add(&stats->read_ns, ns);
		break;
	case SLUICE_WRITE:
		METER_ADD(stats->writes, 1);
		METER_ADD(stats->write_bytes, bytes);
		meter_hist_add(&stats->write_ns, ns);
		break;
	case SLUICE_DISCARD:
		METER_ADD(stats->trims, 1);
		meter_hist_add(&stats->other_ns, ns);
		break;
	default:
		METER_ADD(stats->flushes, 1);
		meter_hist_add(&stats->other_ns, ns);
	}
}

static void
completed(struct perf_job *j, const struct sluice_completion *c, uint64_t now)
{
	struct job_state *st = j->state;
	struct perf_slot *s = &st->data.slots[c->user];

	if (c->status)
		count_error(&j->stats, c->status);
	else if (!s->sweep)
		count_good(j, s, now);
	if (st->busy && s->op != SLUICE_FLUSH)
		st->busy[s->unit] = 0;
	perf_data_back(&st->data, s, c->status == 0);
	st->free[st->nr_free++] = (uint32_t)c->user;
}

/* the loop */

/* Commands that may be issued by now. */
static uint64_t
allowance(const struct perf_job *j, uint64_t now)
{
	const struct job_state *st = j->state;
	uint64_t n = st->nr_free;

	if (st->sweep)
		return n;
	if (*j->stop || (st->end && now >= st->end))
		return 0;
	n = MIN(n, st->limit - st->issued);
	if (j->plan->o->rate) {
		double due =
			(double)(now - st->began) * j->plan->o->rate / j->plan->o->jobs / 1e9 + 1;

		n = due > (double)st->issued ? MIN(n, (uint64_t)(due - (double)st->issued)) : 0;
	}
	return n;
}

static bool
is_over(const struct perf_job *j, uint64_t now)
{
	const struct job_state *st = j->state;

	if (st->sweep)
		return st->next == j->plan->units;
	return *j->stop || (st->end && now >= st->end) || st->issued >= st->limit;
}

static int
fill(struct perf_job *j, uint64_t now)
{
	struct job_state *st = j->state;
	uint64_t n = allowance(j, now);
	unsigned got = 0;
	int res;

	if (n == 0)
		return 0;
	while (got < n && prepare(j, &st->ios[got], now))
		got++;
	if (got == 0)
		return 0;
	res = sluice_submit(j->q, st->ios, got);
	if (res != (int)got)
		return res < 0 ? res : -EPROTO;
	st->issued += got;
	return 0;
}

/* How long there is nothing to issue, in ms, for sluice_wait(). */
static int
patience(const struct perf_job *j, bool over)
{
	if (over)
		return DRAIN_MS;
	return j->plan->o->rate ? 1 : 100;
}

static int
reap(struct perf_job *j)
{
	struct job_state *st = j->state;
	int n = sluice_reap(j->q, st->cqes, j->plan->o->qd);
	uint64_t now = n > 0 ? now_ns() : 0;

	for (int i = 0; i < n; i++)
		completed(j, &st->cqes[i], now);
	return n;
}

static void
pause_1ms(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static int
run(struct perf_job *j)
{
	int res = 0;

	for (;;) {
		uint64_t now = now_ns();
		bool over = is_over(j, now);

		if (!over)
			res = fill(j, now);
		if (res < 0)
			return res;
		if (sluice_queue_inflight(j->q) == 0) {
			if (over)
				return 0;
			pause_1ms();
			continue;
		}
		res = sluice_wait(j->q, patience(j, over));
		if (res == -ETIMEDOUT && over)
			return res;
		if (res < 0 && res != -ETIMEDOUT)
			return res;
		res = 0;
		reap(j);
	}
}

void *
perf_job_run(void *job)
{
	struct perf_job *j = job;
	struct job_state *st = j->state;

	st->began = now_ns();
	st->end = j->plan->o->time_us ? st->began + j->plan->o->time_us * 1000 : 0;
	j->res = run(j);
	j->done = true;
	if (j->res == 0 && j->plan->o->sweep) {
		st->sweep = true;
		st->next = 0;
		j->res = run(j);
	}
	if (j->res == -ETIMEDOUT)
		snprintf(j->why, sizeof(j->why), "%u commands were not completed within %d s",
		         sluice_queue_inflight(j->q), DRAIN_MS / 1000);
	else if (j->res < 0)
		snprintf(j->why, sizeof(j->why), "%.140s", sluice_error(j->s));
	return NULL;
}
