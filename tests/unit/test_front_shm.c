/* The shared-memory front with a disk in memory behind it instead of io.c: what clients may do, and
 * what they may not.
 *
 * The reactor runs on a thread of its own; the tests are its clients, well-behaved ones by
 * libsluice and hostile ones by hand. "hold" keeps commands in flight until a test lets them go.
 */
#include "initiator/front_shm.h"

#include "initiator/client/sluice.h"
#include "initiator/io.h"
#include "initiator/vf.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK = 512, DISK = 1 << 20, CONTEXTS = IO_CONTEXTS, WAIT_MS = 20000 };

/* the disk: what of io.c and vf.c the front needs */

static uint8_t disk[DISK];
static struct volume vol = {
	.name = "vol0", .lba_shift = 9, .bytes = DISK, .max_transfer = 256 << 10
};
static struct io ios[CONTEXTS];
static struct iovec sgs[CONTEXTS][IO_SG_MAX];
static struct list free_ios = LIST_INIT(free_ios);
static _Atomic int hold = -1; /* opcode that is kept in flight, -1: none */
static _Atomic bool nobody;
static _Atomic unsigned live_vfs, started;

struct io *
io_get(struct reactor *r)
{
	struct list *n = list_pop_front(&free_ios);

	(void)r;
	return n ? list_entry(n, struct io, node) : NULL;
}

void
io_put(struct io *io)
{
	mem_table_put(io->mem);
	io->mem = NULL;
	list_push_front(&free_ios, &io->node);
}

void
io_go(struct io *io)
{
	list_push_back(&io->q->r->ready, &io->node);
}

void
io_start(struct io *io)
{
	io->q->inflight++;
	io->status = 0;
	io->result = 0;
	started++;
	io_go(io);
}

static void
serve(struct io *io)
{
	uint64_t off = io->off;

	for (unsigned i = 0; i < io->nsg; off += io->sg[i++].iov_len) {
		if (io->op == nvme_cmd_write)
			memcpy(disk + off, io->sg[i].iov_base, io->sg[i].iov_len);
		else if (io->op == nvme_cmd_read)
			memcpy(io->sg[i].iov_base, disk + off, io->sg[i].iov_len);
	}
	if (io->op == nvme_cmd_write_zeroes)
		memset(disk + io->off, 0, io->len);
}

void
io_turn(struct reactor *r)
{
	struct io *io, *tmp;

	list_for_each_safe (&r->ready, io, tmp, node) {
		struct vq *q = io->q;

		if (io->op == hold)
			continue;
		list_del(&io->node);
		serve(io);
		q->inflight--;
		q->ops->complete(q, io);
		io_put(io);
		q->ops->flush(q);
		if (q->ending && q->inflight == 0)
			q->ended(q);
	}
}

struct vf *
vf_for_peer(struct initiator *in, uint32_t uid, uint32_t pid, struct err *err)
{
	struct vf *vf = nobody ? NULL : calloc(1, sizeof(*vf));

	(void)pid;
	if (!vf) {
		err_set(err, -EACCES, "no entry of \"vms\" has uid %u", uid);
		return NULL;
	}
	vf->in = in;
	vf->disks[0] = &vol;
	list_push_back(&in->vfs, &vf->node);
	live_vfs++;
	return vf;
}

int
vf_disk_find(struct vf *vf, const char *name, uint32_t index, struct sluice_volume *ret)
{
	(void)vf;
	if (name[0] ? strcmp(name, vol.name) != 0 : index != 0)
		return -ENOENT;
	*ret = (struct sluice_volume){
		.nsid = 1, .block = BLOCK, .blocks = DISK / BLOCK, .max_transfer = 256 << 10
	};
	memcpy(ret->name, vol.name, sizeof(ret->name));
	return 0;
}

void
vf_put(struct vf *vf)
{
	list_del(&vf->node);
	live_vfs--;
	free(vf);
}

/* the daemon */

static struct initiator in;
static struct reactor reactor;
static char path[100];
static pthread_t thread;
static _Atomic int up;
static _Atomic bool stop_wanted, changed_wanted;
static bool stopped;

