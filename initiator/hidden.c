/* Memory for keys. See hidden.h.
 *
 * The allocator keeps a list of free pieces for each power of two, cut from chunks of CHUNK bytes;
 * what is larger than half a chunk has pages of its own. A piece begins with its size. It serves a
 * library while that sets itself up and makes its contexts; speed does not matter, nor that pieces
 * are never joined.
 */
#include "initiator/hidden.h"

#include "common/wire.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { CHUNK = 256 << 10, ORDER_MIN = 5, ORDER_MAX = 17, HEAD = 16 };

struct piece {
	size_t size;        /* of all of it */
	struct piece *next; /* while it is free */
};

static_assert(sizeof(struct piece) <= HEAD, "what is handed out stays aligned");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *free_pieces[ORDER_MAX + 1];
static uint8_t *chunk; /* the rest of the last one... */
static size_t chunk_left;

void *
hidden_pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, n, MADV_DONTDUMP) < 0) {
		munmap(p, n);
		return NULL;
	}
	(void)mlock(p, n); /* RLIMIT_MEMLOCK may not let us */
	return p;
}

void
hidden_pages_free(void *p, size_t n)
{
	if (!p)
		return;
	explicit_bzero(p, n);
	munmap(p, n);
}

static unsigned
order_of(size_t size)
{
	unsigned k = ORDER_MIN;

	while ((size_t)1 << k < size)
		k++;
	return k;
}

static struct piece *
cut(size_t size)
{
	struct piece *p;

	if (chunk_left < size) {
		chunk = hidden_pages(CHUNK); /* what is left of the old one stays unused */
		chunk_left = chunk ? CHUNK : 0;
		if (!chunk)
			return NULL;
	}
	p = (struct piece *)chunk;
	chunk += size;
	chunk_left -= size;
	p->size = size;
	return p;
}

void *
hidden_malloc(size_t n)
{
	unsigned k = n < CHUNK / 2 - HEAD ? order_of(n + HEAD) : 0;
	struct piece *p;

	if (k == 0) {
		if (n > SIZE_MAX - HEAD)
			return NULL;
		p = hidden_pages(n + HEAD);
		if (p)
			p->size = n + HEAD;
		return p ? (uint8_t *)p + HEAD : NULL;
	}
	pthread_mutex_lock(&lock);
	p = free_pieces[k];
	if (p)
		free_pieces[k] = p->next;
	else
		p = cut((size_t)1 << k);
	pthread_mutex_unlock(&lock);
	return p ? (uint8_t *)p + HEAD : NULL;
}

void
hidden_free(void *mem)
{
	struct piece *p = mem ? (struct piece *)((uint8_t *)mem - HEAD) : NULL;
	unsigned k;

	if (!p)
		return;
	if (p->size > CHUNK / 2) {
		hidden_pages_free(p, p->size);
		return;
	}
	k = order_of(p->size);
	explicit_bzero(mem, p->size - HEAD);
	pthread_mutex_lock(&lock);
	p->next = free_pieces[k];
	free_pieces[k] = p;
	pthread_mutex_unlock(&lock);
}

void *
hidden_realloc(void *mem, size_t n)
{
	size_t had = mem ? ((struct piece *)((uint8_t *)mem - HEAD))->size - HEAD : 0;
	void *now;

	if (mem && n <= had)
		return mem;
	now = hidden_malloc(n);
	if (now && mem) {
		memcpy(now, mem, had);
		hidden_free(mem);
	}
	return now;
}
