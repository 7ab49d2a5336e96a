/* Any bytes as a frame of compressed blocks: they become exactly the blocks, or are refused. Any
 * bytes as blocks: what is packed comes back.
 *
 * Input: byte 0: bit 7 pack or unpack, bits 2:0 log2 of the block size - 9; byte 1: blocks - 1;
 * then the frame, or the blocks (repeated until there are enough).
 */
#include "common/zframe.h"

#include <stdlib.h>

enum { PACK = 0x80 };

static struct zframe *z;
static uint8_t blocks[ZFRAME_RAW_MAX], frame[ZFRAME_RAW_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
must(bool ok)
{
	if (!ok)
		abort();
}

/* Into memory of exactly the blocks' size, in two pieces. */
static const char *
unpack(const uint8_t *p, size_t n, unsigned shift, uint32_t nr, const uint8_t *want)
{
	size_t raw = (size_t)nr << shift;
	uint8_t *out = malloc(raw);
	struct iovec sg[2] = { { out, raw / 3 }, { out + raw / 3, raw - raw / 3 } };
	struct zframe_data d = { sg, shift, nr };
	const char *why;

	must(out);
	why = zframe_unpack(z, p, (uint32_t)n, &d);
	must(!want || (!why && memcmp(out, want, raw) == 0));
	free(out);
	return why;
}

static void
pack(const uint8_t *p, size_t n, unsigned shift, uint32_t nr)
{
	size_t raw = (size_t)nr << shift;
	struct iovec sg = { blocks, raw };
	struct zframe_data d = { &sg, shift, nr };
	uint32_t len;

	for (size_t i = 0; i < raw; i++)
		blocks[i] = p[i % n];
	len = zframe_pack(z, (int)(n % 20) - 10, &d, frame);
	must(len <= zframe_limit((uint32_t)raw));
	if (len > 0)
		unpack(frame, len, shift, nr, blocks);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned shift;
	uint32_t nr;

	if (!z)
		z = zframe_new();
	must(z);
	if (size < 3)
		return 0;
	shift = ZFRAME_SHIFT_MIN + (data[0] & 7) % (ZFRAME_SHIFT_MAX - ZFRAME_SHIFT_MIN + 1);
	nr = MIN((uint32_t)data[1] + 1, (uint32_t)ZFRAME_RAW_MAX >> shift);
	if (data[0] & PACK)
		pack(data + 2, size - 2, shift, nr);
	else
		unpack(data + 2, size - 2, shift, nr, NULL);
	return 0;
}
