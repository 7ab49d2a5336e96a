/* Token buckets in time that is made up here: rates, bursts, debts, refunds, leases, threads. */
#include "common/bucket.h"

#include "tests/lib/unit.h"

#include <pthread.h>

#define S  UINT64_C(1000000000)
#define MS UINT64_C(1000000)

static const uint64_t rates[] = {
	1, 3, 777, 1000, 65536, 1000000, 123456789, UINT64_C(10000000000), BUCKET_RATE_MAX
};

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static struct bucket bucket;

/* All that passes at this moment, n tokens at a time. */
static uint64_t
drain(uint64_t n, uint64_t now)
{
	uint64_t sum = 0;

	while (bucket_ready(&bucket, n, now)) {
		bucket_charge(&bucket, n, now);
		sum += n;
	}
	return sum;
}

/* What passes in a span of time, taken whenever it is due, up to late ns after. */
static uint64_t
run(uint64_t n, uint64_t *now, uint64_t span, uint64_t late)
{
	uint64_t end = *now + span, sum = 0, random = 1;

	while (*now < end) {
		sum += drain(n, *now);
		*now += bucket_wait(&bucket, n, *now) + (late ? unit_random(&random) % late : 0);
	}
	return sum;
}

static bool
within(double got, double want, double share)
{
	return got >= want * (1 - share) && got <= want * (1 + share);
}

static void
test_what_passes_in_the_long_run_is_the_rate(void)
{
	for (unsigned i = 0; i < NR(rates); i++) {
		uint64_t n = rates[i] / 100000 + 1, now = 12345, span, start;
		double sum;

		unit_row("%llu/s", (unsigned long long)rates[i]);
		bucket_init(&bucket, rates[i], 10, now);
		drain(n, now);
		span = rates[i] > 100000 ? S : 100000 * S / rates[i];
		start = now;
		sum = (double)run(n, &now, span, 0);
		CHECK(within(sum, (double)rates[i] * (double)(now - start) / (double)S, 0.001));
	}
}

static void
test_being_late_loses_nothing_within_the_burst(void)
{
	for (unsigned i = 2; i < NR(rates); i++) {
		uint64_t n = rates[i] / 100000 + 1, now = 0, span = 200000 * n * S / rates[i];
		double sum;

		unit_row("%llu/s", (unsigned long long)rates[i]);
		bucket_init(&bucket, rates[i], 10, now);
		drain(n, now);
		sum = (double)run(n, &now, span, 5 * MS);
		sum += (double)drain(n, now);
		CHECK(within(sum, (double)rates[i] * (double)now / (double)S, 0.002));
	}
}

static void
test_one_token_at_the_highest_rate_has_its_price(void)
{
	bucket_init(&bucket, BUCKET_RATE_MAX, 0, 0);
	for (unsigned i = 0; i < 1000000; i++)
		bucket_charge(&bucket, 1, 0);
	CHECK(within((double)bucket_wait(&bucket, 1, 0), 10000, 0.001));
}

static void
test_a_burst_is_what_was_saved_and_no_more(void)
{
	uint64_t now = 100 * S;

	bucket_init(&bucket, 1000, 50, now);
	CHECK_EQ(drain(1, now), 51);
	CHECK_EQ(drain(1, now + 20 * MS), 20);
	CHECK_EQ(drain(1, now + 3600 * S), 51);
	for (unsigned i = 1; i < 100; i++) /* and a bucket that was not asked for hours is full */
		CHECK_EQ(drain(1, now + i * 5000 * S), 51);
}

static void
test_a_bucket_without_a_burst_lets_one_pass_at_a_time(void)
{
	uint64_t now = S;

	bucket_init(&bucket, 1000, 0, now);
	CHECK_EQ(drain(1, now), 1);
	CHECK_EQ(bucket_wait(&bucket, 1, now), MS + 1);
	CHECK_EQ(drain(1, now + MS), 1);
	CHECK_EQ(drain(1, now + 100 * MS), 1);
}

static void
test_what_is_larger_than_the_bucket_passes_and_is_paid_back(void)
{
	uint64_t now = S;

	bucket_init(&bucket, 1024, 10, now);
	CHECK(bucket_ready(&bucket, 1 << 20, now));
	bucket_charge(&bucket, 1 << 20, now);
	CHECK(within((double)bucket_wait(&bucket, 1, now), 1024.0 * (double)S, 0.0001));
	CHECK(!bucket_ready(&bucket, 1, now + 1023 * S));
	CHECK(bucket_ready(&bucket, 1, now + 1024 * S));
	CHECK(bucket_tokens(&bucket, now) < -1040000);
}

