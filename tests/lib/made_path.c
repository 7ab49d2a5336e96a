/* Paths that are made up. See made_path.h. */
#include "tests/lib/made_path.h"

#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

void
made_path_init(struct path *p, size_t image, unsigned block)
{
	*p = (struct path){
		.state = PATH_LIVE,
		.image = image ? calloc(1, image) : NULL,
		.block = block,
	};
	list_init(&p->sent);
}

void
made_path_fini(struct path *p)
{
	free(p->image);
	p->image = NULL;
}

/* initiator/path.h */

uint32_t
path_zip_max(const struct path *p)
{
	(void)p;
	return 0;
}

enum path_state
path_state(const struct path *p)
{
	return p->state;
}

void
path_send(struct reactor *r, struct path *p, struct part *part)
{
	(void)r;
	if (p->look)
		p->look(part);
	list_push_back(&p->sent, &part->node);
	p->nr_sent++;
}

/* the test's side */

static void
carry_out(const struct path *p, const struct part *part)
{
	uint8_t *at = p->image + (uint64_t)le32_get(part->sqe.cdw10) * p->block;

	for (unsigned i = 0; i < part->nsg; i++) {
		const struct iovec *v = &part->sg[i];

		if (part->sqe.opcode == nvme_cmd_read)
			memcpy(v->iov_base, at, v->iov_len);
		else if (part->sqe.opcode == nvme_cmd_write)
			memcpy(at, v->iov_base, v->iov_len);
		at += v->iov_len;
	}
}

struct part *
made_path_first(const struct path *p)
{
	return list_entry(list_first(&p->sent), struct part, node);
}

bool
made_path_end_one(struct path *p, uint16_t status)
{
	struct list *n = list_pop_front(&p->sent);
	struct part *part = n ? list_entry(n, struct part, node) : NULL;

	if (!part)
		return false;
	p->nr_ended++;
	if (status == 0 && p->image)
		carry_out(p, part);
	part->done(part, status, 0);
	return true;
}

void
made_path_end_all(struct path *p, unsigned nr, uint16_t status)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < nr; i++)
			more |= made_path_end_one(&p[i], status);
	}
}

void
made_scatter(struct io *io, uint8_t *at, uint32_t most, uint64_t *seed)
{
	uint64_t left = io->len;

	for (io->nsg = 0; left > 0; io->nsg++) {
		uint64_t n = io->nsg == IO_SG_MAX - 1 ? left : 1 + unit_random(seed) % most;

		n = MIN(n, left);
		io->sg[io->nsg] = (struct iovec){ at, n };
		at += n + unit_random(seed) % 4;
		left -= n;
	}
}
