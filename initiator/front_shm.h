/* The shared-memory front: programs that reach their disks through queues in shared memory, see
 * sluice-shm(7).
 *
 * Sockets and messages are handled on reactor 0; each queue lives on the reactor that has the
 * fewest.
 */
#ifndef SLUICE_FRONT_SHM_H
#define SLUICE_FRONT_SHM_H

#include "common/err.h"
#include "initiator/initiator.h"

struct front_shm;

/* Listens at path. On reactor 0; the reactors are running or about to. */
int front_shm_new(struct initiator *in, const char *path, struct front_shm **ret, struct err *err);
/* Drops every client; stopped(arg) from reactor 0's loop when nothing of them is in flight any
 * more, after which front_shm_free() may follow. I/O must be able to end meanwhile: reactors run,
 * paths fail or answer. */
void front_shm_stop(struct front_shm *f, void (*stopped)(void *arg), void *arg);
void front_shm_free(struct front_shm *f);

#endif
