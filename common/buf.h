/* The buffer pool of one reactor: one mapping, registered with the ring when the kernel lets us,
 * handed out in power-of-two pieces by a buddy allocator.
 *
 * Memory is a number that the administrator sets. When it is used up, askers wait in the order in
 * which they came, and are served from buf_put(); nothing fails, nothing is dropped. One
 * owner for each buffer at any instant: pool, command or op.
 *
 * What can fail: the mapping (at start). Registration refused (RLIMIT_MEMLOCK) is reported once by
 * the caller, the pool works unregistered.
 */
#ifndef SLUICE_BUF_H
#define SLUICE_BUF_H

#include "common/ring.h"

enum { BUF_MIN = 4096 };

struct buf {
	uint8_t *p;             /* page aligned; NULL: none */
	uint32_t len;           /* bytes asked for */
	uint8_t order;          /* BUF_MIN << order bytes are held */
};

struct buf_wait {               /* one asker; lives inside its owner */
	struct list node;
	uint32_t len;
	/* Called from buf_put() of another owner: b belongs to the asker now. Must only queue
	 * work. */
	void (*ready)(struct buf_wait *w, struct buf b);
};

struct buf_pool;

/* size: bytes, rounded up to largest; largest: biggest piece, a power of two. */
int buf_pool_new(struct ring *r, size_t size, uint32_t largest, struct buf_pool **ret,
                 struct err *err);
void buf_pool_free(struct buf_pool *p); /* every buffer must be back */
void buf_pool_hide(struct buf_pool *p); /* its memory is in no core dump */

int buf_pool_index(const struct buf_pool *p); /* registered buffer slot, or -1 */
size_t buf_pool_size(const struct buf_pool *p);
size_t buf_pool_used(const struct buf_pool *p);   /* any thread, relaxed */
uint64_t buf_pool_waits(const struct buf_pool *p); /* how often somebody had to wait; any thread */

/* Fills *ret at once and returns true, or queues w and returns false. Somebody who waits is never
 * overtaken. len 1..largest. */
bool buf_get(struct buf_pool *p, uint32_t len, struct buf_wait *w, struct buf *ret);
void buf_wait_init(struct buf_wait *w, void (*ready)(struct buf_wait *w, struct buf b));
bool buf_waiting(const struct buf_wait *w);
/* Stops waiting; harmless when it does not wait. Then buf_serve(): it may have been the one that
 * held the others up. */
void buf_wait_cancel(struct buf_wait *w);
void buf_serve(struct buf_pool *p);
void buf_put(struct buf_pool *p, struct buf *b);          /* b->p becomes NULL; NULL is fine */

#endif
