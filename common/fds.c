/* See fds.h. */
#include "common/fds.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

unsigned
fds_collect(struct msghdr *m, int *fds, unsigned n, unsigned max)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < came; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			fcntl(fd, F_SETFD, FD_CLOEXEC);
			if (n < max)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}
