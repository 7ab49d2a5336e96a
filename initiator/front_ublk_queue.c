/* A queue of a ublk device: from request to io, from io to result. See front_ublk_queue.h.
 *
 * Happy path: 1. attach arms every tag with a FETCH command, each with its buffer; 2. a command
 * completes: a request has come, for a write with its data in the buffer, and the tag waits for a
 * context; 3. queue_fetch() judges the descriptor and starts the io, whose SG list is the tag's
 * buffer; 4. complete() commits the result, for a read with the data, by the command that fetches
 * the tag's next request.
 *
 * What can fail: a request (its result is an errno); a command of ours, which the driver does not
 * take: reactor 0 is told and deletes the device. When the device is stopped the driver gives back
 * all commands, with -ENODEV; then the queue leaves.
 *
 * Why the driver copies. Its zero-copy (Linux 6.15) puts the pages of a request into the ring's
 * buffer table, for READ_FIXED, WRITE_FIXED and SEND_ZC of that one buffer; our channels gather the
 * headers and payloads of all that is due into one sendmsg, and receive small payload through
 * their staging area, for which the bytes must have an address here. User copy (6.5) is the same
 * copy as this one, by a system call or another turn of the ring. So each byte is copied once
 * between the request's pages and a buffer of ours, and counted: q->staged. The buffers are bounded
 * by depth times UBLK_IO_MAX, of which only what was ever used is there.
 */
#include "initiator/front_ublk_queue.h"

#include "common/log.h"
#include "common/meter.h"
#include "common/nvme.h"
#include "initiator/front_ublk_params.h"
#include "initiator/initiator.h"
#include "initiator/io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

static uint16_t
tag_of(const struct ublk_tag *t)
{
	return (uint16_t)(t - t->q->tags);
}

static uint8_t *
buf_of(const struct ublk_queue *q, uint16_t tag)
{
	return q->bufs + (size_t)tag * q->buf_size;
}

/* commands to the driver */

static void
arm(struct ublk_queue *q, uint16_t tag, uint32_t code, int result)
{
	struct ublk_io_cmd cmd = {
		.q_id = q->id,
		.tag = tag,
		.result = result,
		.addr = (uintptr_t)buf_of(q, tag),
	};

	q->armed++;
	/* A plain descriptor: one that is registered is let go of only when all that came before
	 * it in the ring's table are, and other devices' commands hold those for ever. */
	ring_cmd(q->vq.r->ring, &q->tags[tag].op, q->fd, code, &cmd, sizeof(cmd));
}

static void
commit(struct ublk_queue *q, uint16_t tag, int result)
{
	if (!q->aborted)
		arm(q, tag, UBLK_COMMIT_AND_FETCH, result);
}

static void
left_there(struct op *op, int res, uint32_t flags)
{
	struct ublk_queue *q = container_of(op, struct ublk_queue, left);

	(void)res;
	(void)flags;
	q->left_home(q);
}

static void
try_leave(struct ublk_queue *q)
{
	if (!(q->aborted || q->error) || q->armed > 0 || q->vq.inflight > 0 || q->gone)
		return;
	q->gone = q->vq.ending = true;
	list_del(&q->vq.node);
	q->left.done = left_there;
	ring_post(q->vq.r->ring, q->vq.r->in->reactors[0].ring, &q->left);
}

static void
failed_there(struct op *op, int res, uint32_t flags)
{
	struct ublk_queue *q = container_of(op, struct ublk_queue, failed);

	(void)res;
	(void)flags;
	q->failed_home(q);
}

static void
driver_refused(struct ublk_queue *q, int res)
{
	if (q->error)
		return;
	q->error = res;
	q->failed = (struct op){ failed_there, "ublk.failed" };
	ring_post(q->vq.r->ring, q->vq.r->in->reactors[0].ring, &q->failed);
}

/* The turn's hook fetches what has arrived. */
static void
command_done(struct op *op, int res, uint32_t flags)
{
	struct ublk_tag *t = container_of(op, struct ublk_tag, op);
	struct ublk_queue *q = t->q;

	(void)flags;
	q->armed--;
	if (res == 0 && !q->aborted) {
		q->arrived[(q->first + q->waiting++) % q->depth] = tag_of(t);
		return;
	}
	if (res == -ENODEV) {
		/* The block layer has ended all requests before the driver gives commands back. */
		q->aborted = q->vq.ending = true;
		q->waiting = 0;
	} else if (res < 0) {
		driver_refused(q, res);
	}
	try_leave(q);
}

/* requests */

static unsigned
takeable(const struct ublk_queue *q)
{
	return q->vq.ending ? 0 : q->waiting;
}

static bool
queue_has_work(const struct vq *vq, unsigned free)
{
	unsigned n = takeable(container_of(vq, const struct ublk_queue, vq));

	return n > 0 && front_share(vq, n, free) > 0;
}

/* Starts the io of a request, or commits why there is none. */
static void
take_request(struct ublk_queue *q, struct io *io, uint16_t tag)
{
	struct ublk_range range;
	int res = ublk_judge(&q->descs[tag], q->vol, q->buf_size, &range);

	METER_ADD(q->vq.fetched, 1);
	io->q = &q->vq;
	if (res < 0) {
		io_put(io);
		METER_ADD(q->vq.bad, 1);
		METER_ADD(q->vq.completed, 1);
		commit(q, tag, res);
		return;
	}
	io->token = tag;
	io->vol = q->vol;
	io->op = range.op;
	io->fua = range.fua;
	io->off = range.off;
	io->len = range.len;
	io->nsg = 0;
	if (range.has_data) {
		io->sg[io->nsg++] = (struct iovec){ buf_of(q, tag), range.len };
		METER_ADD(q->staged, range.len);
	}
	io_start(io);
}

