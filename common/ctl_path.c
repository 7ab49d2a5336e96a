/* Places of the control sockets, and listening there; see ctl_path.h.
 *
 * Happy path of ctl_listen(): make the directory, remove what a killed daemon left, bind, listen.
 * What can fail: the path is taken (for longer than a killed daemon needs to end), no socket, too
 * long or forbidden; said by err. A default path that is too long is cut and refused there, too.
 */
#include "common/ctl_path.h"

#include "common/patience.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 16 };

const char *
ctl_default_path(char *buf, size_t size, const char *name)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");

	if (geteuid() != 0 && dir && dir[0] == '/')
		snprintf(buf, size, "%s/sluice/%s", dir, name);
	else
		snprintf(buf, size, "/run/sluice/%s", name);
	return buf;
}

/* A path that is there may be what a daemon left behind that was killed. Removes it then. */
static int
remove_stale(const struct sockaddr_un *sa, int type, struct err *err)
{
	const char *path = sa->sun_path;
	struct stat st;
	int fd, rc = 0;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, -EEXIST, "%s: is there and is no socket", path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, -errno, "%s: %s", path, strerror(errno));
	if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0 || errno == EAGAIN)
		rc = err_set(err, -EADDRINUSE, "%s: another daemon answers there", path);
	else if (errno != ECONNREFUSED || (unlink(path) < 0 && errno != ENOENT))
		rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
	close(fd);
	return rc;
}

/* Makes the last directory of path; whatever fails shows when binding. */
static void
make_directory(const char *path)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	mkdir(dir, 0755);
}

/* fchmod() before bind() gives the file no more than its mode from the first moment on; what the
 * umask took away comes back before anybody can connect. */
static int
bind_and_listen(int fd, const struct sockaddr_un *sa, mode_t mode, struct stat *ret)
{
	return fchmod(fd, mode) < 0 || bind(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0 ||
	       chmod(sa->sun_path, mode) < 0 || listen(fd, BACKLOG) < 0 ||
	       stat(sa->sun_path, ret) < 0 ? -errno : 0;
}

int
ctl_listen(const char *path, struct stat *ret_inode, struct err *err)
{
	return ctl_listen_as(path, SOCK_STREAM, 0600, ret_inode, err);
}

int
ctl_listen_as(const char *path, int type, mode_t mode, struct stat *ret_inode, struct err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct patience p;
	int fd, rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, -ENAMETOOLONG, "%s: longer than %zu bytes", path,
		               sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path));
	make_directory(path);
	patience_begin(&p);
	while ((rc = remove_stale(&sa, type, err)) == -EADDRINUSE && patience_left(&p, path))
		;
	if (rc)
		return rc;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	rc = fd < 0 ? -errno : bind_and_listen(fd, &sa, mode, ret_inode);
	if (rc == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return err_set(err, rc, "%s: %s", path, strerror(-rc));
}
