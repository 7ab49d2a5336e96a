/* Reads and writes whose data travels compressed (common/zip.h), for hosts that have turned that
 * on.
 *
 * Happy path of a write: the frame has arrived in the command's buffer, its blocks are unpacked
 * into the second one and written from there. Of a read: the blocks are read into the second buffer
 * and packed into the first; when that does not pay they are sent as they are.
 *
 * What can fail: a frame that is not what it should be (Data Transfer Error, for that command
 * alone, nothing is written), the backend. One command keeps its reactor busy for ZFRAME_RAW_MAX at
 * most.
 */
#include "target/io.h"

#include "common/log.h"
#include "common/meter.h"
#include "common/zframe.h"
#include "common/zip.h"
#include "target/ctrl.h"

static_assert((int)ZFRAME_RAW_MAX <= (int)IO_CHUNK, "a buffer holds a command's data and IO_CHUNK");

uint32_t
io_zip_max(const struct target *t)
{
	return MIN(t->limits.mdts, (uint32_t)ZFRAME_RAW_MAX);
}

/* CDW13, as a signed byte. */
static int
level_of(const struct cmd *cmd)
{
	return (int8_t)(le32_get(cmd->sqe.cdw13) & 0xff);
}

/* The range was judged. A Format since then may have changed what the blocks come to. */
uint16_t
io_judge_zip(const struct cmd *cmd, const struct ns *ns)
{
	uint64_t raw = (uint64_t)io_blocks(cmd) << ns->lba_shift;
	bool write = cmd->sqe.opcode == ZIP_WRITE;

	if (raw > io_zip_max(cmd->conn->r->target) || (cmd->extra && cmd->extra != raw))
		return NVME_NO_RETRY(NVME_SC_INVALID_FIELD);
	if (write && (cmd->data_len == 0 || cmd->data_len >= raw))
		return NVME_NO_RETRY(NVME_SC_SGL_INVALID_DATA);
	if (!write && (level_of(cmd) < ZFRAME_LEVEL_MIN || level_of(cmd) > ZFRAME_LEVEL_MAX))
		return NVME_NO_RETRY(NVME_SC_INVALID_FIELD);
	return 0;
}

/* Contexts are made when the first host of a reactor needs them. */
static struct zframe *
contexts(struct cmd *cmd)
{
	struct reactor *r = cmd->conn->r;

	if (!r->zip)
		r->zip = zframe_new();
	return r->zip;
}

static struct zframe_data
data_of(const struct cmd *cmd, struct iovec *raw)
{
	*raw = (struct iovec){ io_extra(cmd), cmd->extra };
	return (struct zframe_data){
		.sg = raw,
		.shift = cmd->nsh->ns->lba_shift,
		.blocks = io_blocks(cmd),
	};
}

/* write */

static void
written(struct cmd *cmd)
{
	if (cmd->io.res == 0)
		METER_ADD(cmd->nsh->stats.zip_write_bytes, cmd->data_len);
	io_finish(cmd, io_status(cmd->io.res, true));
}

void
io_zip_write(struct cmd *cmd)
{
	struct zframe *z = contexts(cmd);
	struct iovec raw;
	struct zframe_data d = data_of(cmd, &raw);
	const char *why;

	if (!z) {
		io_finish(cmd, NVME_SC_INTERNAL);
		return;
	}
	why = zframe_unpack(z, cmd->data, cmd->data_len, &d);
	if (why) {
		log_debug("conn %u: cid %04x: frame of %u bytes: %s", cmd->conn->id, cmd->cid,
		          cmd->data_len, why);
		io_finish(cmd, NVME_NO_RETRY(NVME_SC_DATA_XFER_ERROR));
		return;
	}
	io_submit(cmd, BACKEND_WRITE, io_range_of(cmd), io_extra(cmd), written);
}

/* read */

static void
read_done(struct cmd *cmd)
{
	struct iovec raw;
	struct zframe_data d = data_of(cmd, &raw);
	uint32_t n;

	if (cmd->io.res < 0) {
		io_finish(cmd, io_status(cmd->io.res, false));
		return;
	}
	n = zframe_pack(cmd->conn->r->zip, level_of(cmd), &d, cmd->data);
	if (n > 0)
		cmd->data_len = n;
	else
		cmd->data = raw.iov_base;
	cmd->dw0 = n;
	METER_ADD(cmd->nsh->stats.zip_read_bytes, cmd->data_len);
	io_finish(cmd, 0);
}

void
io_zip_read(struct cmd *cmd)
{
	if (contexts(cmd))
		io_submit(cmd, BACKEND_READ, io_range_of(cmd), io_extra(cmd), read_done);
	else
		io_finish(cmd, NVME_SC_INTERNAL);
}
