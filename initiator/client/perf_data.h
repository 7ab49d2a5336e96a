/* sluice-perf: the memory of a job's commands, what is stamped into it and how it is judged. One
 * slot is one command's memory: o->sg extents of odd lengths, canaries between and around them. */
#ifndef SLUICE_CLIENT_PERF_DATA_H
#define SLUICE_CLIENT_PERF_DATA_H

#include "initiator/client/perf.h"

struct perf_slot {
	enum sluice_op op;
	uint64_t unit;          /* place, in I/Os from the start of the job's part */
	uint32_t first, blocks; /* in that unit */
	uint32_t version;       /* that is being written */
	uint64_t started;       /* ns */
	bool sweep;             /* reads what was written once more, when the load is over */
	struct sluice_extent *sg;
	uint8_t **ptr;              /* of each extent */
	struct sluice_extent *told; /* as much of sg as the command is long */
	uint32_t nr_told;
};

struct perf_data { /* embedded in a job, as the rest of it on one thread */
	const struct perf_plan *plan;
	struct perf_stats *stats;
	struct perf_slot *slots; /* o->qd */
	void *mem;
	uint64_t addr;
	size_t slot_size;
	size_t write_off;   /* of what is written from what is read */
	uint8_t *flat;      /* an I/O in one piece, to stamp and judge */
	uint32_t *versions; /* of each block of the job's part; --verify */
	uint64_t first_lba;
	uint64_t run; /* upper half of versions: tells runs apart */
	uint64_t random;
	uint32_t version;
	unsigned told;
};

void perf_data_init(struct perf_data *d, const struct perf_plan *plan, struct perf_stats *stats,
                    unsigned index);
/* Bytes to register. */
size_t perf_data_size(const struct perf_data *d);
/* mem is theirs, addr its address in commands. */
int perf_data_make(struct perf_data *d, void *mem, uint64_t addr);
void perf_data_fini(struct perf_data *d);

uint64_t perf_random(struct perf_data *d);
/* Makes s ready to be sent: its extents, and under --verify what is in them. */
void perf_data_send(struct perf_data *d, struct perf_slot *s);
/* Under --verify: judges what was read, or remembers what was written. */
void perf_data_back(struct perf_data *d, const struct perf_slot *s, bool good);
/* Something in this unit was written by this run, and is known. */
bool perf_data_knows(const struct perf_data *d, uint64_t unit);

#endif
