/* The ublk front: the table of devices. See front_ublk.h.
 *
 * Happy path: front_ublk_open() opens the driver and looks through /sys/class/ublk-char for devices
 * that bear our mark and have no server; front_ublk_apply() gives each its volume; the rest is the
 * devices' own (front_ublk_dev.c), which tell front_ublk_moved() when they have come to rest, and
 * whoever waits for that is answered.
 *
 * A volume has one device at most. Of the verbs' functions each finds what it began by name when it
 * runs again; the bits in "asked" tell that it did.
 */
#include "initiator/front_ublk.h"

#include "common/ctl_server.h"
#include "common/log.h"
#include "common/meter.h"
#include "initiator/config.h"
#include "initiator/front_ublk_dev.h"
#include "initiator/front_ublk_params.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SYS_DIR "/sys/class/ublk-char"

/* ---- finding ---- */

static struct ublk_dev *
dev_of_volume(const struct front_ublk *f, const char *name)
{
	struct ublk_dev *d;

	list_for_each (&f->devs, d, node)
		if (!strcmp(d->volume, name))
			return d;
	return NULL;
}

static struct ublk_dev *
dev_of_path(const struct front_ublk *f, const char *path)
{
	const char *name = strncmp(path, "/dev/", 5) ? path : path + 5;
	struct ublk_dev *d;

	list_for_each (&f->devs, d, node)
		if (d->path[0] && !strcmp(d->path + 5, name))
			return d;
	return NULL;
}

static struct ublk_dev *
dev_named(const struct front_ublk *f, const char *name)
{
	struct ublk_dev *d = dev_of_path(f, name);

	return d ? d : dev_of_volume(f, name);
}

static struct ublk_dev *
dev_left_of(const struct front_ublk *f, const struct volume *v)
{
	struct ublk_dev *d;

	list_for_each (&f->devs, d, node)
		if (d->state == UBLK_LEFT && d->info.server == ublk_mark_of(v))
			return d;
	return NULL;
}

/* ---- what was left behind ---- */

static void
look_at(struct front_ublk *f, uint32_t id)
{
	struct ublk_dev_info info = { 0 };
	struct ublk_params params = { .len = sizeof(params) };

	if (ublk_ctrl_ask(&f->ctrl, UBLK_GET_DEV_INFO, id, &info, sizeof(info)) < 0 ||
	    !ublk_mark_is_ours(info.server) || info.state == UBLK_S_DEAD)
		return;
	if (info.state == UBLK_S_LIVE && (kill(info.pid, 0) == 0 || errno != ESRCH)) {
		log_info("ublk /dev/ublkb%u: another initiator, process %d, serves it", id,
		         info.pid);
		return;
	}
	if (ublk_ctrl_ask(&f->ctrl, UBLK_GET_PARAMS, id, &params, sizeof(params)) < 0 ||
	    !ublk_dev_found(f, &info, &params))
		log_warn("ublk /dev/ublkb%u: was left behind, but does not tell what it is", id);
}

static void
look_around(struct front_ublk *f)
{
	DIR *dir = opendir(SYS_DIR);
	const struct dirent *e;
	unsigned id;

	while (dir && (e = readdir(dir)))
		if (sscanf(e->d_name, "ublkc%u", &id) == 1)
			look_at(f, id);
	if (dir)
		closedir(dir);
}

int
front_ublk_open(struct initiator *in, struct err *err)
{
	struct front_ublk *f;
	int res;

	if (in->ublk)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(err, -ENOMEM, "no memory");
	f->in = in;
	list_init(&f->devs);
	res = ublk_ctrl_open(&f->ctrl, &in->reactors[0], err);
	if (res < 0) {
		free(f);
		return res;
	}
	look_around(f);
	in->ublk = f;
	return 0;
}

void
front_ublk_look(struct initiator *in)
{
	struct err err = { 0 };

	if (access(UBLK_CONTROL, R_OK | W_OK) == 0 && front_ublk_open(in, &err) < 0)
		log_warn("%s", err.text);
}

/* ---- devices come to rest ---- */

static void
end_posted(struct op *op, int res, uint32_t flags)
{
	struct front_ublk *f = container_of(op, struct front_ublk, end);

	(void)res;
	(void)flags;
	f->stopped(f->stopped_arg);
}

static void
check_end(struct front_ublk *f)
{
	struct ring *ring = f->ctrl.r->ring;
	const struct ublk_dev *d;

	if (!f->stopping || f->end.done)
		return;
	list_for_each (&f->devs, d, node)
		if (d->state != UBLK_KEPT)
			return;
	f->end = (struct op){ end_posted, "ublk.end" };
	ring_post(ring, ring, &f->end);
}

