/* How a reactor's contexts are shared among queues that are made up here: they take what they may,
 * and end nothing unless told to.
 */
#include "initiator/front.h"

#include "initiator/initiator.h"
#include "initiator/io.h"
#include "tests/lib/unit.h"

enum { QUEUES = 100, BATCH = 64 };

struct fake {
	struct vq vq;
	unsigned wants; /* commands that wait in it */
};

static struct reactor reactor;
static struct fake queues[QUEUES];

static bool
fetch(struct vq *q, unsigned *free)
{
	struct fake *f = container_of(q, struct fake, vq);
	unsigned n = MIN(f->wants, (unsigned)BATCH), got = front_share(q, n, *free);

	f->wants -= got;
	q->inflight += got;
	*free -= MIN(*free, got);
	return got == n;
}

static bool
has_work(const struct vq *q, unsigned free)
{
	const struct fake *f = container_of(q, const struct fake, vq);

	return front_share(q, f->wants, free) > 0;
}

static bool
arm(struct vq *q)
{
	(void)q;
	return false;
}

static const struct vq_ops ops = { .fetch = fetch, .arm = arm, .has_work = has_work };

static void
start(unsigned nr)
{
	list_init(&reactor.vqs);
	for (unsigned i = 0; i < nr; i++) {
		queues[i] = (struct fake){ .vq = { .r = &reactor, .ops = &ops } };
		list_push_back(&reactor.vqs, &queues[i].vq.node);
	}
}

/* Turns as long as there is something to fetch, which must come to an end. */
static unsigned
run(void)
{
	unsigned turns = 0, used = 0;
	const struct vq *q;

	while (front_idle(&reactor, true) && CHECK(++turns < 1000))
		front_poll(&reactor);
	list_for_each(&reactor.vqs, q, node)
		used += q->inflight;
	CHECK(used <= IO_CONTEXTS);
	return used;
}

static void
test_a_queue_alone_may_have_half_of_those_that_are_not_spare(void)
{
	start(1);
	queues[0].wants = 4 * IO_CONTEXTS;
	run();
	CHECK(queues[0].vq.inflight >= (IO_CONTEXTS - IO_SPARE) / 2);
	CHECK(queues[0].vq.inflight <= (IO_CONTEXTS - IO_SPARE) / 2 + IO_SURE);
}

static void
test_a_queue_finds_contexts_however_many_others_are_stuck(void)
{
	struct fake *live = &queues[QUEUES - 1];

	for (unsigned stuck = 1; stuck < QUEUES; stuck++) {
		unit_row("%u stuck", stuck);
		start(stuck);
		for (unsigned i = 0; i < stuck; i++) { /* one after the other */
			queues[i].wants = IO_CONTEXTS;
			run();
		}
		*live = (struct fake){ .vq = { .r = &reactor, .ops = &ops }, .wants = IO_SURE };
		list_push_back(&reactor.vqs, &live->vq.node);
		run();
		CHECK_EQ(live->vq.inflight, IO_SURE);
	}
}

static void
test_queues_that_are_busy_alike_get_alike(void)
{
	unsigned least = IO_CONTEXTS, most = 0;

	start(8);
	for (unsigned i = 0; i < 8; i++)
		queues[i].wants = IO_CONTEXTS;
	run();
	for (unsigned i = 0; i < 8; i++) {
		least = MIN(least, queues[i].vq.inflight);
		most = MAX(most, queues[i].vq.inflight);
	}
	CHECK(least >= (IO_CONTEXTS - IO_SPARE) / 8 / 2);
	CHECK(most <= (IO_CONTEXTS - IO_SPARE) / 8 * 2);
}

static void
test_more_queues_than_contexts_do_not_keep_the_reactor_spinning(void)
{
	static struct fake many[2 * IO_CONTEXTS / IO_SURE];

	start(0);
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = (struct fake){ .vq = { .r = &reactor, .ops = &ops }, .wants = 10 };
		list_push_back(&reactor.vqs, &many[i].vq.node);
	}
	while (front_idle(&reactor, true)) {
		unsigned used = 0;
		struct vq *q;

		front_poll(&reactor);
		list_for_each(&reactor.vqs, q, node)
			used += q->inflight;
		if (!CHECK(used > 0))
			return;
		if (used >= IO_CONTEXTS)
			break;
	}
	CHECK(!front_idle(&reactor, true));
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_a_queue_alone_may_have_half_of_those_that_are_not_spare),
	UNIT_TEST(test_a_queue_finds_contexts_however_many_others_are_stuck),
	UNIT_TEST(test_queues_that_are_busy_alike_get_alike),
	UNIT_TEST(test_more_queues_than_contexts_do_not_keep_the_reactor_spinning),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
