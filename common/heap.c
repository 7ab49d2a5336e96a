/* The pairing heap; see heap.h.
 *
 * A node's children are a list; the root has the least key. Two heaps are merged by putting the
 * root with the larger key below the other; a root that goes has its children merged in pairs, then
 * all together. Nothing can fail.
 */
#include "common/heap.h"

#include <stddef.h>

/* On equal keys a stays above. Either may be NULL. */
static struct heap_node *
merge(struct heap_node *a, struct heap_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if ((int64_t)(b->key - a->key) < 0) {
		struct heap_node *t = a;

		a = b;
		b = t;
	}
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	b->prev = a;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

/* All of a list of siblings. */
static struct heap_node *
merge_all(struct heap_node *n)
{
	struct heap_node *pairs = NULL, *root = NULL;

	while (n) {
		struct heap_node *a = n, *b = n->next;

		n = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = merge(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct heap_node *a = pairs;

		pairs = a->next;
		a->next = NULL;
		root = merge(root, a);
	}
	return root;
}

void
heap_insert(struct heap *h, struct heap_node *n, uint64_t key)
{
	*n = (struct heap_node){ .key = key };
	h->root = merge(h->root, n);
}

struct heap_node *
heap_pop(struct heap *h)
{
	struct heap_node *n = h->root;

	if (n)
		h->root = merge_all(n->child);
	return n;
}

void
heap_remove(struct heap *h, struct heap_node *n)
{
	if (n == h->root) {
		heap_pop(h);
		return;
	}
	if (n->prev->child == n)
		n->prev->child = n->next;
	else
		n->prev->next = n->next;
	if (n->next)
		n->next->prev = n->prev;
	h->root = merge(h->root, merge_all(n->child));
}
