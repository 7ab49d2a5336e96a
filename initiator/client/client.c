/* libsluice: the connection to the daemon, its volumes and its memory. See sluice.h.
 *
 * Happy path: sluice_open() connects and says hello; every other call here is one message and its
 * reply, made by sluice_ask(). Events that come in between are remembered until sluice_event()
 * asks.
 *
 * What can fail: everything the daemon refuses; its sentence becomes sluice_error(). No allocation
 * but what the caller asks for, and nothing is printed.
 */
#include "initiator/client/sluice.h"

#include "initiator/client/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static __thread char open_error[sizeof(((struct sluice *)0)->error)];

int
sluice_fail(struct sluice *s, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->error, sizeof(s->error), fmt, ap);
	va_end(ap);
	return err;
}

const char *
sluice_error(const struct sluice *s)
{
	return s ? s->error : open_error;
}

int
sluice_fd(const struct sluice *s)
{
	return s->fd;
}

/* messages */

/* A later event of the same disk replaces the earlier one. */
static void
remember(struct sluice *s, const struct sluice_msg *msg)
{
	unsigned i;

	if (msg->err)
		return; /* a broken queue: its own calls say so */
	for (i = 0; i < s->nr_events && s->events[i].nsid != msg->volume.nsid; i++)
		;
	if (i == SLUICE_EVENTS)
		return;
	s->events[i] = msg->volume;
	if (i == s->nr_events)
		s->nr_events++;
}

/* One message; 0: none is there now (only with MSG_DONTWAIT). */
static int
receive(struct sluice *s, struct sluice_msg *ret, int flags)
{
	ssize_t n;

	do
		n = recv(s->fd, ret, sizeof(*ret), flags);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (n < 0)
		return sluice_fail(s, -errno, "reading from the daemon: %s", strerror(errno));
	if (n == 0)
		return sluice_fail(s, -EPIPE, "the daemon has closed the connection");
	if (n != sizeof(*ret))
		return sluice_fail(s, -EPROTO, "the daemon sent a message of %zd bytes", n);
	ret->volume.name[sizeof(ret->volume.name) - 1] = '\0';
	ret->text[sizeof(ret->text) - 1] = '\0';
	return 1;
}