void
front_ublk_moved(struct ublk_dev *d)
{
	struct front_ublk *f = d->f;

	if (d->asked && f->in->ctl)
		ctl_server_wake(f->in->ctl);
	d->asked = 0;
	if (d->state == UBLK_GONE)
		ublk_dev_free(d);
	check_end(f);
}

/* ---- adding ---- */

/* Makes it or takes it over; ret is in a state of any kind. */
static int
dev_add(struct front_ublk *f, const struct ublk_config *cfg, struct volume *v,
        struct ublk_dev **ret, struct err *err)
{
	struct ublk_dev *d = dev_left_of(f, v);

	if (d)
		ublk_dev_move(d, UBLK_WAITING);
	else
		d = ublk_dev_new(f, cfg);
	if (!d || ublk_dev_take_volume(d, v) < 0) {
		if (d && d->was_left)
			ublk_dev_move(d, UBLK_LEFT);
		else if (d)
			ublk_dev_free(d);
		return err_set(err, -ENOMEM, "no memory for a device");
	}
	d->error = 0;
	*ret = d;
	ublk_dev_start(d);
	return 0;
}

static int
answer_add(const struct ublk_dev *d, char path[32], struct err *err)
{
	if (ublk_dev_moves(d))
		return CTL_LATER;
	if (d->error)
		return err_set(err, d->error, "ublk: volume '%s': %s", d->volume, d->why);
	if (d->state != UBLK_LIVE)
		return err_set(err, -EIO, "ublk: volume '%s': its device is %s", d->volume,
		               ublk_state_name(d->state));
	snprintf(path, 32, "%s", d->path);
	return 0;
}

int
front_ublk_add(struct initiator *in, const struct ublk_config *cfg, char path[32], struct err *err)
{
	struct volume *v = volume_find(in, cfg->volume);
	struct ublk_dev *d;
	int res = front_ublk_open(in, err);

	if (res < 0)
		return res;
	d = dev_of_volume(in->ublk, cfg->volume);
	if (d && d->asked & UBLK_ASK_ADD)
		return answer_add(d, path, err);
	if (d && d->vf)
		return err_set(err, -EEXIST, "volume '%s' has %s already, which is %s", cfg->volume,
		               d->path[0] ? d->path : "a ublk device", ublk_state_name(d->state));
	if (!v)
		return err_set(err, -ENOENT, "there is no volume '%s'", cfg->volume);
	if (v->state != VOLUME_READY)
		return err_set(err, -EAGAIN, "volume '%s' is not ready: %s", v->name, v->why);
	res = dev_add(in->ublk, cfg, v, &d, err);
	if (res < 0)
		return res;
	if (!ublk_dev_moves(d))
		return answer_add(d, path, err);
	d->asked |= UBLK_ASK_ADD;
	return CTL_LATER;
}

/* ---- ending ---- */

static int
answer_end(const struct ublk_dev *d, struct err *err)
{
	if (ublk_dev_moves(d))
		return CTL_LATER;
	if (d->state == UBLK_GONE)
		return 0;
	if (d->error)
		return err_set(err, d->error, "%s: %s", d->path, d->why);
	return err_set(err, -EBUSY, "%s is in use: unmount it, or take --force", d->path);
}

int
front_ublk_end(struct initiator *in, const char *name, bool force, struct err *err)
{
	struct front_ublk *f = in->ublk;
	struct ublk_dev *d = f ? dev_named(f, name) : NULL;

	if (!d)
		return err_set(err, -ENOENT, "there is no ublk device '%s' of ours", name);
	if (d->asked & UBLK_ASK_END)
		return answer_end(d, err);
	ublk_dev_end(d, force ? UBLK_ANYWAY : UBLK_UNLESS_USED, "as asked for");
	d = dev_named(f, name);
	if (!d)
		return 0; /* the driver had nothing of it */
	d->asked |= UBLK_ASK_END;
	return CTL_LATER;
}

/* ---- the configuration ---- */

static bool
is_listed(const struct ublk_config *cfgs, unsigned n, const char *volume)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(cfgs[i].volume, volume))
			return true;
	return false;
}

static void
leave(struct initiator *in, const struct ublk_config *cfgs, unsigned n)
{
	struct ublk_dev *d, *tmp;

	if (!in->ublk)
		return;
	list_for_each_safe (&in->ublk->devs, d, tmp, node)
		if (d->listed && !is_listed(cfgs, n, d->volume)) {
			d->listed = false;
			ublk_dev_end(d, UBLK_UNLESS_USED, "it left the configuration");
		}
}

