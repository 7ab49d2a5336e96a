/* The scheduler's world in time that is made up here; see sched_world.h.
 *
 * Happy path: the ring is a clock, a path answers at once, and run() goes from one due timer to the
 * next. Nothing can fail but by a check.
 */
#include "tests/lib/sched_world.h"

#include "initiator/part.h"

#include "tests/lib/unit.h"

#include <stdlib.h>

/* ---- a ring that is a clock ---- */

uint64_t now;
static bool timer_set[REACTORS];

struct initiator in;
struct reactor reactors[REACTORS];

uint64_t
ring_now(const struct ring *r)
{
	(void)r;
	return now;
}

static bool *
is_set(const struct ring_timer *t)
{
	return &timer_set[container_of(t, struct reactor, sched.timer) - reactors];
}

void
ring_timer_init(struct ring_timer *t, void (*fire)(struct ring_timer *t))
{
	t->fire = fire;
	*is_set(t) = false;
}

void
ring_timer_set(struct ring *r, struct ring_timer *t, uint64_t due)
{
	(void)r;
	t->due = due;
	*is_set(t) = true;
}

void
ring_timer_del(struct ring_timer *t)
{
	*is_set(t) = false;
}

void
ring_post(struct ring *from, struct ring *target, struct op *op)
{
	(void)from;
	(void)target;
	op->done(op, 0, 0);
}

/* Of buffer pools, which nobody has here. */
int
ring_buf_register(struct ring *r, void *base, size_t n)
{
	(void)r;
	(void)base;
	(void)n;
	return -1;
}

void
ring_buf_unregister(struct ring *r, int slot)
{
	(void)r;
	(void)slot;
}

/* ---- a path that answers at once ---- */

struct path {
	enum path_state state;
};

uint32_t
path_zip_max(const struct path *p)
{
	(void)p;
	return 0;
}

enum path_state
path_state(const struct path *p)
{
	return p->state;
}

static struct path path = { PATH_LIVE };
static struct member members[VOLS];
struct volume vols[VOLS];
struct sched_vm *vms[VMS_MAX];
static struct vf *vfs;
static unsigned nr_vms;
struct queue queues[QUEUES];
unsigned nr_queues;
static uint8_t memory[64 * KIB];

static void
count_wire(const struct io *io, uint64_t commands, uint64_t bytes)
{
	struct queue *q = container_of(io->q, struct queue, vq);

	q->wire[io->op == nvme_cmd_write].commands += commands;
	q->wire[io->op == nvme_cmd_write].bytes += bytes;
}

void
path_send(struct reactor *r, struct path *p, struct part *part)
{
	struct queue *q = container_of(part->io->q, struct queue, vq);
	uint64_t own = part->io->len;
	const struct io *f;

	(void)r;
	(void)p;
	q->disorder |= part->io->token <= q->last && part->io->op != nvme_cmd_flush;
	if (part->io->op != nvme_cmd_flush)
		q->last = part->io->token;
	q->passed++;
	q->passed_bytes += part->io->nsg ? part->io->len : 0;
	list_for_each (&part->io->followers, f, node) {
		q->passed++;
		own -= f->len;
		count_wire(f, 0, f->len);
	}
	if (part->io->nsg)
		count_wire(part->io, 1, own);
	part->done(part, 0, 0);
}

/* ---- queues that always want more ---- */

bool
make(struct queue *q, uint8_t op)
{
	struct io *io = io_get(q->vq.r);

	if (!io)
		return false;
	io->q = &q->vq;
	io->token = ++q->made;
	io->vol = &vols[q->vol];
	io->op = op;
	io->fua = false;
	io->off = q->made * q->bytes % MS;
	io->len = op == nvme_cmd_flush ? 0 : q->bytes;
	io->sg[0] = (struct iovec){ memory, q->bytes };
	io->nsg = op == nvme_cmd_flush ? 0 : 1;
	io_start(io);
	return true;
}

static bool
fetch(struct vq *vq, unsigned *free)
{
	struct queue *q = container_of(vq, struct queue, vq);

	(void)free;
	for (unsigned i = 0; i < 32 && !vq->ending && vq->inflight < q->depth && !vq->sched.nr_held;
	     i++)
		if (!q->paused && !make(q, q->op))
			return false;
	return true;
}

static void
complete(struct vq *vq, struct io *io)
{
	struct queue *q = container_of(vq, struct queue, vq);

	q->ended++;
	q->bad += io->status != 0;
}

static void
flush(struct vq *vq)
{
	(void)vq;
}

static void
ended(struct vq *vq)
{
	list_del(&vq->node);
}

static const struct vq_ops ops = { .fetch = fetch, .complete = complete, .flush = flush };

/* ---- the world ---- */

