/* A ublk device: how it begins, and grows. See front_ublk_dev.h.
 *
 * Happy path of a new one: ADD_DEV, SET_PARAMS, /dev/ublkcN is opened, its queues are made and
 * fetch on their reactors, and START_DEV: the driver reads the partitions through those queues,
 * then it is live. Of one that was left behind: START_USER_RECOVERY as soon as the driver has
 * noticed that its server is gone, the same queues, END_USER_RECOVERY, and what had been sent to
 * the old server comes again.
 *
 * What can fail: each step, with the driver's errno: ublk_dev_fail(). Two are tried again for some
 * seconds: the recovery, while the old process is still going, and the open, until udev is through.
 */
#include "initiator/front_ublk_dev.h"

#include "common/log.h"
#include "common/units.h"
#include "initiator/front_ublk_params.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_NS   50000000ull
#define GIVE_UP_NS 15000000000ull

enum { SECTOR_SHIFT = 9 };

static struct volume *
volume_of(const struct ublk_dev *d)
{
	return d->vf->disks[0];
}

static uint64_t
sectors_of(const struct volume *v)
{
	return v->bytes >> SECTOR_SHIFT;
}

static uint64_t
now(const struct ublk_dev *d)
{
	return ring_now(d->f->ctrl.r->ring);
}

/* Again in a moment, calling fire. False: it has been long enough. */
static bool
again(struct ublk_dev *d, void (*fire)(struct ring_timer *t))
{
	if (now(d) >= d->give_up)
		return false;
	d->timer.fire = fire;
	ring_timer_set(d->f->ctrl.r->ring, &d->timer, now(d) + RETRY_NS);
	return true;
}

/* ---- growing ---- */

static void
resized(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res < 0) {
		log_warn("ublk %s: the driver does not let it grow: %s", d->path, strerror(-res));
	} else {
		struct units_text size;

		d->params.dev_sectors = d->sectors;
		log_info("ublk %s: grew to %s", d->path,
		         units_show_size(&size, d->sectors << SECTOR_SHIFT));
	}
	ublk_dev_move(d, UBLK_LIVE);
	ublk_dev_is_live(d);
}

bool
ublk_dev_resize(struct ublk_dev *d)
{
	uint64_t sectors = sectors_of(volume_of(d));

	if (sectors <= d->params.dev_sectors || sectors == d->sectors)
		return false;
	d->sectors = sectors;
	if (!(d->f->ctrl.features & UBLK_F_UPDATE_SIZE)) {
		log_warn("ublk %s: volume %s grew, but this kernel cannot tell (Linux 6.16 can): "
		         "delete the device and add it again",
		         d->path, d->volume);
		return false;
	}
	ublk_dev_move(d, UBLK_RESIZING);
	ublk_dev_send(d, UBLK_UPDATE_SIZE, NULL, 0, sectors, resized);
	return true;
}

/* ---- starting ---- */

static void
started(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);
	struct units_text size;

	(void)flags;
	if (res < 0)
		ublk_dev_blame(d, res, "the driver does not start it: %s", strerror(-res));
	if (d->error) {
		ublk_dev_stop(d);
		return;
	}
	ublk_dev_move(d, UBLK_LIVE);
	log_info("ublk %s: %s: volume %s, %s, %u queues of depth %u", d->path,
	         d->was_left ? "goes on" : "ready", d->volume,
	         units_show_size(&size, d->params.dev_sectors << SECTOR_SHIFT), d->nr_queues,
	         d->info.queue_depth);
	ublk_dev_is_live(d);
}

static void
attached(struct ublk_queue *q)
{
	struct ublk_dev *d = q->dev;
	uint32_t code = d->was_left ? UBLK_END_USER_RECOVERY : UBLK_START_DEV;

	if (--d->legs > 0)
		return;
	if (d->error) {
		ublk_dev_stop(d);
		return;
	}
	ublk_dev_move(d, UBLK_STARTING);
	ublk_dev_send(d, code, NULL, 0, (uint64_t)getpid(), started);
}

static int
make_queue(struct ublk_dev *d, unsigned i)
{
	struct ublk_queue *q = &d->queues[i];

	*q = (struct ublk_queue){
		.vq = { .r = front_place(d->f->in), .vf = d->vf },
		.dev = d,
		.vol = volume_of(d),
		.id = (uint16_t)i,
		.depth = d->info.queue_depth,
		.fd = d->fd,
		.buf_size = d->info.max_io_buf_bytes,
		.leg_home = attached,
		.left_home = ublk_dev_queue_left,
		.failed_home = ublk_dev_queue_failed,
	};
	d->nr_queues++;
	return ublk_queue_init(q);
}

