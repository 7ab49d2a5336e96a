/* Descriptors that came with a message. Nothing can fail. */
#ifndef SLUICE_FDS_H
#define SLUICE_FDS_H

#include <sys/socket.h>

/* Every one that came with m is ours from here on, wanted or not: they are put behind the n that
 * fds has, closed at exec, those beyond max are closed at once. Returns how many fds has now. */
unsigned fds_collect(struct msghdr *m, int *fds, unsigned n, unsigned max);

#endif
