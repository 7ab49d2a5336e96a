/* Tokens are conserved: a ledger of each limit, kept here in tokens and doubles from what went out
 * on the wire alone, agrees at each moment with what the scheduler let pass and holds back; and
 * thousands of VMs in the made-up time of tests/lib/sched_world.h.
 */
#include "tests/lib/sched_world.h"

#include "tests/lib/unit.h"

enum { NODES = VOLS + VMS, LARGEST = 64 * KIB }; /* bytes of a command */

/* ---- a limit's ledger ---- */

struct ledger {
	double rate, burst;     /* tokens a second, tokens; rate 0: no limit */
	double owed;            /* negative: saved, at most the burst */
	double refunds;         /* not used yet */
	uint64_t passed, clock; /* tokens; ns: up to when it is kept */
};

static struct ledger ledgers[NODES][QOS_KINDS];
static uint64_t late; /* of reactors, at most */
static uint64_t looks, refused, used;

static struct sched_node *
node(unsigned i)
{
	return i < VOLS ? vols[i].qos : &vms[i - VOLS]->node;
}

static bool
is_of(const struct queue *q, unsigned i)
{
	return i < VOLS ? q->vol == i : q->vm == i - VOLS;
}

static uint64_t
tokens_of(unsigned kind, bool write, uint64_t commands, uint64_t bytes)
{
	static const unsigned reads = BIT(QOS_READ_IOPS) | BIT(QOS_READ_BANDWIDTH);
	static const unsigned writes = BIT(QOS_WRITE_IOPS) | BIT(QOS_WRITE_BANDWIDTH);

	if (BIT(kind) & (write ? reads : writes))
		return 0;
	return BIT(kind) & RATES_COMMANDS ? commands : bytes;
}

/* What passed the node since the world began: on the wire, or held at a later node. */
static uint64_t
passed_by(unsigned i, unsigned kind)
{
	enum sched_stage stage = i < VOLS ? SCHED_VOLUME : SCHED_VM;
	uint64_t n = 0;

	for (unsigned k = 0; k < nr_queues; k++) {
		const struct queue *q = &queues[k];
		const struct io *io;

		if (!is_of(q, i))
			continue;
		for (unsigned w = 0; w < 2; w++)
			n += tokens_of(kind, w, q->wire[w].commands, q->wire[w].bytes);
		if (!q->vq.sched.nr_held || q->vq.sched.stage <= stage)
			continue;
		io = list_entry(q->vq.sched.held.next, struct io, node);
		n += tokens_of(kind, io->op == nvme_cmd_write, 1, io->len);
	}
	return n;
}

/* One command, since it passes whole. */
static double
slack_of(unsigned kind)
{
	return (BIT(kind) & RATES_COMMANDS ? 1 : LARGEST) + 0.01;
}

static void
keep(struct ledger *l)
{
	l->owed -= l->rate * (double)(now - l->clock) / (double)S;
	l->owed = MAX(l->owed, -l->burst);
	l->clock = now;
}

/* What a bucket pays with a refund is not owed: the sum of both stays as it is. */
static void
settle(struct ledger *l, const struct bucket *b)
{
	double left = (double)atomic_load(&b->bonus) / (double)(1 << BUCKET_FRACTION) / (double)S;

	l->owed -= l->refunds - left * l->rate;
	l->refunds = left * l->rate;
}

/* Enters what passed: not more than was saved and refunded, but for the last command. */
static bool
enter(struct ledger *l, unsigned i, unsigned kind)
{
	uint64_t passed = passed_by(i, kind);

	keep(l);
	l->owed += (double)passed - (double)l->passed;
	l->passed = passed;
	used += l->refunds > 0 && l->owed > 0;
	settle(l, &node(i)->peak.bucket[kind]);
	if (!CHECK(l->owed <= slack_of(kind)))
		return false;
	l->owed = MAX(l->owed, -l->burst);
	return true;
}

/* The bucket's own idea of its tokens is the same. */
static bool
agrees(const struct ledger *l, unsigned i, unsigned kind)
{
	double own = (double)bucket_tokens(&node(i)->peak.bucket[kind], now);
	double ours = l->refunds - l->owed;

	return CHECK(own > ours - slack_of(kind) - 1) && CHECK(own < ours + slack_of(kind) + 1);
}

/* ns: since when all is there that the first of a queue, this token, waits for; 0: it is not. */
static struct {
	uint64_t since, token;
} free_since[QUEUES];

