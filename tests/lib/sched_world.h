/* The scheduler's world in time that is made up here: queues that always want more, on two
 * reactors, over a path that answers at once.
 *
 * Happy path: world_begin() makes VMs and volumes without limits, add_queue() one that wants more
 * in each turn, limit() sets a limit; run() lets time pass, and what the queues passed is counted
 * at the path. world_end() ends all queues and checks that nothing is left. Checks can fail, and
 * memory.
 */
#ifndef SLUICE_TESTS_SCHED_WORLD_H
#define SLUICE_TESTS_SCHED_WORLD_H

#include "initiator/initiator.h"
#include "initiator/io.h"
#include "initiator/sched.h"

#define S  UINT64_C(1000000000)
#define MS UINT64_C(1000000)

enum { REACTORS = 2, VMS = 8, VOLS = 2, VMS_MAX = 4096, QUEUES = 4096, KIB = 1024 };

struct queue {
	struct vq vq;
	unsigned depth, vm, vol;
	uint32_t bytes;
	uint8_t op;
	bool paused;
	uint64_t made, passed, passed_bytes, ended, bad;
	uint64_t last; /* token of the last that passed */
	bool disorder;
	struct {                          /* of reads, and of writes, since the world began */
		uint64_t commands, bytes; /* on the wire: merged ones are one */
	} wire[2];
};

extern uint64_t now;
extern struct initiator in;
extern struct reactor reactors[REACTORS];
extern struct volume vols[VOLS];
extern struct sched_vm *vms[VMS_MAX];
extern struct queue queues[QUEUES];
extern unsigned nr_queues;

void world_begin(unsigned nr_vms);
void world_end(void);
struct queue *add_queue(unsigned vm, unsigned vol, unsigned reactor, unsigned depth);
/* Starts one more command of q; false: the reactor has no context left. */
bool make(struct queue *q, uint8_t op);
void turn(struct reactor *r);
/* Turns until time has moved by span. Reactors wake up late by up to late ns. */
void run(uint64_t span, uint64_t late);
/* The same; look() comes when all reactors have turned. */
void run_and_look(uint64_t span, uint64_t late, void (*look)(void));

void limit(struct sched_node *n, enum qos_kind kind, uint64_t committed, uint64_t peak);
void limit_vm(unsigned vm, uint64_t committed, uint64_t peak); /* its IOPS */

bool near(double got, double want, double share);
/* What queues passed is counted from here. */
void clear(void);
uint64_t sum(void);

#endif
