/* Control verbs of limits: show, set, clear, refund.
 *
 * Happy path: a name, NQN/NSID or NQN/HOSTNQN, finds a namespace or a host in a subsystem; its
 * limits are read, changed and hold from now on; with "save" the running configuration is written.
 * What can fail: a name that there is not, limits that cannot be, the file: then the limits hold
 * all the same, until the next start.
 */
#include "target/verbs_table.h"

#include "common/qos_books.h"
#include "common/units.h"
#include "target/model.h"

#include <errno.h>
#include <stdlib.h>

struct object { /* one of them */
	struct subsys *s;
	struct ns *ns;
	const char *host;
	struct limit *limit; /* NULL: it never had any */
};

/* ---- names ---- */

/* The one whose NQN and a slash begin the name; of several, the longest. */
static struct subsys *
find_subsys(struct target *t, const char *name)
{
	struct subsys *s, *found = NULL;

	list_for_each (&t->subsystems, s, node) {
		size_t n = strlen(s->nqn);

		if (strncmp(name, s->nqn, n) == 0 && name[n] == '/' &&
		    (!found || n > strlen(found->nqn)))
			found = s;
	}
	return found;
}

static int
find(struct target *t, const struct conf_node *params, struct object *ret, struct err *err)
{
	const char *name = "", *rest, *fault;
	uint64_t nsid;

	if (conf_get_str(params, "name", 2 * NVME_NQN_MAX + 1, &name, err) < 0)
		return -EINVAL;
	*ret = (struct object){ .s = find_subsys(t, name) };
	if (!ret->s)
		return err_set(err, -ENOENT, "'%s' is not NQN/NSID or NQN/HOSTNQN of a subsystem",
		               name);
	rest = name + strlen(ret->s->nqn) + 1;
	if (units_parse_u64(rest, &nsid) == 0) {
		ret->ns = nsid >= 1 && nsid <= NS_MAX ? ret->s->ns[nsid - 1] : NULL;
		ret->limit = ret->ns ? ret->ns->limit : NULL;
		return ret->ns ? 0
		               : err_set(err, -ENOENT, "%s has no namespace %s", ret->s->nqn, rest);
	}
	fault = nqn_fault(rest);
	if (fault)
		return err_set(err, -EINVAL, "the name of the host %s", fault);
	ret->host = rest;
	ret->limit = subsys_host_limit(ret->s, rest);
	return 0;
}

/* ---- show ---- */

static void
add_up(struct limit *l, struct qos_books *b, uint64_t now)
{
	qos_books_init(b, &l->cfg, &l->rates, now);
	for (unsigned i = 0; i < l->nr_reactors * RATES_LINES; i++) {
		const struct limit_stats *one = &l->local[i].stats;

		b->passed += METER_GET(one->passed);
		b->passed_bytes += METER_GET(one->passed_bytes);
		b->held += METER_GET(one->held);
		meter_hist_merge(&b->wait, &one->wait);
	}
	for (unsigned i = 0; i < RATES_LINES; i++)
		b->waiting += atomic_load(&l->waiters[i]);
	b->refunds = l->refunds;
}

static void
put_row(struct conf_writer *w, const struct subsys *s, const struct ns *ns, const char *host,
        struct limit *l, struct qos_books *b)
{
	add_up(l, b, ring_now(s->t->reactors[0].ring));
	conf_begin_object(w, NULL);
	conf_put_str(w, "kind", ns ? "namespace" : "host");
	if (ns)
		conf_put_fmt(w, "name", "%s/%u", s->nqn, ns->nsid);
	else
		conf_put_fmt(w, "name", "%s/%s", s->nqn, host);
	qos_put_books(w, b);
	conf_put_u64(w, "refunds", b->refunds);
	conf_end(w);
}

/* Those that have limits, or had. */
static void
put_rows(struct conf_writer *w, const struct subsys *s, struct qos_books *b)
{
	const struct host_limit *h;

	for (unsigned i = 0; i < NS_MAX; i++)
		if (s->ns[i] && s->ns[i]->limit)
			put_row(w, s, s->ns[i], NULL, s->ns[i]->limit, b);
	list_for_each (&s->host_limits, h, node)
		put_row(w, s, NULL, h->nqn, h->limit, b);
}

int
verb_qos_show(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct qos_books *b = malloc(sizeof(*b));
	const struct subsys *s;
	struct target *t = ctx;
	struct object o = { 0 };
	int ret = 0;

	if (!b)
		return err_set(err, -ENOMEM, "no memory");
	target_lock(t);
	if (conf_get(params, "name"))
		ret = find(t, params, &o, err);
	if (!ret) {
		conf_begin_array(w, NULL);
		if (o.limit)
			put_row(w, o.s, o.ns, o.host, o.limit, b);
		list_for_each (&t->subsystems, s, node)
			if (!o.s)
				put_rows(w, s, b);
		conf_end(w);
	}
	target_unlock(t);
	free(b);
	return ret;
}

/* ---- change ---- */

static int
change(struct target *t, const struct conf_node *params, bool clear, struct err *err)
{
	struct qos_config q;
	struct object o;
	int ret;

	qos_init(&q);
	ret = find(t, params, &o, err);
	if (ret)
		return ret;
	if (!clear && o.limit)
		q = o.limit->cfg;
	if (!clear)
		ret = qos_read_single(conf_get(params, "limits"), &q, err);
	if (ret)
		return ret;
	ret = o.ns ? ns_set_limit(o.ns, &q) : subsys_set_host_limit(o.s, o.host, &q);
	return ret ? err_set(err, ret, "no memory") : 0;
}

static int
change_and_save(struct target *t, const struct conf_node *params, bool clear, struct conf_writer *w,
                struct err *err)
{
	bool save = false;
	int ret;

	ret = conf_get_bool(params, "save", &save, err);
	if (ret < 0)
		return ret;
	target_lock(t);
	ret = change(t, params, clear, err);
	target_unlock(t);
	return ret || !save ? ret : target_save(t, NULL, w, err);
}

int
verb_qos_set(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	return change_and_save(ctx, params, false, w, err);
}

int
verb_qos_clear(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	return change_and_save(ctx, params, true, w, err);
}

int
verb_qos_refund(void *ctx, const struct conf_node *params, struct conf_writer *w, struct err *err)
{
	struct target *t = ctx;
	uint64_t amount = 0;
	struct object o;
	bool bytes;
	int ret;

	(void)w;
	ret = qos_read_amount(params, &amount, &bytes, err);
	if (ret)
		return ret;
	target_lock(t);
	ret = find(t, params, &o, err);
	if (!ret && o.limit)
		limit_refund(o.limit, bytes, amount, t);
	target_unlock(t);
	return ret;
}
