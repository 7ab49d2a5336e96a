/* Packing and unpacking blocks. See zframe.h for the frame.
 *
 * Packing copies each block to our own memory and looks at a sample of it first: bytes that are as
 * evenly spread as random ones do not shrink, and to count them costs a twentieth of trying. When
 * too few blocks promise anything nothing is copied at all. Then each block is copied to our own
 * memory and compressed from there to its place in the frame.
 *
 * Unpacking checks header and table before any block, then each block's zstd header: exactly one
 * frame, of exactly the block's size, without a dictionary. zstd decodes in one shot into a block
 * of ours, so it needs neither a window nor any memory that the frame asks for.
 */
#include "common/zframe.h"

#include <stdlib.h>
#include <zstd.h>

enum {
	BLOCK_MAX = 1 << ZFRAME_SHIFT_MAX,
	SAMPLE_PIECES = 8, /* of a block, evenly spread... */
	SAMPLE_PIECE = 64, /* ...bytes of each */
	SAMPLE = SAMPLE_PIECES * SAMPLE_PIECE,
	/* Sum of the squares of how often each byte occurs in the sample: random bytes give
	 * SAMPLE + SAMPLE * (SAMPLE - 1) / 256 = 1534, standard deviation 45. Base64, which shrinks
	 * by a quarter, gives 4600. */
	SAMPLE_RANDOM = 1720,
	WORTH_SHIFT = 4, /* a sixteenth must be saved */
};

static const uint8_t magic[4] = { 'S', 'Z', 'F', '1' };

struct zframe {
	ZSTD_CCtx *cctx;
	ZSTD_DCtx *dctx;
	uint8_t block[BLOCK_MAX];
};

/* SG lists */

struct cursor {
	const struct iovec *sg;
	size_t at; /* bytes of *sg that are behind us */
};

/* The next n bytes to buf, or from buf. The list is long enough. */
static void
cursor_move(struct cursor *c, uint8_t *buf, size_t n, bool from_buf)
{
	while (n > 0) {
		size_t piece = MIN(n, c->sg->iov_len - c->at);
		uint8_t *p = (uint8_t *)c->sg->iov_base + c->at;

		if (from_buf)
			memcpy(p, buf, piece);
		else
			memcpy(buf, p, piece);
		buf += piece;
		n -= piece;
		c->at += piece;
		if (c->at == c->sg->iov_len && n > 0) {
			c->sg++;
			c->at = 0;
		}
	}
}

static struct cursor
cursor_of(const struct zframe_data *d)
{
	return (struct cursor){ d->sg, 0 };
}

/* packing */

uint32_t
zframe_limit(uint32_t raw)
{
	return raw - (raw >> WORTH_SHIFT);
}

static uint32_t
table_end(uint32_t blocks)
{
	return (uint32_t)(sizeof(struct zframe_hdr) + blocks * sizeof(le16));
}

/* Does a block look as if it shrinks? */
static bool
promising(const uint8_t *block, uint32_t size)
{
	uint32_t stride = size / SAMPLE_PIECES, sum = 0;
	uint16_t count[256] = { 0 };

	for (unsigned i = 0; i < SAMPLE_PIECES; i++)
		for (unsigned j = 0; j < SAMPLE_PIECE; j++)
			count[block[i * stride + j]]++;
	for (unsigned i = 0; i < ARRAY_SIZE(count); i++)
		sum += (uint32_t)count[i] * count[i];
	return sum > SAMPLE_RANDOM;
}

/* The next block, stored at dst where room bytes are left. Returns the bytes; 0: no room.
 * *ret_len: the table's word. */
static uint32_t
store_block(struct zframe *z, int level, uint32_t size, uint8_t *dst, uint32_t room, le16 *ret_len)
{
	uint32_t most = MIN(room, zframe_limit(size));
	size_t n = 0;

	if (promising(z->block, size))
		n = ZSTD_compressCCtx(z->cctx, dst, most, z->block, size, level);
	if (n > 0 && !ZSTD_isError(n)) {
		*ret_len = le16_put((uint16_t)n);
		return (uint32_t)n;
	}
	if (size > room)
		return 0;
	*ret_len = le16_put(0);
	memcpy(dst, z->block, size);
	return size;
}

