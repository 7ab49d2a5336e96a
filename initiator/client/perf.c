/* sluice-perf: loads a volume of a running initiator through libsluice, and checks what comes back.
 *
 * Happy path: options are judged against the volume; each job makes a queue and memory, then loads
 * its own part of the volume on a thread of its own; a line each second, a table at the end.
 *
 * Exit status: 0 when every command succeeded and every block that was checked is right; 1
 * otherwise, or when the daemon is not there or refuses; 2 when the command line is wrong. SIGINT
 * ends the load early, with its table.
 */
#include "initiator/client/perf.h"

#include "common/cli.h"
#include "common/units.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OPT(member) offsetof(struct perf_options, member)

static const struct cli_opt opts[] = {
	{"socket", 's', "PATH", "the daemon's socket", CLI_STR, OPT(socket), 0, 0},
	{"volume", 'v', "NAME", "the volume; otherwise the first disk", CLI_STR, OPT(volume), 0, 0},
	{"rw", 0, "KIND", "read, write, randread, randwrite or randrw (randread)", CLI_STR, OPT(rw),
	 0, 0},
	{"bs", 'b', "SIZE", "bytes of a command (4K)", CLI_SIZE, OPT(bs), 512, 1 << 28},
	{"bs-min", 0, "SIZE", "commands of any number of blocks from SIZE to --bs", CLI_SIZE,
	 OPT(bs_min), 512, 1 << 28},
	{"qd", 'q', "N", "commands in flight for each job (32)", CLI_U32, OPT(qd), 1, PERF_QD_MAX},
	{"jobs", 'j', "N", "queues, each with a thread and its part of the volume (1)", CLI_U32,
	 OPT(jobs), 1, PERF_JOBS_MAX},
	{"time", 't', "DURATION", "how long (5s; without end when --count is given)", CLI_DURATION,
	 OPT(time_us), 0, 0},
	{"count", 0, "N", "end after N commands", CLI_U32, OPT(count), 1, UINT32_MAX},
	{"rwmixread", 0, "PERCENT", "reads of randrw (70)", CLI_U32, OPT(rwmixread), 0, 100},
	{"rate", 0, "IOPS", "at most so many commands a second", CLI_U32, OPT(rate), 1, UINT32_MAX},
	{"trim", 0, "PERCENT", "this share of the commands discards", CLI_U32, OPT(trim), 0, 100},
	{"flush", 0, "N", "a flush after each N writes of a job", CLI_U32, OPT(flush), 1,
	 UINT32_MAX},
	{"sg", 0, "EXTENTS", "scatter each command's data over so many extents of odd lengths (1)",
	 CLI_U32, OPT(sg), 1, PERF_SG_MAX},
	{"size", 0, "SIZE", "use only the first SIZE of the volume", CLI_SIZE, OPT(size), 512, 0},
	{"compressible", 0, "PERCENT", "this share of each block is zeroes (0)", CLI_U32,
	 OPT(compressible), 0, 95},
	{"seed", 0, "N", "of the random numbers (1)", CLI_U32, OPT(seed), 0, UINT32_MAX},
	{"verify", 0, NULL, "stamp what is written, and check what is read", CLI_FLAG, OPT(verify),
	 0, 0},
	{"sweep", 0, NULL, "with --verify: at the end, read once more all that was written",
	 CLI_FLAG, OPT(sweep), 0, 0},
	{"json", 0, NULL, "print the result as JSON", CLI_FLAG, OPT(json), 0, 0},
	{"quiet", 0, NULL, "no line each second", CLI_FLAG, OPT(quiet), 0, 0},
	CLI_COMMON_OPTS,
};

static const struct cli_program program = {
	.name = "sluice-perf",
	.synopsis = "[OPTION]...",
	.summary = "Loads a volume of a Sluice initiator and checks what it reads",
	.opts = opts,
	.nopts = ARRAY_SIZE(opts),
};

static const struct {
	const char *name;
	bool random;
	unsigned read_percent;
} kinds[] = {
	{"read", false, 100},   {"write", false, 0},  {"randread", true, 100},
	{"randwrite", true, 0}, {"randrw", true, 70},
};

enum { READY_TRIES = 100 }; /* tenths of a second that a volume is waited for */

static struct perf_plan plan;
static struct perf_job jobs[PERF_JOBS_MAX];

static int
complain(const struct err *err, int code)
{
	fprintf(stderr, "sluice-perf: %s\n", err->text);
	return code;
}

static void
on_signal(int sig)
{
	plan.stop = true;
	signal(sig, SIG_DFL); /* a second one ends at once */
}

static int
judge_options(struct perf_options *o, struct err *err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds) && strcmp(kinds[i].name, o->rw); i++)
		;
	if (i == ARRAY_SIZE(kinds))
		return err_set(err, -EINVAL,
			       "--rw: '%s' is none of read, write, randread, randwrite, randrw",
			       o->rw);
	plan.random = kinds[i].random;
	plan.read_percent = i + 1 == ARRAY_SIZE(kinds) ? o->rwmixread : kinds[i].read_percent;
	if (o->sg > o->bs)
		return err_set(err, -EINVAL, "--sg: %u extents cannot hold %" PRIu64 " bytes",
			       o->sg, o->bs);
	if (o->bs_min == 0)
		o->bs_min = o->bs;
	if (o->bs_min > o->bs)
		return err_set(err, -EINVAL, "--bs-min: must not be above --bs");
	if (o->bs_min < o->bs && !plan.random)
		return err_set(err, -EINVAL, "--bs-min: only where --rw is random");
	if (o->sweep && !o->verify)
		return err_set(err, -EINVAL, "--sweep: only with --verify");
	if (o->time_us == 0)
		o->time_us = o->count ? 0 : 5000000;
	plan.o = o;
	return 0;
}

