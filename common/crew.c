/* See crew.h. */
#include "common/crew.h"

#include "common/log.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>

#define TICK_NS 10000000ull /* how often one who waits for others looks whether they are done */

struct starting {
	struct crew_thread *t;
	sem_t ready;
	struct err err;
	int res;
};

/* starting */

static void
pin(const struct crew_thread *t)
{
	cpu_set_t set;

	if (t->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)t->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		log_warn("reactor %u: cannot pin to cpu %d, running anywhere", t->id, t->cpu);
}

static void
stop_posted(struct op *op, int res, uint32_t flags)
{
	struct crew_thread *t = container_of(op, struct crew_thread, stop_op);

	(void)res;
	(void)flags;
	if (t->stopping) {
		ring_stop(t->ring);
		return;
	}
	t->stopping = true;
	if (t->crew->ops->stop)
		t->crew->ops->stop(t);
}

/* On the thread itself: it is pinned before it touches its memory. */
static int
thread_init(struct crew_thread *t, struct err *err)
{
	int res;

	t->stop_op = (struct op){ stop_posted, "crew.stop" };
	pin(t);
	res = ring_new(&t->crew->ring, &t->ring, err);
	if (res < 0)
		return res;
	res = t->crew->ops->init(t, err);
	if (res < 0) {
		ring_free(t->ring);
		t->ring = NULL;
	}
	return res;
}

static void *
thread_main(void *arg)
{
	struct starting *s = arg;
	struct crew_thread *t = s->t;
	bool runs;

	s->res = thread_init(t, &s->err);
	runs = s->res >= 0;
	sem_post(&s->ready); /* s is gone from here on */
	if (runs)
		ring_run(t->ring);
	return NULL;
}

static int
start_thread(struct crew_thread *t, struct err *err)
{
	struct starting s = { .t = t };
	int res;

	sem_init(&s.ready, 0, 0);
	res = pthread_create(&t->thread, NULL, thread_main, &s);
	if (res)
		return err_set(err, -res, "cannot start reactor %u", t->id);
	while (sem_wait(&s.ready) < 0 && errno == EINTR)
		;
	sem_destroy(&s.ready);
	if (s.res < 0) {
		pthread_join(t->thread, NULL);
		if (err)
			*err = s.err;
	}
	return s.res;
}

int
crew_start(struct crew *c, struct err *err)
{
	int res = 0;

	for (unsigned i = 0; i < c->n; i++)
		c->threads[i]->crew = c;
	for (unsigned i = 1; i < c->n && res == 0; i++)
		res = start_thread(c->threads[i], err);
	return res == 0 ? thread_init(c->threads[0], err) : res;
}

void
crew_run(struct crew *c)
{
	ring_run(c->threads[0]->ring);
}

/* waiting */

static void
tick(struct ring_timer *t)
{
	(void)t; /* only there to wake the ring */
}

void
crew_turn_while(struct crew *c, bool (*busy)(void *arg), void *arg, uint64_t ns)
{
	struct ring *ring = c->threads[0]->ring;
	uint64_t start = ring_now(ring);
	struct ring_timer t;

	ring_timer_init(&t, tick);
	while (busy(arg) && ring_now(ring) - start < ns) {
		ring_timer_set(ring, &t, ring_now(ring) + TICK_NS);
		ring_turn(ring);
	}
	ring_timer_del(&t);
}

/* stopping */

static bool
has_ops(void *arg)
{
	return ring_inflight(arg) > 0;
}

static void
tell_all(struct crew *c)
{
	struct ring *ring = c->threads[0]->ring;

	for (unsigned i = 0; i < c->n; i++)
		ring_post(ring, c->threads[i]->ring, &c->threads[i]->stop_op);
	ring_turn(ring); /* posts are not counted in flight: without a turn they would not leave */
}

void
crew_stop(struct crew *c, bool (*busy)(void *arg), void *arg)
{
	tell_all(c);
	if (busy)
		crew_turn_while(c, busy, arg, UINT64_MAX);
	tell_all(c);
	crew_turn_while(c, has_ops, c->threads[0]->ring, UINT64_MAX);
	for (unsigned i = 1; i < c->n; i++)
		pthread_join(c->threads[i]->thread, NULL);
	for (unsigned i = 0; i < c->n; i++) {
		c->ops->fini(c->threads[i]);
		ring_free(c->threads[i]->ring);
	}
}
