/* A ublk device: its states, its volume, its end. See front_ublk_dev.h; how it begins is in
 * front_ublk_start.c.
 *
 * Happy path of the end: 1. unless it ends anyway, an exclusive open tells whether it is in use;
 * 2. STOP_DEV takes the block device away, which waits for its I/O, and gives back every command of
 * the queues; 3. when the queues have left, /dev/ublkcN is closed and DEL_DEV deletes the rest.
 * One that is kept lets its queues end what is under way instead; the driver finds out that its
 * server has gone when the process has.
 *
 * What can fail: nothing that would stop it from ending; the driver's errors are logged. A device
 * that somebody else deletes loses its queues first, and then ends in the same way.
 */
#include "initiator/front_ublk_dev.h"

#include "common/log.h"
#include "initiator/vf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TO(s) BIT(UBLK_##s)

static const struct {
	const char *name;
	unsigned next;
} states[UBLK_STATES] = {
	[UBLK_LEFT] = { "left behind", TO(WAITING) | TO(ASKING) | TO(STOPPING) | TO(GONE) },
	[UBLK_WAITING] = { "waiting", TO(ADDING) | TO(REVIVING) | TO(LEFT) | TO(ASKING) |
	                                      TO(STOPPING) | TO(GONE) },
	[UBLK_ADDING] = { "adding", TO(SETTING) | TO(GONE) },
	[UBLK_SETTING] = { "setting", TO(OPENING) | TO(STOPPING) },
	[UBLK_REVIVING] = { "reviving", TO(OPENING) | TO(LEFT) },
	[UBLK_OPENING] = { "opening", TO(ATTACHING) | TO(STOPPING) | TO(LEFT) },
	[UBLK_ATTACHING] = { "attaching", TO(STARTING) | TO(STOPPING) },
	[UBLK_STARTING] = { "starting", TO(LIVE) | TO(STOPPING) },
	[UBLK_LIVE] = { "live", TO(RESIZING) | TO(ASKING) | TO(STOPPING) },
	[UBLK_RESIZING] = { "resizing", TO(LIVE) },
	[UBLK_ASKING] = { "asking",
	                  TO(LIVE) | TO(LEFT) | TO(WAITING) | TO(HOLDING) | TO(STOPPING) },
	[UBLK_HOLDING] = { "holding", TO(KEPT) | TO(STOPPING) },
	[UBLK_KEPT] = { "kept", 0 },
	[UBLK_STOPPING] = { "stopping", TO(ENDING) | TO(DELETING) },
	[UBLK_ENDING] = { "ending", TO(DELETING) },
	[UBLK_DELETING] = { "deleting", TO(GONE) },
	[UBLK_GONE] = { "gone", 0 },
};

const char *
ublk_state_name(enum ublk_state s)
{
	return states[s].name;
}

bool
ublk_state_may(enum ublk_state from, enum ublk_state to)
{
	return states[from].next & BIT(to);
}

bool
ublk_dev_moves(const struct ublk_dev *d)
{
	return !(BIT(d->state) & (TO(LEFT) | TO(WAITING) | TO(LIVE) | TO(KEPT) | TO(GONE)));
}

static const char *
name_of(const struct ublk_dev *d)
{
	return d->path[0] ? d->path : d->volume;
}

void
ublk_dev_move(struct ublk_dev *d, enum ublk_state to)
{
	assert(ublk_state_may(d->state, to));
	log_debug("ublk %s: %s -> %s", name_of(d), states[d->state].name, states[to].name);
	d->state = to;
}

void
ublk_dev_send(struct ublk_dev *d, uint32_t code, void *buf, uint16_t len, uint64_t data,
              void (*done)(struct op *op, int res, uint32_t flags))
{
	struct ublk_ctrl_cmd cmd = {
		.dev_id = d->info.dev_id,
		.queue_id = UINT16_MAX,
		.len = len,
		.addr = (uintptr_t)buf,
		.data = data,
	};

	d->cmd = (struct op){ done, "ublk.cmd" };
	ublk_ctrl_send(&d->f->ctrl, &d->cmd, code, &cmd);
}

/* ---- its volume ---- */

static void
volume_changed(struct vf *vf, unsigned disk)
{
	struct ublk_dev *d = vf->front;

	(void)disk;
	if (d->state == UBLK_WAITING)
		ublk_dev_start(d);
	else if (d->state == UBLK_LIVE)
		ublk_dev_resize(d);
}

