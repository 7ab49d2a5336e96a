/* I/O commands: judging, executing, statuses.
 *
 * Happy path: io_prepare() judges a fresh command, so that nothing wrong moves data, and says where
 * data can lie; io_execute() counts it into its namespace (or holds it at the gate), judges again
 * if time has passed, and runs it; io_finish() ends it. io_fused.c and io_ranges.c have the
 * commands that take several steps.
 *
 * What can fail: a status for the command. Backends' errno becomes a status in io_status(), nowhere
 * else.
 */
#ifndef SLUICE_IO_H
#define SLUICE_IO_H

#include "target/cmd.h"

enum {
	IO_FUSED_MAX_BLOCKS = 8,        /* ACWU: blocks of an atomic compare and write */
	IO_CHUNK = 128 << 10,           /* second buffer of Compare, Verify and Copy */
	IO_COPY_MAX_RANGES = 128,       /* MSRC + 1 */
	IO_ZEROES_SHIFT = 25,           /* 32 MiB, WZSL: what NLB can say in 512-byte blocks; Linux
	                                   cuts by it */
};

/* Judges a fresh command on an I/O queue. Returns 0, or the NVMe status that ends it. *ret_place:
 * where its data lies in place (it is then counted in already), or NULL for a buffer. cmd->extra:
 * bytes of second buffer that it needs. cmd->state is CMD_LIMITED when it waits for a token. */
uint16_t io_prepare(struct cmd *cmd, uint8_t **ret_place);

/* The same for one that has waited for a token. */
uint16_t io_prepare_again(struct cmd *cmd, uint8_t **ret_place);

/* Data from the host is in place; runs it. Ends in cmd_complete(). */
void io_execute(struct cmd *cmd);

/* Called when the command ends, however it ends: leaves the namespace. */
void io_end(struct cmd *cmd);

/* errno (negative) of a backend as NVMe status. */
uint16_t io_status(int res, bool write);

/* Between the io_*.c: */

struct io_range {               /* bytes of the namespace */
	uint64_t off, len;
};

uint64_t io_slba(const struct cmd *cmd); /* CDW10-11 */
uint32_t io_blocks(const struct cmd *cmd); /* CDW12, NLB + 1 */
/* The blocks that CDW10-12 name, as bytes. The command was judged. */
struct io_range io_range_of(const struct cmd *cmd);
/* A command that was counted in touches bytes of [off, off + len). */
bool io_overlaps(const struct cmd *cmd, uint64_t off, uint64_t len);
/* Counts cmd in; false: it is held at the gate or has been completed. */
bool io_enter(struct cmd *cmd);
/* Counts what was done and completes it. */
void io_finish(struct cmd *cmd, uint16_t status);
/* Submits a backend operation of cmd; next runs with its result in cmd->io.res, at once or
 * later. */
void io_submit(struct cmd *cmd, enum backend_op op, struct io_range range, uint8_t *data,
               void (*next)(struct cmd *cmd));
/* Second buffer: cmd->extra bytes. */
uint8_t *io_extra(const struct cmd *cmd);
struct ns *io_ns(const struct cmd *cmd, uint32_t nsid); /* NULL: not there, or not attached */

void io_compare(struct cmd *cmd);       /* io_ranges.c */
void io_verify(struct cmd *cmd);
void io_dsm(struct cmd *cmd);
void io_copy(struct cmd *cmd);
uint16_t io_judge_dsm(const struct cmd *cmd, const struct ns *ns);
uint16_t io_judge_copy(const struct cmd *cmd, const struct ns *ns);

void io_zip_write(struct cmd *cmd);     /* io_zip.c */
void io_zip_read(struct cmd *cmd);
uint16_t io_judge_zip(const struct cmd *cmd, const struct ns *ns);
uint32_t io_zip_max(const struct target *t); /* bytes of blocks in one of them */

/* MSSRL: blocks of one range of Copy. */
uint32_t io_copy_longest(const struct target *t, const struct ns *ns);

/* Fused halves. io_fused_arrived() is told every capsule of an I/O queue in order; a status ends
 * cmd. */
uint16_t io_fused_arrived(struct cmd *cmd);
void io_fused_refused(struct cmd *cmd); /* the judges ended it at once */
void io_fused_execute(struct cmd *cmd); /* its data is here */
void io_fused_end(struct cmd *cmd);     /* one half ends for whatever reason */

#endif
