/* A discovery controller and what it told last. See discovery.h.
 *
 * Life: an attempt to associate (assoc_active), then live: reading or waiting for news; down; a
 * pause; the next attempt. One timer is the pause, or keeps two readings a second apart. One that
 * is not wanted any more (ending) is freed when its association is down.
 *
 * Lists and what is shown are changed under the initiator's lock, on reactor 0.
 */
#include "initiator/discovery.h"

#include "common/log.h"
#include "initiator/disc_log.h"
#include "initiator/volume.h"
#include "initiator/ways.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND 1000000000ull /* ns; between two readings */

struct discovery {
	struct list node; /* initiator.discoveries */
	struct initiator *in;
	struct path_config cfg;
	struct discovery *parent; /* whose referral it is; NULL: an entry of "hosts" */
	char name[128];
	struct ways ways;
	struct assoc *assoc;
	bool assoc_active; /* started and not down yet */
	bool live, reading;
	bool stale; /* the log has changed since the last reading began */
	bool ending;
	bool wanted;      /* while what is wanted is being compared */
	uint64_t read_at; /* when the last reading began, ring_now() */
	struct disc_log log;
	struct ring_timer timer;
	struct op free_op; /* so that nothing is freed below its own feet */

	/* of the log that was read last */
	uint64_t genctr;
	unsigned records, unusable, referrals;
	char why[256];  /* it is not live */
	char told[256]; /* what was logged last, so that it is said once */
};

static void discovery_add(struct initiator *in, const struct path_config *cfg,
                          struct discovery *parent);

static uint64_t
now(const struct discovery *d)
{
	return ring_now(d->in->reactors[0].ring);
}

static void
timer_at(struct discovery *d, uint64_t when)
{
	ring_timer_set(d->in->reactors[0].ring, &d->timer, when);
}

/* telling */

static void
tell(struct discovery *d)
{
	const char *state = d->live ? "live" : "down";
	struct conf_writer w;

	ctl_event_begin(&w, "discovery");
	conf_put_str(&w, "addr", d->name);
	conf_put_str(&w, "state", state);
	conf_put_u64(&w, "records", d->records);
	conf_put_u64(&w, "ways", d->ways.nr);
	conf_put_str(&w, "why", d->why);
	if (d->live)
		conf_put_fmt(&w, "text", "%s: %u records, %u ways to subsystems", d->name,
		             d->records, d->ways.nr);
	else
		conf_put_fmt(&w, "text", "%s: %s", d->name, d->why);
	ctl_events_take(&d->in->events, d->in->reactors[0].ring, ctl_event_end(&w));
}

/* Whether text is news; it is not, next time. */
static bool
is_news(struct discovery *d, const char *text)
{
	if (!strcmp(d->told, text))
		return false;
	snprintf(d->told, sizeof(d->told), "%s", text);
	return true;
}

/* ending */

static void
discovery_free(struct discovery *d)
{
	disc_log_fini(&d->log);
	assoc_free(d->assoc);
	free(d->ways.to);
	free(d);
}

static void
free_posted(struct op *op, int res, uint32_t flags)
{
	struct discovery *d = container_of(op, struct discovery, free_op);

	(void)res;
	(void)flags;
	initiator_lock(d->in);
	list_del(&d->node);
	initiator_unlock(d->in);
	discovery_free(d);
}

/* Its ways are forgotten at once; whoever calls has the volumes follow. */
static void
discovery_end(struct discovery *d)
{
	struct initiator *in = d->in;
	struct discovery *child;

	if (d->ending)
		return;
	d->ending = true;
	list_for_each (&in->discoveries, child, node)
		if (child->parent == d)
			discovery_end(child);
	initiator_lock(in);
	list_del(&d->ways.node);
	initiator_unlock(in);
	ring_timer_del(&d->timer);
	if (d->assoc_active)
		assoc_shutdown(d->assoc, "discovery is stopped");
	else
		ring_post(in->reactors[0].ring, in->reactors[0].ring, &d->free_op);
}

/* reading */

static void
read_now(struct discovery *d)
{
	d->reading = true;
	d->stale = false;
	d->read_at = now(d);
	disc_log_start(&d->log);
}

