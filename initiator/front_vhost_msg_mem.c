/* Messages of a VMM about memory: the guest's, which comes and goes while rings run, and the area
 * in which requests in flight are noted. See front_vhost_msgs.h.
 *
 * Happy path: a table is built beside the old one; every ring that runs is told to go on in it, and
 * when all have said so the message is answered; the old one is unmapped after its last I/O.
 *
 * What can fail: memory that cannot be mapped, overlaps, or lacks a ring that runs: an error.
 */
#include "initiator/front_vhost_msgs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory ---- */

int
vhost_get_max_mem_slots(struct vhost_conn *c, struct err *err)
{
	(void)err;
	return vhost_reply_u64(c, MEM_REGIONS_MAX);
}

/* Rings go on in the new table; the old one lives as long as its I/O. Takes mem. */
static int
take_table(struct vhost_conn *c, struct mem_table *mem, struct err *err)
{
	struct mem_table *old = c->vf->mem;
	int res = 0;

	initiator_lock(c->d->f->in);
	c->vf->mem = mem;
	initiator_unlock(c->d->f->in);
	mem_table_put(old);
	for (unsigned i = 0; i < VHOST_QUEUES_MAX && res == 0; i++)
		res = c->rings[i].running ? vhost_ring_move(c, i, err)
		                          : vhost_ring_settle(c, i, err);
	return res;
}

static int
add_region(struct mem_table **mem, int fd, const struct vhost_mem_region *r, struct err *err)
{
	struct mem_table *more = NULL;
	int res;

	if (r->uva > UINT64_MAX - r->size) {
		close(fd);
		return err_set(err, -EINVAL, "a region goes beyond the address space");
	}
	res = mem_table_add_guarded(*mem, fd, r->off, r->size, r->gpa, &more, err);
	if (res < 0)
		return res;
	mem_table_put(*mem);
	*mem = more;
	return 0;
}

int
vhost_set_mem_table(struct vhost_conn *c, struct err *err)
{
	const struct vhost_mem *m = &c->in.mem;
	struct mem_table *mem;
	int res = 0;

	if (m->nr > VHOST_TABLE_MAX || m->nr != c->nfds ||
	    c->in.hdr.size != offsetof(struct vhost_mem, regions) + m->nr * sizeof(m->regions[0]))
		return err_set(err, -EINVAL,
		               "a memory table of %u regions came with %u descriptors and %u bytes",
		               m->nr, c->nfds, c->in.hdr.size);
	mem = mem_table_new();
	if (!mem)
		return err_set(err, -ENOMEM, "no memory for a table");
	for (unsigned i = 0; i < m->nr && res == 0; i++)
		res = add_region(&mem, vhost_take_fd(c, i), &m->regions[i], err);
	if (res < 0) {
		mem_table_put(mem);
		return res;
	}
	c->nr_regions = m->nr;
	for (unsigned i = 0; i < m->nr; i++)
		c->regions[i] = m->regions[i];
	return take_table(c, mem, err);
}

int
vhost_add_mem_reg(struct vhost_conn *c, struct err *err)
{
	const struct vhost_mem_region *r = &c->in.one.region;
	struct mem_table *mem = mem_table_get(c->vf->mem);
	int res = add_region(&mem, vhost_take_fd(c, 0), r, err);

	if (res < 0) {
		mem_table_put(mem);
		return res;
	}
	c->regions[c->nr_regions++] = *r;
	return take_table(c, mem, err);
}

int
vhost_rem_mem_reg(struct vhost_conn *c, struct err *err)
{
	const struct vhost_mem_region *r = &c->in.one.region;
	struct mem_table *mem = NULL;
	unsigned i;
	int res;

	for (i = 0; i < c->nr_regions; i++)
		if (c->regions[i].gpa == r->gpa && c->regions[i].uva == r->uva &&
		    c->regions[i].size == r->size)
			break;
	if (i == c->nr_regions)
		return err_set(err, -ENOENT, "it removes memory at 0x%llx, which is not there",
		               (unsigned long long)r->gpa);
	res = mem_table_del(c->vf->mem, r->gpa, &mem, err);
	if (res < 0)
		return res;
	c->regions[i] = c->regions[--c->nr_regions];
	return take_table(c, mem, err);
}

/* ---- inflight ---- */

size_t
vhost_inflight_slice(uint32_t size)
{
	return MAX(vring_inflight_size(size, false), vring_inflight_size(size, true));
}

static int
judge_inflight(struct vhost_conn *c, uint64_t *ret_bytes, struct err *err)
{
	const struct vhost_inflight *m = &c->in.inflight;

	if (m->queues == 0 || m->queues > c->d->cfg.queues || m->queue_size == 0 ||
	    m->queue_size > VRING_SIZE_MAX)
		return err_set(err, -EINVAL, "an inflight area for %u rings of %u entries",
		               m->queues, m->queue_size);
	*ret_bytes = ROUND_UP(m->queues * vhost_inflight_slice(m->queue_size),
	                      (uint64_t)sysconf(_SC_PAGESIZE));
	return 0;
}

/* A new area, all zeroes; it comes back by SET_INFLIGHT_FD. */
int
vhost_get_inflight_fd(struct vhost_conn *c, struct err *err)
{
	uint64_t bytes = 0;
	int fd, res = judge_inflight(c, &bytes, err);

	if (res < 0)
		return res;
	fd = memfd_create("sluice-inflight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		res = -errno;
		if (fd >= 0)
			close(fd);
		return err_set(err, res, "no inflight area: %s", strerror(-res));
	}
	memset(&c->out.inflight, 0, sizeof(c->out.inflight));
	c->out.inflight.size = bytes;
	c->out.inflight.queues = c->in.inflight.queues;
	c->out.inflight.queue_size = c->in.inflight.queue_size;
	c->out.hdr.size = c->in.hdr.size;
	c->out_fd = fd;
	c->replying = true;
	return 0;
}

int
vhost_set_inflight_fd(struct vhost_conn *c, struct err *err)
{
	const struct vhost_inflight *m = &c->in.inflight;
	struct mem_table *empty, *area = NULL;
	uint64_t bytes = 0;
	int res = judge_inflight(c, &bytes, err);

	if (res < 0)
		return res;
	if (vhost_any_running(c))
		return err_set(err, -EBUSY, "it changes the inflight area while rings run");
	if (m->size < m->queues * vhost_inflight_slice(m->queue_size))
		return err_set(err, -EINVAL,
		               "the inflight area has %llu bytes, too few for %u rings of %u",
		               (unsigned long long)m->size, m->queues, m->queue_size);
	empty = mem_table_new();
	if (!empty)
		return err_set(err, -ENOMEM, "no memory for a table");
	res = mem_table_add_guarded(empty, vhost_take_fd(c, 0), m->off, m->size, 0, &area, err);
	mem_table_put(empty);
	if (res < 0)
		return err_prefix(err, res, "inflight area");
	mem_table_put(c->inflight);
	c->inflight = area;
	c->inflight_queues = m->queues;
	c->inflight_size = m->queue_size;
	return 0;
}
