/* The scheduler's rates, shares and order in the made-up time of tests/lib/sched_world.h. */
#include "tests/lib/sched_world.h"

#include "tests/lib/unit.h"

/* ---- rates ---- */

static void
test_a_vm_and_a_volume_pass_their_rate_whatever_it_is(void)
{
	static const uint64_t rates[] = { 1, 10, 333, 1000, 20000, 500000 };

	for (unsigned i = 0; i < ARRAY_SIZE(rates) * 2; i++) {
		uint64_t rate = rates[i / 2],
			 span = rate < 1000 ? 500 * S / rate : S / (rate / 5000 + 1);
		struct queue *q;

		unit_row("%s %llu", i % 2 ? "volume" : "vm", (unsigned long long)rate);
		world_begin(VMS);
		q = add_queue(0, 0, 0, 64);
		limit(i % 2 ? vols[0].qos : &vms[0]->node, QOS_IOPS, rate, rate);
		run(S / 10, 0);
		clear();
		run(span, 60000);
		CHECK(near((double)q->passed, (double)rate * (double)span / (double)S, 0.005));
		world_end();
	}
}

static void
test_a_rate_of_bytes_counts_payload_alone(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 8);
	q->bytes = 64 * KIB;
	limit(vols[0].qos, QOS_BANDWIDTH, 10 << 20, 10 << 20);
	run(S / 10, 0);
	clear();
	run(4 * S, 60000);
	CHECK(near((double)q->passed_bytes, 4 * 10 << 20, 0.01));
	world_end();
}

static void
test_reads_and_writes_have_limits_of_their_own(void)
{
	struct queue *r, *w;

	world_begin(VMS);
	r = add_queue(0, 0, 0, 8);
	w = add_queue(0, 0, 0, 8);
	w->op = nvme_cmd_write;
	limit(&vms[0]->node, QOS_READ_IOPS, 1000, 1000);
	limit(&vms[0]->node, QOS_WRITE_IOPS, 200, 200);
	run(S / 10, 0);
	clear();
	run(4 * S, 0);
	CHECK(near((double)r->passed, 4000, 0.01));
	CHECK(near((double)w->passed, 800, 0.01));
	world_end();
}

static void
test_both_levels_count_and_the_tighter_one_decides(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	a = add_queue(0, 0, 0, 8);
	b = add_queue(1, 0, 1, 8);
	limit(vols[0].qos, QOS_IOPS, 1000, 1000);
	limit_vm(0, 100, 100);
	limit_vm(1, 900, 5000);
	run(S / 10, 0);
	clear();
	run(4 * S, 0);
	CHECK(near((double)a->passed, 400, 0.02));
	CHECK(near((double)b->passed, 3600, 0.02));
	world_end();
}

static void
test_a_vm_on_two_volumes_and_two_reactors_has_one_limit(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	a = add_queue(0, 0, 0, 256);
	b = add_queue(0, 1, 1, 1);
	limit_vm(0, 10000, 10000);
	run(S / 10, 0);
	clear();
	run(2 * S, 60000);
	CHECK(near((double)(a->passed + b->passed), 20000, 0.01));
	CHECK(near((double)a->passed, (double)b->passed, 0.05));
	world_end();
}

/* ---- shares ---- */

static void
test_vms_share_a_volume_by_what_is_committed_to_them(void)
{
	static const uint64_t rates[] = { 40, 1000, 50000, 300000 };
	static const unsigned weights[] = { 1, 2, 5 };

	for (unsigned i = 0; i < ARRAY_SIZE(rates) * 2; i++) {
		uint64_t rate = rates[i / 2], span = rate < 1000 ? 100 * S : S / (rate / 50000 + 1);
		struct queue *q[3];

		unit_row("%llu on %u reactors", (unsigned long long)rate, i % 2 + 1);
		world_begin(VMS);
		limit(vols[0].qos, QOS_IOPS, rate, rate);
		for (unsigned k = 0; k < 3; k++) {
			q[k] = add_queue(k, 0, i % 2 ? k % 2 : 0, 32);
			limit_vm(k, rate * weights[k] / 8, 10 * rate);
		}
		run(S / 5, 0);
		clear();
		run(span, 60000);
		CHECK(near((double)sum(), (double)rate * (double)span / (double)S, 0.01));
		for (unsigned k = 0; k < 3; k++)
			CHECK(near((double)q[k]->passed, (double)sum() * weights[k] / 8, 0.05));
		world_end();
	}
}

