/* What others may see of a path, from any thread: limits and namespaces (counted), state, counters,
 * grants.
 *
 * A struct path_info is made once from what an association has learnt and never changed; path.c
 * swaps it whole.
 */
#include "initiator/assoc_inner.h"
#include "initiator/path_inner.h"

#include <stdio.h>
#include <stdlib.h>

struct counted_info {
	_Atomic unsigned refs;
	struct path_info info;
};

const struct path_info *
assoc_info(const struct assoc *a)
{
	struct counted_info *c = malloc(sizeof(*c) + a->nr_ns * sizeof(*a->ns));

	if (!c)
		return NULL;
	c->refs = 1;
	c->info = a->lim;
	c->info.nr_ns = a->nr_ns;
	memcpy(c->info.ns, a->ns, a->nr_ns * sizeof(*a->ns));
	return &c->info;
}

void
path_info_put(const struct path_info *i)
{
	struct counted_info *c;

	if (!i)
		return;
	c = (struct counted_info *)container_of(i, struct counted_info, info);
	if (atomic_fetch_sub(&c->refs, 1) == 1)
		free(c);
}

const struct path_info *
path_info(struct path *p)
{
	const struct path_info *i;

	pthread_mutex_lock(&p->lock);
	i = p->info;
	if (i)
		((struct counted_info *)container_of(i, struct counted_info, info))->refs++;
	pthread_mutex_unlock(&p->lock);
	return i;
}

static const char *const state_names[] = {
	[PATH_CONNECTING] = "connecting",
	[PATH_LIVE] = "live",
	[PATH_RECONNECTING] = "reconnecting",
	[PATH_FAILING] = "failing",
	[PATH_DEAD] = "dead",
};

const char *
path_state_name(enum path_state s)
{
	return (size_t)s < ARRAY_SIZE(state_names) ? state_names[s] : "unknown";
}

struct path *
path_next(struct initiator *in, struct path *p)
{
	struct list *n = p ? p->node.next : in->paths.next;

	return n == &in->paths ? NULL : list_entry(n, struct path, node);
}

enum path_state
path_state(const struct path *p)
{
	return (enum path_state)p->state;
}

const struct path_config *
path_config(const struct path *p)
{
	return &p->cfg;
}

const char *
path_name(const struct path *p)
{
	return p->name;
}

const char *
path_why(struct path *p, char *buf, size_t size)
{
	pthread_mutex_lock(&p->lock);
	snprintf(buf, size, "%s", p->why);
	pthread_mutex_unlock(&p->lock);
	return buf;
}

unsigned
path_attempts(const struct path *p)
{
	return p->attempts;
}

unsigned
path_queues_open(struct path *p)
{
	unsigned i, n = 0;

	for (i = 0; i < p->nr_queues; i++)
		n += path_queue_is_open(&p->queues[i]);
	return n;
}

void
path_stats_sum(struct path *p, struct hconn_stats *ret)
{
	unsigned i;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < p->nr_queues; i++)
		path_queue_stats(&p->queues[i], ret);
	for (i = 0; i < VIOL_NR; i++) /* the admin queue moves nobody's data, but is watched */
		ret->violations[i] += METER_GET(p->assoc->violations[i]);
}

void
path_each_grant(struct reactor *r, struct path *p,
                void (*each)(void *arg, const struct part *part, uint64_t due), void *arg)
{
	path_queue_each(&p->queues[r->id], each, arg);
	if (r->id == 0)
		assoc_each(p->assoc, each, arg);
}

void
path_tell_violation(struct reactor *from, const char *path, unsigned qid, enum hconn_violation kind,
                    uint16_t cid, uint64_t off, uint64_t len)
{
	struct conf_writer w;

	ctl_event_begin(&w, "violation");
	conf_put_str(&w, "path", path);
	conf_put_u64(&w, "queue", qid);
	conf_put_str(&w, "kind", hconn_violation_name(kind));
	conf_put_u64(&w, "cid", cid);
	conf_put_u64(&w, "offset", off);
	conf_put_u64(&w, "length", len);
	conf_put_fmt(&w, "text",
	             "%s queue %u: %s, cid %u, offset %llu, length %llu: connection is reset", path,
	             qid, hconn_violation_name(kind), cid, (unsigned long long)off,
	             (unsigned long long)len);
	ctl_events_take(&from->in->events, from->ring, ctl_event_end(&w));
}
