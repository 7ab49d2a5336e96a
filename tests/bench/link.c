/* One end of a TCP connection on its own io_uring: see link.h.
 *
 * A turn: what the owner queued becomes one sendmsg unless one is still in flight (one socket, one
 * send: order is certain); the receive is armed if it is not; io_uring_enter submits both and
 * waits for a completion. A receive's bytes first complete the due payload, the rest is cut into
 * messages: a payload that ends inside the staging area is copied out, one that does not becomes
 * the next due payload. Errors from the kernel or a wrong digest end the program.
 */
#include "tests/bench/link.h"

#include "common/digest.h"
#include "tests/bench/bench.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { UD_SEND = 1, UD_RECV = 2 };
enum { SEND_IOV_MAX = 1024 };   /* UIO_MAXIOV */
/* A send up to this size completes while it is submitted, so waiting for it and for the receive at
 * once saves a system call and cannot block: what both ends have queued fits their buffers. */
enum { SEND_INLINE_MAX = 64 << 10 };
enum { HEADER_ROOM = 80 };       /* least staging: CapsuleCmd with its digest */

static double
thread_cpu(void)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1e-6;
}

struct link_cost
link_cost_now(const struct link *l)
{
	struct link_cost c = l->cost;

	c.cpu = thread_cpu();
	return c;
}

struct link_cost
link_cost_since(const struct link *l, const struct link_cost *start)
{
	struct link_cost c = link_cost_now(l);

	c.enters -= start->enters;
	c.sends -= start->sends;
	c.recvs -= start->recvs;
	c.direct -= start->direct;
	c.staged -= start->staged;
	c.cpu -= start->cpu;
	return c;
}

static void
link_ring_init(struct link *l)
{
	struct io_uring_params p = { 0 };
	int ret;

	p.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
	          IORING_SETUP_COOP_TASKRUN;
	ret = io_uring_queue_init_params(16, &l->ring, &p);
	if (ret)
		bench_die("io_uring: %s", strerror(-ret));
	ret = io_uring_register_ring_fd(&l->ring);
	if (ret != 1)
		bench_die("cannot register the ring: %s", strerror(-ret));
	ret = io_uring_register_files(&l->ring, &l->conf.fd, 1);
	if (ret)
		bench_die("cannot register the socket: %s", strerror(-ret));
}

void
link_open(struct link *l, const struct link_ops *ops, const struct link_conf *conf)
{
	memset(l, 0, sizeof(*l));
	l->ops = ops;
	l->conf = *conf;
	link_ring_init(l);
	/* A command queues at most two messages in a turn, each header, data and digest. */
	l->iov_size = conf->depth * 6 + 8;
	l->arena_size = (size_t)conf->depth * 2 * (PDU_HDR_MAX + 2 * PDU_DIGEST_LEN) + 4096;
	for (unsigned i = 0; i < 2; i++) {
		l->tx[i].iov = bench_alloc(l->iov_size * sizeof(struct iovec));
		l->tx[i].arena = bench_alloc(l->arena_size);
	}
	l->stage_size = MAX(conf->stage, (size_t)HEADER_ROOM);
	l->stage = bench_alloc(l->stage_size);
	l->offer = l->stage_size;
}

void
link_close(struct link *l)
{
	io_uring_queue_exit(&l->ring);
	for (unsigned i = 0; i < 2; i++) {
		munmap(l->tx[i].iov, l->iov_size * sizeof(struct iovec));
		munmap(l->tx[i].arena, l->arena_size);
	}
	munmap(l->stage, l->stage_size);
}

static void
tx_add(struct link *l, const void *bytes, size_t n)
{
	struct link_tx *tx = &l->tx[l->filling];
	struct iovec *last = tx->n ? &tx->iov[tx->n - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == bytes) {
		last->iov_len += n;
		return;
	}
	if (tx->n == l->iov_size)
		bench_die("send queue is full");
	tx->iov[tx->n++] = (struct iovec){ (void *)bytes, n };
}

static void *
tx_arena(struct link *l, size_t n)
{
	struct link_tx *tx = &l->tx[l->filling];
	void *p = tx->arena + tx->used;

	if (tx->used + n > l->arena_size)
		bench_die("header arena is full");
	tx->used += n;
	return p;
}

void *
link_header(struct link *l, size_t hlen)
{
	return tx_arena(l, hlen);
}

