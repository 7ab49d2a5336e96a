/* See ctl_events.h. */
#include "common/ctl_events.h"

#include <stdlib.h>
#include <string.h>

/* Events of one turn, taken off the list. */
struct batch {
	unsigned nr, missed;
	char *lines[CTL_EVENTS_MAX];
};

static void
take_all(struct ctl_events *e, struct batch *b)
{
	pthread_mutex_lock(&e->lock);
	b->nr = e->nr;
	b->missed = e->missed;
	memcpy(b->lines, e->lines, e->nr * sizeof(e->lines[0]));
	e->nr = e->missed = 0;
	e->posted = false;
	pthread_mutex_unlock(&e->lock);
}

static void
tell_missed(struct ctl_server *server, unsigned n)
{
	struct conf_writer w;

	ctl_event_begin(&w, "missed");
	conf_put_u64(&w, "count", n);
	conf_put_fmt(&w, "text", "%u events came too fast and are not told", n);
	ctl_server_take_event(server, ctl_event_end(&w));
}

static void
posted(struct op *op, int res, uint32_t flags)
{
	struct ctl_events *e = container_of(op, struct ctl_events, op);
	struct batch b;

	(void)res;
	(void)flags;
	take_all(e, &b);
	for (unsigned i = 0; i < b.nr; i++) {
		if (e->on)
			ctl_server_take_event(e->server, b.lines[i]);
		else
			free(b.lines[i]);
	}
	if (b.missed && e->on)
		tell_missed(e->server, b.missed);
}

void
ctl_events_start(struct ctl_events *e, struct ring *ring, struct ctl_server *server)
{
	pthread_mutex_init(&e->lock, NULL);
	e->ring = ring;
	e->server = server;
	e->op = (struct op){ posted, "ctl.events" };
	e->on = true;
}

void
ctl_events_stop(struct ctl_events *e)
{
	struct batch b;

	if (!e->on)
		return;
	e->on = false;
	take_all(e, &b);
	e->posted = true; /* nobody posts any more; one that is on its way finds nothing */
	while (b.nr > 0)
		free(b.lines[--b.nr]);
}

void
ctl_events_take(struct ctl_events *e, struct ring *from, char *line)
{
	bool post = false;

	if (!e->on) {
		free(line);
		return;
	}
	pthread_mutex_lock(&e->lock);
	if (line && e->on && e->nr < CTL_EVENTS_MAX) {
		e->lines[e->nr++] = line;
		line = NULL;
	} else {
		e->missed++;
	}
	post = e->on && !e->posted;
	e->posted |= post;
	pthread_mutex_unlock(&e->lock);
	free(line);
	if (post)
		ring_post(from ? from : e->ring, e->ring, &e->op);
}
