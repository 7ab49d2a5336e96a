/* Accepts connections of one port and hands each to the reactor that has the fewest.
 *
 * Lives on reactor 0: one accept is in flight for each listener. At the connection limit, or out
 * of file descriptors, the new socket is closed at once (its host retries) and accepting goes on
 * after a pause, so that a flood costs little.
 */
#include "target/listener.h"

#include "common/log.h"
#include "common/meter.h"
#include "common/patience.h"
#include "target/conn.h"
#include "target/subsys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_NS 100000000ull /* pause after accept() failed */

enum { BACKLOG = 1024 };

struct listener {
	struct port *port;
	struct reactor *r;
	int fd;
	bool stopping;
	struct op accept_op;
	struct ring_timer retry;
};

struct handover {               /* an accepted socket on its way to its reactor */
	struct op op;
	struct reactor *r;
	struct port *port;
	int fd;
};

static void accept_next(struct listener *l);

static void
handed_over(struct op *op, int res, uint32_t flags)
{
	struct handover *h = container_of(op, struct handover, op);

	(void)res;
	(void)flags;
	conn_accepted(h->r, h->fd, h->port);
	free(h);
}

static struct reactor *
least_loaded(struct target *t)
{
	struct reactor *best = &t->reactors[0];
	unsigned i;

	for (i = 1; i < t->nr_reactors; i++)
		if (t->reactors[i].nr_conns < best->nr_conns)
			best = &t->reactors[i];
	return best;
}

static void
hand_over(struct listener *l, int fd)
{
	struct target *t = l->port->t;
	struct handover *h;

	if (t->nr_conns >= t->limits.connections || !(h = malloc(sizeof(*h)))) {
		log_warn("port %u: connection refused, %u of %u are in use", l->port->id,
		         t->nr_conns, t->limits.connections);
		close(fd);
		return;
	}
	h->op = (struct op){ handed_over, "listener.handover" };
	h->r = least_loaded(t);
	h->port = l->port;
	h->fd = fd;
	port_get(l->port);
	t->nr_conns++;
	h->r->nr_conns++;
	ring_post(l->r->ring, h->r->ring, &h->op);
}

static void
listener_free(struct listener *l)
{
	ring_timer_del(&l->retry);
	close(l->fd);
	port_put(l->port);
	free(l);
}

static void
accept_done(struct op *op, int res, uint32_t flags)
{
	struct listener *l = container_of(op, struct listener, accept_op);

	(void)flags;
	if (l->stopping) {
		if (res >= 0)
			close(res);
		listener_free(l);
		return;
	}
	if (res >= 0) {
		hand_over(l, res);
		accept_next(l);
		return;
	}
	if (res != -ECONNABORTED && res != -EINTR)
		log_warn("port %u: accept: %s; trying again", l->port->id, strerror(-res));
	ring_timer_set(l->r->ring, &l->retry, ring_now(l->r->ring) + RETRY_NS);
}

static void
accept_next(struct listener *l)
{
	ring_accept(l->r->ring, &l->accept_op, l->fd, NULL, NULL);
}

static void
retry(struct ring_timer *t)
{
	accept_next(container_of(t, struct listener, retry));
}

static int
port_sockaddr(const struct port *p, struct sockaddr_storage *ss, socklen_t *len)
{
	uint16_t svc = htons((uint16_t)strtoul(p->trsvcid, NULL, 10));

	memset(ss, 0, sizeof(*ss));
	if (p->ipv6) {
		struct sockaddr_in6 *a = (struct sockaddr_in6 *)ss;

		a->sin6_family = AF_INET6;
		a->sin6_port = svc;
		*len = sizeof(*a);
		return inet_pton(AF_INET6, p->traddr, &a->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	struct sockaddr_in *a = (struct sockaddr_in *)ss;

	a->sin_family = AF_INET;
	a->sin_port = svc;
	*len = sizeof(*a);
	return inet_pton(AF_INET, p->traddr, &a->sin_addr) == 1 ? 0 : -EINVAL;
}

static int
listen_on(struct port *p, int *ret_fd, struct err *err)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int one = 1, fd;

	if (port_sockaddr(p, &ss, &len) < 0)
		return err_set(err, -EINVAL, "'%s' is not an %s address", p->traddr,
		               p->ipv6 ? "IPv6" : "IPv4");
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (p->ipv6) /* "::" and "0.0.0.0" are two ports */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, BACKLOG) < 0) {
		int res = -errno;

		close(fd);
		return err_set(err, res, "cannot listen on %s port %s: %s", p->traddr, p->trsvcid,
		               strerror(-res));
	}
	getsockname(fd, (struct sockaddr *)&ss, &len);
	p->bound_port = ntohs(p->ipv6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
	                              : ((struct sockaddr_in *)&ss)->sin_port);
	*ret_fd = fd;
	return 0;
}

int
listener_start(struct port *p, struct err *err)
{
	struct listener *l = calloc(1, sizeof(*l));
	struct patience patience;
	char where[64];
	int res;

	if (!l)
		return err_set(err, -ENOMEM, "no memory for a listener");
	snprintf(where, sizeof(where), "%.46s port %.8s", p->traddr, p->trsvcid);
	patience_begin(&patience);
	while ((res = listen_on(p, &l->fd, err)) == -EADDRINUSE && patience_left(&patience, where))
		;
	if (res < 0) {
		free(l);
		return res;
	}
	l->port = p;
	l->r = &p->t->reactors[0];
	l->accept_op = (struct op){ accept_done, "listener.accept" };
	ring_timer_init(&l->retry, retry);
	port_get(p);
	p->listener = l;
	accept_next(l);
	return 0;
}

void
listener_stop(struct port *p)
{
	struct listener *l = p->listener;

	if (!l)
		return;
	p->listener = NULL;
	if (!list_empty(&l->retry.node)) {
		listener_free(l);       /* no accept is in flight */
		return;
	}
	l->stopping = true;
	/* The accept in flight keeps the socket open a while; the address must be free at once. */
	shutdown(l->fd, SHUT_RDWR);
	ring_cancel(l->r->ring, &l->accept_op);
}