static void
test_shares_do_not_depend_on_depth_or_number_of_queues(void)
{
	uint64_t many = 0;
	struct queue *one;

	world_begin(VMS);
	limit(vols[0].qos, QOS_IOPS, 10000, 10000);
	limit_vm(0, 5000, 20000);
	limit_vm(1, 5000, 20000);
	one = add_queue(0, 0, 0, 1);
	for (unsigned i = 0; i < 16; i++)
		add_queue(1, 0, i % 2, 256);
	run(S / 5, 0);
	clear();
	run(2 * S, 60000);
	many = sum() - one->passed;
	CHECK(near((double)one->passed, (double)many, 0.05));
	world_end();
}

static void
test_depth_one_beside_depth_256_in_one_vm_takes_turns(void)
{
	struct queue *one, *deep;

	world_begin(VMS);
	one = add_queue(0, 0, 0, 1);
	deep = add_queue(0, 0, 0, 256);
	limit_vm(0, 1000, 1000);
	run(S / 5, 0);
	clear();
	run(4 * S, 60000);
	CHECK(near((double)one->passed, (double)deep->passed, 0.02));
	world_end();
}

static void
test_who_pauses_saves_nothing_and_loses_nothing(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	limit(vols[0].qos, QOS_IOPS, 1000, 1000);
	limit_vm(0, 500, 10000);
	limit_vm(1, 500, 10000);
	a = add_queue(0, 0, 0, 8);
	b = add_queue(1, 0, 1, 8);
	b->paused = true;
	run(5 * S, 0);
	CHECK(near((double)a->passed, 5000, 0.02)); /* all of it, alone */
	b->paused = false;
	clear();
	run(S, 0);
	CHECK(near((double)b->passed, 500, 0.05));
	CHECK(near((double)a->passed, 500, 0.05));
	world_end();
}

static void
test_thousands_of_queues_all_get_their_turn(void)
{
	world_begin(VMS);
	limit(vols[0].qos, QOS_IOPS, 100000, 100000);
	for (unsigned i = 0; i < 500; i++)
		add_queue(i % VMS, 0, i % 2, 4);
	run(S / 10, 0);
	clear();
	run(S / 5, 0);
	for (unsigned i = 0; i < nr_queues; i++)
		if (!CHECK(queues[i].passed >= 20 && queues[i].passed <= 80))
			break;
	world_end();
}

/* ---- committed, peak, capacity ---- */

static void
test_committed_rates_hold_while_another_wants_its_peak(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	limit(in.capacity, QOS_IOPS, 10000, 10000);
	limit_vm(0, 2000, 2000);
	limit_vm(1, 1000, 50000);
	a = add_queue(0, 0, 0, 4);
	b = add_queue(1, 1, 1, 256);
	run(S / 5, 0);
	clear();
	run(2 * S, 60000);
	CHECK(near((double)a->passed, 4000, 0.02));
	CHECK(near((double)b->passed, 16000, 0.02)); /* what is idle, and no more */
	world_end();
}

static void
test_idle_capacity_is_shared_by_weight(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	limit(in.capacity, QOS_IOPS, 10000, 10000);
	limit_vm(0, 1000, 50000);
	limit_vm(1, 3000, 50000);
	a = add_queue(0, 0, 0, 16);
	b = add_queue(1, 1, 1, 16);
	run(S / 5, 0);
	clear();
	run(2 * S, 60000);
	CHECK(near((double)sum(), 20000, 0.02));
	CHECK(near((double)a->passed, 5000, 0.05));
	CHECK(near((double)b->passed, 15000, 0.05));
	world_end();
}

static void
test_what_is_committed_passes_though_capacity_is_short(void)
{
	struct queue *a, *b;

	world_begin(VMS);
	limit(in.capacity, QOS_IOPS, 1000, 1000);
	limit_vm(0, 2000, 4000);
	limit_vm(1, 0, 4000);
	a = add_queue(0, 0, 0, 16);
	b = add_queue(1, 1, 1, 16);
	run(S, 0);
	clear();
	run(2 * S, 60000);
	CHECK(near((double)a->passed, 4000, 0.02));
	CHECK(b->passed < 400);
	limit(in.capacity, QOS_IOPS, 0, 0);
	clear();
	run(S, 0);
	CHECK(near((double)a->passed, 4000, 0.02)); /* without one the peak is the ceiling */
	CHECK(near((double)b->passed, 4000, 0.02));
	world_end();
}

