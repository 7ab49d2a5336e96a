/* A vhost-user master that loads a vhost-user-blk device, as a guest would, without a VM: one split
 * ring with indirect descriptors and event indices, random blocks at a fixed depth.
 *
 *   vhost -s SOCKET [-b BYTES] [-d DEPTH] [-t SECONDS] [-w | -m] [-q] [-p]
 *
 * -w writes, -m writes three in ten, -q goes through the disk in order, -p polls the ring instead
 * of sleeping on the call eventfd. Prints one JSON object: requests, and in a second, bytes in a
 * second, kicks and interrupts for each request. Works with any back-end that has the protocol
 * features CONFIG and, for its acknowledgements, REPLY_ACK.
 */
#include "initiator/front_vhost_proto.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	RING = 256,
	SEGS = 3,
	F_WRITE = 2,
	F_NEXT = 1,
	F_INDIRECT = 4,
	T_IN = 0,
	T_OUT = 1,
	STATUS_NONE = 0xee,
};

#define RAM  (UINT64_C(64) << 20)
#define DATA (UINT64_C(1) << 20) /* requests' data begin there */
#define UVA  (UINT64_C(1) << 40)

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

struct slot { /* of a request, in guest memory */
	struct desc table[SEGS];
	uint32_t type, ioprio;
	uint64_t sector;
	uint8_t status, pad[15];
};

struct shared { /* the guest's memory begins like that */
	struct desc desc[RING];
	struct {
		uint16_t flags, idx, ring[RING], used_event;
	} avail;
	_Alignas(64) struct {
		uint16_t flags, idx;
		struct {
			uint32_t id, len;
		} ring[RING];
		uint16_t avail_event;
	} used;
	_Alignas(64) struct slot slots[RING];
};

static struct {
	const char *socket;
	uint32_t bytes, depth, writes; /* percent */
	double seconds;
	bool poll, sequential;
} opt = { .bytes = 4096, .depth = 1, .seconds = 1 };

static struct {
	int fd, memfd, kick, call;
	struct shared *m;
	uint16_t avail_idx, used_idx, told;
	uint64_t blocks, next, rng, done, kicks, calls;
} g;

static void
die(const char *what)
{
	fprintf(stderr, "vhost: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* messages */

static void
put(uint32_t id, const void *payload, uint32_t size, int fd)
{
	struct vhost_hdr h = { id, VHOST_VERSION, size };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)payload, size } };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	if (fd >= 0) {
		struct cmsghdr *c = (struct cmsghdr *)control;

		*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
	}
	if (sendmsg(g.fd, &msg, MSG_NOSIGNAL) != (ssize_t)(sizeof(h) + size))
		die("sending a message");
}

static void
get(void *payload, uint32_t size)
{
	struct vhost_hdr h;

	if (recv(g.fd, &h, sizeof(h), MSG_WAITALL) != sizeof(h) || h.size != size ||
	    recv(g.fd, payload, size, MSG_WAITALL) != (ssize_t)size)
		die("a reply");
}

static uint64_t
ask(uint32_t id)
{
	uint64_t v;

	put(id, NULL, 0, -1);
	get(&v, sizeof(v));
	return v;
}

static void
say(uint32_t id, uint64_t v, int fd)
{
	put(id, &v, sizeof(v), fd);
}

static void
say_state(uint32_t id, uint32_t num)
{
	struct vhost_state s = { 0, num };

	put(id, &s, sizeof(s), -1);
}

static uint64_t
capacity(void)
{
	struct vhost_config_msg c = { .size = 8 };

	put(VHOST_GET_CONFIG, &c, 12 + 8, -1);
	get(&c, 12 + 8);
	return le64_get(((struct vblk_config *)c.bytes)->capacity);
}

static uint64_t
uva_of(const void *p)
{
	return UVA + (uint64_t)((const uint8_t *)p - (const uint8_t *)g.m);
}

static void
set_up(void)
{
	struct vhost_mem mem = { .nr = 1, .regions = { { 0, RAM, UVA, 0 } } };
	struct vhost_addr addr = { .desc = uva_of(g.m->desc),
		                   .avail = uva_of(&g.m->avail),
		                   .used = uva_of(&g.m->used) };
	uint64_t want = BIT64(VRING_F_INDIRECT_DESC) | BIT64(VRING_F_EVENT_IDX) |
	                BIT64(VHOST_F_PROTOCOL_FEATURES) | BIT64(VIRTIO_F_VERSION_1) |
	                BIT64(VBLK_F_FLUSH);

	want &= ask(VHOST_GET_FEATURES);
	say(VHOST_SET_PROTOCOL_FEATURES,
	    ask(VHOST_GET_PROTOCOL_FEATURES) & (BIT64(VHOST_P_CONFIG) | BIT64(VHOST_P_MQ)), -1);
	put(VHOST_SET_OWNER, NULL, 0, -1);
	g.blocks = capacity() * 512 / opt.bytes;
	say(VHOST_SET_FEATURES, want, -1);
	put(VHOST_SET_MEM_TABLE, &mem, 8 + sizeof(mem.regions[0]), g.memfd);
	say_state(VHOST_SET_VRING_NUM, RING);
	say_state(VHOST_SET_VRING_BASE, 0);
	put(VHOST_SET_VRING_ADDR, &addr, sizeof(addr), -1);
	say(VHOST_SET_VRING_KICK, 0, g.kick);
	say(VHOST_SET_VRING_CALL, 0, g.call);
	say_state(VHOST_SET_VRING_ENABLE, 1);
}

/* the guest */

