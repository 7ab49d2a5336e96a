/* Who a client is and what it may see: peer credentials become a VF, names and numbers become
 * disks.
 *
 * Provided by volume.c and its configuration, used by the fronts, on reactor 0.
 */
#ifndef SLUICE_VF_H
#define SLUICE_VF_H

#include "initiator/client/sluice.h"
#include "initiator/front.h"

/* A new VF for a client with these credentials: the "vms" entry with that uid, its disks that have
 * no socket of their own counted, linked into initiator.vfs. mem is NULL: it is the front's, which
 * sets it, and takes it back before vf_put(). NULL: no entry (err names the uid), or no memory. */
struct vf *vf_for_peer(struct initiator *in, uint32_t uid, uint32_t pid, struct err *err);

/* The same for whoever came to the socket of one disk of that entry. */
struct vf *vf_for_disk(struct initiator *in, const char *name, struct volume *disk, uint32_t uid,
		       uint32_t pid);

/* The disk of that volume name or, when name is empty, the index-th disk of the VF, in order of
 * nsid: fills ret. -ENOENT: there is none; also the end of counting. */
int vf_disk_find(struct vf *vf, const char *name, uint32_t index, struct sluice_volume *ret);

/* The client has gone: gives back its disks, unlinks and frees the VF. None of its queues is left.
 */
void vf_put(struct vf *vf);

#endif