static int
send_msg(struct sluice *s, const struct sluice_msg *msg, const int *fds, unsigned nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(3 * sizeof(int))];
	} control;
	struct iovec iov = {(void *)(uintptr_t)msg, sizeof(*msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (nfds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(s->fd, &mh, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return sluice_fail(s, -errno, "writing to the daemon: %s", strerror(errno));
	return 0;
}

int
sluice_ask(struct sluice *s, struct sluice_msg *msg, const int *fds, unsigned nfds)
{
	uint32_t op = msg->op;
	int res = send_msg(s, msg, fds, nfds);

	while (res == 0) {
		res = receive(s, msg, 0);
		if (res < 0)
			return res;
		if (msg->op == op)
			break;
		if (msg->op != SLUICE_MSG_EVENT)
			return sluice_fail(s, -EPROTO, "the daemon answered %u with %u", op,
					   msg->op);
		remember(s, msg);
		res = 0;
	}
	if (res < 0)
		return res;
	if (msg->err)
		return sluice_fail(s, msg->err < 0 ? msg->err : -EPROTO, "%s", msg->text);
	return 0;
}

int
sluice_event(struct sluice *s, struct sluice_volume *ret)
{
	struct sluice_msg msg;
	int res;

	while ((res = receive(s, &msg, MSG_DONTWAIT)) > 0)
		if (msg.op == SLUICE_MSG_EVENT)
			remember(s, &msg);
	if (s->nr_events == 0)
		return res;
	*ret = s->events[0];
	memmove(s->events, s->events + 1, --s->nr_events * sizeof(s->events[0]));
	return 1;
}

/* connecting */

static const char *
default_path(char *buf, size_t size)
{
	const char *path = getenv("SLUICE_SHM"), *dir = getenv("XDG_RUNTIME_DIR");

	if (path && path[0])
		return path;
	if (geteuid() != 0 && dir && dir[0] == '/') {
		snprintf(buf, size, "%s/sluice/shm.sock", dir);
		if (access(buf, F_OK) == 0)
			return buf;
	}
	return "/run/sluice/shm.sock";
}

static int
connect_to(struct sluice *s, const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct sluice_msg msg = {.op = SLUICE_MSG_HELLO, .abi = SLUICE_ABI};
	int res;

	if (strlen(path) >= sizeof(sa.sun_path))
		return sluice_fail(s, -ENAMETOOLONG, "%s: too long for a socket", path);
	memcpy(sa.sun_path, path, strlen(path));
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return sluice_fail(s, -errno, "%s: %s", path, strerror(errno));
	res = sluice_ask(s, &msg, NULL, 0);
	if (res == 0 && msg.abi != SLUICE_ABI)
		res = sluice_fail(s, -EPROTO, "%s: the daemon speaks ABI %u, not %u", path, msg.abi,
				  SLUICE_ABI);
	return res;
}

int
sluice_open(const char *socket_path, struct sluice **ret)
{
	struct sluice *s = calloc(1, sizeof(*s));
	char buf[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int res;

	if (!s) {
		snprintf(open_error, sizeof(open_error), "no memory");
		return -ENOMEM;
	}
	s->fd = -1;
	res = connect_to(s, socket_path ? socket_path : default_path(buf, sizeof(buf)));
	if (res < 0) {
		memcpy(open_error, s->error, sizeof(open_error));
		sluice_close(s);
		return res;
	}
	*ret = s;
	return 0;
}

static void
memory_free(struct sluice_memory *m)
{
	munmap(m->ptr, m->size);
	free(m);
}

void
sluice_close(struct sluice *s)
{
	if (!s)
		return;
	while (s->queues)
		sluice_queue_free(s->queues);
	while (s->memory) {
		struct sluice_memory *m = s->memory;

		s->memory = m->next;
		memory_free(m);
	}
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

/* volumes */

int
sluice_volume(struct sluice *s, const char *name, struct sluice_volume *ret)
{
	struct sluice_msg msg = {.op = SLUICE_MSG_VOLUME};
	int res;

	if (!name[0] || strlen(name) >= sizeof(msg.volume.name))
		return sluice_fail(s, -ENOENT, "there is no volume '%s'", name);
	memcpy(msg.volume.name, name, strlen(name));
	res = sluice_ask(s, &msg, NULL, 0);
	if (res == 0)
		*ret = msg.volume;
	return res;
}

int
sluice_volume_at(struct sluice *s, uint32_t index, struct sluice_volume *ret)
{
	struct sluice_msg msg = {.op = SLUICE_MSG_VOLUME, .id = index};
	int res = sluice_ask(s, &msg, NULL, 0);

	if (res == 0)
		*ret = msg.volume;
	return res;
}

/* memory */

int
sluice_memfd(struct sluice *s, const char *name, size_t size, int *ret_fd, void **ret_ptr)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), res;
	void *p;

	if (fd < 0)
		return sluice_fail(s, -errno, "cannot make a memfd: %s", strerror(errno));
	p = MAP_FAILED;
	if (ftruncate(fd, (off_t)size) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		res = -errno;
		close(fd);
		return sluice_fail(s, res, "cannot make %zu bytes of shared memory: %s", size,
				   strerror(-res));
	}
	*ret_fd = fd;
	*ret_ptr = p;
	return 0;
}

int
sluice_register(struct sluice *s, size_t size, void **ret_ptr, uint64_t *ret_addr)
{
	struct sluice_msg msg = {.op = SLUICE_MSG_MEM_ADD};
	struct sluice_memory *m = calloc(1, sizeof(*m));
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd, res;

	if (!m)
		return sluice_fail(s, -ENOMEM, "no memory");
	m->size = size == 0 ? page : (size + page - 1) / page * page;
	res = sluice_memfd(s, "sluice-memory", m->size, &fd, &m->ptr);
	if (res < 0) {
		free(m);
		return res;
	}
	msg.size = m->size;
	res = sluice_ask(s, &msg, &fd, 1);
	close(fd);
	if (res < 0) {
		memory_free(m);
		return res;
	}
	m->addr = msg.addr;
	m->next = s->memory;
	s->memory = m;
	*ret_ptr = m->ptr;
	*ret_addr = m->addr;
	return 0;
}

int
sluice_unregister(struct sluice *s, uint64_t addr)
{
	struct sluice_msg msg = {.op = SLUICE_MSG_MEM_DEL, .addr = addr};
	struct sluice_memory **at, *m;
	int res;

	for (at = &s->memory; *at && (*at)->addr != addr; at = &(*at)->next)
		;
	if (!*at)
		return sluice_fail(s, -ENOENT, "no memory is registered at that address");
	res = sluice_ask(s, &msg, NULL, 0);
	if (res < 0)
		return res;
	m = *at;
	*at = m->next;
	memory_free(m);
	return 0;
}
