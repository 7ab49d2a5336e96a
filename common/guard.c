/* Surviving the loss of shared memory; see guard.h.
 *
 * The handler of SIGBUS runs on the thread that touched the memory, which thereby holds the
 * mapping: its slot cannot go away meanwhile. Slots are read without a lock, since a handler may
 * not take one: base is written last, and cleared first.
 *
 * What can fail: replacing the mapping (no memory for it): the default action of SIGBUS follows.
 */
#include "common/guard.h"

#include "common/wire.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
	SLOTS = 16384,
	PAGE = 4096, /* the smallest that there is: every page is touched */
};

struct slot {
	_Atomic uintptr_t base; /* 0: free */
	size_t size;
	atomic_bool *spoiled;
};

atomic_uint guard_hits;

static struct slot slots[SLOTS];
static _Atomic unsigned used; /* slots below have been in use */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;

static struct slot *
slot_of(uintptr_t at)
{
	unsigned n = atomic_load_explicit(&used, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		uintptr_t base = atomic_load_explicit(&slots[i].base, memory_order_acquire);

		if (base && at >= base && at - base < slots[i].size)
			return &slots[i];
	}
	return NULL;
}

/* All of it: one page at a time would need a mapping for each, and they are limited. */
static bool
replace(struct slot *s)
{
	void *base = (void *)atomic_load_explicit(&s->base, memory_order_relaxed);

	if (mmap(base, s->size, PROT_READ | PROT_WRITE,
	         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	atomic_store_explicit(s->spoiled, true, memory_order_release);
	atomic_fetch_add_explicit(&guard_hits, 1, memory_order_release);
	return true;
}

/* Returning runs the instruction again: on zeroes, or into what SIGBUS did before us. */
static void
bus_error(int sig, siginfo_t *si, void *context)
{
	int saved = errno;
	struct slot *s = slot_of((uintptr_t)si->si_addr);

	(void)context;
	if (!s || !replace(s))
		sigaction(sig, &before, NULL);
	errno = saved;
}

static void
install(void)
{
	struct sigaction sa = { .sa_sigaction = bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, &before);
}

int
guard_add(void *base, size_t size, atomic_bool *spoiled)
{
	unsigned n, i;

	pthread_once(&once, install);
	pthread_mutex_lock(&lock);
	n = atomic_load_explicit(&used, memory_order_relaxed);
	for (i = 0; i < n && atomic_load_explicit(&slots[i].base, memory_order_relaxed); i++)
		;
	if (i < SLOTS) {
		slots[i].size = size;
		slots[i].spoiled = spoiled;
		atomic_store_explicit(&slots[i].base, (uintptr_t)base, memory_order_release);
		if (i == n)
			atomic_store_explicit(&used, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return i < SLOTS ? (int)i : -ENOSPC;
}

void
guard_del(int nr)
{
	pthread_mutex_lock(&lock);
	atomic_store_explicit(&slots[nr].base, 0, memory_order_release);
	pthread_mutex_unlock(&lock);
}

bool
guard_touch(const struct iovec *iov, unsigned n)
{
	unsigned hits = atomic_load_explicit(&guard_hits, memory_order_acquire);

	for (; n > 0; iov++, n--) {
		const volatile char *p = iov->iov_base, *end = p + iov->iov_len;

		for (; p < end; p = (const volatile char *)(((uintptr_t)p | (PAGE - 1)) + 1))
			(void)*p;
	}
	return atomic_load_explicit(&guard_hits, memory_order_acquire) != hits;
}
