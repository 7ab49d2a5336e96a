/* The compress stage: blocks travel smaller between a volume's VMs and targets of ours.
 *
 * Happy path: a write's blocks are packed into a frame in staging memory and sent by ZIP_WRITE; a
 * read is asked for by ZIP_READ, its frame arrives in staging memory and is unpacked into that of
 * the VM. Blocks that do not shrink are sent from VM memory as they are, and when that has happened
 * several times in a row, the next ones are not even tried.
 *
 * What can fail: the target, which cannot (its status says so, or the path does in its place): the
 * part is sent again as it is, or fails, as configured. A target's bad frame: that part ends with
 * Data Transfer Error, what its VM memory holds then is undefined; it is counted.
 */
#ifndef SLUICE_STAGE_ZSTD_H
#define SLUICE_STAGE_ZSTD_H

#include "common/conf_write.h"
#include "initiator/stage.h"

/* cfg->kind is STAGE_COMPRESS. */
int zstd_new(const struct stage_config *cfg, unsigned nr_reactors, struct stage **ret,
             struct err *err);
/* Puts its counters; any thread. */
void zstd_report(const struct stage *s, struct conf_writer *w);

#endif