static void
turn_hook(void *arg)
{
	struct reactor *r = arg;

	front_poll(r);
	io_turn(r);
}

static void
on_stopped(void *arg)
{
	(void)arg;
	stopped = true;
}

/* Looks every millisecond for what the test wants. */
static void
tick(struct ring_timer *t)
{
	ring_timer_set(reactor.ring, t, ring_now(reactor.ring) + 1000000);
	if (atomic_exchange(&changed_wanted, false))
		front_volume_changed(&in, &vol);
	if (atomic_exchange(&stop_wanted, false))
		front_shm_stop(in.shm, on_stopped, NULL);
}

static void *
daemon_thread(void *arg)
{
	struct ring_config cfg = { .entries = 64, .max_bufs = 1, .name = "test" };
	struct ring_timer timer;
	struct err err = { 0 };

	(void)arg;
	if (ring_new(&cfg, &reactor.ring, &err) < 0 ||
	    front_shm_new(&in, path, &in.shm, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		up = -1;
		return NULL;
	}
	ring_set_turn_hook(reactor.ring, turn_hook, &reactor);
	ring_set_idle_hook(reactor.ring, front_idle, &reactor);
	ring_timer_init(&timer, tick);
	tick(&timer);
	up = 1;
	while (!stopped)
		ring_turn(reactor.ring);
	ring_timer_del(&timer);
	front_shm_free(in.shm);
	ring_free(reactor.ring);
	return NULL;
}

static void
start(void)
{
	memset(&in, 0, sizeof(in));
	memset(&reactor, 0, sizeof(reactor));
	hold = -1;
	nobody = stopped = false;
	started = 0;
	list_init(&free_ios);
	list_init(&reactor.vqs);
	list_init(&reactor.ready);
	for (unsigned i = 0; i < CONTEXTS; i++) {
		ios[i].sg = sgs[i];
		list_push_back(&free_ios, &ios[i].node);
	}
	pthread_mutex_init(&in.lock, NULL);
	reactor.in = &in;
	in.reactors = &reactor;
	list_init(&in.vfs);
	in.nr_reactors = 1;
	snprintf(path, sizeof(path), "%s/test_front_shm.%d",
	         getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", getpid());
	up = 0;
	pthread_create(&thread, NULL, daemon_thread, NULL);
	while (!up)
		usleep(100);
	CHECK_EQ(up, 1);
}

static void
stop(void)
{
	stop_wanted = true;
	pthread_join(thread, NULL);
	CHECK_EQ(live_vfs, 0);
	CHECK(access(path, F_OK) < 0);
}

/* A client with memory and a queue, and one command of it from submission to completion. */
struct client {
	struct sluice *s;
	struct sluice_queue *q;
	uint8_t *mem;
	uint64_t addr;
};

static bool
client_open(struct client *c, uint32_t entries)
{
	memset(c, 0, sizeof(*c));
	return CHECK_EQ(sluice_open(path, &c->s), 0) &&
	       CHECK_EQ(sluice_register(c->s, DISK, (void **)&c->mem, &c->addr), 0) &&
	       CHECK_EQ(sluice_queue_new(c->s, entries, &c->q), 0);
}

static uint16_t
command(struct client *c, const struct sluice_io *io)
{
	struct sluice_completion done = { .status = 0xffff };

	CHECK_EQ(sluice_submit(c->q, io, 1), 1);
	CHECK_EQ(sluice_wait(c->q, WAIT_MS), 0);
	CHECK_EQ(sluice_reap(c->q, &done, 1), 1);
	CHECK_EQ(done.user, io->user);
	return done.status;
}

static void
test_commands_move_bytes_between_scattered_memory_and_the_disk(void)
{
	struct client c;
	struct sluice_extent out[7], back = { .len = 4096 };
	struct sluice_io io = { .op = SLUICE_WRITE,
		                .nsid = 1,
		                .lba = 5,
		                .blocks = 8,
		                .sg = out,
		                .nsg = 7,
		                .user = 77 };
	uint32_t at = 0;

	start();
	if (!client_open(&c, 8))
		return;
	for (unsigned i = 0; i < DISK; i++)
		c.mem[i] = (uint8_t)(i * 7 + (i >> 8));
	for (unsigned i = 0; i < 7; i++) {
		uint32_t len = i < 6 ? 1 + i * 131 : 4096 - at;

		out[i] = (struct sluice_extent){ .addr = c.addr + i * 8192 + 3, .len = len };
		at += len;
	}
	CHECK_EQ(command(&c, &io), 0);
	at = 0;
	for (unsigned i = 0; i < 7; at += out[i++].len)
		CHECK_MEM(disk + 5 * BLOCK + at, c.mem + i * 8192 + 3, out[i].len);
	back.addr = c.addr + (512 << 10) + 1;
	io = (struct sluice_io){ .op = SLUICE_READ,
		                 .nsid = 1,
		                 .lba = 5,
		                 .blocks = 8,
		                 .sg = &back,
		                 .nsg = 1,
		                 .user = 9 };
	CHECK_EQ(command(&c, &io), 0);
	CHECK_MEM(c.mem + (512 << 10) + 1, disk + 5 * BLOCK, 4096);
	sluice_close(c.s);
	stop();
}

static void
test_bad_commands_end_with_a_status_and_the_queue_goes_on(void)
{
	enum { ADDR = 1 << 16 }; /* extents are relative to the registered memory */
	static const struct {
		const char *name;
		struct sluice_io io;
		struct sluice_extent sg[2];
		uint16_t status;
	} rows[] = {
		{ "opcode",
		  { .op = (enum sluice_op)0x7f, .nsid = 1, .blocks = 1 },
		  { { 0 } },
		  0x01 },
		{ "nsid 0",
		  { .op = SLUICE_READ, .nsid = 0, .blocks = 1, .nsg = 1 },
		  { { .len = 512 } },
		  0x0b },
		{ "nsid 2", { .op = SLUICE_FLUSH, .nsid = 2 }, { { 0 } }, 0x0b },
		{ "nsid ~0", { .op = SLUICE_FLUSH, .nsid = UINT32_MAX }, { { 0 } }, 0x0b },
		{ "beyond the end",
		  { .op = SLUICE_READ, .nsid = 1, .lba = DISK / BLOCK, .blocks = 1, .nsg = 1 },
		  { { .len = 512 } },
		  0x80 },
		{ "across the end",
		  { .op = SLUICE_READ, .nsid = 1, .lba = DISK / BLOCK - 1, .blocks = 2, .nsg = 1 },
		  { { .len = 1024 } },
		  0x80 },
		{ "lba ~0",
		  { .op = SLUICE_READ, .nsid = 1, .lba = UINT64_MAX, .blocks = 2, .nsg = 1 },
		  { { .len = 1024 } },
		  0x80 },
		{ "discard nothing",
		  { .op = SLUICE_DISCARD, .nsid = 1, .lba = UINT64_MAX, .blocks = UINT32_MAX },
		  { { 0 } },
		  0x80 },
		{ "too large",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 513, .nsg = 1 },
		  { { .len = 513 * 512 } },
		  0x02 },
		{ "too little memory",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 2, .nsg = 1 },
		  { { .len = 512 } },
		  0x0f },
		{ "too much memory",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 2 },
		  { { .len = 512 }, { .len = 1 } },
		  0x0f },
		{ "list too short",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 2, .nsg = 2 },
		  { { .len = 512 }, { .len = 511 } },
		  0x0f },
		{ "type of a block",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .len = 512, .type = 0x10 } },
		  0x11 },
		{ "type in a list",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 2, .nsg = 2 },
		  { { .len = 512 }, { .len = 512, .type = 0x30 } },
		  0x11 },
		{ "segment of nothing",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .len = 0, .type = 0x30 } },
		  0x0d },
		{ "segment cut",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .len = 24, .type = 0x30 } },
		  0x0d },
		{ "segment outside",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .addr = UINT64_MAX - 15, .len = 16, .type = 0x30 } },
		  0x0d },
		{ "segment too long",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .addr = UINT64_C(0) - ADDR, .len = 16400, .type = 0x30 } },
		  0x0d },
		{ "address below",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .addr = UINT64_C(0) - 1, .len = 512 } },
		  0x04 },
		{ "address across the end",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .nsg = 1 },
		  { { .addr = DISK - 511, .len = 512 } },
		  0x04 },
		{ "address that wraps",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 2, .nsg = 2 },
		  { { .len = 512 }, { .addr = UINT64_C(0) - 2048, .len = 512 } },
		  0x04 },
		{ "good",
		  { .op = SLUICE_READ, .nsid = 1, .blocks = 2, .nsg = 2 },
		  { { .len = 1023 }, { .addr = 4096, .len = 1 } },
		  0 },
	};
	struct client c;

	start();
	if (!client_open(&c, 4))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sluice_extent sg[2] = { rows[i].sg[0], rows[i].sg[1] };
		struct sluice_io io = rows[i].io;

		unit_row("%s", rows[i].name);
		for (unsigned k = 0; k < 2; k++)
			if (sg[k].type == 0)
				sg[k].addr += c.addr;
		io.sg = sg;
		io.user = i;
		CHECK_EQ(command(&c, &io), rows[i].status);
	}
	CHECK_EQ(started, 1);
	sluice_close(c.s);
	stop();
}

