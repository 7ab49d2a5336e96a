/* Control verbs that list: one array of flat objects each, so that they print as tables; and the
 * counters.
 *
 * Everything is read under the lock, counters relaxed while their reactors write them. Nothing can
 * fail.
 */
#include "initiator/verbs_table.h"

#include "common/meter.h"
#include "common/report.h"
#include "initiator/discovery.h"
#include "initiator/front.h"
#include "initiator/front_vhost.h"
#include "initiator/stage_zstd.h"
#include "initiator/vm.h"
#include "initiator/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define UNUSED_PARAMS (void)params, (void)err

/* ---- volumes ---- */

/* Clients that have v as a disk. */
static unsigned
count_clients(const struct initiator *in, const struct volume *v)
{
	const struct vf *vf;
	unsigned n = 0;

	list_for_each(&in->vfs, vf, node)
		for (unsigned i = 0; i < VF_DISKS_MAX && vf->disks[i]; i++)
			n += vf->disks[i] == v;
	return n;
}

/* What is done to its bytes, and how many members cannot have it done. */
static void
put_stage(struct conf_writer *w, const struct volume *v)
{
	unsigned raw = 0;

	if (v->stage && v->stage->cfg.kind == STAGE_COMPRESS)
		for (unsigned i = 0; i < v->nr_members; i++)
			raw += !v->members[i].zips;
	if (raw > 0)
		conf_put_fmt(w, "stage", "%s, %u of %u members raw", stage_name(v->stage), raw,
			     v->nr_members);
	else
		conf_put_str(w, "stage", stage_name(v->stage));
}

static void
put_volume(struct conf_writer *w, const struct volume *v)
{
	conf_begin_object(w, NULL);
	conf_put_str(w, "name", v->name);
	conf_put_str(w, "state", volume_state_name(v->state));
	conf_put_u64(w, "size", v->bytes);
	conf_put_u64(w, "block_size", v->geo.nr ? 1u << v->lba_shift : 0);
	conf_put_u64(w, "members", v->nr_members);
	conf_put_u64(w, "stripe_bytes", v->nr_members > 1 ? v->block : 0);
	conf_put_u64(w, "part_bytes", v->geo.nr ? v->geo.max_part : v->max_part);
	conf_put_u64(w, "transfer_bytes", v->max_transfer);
	conf_put_bool(w, "merge", v->merge);
	put_stage(w, v);
	conf_put_u64(w, "clients", count_clients(v->in, v));
	conf_put_str(w, "why", v->why);
	conf_end(w);
}

int
verb_volumes(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	const struct volume *v;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	initiator_lock(in);
	list_for_each(&in->volumes, v, node)
		put_volume(w, v);
	initiator_unlock(in);
	conf_end(w);
	return 0;
}

/* ---- paths ---- */

static void
put_path(struct conf_writer *w, struct path *p)
{
	const struct path_config *cfg = path_config(p);
	const struct path_info *info = path_info(p);
	bool ipv6 = strchr(cfg->traddr, ':');
	char why[256];

	conf_begin_object(w, NULL);
	conf_put_str(w, "nqn", cfg->subnqn);
	conf_put_fmt(w, "addr", ipv6 ? "[%s]:%s" : "%s:%s", cfg->traddr, cfg->trsvcid);
	conf_put_str(w, "state", path_state_name(path_state(p)));
	conf_put_u64(w, "queues", path_queues_open(p));
	conf_put_u64(w, "attempts", path_attempts(p));
	if (info) {
		conf_put_u64(w, "cntlid", info->cntlid);
		conf_put_u64(w, "namespaces", info->nr_ns);
		if (info->mdts != UINT32_MAX)
			conf_put_u64(w, "mdts_bytes", info->mdts);
		else
			conf_put_null(w, "mdts_bytes");
		conf_put_u64(w, "capsule_bytes", info->in_capsule);
		conf_put_u64(w, "depth", info->mqes + 1u);
		path_info_put(info);
	}
	conf_put_str(w, "why", path_why(p, why, sizeof(why)));
	conf_end(w);
}

int
verb_paths(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	struct path *p;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	initiator_lock(in);
	for (p = path_next(in, NULL); p; p = path_next(in, p))
		put_path(w, p);
	initiator_unlock(in);
	conf_end(w);
	return 0;
}

