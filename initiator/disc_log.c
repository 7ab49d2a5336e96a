/* The discovery log, read in pieces. See disc_log.h. */
#include "initiator/disc_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ANSWER_NS 10000000000ull /* of one Get Log Page */

enum {
	PIECE = 4096, /* bytes of a Get Log Page */
	TRIES = 10,
};

static void read_piece(struct disc_log *d, size_t at, size_t n, bool rae);

static void
fail(struct disc_log *d, const char *why)
{
	ring_timer_del(&d->timer);
	d->done(d, NULL, why);
}

/* Begins with an empty log of nr records. */
static bool
begin_log(struct disc_log *d, uint64_t nr)
{
	if (nr > DISC_RECORDS_MAX) {
		fail(d, "the discovery log has more than 4096 records");
		return false;
	}
	free(d->log);
	d->size = sizeof(*d->log) + nr * sizeof(d->log->entries[0]);
	d->at = 0;
	d->log = calloc(1, d->size);
	if (!d->log)
		fail(d, "no memory for the discovery log");
	return d->log;
}

static void
read_header(struct disc_log *d)
{
	d->at = d->size = 0;
	d->checking = false;
	if (++d->tries > TRIES)
		fail(d, "the discovery log changes all the time");
	else
		read_piece(d, 0, sizeof(*d->log), true);
}

/* The first header of all: how long the log is. */
static void
take_header(struct disc_log *d)
{
	const struct nvmf_discovery_log *h = (const struct nvmf_discovery_log *)d->piece;

	if (h->recfmt != 0)
		fail(d, "the discovery log has an unknown format");
	else if (begin_log(d, le64toh(h->numrec)))
		read_piece(d, 0, MIN(d->size, (size_t)PIECE), true);
}

static void
take_piece(struct disc_log *d)
{
	size_t n = d->part.len;

	memcpy((uint8_t *)d->log + d->at, d->piece, n);
	d->at += n;
	if (d->at < d->size) {
		read_piece(d, d->at, MIN(d->size - d->at, (size_t)PIECE), true);
		return;
	}
	d->checking = true;
	read_piece(d, 0, sizeof(*d->log), false);
}

static void
take_check(struct disc_log *d)
{
	const struct nvmf_discovery_log *h = (const struct nvmf_discovery_log *)d->piece;

	if (h->genctr != d->log->genctr || h->numrec != d->log->numrec ||
	    sizeof(*d->log) + le64toh(h->numrec) * sizeof(d->log->entries[0]) != d->size)
		read_header(d);
	else
		d->done(d, d->log, NULL);
}

static void
piece_done(struct part *p, uint16_t status, uint32_t dw0)
{
	struct disc_log *d = container_of(p, struct disc_log, part);
	char why[64];

	(void)dw0;
	if (status == PART_LOST)
		return; /* down follows */
	ring_timer_del(&d->timer);
	if (status != 0) {
		snprintf(why, sizeof(why), "Get Log Page Discovery failed with status %03xh",
		         status & NVME_STATUS_MASK);
		fail(d, why);
	} else if (d->checking) {
		take_check(d);
	} else if (d->size == 0) {
		take_header(d);
	} else {
		take_piece(d);
	}
}

static void
read_piece(struct disc_log *d, size_t at, size_t n, bool rae)
{
	uint32_t numd = (uint32_t)n / 4 - 1;
	struct part *p = &d->part;

	memset(d->piece, 0, PIECE);
	p->sqe = (struct nvme_sqe){
		.opcode = nvme_admin_get_log_page,
		.cdw10 = le32_put(NVME_LOG_LID_DISCOVER | (uint32_t)rae << 15 | numd << 16),
		.cdw11 = le32_put(numd >> 16),
		.cdw12 = le32_put((uint32_t)at),
	};
	p->len = (uint32_t)n;
	p->to_host = true;
	p->inl[0] = (struct iovec){ d->piece, n };
	p->sg = p->inl;
	p->nsg = 1;
	p->done = piece_done;
	if (assoc_send(d->assoc, p))
		ring_timer_set(d->ring, &d->timer, ring_now(d->ring) + ANSWER_NS);
}

static void
timer_fired(struct ring_timer *t)
{
	fail(container_of(t, struct disc_log, timer),
	     "Get Log Page Discovery was not answered within 10 s");
}

void
disc_log_start(struct disc_log *d)
{
	d->tries = 0;
	read_header(d);
}

void
disc_log_stop(struct disc_log *d)
{
	ring_timer_del(&d->timer);
}

int
disc_log_init(struct disc_log *d, struct ring *ring, struct assoc *assoc,
              void (*done)(struct disc_log *d, const struct nvmf_discovery_log *log,
                           const char *why))
{
	*d = (struct disc_log){ .ring = ring, .assoc = assoc, .done = done };
	ring_timer_init(&d->timer, timer_fired);
	list_init(&d->part.node);
	d->piece = malloc(PIECE);
	return d->piece ? 0 : -ENOMEM;
}

void
disc_log_fini(struct disc_log *d)
{
	free(d->piece);
	free(d->log);
}
