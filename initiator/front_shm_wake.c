/* Waking the client of a shared-memory queue. See front_shm_wake.h.
 *
 * Happy path: completions are shown and due; when it is time shm_wake_now() has the ring write to
 * the client's eventfd, which takes no completion.
 *
 * What can fail: that write, where the client has made its eventfd one that blocks, or filled it.
 * From then on its writes wait for it, one at a time, and hold up nobody.
 */
#include "initiator/front_shm_wake.h"

#include "common/wire.h"
#include "initiator/client/sluice.h"

#define WAKE_NS 50000 /* completions are not kept longer from a client that sleeps */
#define SLOW_NS 50000 /* after that a client that was woken should have moved */
#define SLOW    4     /* times in a row that a client needed our core, and it counts as such... */
#define RETRY   64    /* ...but for one wake of so many, which finds out again */

#define load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)

static const uint64_t one = 1;

static void
write_later(struct shm_wake *w)
{
	if (w->busy) {
		w->again = true; /* what is in flight may have been counted already */
		return;
	}
	w->busy = true;
	ring_write(w->ring, &w->later, w->fd, &one, sizeof(one), 0, -1, 0);
}

static void
later_done(struct op *op, int res, uint32_t flags)
{
	struct shm_wake *w = container_of(op, struct shm_wake, later);
	bool again = w->again;

	(void)res; /* a client that spoils its own eventfd sleeps on */
	(void)flags;
	w->busy = w->again = false;
	if (w->ending)
		w->ended(w->arg);
	else if (again)
		write_later(w);
}

static void
now_failed(struct op *op, int res, uint32_t flags)
{
	struct shm_wake *w = container_of(op, struct shm_wake, now);

	(void)res;
	(void)flags;
	w->waits = true;
	if (!w->ending)
		write_later(w);
}

void
shm_wake_init(struct shm_wake *w)
{
	w->now = (struct op){ now_failed, "shm.wake" };
	w->later = (struct op){ later_done, "shm.wake-later" };
}

void
shm_wake_now(struct shm_wake *w)
{
	if (w->waits)
		write_later(w);
	else
		ring_write_now(w->ring, &w->now, w->fd, &one, sizeof(one));
}

/* The client sets its flag, then looks at cq_tail, which we have moved: one of us sees the other.
 */
static bool
wake_if_asleep(struct shm_wake *w)
{
	uint32_t *flag = &w->shared->cq_need_wakeup;

	w->due = false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!load_relaxed(flag) || w->ending || !__atomic_exchange_n(flag, 0, __ATOMIC_RELAXED))
		return false;
	shm_wake_now(w);
	w->woken = true;
	w->slept = false;
	w->woken_at = ring_now(w->ring);
	w->shares = w->slow >= SLOW && ++w->wakes % RETRY;
	w->sq_tail = load_relaxed(&w->shared->sq_tail);
	w->cq_head = load_relaxed(&w->shared->cq_head);
	return true;
}

void
shm_wake_due(struct shm_wake *w)
{
	if (w->due)
		return;
	w->due = true;
	w->looked = false;
	w->due_at = ring_now(w->ring);
}

void
shm_wake_turn(struct shm_wake *w, uint32_t unread, uint32_t inflight)
{
	if (w->due && (unread >= inflight || ring_now(w->ring) - w->due_at > WAKE_NS))
		wake_if_asleep(w);
}

/* Was it fast enough, the last time? */
static void
learn(struct shm_wake *w)
{
	w->woken = false;
	if (!w->slept && ring_now(w->ring) - w->woken_at < SLOW_NS)
		w->slow = 0;
	else if (w->slow < SLOW)
		w->slow++;
}

static bool
moved(const struct shm_wake *w)
{
	return w->sq_tail != load_relaxed(&w->shared->sq_tail) ||
	       w->cq_head != load_relaxed(&w->shared->cq_head);
}

bool
shm_wake_idle(struct shm_wake *w, bool sleep)
{
	bool woke = false;

	if (w->due) {
		/* What was queued in this turn has not been submitted yet: it may bring more. */
		if (!w->looked) {
			w->looked = true;
			return sleep;
		}
		woke = wake_if_asleep(w);
	}
	if (w->woken && moved(w))
		learn(w);
	if (!w->woken)
		return false;
	if (sleep) {
		w->slept = true;
		return false;
	}
	if (w->shares)
		ring_yield(w->ring);
	return woke && !w->shares;
}

void
shm_wake_end(struct shm_wake *w)
{
	w->ending = true;
	if (w->busy)
		ring_cancel(w->ring, &w->later);
}
