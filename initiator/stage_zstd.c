/* Packing writes, asking for packed reads. See stage_zstd.h; common/zframe.h has the frame,
 * common/zip.h the commands.
 *
 * zstd_room() decides whether a part is tried at all, zstd_out() makes it what it is sent as, and
 * zstd_in() looks at the opcode to know what came of it. All of a reactor's state is its own.
 */
#include "initiator/stage_zstd.h"

#include "common/log.h"
#include "common/meter.h"
#include "common/zframe.h"
#include "common/zip.h"
#include "initiator/io.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
	MISSES = 4,     /* parts in a row that did not shrink, until some are skipped... */
	SKIP_MAX = 256, /* ...four for each miss, at most so many */
};

struct luck { /* of one direction: whether to try the next part */
	unsigned misses, skip;
};

struct side { /* of a reactor */
	struct zframe *z;
	struct luck write, read;
	/* METER_GET. raw: bytes of the VM, wire: what they were sent or received as. */
	uint64_t out_raw, out_wire, out_ns, in_raw, in_wire, in_ns;
	uint64_t unable; /* parts sent again as they are, because a target cannot */
	uint64_t bad;    /* frames that were not what they should be */
} __attribute__((aligned(64)));

struct zstd {
	struct stage stage;
	unsigned nr_sides;
	struct side *sides;
};

static struct side *
side_of(const struct stage *s, const struct reactor *r)
{
	return &container_of(s, struct zstd, stage)->sides[r->id];
}

static uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct zframe_data
vm_data(const struct staged *t)
{
	unsigned shift = t->part->io->vol->lba_shift;

	return (struct zframe_data){ .sg = t->sg, .shift = shift, .blocks = t->len >> shift };
}

/* whether to try */

static bool
luck_tries(struct luck *l)
{
	if (l->skip == 0)
		return true;
	l->skip--;
	return false;
}

static void
luck_tell(struct luck *l, bool shrunk)
{
	l->misses = shrunk ? 0 : l->misses + 1;
	if (l->misses >= MISSES)
		l->skip = MIN(l->misses * 4, (unsigned)SKIP_MAX);
}

/* Its path is there, and its target cannot. */
static bool
is_hopeless(const struct staged *t)
{
	const struct path *p = member_path(t->part->member, NULL);

	return p && path_state(p) == PATH_LIVE && path_zip_max(p) < t->len;
}

static uint32_t
zstd_room(const struct stage *s, const struct staged *t)
{
	struct side *side = side_of(s, t->part->io->q->r);
	bool read = t->part->io->op == nvme_cmd_read;

	if (!read && t->part->io->op != nvme_cmd_write)
		return 0;
	if (!(s->cfg.zstd.raw && is_hopeless(t)) && luck_tries(read ? &side->read : &side->write))
		return read ? t->len : zframe_limit(t->len);
	METER_ADD(*(read ? &side->in_raw : &side->out_raw), t->len);
	METER_ADD(*(read ? &side->in_wire : &side->out_wire), t->len);
	return 0;
}

/* out */

static void
pack(struct stage *s, struct side *side, struct staged *t)
{
	struct zframe_data d = vm_data(t);
	uint64_t since = now_ns();
	uint32_t n = zframe_pack(side->z, s->cfg.zstd.level, &d, t->buf.p);

	METER_ADD(side->out_ns, now_ns() - since);
	luck_tell(&side->write, n > 0);
	if (n == 0) {
		staged_pass(t);
		return;
	}
	staged_resize(t, n);
	t->part->sqe.opcode = ZIP_WRITE;
}

static uint16_t
zstd_out(struct stage *s, struct reactor *r, struct staged *t)
{
	if (t->part->to_host) {
		t->part->sqe.opcode = ZIP_READ;
		t->part->sqe.cdw13 = le32_put((uint8_t)s->cfg.zstd.level);
	} else {
		pack(s, side_of(s, r), t);
	}
	return 0;
}

static bool
zstd_again(struct stage *s, struct staged *t, uint16_t status)
{
	uint8_t op = t->part->sqe.opcode;

	if ((op != ZIP_READ && op != ZIP_WRITE) || !s->cfg.zstd.raw ||
	    (status & NVME_STATUS_MASK) != NVME_SC_INVALID_OPCODE)
		return false;
	METER_ADD(side_of(s, t->part->io->q->r)->unable, 1);
	staged_pass(t);
	return true;
}

/* in */

/* Said once for so many that a hostile target does not fill the log. */
static void
tell_bad(struct side *side, const struct staged *t, const char *why)
{
	METER_ADD(side->bad, 1);
	if ((side->bad & (side->bad - 1)) == 0)
		log_error("volume %s: namespace %u of %s sent a bad frame: %s (%llu until now)",
		          t->part->io->vol->name, t->part->member->nsid, t->part->member->nqn, why,
		          (unsigned long long)side->bad);
}