void
world_begin(unsigned vms_wanted)
{
	now = 1000 * S;
	in = (struct initiator){ .reactors = reactors, .nr_reactors = REACTORS };
	in.capacity = sched_node_new(REACTORS);
	memset(vols, 0, sizeof(vols));
	nr_vms = vms_wanted;
	vfs = calloc(nr_vms, sizeof(*vfs));
	nr_queues = 0;
	for (unsigned i = 0; i < REACTORS; i++) {
		reactors[i] = (struct reactor){ .in = &in, .id = i };
		list_init(&reactors[i].vqs);
		sched_init(&reactors[i]);
		CHECK_EQ(io_pool_new(&reactors[i]), 0);
	}
	for (unsigned i = 0; i < VOLS; i++) {
		members[i] = (struct member){ .nsid = 1, .paths = { &path }, .nr_paths = 1 };
		vols[i] =
			(struct volume){ .lba_shift = 9, .members = &members[i], .nr_members = 1 };
		vols[i].qos = sched_node_new(REACTORS);
		vols[i].limits = 1;
		split_geometry(&vols[i].geo, 1, VOLUME_BLOCK_MIN, 64 * KIB);
	}
	for (unsigned i = 0; i < nr_vms; i++) {
		vms[i] = sched_vm_new(REACTORS);
		vfs[i].qos = vms[i];
		for (unsigned k = 0; k < VOLS; k++)
			vfs[i].disks[k] = &vols[k], vms[i]->disk[k] = &vols[k];
	}
}

struct queue *
add_queue(unsigned vm, unsigned vol, unsigned reactor, unsigned depth)
{
	struct queue *q = &queues[nr_queues++];

	*q = (struct queue){
		.depth = depth, .vm = vm, .vol = vol, .bytes = 4 * KIB, .op = nvme_cmd_read
	};
	q->vq.r = &reactors[reactor];
	q->vq.vf = &vfs[vm];
	q->vq.ops = &ops;
	q->vq.ended = ended;
	list_init(&q->vq.touched_node);
	list_push_back(&q->vq.r->vqs, &q->vq.node);
	return q;
}

void
turn(struct reactor *r)
{
	struct ring_timer *t = &r->sched.timer;

	if (timer_set[r->id] && t->due <= now) {
		timer_set[r->id] = false;
		t->fire(t);
	}
	sched_turn(r);
	front_poll(r);
	io_turn(r);
}

/* One of its queues could be fetched from. */
static bool
has_work(const struct reactor *r)
{
	const struct vq *q;

	list_for_each (&r->vqs, q, node)
		if (!q->sched.nr_held && !container_of(q, const struct queue, vq)->paused)
			return true;
	return false;
}

void
run_and_look(uint64_t span, uint64_t late, void (*look)(void))
{
	uint64_t end = now + span, random = 5;

	while (now < end) {
		uint64_t next = end;

		unsigned first = late ? unit_random(&random) % REACTORS : 0;

		for (unsigned k = 0; k < REACTORS; k++) {
			unsigned i = (k + first) % REACTORS;

			turn(&reactors[i]);
			if (has_work(&reactors[i]))
				next = now + 1000;
			if (timer_set[i])
				next = MIN(next, reactors[i].sched.timer.due);
		}
		if (look)
			look();
		now = MAX(next, now + 1) + (late ? unit_random(&random) % late : 0);
	}
}

void
run(uint64_t span, uint64_t late)
{
	run_and_look(span, late, NULL);
}

void
world_end(void)
{
	for (unsigned i = 0; i < nr_queues; i++) {
		queues[i].vq.ending = true;
		CHECK(!queues[i].disorder);
		CHECK_EQ(queues[i].bad, 0);
	}
	for (unsigned i = 0; i < REACTORS; i++)
		turn(&reactors[i]);
	for (unsigned i = 0; i < nr_queues; i++) {
		CHECK_EQ(queues[i].vq.inflight, 0);
		CHECK_EQ(queues[i].ended, queues[i].made);
	}
	for (unsigned i = 0; i < REACTORS; i++) {
		CHECK(!heap_first(&reactors[i].sched.due));
		CHECK(!heap_first(&reactors[i].sched.commits));
		io_pool_free(&reactors[i]);
	}
	for (unsigned i = 0; i < VOLS; i++)
		sched_node_free(vols[i].qos);
	for (unsigned i = 0; i < nr_vms; i++)
		sched_vm_put(vms[i]);
	sched_node_free(in.capacity);
	free(vfs);
}

void
limit(struct sched_node *n, enum qos_kind kind, uint64_t committed, uint64_t peak)
{
	struct qos_config q = n->cfg;

	q.limit[kind] = (struct qos_limit){ committed, peak };
	sched_set(n, &q, now);
	sched_kick(&in);
}

void
limit_vm(unsigned vm, uint64_t committed, uint64_t peak)
{
	limit(&vms[vm]->node, QOS_IOPS, committed, peak);
}

bool
near(double got, double want, double share)
{
	return got >= want * (1 - share) && got <= want * (1 + share);
}

void
clear(void)
{
	for (unsigned i = 0; i < nr_queues; i++)
		queues[i].passed = queues[i].passed_bytes = 0;
}

uint64_t
sum(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < nr_queues; i++)
		n += queues[i].passed;
	return n;
}