int
ublk_dev_take_volume(struct ublk_dev *d, struct volume *v)
{
	struct initiator *in = d->f->in;
	struct vf *vf = calloc(1, sizeof(*vf));

	if (!vf)
		return -ENOMEM;
	snprintf(vf->name, sizeof(vf->name), "%s", d->path[0] ? d->path : "a ublk device");
	snprintf(d->volume, sizeof(d->volume), "%s", v->name);
	vf->uid = (uint32_t)geteuid();
	vf->pid = (uint32_t)getpid();
	vf->in = in;
	vf->front = d;
	vf->holds = true;
	vf->changed = volume_changed;
	initiator_lock(in);
	vf->id = ++in->next_vf;
	vf->disks[0] = volume_get(v);
	list_push_back(&in->vfs, &vf->node);
	initiator_unlock(in);
	d->vf = vf;
	return 0;
}

void
ublk_dev_let_go_of_volume(struct ublk_dev *d)
{
	if (d->vf)
		vf_put(d->vf);
	d->vf = NULL;
}

/* ---- the end ---- */

static void
gone(struct ublk_dev *d)
{
	ublk_dev_let_go_of_volume(d);
	ublk_dev_move(d, UBLK_GONE);
	front_ublk_moved(d);
}

static void
deleted(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res < 0 && res != -ENODEV)
		log_warn("ublk %s: cannot be deleted: %s", d->path, strerror(-res));
	else
		log_info("ublk %s: deleted: %s", d->path, d->error ? d->why : d->end_why);
	gone(d);
}

/* Its queues have left, or were never attached. */
static void
release(struct ublk_dev *d)
{
	while (d->nr_queues > 0) {
		struct ublk_queue *q = &d->queues[--d->nr_queues];

		front_leave(q->vq.r);
		ublk_queue_fini(q);
	}
	free(d->queues);
	d->queues = NULL;
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

static void
device_delete(struct ublk_dev *d)
{
	release(d);
	ublk_dev_move(d, UBLK_DELETING);
	ublk_dev_send(d, UBLK_DEL_DEV, NULL, 0, 0, deleted);
}

static void
stopped(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res < 0 && res != -ENODEV)
		log_warn("ublk %s: cannot be stopped: %s", d->path, strerror(-res));
	if (d->here == 0) {
		device_delete(d);
		return;
	}
	ublk_dev_move(d, UBLK_ENDING);
}

void
ublk_dev_stop(struct ublk_dev *d)
{
	ublk_dev_move(d, UBLK_STOPPING);
	ublk_dev_send(d, UBLK_STOP_DEV, NULL, 0, 0, stopped);
}

static void
leg_home(struct ublk_queue *q)
{
	struct ublk_dev *d = q->dev;

	if (--d->legs > 0)
		return;
	if (d->here < d->nr_queues) {
		ublk_dev_stop(d);
		return;
	}
	log_info("ublk %s: in use, it stays; its I/O waits for the next start", d->path);
	ublk_dev_let_go_of_volume(d);
	ublk_dev_move(d, UBLK_KEPT);
	front_ublk_moved(d);
}

static void
hold(struct ublk_dev *d)
{
	ublk_dev_move(d, UBLK_HOLDING);
	d->legs = d->nr_queues;
	for (unsigned i = 0; i < d->nr_queues; i++) {
		d->queues[i].leg_home = leg_home;
		ublk_queue_hold(&d->queues[i], d->f->ctrl.r);
	}
}

static void
refuse_end(struct ublk_dev *d)
{
	d->end = UBLK_STAYS;
	if (d->vf)
		d->vf->holds = true;
	ublk_dev_move(d, d->nr_queues > 0 ? UBLK_LIVE : d->vf ? UBLK_WAITING : UBLK_LEFT);
	log_warn("ublk %s: in use, it is not deleted", d->path);
	if (d->state == UBLK_LIVE)
		ublk_dev_is_live(d);
	else
		front_ublk_moved(d);
}

static void
asked(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, open);

	(void)flags;
	if (res >= 0)
		close(res);
	if (res != -EBUSY || d->end == UBLK_ANYWAY)
		ublk_dev_stop(d);
	else if (d->end == UBLK_KEEP_USED && d->nr_queues > 0)
		hold(d);
	else
		refuse_end(d);
}

/* A file system, another driver or a swap area holds a block device exclusively: then a second
 * one cannot. */
static void
ask_then_stop(struct ublk_dev *d)
{
	ublk_dev_move(d, UBLK_ASKING);
	d->open = (struct op){ asked, "ublk.open" };
	ring_open(d->f->ctrl.r->ring, &d->open, d->path, O_RDONLY | O_EXCL | O_NONBLOCK);
}

