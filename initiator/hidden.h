/* Memory for keys: in no core dump, not swapped where the system lets us lock it, wiped when it is
 * given back. Any thread.
 *
 * hidden_pages() is for one secret by itself; hidden_malloc() and its kin are an allocator for a
 * library that copies keys to where it likes. What can fail: memory (NULL).
 */
#ifndef SLUICE_HIDDEN_H
#define SLUICE_HIDDEN_H

#include <stddef.h>

void *hidden_pages(size_t n); /* of zeroes */
void hidden_pages_free(void *p, size_t n);

/* As malloc() and the like; never given back to the system. */
void *hidden_malloc(size_t n);
void *hidden_realloc(void *p, size_t n);
void hidden_free(void *p);

#endif