/* ---- holding ---- */

static void
test_a_flush_is_never_held(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 4);
	limit_vm(0, 1, 1);
	run(S / 10, 0);
	CHECK(q->vq.sched.nr_held > 0);
	clear();
	make(q, nvme_cmd_flush);
	CHECK_EQ(q->passed, 1);
	world_end();
}

static void
test_a_queue_that_holds_is_not_fetched_from(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 256);
	limit_vm(0, 1, 1);
	run(S / 2, 0);
	CHECK_EQ(q->vq.sched.nr_held, 1);
	CHECK_EQ(q->vq.inflight, 1);
	CHECK_EQ(front_share(&q->vq, 10, 1000), 0);
	world_end();
}

static void
test_held_commands_of_a_queue_that_ends_end_at_once(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 1);
	limit(&vms[0]->node, QOS_BANDWIDTH, KIB, KIB);
	q->bytes = 64 * KIB;
	run(S, 0);
	CHECK_EQ(q->vq.sched.nr_held, 1);
	q->vq.ending = true;
	turn(&reactors[0]);
	CHECK_EQ(q->vq.inflight, 0);
	CHECK_EQ(q->bad, 1);
	q->bad = 0;
	world_end();
}

static void
test_held_commands_of_a_queue_that_drains_go_and_are_paid_back(void)
{
	struct queue *q, *other;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 1);
	other = add_queue(0, 0, 0, 1);
	other->paused = true;
	limit(&vms[0]->node, QOS_BANDWIDTH, KIB, KIB);
	limit(vols[0].qos, QOS_IOPS, 1, 1);
	q->bytes = 64 * KIB;
	run(S, 0);
	CHECK_EQ(q->vq.sched.nr_held, 1);
	q->vq.ending = q->vq.drains = true;
	turn(&reactors[0]);
	CHECK_EQ(q->vq.inflight, 0);
	CHECK_EQ(q->passed, q->made);
	CHECK_EQ(q->ended, q->made);
	other->paused = false; /* of the same VM: waits for what the two have cost, 128 s */
	run(120 * S, 0);
	CHECK_EQ(other->passed, 0);
	run(20 * S, 0);
	CHECK(other->passed > 0);
	other->vq.drains = true;
	world_end();
}

static void
test_a_volume_that_nothing_limits_is_not_looked_at(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 64);
	limit_vm(0, 1, 1);
	atomic_store(&vols[0].limits, 0);
	for (unsigned i = 0; i < 1000; i++)
		turn(&reactors[0]);
	CHECK(q->passed > 10000);
	CHECK_EQ(vms[0]->node.local[0].stats.passed, 0);
	world_end();
}

/* ---- changes ---- */

static void
test_changes_work_at_once(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 1, 8);
	limit_vm(0, 1, 1);
	run(S / 2, 0);
	clear();
	limit_vm(0, 1000, 1000);
	run(S, 0);
	CHECK(near((double)q->passed, 1000, 0.03));
	limit_vm(0, 10, 10);
	clear();
	run(2 * S, 0);
	CHECK(near((double)q->passed, 20, 0.1));
	clear();
	limit_vm(0, 0, 0);
	turn(&reactors[1]);
	CHECK(q->passed > 0);
	CHECK_EQ(q->vq.sched.nr_held, 0);
	world_end();
}

static void
test_thousands_of_changes_give_no_token_away(void)
{
	struct queue *q;
	double due = 0;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 64);
	limit_vm(0, 1000, 1000);
	run(S, 0);
	clear();
	for (unsigned i = 0; i < 5000; i++) {
		uint64_t rate = 1000 + i * 7919 % 4000, was = now;

		limit_vm(0, rate, rate);
		run(MS, 0);
		due += (double)rate * (double)(now - was) / (double)S;
	}
	CHECK(near((double)q->passed, due, 0.02));
	world_end();
}

static void
test_a_refund_lets_so_many_more_pass(void)
{
	struct queue *q;

	world_begin(VMS);
	q = add_queue(0, 0, 0, 64);
	limit_vm(0, 100, 100);
	run(S, 0);
	clear();
	sched_refund(&vms[0]->node, false, 500);
	sched_kick(&in);
	turn(&reactors[0]);
	turn(&reactors[0]);
	for (unsigned i = 0; i < 100; i++)
		turn(&reactors[0]);
	CHECK(q->passed >= 500 && q->passed <= 502);
	world_end();
}