void
ublk_dev_end(struct ublk_dev *d, enum ublk_end how, const char *why)
{
	if (how > d->end) {
		d->end = how;
		d->end_why = why;
	}
	if (d->vf)
		d->vf->holds = false;
	if (ublk_dev_moves(d) || d->state >= UBLK_KEPT)
		return;
	if (!d->path[0] || (d->state != UBLK_LIVE && how == UBLK_KEEP_USED))
		gone(d); /* what the driver may have of it was there before us, and stays */
	else if (d->end == UBLK_ANYWAY)
		ublk_dev_stop(d);
	else
		ask_then_stop(d);
}

void
ublk_dev_is_live(struct ublk_dev *d)
{
	if (d->end)
		ublk_dev_end(d, d->end, d->end_why);
	else if (!ublk_dev_resize(d))
		front_ublk_moved(d);
}

/* ---- what its queues have to say ---- */

void
ublk_dev_queue_left(struct ublk_queue *q)
{
	struct ublk_dev *d = q->dev;

	d->here--;
	if (d->state == UBLK_ENDING && d->here == 0)
		device_delete(d);
	else if (d->state != UBLK_STOPPING && d->state != UBLK_ENDING)
		ublk_dev_end(d, UBLK_ANYWAY, "somebody else stopped it");
}

void
ublk_dev_queue_failed(struct ublk_queue *q)
{
	struct ublk_dev *d = q->dev;

	ublk_dev_fail(d, q->error, "the driver refuses to give requests: %s", strerror(-q->error));
}

static void
blame(struct ublk_dev *d, int error, const char *fmt, va_list ap)
{
	if (d->error)
		return;
	d->error = error;
	vsnprintf(d->why, sizeof(d->why), fmt, ap);
	log_error("ublk %s: %s", name_of(d), d->why);
}

void
ublk_dev_blame(struct ublk_dev *d, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	blame(d, error, fmt, ap);
	va_end(ap);
}

/* One that was left behind is left alone again. */
static void
leave_alone(struct ublk_dev *d)
{
	release(d);
	d->end = UBLK_STAYS;
	ublk_dev_let_go_of_volume(d);
	ublk_dev_move(d, UBLK_LEFT);
	if (d->f->stopping)
		gone(d);
	else
		front_ublk_moved(d);
}

void
ublk_dev_fail(struct ublk_dev *d, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	blame(d, error, fmt, ap);
	va_end(ap);
	if (d->was_left && BIT(d->state) & (TO(WAITING) | TO(REVIVING) | TO(OPENING))) {
		leave_alone(d);
		return;
	}
	d->end = UBLK_ANYWAY;
	if (d->state == UBLK_ADDING)
		gone(d);
	else if (d->state == UBLK_STARTING) /* it waits for a queue that does not fetch */
		ublk_ctrl_cancel(&d->f->ctrl, &d->cmd);
	else if (BIT(d->state) & (TO(SETTING) | TO(OPENING) | TO(LIVE)))
		ublk_dev_stop(d);
	/* else when what is out has come back */
}

/* ---- making and freeing ---- */

static struct ublk_dev *
dev_alloc(struct front_ublk *f)
{
	struct ublk_dev *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->f = f;
	d->fd = -1;
	list_init(&d->timer.node);
	list_push_back(&f->devs, &d->node);
	return d;
}

struct ublk_dev *
ublk_dev_new(struct front_ublk *f, const struct ublk_config *cfg)
{
	struct ublk_dev *d = dev_alloc(f);

	if (!d)
		return NULL;
	d->state = UBLK_WAITING;
	d->info.nr_hw_queues = (uint16_t)(cfg->queues ? cfg->queues : f->in->nr_reactors);
	d->info.queue_depth = (uint16_t)cfg->depth;
	d->info.dev_id = UINT32_MAX;
	return d;
}

struct ublk_dev *
ublk_dev_found(struct front_ublk *f, const struct ublk_dev_info *info,
               const struct ublk_params *params)
{
	struct ublk_dev *d = dev_alloc(f);

	if (!d)
		return NULL;
	d->state = UBLK_LEFT;
	d->was_left = true;
	d->info = *info;
	d->params = *params;
	snprintf(d->path, sizeof(d->path), "/dev/ublkb%u", info->dev_id);
	return d;
}

void
ublk_dev_free(struct ublk_dev *d)
{
	list_del(&d->node);
	ring_timer_del(&d->timer);
	free(d);
}