void
link_seal(struct link *l, struct pdu_hdr *hdr, const void *data, uint32_t len)
{
	size_t n = hdr->hlen;
	le32 crc;

	hdr->pdo = len ? (uint8_t)(hdr->hlen + (l->conf.hdgst ? PDU_DIGEST_LEN : 0)) : 0;
	hdr->flags |= l->conf.hdgst ? PDU_F_HDGST : 0;
	hdr->flags |= l->conf.ddgst && len ? PDU_F_DDGST : 0;
	hdr->plen = le32_put((uint32_t)(n + (l->conf.hdgst ? PDU_DIGEST_LEN : 0) + len +
	                                (l->conf.ddgst && len ? PDU_DIGEST_LEN : 0)));
	if (l->conf.hdgst) {
		crc = le32_put(digest_of(hdr, n));
		memcpy(tx_arena(l, PDU_DIGEST_LEN), &crc, PDU_DIGEST_LEN);
		n += PDU_DIGEST_LEN;
	}
	tx_add(l, hdr, n);
	if (!len)
		return;
	tx_add(l, data, len);
	if (l->conf.ddgst) {
		crc = le32_put(digest_of(data, len));
		tx_add(l, memcpy(tx_arena(l, PDU_DIGEST_LEN), &crc, PDU_DIGEST_LEN),
		       PDU_DIGEST_LEN);
	}
}

static struct io_uring_sqe *
link_sqe(struct link *l)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);

	if (!sqe)
		bench_die("submission queue is full");
	return sqe;
}

/* Next stretch of the in-flight queue: at most SEND_IOV_MAX entries and send_max bytes. */
static unsigned
tx_stretch(const struct link *l, const struct link_tx *tx, size_t *ret_len)
{
	unsigned n = 0;
	size_t len = 0;

	while (tx->sent + n < tx->n && n < SEND_IOV_MAX) {
		size_t more = tx->iov[tx->sent + n].iov_len;

		if (n && l->conf.send_max && len + more > l->conf.send_max)
			break;
		len += more;
		n++;
	}
	*ret_len = len;
	return n;
}

/* Returns true when all that was queued leaves now, and completes at once. */
static bool
link_flush(struct link *l)
{
	struct link_tx *tx = &l->tx[!l->filling];
	struct io_uring_sqe *sqe;
	unsigned n;

	if (l->sending)
		return false;
	if (tx->sent == tx->n) {
		tx->sent = tx->n = 0;
		tx->used = 0;
		if (l->tx[l->filling].n == 0)
			return false;
		tx = &l->tx[l->filling];
		l->filling = !l->filling;
	}
	n = tx_stretch(l, tx, &l->send_len);
	l->send_msg = (struct msghdr){ .msg_iov = &tx->iov[tx->sent], .msg_iovlen = n };
	tx->sent += n;
	sqe = link_sqe(l);
	if (n == 1)
		io_uring_prep_send(sqe, 0, l->send_msg.msg_iov->iov_base, l->send_len,
		                   MSG_WAITALL | MSG_NOSIGNAL);
	else
		io_uring_prep_sendmsg(sqe, 0, &l->send_msg, MSG_WAITALL | MSG_NOSIGNAL);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data64(sqe, UD_SEND);
	l->sending = true;
	return tx->sent == tx->n && l->send_len <= SEND_INLINE_MAX;
}

static void
link_arm(struct link *l)
{
	struct io_uring_sqe *sqe;
	size_t room = l->offer - l->have;

	if (l->receiving || l->closed)
		return;
	sqe = link_sqe(l);
	if (l->due_left) {
		l->recv_iov[0] = (struct iovec){ l->due, l->due_left };
		l->recv_iov[1] = (struct iovec){ l->stage, room };
		l->recv_msg = (struct msghdr){ .msg_iov = l->recv_iov, .msg_iovlen = 2 };
		io_uring_prep_recvmsg(sqe, 0, &l->recv_msg, 0);
	} else {
		io_uring_prep_recv(sqe, 0, l->stage + l->have, room, 0);
	}
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data64(sqe, UD_RECV);
	l->receiving = true;
}

