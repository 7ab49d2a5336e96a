/* The permission table: rows with a generation each, a free list through them.
 *
 * A tag is row number + 1 in the low bits, the row's generation above: how many bits the row
 * takes depends on the table's size, so that generations are as long as 16 bits allow. Tag 0
 * is never given out.
 */
#include "common/perm.h"

#include <errno.h>
#include <stdlib.h>

struct perm_row {
	struct perm_grant g;
	uint64_t claimed;       /* bytes already asked for by perm_span() */
	uint16_t gen;
	uint16_t next_free;
	bool live;
};

enum { NO_ROW = 0xffff };

int
perm_init(struct perm *p, unsigned nr)
{
	unsigned i;

	assert(nr >= 1 && nr <= 32768);
	p->rows = calloc(nr, sizeof(*p->rows));
	if (!p->rows)
		return -ENOMEM;
	p->nr = nr;
	p->used = 0;
	for (i = 0; i < nr; i++)
		p->rows[i].next_free = i + 1 < nr ? (uint16_t)(i + 1) : NO_ROW;
	p->free = 0;
	return 0;
}

void
perm_fini(struct perm *p)
{
	free(p->rows);
	*p = (struct perm){ 0 };
}

static unsigned
row_bits(const struct perm *p)
{
	return 32 - (unsigned)__builtin_clz(p->nr); /* enough for 1..nr */
}

static uint16_t
tag_of(const struct perm *p, unsigned row)
{
	return (uint16_t)((row + 1) | (unsigned)p->rows[row].gen << row_bits(p));
}

static struct perm_row *
row_of(const struct perm *p, uint16_t tag)
{
	unsigned row;

	if (!p->rows)
		return NULL;
	row = (tag & (BIT(row_bits(p)) - 1)) - 1;
	if (row >= p->nr || !p->rows[row].live || tag_of(p, row) != tag)
		return NULL;
	return &p->rows[row];
}

bool
perm_grant(struct perm *p, const struct perm_grant *g, uint16_t *ret_tag)
{
	uint16_t row = p->free;
	struct perm_row *r;

	if (!p->rows || row == NO_ROW)
		return false;
	r = &p->rows[row];
	p->free = r->next_free;
	p->used++;
	r->g = *g;
	r->claimed = 0;
	r->live = true;
	*ret_tag = tag_of(p, row);
	return true;
}

void
perm_revoke(struct perm *p, uint16_t tag)
{
	struct perm_row *r = row_of(p, tag);

	assert(r);
	r->live = false;
	r->gen++;
	r->next_free = p->free;
	p->free = (uint16_t)(r - p->rows);
	p->used--;
}

void *
perm_owner(const struct perm *p, uint16_t tag)
{
	const struct perm_row *r = row_of(p, tag);

	return r ? r->g.owner : NULL;
}

uint64_t
perm_len(const struct perm *p, uint16_t tag)
{
	const struct perm_row *r = row_of(p, tag);

	return r ? r->g.len : 0;
}

uint64_t
perm_due(const struct perm *p, uint16_t tag)
{
	const struct perm_row *r = row_of(p, tag);

	return r ? r->g.len - r->claimed : 0;
}

unsigned
sg_slice(const struct iovec *sg, unsigned nsg, uint64_t off, uint64_t len, struct iovec *iov,
         unsigned max)
{
	unsigned n = 0;

	for (; nsg > 0 && off >= sg->iov_len; sg++, nsg--)
		off -= sg->iov_len;
	for (; nsg > 0 && len > 0; sg++, nsg--, off = 0) {
		size_t piece = MIN(sg->iov_len - off, len);

		if (piece == 0)
			continue;
		if (n == max)
			return 0;
		iov[n++] = (struct iovec){ (uint8_t *)sg->iov_base + off, piece };
		len -= piece;
	}
	return len == 0 ? n : 0;
}

enum perm_verdict
perm_span(struct perm *p, uint16_t tag, uint64_t off, uint64_t len, enum perm_dir dir,
          struct iovec *iov, unsigned max, unsigned *ret_n)
{
	struct perm_row *r = row_of(p, tag);
	uint64_t rel;

	if (!r)
		return PERM_UNKNOWN;
	if (r->g.dir != dir)
		return PERM_DIRECTION;
	if (len == 0)
		return PERM_EMPTY;
	if (off < r->g.base)
		return PERM_RANGE;
	rel = off - r->g.base;
	if (rel > r->g.len || len > r->g.len - rel)
		return PERM_RANGE;
	if (rel != r->claimed)
		return PERM_ORDER;
	*ret_n = sg_slice(r->g.sg, r->g.nsg, r->g.sg_skip + rel, len, iov, max);
	if (*ret_n == 0)
		return PERM_RANGE;
	r->claimed += len;
	return PERM_OK;
}