int
verb_discoveries(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;

	UNUSED_PARAMS;
	initiator_lock(in);
	discoveries_put(w, in);
	initiator_unlock(in);
	return 0;
}

/* ---- VMs ---- */

/* The names of disks, "a, b", but of those that have a socket of their own. */
static void
put_disks(struct conf_writer *w, struct volume *const *disks, struct vhost_dev *const *devices,
	  unsigned n)
{
	char text[512] = "";
	size_t len = 0;

	for (unsigned i = 0; i < n && disks[i] && len < sizeof(text); i++)
		if (!devices || !devices[i])
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
						len ? ", " : "", disks[i]->name);
	conf_put_str(w, "disks", text);
}

static void
put_no_device(struct conf_writer *w)
{
	conf_put_null(w, "queues");
	conf_put_null(w, "socket");
}

static void
put_client(struct conf_writer *w, const struct vf *vf)
{
	conf_begin_object(w, NULL);
	conf_put_str(w, "name", vf->name);
	conf_put_u64(w, "uid", vf->uid);
	put_disks(w, vf->disks, NULL, VF_DISKS_MAX);
	conf_put_u64(w, "client", vf->id);
	conf_put_u64(w, "pid", vf->pid);
	put_no_device(w);
	conf_end(w);
}

static void
put_idle_vm(struct conf_writer *w, const struct vm *vm)
{
	conf_begin_object(w, NULL);
	conf_put_str(w, "name", vm->name);
	conf_put_u64(w, "uid", vm->uid);
	put_disks(w, vm->disks, vm->devices, vm->nr_disks);
	conf_put_null(w, "client");
	conf_put_null(w, "pid");
	put_no_device(w);
	conf_end(w);
}

static bool
has_client(const struct initiator *in, const struct vm *vm)
{
	const struct vf *vf;

	list_for_each(&in->vfs, vf, node)
		if (!vf->of_device && !strcmp(vf->name, vm->name))
			return true;
	return false;
}

/* A row for each client, one for each entry that has none, one for each disk with a socket. */
int
verb_vms(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	const struct vm *vm;
	const struct vf *vf;

	UNUSED_PARAMS;
	conf_begin_array(w, NULL);
	initiator_lock(in);
	list_for_each(&in->vms, vm, node)
		if (vm_has_shm(vm) && !has_client(in, vm))
			put_idle_vm(w, vm);
	list_for_each(&in->vfs, vf, node)
		if (!vf->of_device)
			put_client(w, vf);
	front_vhost_put_rows(w, in);
	initiator_unlock(in);
	conf_end(w);
	return 0;
}

/* ---- statistics ---- */

static void
put_latency(struct conf_writer *w, const struct meter_hist *h)
{
	conf_put_u64(w, "mean_ns", meter_hist_mean(h));
	conf_put_u64(w, "p50_ns", meter_hist_quantile(h, 0.5));
	conf_put_u64(w, "p99_ns", meter_hist_quantile(h, 0.99));
	conf_put_u64(w, "p999_ns", meter_hist_quantile(h, 0.999));
	conf_put_u64(w, "max_ns", h->max);
}

static void
put_reactor(struct conf_writer *w, const struct reactor *r)
{
	conf_begin_object(w, NULL);
	conf_put_u64(w, "id", r->id);
	conf_put_i64(w, "cpu", r->thread.cpu);
	report_loop(w, r->ring, &r->stats);
	conf_end(w);
}

