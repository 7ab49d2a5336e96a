/* Control verbs of limits: show, set, clear, refund; and of the capacity.
 *
 * Happy path: a name finds a volume or a VM; what it has as limits is read, changed and given to
 * the scheduler, which looks at all that it holds; with "save" the file follows. What can fail: a
 * name that there is not or that a volume and a VM share, limits that cannot be, the file: then the
 * limits hold all the same, until the next start.
 */
#include "initiator/verbs_table.h"

#include "common/qos_books.h"
#include "initiator/config.h"

#include <errno.h>
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

static void
add_up(struct sched_node *n, struct qos_books *b, uint64_t now)
{
	qos_books_init(b, &n->cfg, &n->peak, now);
	for (unsigned i = 0; i < n->nr_reactors * SCHED_LINES; i++) {
		const struct sched_stats *one = &n->local[i].stats;

		b->passed += METER_GET(one->passed);
		b->passed_bytes += METER_GET(one->passed_bytes);
		b->held += METER_GET(one->held);
		b->merged += METER_GET(one->merged);
		meter_hist_merge(&b->wait, &one->wait);
	}
	for (unsigned i = 0; i < SCHED_LINES; i++)
		b->waiting += atomic_load(&n->line[i].waiters);
	b->refunds = n->refunds;
}

static void
put_row(struct conf_writer *w, const char *kind, const char *name, struct sched_node *n,
        struct qos_books *b, uint64_t now)
{
	add_up(n, b, now);
	conf_begin_object(w, NULL);
	conf_put_str(w, "kind", kind);
	conf_put_str(w, "name", name);
	qos_put_books(w, b);
	conf_put_u64(w, "merged", b->merged);
	conf_put_u64(w, "refunds", b->refunds);
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
put_rows(struct conf_writer *w, struct initiator *in, struct qos_books *s)
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
	struct qos_books *s = malloc(sizeof(*s)); /* a histogram is some KiB: not on the stack */
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
		ret = qos_read_amount(params, &amount, &bytes, err);
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
	struct qos_books *s = malloc(sizeof(*s));
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