static uint64_t
draw(uint64_t range)
{
	g.rng ^= g.rng << 13;
	g.rng ^= g.rng >> 7;
	g.rng ^= g.rng << 17;
	return (g.rng >> 8) % range;
}

static void
submit(uint16_t i)
{
	struct slot *s = &g.m->slots[i];
	bool write = opt.writes == 100 || (opt.writes && draw(100) < opt.writes);

	s->type = write ? T_OUT : T_IN;
	s->table[1].flags = F_NEXT | (write ? 0 : F_WRITE);
	s->sector = (opt.sequential ? g.next++ % g.blocks : draw(g.blocks)) * (opt.bytes / 512);
	s->status = STATUS_NONE;
	g.m->avail.ring[g.avail_idx++ % RING] = i;
}

static uint64_t
gpa_of(const void *p)
{
	return uva_of(p) - UVA;
}

static void
make_slots(void)
{
	for (uint16_t i = 0; i < opt.depth; i++) {
		struct slot *s = &g.m->slots[i];

		s->table[0] = (struct desc){ gpa_of(&s->type), 16, F_NEXT, 1 };
		s->table[1] = (struct desc){ DATA + (uint64_t)i * opt.bytes, opt.bytes, F_NEXT, 2 };
		s->table[2] = (struct desc){ gpa_of(&s->status), 1, F_WRITE, 0 };
		g.m->desc[i] = (struct desc){ gpa_of(s->table), sizeof(s->table), F_INDIRECT, 0 };
		submit(i);
	}
}

static void
publish(void)
{
	uint16_t event;

	__atomic_store_n(&g.m->avail.idx, g.avail_idx, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	event = __atomic_load_n(&g.m->used.avail_event, __ATOMIC_RELAXED);
	if ((uint16_t)(g.avail_idx - event - 1) < (uint16_t)(g.avail_idx - g.told)) {
		g.kicks++;
		if (eventfd_write(g.kick, 1) < 0)
			die("kick");
	}
	g.told = g.avail_idx;
}

/* Takes what was used, and queues as much anew. False: nothing was. */
static bool
reap(void)
{
	uint16_t idx = __atomic_load_n(&g.m->used.idx, __ATOMIC_ACQUIRE);

	if (idx == g.used_idx)
		return false;
	for (; g.used_idx != idx; g.used_idx++) {
		uint32_t id = g.m->used.ring[g.used_idx % RING].id;

		if (g.m->slots[id].status != 0) {
			fprintf(stderr, "vhost: status %u\n", g.m->slots[id].status);
			exit(1);
		}
		g.done++;
		submit((uint16_t)id);
	}
	publish();
	return true;
}

/* As a driver does: it asks for an interrupt, looks again, sleeps. */
static void
sleep_till_used(void)
{
	struct pollfd p = { .fd = g.call, .events = POLLIN };
	eventfd_t n;

	__atomic_store_n(&g.m->avail.used_event, g.used_idx, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&g.m->used.idx, __ATOMIC_ACQUIRE) != g.used_idx)
		return;
	if (poll(&p, 1, 5000) != 1 || eventfd_read(g.call, &n) < 0) {
		fprintf(stderr, "vhost: no interrupt within 5 s\n");
		exit(1);
	}
	g.calls += n;
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
run(void)
{
	double start = now(), end = start + opt.seconds, t = start;

	g.done = g.kicks = g.calls = 0;
	for (unsigned turns = 0; t < end || g.done == 0; turns++) {
		if (!reap() && !opt.poll)
			sleep_till_used();
		if (turns % 16 == 0)
			t = now();
	}
	t -= start;
	printf("{\"ios\": %llu, \"iops\": %.0f, \"mbs\": %.1f, \"kicks_per_io\": %.4f, \"calls_per_io\": %.4f}\n",
	       (unsigned long long)g.done, (double)g.done / t, (double)g.done * opt.bytes / t / 1e6,
	       (double)g.kicks / (double)g.done, (double)g.calls / (double)g.done);
}

static void
parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "s:b:d:t:wmqp")) != -1) {
		if (c == 's')
			opt.socket = optarg;
		else if (c == 'b')
			opt.bytes = (uint32_t)strtoul(optarg, NULL, 0);
		else if (c == 'd')
			opt.depth = (uint32_t)strtoul(optarg, NULL, 0);
		else if (c == 't')
			opt.seconds = strtod(optarg, NULL);
		else if (c == 'w')
			opt.writes = 100;
		else if (c == 'm')
			opt.writes = 30;
		else if (c == 'q')
			opt.sequential = true;
		else if (c == 'p')
			opt.poll = true;
		else
			exit(2);
	}
	if (!opt.socket || opt.depth == 0 || opt.depth > RING || opt.bytes % 512 ||
	    opt.bytes == 0 || (uint64_t)opt.depth * opt.bytes > RAM - DATA) {
		fprintf(stderr, "usage: vhost -s SOCKET [-b BYTES] [-d DEPTH] [-t SECONDS] [-w] "
		                "[-m] [-q] [-p]\n");
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	parse(argc, argv);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", opt.socket);
	g.rng = 88172645463325252;
	g.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	g.memfd = memfd_create("guest", MFD_CLOEXEC);
	g.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	g.call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g.fd < 0 || g.memfd < 0 || g.kick < 0 || g.call < 0 || ftruncate(g.memfd, RAM) < 0)
		die("setting up");
	g.m = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, g.memfd, 0);
	if (g.m == MAP_FAILED)
		die("memory");
	if (connect(g.fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die(opt.socket);
	set_up();
	make_slots();
	publish();
	run();
	return 0;
}
