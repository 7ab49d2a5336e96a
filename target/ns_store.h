/* Managed namespaces: files in a subsystem's ns_dir that Namespace Management made.
 *
 * ns-<nsid>.img holds the bytes (sparse), ns-<nsid>.json what the host chose and the ids. Happy
 * path: create picks the lowest free NSID, makes the image, writes the description (temporary
 * file, fsync, rename, fsync of the directory) and adds the namespace; after a restart
 * ns_store_load() brings all of them back.
 *
 * What can fail: the limit ns_dir_limit or the file system is full (-ENOSPC), no free NSID
 * (-EMFILE), the directory cannot be written. A half-made namespace leaves no files behind. Lock
 * held everywhere.
 */
#ifndef SLUICE_NS_STORE_H
#define SLUICE_NS_STORE_H

#include "target/subsys.h"

/* Adds a namespace of blocks * block bytes, attached to nobody (auto_attach is false). Hosts are
 * told nothing yet. */
int ns_store_create(struct reactor *from, struct subsys *s, uint64_t blocks, uint32_t block,
                    struct ns **ret, struct err *err);

/* Removes the namespace (ns_remove) and its files. Only managed ones: -EPERM otherwise. */
int ns_store_delete(struct reactor *from, struct ns *ns, struct err *err);

/* New controllers see it, also after a restart. A description that cannot be written is logged. */
void ns_store_set_attach(struct ns *ns, bool auto_attach);

/* Bytes for TNVMCAP and UNVMCAP: ns_dir_limit, or the file system without one, and what is left
 * of it. Both 0 when the subsystem has no ns_dir. */
void ns_store_capacity(const struct subsys *s, uint64_t *total, uint64_t *unallocated);

/* Adds every namespace that s->ns_dir describes and that is not there yet. A damaged description
 * is logged and left alone. */
int ns_store_load(struct reactor *from, struct subsys *s, struct err *err);

/* A managed namespace was resized: its description follows. */
void ns_store_resized(struct ns *ns);

#endif