/* The due payload grew up to l->due; checks its digest as it comes, while it is hot. */
static void
link_due_grew(struct link *l)
{
	uint32_t upto = MIN((uint32_t)(l->due - l->due_start), l->due_len);

	if (l->conf.ddgst) {
		l->crc = digest_add(l->crc, l->due_start + l->crc_pos, upto - l->crc_pos);
		l->crc_pos = upto;
	}
	if (l->due_left)
		return;
	if (l->conf.ddgst) {
		le32 want;

		memcpy(&want, l->due_start + l->due_len, sizeof(want));
		if (le32_get(want) != digest_final(l->crc))
			bench_die("data digest is wrong");
	}
	l->ops->payload(l);
}

/* One message out of n bytes at p; returns the bytes it used, 0 when its header is incomplete. */
static size_t
link_message(struct link *l, const uint8_t *p, size_t n)
{
	const struct pdu_hdr *hdr = (const struct pdu_hdr *)p;
	size_t hlen, take;
	uint32_t left;

	if (n < sizeof(*hdr))
		return 0;
	hlen = hdr->hlen + (hdr->flags & PDU_F_HDGST ? PDU_DIGEST_LEN : 0u);
	if (n < hlen)
		return 0;
	if (l->conf.hdgst) {
		le32 want;

		memcpy(&want, p + hdr->hlen, sizeof(want));
		if (le32_get(want) != digest_of(p, hdr->hlen))
			bench_die("header digest is wrong");
	}
	left = le32_get(hdr->plen) - (uint32_t)hlen;
	l->due_len = left - (hdr->flags & PDU_F_DDGST ? PDU_DIGEST_LEN : 0);
	l->due_start = l->ops->header(l, hdr, left ? l->due_len : 0);
	if (!left)
		return hlen;
	take = MIN(n - hlen, (size_t)left);
	memcpy(l->due_start, p + hlen, take);
	l->cost.staged += take;
	l->due = l->due_start + take;
	l->due_left = left - take;
	l->crc = DIGEST_START;
	l->crc_pos = 0;
	link_due_grew(l);
	return hlen + take;
}

static void
link_received(struct link *l, size_t n)
{
	size_t pos = 0, used;

	if (l->due_left) {
		size_t k = MIN(n, l->due_left);

		l->due += k;
		l->due_left -= k;
		l->cost.direct += k;
		n -= k;
		link_due_grew(l);
	}
	l->have += n;
	while (pos < l->have && (used = link_message(l, l->stage + pos, l->have - pos)) > 0)
		pos += used;
	l->have -= pos;
	if (pos && l->have)
		memmove(l->stage, l->stage + pos, l->have);
}

static void
link_complete(struct link *l, const struct io_uring_cqe *cqe)
{
	if (io_uring_cqe_get_data64(cqe) == UD_SEND) {
		l->sending = false;
		l->cost.sends++;
		if (cqe->res < 0 && cqe->res != -EPIPE && cqe->res != -ECONNRESET)
			bench_die("send: %s", strerror(-cqe->res));
		if (cqe->res < 0 || (size_t)cqe->res != l->send_len)
			l->closed = true;
		return;
	}
	l->receiving = false;
	l->cost.recvs++;
	if (cqe->res == 0 || cqe->res == -ECONNRESET)
		l->closed = true;
	else if (cqe->res < 0)
		bench_die("receive: %s", strerror(-cqe->res));
	else
		link_received(l, (size_t)cqe->res);
}

static void
link_wait(struct link *l, unsigned n)
{
	double until;

	if (l->conf.poll_us) {
		io_uring_submit_and_get_events(&l->ring);
		l->cost.enters++;
		until = bench_now() + l->conf.poll_us * 1e-6;
		while (io_uring_cq_ready(&l->ring) < n && bench_now() < until) {
			io_uring_get_events(&l->ring);
			l->cost.enters++;
		}
		if (io_uring_cq_ready(&l->ring) >= n)
			return;
	}
	l->cost.enters++;
	io_uring_submit_and_wait(&l->ring, n);
}

void
link_turn(struct link *l)
{
	struct io_uring_cqe *cqes[32];
	unsigned n;

	n = link_flush(l) ? 2 : 1;
	link_arm(l);
	link_wait(l, n);
	n = io_uring_peek_batch_cqe(&l->ring, cqes, ARRAY_SIZE(cqes));
	for (unsigned i = 0; i < n; i++)
		link_complete(l, cqes[i]);
	io_uring_cq_advance(&l->ring, n);
}