/* Those left behind whose volumes are there. */
static void
adopt(struct front_ublk *f)
{
	struct volume *v;
	struct ublk_dev *d;

	list_for_each (&f->in->volumes, v, node)
		if (dev_left_of(f, v) && !dev_of_volume(f, v->name))
			dev_add(f, NULL, v, &d, NULL);
	list_for_each (&f->devs, d, node)
		if (d->state == UBLK_LEFT && !d->error)
			log_warn(
				"ublk %s: was left behind on a volume that is not configured here; "
				"\"sluicectl ublk del %s\" deletes it",
				d->path, d->path);
}

static int
apply_one(struct front_ublk *f, const struct ublk_config *cfg, struct err *err)
{
	struct ublk_dev *d = dev_of_volume(f, cfg->volume);
	struct volume *v = volume_find(f->in, cfg->volume);
	int res = 0;

	if (!v)
		return err_set(err, -ENOENT, "ublk: there is no volume '%s'", cfg->volume);
	if (!d || (!d->vf && !ublk_dev_moves(d)))
		res = dev_add(f, cfg, v, &d, err);
	if (res == 0)
		d->listed = true;
	return res;
}

static int
come(struct initiator *in, const struct ublk_config *cfgs, unsigned n, struct err *err)
{
	int res = n > 0 ? front_ublk_open(in, err) : 0, one;

	if (res < 0 || !in->ublk)
		return res;
	adopt(in->ublk);
	for (unsigned i = 0; i < n; i++) {
		one = apply_one(in->ublk, &cfgs[i], res ? NULL : err);
		res = res ? res : one;
	}
	return res;
}

int
front_ublk_apply(struct initiator *in, struct config *c, struct err *err)
{
	int res, one;

	leave(in, c->ublks, c->nr_ublks);
	res = config_apply(in, c, err);
	one = come(in, c->ublks, c->nr_ublks, res ? NULL : err);
	return res ? res : one;
}

/* ---- looking ---- */

static void
put_dev(struct conf_writer *w, const struct ublk_dev *d)
{
	uint64_t requests = 0, errors = 0, staged = 0;

	for (unsigned i = 0; i < d->nr_queues; i++) {
		requests += METER_GET(d->queues[i].vq.completed);
		errors += METER_GET(d->queues[i].vq.bad);
		staged += METER_GET(d->queues[i].staged);
	}
	conf_begin_object(w, NULL);
	conf_put_str(w, "device", d->path);
	conf_put_str(w, "volume", d->volume);
	conf_put_str(w, "state", ublk_state_name(d->state));
	conf_put_u64(w, "size", d->params.dev_sectors << 9);
	conf_put_u64(w, "queues", d->info.nr_hw_queues);
	conf_put_u64(w, "depth", d->info.queue_depth);
	conf_put_u64(w, "requests", requests);
	conf_put_u64(w, "refused", errors);
	conf_put_u64(w, "staged_bytes", staged);
	conf_put_str(w, "why", d->error ? d->why : "");
	conf_end(w);
}

void
front_ublk_list(struct initiator *in, struct conf_writer *w)
{
	const struct ublk_dev *d;

	conf_begin_array(w, NULL);
	if (in->ublk)
		list_for_each (&in->ublk->devs, d, node)
			put_dev(w, d);
	conf_end(w);
}

bool
front_ublk_settled(const struct initiator *in)
{
	const struct ublk_dev *d;

	if (in->ublk)
		list_for_each (&in->ublk->devs, d, node)
			if (ublk_dev_moves(d))
				return false;
	return true;
}

void
front_ublk_show(const struct initiator *in)
{
	const struct ublk_dev *d;

	if (in->ublk)
		list_for_each (&in->ublk->devs, d, node)
			if (d->state == UBLK_LIVE)
				printf("%s: volume %s\n", d->path, d->volume);
}

/* ---- the end of all ---- */

void
front_ublk_stop(struct front_ublk *f, void (*stopped)(void *arg), void *arg)
{
	struct ublk_dev *d, *tmp;

	f->stopping = true;
	f->stopped = stopped;
	f->stopped_arg = arg;
	list_for_each_safe (&f->devs, d, tmp, node)
		ublk_dev_end(d, UBLK_KEEP_USED, "the initiator stops");
	check_end(f);
}

bool
front_ublk_free(struct front_ublk *f)
{
	if (!f)
		return false;
	if (!list_empty(&f->devs))
		return true;
	ublk_ctrl_close(&f->ctrl);
	free(f);
	return false;
}