static bool
queue_fetch(struct vq *vq, unsigned *free)
{
	struct ublk_queue *q = container_of(vq, struct ublk_queue, vq);
	unsigned n = takeable(q), may = front_share(vq, n, *free), got = 0;
	struct io *io;

	while (got < may && !vq->sched.nr_held && (io = io_get(vq->r))) {
		uint16_t tag = q->arrived[q->first];

		q->first = (q->first + 1) % q->depth;
		q->waiting--;
		take_request(q, io, tag);
		got++;
	}
	*free -= MIN(*free, got);
	return got == n;
}

/* The completion of a command wakes the reactor by itself. */
static bool
queue_arm(struct vq *vq)
{
	(void)vq;
	return false;
}

static void
queue_complete(struct vq *vq, struct io *io)
{
	struct ublk_queue *q = container_of(vq, struct ublk_queue, vq);
	int done = io->nsg > 0 ? (int)io->len : 0;

	/* The next server gets it again, and may do better. */
	if (q->holding && io->status != 0)
		return;
	commit(q, (uint16_t)io->token, io->status ? ublk_errno(io->status) : done);
}

/* Commits leave with the turn's submission. */
static void
queue_flush(struct vq *vq)
{
	(void)vq;
}

static const struct vq_ops ublk_ops = {
	.fetch = queue_fetch,
	.arm = queue_arm,
	.has_work = queue_has_work,
	.complete = queue_complete,
	.flush = queue_flush,
};

/* messages from reactor 0 */

static void
leg_back(struct op *op, int res, uint32_t flags)
{
	struct ublk_queue *q = container_of(op, struct ublk_queue, leg);

	(void)res;
	(void)flags;
	q->leg_home(q);
}

static void
send_back(struct ublk_queue *q)
{
	q->leg.done = leg_back;
	ring_post(q->vq.r->ring, q->vq.r->in->reactors[0].ring, &q->leg);
}

/* Its last io has ended, and was committed: behind that in the same ring the answer follows. */
static void
queue_ended(struct vq *vq)
{
	struct ublk_queue *q = container_of(vq, struct ublk_queue, vq);

	if (q->holding) {
		q->holding = false;
		send_back(q);
	}
	try_leave(q);
}

static void
attach_there(struct op *op, int res, uint32_t flags)
{
	struct ublk_queue *q = container_of(op, struct ublk_queue, leg);

	(void)res;
	(void)flags;
	/* Memory that is short may be waiting for a write to this very device: what the thread
	 * allocates must not wait for that. Needs a right; works without. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	list_push_back(&q->vq.r->vqs, &q->vq.node);
	for (uint16_t tag = 0; tag < q->depth; tag++)
		arm(q, tag, UBLK_FETCH_REQ, 0);
	send_back(q);
}

static void
hold_there(struct op *op, int res, uint32_t flags)
{
	struct ublk_queue *q = container_of(op, struct ublk_queue, leg);

	(void)res;
	(void)flags;
	q->vq.ending = true;
	if (q->vq.inflight > 0)
		q->holding = true;
	else
		send_back(q);
}

static void
send_leg(struct ublk_queue *q, struct reactor *from,
         void (*there)(struct op *op, int res, uint32_t flags))
{
	q->leg = (struct op){ there, "ublk.leg" };
	ring_post(from->ring, q->vq.r->ring, &q->leg);
}

void
ublk_queue_attach(struct ublk_queue *q, struct reactor *from)
{
	send_leg(q, from, attach_there);
}

void
ublk_queue_hold(struct ublk_queue *q, struct reactor *from)
{
	send_leg(q, from, hold_there);
}

/* making and freeing */

static void *
map(size_t n, int prot, int flags, int fd, off_t off)
{
	void *p = mmap(NULL, n, prot, flags, fd, off);

	return p == MAP_FAILED ? NULL : p;
}

static size_t
pages(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return ROUND_UP(n, page);
}

int
ublk_queue_init(struct ublk_queue *q)
{
	off_t off = (off_t)(q->id * pages(UBLK_DEPTH_MAX * sizeof(struct ublk_desc)));

	q->left.name = "ublk.left";
	q->vq.ops = &ublk_ops;
	q->vq.ended = queue_ended;
	list_init(&q->vq.node);
	list_init(&q->vq.touched_node);
	q->descs_size = pages(q->depth * sizeof(struct ublk_desc));
	q->tags = calloc(q->depth, sizeof(*q->tags));
	q->arrived = calloc(q->depth, sizeof(*q->arrived));
	q->bufs = map((size_t)q->depth * q->buf_size, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!q->tags || !q->arrived || !q->bufs)
		return -ENOMEM;
	/* Swapped out they might wait for a write to this very device. Needs a right, too. */
	mlock2(q->bufs, (size_t)q->depth * q->buf_size, MLOCK_ONFAULT);
	q->descs = map(q->descs_size, PROT_READ, MAP_SHARED | MAP_POPULATE, q->fd, off);
	if (!q->descs)
		return -errno;
	for (uint16_t tag = 0; tag < q->depth; tag++) {
		q->tags[tag].q = q;
		q->tags[tag].op = (struct op){ command_done, "ublk.request" };
	}
	return 0;
}

void
ublk_queue_fini(struct ublk_queue *q)
{
	if (q->descs)
		munmap((void *)(uintptr_t)q->descs, q->descs_size);
	if (q->bufs)
		munmap(q->bufs, (size_t)q->depth * q->buf_size);
	free(q->tags);
	free(q->arrived);
}
