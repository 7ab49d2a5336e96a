/* I/O commands of several steps: Compare, Verify, Dataset Management, Copy.
 *
 * Each keeps its place in cmd->step and cmd->cursor and works in pieces of IO_CHUNK through the
 * second buffer; *_step() starts the next piece or ends the command, *_done() takes its result.
 * Backends may be done at once: a step that is called from its own done ends in a loop
 * (cmd->stepping), not in ever deeper calls.
 *
 * What can fail: the backend (media status; Copy names the range in dw0), Compare (Compare
 * Failure).
 */
#include "target/io.h"

#include "target/ctrl.h"

/* Runs step() until a backend operation is really under way or the command has ended. */
static void
go_on(struct cmd *cmd, bool (*step)(struct cmd *cmd))
{
	if (cmd->stepping) {
		cmd->again = true;
		return;
	}
	cmd->stepping = true;
	do {
		cmd->again = false;
	} while (step(cmd) && cmd->again);
	cmd->stepping = false;
}

/* Compare */

static void compare_done(struct cmd *cmd);

static bool
compare_step(struct cmd *cmd)
{
	struct io_range r = io_range_of(cmd);
	uint32_t n = (uint32_t)MIN(r.len - cmd->cursor, (uint64_t)cmd->extra);

	if (n == 0) {
		io_finish(cmd, 0);
		return false;
	}
	io_submit(cmd, BACKEND_READ, (struct io_range){ r.off + cmd->cursor, n }, io_extra(cmd),
	          compare_done);
	return true;
}

static void
compare_done(struct cmd *cmd)
{
	uint32_t n = (uint32_t)cmd->io.len;

	if (cmd->io.res < 0) {
		io_finish(cmd, io_status(cmd->io.res, false));
	} else if (memcmp(cmd->data + cmd->cursor, io_extra(cmd), n) != 0) {
		io_finish(cmd, NVME_NO_RETRY(NVME_ST_MEDIA(NVME_SC_COMPARE_FAILED)));
	} else {
		cmd->cursor += n;
		go_on(cmd, compare_step);
	}
}

void
io_compare(struct cmd *cmd)
{
	go_on(cmd, compare_step);
}

/* Verify: reads and forgets */

static void verify_done(struct cmd *cmd);

static bool
verify_step(struct cmd *cmd)
{
	struct io_range r = io_range_of(cmd);
	uint64_t n = MIN(r.len - cmd->cursor, (uint64_t)IO_CHUNK);

	if (n == 0) {
		io_finish(cmd, 0);
		return false;
	}
	io_submit(cmd, BACKEND_READ, (struct io_range){ r.off + cmd->cursor, n }, io_extra(cmd),
	          verify_done);
	return true;
}

static void
verify_done(struct cmd *cmd)
{
	if (cmd->io.res < 0) {
		io_finish(cmd, io_status(cmd->io.res, false));
		return;
	}
	cmd->cursor += cmd->io.len;
	go_on(cmd, verify_step);
}

void
io_verify(struct cmd *cmd)
{
	go_on(cmd, verify_step);
}

/* Dataset Management */

enum { DSM_AD = 0x04 };

static unsigned
ranges_in(uint32_t dword)
{
	return (dword & 0xff) + 1;
}

uint16_t
io_judge_dsm(const struct cmd *cmd, const struct ns *ns)
{
	unsigned n = ranges_in(le32_get(cmd->sqe.cdw10)), i;
	const struct nvme_dsm_range *r = (const struct nvme_dsm_range *)cmd->data;
	uint64_t have = atomic_load_explicit(&ns->blocks, memory_order_relaxed);

	if (cmd->data_len < n * sizeof(*r))
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	for (i = 0; r && i < n; i++) { /* not there yet when it is judged for the first time */
		uint64_t slba = le64toh(r[i].slba), nlb = le32toh(r[i].nlb);

		if (slba > have || nlb > have - slba)
			return NVME_NO_RETRY(NVME_SC_LBA_RANGE);
	}
	return 0;
}

static void dsm_done(struct cmd *cmd);

static bool
dsm_step(struct cmd *cmd)
{
	const struct nvme_dsm_range *r = (const struct nvme_dsm_range *)cmd->data;
	unsigned n = ranges_in(le32_get(cmd->sqe.cdw10)), shift = cmd->nsh->ns->lba_shift;

	while (cmd->step < n && r[cmd->step].nlb == 0)
		cmd->step++;
	if (cmd->step == n) {
		io_finish(cmd, 0);
		return false;
	}
	io_submit(cmd, BACKEND_DEALLOCATE,
	          (struct io_range){ le64toh(r[cmd->step].slba) << shift,
	                             (uint64_t)le32toh(r[cmd->step].nlb) << shift },
	          NULL, dsm_done);
	return true;
}