/* Nobody waits, but for a moment in which others are before him, where all limits have tokens. */
static bool
waits_rightly(const struct queue *q)
{
	unsigned i = q->vq.sched.stage == SCHED_VM ? VOLS + q->vm : q->vol;
	const struct io *io = list_entry(q->vq.sched.held.next, struct io, node);
	uint64_t *since = &free_since[q - queues].since;
	bool all = q->vq.sched.stage != SCHED_CAPACITY;

	refused++;
	for (unsigned k = 0; k < QOS_KINDS; k++) {
		const struct ledger *l = &ledgers[i][k];

		if (l->rate > 0 && tokens_of(k, io->op == nvme_cmd_write, 1, io->len))
			all &= l->owed < -0.01;
	}
	if (!all || free_since[q - queues].token != io->token)
		*since = 0;
	free_since[q - queues].token = io->token;
	if (all && *since == 0)
		*since = now;
	return CHECK(!all || now - *since <= 10 * MS + late);
}

static bool failed;

static void
look(void)
{
	looks++;
	for (unsigned i = 0; i < NODES && !failed; i++)
		for (unsigned k = 0; k < QOS_KINDS && !failed; k++)
			if (ledgers[i][k].rate > 0)
				failed = !enter(&ledgers[i][k], i, k) ||
				         !agrees(&ledgers[i][k], i, k);
	for (unsigned i = 0; i < nr_queues && !failed; i++)
		if (queues[i].vq.sched.nr_held > 0)
			failed = !waits_rightly(&queues[i]);
}

/* ---- what happens to limits ---- */

static void
set(unsigned i, unsigned kind, uint64_t committed, uint64_t peak, uint32_t burst_ms)
{
	struct qos_config q = node(i)->cfg;

	q.limit[kind] = (struct qos_limit){ committed, peak };
	q.burst_ms = burst_ms;
	sched_set(node(i), &q, now);
	sched_kick(&in);
	for (unsigned k = 0; k < QOS_KINDS; k++) {
		struct ledger *l = &ledgers[i][k];
		double rate = (double)q.limit[k].peak, burst = rate * burst_ms / 1000;

		if (!rate || !l->rate)
			*l = (struct ledger){ .owed = -burst,
				              .passed = passed_by(i, k),
				              .clock = now };
		else
			keep(l); /* by the old rate */
		l->rate = rate;
		l->burst = burst;
		l->owed = MAX(l->owed, -burst);
	}
}

static void
refund(unsigned i, bool bytes, uint64_t n)
{
	sched_refund(node(i), bytes, n);
	sched_kick(&in);
	for (unsigned k = 0; k < QOS_KINDS; k++) {
		struct ledger *l = &ledgers[i][k];

		if (l->rate > 0 && bytes == !(BIT(k) & RATES_COMMANDS))
			l->refunds += (double)n;
	}
}

static unsigned
any(uint64_t *random, unsigned n)
{
	return unit_random(random) % n;
}

/* From slow to what is just too slow for leases: what is leased when a rate falls is lost. */
static uint64_t
any_rate(uint64_t *random, unsigned kind)
{
	static const uint64_t rates[] = { 5, 60, 700, 8000, 90000 };
	uint64_t rate = rates[any(random, ARRAY_SIZE(rates))] * (1 + any(random, 8)) / 4;

	return (rate + 1) * (BIT(kind) & RATES_COMMANDS ? 1 : 512);
}

static void
something_happens(uint64_t *random)
{
	static const uint32_t bursts[] = { 0, 1, 10, 50, 300 };
	struct queue *q = &queues[any(random, nr_queues)];
	unsigned i = any(random, NODES), kind = any(random, QOS_KINDS);
	uint64_t rate = any_rate(random, kind);

	switch (any(random, 12)) {
	case 0:
	case 1:
		set(i, kind, any(random, 2) ? rate / (1 + any(random, 9)) : 0, rate,
		    bursts[any(random, ARRAY_SIZE(bursts))]);
		break;
	case 2:
	case 3:
		set(i, kind, 0, 0, node(i)->cfg.burst_ms);
		break;
	case 4:
		refund(i, kind >= QOS_BANDWIDTH, rate / (1 + any(random, 50)));
		break;
	case 5:
		vols[any(random, VOLS)].merge = any(random, 2);
		break;
	case 6:
		q->bytes = 512u << any(random, 8);
		break;
	case 7:
		q->op = any(random, 2) ? nvme_cmd_read : nvme_cmd_write;
		break;
	case 8:
		limit(in.capacity, QOS_IOPS, 0, any(random, 3) ? 0 : any_rate(random, QOS_IOPS));
		break;
	default:
		q->paused = any(random, 2);
	}
}

static void
begin(unsigned nr, uint64_t *random)
{
	world_begin(VMS);
	memset(ledgers, 0, sizeof(ledgers));
	memset(free_since, 0, sizeof(free_since));
	failed = false;
	for (unsigned i = 0; i < nr; i++) {
		struct queue *q = add_queue(any(random, VMS), any(random, VOLS), i % REACTORS,
		                            1 + any(random, 40));

		q->bytes = 512u << any(random, 8);
		q->op = any(random, 2) ? nvme_cmd_read : nvme_cmd_write;
	}
}