static int
find_volume(struct sluice *s, const struct perf_options *o, struct err *err)
{
	int res = -EAGAIN;

	for (int i = 0; i < READY_TRIES && !plan.stop; i++) {
		res = o->volume ? sluice_volume(s, o->volume, &plan.vol)
				: sluice_volume_at(s, 0, &plan.vol);
		if (res < 0)
			return err_set(err, res, "%s", sluice_error(s));
		if (plan.vol.blocks > 0)
			return 0;
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	return err_set(err, -EAGAIN, "volume '%s' is not ready", plan.vol.name);
}

static int
judge_volume(const struct perf_options *o, struct err *err)
{
	const struct sluice_volume *v = &plan.vol;
	uint64_t blocks = v->blocks;
	struct units_text text;

	if (o->bs % v->block)
		return err_set(err, -EINVAL, "--bs: must be a multiple of the volume's block, %u",
			       v->block);
	if (o->bs_min % v->block)
		return err_set(err, -EINVAL,
			       "--bs-min: must be a multiple of the volume's block, %u", v->block);
	if (o->bs > v->max_transfer)
		return err_set(err, -EINVAL, "--bs: volume '%s' takes at most %s", v->name,
			       units_size(&text, v->max_transfer));
	if (o->bs / v->block > 65536)
		return err_set(err, -EINVAL, "--bs: more than 65536 blocks");
	if (o->size)
		blocks = MIN(blocks, o->size / v->block);
	plan.blocks = (uint32_t)(o->bs / v->block);
	plan.least = (uint32_t)(o->bs_min / v->block);
	plan.units = blocks / o->jobs / plan.blocks;
	plan.name_hash = stamp_hash(v->name);
	if (plan.units == 0)
		return err_set(err, -EINVAL, "the volume is too small for %u jobs of that size",
			       o->jobs);
	return 0;
}

static int
start(struct sluice *s, unsigned *ret_started, struct err *err)
{
	unsigned i;
	int res;

	for (i = 0; i < plan.o->jobs; i++) {
		jobs[i].plan = &plan;
		jobs[i].stop = &plan.stop;
		jobs[i].index = i;
		jobs[i].s = s;
		res = perf_job_init(&jobs[i], err);
		if (res < 0)
			return res;
	}
	for (i = 0; i < plan.o->jobs; i++) {
		res = pthread_create(&jobs[i].thread, NULL, perf_job_run, &jobs[i]);
		if (res)
			return err_set(err, -res, "cannot start a thread");
		++*ret_started;
	}
	return 0;
}

static bool
all_done(void)
{
	for (unsigned i = 0; i < plan.o->jobs; i++)
		if (!jobs[i].done)
			return false;
	return true;
}

static void
watch(double from)
{
	struct timespec ts;
	double now, told = 0;

	while (!all_done()) {
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		clock_gettime(CLOCK_MONOTONIC, &ts);
		now = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9 - from;
		if (now < told + 1 || all_done())
			continue;
		told = (double)(uint64_t)now;
		if (!plan.o->quiet)
			perf_progress(jobs, plan.o->jobs, now);
	}
}

/* 0: everything was fine. */
static int
verdict(void)
{
	int bad = 0;

	for (unsigned i = 0; i < plan.o->jobs; i++) {
		const struct perf_job *j = &jobs[i];

		if (j->res < 0) {
			fprintf(stderr, "sluice-perf: job %u: %s\n", i, j->why);
			bad = 1;
		}
		if (j->stats.errors || j->stats.bad || j->stats.canaries)
			bad = 1;
	}
	return bad;
}

static int
load(struct sluice *s, struct err *err)
{
	struct perf_usage from, to;
	unsigned started = 0;
	int res = start(s, &started, err);

	perf_usage_take(&from, s);
	if (res == 0)
		watch(from.at);
	else
		plan.stop = true;
	perf_usage_take(&to, s);
	for (unsigned i = 0; i < started; i++)
		pthread_join(jobs[i].thread, NULL);
	if (res == 0) {
		perf_report(&plan, jobs, &from, &to);
		res = verdict();
	}
	for (unsigned i = 0; i < plan.o->jobs; i++)
		perf_job_fini(&jobs[i]);
	return res;
}

int
main(int argc, char **argv)
{
	struct perf_options o = {.rw = "randread",
				 .bs = 4096,
				 .qd = 32,
				 .jobs = 1,
				 .rwmixread = 70,
				 .sg = 1,
				 .seed = 1};
	struct sluice *s = NULL;
	struct err err = {0};
	int n, res = cli_parse(&program, argc, argv, &o, &n, &err);

	if (res == CLI_DONE)
		return 0;
	if (res < 0 || judge_options(&o, &err) < 0)
		return complain(&err, 2);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	res = sluice_open(o.socket, &s);
	if (res < 0)
		err_set(&err, res, "%s", sluice_error(NULL));
	if (res == 0)
		res = find_volume(s, &o, &err);
	if (res == 0)
		res = judge_volume(&o, &err);
	if (res == 0)
		res = load(s, &err);
	sluice_close(s);
	return res < 0 ? complain(&err, 1) : res;
}