uint32_t
zframe_pack(struct zframe *z, int level, const struct zframe_data *d, uint8_t *dst)
{
	uint32_t size = 1u << d->shift, limit = zframe_limit(d->blocks << d->shift);
	uint32_t at = table_end(d->blocks);
	le16 *table = (le16 *)(dst + sizeof(struct zframe_hdr));
	struct cursor c = cursor_of(d);

	for (uint32_t i = 0; i < d->blocks; i++) {
		uint32_t n;

		cursor_move(&c, z->block, size, false);
		n = at < limit ? store_block(z, level, size, dst + at, limit - at, &table[i]) : 0;
		if (n == 0)
			return 0;
		at += n;
	}
	*(struct zframe_hdr *)dst = (struct zframe_hdr){
		.magic = { magic[0], magic[1], magic[2], magic[3] },
		.blocks = le16_put((uint16_t)d->blocks),
		.shift = (uint8_t)d->shift,
	};
	return at;
}

/* unpacking */

/* Header and table, against what the transfer is for: every length, and their sum. */
static const char *
judge(const uint8_t *frame, uint32_t len, const struct zframe_data *d)
{
	const struct zframe_hdr *h = (const struct zframe_hdr *)frame;
	const le16 *table = (const le16 *)(frame + sizeof(*h));
	uint32_t size = 1u << d->shift;
	uint64_t sum = table_end(d->blocks);

	if (len < sum)
		return "it ends in its table";
	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->rsvd != 0)
		return "it is no frame";
	if (le16_get(h->blocks) != d->blocks || h->shift != d->shift)
		return "it is of other blocks";
	for (uint32_t i = 0; i < d->blocks; i++) {
		uint32_t n = le16_get(table[i]);

		if (n >= size)
			return "a block is stored longer than it is";
		sum += n ? n : size;
	}
	return sum == len ? NULL : "its length is not that of its blocks";
}

static const char *
decode_block(struct zframe *z, const uint8_t *p, uint32_t n, uint32_t size)
{
	if (ZSTD_findFrameCompressedSize(p, n) != n)
		return "a block is not one zstd frame";
	if (ZSTD_getFrameContentSize(p, n) != size)
		return "a block tells another size";
	if (ZSTD_getDictID_fromFrame(p, n) != 0)
		return "a block wants a dictionary";
	if (ZSTD_decompressDCtx(z->dctx, z->block, size, p, n) != size)
		return "a block cannot be decompressed";
	return NULL;
}

const char *
zframe_unpack(struct zframe *z, const uint8_t *frame, uint32_t len, const struct zframe_data *d)
{
	const char *why = judge(frame, len, d);
	const le16 *table = (const le16 *)(frame + sizeof(struct zframe_hdr));
	const uint8_t *p = frame + table_end(d->blocks);
	uint32_t size = 1u << d->shift;
	struct cursor c = cursor_of(d);

	for (uint32_t i = 0; !why && i < d->blocks; i++) {
		uint32_t n = le16_get(table[i]);

		if (n > 0)
			why = decode_block(z, p, n, size);
		else
			memcpy(z->block, p, n = size);
		if (!why)
			cursor_move(&c, z->block, size, true);
		p += n;
	}
	return why;
}

/* contexts */

/* The largest memory that any level takes is taken now. */
static bool
prime(struct zframe *z)
{
	uint8_t *dst = malloc(ZSTD_COMPRESSBOUND(BLOCK_MAX));
	bool good = dst != NULL;

	for (int level = 1; good && level <= ZFRAME_LEVEL_MAX; level++)
		good = !ZSTD_isError(ZSTD_compressCCtx(z->cctx, dst, ZSTD_COMPRESSBOUND(BLOCK_MAX),
		                                       z->block, BLOCK_MAX, level));
	free(dst);
	return good;
}

struct zframe *
zframe_new(void)
{
	struct zframe *z = calloc(1, sizeof(*z));

	if (!z)
		return NULL;
	z->cctx = ZSTD_createCCtx();
	z->dctx = ZSTD_createDCtx();
	if (z->cctx && z->dctx && prime(z))
		return z;
	zframe_free(z);
	return NULL;
}

void
zframe_free(struct zframe *z)
{
	if (!z)
		return;
	ZSTD_freeCCtx(z->cctx);
	ZSTD_freeDCtx(z->dctx);
	free(z);
}
