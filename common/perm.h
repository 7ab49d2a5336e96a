/* The permission table: a peer's tag, offset and length become memory here, and nowhere else.
 *
 * A grant is a row: this tag may move these bytes of this SG list in this direction, in order,
 * each once. The happy path: perm_grant() when a transfer is announced, perm_span() for every
 * data PDU that names the tag, perm_revoke() when it ended. Tags carry a generation, so that
 * a tag of a finished transfer finds nothing.
 *
 * What can fail: perm_span() says why in a word (PERM_UNKNOWN...); the caller makes a fault of it.
 * Nothing is logged here.
 */
#ifndef SLUICE_PERM_H
#define SLUICE_PERM_H

#include "common/wire.h"

#include <stdbool.h>
#include <sys/uio.h>

/* the peer's bytes are written to / read from our memory */
enum perm_dir { PERM_WRITE, PERM_READ };

enum perm_verdict {
	PERM_OK,
	PERM_UNKNOWN,           /* no such tag, or its grant has ended */
	PERM_DIRECTION,
	PERM_RANGE,             /* outside the granted bytes */
	PERM_ORDER,             /* not the next byte that is due: gap, repeat, overlap */
	PERM_EMPTY,             /* zero length */
	PERM_NR
};

struct perm_grant {
	const struct iovec *sg; /* borrowed until revoke */
	unsigned nsg;
	uint64_t base;          /* offset, in the peer's terms, of the first granted byte */
	uint64_t len;           /* granted bytes: the SG list from sg_skip on */
	uint64_t sg_skip;       /* bytes of the SG list in front of the first granted byte */
	void *owner;            /* what the grant belongs to; opaque */
	enum perm_dir dir;
};

struct perm_row;

struct perm {
	struct perm_row *rows;
	unsigned nr, used;
	uint16_t free;          /* head of the free list */
};

int perm_init(struct perm *p, unsigned nr); /* nr 1..32768 live grants; -ENOMEM */
void perm_fini(struct perm *p);

/* False when all rows are in use. */
bool perm_grant(struct perm *p, const struct perm_grant *g, uint16_t *ret_tag);
void perm_revoke(struct perm *p, uint16_t tag); /* tag must be live */

/* The owner of a live tag, or NULL. */
void *perm_owner(const struct perm *p, uint16_t tag);

/* Judges [off, off + len) of tag and takes it off what is due. PERM_OK fills at most max entries
 * of iov; *ret_n tells how many; when the span needs more than max it is PERM_RANGE, so
 * offer as many as the grant's SG list has. */
enum perm_verdict perm_span(struct perm *p, uint16_t tag, uint64_t off, uint64_t len,
                            enum perm_dir dir, struct iovec *iov, unsigned max, unsigned *ret_n);

uint64_t perm_len(const struct perm *p, uint16_t tag); /* bytes that a live tag was granted */
uint64_t perm_due(const struct perm *p, uint16_t tag); /* bytes of a live tag not yet claimed */

/* Cuts [off, off + len) out of an SG list; returns the entries written, or 0 if it does not fit
 * into max entries or lies outside. */
unsigned sg_slice(const struct iovec *sg, unsigned nsg, uint64_t off, uint64_t len,
                  struct iovec *iov, unsigned max);

#endif
