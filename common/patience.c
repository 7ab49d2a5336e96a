/* See patience.h. */
#include "common/patience.h"

#include "common/log.h"

#include <time.h>

enum { STEP_MS = 20 };

static uint64_t started; /* ms; 0: not yet */

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void
patience_begin(struct patience *p)
{
	p->until = 0;
	if (!started)
		started = now_ms();
}

bool
patience_left(struct patience *p, const char *where)
{
	const struct timespec step = { .tv_nsec = STEP_MS * 1000000 };
	uint64_t now = now_ms();

	if (now - started > PATIENCE_START_MS)
		return false;
	if (!p->until) {
		p->until = now + PATIENCE_MS;
		log_info("%s: in use, perhaps by a daemon that is ending; trying for %d s", where,
		         PATIENCE_MS / 1000);
	}
	if (now >= p->until)
		return false;
	nanosleep(&step, NULL);
	return true;
}
