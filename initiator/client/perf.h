/* sluice-perf: what its parts share. perf.c is the program, perf_job.c the load, perf_data.c its
 * memory, perf_stamp.c what is in the blocks, perf_report.c what is printed. */
#ifndef SLUICE_CLIENT_PERF_H
#define SLUICE_CLIENT_PERF_H

#include "common/err.h"
#include "common/meter.h"
#include "common/wire.h"
#include "initiator/client/sluice.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
	PERF_JOBS_MAX = 64,
	PERF_QD_MAX = 4095, /* what the largest queue holds */
	PERF_SG_MAX = 1024,
	PERF_STATUSES = 16, /* different ones of a job that are told apart */
	PERF_CANARY = 64,   /* bytes between two extents */
	PERF_CANARY_BYTE = 0xa5,
};

struct perf_options {
	const char *socket, *volume, *rw;
	uint64_t bs, bs_min, size, time_us;
	uint32_t qd, jobs, rwmixread, rate, trim, flush, sg, count, seed;
	uint32_t compressible; /* percent of each block that is zeroes */
	bool verify, sweep, json, quiet;
};

struct perf_plan { /* options, judged; the same for all jobs */
	const struct perf_options *o;
	struct sluice_volume vol;
	uint64_t name_hash;
	bool random;
	unsigned read_percent;
	uint32_t blocks; /* logical blocks of one I/O, at most */
	uint32_t least;  /* and at least */
	uint64_t units;  /* I/Os that fit into the part of one job */
	_Atomic bool stop;
};

/* What a block holds under --verify: who it is, and a pattern that follows from that. */
enum stamp_verdict { STAMP_OK, STAMP_FOREIGN, STAMP_MISPLACED, STAMP_STALE, STAMP_DAMAGED };

struct stamp_want {
	uint64_t volume, lba;
	uint64_t version; /* 0: any */
	uint32_t zeroes;  /* bytes at the end that are 0 instead, a multiple of 8 */
};

struct stamp_found {
	uint64_t volume, lba, version;
	uint32_t at; /* STAMP_DAMAGED: first wrong byte of the block */
};

void stamp_write(uint8_t *block, uint32_t size, const struct stamp_want *id);
enum stamp_verdict stamp_judge(const uint8_t *block, uint32_t size, const struct stamp_want *want,
			       struct stamp_found *ret);
uint64_t stamp_hash(const char *name);

struct perf_stats { /* of a job; METER_GET */
	uint64_t reads, writes, trims, flushes, read_bytes, write_bytes, errors;
	uint64_t checked, bad,
		canaries; /* blocks that were verified, wrong ones, canaries that were hit */
	struct meter_hist read_ns, write_ns, other_ns;
	struct {
		uint16_t status;
		uint64_t count;
	} statuses[PERF_STATUSES];
};

struct perf_job {
	const struct perf_plan *plan;
	_Atomic bool *stop; /* the plan's */
	unsigned index;
	struct sluice *s; /* shared by all jobs */
	struct sluice_queue *q;
	pthread_t thread;
	struct perf_stats stats;
	_Atomic bool done; /* the load; a sweep may follow */
	int res;
	char why[160];
	struct job_state *state; /* perf_job.c's */
};

/* Makes queue and memory, on the main thread. */
int perf_job_init(struct perf_job *j, struct err *err);
void *perf_job_run(void *job);
void perf_job_fini(struct perf_job *j);

struct perf_usage { /* CPU seconds up to now; a negative number: not known */
	double at, client, daemon;
};

void perf_usage_take(struct perf_usage *u, const struct sluice *s);
void perf_progress(const struct perf_job *jobs, unsigned n, double seconds);
void perf_report(const struct perf_plan *p, const struct perf_job *jobs,
		 const struct perf_usage *from, const struct perf_usage *to);

#endif
