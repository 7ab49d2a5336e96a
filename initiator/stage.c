/* Stages: staging memory for parts, and walking VM memory. See stage.h.
 *
 * Happy path: stage_out() notes what the part is and asks the pool of its volume and reactor;
 * go() transforms and sends; stage_in() undoes and gives the memory back, which lets those go that
 * wait. What can fail: see stage.h.
 */
#include "initiator/stage.h"

#include "common/meter.h"
#include "initiator/crypt_key.h"
#include "initiator/io.h"
#include "initiator/stage_crypt.h"
#include "initiator/stage_zstd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void go(struct staged *t);

/* configuration */

void
stage_config_copy(struct stage_config *to, const struct stage_config *from)
{
	*to = *from;
	if (to->crypt.key)
		crypt_key_get(to->crypt.key);
}

void
stage_config_fini(struct stage_config *cfg)
{
	crypt_key_put(cfg->crypt.key);
	*cfg = (struct stage_config){ 0 };
}

bool
stage_config_same(const struct stage_config *a, const struct stage_config *b)
{
	if (a->kind != b->kind || a->staging != b->staging)
		return false;
	if (a->kind == STAGE_COMPRESS)
		return a->zstd.level == b->zstd.level && a->zstd.raw == b->zstd.raw;
	return a->kind != STAGE_ENCRYPT ||
	       (a->crypt.discard == b->crypt.discard && a->crypt.seal == b->crypt.seal &&
	        crypt_key_same(a->crypt.key, b->crypt.key));
}

int
stage_new(const struct stage_config *cfg, unsigned nr_reactors, uint32_t max_part,
          struct stage **ret, struct err *err)
{
	switch (cfg->kind) {
	case STAGE_ENCRYPT:
		return crypt_new(cfg, nr_reactors, max_part, ret, err);
	case STAGE_COMPRESS:
		return zstd_new(cfg, nr_reactors, ret, err);
	default:
		*ret = NULL;
		return 0;
	}
}

const char *
stage_name(const struct stage *s)
{
	if (s && s->cfg.kind == STAGE_COMPRESS)
		return "zstd";
	return s ? crypt_name(&s->cfg) : "";
}

/* pools */

int
stage_init(struct stage *s, const struct stage_ops *ops, unsigned nr_reactors,
           const struct stage_config *cfg, uint32_t room_max, struct err *err)
{
	s->ops = ops;
	stage_config_copy(&s->cfg, cfg);
	s->pools = calloc(nr_reactors, sizeof(*s->pools));
	if (!s->pools)
		return err_set(err, -ENOMEM, "no memory");
	for (; s->nr_pools < nr_reactors; s->nr_pools++) {
		int res = buf_pool_new(NULL, cfg->staging, room_max, &s->pools[s->nr_pools], err);

		if (res < 0)
			return res;
		buf_pool_hide(s->pools[s->nr_pools]);
	}
	return 0;
}

void
stage_fini(struct stage *s)
{
	while (s->nr_pools > 0)
		buf_pool_free(s->pools[--s->nr_pools]);
	free(s->pools);
	s->pools = NULL;
	stage_config_fini(&s->cfg);
}

void
stage_free(struct stage *s)
{
	if (!s)
		return;
	stage_fini(s);
	s->ops->free(s);
}

static struct buf_pool *
pool_of(const struct staged *t)
{
	return t->part->io->vol->stage->pools[t->part->io->q->r->id];
}

static struct volume_stats *
stats_of(const struct staged *t)
{
	return &t->part->io->vol->stats[t->part->io->q->r->id];
}

/* parts */

static bool
has_vm_data(uint8_t op)
{
	return op == nvme_cmd_read || op == nvme_cmd_write || op == nvme_cmd_compare;
}

static void
room_found(struct buf_wait *w, struct buf b)
{
	struct staged *t = container_of(w, struct staged, wait);

	t->buf = b;
	go(t);
}

