/* The buffer pool: a buddy allocator over one mapping.
 *
 * The unit is a page of BUF_MIN bytes; a piece of order k is 2^k pages, aligned to its own
 * size. order[] says for the first page of each piece how large it is and whether it is free; free
 * pieces of one order are chained through link[] by page number, so that payload memory is never
 * touched by bookkeeping. Get and put are a few steps up or down the orders.
 */
#include "common/buf.h"

#include "common/meter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ORDERS = 20, NONE = 0xffffffff, IS_FREE = 0x80 };

struct chain {                  /* a free piece's neighbours in the list of its order */
	uint32_t prev, next;
};

struct buf_pool {
	struct ring *ring;
	uint8_t *base;
	size_t size;
	int index;              /* registered buffer slot, -1: not registered */
	unsigned top;           /* order of the largest piece */
	uint32_t heads[ORDERS];
	uint8_t *order;         /* for the first page of each piece: order, IS_FREE */
	struct chain *link;
	struct list waiters;    /* buf_wait.node, oldest first */
	bool serving;
	uint64_t used, waits;   /* METER_GET by others */
};

static void
push(struct buf_pool *p, uint32_t page, unsigned order)
{
	uint32_t head = p->heads[order];

	p->order[page] = (uint8_t)(order | IS_FREE);
	p->link[page] = (struct chain){ NONE, head };
	if (head != NONE)
		p->link[head].prev = page;
	p->heads[order] = page;
}

static void
unlink_free(struct buf_pool *p, uint32_t page, unsigned order)
{
	struct chain c = p->link[page];

	if (c.prev != NONE)
		p->link[c.prev].next = c.next;
	else
		p->heads[order] = c.next;
	if (c.next != NONE)
		p->link[c.next].prev = c.prev;
	p->order[page] = (uint8_t)order;
}

static unsigned
order_for(uint32_t len)
{
	uint32_t pages = (len + BUF_MIN - 1) / BUF_MIN;

	return pages <= 1 ? 0 : 32 - (unsigned)__builtin_clz(pages - 1);
}

int
buf_pool_new(struct ring *r, size_t size, uint32_t largest, struct buf_pool **ret, struct err *err)
{
	struct buf_pool *p = calloc(1, sizeof(*p));
	size_t pages, i;

	if (!p)
		return err_set(err, -ENOMEM, "no memory for a buffer pool");
	p->top = order_for(largest);
	p->size = ROUND_UP(size ? size : 1, (size_t)BUF_MIN << p->top);
	pages = p->size / BUF_MIN;
	p->order = calloc(pages, sizeof(*p->order));
	p->link = calloc(pages, sizeof(*p->link));
	p->base = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!p->order || !p->link || p->base == MAP_FAILED) {
		if (p->base != MAP_FAILED)
			munmap(p->base, p->size);
		free(p->order);
		free(p->link);
		free(p);
		return err_set(err, -ENOMEM, "no memory for %zu bytes of buffers", size);
	}
	/* Before registration makes it resident: fewer page walks, less CPU for small I/O. */
	(void)madvise(p->base, p->size, MADV_HUGEPAGE);
	list_init(&p->waiters);
	for (i = 0; i < ORDERS; i++)
		p->heads[i] = NONE;
	for (i = pages; i > 0; i -= (size_t)1 << p->top)
		push(p, (uint32_t)(i - ((size_t)1 << p->top)), p->top);
	p->ring = r;
	p->index = r ? ring_buf_register(r, p->base, p->size) : -1;
	*ret = p;
	return 0;
}

void
buf_pool_free(struct buf_pool *p)
{
	if (!p)
		return;
	assert(p->used == 0);
	if (p->index >= 0)
		ring_buf_unregister(p->ring, p->index);
	munmap(p->base, p->size);
	free(p->order);
	free(p->link);
	free(p);
}

void
buf_pool_hide(struct buf_pool *p)
{
	(void)madvise(p->base, p->size, MADV_DONTDUMP);
}

int
buf_pool_index(const struct buf_pool *p)
{
	return p->index < 0 ? -1 : p->index;
}

size_t
buf_pool_size(const struct buf_pool *p)
{
	return p->size;
}

size_t
buf_pool_used(const struct buf_pool *p)
{
	return METER_GET(p->used);
}

uint64_t
buf_pool_waits(const struct buf_pool *p)
{
	return METER_GET(p->waits);
}

static bool
take(struct buf_pool *p, uint32_t len, struct buf *ret)
{
	unsigned want = order_for(len), k = want;
	uint32_t page;

	assert(len > 0 && want <= p->top);
	while (k <= p->top && p->heads[k] == NONE)
		k++;
	if (k > p->top)
		return false;
	page = p->heads[k];
	unlink_free(p, page, k);
	while (k > want) {
		k--;
		push(p, page + (1u << k), k); /* the upper half stays free */
	}
	p->order[page] = (uint8_t)want;
	*ret = (struct buf){ p->base + (size_t)page * BUF_MIN, len, (uint8_t)want };
	METER_ADD(p->used, (uint64_t)BUF_MIN << want);
	return true;
}

static void
give(struct buf_pool *p, struct buf *b)
{
	uint32_t page = (uint32_t)((size_t)(b->p - p->base) / BUF_MIN);
	unsigned k = b->order;

	assert(p->order[page] == k);
	METER_SUB(p->used, (uint64_t)BUF_MIN << k);
	for (; k < p->top; k++) {
		uint32_t buddy = page ^ (1u << k);

		if (p->order[buddy] != (k | IS_FREE))
			break;
		unlink_free(p, buddy, k);
		p->order[MAX(page, buddy)] = 0;
		page = MIN(page, buddy);
	}
	push(p, page, k);
	*b = (struct buf){ 0 };
}

bool
buf_get(struct buf_pool *p, uint32_t len, struct buf_wait *w, struct buf *ret)
{
	if (list_empty(&p->waiters) && take(p, len, ret))
		return true;
	w->len = len;
	list_push_back(&p->waiters, &w->node);
	METER_ADD(p->waits, 1);
	return false;
}

void
buf_wait_init(struct buf_wait *w, void (*ready)(struct buf_wait *w, struct buf b))
{
	list_init(&w->node);
	w->ready = ready;
}

bool
buf_waiting(const struct buf_wait *w)
{
	return !list_empty(&w->node);
}

/* Serves the oldest first and stops at the first that does not fit: a large one is never starved
 * by small ones. A ready() that gives a buffer back does not recurse. */
void
buf_serve(struct buf_pool *p)
{
	struct buf b;

	if (p->serving)
		return;
	p->serving = true;
	while (!list_empty(&p->waiters)) {
		struct buf_wait *w = list_entry(list_first(&p->waiters), struct buf_wait, node);

		if (!take(p, w->len, &b))
			break;
		list_del(&w->node);
		w->ready(w, b);
	}
	p->serving = false;
}

void
buf_wait_cancel(struct buf_wait *w)
{
	list_del(&w->node);
}

void
buf_put(struct buf_pool *p, struct buf *b)
{
	if (!b->p)
		return;
	give(p, b);
	buf_serve(p);
}
