/* Control commands of the ublk driver. See front_ublk_ctrl.h.
 *
 * Happy path: ublk_ctrl_open() opens the device and asks what the driver can do; each
 * ublk_ctrl_send() leaves at once on the wide ring; its completion makes that ring readable,
 * reactor 0's poll ends, and the handler runs from reactor 0's loop like any other.
 *
 * What can fail: opening (a sentence); a command, whose handler gets the errno.
 */
#include "initiator/front_ublk_ctrl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { ENTRIES = 64, ASK_MS = 5000 };

static int
open_device(struct err *err)
{
	int fd = open(UBLK_CONTROL, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	switch (errno) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return err_set(err, -ENODEV,
		               "ublk: " UBLK_CONTROL
		               " is not there: load the driver with \"modprobe "
		               "ublk_drv\" (Linux 6.4 or newer has it)");
	case EACCES:
	case EPERM:
		return err_set(err, -errno, "ublk: " UBLK_CONTROL " may be opened by root only");
	}
	return err_set(err, -errno, "ublk: cannot open " UBLK_CONTROL ": %s", strerror(errno));
}

/* A driver that does not know the question (before Linux 6.5) can none of what is asked for. */
static uint64_t
ask_features(struct ublk_ctrl *c)
{
	uint64_t features = 0;

	return ublk_ctrl_ask(c, UBLK_GET_FEATURES, 0, &features, sizeof(features)) < 0 ? 0
	                                                                               : features;
}

static void poll_done(struct op *op, int res, uint32_t flags);

int
ublk_ctrl_open(struct ublk_ctrl *c, struct reactor *r, struct err *err)
{
	struct ring_config cfg = { .entries = ENTRIES, .name = "ublk.control", .wide = true };
	int res;

	*c = (struct ublk_ctrl){ .r = r, .poll = { poll_done, "ublk.poll" } };
	c->fd = open_device(err);
	if (c->fd < 0)
		return c->fd;
	res = ring_new(&cfg, &c->ring, err);
	if (res < 0) {
		close(c->fd);
		return res;
	}
	c->features = ask_features(c);
	return 0;
}

void
ublk_ctrl_close(struct ublk_ctrl *c)
{
	ring_free(c->ring);
	close(c->fd);
}

/* while commands are out */

static void
poll_next(struct ublk_ctrl *c)
{
	if (c->polling || ring_inflight(c->ring) == 0)
		return;
	c->polling = true;
	ring_poll(c->r->ring, &c->poll, ring_fd(c->ring), POLLIN);
}

static void
poll_done(struct op *op, int res, uint32_t flags)
{
	struct ublk_ctrl *c = container_of(op, struct ublk_ctrl, poll);

	(void)res;
	(void)flags;
	c->polling = false;
	ring_turn(c->ring);
	poll_next(c);
}

void
ublk_ctrl_send(struct ublk_ctrl *c, struct op *op, uint32_t code, const struct ublk_ctrl_cmd *cmd)
{
	ring_cmd(c->ring, op, c->fd, code, cmd, sizeof(*cmd));
	ring_submit(c->ring);
	poll_next(c);
}

void
ublk_ctrl_cancel(struct ublk_ctrl *c, struct op *op)
{
	ring_cancel(c->ring, op);
	ring_submit(c->ring);
}

/* waiting */

struct asked {
	struct op op;
	int res;
};

static void
asked_done(struct op *op, int res, uint32_t flags)
{
	(void)flags;
	container_of(op, struct asked, op)->res = res;
}

int
ublk_ctrl_ask(struct ublk_ctrl *c, uint32_t code, uint32_t dev_id, void *buf, uint16_t len)
{
	struct ublk_ctrl_cmd cmd = {
		.dev_id = dev_id,
		.queue_id = UINT16_MAX,
		.len = len,
		.addr = (uintptr_t)buf,
	};
	struct asked a = { .op = { asked_done, "ublk.ask" } };
	struct pollfd p = { .fd = ring_fd(c->ring), .events = POLLIN };

	ring_cmd(c->ring, &a.op, c->fd, code, &cmd, sizeof(cmd));
	ring_submit(c->ring);
	while (ring_inflight(c->ring) > 0) {
		poll(&p, 1, ASK_MS);
		ring_turn(c->ring);
	}
	return a.res;
}
