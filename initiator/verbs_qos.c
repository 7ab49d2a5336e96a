/* Control verbs of limits: show, set, clear, refund; and of the capacity.
 *
 * Happy path: a name finds a volume or a VM; what it has as limits is read, changed and given to
 * the scheduler, which looks at all that it holds; with "save" the file follows. What can fail: a
 * name that there is not or that a volume and a VM share, limits that cannot be, the file: then the
 * limits hold all the same, until the next start.
 */
#include "initiator/verbs_table.h"

#include "common/units.h"
#include "initiator/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct object { /* one of them */
	struct volume *volume;
	struct vm *vm;
	struct sched_node *node;
};

/* ---- names ---- */

/* "name", or "vm:name" and "volume:name" where both are there. */
static int
find(struct initiator *in, const struct conf_node *params, struct object *ret, struct err *err)
{
	const char *name = "";
	bool no_volume, no_vm;

	if (conf_get_str(params, "name", 80, &name, err) < 0)
		return -EINVAL;
	no_volume = !strncmp(name, "vm:", 3);
	no_vm = !strncmp(name, "volume:", 7);
	ret->volume = no_volume ? NULL : volume_find(in, no_vm ? name + 7 : name);
	ret->vm = no_vm ? NULL : vm_find(in, no_volume ? name + 3 : name);
	if (ret->volume && ret->vm)
		return err_set(err, -EINVAL, "'%s' is a volume and a vm: say volume:%s or vm:%s",
		               name, name, name);
	if (!ret->volume && !ret->vm)
		return err_set(err, -ENOENT, "there is no volume or vm '%s'", name);
	ret->node = ret->vm ? &ret->vm->qos->node : ret->volume->qos;
	return 0;
}

static const char *
name_of(const struct object *o)
{
	return o->vm ? o->vm->name : o->volume->name;
}

/* ---- show ---- */

struct sums {
	struct sched_stats stats;
	uint64_t waiting;
};

static void
add_up(const struct sched_node *n, struct sums *s)
{
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < n->nr_reactors * SCHED_LINES; i++) {
		const struct sched_stats *one = &n->local[i].stats;

		s->stats.passed += METER_GET(one->passed);
		s->stats.passed_bytes += METER_GET(one->passed_bytes);
		s->stats.held += METER_GET(one->held);
		s->stats.merged += METER_GET(one->merged);
		meter_hist_merge(&s->stats.wait, &one->wait);
	}
	for (unsigned i = 0; i < SCHED_LINES; i++)
		s->waiting += atomic_load(&n->line[i].waiters);
}

/* Of the tightest limit of commands, or of bytes; null where there is none. */
static void
put_tokens(struct conf_writer *w, const char *key, struct sched_node *n, bool bytes, uint64_t now)
{
	int64_t least = rates_tokens(&n->peak, bytes, now);

	if (least == INT64_MAX)
		conf_put_null(w, key);
	else
		conf_put_i64(w, key, least);
}

static void
put_row(struct conf_writer *w, const char *kind, const char *name, struct sched_node *n,
        struct sums *s, uint64_t now)
{
	const struct meter_hist *h = &s->stats.wait;
	struct qos_text text;

	add_up(n, s);
	conf_begin_object(w, NULL);
	conf_put_str(w, "kind", kind);
	conf_put_str(w, "name", name);
	for (unsigned k = 0; k < QOS_KINDS; k++)
		conf_put_str(w, qos_names[k], qos_show(&text, &n->cfg, k));
	conf_put_u64(w, "burst_ms", n->cfg.burst_ms);
	conf_put_u64(w, "passed", s->stats.passed);
	conf_put_u64(w, "passed_bytes", s->stats.passed_bytes);
	conf_put_u64(w, "held", s->stats.held);
	conf_put_u64(w, "waiting", s->waiting);
	conf_put_u64(w, "wait_mean_ns", meter_hist_mean(h));
	conf_put_u64(w, "wait_p50_ns", meter_hist_quantile(h, 0.5));
	conf_put_u64(w, "wait_p99_ns", meter_hist_quantile(h, 0.99));
	conf_put_u64(w, "wait_max_ns", h->max);
	put_tokens(w, "tokens", n, false, now);
	put_tokens(w, "byte_tokens", n, true, now);
	conf_put_u64(w, "merged", s->stats.merged);
	conf_put_u64(w, "refunds", n->refunds);
	conf_end(w);
}

static bool
has_books(const struct sched_node *n)
{
	bool used = qos_limited(&n->cfg);

	for (unsigned i = 0; i < n->nr_reactors && !used; i++)
		used = METER_GET(n->local[i * SCHED_LINES].stats.passed) > 0;
	return used;
}

