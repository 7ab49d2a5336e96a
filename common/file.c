/* Replacing a file; see file.h.
 *
 * Happy path: a temporary file beside it, fsync, rename, fsync of the directory. What can fail:
 * each of these; the temporary file is taken away then.
 */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 3200 };

static int
write_all(int fd, const char *text)
{
	size_t n = strlen(text);

	while (n > 0) {
		ssize_t done = write(fd, text, n);

		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			text += done;
			n -= (size_t)done;
		}
	}
	return fsync(fd) ? -errno : 0;
}

/* As the file that is replaced, if there is one. Who may not give a file away keeps it. */
static int
take_after(int fd, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno != ENOENT || fchmod(fd, 0644) < 0 ? -errno : 0;
	if (fchown(fd, st.st_uid, st.st_gid) < 0 && errno != EPERM)
		return -errno;
	return fchmod(fd, st.st_mode & 07777) < 0 ? -errno : 0;
}

int
file_sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = fsync(fd) ? -errno : 0;
	close(fd);
	return ret;
}

int
file_replace(const char *path, const char *text, struct err *err)
{
	char tmp[PATH_SIZE + 8], dir[PATH_SIZE];
	const char *slash = strrchr(path, '/');
	int fd, ret;

	if (strlen(path) >= PATH_SIZE)
		return err_set(err, -ENAMETOOLONG, "the path %.40s... is too long", path);
	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(err, -errno, "cannot write %s: %s", tmp, strerror(errno));
	ret = take_after(fd, path);
	if (!ret)
		ret = write_all(fd, text);
	close(fd);
	if (!ret && rename(tmp, path))
		ret = -errno;
	if (!ret)
		ret = file_sync_dir(dir);
	if (!ret)
		return 0;
	unlink(tmp);
	return err_set(err, ret, "cannot write %s: %s", path, strerror(-ret));
}