static void
test_no_limit_passes_all_and_owes_nothing(void)
{
	bucket_init(&bucket, 0, 10, 5);
	for (unsigned i = 0; i < 1000; i++)
		bucket_charge(&bucket, UINT64_MAX, 5);
	CHECK(bucket_ready(&bucket, UINT64_MAX, 5));
	bucket_set(&bucket, 1000, 10, 6);
	CHECK_EQ(drain(1, 6), 11);
}

static void
test_a_refund_passes_beside_the_rate_and_waits_until_it_is_wanted(void)
{
	uint64_t now = S;

	bucket_init(&bucket, 1000, 10, now);
	drain(1, now);
	bucket_refund(&bucket, 500);
	CHECK_EQ(drain(1, now), 500);
	bucket_refund(&bucket, 500);
	now += 3000 * S;
	CHECK_EQ(drain(1, now), 511);
	bucket_charge(&bucket, 1, now);
	bucket_uncharge(&bucket, 1);
	CHECK_EQ(drain(1, now + MS), 1);
}

static void
test_refunds_without_end_do_not_overflow(void)
{
	bucket_init(&bucket, 1, 10, S);
	for (unsigned i = 0; i < 1000; i++)
		bucket_refund(&bucket, UINT64_MAX);
	CHECK(bucket_tokens(&bucket, S) > 2000);
	CHECK(bucket_tokens(&bucket, S) < 10000);
}

static void
test_changes_of_the_rate_neither_give_nor_take(void)
{
	uint64_t now = S, sum = 0, random = 7, rate = 1000;
	double due = 0;

	bucket_init(&bucket, rate, 10, now);
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t step = unit_random(&random) % MS,
			 next = unit_random(&random) % 1000000 + 1;

		sum += drain(1, now);
		due += (double)rate * (double)step / (double)S;
		now += step;
		sum += drain(1, now);
		bucket_set(&bucket, next, 10, now);
		rate = next;
	}
	CHECK(within((double)sum, due, 0.01));
}

static void
test_a_refund_stays_so_many_tokens_when_the_rate_changes(void)
{
	bucket_init(&bucket, 100, 0, S);
	bucket_charge(&bucket, 1, S);
	bucket_refund(&bucket, 500);
	bucket_set(&bucket, 10000, 0, S);
	CHECK_EQ(drain(1, S), 500);
	bucket_refund(&bucket, 500);
	bucket_set(&bucket, 7, 0, S);
	CHECK(within((double)drain(1, S), 500, 0.003));
}

static void
test_a_longer_burst_has_to_be_saved_first(void)
{
	bucket_init(&bucket, 1000, 10, S);
	bucket_set(&bucket, 1000, 1000, 60 * S);
	CHECK(drain(1, 60 * S) <= 11);
	bucket_init(&bucket, 1000, 10, S);
	bucket_set(&bucket, 2000, 1000, 60 * S);
	CHECK(drain(1, 60 * S) <= 11);
	CHECK(drain(1, 70 * S) >= 1990);
}

static void
test_raising_a_rate_shortens_a_debt_at_once(void)
{
	bucket_init(&bucket, 1024, 10, S);
	bucket_charge(&bucket, 1 << 20, S);
	bucket_set(&bucket, 1 << 20, 10, S);
	CHECK(within((double)bucket_wait(&bucket, 1, S), (double)S, 0.02));
	bucket_set(&bucket, 0, 10, S);
	CHECK(bucket_ready(&bucket, 1, S));
}

static void
test_a_capped_debt_stays_below_its_bound(void)
{
	bucket_init(&bucket, 1000, 10, S);
	for (unsigned i = 0; i < 100000; i++)
		bucket_charge_capped(&bucket, 1, S, 100 * MS);
	CHECK(bucket_wait(&bucket, 1, S) <= 100 * MS + 1);
	CHECK(bucket_wait(&bucket, 1, S) >= 99 * MS);
}

/* ---- leases ---- */

static void
test_a_lease_spares_the_bucket_and_loses_nothing(void)
{
	struct bucket_lease l = { 0 };
	uint64_t now = S, sum = 0, moved = 0;

	bucket_init(&bucket, 1000000, 10, now);
	while (bucket_lease_ready(&bucket, &l, 1, now)) {
		uint64_t at = atomic_load(&bucket.at);

		bucket_lease_charge(&bucket, &l, 1, now);
		moved += at != atomic_load(&bucket.at);
		sum++;
	}
	CHECK(sum >= 10000 && sum <= 10002);
	CHECK(moved < sum / 10);
}