/* Those that have limits, or had. */
static void
put_rows(struct conf_writer *w, struct initiator *in, struct sums *s)
{
	uint64_t now = ring_now(in->reactors[0].ring);
	struct volume *v;
	struct vm *vm;

	if (qos_limited(&in->capacity->cfg))
		put_row(w, "capacity", "", in->capacity, s, now);
	list_for_each (&in->volumes, v, node)
		if (has_books(v->qos))
			put_row(w, "volume", v->name, v->qos, s, now);
	list_for_each (&in->vms, vm, node)
		if (has_books(&vm->qos->node))
			put_row(w, "vm", vm->name, &vm->qos->node, s, now);
}

int
verb_qos_show(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct sums *s = malloc(sizeof(*s)); /* a histogram is some KiB: not on the stack */
	struct initiator *in = ctx;
	struct object o;
	int ret = 0;

	if (!s)
		return err_set(err, -ENOMEM, "no memory");
	if (conf_get(params, "name"))
		ret = find(in, params, &o, err);
	if (!ret) {
		conf_begin_array(w, NULL);
		initiator_lock(in);
		if (!conf_get(params, "name"))
			put_rows(w, in, s);
		else
			put_row(w, o.vm ? "vm" : "volume", name_of(&o), o.node, s,
			        ring_now(in->reactors[0].ring));
		initiator_unlock(in);
		conf_end(w);
	}
	free(s);
	return ret;
}

/* ---- change ---- */

static int
change(struct initiator *in, const struct object *o, const struct qos_config *q,
       const struct conf_node *params, struct err *err)
{
	bool save = false;

	if (conf_get_bool(params, "save", &save, err) < 0)
		return -EINVAL;
	if (o->vm)
		vm_set_qos(in, o->vm, q);
	else
		volume_set_qos(o->volume, q);
	return save ? config_save_qos(in->config_path, !o->vm, name_of(o), q, err) : 0;
}

int
verb_qos_set(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	struct qos_config q;
	struct object o;
	int ret;

	(void)w;
	ret = find(in, params, &o, err);
	if (ret)
		return ret;
	q = o.node->cfg;
	ret = qos_read(conf_get(params, "limits"), &q, err);
	return ret ? ret : change(in, &o, &q, params, err);
}

int
verb_qos_clear(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct qos_config none;
	struct object o;
	int ret;

	(void)w;
	ret = find(ctx, params, &o, err);
	if (ret)
		return ret;
	qos_init(&none);
	return change(ctx, &o, &none, params, err);
}

/* "500", "500iops", "1M", "4096bytes": a number of commands unless it says bytes. */
static int
read_amount(const struct conf_node *params, uint64_t *ret, bool *ret_bytes, struct err *err)
{
	const struct conf_node *n = conf_get(params, "amount");
	const char *text = "";
	char number[32];
	size_t digits;
	int res = conf_get_str(params, "amount", sizeof(number) - 1, &text, err);

	if (res < 0)
		return res;
	digits = strspn(text, "0123456789");
	snprintf(number, sizeof(number), "%.*s", (int)digits, text);
	*ret_bytes = strcmp(text + digits, "bytes") == 0;
	if (!*ret_bytes && text[digits] && strcmp(text + digits, "iops") != 0) {
		*ret_bytes = true;
		res = units_parse_size(text, ret);
	} else {
		res = units_parse_u64(number, ret);
	}
	if (res || *ret == 0)
		return conf_err(n, err, -EINVAL,
		                "must be a number of commands or bytes, such as 500iops, "
		                "4096bytes or 1M, not '%s'",
		                text);
	return 0;
}

int
verb_qos_refund(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	struct object o;
	uint64_t amount;
	bool bytes;
	int ret;

	(void)w;
	ret = find(in, params, &o, err);
	if (!ret)
		ret = read_amount(params, &amount, &bytes, err);
	if (ret)
		return ret;
	sched_refund(o.node, bytes, amount);
	sched_kick(in);
	return 0;
}

/* ---- capacity ---- */

int
verb_capacity_show(void *ctx, const struct conf_node *params, struct conf_writer *w,
                   struct err *err)
{
	struct sums *s = malloc(sizeof(*s));
	struct initiator *in = ctx;

	(void)params;
	if (!s)
		return err_set(err, -ENOMEM, "no memory");
	conf_begin_array(w, NULL);
	put_row(w, "capacity", "", in->capacity, s, ring_now(in->reactors[0].ring));
	conf_end(w);
	free(s);
	return 0;
}

int
verb_capacity_set(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct initiator *in = ctx;
	struct qos_config q = in->capacity->cfg;
	bool save = false;
	int ret;

	(void)w;
	ret = qos_read_capacity(conf_get(params, "limits"), &q, err);
	if (ret >= 0)
		ret = conf_get_bool(params, "save", &save, err);
	if (ret < 0)
		return ret;
	volumes_set_capacity(in, &q);
	return save ? config_save_capacity(in->config_path, &q, err) : 0;
}