/* The histogram is some KiB: not on the stack. */
static void
put_volume_stats(struct conf_writer *w, const struct volume *v, struct volume_stats *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (unsigned i = 0; i < v->in->nr_reactors; i++) {
		const struct volume_stats *s = &v->stats[i];

		sum->reads += METER_GET(s->reads);
		sum->writes += METER_GET(s->writes);
		sum->others += METER_GET(s->others);
		sum->read_bytes += METER_GET(s->read_bytes);
		sum->write_bytes += METER_GET(s->write_bytes);
		sum->errors += METER_GET(s->errors);
		sum->parts += METER_GET(s->parts);
		sum->merged += METER_GET(s->merged);
		sum->staged_out += METER_GET(s->staged_out);
		sum->staged_in += METER_GET(s->staged_in);
		sum->stage_waits += METER_GET(s->stage_waits);
		meter_hist_merge(&sum->latency, &s->latency);
	}
	conf_begin_object(w, NULL);
	conf_put_str(w, "name", v->name);
	conf_put_u64(w, "reads", sum->reads);
	conf_put_u64(w, "writes", sum->writes);
	conf_put_u64(w, "others", sum->others);
	conf_put_u64(w, "read_bytes", sum->read_bytes);
	conf_put_u64(w, "write_bytes", sum->write_bytes);
	conf_put_u64(w, "errors", sum->errors);
	conf_put_u64(w, "parts", sum->parts);
	conf_put_u64(w, "merged", sum->merged);
	conf_put_u64(w, "staged_out_bytes", sum->staged_out);
	conf_put_u64(w, "staged_in_bytes", sum->staged_in);
	conf_put_u64(w, "stage_waits", sum->stage_waits);
	if (v->stage && v->stage->cfg.kind == STAGE_COMPRESS)
		zstd_report(v->stage, w);
	put_latency(w, &sum->latency);
	conf_end(w);
}

static void
put_path_stats(struct conf_writer *w, struct path *p, struct hconn_stats *sum)
{
	const struct path_config *cfg = path_config(p);
	uint64_t violations = 0;

	path_stats_sum(p, sum);
	for (unsigned i = 0; i < VIOL_NR; i++)
		violations += sum->violations[i];
	conf_begin_object(w, NULL);
	conf_put_str(w, "nqn", cfg->subnqn);
	conf_put_fmt(w, "addr", strchr(cfg->traddr, ':') ? "[%s]:%s" : "%s:%s", cfg->traddr,
		     cfg->trsvcid);
	conf_put_u64(w, "parts", sum->parts);
	conf_put_u64(w, "read_bytes", sum->bytes_read);
	conf_put_u64(w, "write_bytes", sum->bytes_written);
	conf_put_u64(w, "in_capsule", sum->in_capsule);
	conf_put_u64(w, "r2ts", sum->r2ts);
	conf_put_u64(w, "ddgst_errors", sum->ddgst_errors);
	conf_put_u64(w, "copied_bytes", sum->copied);
	conf_put_u64(w, "lost", sum->lost);
	conf_put_u64(w, "violations", violations);
	put_latency(w, &sum->latency);
	conf_end(w);
}

/* By kind, of all paths. */
static void
put_violations(struct conf_writer *w, struct initiator *in, struct hconn_stats *sum)
{
	uint64_t count[VIOL_NR] = { 0 };
	struct path *p;

	for (p = path_next(in, NULL); p; p = path_next(in, p)) {
		path_stats_sum(p, sum);
		for (unsigned i = 0; i < VIOL_NR; i++)
			count[i] += sum->violations[i];
	}
	conf_begin_array(w, "violations");
	for (unsigned i = 0; i < VIOL_NR; i++) {
		conf_begin_object(w, NULL);
		conf_put_str(w, "kind", hconn_violation_name(i));
		conf_put_u64(w, "count", count[i]);
		conf_end(w);
	}
	conf_end(w);
}

int
verb_stats(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct volume_stats *vs = malloc(sizeof(*vs));
	struct hconn_stats *hs = malloc(sizeof(*hs));
	struct initiator *in = ctx;
	const struct volume *v;
	struct path *p;
	int ret = 0;

	(void)params;
	if (!vs || !hs) {
		ret = err_set(err, -ENOMEM, "no memory");
		goto out;
	}
	conf_begin_object(w, NULL);
	conf_begin_array(w, "reactors");
	for (unsigned i = 0; i < in->nr_reactors; i++)
		put_reactor(w, &in->reactors[i]);
	conf_end(w);
	initiator_lock(in);
	conf_begin_array(w, "volumes");
	list_for_each(&in->volumes, v, node)
		put_volume_stats(w, v, vs);
	conf_end(w);
	conf_begin_array(w, "paths");
	for (p = path_next(in, NULL); p; p = path_next(in, p))
		put_path_stats(w, p, hs);
	conf_end(w);
	put_violations(w, in, hs);
	front_vhost_put_stats(w, in);
	initiator_unlock(in);
	conf_end(w);
out:
	free(vs);
	free(hs);
	return ret;
}
