/* Any bytes in a guest's memory, written at any time: rings and requests stay inside what they were
 * given, and end.
 *
 * Input: byte 0 chooses format and features, byte 1 the size; then records. A record begins with
 * its kind: bytes for the guest's memory or for the inflight region (offset u16, length u8, bytes),
 * pop, push and flush, arm and disarm, or the death of the device and another's start. Every chain
 * becomes a request, whose data is written as an I/O would.
 */
#include "initiator/vblk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { /* byte 0 */
       IN_PACKED = 1,
       IN_EVENT_IDX = 2,
       IN_INDIRECT = 4,
       IN_REGION = 8,
};

enum { WRITE, WRITE_REGION, POP, PUSH, KICKS, DIE, KINDS };

enum { /* the guest's memory: two regions that touch */
       RAM = 16 << 10,
       AVAIL = 0x800,
       USED = 0xc00,
       SIZE_MAX_HERE = 64,
};

struct run {
	struct vring v;
	struct vring_setup setup;
	uint8_t *region;
	struct vblk_req req[SIZE_MAX_HERE];
	struct io io[SIZE_MAX_HERE];
	uint16_t have[SIZE_MAX_HERE];
	unsigned nr;
};

static struct mem_table *mem;
static uint8_t *ram;
static struct volume vol = { .bytes = 1 << 20, .lba_shift = 9 };
static struct iovec sg[SIZE_MAX_HERE][IO_SG_MAX];
static struct vblk_dev dev = { .vol = &vol, .discard = true, .write_zeroes = true };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
must(bool ok)
{
	if (!ok)
		abort();
}

static void
make_memory(void)
{
	struct mem_table *empty = mem_table_new(), *half;
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t low = 0, high = RAM / 2;

	must(fd >= 0 && ftruncate(fd, RAM) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(ram != MAP_FAILED);
	must(mem_table_add(empty, dup(fd), 0, RAM / 2, true, &low, &half, NULL) == 0);
	must(mem_table_add(half, fd, RAM / 2, RAM / 2, true, &high, &mem, NULL) == 0);
	mem_table_put(empty);
	mem_table_put(half);
}

static bool
start(struct run *r)
{
	const char *why = NULL;
	int res = vring_start(&r->v, &r->setup, &why);

	must((res == 0) == (why == NULL));
	r->nr = 0;
	return res == 0;
}

/* What an I/O would do with its memory. */
static void
touch(const struct io *io)
{
	for (unsigned i = 0; i < io->nsg; i++)
		memset(io->sg[i].iov_base, 0x11, io->sg[i].iov_len);
	must(io->len <= 64 << 20 && io->off <= vol.bytes && io->len <= vol.bytes - io->off);
}

static void
pop(struct run *r)
{
	static struct vring_chain c;
	const char *why = NULL;
	enum vring_popped res = vring_pop(&r->v, mem, &c);
	struct io *io;

	must((res == VRING_BROKEN) == (r->v.why != NULL));
	if (res != VRING_CHAIN)
		return;
	must(c.token < r->v.size && c.nr <= VRING_CHAIN_MAX && c.nr_out <= c.nr);
	must(r->nr < r->v.size && r->v.busy > r->nr);
	for (unsigned i = 0; i < r->nr; i++)
		must(r->have[i] != c.token);
	io = &r->io[c.token];
	*io = (struct io){ .sg = sg[c.token] };
	switch (vblk_begin(&dev, mem, &c, &r->req[c.token], io, &why)) {
	case VBLK_START:
		touch(io);
		r->have[r->nr++] = c.token;
		break;
	case VBLK_ANSWERED:
		vring_push(&r->v, c.token, r->req[c.token].written);
		break;
	case VBLK_BROKEN:
		must(why != NULL);
		vring_break(&r->v, why);
		break;
	}
}

static void
push(struct run *r, unsigned k)
{
	uint16_t token = r->have[k];

	while (vblk_next(&r->req[token], &r->io[token]))
		touch(&r->io[token]);
	vring_push(&r->v, token, r->req[token].written);
	r->have[k] = r->have[--r->nr];
}

/* Bytes of a record into a block; returns how many of the input they were. */
static size_t
write_to(uint8_t *block, size_t block_size, const uint8_t *data, size_t size)
{
	size_t off, len;

	if (size < 3)
		return size;
	off = (data[0] | data[1] << 8) % block_size;
	len = MIN(data[2], MIN(size - 3, block_size - off));
	memcpy(block + off, data + 3, len);
	return 3 + len;
}

static size_t
record(struct run *r, const uint8_t *data, size_t size)
{
	switch (data[0] % KINDS) {
	case WRITE:
		return 1 + write_to(ram, RAM, data + 1, size - 1);
	case WRITE_REGION:
		return 1 + write_to(r->region, vring_inflight_size(r->setup.size, r->setup.packed),
		                    data + 1, size - 1);
	case POP:
		for (unsigned i = 0; i <= data[0] / KINDS % 8u; i++)
			pop(r);
		return 1;
	case PUSH:
		for (unsigned i = 0; i <= data[0] / KINDS % 4u && r->nr > 0; i++)
			push(r, data[0] % r->nr);
		vring_flush(&r->v);
		return 1;
	case KICKS:
		if (data[0] / KINDS % 2)
			vring_arm(&r->v);
		else
			vring_disarm(&r->v);
		vring_has_work(&r->v);
		return 1;
	default: /* DIE */
		vring_end(&r->v);
		return start(r) ? 1 : size;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run r = { 0 };
	bool packed;

	if (size < 2)
		return 0;
	if (!ram)
		make_memory();
	memset(ram, 0, RAM);
	packed = data[0] & IN_PACKED;
	r.setup = (struct vring_setup){
		.size = packed ? 1u + data[1] % SIZE_MAX_HERE : 1u << data[1] % 7,
		.packed = packed,
		.event_idx = data[0] & IN_EVENT_IDX,
		.indirect = data[0] & IN_INDIRECT,
		.at = { ram, ram + AVAIL, ram + USED },
		.base = packed ? 0x80008000 : 0,
	};
	r.region = calloc(1, vring_inflight_size(r.setup.size, packed));
	must(r.region != NULL);
	if (data[0] & IN_REGION)
		r.setup.inflight = r.region;
	if (start(&r))
		for (size_t at = 2; at < size;)
			at += record(&r, data + at, size - at);
	vring_end(&r.v);
	free(r.region);
	return 0;
}
