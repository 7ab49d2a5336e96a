/* A priority queue whose nodes live inside their owners: a pairing heap. Allocates nothing.
 *
 * Keys are 64-bit numbers that wrap, such as times: all that are in one heap lie within half the
 * range of each other. Inserting is constant, taking out logarithmic on average. Nothing can fail;
 * a node is in one heap at most, which its owner knows.
 */
#ifndef SLUICE_HEAP_H
#define SLUICE_HEAP_H

#include <stdint.h>

struct heap_node {
	uint64_t key;
	struct heap_node *child, *next; /* private from here on */
	struct heap_node *prev;         /* the sibling before it, or the parent of the first */
};

struct heap {
	struct heap_node *root; /* the least key; NULL: empty */
};

void heap_insert(struct heap *h, struct heap_node *n, uint64_t key);
void heap_remove(struct heap *h, struct heap_node *n);
/* The node with the least key, taken out; NULL: empty. */
struct heap_node *heap_pop(struct heap *h);

static inline struct heap_node *
heap_first(const struct heap *h)
{
	return h->root;
}

#endif