/* a client by hand */

struct raw {
	int fd, ring_fd, kick, wake;
	struct sluice_ring *ring;
	uint8_t *base;
};

enum { RAW_SIZE = 16384, RAW_ENTRIES = 8 };

static int
raw_ask(const struct raw *r, struct sluice_msg *m, const int *fds, unsigned nfds)
{
	char control[CMSG_SPACE(4 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		struct cmsghdr *c;

		mh.msg_control = control;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(nfds * sizeof(int)),
			               .cmsg_level = SOL_SOCKET,
			               .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	if (sendmsg(r->fd, &mh, MSG_NOSIGNAL) != sizeof(*m))
		return -EPIPE;
	do
		if (recv(r->fd, m, sizeof(*m), 0) != sizeof(*m))
			return -EPIPE;
	while (m->op == SLUICE_MSG_EVENT);
	return m->err;
}

static int
raw_connect(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(sa.sun_path, path, strlen(path));
	CHECK_EQ(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void
raw_open(struct raw *r, int seals)
{
	struct sluice_msg hello = { .op = SLUICE_MSG_HELLO, .abi = SLUICE_ABI };

	r->fd = raw_connect();
	CHECK_EQ(raw_ask(r, &hello, NULL, 0), 0);
	r->ring_fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK_EQ(ftruncate(r->ring_fd, RAW_SIZE), 0);
	CHECK_EQ(fcntl(r->ring_fd, F_ADD_SEALS, seals), 0);
	r->base = mmap(NULL, RAW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, r->ring_fd, 0);
	r->ring = (struct sluice_ring *)r->base;
	*r->ring = (struct sluice_ring){ .abi = SLUICE_ABI,
		                         .entries = RAW_ENTRIES,
		                         .sq_off = 4096,
		                         .cq_off = 8192,
		                         .list_off = 12288,
		                         .list_len = 1024 };
	r->kick = eventfd(0, EFD_CLOEXEC);
	r->wake = eventfd(0, EFD_CLOEXEC);
}

static int
raw_queue_add(struct raw *r, uint64_t size)
{
	struct sluice_msg m = { .op = SLUICE_MSG_QUEUE_ADD, .size = size };
	int fds[3] = { r->ring_fd, r->kick, r->wake };

	return raw_ask(r, &m, fds, 3);
}

static void
raw_close(struct raw *r)
{
	munmap(r->base, RAW_SIZE);
	close(r->ring_fd);
	close(r->kick);
	close(r->wake);
	close(r->fd);
}

static void
raw_flush(struct raw *r, uint16_t cid)
{
	uint8_t *sqe = r->base + 4096 + (r->ring->sq_tail % RAW_ENTRIES) * 64;

	memset(sqe, 0, 64);
	memcpy(sqe + 2, &cid, 2);
	sqe[4] = 1; /* nsid */
	__atomic_store_n(&r->ring->sq_tail, r->ring->sq_tail + 1, __ATOMIC_SEQ_CST);
}

static void
raw_kick(struct raw *r)
{
	uint64_t one = 1;

	CHECK_EQ(write(r->kick, &one, 8), 8);
}

static bool
becomes(const uint32_t *word, uint32_t want)
{
	for (int i = 0; i < WAIT_MS; i++) {
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == want)
			return true;
		usleep(1000);
	}
	return false;
}

static void
test_a_ring_that_cannot_be_trusted_is_refused_with_a_sentence(void)
{
	static const struct {
		const char *name;
		uint32_t abi, entries, sq_off, cq_off, list_off, list_len;
		uint64_t size;
		int seals;
		int want;
	} rows[] = {
		{ "good", 1, 8, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, 0 },
		{ "no list", 1, 8, 4096, 8192, 0, 0, RAW_SIZE, F_SEAL_SHRINK, 0 },
		{ "not sealed", 1, 8, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_GROW, -EPERM },
		{ "abi", 2, 8, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EPROTO },
		{ "entries 0", 1, 0, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "entries 1", 1, 1, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "entries 6", 1, 6, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "entries 8192", 1, 8192, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK,
		  -EINVAL },
		{ "entries 2^31", 1, 1u << 31, 4096, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK,
		  -EINVAL },
		{ "sq over header", 1, 8, 0, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "sq odd", 1, 8, 4100, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "sq beyond", 1, 8, RAW_SIZE - 64, 8192, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK,
		  -EINVAL },
		{ "cq beyond", 1, 8, 4096, 0xffffffc0, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK,
		  -EINVAL },
		{ "cq in sq", 1, 8, 4096, 4160, 12288, 1024, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "list in cq", 1, 8, 4096, 8192, 8192, 64, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "list beyond", 1, 8, 4096, 8192, 12288, 8192, RAW_SIZE, F_SEAL_SHRINK, -EINVAL },
		{ "list wraps", 1, 8, 4096, 8192, 12288, 0xffffffff, RAW_SIZE, F_SEAL_SHRINK,
		  -EINVAL },
		{ "larger than the memfd", 1, 8, 4096, 8192, 12288, 1024, RAW_SIZE * 2,
		  F_SEAL_SHRINK, -EINVAL },
		{ "no bytes", 1, 8, 4096, 8192, 12288, 1024, 0, F_SEAL_SHRINK, -EINVAL },
		{ "too short for its areas", 1, 8, 4096, 8192, 12288, 1024, 12288, F_SEAL_SHRINK,
		  -EINVAL },
	};
	struct raw r;

	start();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%s", rows[i].name);
		raw_open(&r, rows[i].seals);
		r.ring->abi = rows[i].abi;
		r.ring->entries = rows[i].entries;
		r.ring->sq_off = rows[i].sq_off;
		r.ring->cq_off = rows[i].cq_off;
		r.ring->list_off = rows[i].list_off;
		r.ring->list_len = rows[i].list_len;
		CHECK_EQ(raw_queue_add(&r, rows[i].size), rows[i].want);
		raw_close(&r);
	}
	stop();
}

static void
test_descriptors_that_are_no_memfd_or_no_eventfd_are_refused(void)
{
	struct sluice_msg m;
	struct raw r;
	int pipe_fds[2], fds[3];

	start();
	raw_open(&r, F_SEAL_SHRINK);
	CHECK_EQ(pipe(pipe_fds), 0);
	for (unsigned i = 0; i < 3; i++) {
		unit_row("descriptor %u", i);
		memcpy(fds, (int[]){ r.ring_fd, r.kick, r.wake }, sizeof(fds));
		fds[i] = pipe_fds[0];
		m = (struct sluice_msg){ .op = SLUICE_MSG_QUEUE_ADD, .size = RAW_SIZE };
		CHECK_EQ(raw_ask(&r, &m, fds, 3), -EINVAL);
		CHECK(m.text[0] != 0);
	}
	m = (struct sluice_msg){ .op = SLUICE_MSG_QUEUE_ADD, .size = RAW_SIZE };
	CHECK_EQ(raw_ask(&r, &m, fds, 2), -EINVAL);
	m = (struct sluice_msg){ .op = SLUICE_MSG_MEM_ADD, .size = RAW_SIZE };
	CHECK_EQ(raw_ask(&r, &m, NULL, 0), -EINVAL);
	m = (struct sluice_msg){ .op = SLUICE_MSG_MEM_ADD, .size = RAW_SIZE };
	CHECK_EQ(raw_ask(&r, &m, pipe_fds, 1), -EINVAL);
	m = (struct sluice_msg){ .op = 99 };
	CHECK_EQ(raw_ask(&r, &m, NULL, 0), -EOPNOTSUPP);
	m = (struct sluice_msg){ .op = SLUICE_MSG_QUEUE_DEL, .id = 5 };
	CHECK_EQ(raw_ask(&r, &m, NULL, 0), -ENOENT);
	raw_close(&r);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	stop();
}

static void
test_wild_indices_end_that_queue_alone(void)
{
	struct sluice_io flush = { .op = SLUICE_FLUSH, .nsid = 1 };
	static const struct {
		const char *name;
		uint32_t tail, head;
	} rows[] = {
		{ "tail too far", RAW_ENTRIES + 1, 0 },
		{ "tail behind", UINT32_MAX, 0 },
		{ "head ahead", 1, 1 },
		{ "head far behind", 1, 0u - RAW_ENTRIES - 1 },
	};
	struct client c;
	struct raw r;

	start();
	if (!client_open(&c, 4))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unit_row("%s", rows[i].name);
		raw_open(&r, F_SEAL_SHRINK);
		CHECK_EQ(raw_queue_add(&r, RAW_SIZE), 0);
		r.ring->cq_head = rows[i].head;
		__atomic_store_n(&r.ring->sq_tail, rows[i].tail, __ATOMIC_SEQ_CST);
		raw_kick(&r);
		CHECK(becomes(&r.ring->sq_need_wakeup, SLUICE_RING_ENDED));
		CHECK_EQ(command(&c, &flush), 0);
		raw_close(&r);
	}
	sluice_close(c.s);
	stop();
}

static void
test_completions_never_overflow_a_queue_that_is_not_reaped(void)
{
	struct raw r;

	start();
	raw_open(&r, F_SEAL_SHRINK);
	CHECK_EQ(raw_queue_add(&r, RAW_SIZE), 0);
	for (uint16_t i = 0; i < RAW_ENTRIES; i++)
		raw_flush(&r, i);
	raw_kick(&r);
	CHECK(becomes(&r.ring->cq_tail, RAW_ENTRIES));
	for (uint16_t i = 0; i < RAW_ENTRIES; i++)
		raw_flush(&r, (uint16_t)(100 + i));
	raw_kick(&r);
	usleep(20000);
	CHECK_EQ(r.ring->sq_head, RAW_ENTRIES);
	CHECK_EQ(r.ring->cq_tail, RAW_ENTRIES);
	__atomic_store_n(&r.ring->cq_head, 3, __ATOMIC_SEQ_CST);
	raw_kick(&r);
	CHECK(becomes(&r.ring->cq_tail, RAW_ENTRIES + 3));
	usleep(5000);
	CHECK_EQ(r.ring->sq_head, RAW_ENTRIES + 3);
	raw_close(&r);
	stop();
}

static void
test_a_client_that_goes_in_mid_io_keeps_its_memory_mapped_until_the_io_ended(void)
{
	struct client c;
	struct sluice_extent sg = { .len = 64 << 10 };
	struct sluice_io io = { .op = SLUICE_READ, .nsid = 1, .blocks = 128, .sg = &sg, .nsg = 1 };

	start();
	if (!client_open(&c, 16))
		return;
	hold = nvme_cmd_read;
	sg.addr = c.addr;
	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(sluice_submit(c.q, &io, 1), 1);
	for (int i = 0; started < 10 && i < WAIT_MS; i++)
		usleep(1000);
	CHECK_EQ(started, 10);
	shutdown(sluice_fd(c.s), SHUT_RDWR); /* as a process that dies */
	usleep(20000);
	CHECK_EQ(live_vfs, 1);
	hold = -1; /* reads land in mappings that must still be there */
	for (int i = 0; live_vfs && i < WAIT_MS; i++)
		usleep(1000);
	CHECK_EQ(live_vfs, 0);
	sluice_close(c.s);
	stop();
}

static void
test_a_client_whose_commands_do_not_end_leaves_contexts_for_others(void)
{
	struct sluice_io flush = { .op = SLUICE_FLUSH, .nsid = 1 };
	struct sluice_extent sg = { .len = 512 };
	struct sluice_io read = { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .sg = &sg, .nsg = 1 };
	struct client stuck, other;
	unsigned submitted = 0;

	start();
	if (!client_open(&stuck, 4096) || !client_open(&other, 4))
		return;
	hold = nvme_cmd_flush;
	while (submitted < 3000 && CHECK_EQ(sluice_submit(stuck.q, &flush, 1), 1))
		submitted++;
	sg.addr = other.addr;
	for (unsigned i = 0; i < 100; i++)
		CHECK_EQ(command(&other, &read), 0);
	CHECK(started < IO_CONTEXTS + 100);
	hold = -1; /* and none of the many is forgotten */
	command(&other, &flush);
	for (unsigned got = 0; got < submitted;) {
		struct sluice_completion done[64];
		int n;

		if (!CHECK_EQ(sluice_wait(stuck.q, WAIT_MS), 0))
			break;
		n = sluice_reap(stuck.q, done, 64);
		got += (unsigned)n;
	}
	CHECK_EQ(sluice_queue_inflight(stuck.q), 0);
	sluice_close(stuck.s);
	sluice_close(other.s);
	stop();
}

static void
test_memory_that_was_given_back_is_no_longer_reached(void)
{
	struct client c;
	struct sluice_extent sg = { .len = 512 };
	struct sluice_io io = { .op = SLUICE_READ, .nsid = 1, .blocks = 1, .sg = &sg, .nsg = 1 };
	uint64_t other;
	void *p;

	start();
	if (!client_open(&c, 4))
		return;
	sg.addr = c.addr;
	CHECK_EQ(command(&c, &io), 0);
	CHECK_EQ(sluice_register(c.s, 8192, &p, &other), 0);
	CHECK_EQ(sluice_unregister(c.s, c.addr), 0);
	CHECK_EQ(command(&c, &io), 0x04);
	sg.addr = other;
	CHECK_EQ(command(&c, &io), 0);
	CHECK_EQ(sluice_unregister(c.s, c.addr), -ENOENT);
	sluice_close(c.s);
	stop();
}

/* A copy waits for each page that goes away under it, and the whole reactor with it. */
static void
test_holes_cannot_be_punched_into_memory_that_is_in_use(void)
{
	struct client c;

	start();
	if (!client_open(&c, 4))
		return;
	CHECK_EQ(madvise(c.mem, 4096, MADV_REMOVE), -1);
	CHECK_EQ(errno, EPERM);
	sluice_close(c.s);
	stop();
}

static void
test_a_stranger_is_told_why_and_disconnected(void)
{
	struct sluice_msg m = { .op = SLUICE_MSG_VOLUME };
	struct sluice *s = NULL;
	struct raw r = { 0 };
	char byte;

	start();
	nobody = true;
	CHECK_EQ(sluice_open(path, &s), -EACCES);
	CHECK(strstr(sluice_error(NULL), "vms") != NULL);
	nobody = false;
	r.fd = raw_connect();
	CHECK_EQ(raw_ask(&r, &m, NULL, 0), -EPROTO);
	CHECK_EQ(recv(r.fd, &byte, 1, 0), 0);
	close(r.fd);
	r.fd = raw_connect();
	CHECK_EQ(send(r.fd, "x", 1, 0), 1); /* no message of ours */
	CHECK_EQ(recv(r.fd, &byte, 1, 0), 0);
	close(r.fd);
	stop();
}

static void
test_a_changed_volume_is_told_once_as_it_is_now(void)
{
	struct sluice_volume v;
	struct client c;
	int res = 0;

	start();
	if (!client_open(&c, 4))
		return;
	CHECK_EQ(sluice_event(c.s, &v), 0);
	changed_wanted = true;
	for (int i = 0; res == 0 && i < WAIT_MS; i++, usleep(1000))
		res = sluice_event(c.s, &v);
	CHECK_EQ(res, 1);
	CHECK_STR(v.name, "vol0");
	CHECK_EQ(v.blocks, DISK / BLOCK);
	CHECK_EQ(sluice_volume(c.s, "nope", &v), -ENOENT);
	CHECK_EQ(sluice_volume_at(c.s, 1, &v), -ENOENT);
	sluice_close(c.s);
	stop();
}

/* Commands are rewritten all the time while the front takes them: only the sanitizers and the
 * disk's bounds judge. */
static void *
scribble(void *arg)
{
	struct raw *r = arg;
	uint64_t state = 99;

	for (unsigned i = 0; i < 20000; i++) {
		uint32_t at = unit_random(&state) % (RAW_SIZE - 4096);
		uint32_t word = unit_random(&state);

		memcpy(r->base + 4096 + at / 4 * 4, &word, 4);
	}
	return NULL;
}

static void
test_a_client_that_changes_commands_while_they_are_taken_hurts_only_itself(void)
{
	struct sluice_io flush = { .op = SLUICE_FLUSH, .nsid = 1 };
	struct client c;
	pthread_t scribbler;
	struct raw r;

	start();
	if (!client_open(&c, 4))
		return;
	raw_open(&r, F_SEAL_SHRINK);
	CHECK_EQ(raw_queue_add(&r, RAW_SIZE), 0);
	pthread_create(&scribbler, NULL, scribble, &r);
	for (uint32_t i = 1; i <= 400; i++) {
		uint8_t *sqe = r.base + 4096 + ((i - 1) % RAW_ENTRIES) * 64;

		sqe[0] = 2;
		sqe[1] = 0x40;
		memcpy(sqe + 4, &(uint32_t){ 1 }, 4);
		memset(sqe + 40, 0, 24);
		sqe[39] = 0x30;
		__atomic_store_n(&r.ring->sq_tail, i, __ATOMIC_SEQ_CST);
		raw_kick(&r);
		CHECK(becomes(&r.ring->cq_tail, i));
		__atomic_store_n(&r.ring->cq_head, i, __ATOMIC_SEQ_CST);
	}
	pthread_join(scribbler, NULL);
	CHECK_EQ(command(&c, &flush), 0);
	raw_close(&r);
	sluice_close(c.s);
	stop();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_commands_move_bytes_between_scattered_memory_and_the_disk),
	UNIT_TEST(test_bad_commands_end_with_a_status_and_the_queue_goes_on),
	UNIT_TEST(test_a_ring_that_cannot_be_trusted_is_refused_with_a_sentence),
	UNIT_TEST(test_descriptors_that_are_no_memfd_or_no_eventfd_are_refused),
	UNIT_TEST(test_wild_indices_end_that_queue_alone),
	UNIT_TEST(test_completions_never_overflow_a_queue_that_is_not_reaped),
	UNIT_TEST(test_a_client_that_goes_in_mid_io_keeps_its_memory_mapped_until_the_io_ended),
	UNIT_TEST(test_a_client_whose_commands_do_not_end_leaves_contexts_for_others),
	UNIT_TEST(test_memory_that_was_given_back_is_no_longer_reached),
	UNIT_TEST(test_holes_cannot_be_punched_into_memory_that_is_in_use),
	UNIT_TEST(test_a_stranger_is_told_why_and_disconnected),
	UNIT_TEST(test_a_changed_volume_is_told_once_as_it_is_now),
	UNIT_TEST(test_a_client_that_changes_commands_while_they_are_taken_hurts_only_itself),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
