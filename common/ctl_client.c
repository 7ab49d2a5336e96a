/* The synchronous client of the control socket; see ctl_client.h.
 *
 * Happy path of a call: 1. write the request, 2. read lines until one has its id, 3. take the
 * result out of it. What can fail is said by err; the connection is of no use after a time-out.
 */
#include "common/ctl_client.h"
#include "common/conf_write.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_SIZE = 65536 };

/* Why connect() failed, and what to do. */
static int
connect_err(const char *path, int error, struct err *err)
{
	switch (error) {
	case ENOENT:
		return err_set(err, -error, "%s: no daemon there (no such socket)", path);
	case ECONNREFUSED:
		return err_set(err, -error, "%s: no daemon there (nobody answers)", path);
	case EACCES:
	case EPERM:
		return err_set(err, -error, "%s: permission denied, only the daemon's user may",
			       path);
	default:
		return err_set(err, -error, "%s: %s", path, strerror(error));
	}
}

int
ctl_client_open(struct ctl_client *c, const char *path, struct err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int rc;

	memset(c, 0, sizeof(*c));
	c->fd = -1;
	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, -ENAMETOOLONG, "%s: longer than %zu bytes", path,
		               sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path));
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return err_set(err, -errno, "socket: %s", strerror(errno));
	if (connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return 0;
	rc = connect_err(path, errno, err);
	ctl_client_close(c);
	return rc;
}

void
ctl_client_close(struct ctl_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->in);
	memset(c, 0, sizeof(*c));
	c->fd = -1;
}

/* The request as a line, heap memory; NULL: no memory. */
static char *
request_line(unsigned id, const char *method, const char *params)
{
	struct conf_writer w;
	char *text, *line;
	size_t n;

	conf_writer_init(&w, false);
	conf_begin_object(&w, NULL);
	conf_put_str(&w, "jsonrpc", "2.0");
	conf_put_u64(&w, "id", id);
	conf_put_str(&w, "method", method);
	if (params)
		conf_put_raw(&w, "params", params);
	conf_end(&w);
	text = conf_writer_take(&w);
	if (!text)
		return NULL;
	n = strlen(text);
	line = realloc(text, n + 2);
	if (!line) {
		free(text);
		return NULL;
	}
	memcpy(line + n, "\n", 2);
	return line;
}

static int
send_line(struct ctl_client *c, const char *line, struct err *err)
{
	size_t left = strlen(line);

	while (left) {
		ssize_t n = send(c->fd, line, left, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, -errno, "cannot ask the daemon: %s", strerror(errno));
		line += n;
		left -= (size_t)n;
	}
	return 0;
}

/* Receives more behind what is there. s: how long to wait, -1: for ever. */
static int
read_more(struct ctl_client *c, int s, struct err *err)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	ssize_t n;
	char *in;

	if (c->len > CONF_FILE_MAX)
		return err_set(err, -EFBIG, "the daemon's reply is larger than 16 MiB");
	if (c->size - c->len < READ_SIZE) {
		in = realloc(c->in, c->size * 2 + READ_SIZE);
		if (!in)
			return err_set(err, -ENOMEM, "out of memory");
		c->in = in;
		c->size = c->size * 2 + READ_SIZE;
	}
	do {
		n = poll(&p, 1, s < 0 ? -1 : s * 1000);
		if (n == 0)
			return err_set(err, -ETIMEDOUT, "the daemon is silent for %d s", s);
		if (n > 0)
			n = recv(c->fd, c->in + c->len, c->size - c->len, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_set(err, -errno, "cannot hear the daemon: %s", strerror(errno));
	if (n == 0)
		return err_set(err, -ECONNRESET,
			       "the daemon closed the connection (it is stopping, or "
			       "has too many clients)");
	c->len += (size_t)n;
	return 0;
}

/* The next line as a document. */
static int
read_line(struct ctl_client *c, int s, struct conf **ret, struct err *err)
{
	size_t from = 0;
	char *end;
	int rc;

	while (!(end = c->len > from ? memchr(c->in + from, '\n', c->len - from) : NULL)) {
		from = c->len;
		rc = read_more(c, s, err);
		if (rc)
			return rc;
	}
	*end = '\0';
	*ret = conf_parse(c->in, "reply", err);
	c->len -= (size_t)(end + 1 - c->in);
	memmove(c->in, end + 1, c->len);
	return *ret ? 0 : -EPROTO;
}

/* 1: the result is in doc, 0: this is no reply to request id. */
static int
judge_reply(const struct conf *doc, unsigned id, const struct conf_node **ret, struct err *err)
{
	const struct conf_node *root = conf_root(doc), *error;
	const char *text = "the daemon refused";
	uint64_t got = id;

	if (conf_get_object(root, "error", &error, NULL) == 1) {
		conf_get_str(error, "message", CONF_FILE_MAX, &text, NULL);
		return err_set(err, -EREMOTEIO, "%s", text);
	}
	if (conf_get_u64(root, "id", 0, UINT64_MAX, &got, NULL) != 1 || got != id)
		return 0;
	*ret = conf_need(root, "result", err);
	return *ret ? 1 : -EPROTO;
}

int
ctl_client_call(struct ctl_client *c, const char *method, const char *params, struct conf **ret,
                const struct conf_node **ret_result, struct err *err)
{
	char *line = request_line(++c->id, method, params);
	struct conf *doc = NULL;
	int rc = line ? send_line(c, line, err) : err_set(err, -ENOMEM, "out of memory");

	free(line);
	while (rc == 0) {
		rc = read_line(c, CTL_REPLY_S, &doc, err);
		if (rc)
			return rc;
		rc = judge_reply(doc, c->id, ret_result, err);
		if (rc != 1)
			conf_free(doc);
	}
	if (rc < 0)
		return rc;
	*ret = doc;
	return 0;
}

int
ctl_client_event(struct ctl_client *c, struct conf **ret, struct err *err)
{
	const struct conf_node *params;
	int rc;

	for (;;) {
		rc = read_line(c, -1, ret, err);
		if (rc)
			return rc;
		if (conf_get_object(conf_root(*ret), "params", &params, NULL) == 1)
			return 0;
		conf_free(*ret);
	}
}