void
staged_resize(struct staged *t, uint32_t len)
{
	assert(len <= t->buf.len);
	t->iov = (struct iovec){ t->buf.p, len };
	t->part->sg = &t->iov;
	t->part->nsg = 1;
	t->part->len = len;
}

void
staged_pass(struct staged *t)
{
	struct part *p = t->part;

	p->sqe.opcode = p->io->op;
	p->sg = t->sg;
	p->nsg = t->nsg;
	p->len = t->len;
}

/* A status of ours is for good: the part must not be sent again as it was cut. */
static void
go(struct staged *t)
{
	struct stage *s = t->part->io->vol->stage;
	uint16_t status;

	staged_resize(t, MIN(t->len, t->buf.len));
	status = s->ops->out(s, t->part->io->q->r, t);
	if (status != 0) {
		t->part->done(t->part, NVME_NO_RETRY(status), 0);
		return;
	}
	if (!t->part->to_host && t->part->sg == &t->iov)
		METER_ADD(stats_of(t)->staged_out, t->len);
	t->send(t->part);
}

void
stage_out(struct part *p, struct staged *t, uint32_t member, uint64_t off, uint32_t len,
          void (*send)(struct part *p))
{
	struct stage *s = p->io->vol->stage;
	uint32_t room;

	t->part = p;
	t->member = member;
	t->off = off;
	t->len = len;
	t->sg = p->io->nsg > 0 ? p->sg : NULL;
	t->nsg = p->io->nsg > 0 ? p->nsg : 0;
	t->buf = (struct buf){ 0 };
	t->send = send;
	buf_wait_init(&t->wait, room_found);
	room = s->ops->room(s, t);
	assert(room > 0 || s->ops->may_pass || !has_vm_data(p->io->op));
	if (room == 0)
		send(p);
	else if (buf_get(pool_of(t), room, &t->wait, &t->buf))
		go(t);
	else
		METER_ADD(stats_of(t)->stage_waits, 1);
}

bool
stage_again(struct staged *t, uint16_t status)
{
	struct stage *s = t->part->io->vol->stage;

	return t->buf.p && s->ops->again && s->ops->again(s, t, status);
}

uint16_t
stage_in(struct staged *t, uint16_t status, uint32_t dw0)
{
	struct stage *s;

	if (!t->buf.p)
		return status;
	s = t->part->io->vol->stage;
	if (status == 0) {
		status = s->ops->in(s, t->part->io->q->r, t, dw0);
		if (status == 0 && t->part->to_host && t->part->sg == &t->iov)
			METER_ADD(stats_of(t)->staged_in, t->len);
	}
	buf_put(pool_of(t), &t->buf);
	return status;
}

uint64_t
staged_run(const struct staged *t, uint32_t at, uint32_t *ret_n)
{
	const struct geometry *g = &t->part->io->vol->geo;
	uint64_t n;
	uint64_t off = split_origin(g, t->member, t->off + at, &n);

	*ret_n = (uint32_t)MIN(n, t->len - at);
	return off;
}

/* VM memory */

static size_t
piece_left(struct sg_walk *w)
{
	while (w->in == w->sg->iov_len) {
		w->sg++;
		w->in = 0;
	}
	return w->sg->iov_len - w->in;
}

uint8_t *
sg_walk_piece(struct sg_walk *w, size_t n)
{
	uint8_t *p;

	if (piece_left(w) < n)
		return NULL;
	p = (uint8_t *)w->sg->iov_base + w->in;
	w->in += n;
	return p;
}

void
sg_walk_get(struct sg_walk *w, uint8_t *dst, size_t n)
{
	while (n > 0) {
		size_t step = MIN(n, piece_left(w));

		memcpy(dst, sg_walk_piece(w, step), step);
		dst += step;
		n -= step;
	}
}

void
sg_walk_put(struct sg_walk *w, const uint8_t *src, size_t n)
{
	while (n > 0) {
		size_t step = MIN(n, piece_left(w));

		memcpy(sg_walk_piece(w, step), src, step);
		src += step;
		n -= step;
	}
}