static struct discovery *
find(struct initiator *in, const struct path_config *cfg)
{
	struct discovery *d;

	list_for_each (&in->discoveries, d, node)
		if (!d->ending && path_same_way(&d->cfg, cfg))
			return d;
	return NULL;
}

/* One level: what a referral refers to is told, and left. */
static void
follow_referrals(struct discovery *d, const struct ways_found *found)
{
	struct initiator *in = d->in;
	struct discovery *c;

	if (d->parent) {
		if (found->nr_referrals > 0)
			log_warn("%s: it was referred to by %s, %u referrals of its own are not "
			         "followed",
			         d->name, d->parent->name, found->nr_referrals);
		return;
	}
	list_for_each (&in->discoveries, c, node)
		c->wanted = c->parent != d;
	for (unsigned i = 0; i < found->nr_referrals; i++) {
		c = find(in, &found->referrals[i]);
		if (c)
			c->wanted = true;
		else
			discovery_add(in, &found->referrals[i], d);
	}
	list_for_each (&in->discoveries, c, node)
		if (!c->wanted)
			discovery_end(c);
}

static void
take_found(struct discovery *d, const struct nvmf_discovery_log *log, struct ways_found *found)
{
	char text[256];

	initiator_lock(d->in);
	free(d->ways.to);
	d->ways.to = found->to;
	d->ways.nr = found->nr;
	d->ways.settled = true;
	d->genctr = le64toh(log->genctr);
	d->records = (unsigned)le64toh(log->numrec);
	d->unusable = found->unusable;
	d->referrals = found->nr_referrals;
	initiator_unlock(d->in);
	snprintf(text, sizeof(text), "%u records, %u ways to subsystems, %u referrals%s%s",
	         d->records, found->nr, found->nr_referrals,
	         found->unusable ? "; some cannot be used: " : "", found->why);
	if (is_news(d, text))
		log_info("%s: %s", d->name, text);
	tell(d);
}

static void
log_done(struct disc_log *log, const struct nvmf_discovery_log *read, const char *why)
{
	struct discovery *d = container_of(log, struct discovery, log);
	struct ways_found found;

	d->reading = false;
	if (d->ending)
		return;
	if (!read || ways_read(&d->cfg, read, &found) < 0) {
		assoc_close(d->assoc, read ? "no memory for the discovery log" : why);
		return;
	}
	take_found(d, read, &found);
	follow_referrals(d, &found);
	if (d->stale)
		timer_at(d, d->read_at + SECOND);
	volumes_follow(d->in);
}

/* what the association says */

static void
discovery_ready(void *owner)
{
	struct discovery *d = owner;

	d->live = true;
	d->why[0] = '\0';
	read_now(d);
}

/* Also while it is being read: what was read already may have changed. */
static void
discovery_changed(void *owner)
{
	struct discovery *d = owner;

	if (d->ending)
		return;
	d->stale = true;
	if (!d->reading)
		timer_at(d, MAX(now(d), d->read_at + SECOND));
}

static void
discovery_down(void *owner, const char *why, bool dnr)
{
	struct discovery *d = owner;
	struct initiator *in = d->in;
	bool was_settled = d->ways.settled;

	(void)dnr; /* who is refused today may be let in tomorrow */
	disc_log_stop(&d->log);
	d->assoc_active = d->reading = false;
	if (d->ending) {
		ring_post(in->reactors[0].ring, in->reactors[0].ring, &d->free_op);
		return;
	}
	initiator_lock(in);
	d->live = false;
	d->ways.settled = true;
	snprintf(d->why, sizeof(d->why), "%s", why);
	initiator_unlock(in);
	if (is_news(d, why)) {
		log_warn("%s: %s; next attempt in %d s", d->name, why, d->cfg.reconnect_delay);
		tell(d);
	}
	timer_at(d, now(d) + (uint64_t)d->cfg.reconnect_delay * SECOND);
	if (!was_settled)
		volumes_follow(in); /* whoever waits for it can say so */
}

static const struct assoc_ops discovery_ops = {
	.ready = discovery_ready,
	.changed = discovery_changed,
	.down = discovery_down,
};