static void
test_a_lease_that_is_stale_goes_back(void)
{
	struct bucket_lease l = { 0 };
	uint64_t now = S, credit;

	bucket_init(&bucket, 1000000, 10, now);
	bucket_lease_charge(&bucket, &l, 1, now);
	credit = l.credit;
	CHECK(credit > 0);
	now += 2 * BUCKET_STALE_NS;
	bucket_lease_charge(&bucket, &l, 1, now);
	CHECK_EQ(l.since, now);
	bucket_lease_return(&bucket, &l);
	CHECK_EQ(l.credit, 0);
	CHECK(bucket_tokens(&bucket, now) >= 9999);
}

static void
test_low_rates_and_little_credit_have_no_leases(void)
{
	struct bucket_lease l = { 0 };

	bucket_init(&bucket, 10000, 10, S);
	bucket_lease_charge(&bucket, &l, 1, S);
	CHECK_EQ(l.credit, 0);
	bucket_init(&bucket, 1000000, 0, S);
	bucket_lease_charge(&bucket, &l, 1, S);
	CHECK_EQ(l.credit, 0);
}

enum { THREADS = 4 };

static _Atomic uint64_t clock_now;
static _Atomic uint64_t passed;

static void *
take(void *arg)
{
	struct bucket_lease l = { 0 };
	uint64_t mine = 0, end = *(const uint64_t *)arg, now;

	while ((now = atomic_load(&clock_now)) < end) {
		if (bucket_lease_ready(&bucket, &l, 1, now)) {
			bucket_lease_charge(&bucket, &l, 1, now);
			mine++;
		} else {
			atomic_fetch_add(&clock_now, 50);
		}
	}
	bucket_lease_return(&bucket, &l);
	atomic_fetch_add(&passed, mine);
	return NULL;
}

static void
test_threads_together_get_the_rate_and_no_more(void)
{
	pthread_t threads[THREADS];
	uint64_t end = S / 5;

	for (unsigned i = 0; i < 3; i++) {
		static const uint64_t some[] = { 1000, 400000, 3000000 };
		double due = (double)some[i] * 0.21;

		unit_row("%llu/s", (unsigned long long)some[i]);
		atomic_store(&clock_now, 0);
		atomic_store(&passed, 0);
		bucket_init(&bucket, some[i], 10, 0);
		for (unsigned t = 0; t < THREADS; t++)
			CHECK_EQ(pthread_create(&threads[t], NULL, take, &end), 0);
		for (unsigned t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
		/* Each may have been let pass by the same token; it is paid back. A clock that
		 * others moved on while one was about to charge gives nobody more. */
		CHECK((double)passed <= due * 1.001 + THREADS + 1);
		CHECK((double)passed >= due * 0.999 - THREADS * 100);
	}
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_what_passes_in_the_long_run_is_the_rate),
	UNIT_TEST(test_being_late_loses_nothing_within_the_burst),
	UNIT_TEST(test_one_token_at_the_highest_rate_has_its_price),
	UNIT_TEST(test_a_burst_is_what_was_saved_and_no_more),
	UNIT_TEST(test_a_bucket_without_a_burst_lets_one_pass_at_a_time),
	UNIT_TEST(test_what_is_larger_than_the_bucket_passes_and_is_paid_back),
	UNIT_TEST(test_no_limit_passes_all_and_owes_nothing),
	UNIT_TEST(test_a_refund_passes_beside_the_rate_and_waits_until_it_is_wanted),
	UNIT_TEST(test_refunds_without_end_do_not_overflow),
	UNIT_TEST(test_changes_of_the_rate_neither_give_nor_take),
	UNIT_TEST(test_a_refund_stays_so_many_tokens_when_the_rate_changes),
	UNIT_TEST(test_a_longer_burst_has_to_be_saved_first),
	UNIT_TEST(test_raising_a_rate_shortens_a_debt_at_once),
	UNIT_TEST(test_a_capped_debt_stays_below_its_bound),
	UNIT_TEST(test_a_lease_spares_the_bucket_and_loses_nothing),
	UNIT_TEST(test_a_lease_that_is_stale_goes_back),
	UNIT_TEST(test_low_rates_and_little_credit_have_no_leases),
	UNIT_TEST(test_threads_together_get_the_rate_and_no_more),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, NR(tests));
}