static uint16_t
unpack(struct side *side, struct staged *t, uint32_t n)
{
	struct zframe_data d = vm_data(t);
	uint64_t since = now_ns();
	const char *why = zframe_unpack(side->z, t->buf.p, n, &d);

	METER_ADD(side->in_ns, now_ns() - since);
	if (!why)
		return 0;
	tell_bad(side, t, why);
	return NVME_NO_RETRY(NVME_SC_DATA_XFER_ERROR);
}

static uint16_t
zstd_in(struct stage *s, struct reactor *r, struct staged *t, uint32_t dw0)
{
	struct side *side = side_of(s, r);
	struct sg_walk w = sg_walk_start(t);
	uint32_t wire = t->part->len;
	bool zip = t->part->sqe.opcode == ZIP_READ;

	if (!t->part->to_host) {
		METER_ADD(side->out_raw, t->len);
		METER_ADD(side->out_wire, wire);
		return 0;
	}
	METER_ADD(side->in_raw, t->len);
	METER_ADD(side->in_wire, zip && dw0 ? dw0 : wire);
	if (!zip)
		return 0;
	luck_tell(&side->read, dw0 > 0);
	if (dw0 > 0)
		return unpack(side, t, dw0);
	sg_walk_put(&w, t->buf.p, t->len);
	return 0;
}

/* all of it */

static bool
zstd_allows(const struct stage *s, uint8_t opcode)
{
	(void)s;
	(void)opcode;
	return true;
}

static uint16_t
zstd_oncs(const struct stage *s, uint16_t oncs)
{
	(void)s;
	return oncs;
}

static void
zstd_free(struct stage *s)
{
	struct zstd *z = container_of(s, struct zstd, stage);

	while (z->nr_sides > 0)
		zframe_free(z->sides[--z->nr_sides].z);
	free(z->sides);
	free(z);
}

void
zstd_report(const struct stage *s, struct conf_writer *w)
{
	const struct zstd *z = container_of(s, struct zstd, stage);
	struct side sum = { 0 };

	for (unsigned i = 0; i < z->nr_sides; i++) {
		const struct side *side = &z->sides[i];

		sum.out_raw += METER_GET(side->out_raw);
		sum.out_wire += METER_GET(side->out_wire);
		sum.out_ns += METER_GET(side->out_ns);
		sum.in_raw += METER_GET(side->in_raw);
		sum.in_wire += METER_GET(side->in_wire);
		sum.in_ns += METER_GET(side->in_ns);
		sum.unable += METER_GET(side->unable);
		sum.bad += METER_GET(side->bad);
	}
	conf_begin_object(w, "compression");
	conf_put_u64(w, "write_raw_bytes", sum.out_raw);
	conf_put_u64(w, "write_wire_bytes", sum.out_wire);
	conf_put_u64(w, "compress_us", sum.out_ns / 1000);
	conf_put_u64(w, "read_raw_bytes", sum.in_raw);
	conf_put_u64(w, "read_wire_bytes", sum.in_wire);
	conf_put_u64(w, "decompress_us", sum.in_ns / 1000);
	conf_put_u64(w, "sent_again_raw", sum.unable);
	conf_put_u64(w, "bad_frames", sum.bad);
	conf_end(w);
}

static const struct stage_ops ops = {
	.room = zstd_room,
	.out = zstd_out,
	.in = zstd_in,
	.again = zstd_again,
	.may_pass = true,
	.allows = zstd_allows,
	.oncs = zstd_oncs,
	.free = zstd_free,
};

static int
make_sides(struct zstd *z, unsigned nr)
{
	z->sides = aligned_alloc(sizeof(*z->sides), nr * sizeof(*z->sides));
	if (!z->sides)
		return -ENOMEM;
	memset(z->sides, 0, nr * sizeof(*z->sides));
	for (; z->nr_sides < nr; z->nr_sides++) {
		z->sides[z->nr_sides].z = zframe_new();
		if (!z->sides[z->nr_sides].z)
			return -ENOMEM;
	}
	return 0;
}

int
zstd_new(const struct stage_config *cfg, unsigned nr_reactors, struct stage **ret, struct err *err)
{
	struct zstd *z = calloc(1, sizeof(*z));
	int res;

	if (!z)
		return err_set(err, -ENOMEM, "no memory");
	res = stage_init(&z->stage, &ops, nr_reactors, cfg, ZFRAME_RAW_MAX, err);
	if (!res && make_sides(z, nr_reactors))
		res = err_set(err, -ENOMEM, "no memory for zstd");
	if (res) {
		stage_fini(&z->stage);
		zstd_free(&z->stage);
		return res;
	}
	*ret = &z->stage;
	return 0;
}