static void
test_what_passes_is_the_burst_the_rate_and_the_refunds_whatever_happens(void)
{
	looks = refused = used = 0;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		uint64_t random = seed;

		unit_row("seed %llu", (unsigned long long)seed);
		late = seed % 2 ? 200000 : 20000;
		begin(2 + (unsigned)seed % 15, &random);
		for (unsigned n = 0; n < 300 && !failed; n++) {
			something_happens(&random);
			run_and_look(any(&random, n % 10 ? 2 * MS : 60 * MS), late, look);
		}
		world_end();
	}
	unit_row("all seeds"); /* it was not for nothing */
	CHECK(looks > 10000 && refused > 10000 && used > 50);
}

/* ---- a limit that is wanted all the time ---- */

static struct {
	double rate, least, most; /* of what passed beside rate * time, in tokens */
} window;

static void
look_at_window(void)
{
	double beside =
		(double)passed_by(0, QOS_IOPS) - window.rate * (double)(now - 1000 * S) / (double)S;

	window.least = MIN(window.least, beside);
	window.most = MAX(window.most, beside);
}

/* In every window: the two extremes have one between them. */
static void
test_a_limit_that_is_wanted_passes_its_rate_in_every_window(void)
{
	static const uint64_t rates[] = { 3, 50, 1000, 20000, 500000 };

	for (unsigned i = 0; i < ARRAY_SIZE(rates) * 2; i++) {
		uint64_t rate = rates[i / 2], random = 3;
		double allowed;

		unit_row("%llu a second, %s", (unsigned long long)rate, i % 2 ? "late" : "in time");
		late = i % 2 ? 300000 : 0;
		begin(8, &random);
		limit(vols[0].qos, QOS_IOPS, rate, rate);
		for (unsigned k = 0; k < nr_queues; k++)
			queues[k].vol = 0;
		run(S, late);
		window.rate = (double)rate;
		window.least = 1e18;
		window.most = -1e18;
		run_and_look(rate < 1000 ? 200 * S / rate : S / (rate / 2000 + 1), late,
		             look_at_window);
		/* A command, and what comes due while a reactor is late or lets another go first.
		 */
		allowed = 1 + (double)rate * (double)(late + 500000) / (double)S;
		CHECK(window.most - window.least <= allowed);
		CHECK(passed_by(0, QOS_IOPS) > 100);
		world_end();
	}
}

/* ---- thousands ---- */

enum { THOUSANDS = 4000 };

/* Of those who are there, each by its weight, and none nothing. */
static void
check_shares(uint64_t weights)
{
	uint64_t all = sum();

	for (unsigned i = 0; i < nr_queues; i++) {
		double due = (double)all * (1 + i % 4) / (double)weights;

		if (queues[i].vq.ending)
			CHECK_EQ(queues[i].passed, 0);
		else if (!CHECK((double)queues[i].passed >= due * 0.85 - 1 &&
		                (double)queues[i].passed <= due * 1.15 + 1))
			break;
	}
}

static void
test_thousands_of_vms_share_a_volume_by_weight_and_all_end(void)
{
	const uint64_t rate = 50000;

	world_begin(THOUSANDS);
	limit(vols[0].qos, QOS_IOPS, rate, rate);
	for (unsigned i = 0; i < THOUSANDS; i++) {
		add_queue(i, 0, i / 4 % REACTORS, 1 + i % 3);
		limit_vm(i, 10 * (1 + i % 4), 10000);
	}
	run(S / 2, 500000);
	clear();
	run(S, 500000);
	CHECK(near((double)sum(), (double)rate, 0.01));
	check_shares(THOUSANDS / 4 * 10);

	for (unsigned i = 0; i < THOUSANDS; i++)
		queues[i].vq.ending = i / 8 % 2;
	for (unsigned i = 0; i < REACTORS; i++)
		turn(&reactors[i]);
	for (unsigned i = 0; i < THOUSANDS; i++)
		if (queues[i].vq.ending) {
			CHECK_EQ(queues[i].vq.sched.nr_held, 0);
			CHECK(queues[i].bad <= queues[i].depth);
			queues[i].bad = 0; /* what was held */
		}
	run(S / 4, 500000);
	clear();
	run(S / 2, 500000);
	CHECK(near((double)sum(), (double)rate / 2, 0.01));
	check_shares(THOUSANDS / 8 * 10);
	world_end();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_what_passes_is_the_burst_the_rate_and_the_refunds_whatever_happens),
	UNIT_TEST(test_a_limit_that_is_wanted_passes_its_rate_in_every_window),
	UNIT_TEST(test_thousands_of_vms_share_a_volume_by_weight_and_all_end),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