static void
test_merged_writes_are_charged_as_the_one_command_they_became(void)
{
	const struct sched_node *n;
	struct queue *q;
	int64_t before;

	world_begin(VMS);
	vols[0].merge = true;
	q = add_queue(0, 0, 0, 4);
	q->op = nvme_cmd_write;
	n = &vms[0]->node;
	limit_vm(0, 1000, 1000);
	before = bucket_tokens(&vms[0]->node.peak.bucket[QOS_IOPS], now);
	turn(&reactors[0]);
	CHECK_EQ(q->passed, 4);
	CHECK_EQ(n->local[0].stats.merged, 3);
	CHECK_EQ(before - bucket_tokens(&vms[0]->node.peak.bucket[QOS_IOPS], now), 1);
	q->paused = true;
	world_end();
}

/* ---- books ---- */

static void
test_no_token_is_made_or_lost(void)
{
	uint64_t random = 11, passed, went = 0, counted = 0, start;
	double due;

	world_begin(VMS);
	limit(vols[0].qos, QOS_BANDWIDTH, 50 << 20, 50 << 20);
	limit(vols[0].qos, QOS_IOPS, 20000, 20000);
	for (unsigned i = 0; i < 12; i++) {
		struct queue *q = add_queue(i % 4, 0, i % 2, 1 + i * 5);

		q->bytes = 512u << i % 8;
		q->op = i % 3 ? nvme_cmd_read : nvme_cmd_write;
	}
	run(S / 5, 0);
	clear();
	start = now;
	for (unsigned i = 0; i < 500; i++) {
		queues[unit_random(&random) % 12].paused = unit_random(&random) % 2;
		run(unit_random(&random) % (4 * MS), 100000);
	}
	passed = sum();
	due = 20000 * ((double)(now - start) / (double)S + 0.01);
	CHECK((double)passed <= due + REACTORS);
	for (unsigned i = 0; i < nr_queues; i++)
		went += queues[i].made - queues[i].vq.sched.nr_held;
	for (unsigned i = 0; i < REACTORS; i++)
		counted += vols[0].qos->local[i * SCHED_LINES].stats.passed;
	CHECK_EQ(counted, went);
	world_end();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_a_vm_and_a_volume_pass_their_rate_whatever_it_is),
	UNIT_TEST(test_a_rate_of_bytes_counts_payload_alone),
	UNIT_TEST(test_reads_and_writes_have_limits_of_their_own),
	UNIT_TEST(test_both_levels_count_and_the_tighter_one_decides),
	UNIT_TEST(test_a_vm_on_two_volumes_and_two_reactors_has_one_limit),
	UNIT_TEST(test_vms_share_a_volume_by_what_is_committed_to_them),
	UNIT_TEST(test_shares_do_not_depend_on_depth_or_number_of_queues),
	UNIT_TEST(test_depth_one_beside_depth_256_in_one_vm_takes_turns),
	UNIT_TEST(test_who_pauses_saves_nothing_and_loses_nothing),
	UNIT_TEST(test_thousands_of_queues_all_get_their_turn),
	UNIT_TEST(test_committed_rates_hold_while_another_wants_its_peak),
	UNIT_TEST(test_idle_capacity_is_shared_by_weight),
	UNIT_TEST(test_what_is_committed_passes_though_capacity_is_short),
	UNIT_TEST(test_a_flush_is_never_held),
	UNIT_TEST(test_a_queue_that_holds_is_not_fetched_from),
	UNIT_TEST(test_held_commands_of_a_queue_that_ends_end_at_once),
	UNIT_TEST(test_held_commands_of_a_queue_that_drains_go_and_are_paid_back),
	UNIT_TEST(test_a_volume_that_nothing_limits_is_not_looked_at),
	UNIT_TEST(test_changes_work_at_once),
	UNIT_TEST(test_thousands_of_changes_give_no_token_away),
	UNIT_TEST(test_a_refund_lets_so_many_more_pass),
	UNIT_TEST(test_merged_writes_are_charged_as_the_one_command_they_became),
	UNIT_TEST(test_no_token_is_made_or_lost),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