static void
attach(struct ublk_dev *d)
{
	unsigned n = d->info.nr_hw_queues;
	int res = 0;

	d->queues = calloc(n, sizeof(*d->queues));
	for (unsigned i = 0; i < n && d->queues && res == 0; i++)
		res = make_queue(d, i);
	if (!d->queues || res < 0) {
		ublk_dev_fail(d, d->queues ? res : -ENOMEM, "cannot make its %u queues: %s", n,
		              strerror(d->queues ? -res : ENOMEM));
		return;
	}
	ublk_dev_move(d, UBLK_ATTACHING);
	d->legs = d->here = n;
	for (unsigned i = 0; i < n; i++)
		ublk_queue_attach(&d->queues[i], d->f->ctrl.r);
}

static void open_now(struct ublk_dev *d);

static void
open_again(struct ring_timer *t)
{
	open_now(container_of(t, struct ublk_dev, timer));
}

static void
open_now(struct ublk_dev *d)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/ublkc%u", d->info.dev_id);
	d->fd = open(path, O_RDWR | O_CLOEXEC);
	if (d->fd >= 0)
		attach(d);
	else if (!again(d, open_again))
		ublk_dev_fail(d, -errno, "cannot open %s: %s", path, strerror(errno));
}

static void
open_device(struct ublk_dev *d)
{
	ublk_dev_move(d, UBLK_OPENING);
	d->give_up = now(d) + GIVE_UP_NS;
	open_now(d);
}

/* ---- one that was left behind ---- */

static void revive_now(struct ublk_dev *d);

static void
revive_again(struct ring_timer *t)
{
	revive_now(container_of(t, struct ublk_dev, timer));
}

static void
revived(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res >= 0)
		open_device(d);
	else if (res != -EBUSY || d->f->stopping || !again(d, revive_again))
		ublk_dev_fail(d, res, "the driver does not hand it over: %s", strerror(-res));
}

static void
revive_now(struct ublk_dev *d)
{
	ublk_dev_send(d, UBLK_START_USER_RECOVERY, NULL, 0, 0, revived);
}

/* Whoever has it open sees the disk that it was. */
static void
revive(struct ublk_dev *d)
{
	const struct volume *v = volume_of(d);

	if (d->params.logical_shift != v->lba_shift || d->params.dev_sectors > sectors_of(v)) {
		ublk_dev_fail(d, -EINVAL,
		              "was left behind with %llu sectors in blocks of %u bytes, which "
		              "volume %s does not have; delete it when it is out of use",
		              (unsigned long long)d->params.dev_sectors,
		              1u << d->params.logical_shift, v->name);
		return;
	}
	ublk_dev_move(d, UBLK_REVIVING);
	d->give_up = now(d) + GIVE_UP_NS;
	revive_now(d);
}

/* ---- a new one ---- */

static void
set(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res < 0)
		ublk_dev_fail(d, res, "the driver does not take its parameters: %s",
		              strerror(-res));
	else
		open_device(d);
}

static void
added(struct op *op, int res, uint32_t flags)
{
	struct ublk_dev *d = container_of(op, struct ublk_dev, cmd);

	(void)flags;
	if (res == -EOPNOTSUPP || res == -EINVAL) {
		ublk_dev_fail(d, res,
		              "the driver of this kernel refuses it: Linux 6.4 or newer "
		              "is needed");
	} else if (res < 0) {
		ublk_dev_fail(d, res, "the driver does not add a device: %s", strerror(-res));
	} else {
		snprintf(d->path, sizeof(d->path), "/dev/ublkb%u", d->info.dev_id);
		snprintf(d->vf->name, sizeof(d->vf->name), "%s", d->path);
		ublk_params_of(volume_of(d), &d->params);
		ublk_dev_move(d, UBLK_SETTING);
		ublk_dev_send(d, UBLK_SET_PARAMS, &d->params, sizeof(d->params), 0, set);
	}
}

/* Not offered: UBLK_F_UNPRIVILEGED_DEV. The driver kills the server of such a device when a request
 * takes 30 s, which is no fault where a target is being waited for. */
static void
add(struct ublk_dev *d)
{
	const struct volume *v = volume_of(d);

	d->info.max_io_buf_bytes = MIN((uint32_t)UBLK_IO_MAX, v->max_transfer);
	d->info.flags = UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE |
	                UBLK_F_CMD_IOCTL_ENCODE | (d->f->ctrl.features & UBLK_F_UPDATE_SIZE);
	d->info.server = ublk_mark_of(v);
	ublk_dev_move(d, UBLK_ADDING);
	ublk_dev_send(d, UBLK_ADD_DEV, &d->info, sizeof(d->info), 0, added);
}

void
ublk_dev_start(struct ublk_dev *d)
{
	if (volume_of(d)->state != VOLUME_READY || d->f->stopping)
		return;
	if (d->was_left)
		revive(d);
	else
		add(d);
}
