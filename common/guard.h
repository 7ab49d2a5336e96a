/* Memory that strangers share with us and may take away again: touching it must not end us.
 *
 * A file that is mapped can be truncated by whoever else has it, and a hole in huge pages cannot
 * always be filled again; the next touch is SIGBUS, for a system call EFAULT. Happy path:
 * guard_add() tells of a mapping, guard_del() before it is unmapped; nothing else ever happens.
 *
 * What can fail: the memory. Then the whole mapping is replaced by zeroes on the spot, *spoiled
 * becomes true, guard_hits goes up, and whoever touched it goes on; the owner of the mapping sees
 * the flag and ends what rests on it. A SIGBUS anywhere else is what it always was.
 */
#ifndef SLUICE_GUARD_H
#define SLUICE_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

extern atomic_uint guard_hits; /* changes when any mapping was spoiled */

/* A mapping of size bytes, whole (huge) pages; spoiled outlives it. Returns its number, or -ENOSPC:
 * there are too many. Any thread. */
int guard_add(void *base, size_t size, atomic_bool *spoiled);
void guard_del(int nr); /* nobody touches it any more */

/* A system call was refused these bytes by -EFAULT: reads one of each page, so that what is gone is
 * replaced. True: something was, the call may be made again. */
bool guard_touch(const struct iovec *iov, unsigned n);

#endif