/* The next attempt, or the next reading. */
static void
timer_fired(struct ring_timer *t)
{
	struct discovery *d = container_of(t, struct discovery, timer);

	if (d->live) {
		read_now(d);
	} else {
		d->assoc_active = true;
		assoc_start(d->assoc);
	}
}

/* beginning */

static struct discovery *
discovery_new(struct initiator *in, const struct path_config *cfg, struct discovery *parent)
{
	struct discovery *d = calloc(1, sizeof(*d));
	bool ipv6 = strchr(cfg->traddr, ':');
	struct assoc_config ac;

	if (!d)
		return NULL;
	d->in = in;
	d->cfg = *cfg;
	d->parent = parent;
	snprintf(d->name, sizeof(d->name), ipv6 ? "discovery at [%s]:%s" : "discovery at %s:%s",
	         cfg->traddr, cfg->trsvcid);
	snprintf(d->why, sizeof(d->why), "it is being connected");
	ring_timer_init(&d->timer, timer_fired);
	d->free_op = (struct op){ free_posted, "discovery.free" };
	ac = (struct assoc_config){
		.r = &in->reactors[0],
		.cfg = &d->cfg,
		.name = d->name,
		.discovery = true,
		.ops = &discovery_ops,
		.owner = d,
	};
	d->assoc = assoc_new(&ac);
	if (disc_log_init(&d->log, in->reactors[0].ring, d->assoc, log_done) == 0 && d->assoc)
		return d;
	discovery_free(d);
	return NULL;
}

static void
discovery_add(struct initiator *in, const struct path_config *cfg, struct discovery *parent)
{
	struct discovery *d = discovery_new(in, cfg, parent);

	if (!d) {
		log_error("no memory for discovery at %s:%s", cfg->traddr, cfg->trsvcid);
		return;
	}
	initiator_lock(in);
	list_push_back(&in->discoveries, &d->node);
	list_push_back(&in->ways, &d->ways.node);
	initiator_unlock(in);
	d->wanted = true;
	timer_at(d, now(d)); /* from the loop */
}

/* Settings may have changed, too. */
static struct discovery *
find_entry(struct initiator *in, const struct path_config *cfg)
{
	struct discovery *d = find(in, cfg);

	return d && !d->parent && path_same_settings(&d->cfg, cfg) ? d : NULL;
}

void
discoveries_apply(struct initiator *in)
{
	struct discovery *d;
	unsigned i;

	list_for_each (&in->discoveries, d, node)
		d->wanted = d->parent;
	for (i = 0; i < in->nr_hosts && !in->stopping; i++)
		if (in->hosts[i].discovery && (d = find_entry(in, &in->hosts[i])))
			d->wanted = true;
	list_for_each (&in->discoveries, d, node)
		if (!d->wanted || in->stopping)
			discovery_end(d);
	for (i = 0; i < in->nr_hosts && !in->stopping; i++)
		if (in->hosts[i].discovery && !find_entry(in, &in->hosts[i]))
			discovery_add(in, &in->hosts[i], NULL);
}

void
discoveries_put(struct conf_writer *w, const struct initiator *in)
{
	const struct discovery *d;

	conf_begin_array(w, NULL);
	list_for_each (&in->discoveries, d, node) {
		if (d->ending)
			continue;
		conf_begin_object(w, NULL);
		conf_put_fmt(w, "addr", strchr(d->cfg.traddr, ':') ? "[%s]:%s" : "%s:%s",
		             d->cfg.traddr, d->cfg.trsvcid);
		conf_put_str(w, "state", d->live ? "live" : "down");
		conf_put_u64(w, "genctr", d->genctr);
		conf_put_u64(w, "records", d->records);
		conf_put_u64(w, "ways", d->ways.nr);
		conf_put_u64(w, "unusable", d->unusable);
		conf_put_u64(w, "referrals", d->referrals);
		conf_put_str(w, "referred_by", d->parent ? d->parent->name : NULL);
		conf_put_str(w, "why", d->why);
		conf_end(w);
	}
	conf_end(w);
}