static void
dsm_done(struct cmd *cmd)
{
	if (cmd->io.res < 0) {
		io_finish(cmd, io_status(cmd->io.res, true));
		return;
	}
	cmd->step++;
	go_on(cmd, dsm_step);
}

void
io_dsm(struct cmd *cmd)
{
	if (le32_get(cmd->sqe.cdw11) & DSM_AD)
		go_on(cmd, dsm_step);
	else
		io_finish(cmd, 0); /* hints only */
}

/* Copy, descriptor format 0 */

static uint16_t
judge_copy_ranges(const struct cmd *cmd, const struct ns *ns, const struct nvme_copy_range *r,
                  unsigned n)
{
	uint64_t have = atomic_load_explicit(&ns->blocks, memory_order_relaxed), total = 0;
	uint32_t longest = io_copy_longest(cmd->conn->r->target, ns);
	unsigned i;

	for (i = 0; i < n; i++) {
		uint64_t slba = le64toh(r[i].slba), nlb = le16toh(r[i].nlb) + 1ull;

		if (nlb > longest)
			return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CMD_SIZE_LIMIT_EXCEEDED));
		if (slba >= have || nlb > have - slba)
			return NVME_NO_RETRY(NVME_SC_LBA_RANGE);
		total += nlb;
	}
	if (io_slba(cmd) >= have || total > have - io_slba(cmd))
		return NVME_NO_RETRY(NVME_SC_LBA_RANGE);
	return 0;
}

uint16_t
io_judge_copy(const struct cmd *cmd, const struct ns *ns)
{
	uint32_t cdw12 = le32_get(cmd->sqe.cdw12);
	unsigned n = ranges_in(cdw12);

	if ((cdw12 >> 8 & 0xf) != 0)
		return NVME_NO_RETRY(NVME_SC_INVALID_FIELD);
	if (n > IO_COPY_MAX_RANGES)
		return NVME_NO_RETRY(NVME_ST_CMD(NVME_SC_CMD_SIZE_LIMIT_EXCEEDED));
	if (cmd->data_len < n * sizeof(struct nvme_copy_range))
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	if (!cmd->data)
		return 0;
	return judge_copy_ranges(cmd, ns, (const struct nvme_copy_range *)cmd->data, n);
}

static void copy_read_done(struct cmd *cmd);
static void copy_written(struct cmd *cmd);

static bool
copy_step(struct cmd *cmd)
{
	const struct nvme_copy_range *r = (const struct nvme_copy_range *)cmd->data + cmd->step;
	unsigned n = ranges_in(le32_get(cmd->sqe.cdw12)), shift = cmd->nsh->ns->lba_shift;
	uint64_t len;

	if (cmd->step == n) {
		cmd->dw0 = 0;
		io_finish(cmd, 0);
		return false;
	}
	len = (le16toh(r->nlb) + 1ull) << shift;
	len = MIN(len - cmd->cursor, (uint64_t)IO_CHUNK);
	limit_charge(cmd, cmd->nsh->ns, len);
	io_submit(cmd, BACKEND_READ,
	          (struct io_range){ (le64toh(r->slba) << shift) + cmd->cursor, len },
	          io_extra(cmd), copy_read_done);
	return true;
}

/* Where the current piece goes: behind all ranges before it. */
static uint64_t
copy_offset(const struct cmd *cmd)
{
	const struct nvme_copy_range *r = (const struct nvme_copy_range *)cmd->data;
	unsigned shift = cmd->nsh->ns->lba_shift, i;
	uint64_t blocks = io_slba(cmd);

	for (i = 0; i < cmd->step; i++)
		blocks += le16toh(r[i].nlb) + 1ull;
	return (blocks << shift) + cmd->cursor;
}

static void
copy_failed(struct cmd *cmd, bool write)
{
	cmd->dw0 = cmd->step; /* the first range that was not copied */
	io_finish(cmd, io_status(cmd->io.res, write));
}

static void
copy_read_done(struct cmd *cmd)
{
	if (cmd->io.res < 0)
		copy_failed(cmd, false);
	else
		io_submit(cmd, BACKEND_WRITE, (struct io_range){ copy_offset(cmd), cmd->io.len },
		          io_extra(cmd), copy_written);
}

static void
copy_written(struct cmd *cmd)
{
	const struct nvme_copy_range *r = (const struct nvme_copy_range *)cmd->data + cmd->step;

	if (cmd->io.res < 0) {
		copy_failed(cmd, true);
		return;
	}
	cmd->cursor += cmd->io.len;
	if (cmd->cursor == (le16toh(r->nlb) + 1ull) << cmd->nsh->ns->lba_shift) {
		cmd->step++;
		cmd->cursor = 0;
	}
	go_on(cmd, copy_step);
}

void
io_copy(struct cmd *cmd)
{
	go_on(cmd, copy_step);
}

uint32_t
io_copy_longest(const struct target *t, const struct ns *ns)
{
	return MIN(t->limits.mdts >> ns->lba_shift, 65535u);
}
