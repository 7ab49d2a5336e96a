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
#include <string.h>
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

static void
forget_region(struct vhost_conn *c, unsigned i)
{
	close(c->region_fds[i]);
	c->regions[i] = c->regions[--c->nr_regions];
	c->region_fds[i] = c->region_fds[c->nr_regions];
}

/* One region more in *mem; takes fd. It is kept for a program that takes over. */
static int
add_region(struct vhost_conn *c, struct mem_table **mem, int fd, const struct vhost_mem_region *r,
           struct err *err)
{
	struct mem_table *more = NULL;
	int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0), res;

	if (kept < 0 || r->uva > UINT64_MAX - r->size) {
		res = kept < 0 ? -errno : -EINVAL;
		close(fd);
		if (kept >= 0)
			close(kept);
		return err_set(err, res, "a region at 0x%llx of %llu bytes: %s",
		               (unsigned long long)r->uva, (unsigned long long)r->size,
		               strerror(-res));
	}
	res = mem_table_add_guarded(*mem, fd, r->off, r->size, r->gpa, &more, err);
	if (res < 0) {
		close(kept);
		return res;
	}
	mem_table_put(*mem);
	*mem = more;
	c->regions[c->nr_regions] = *r;
	c->region_fds[c->nr_regions++] = kept;
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
	while (c->nr_regions > 0) /* rings hold their table until they are told of the new one */
		forget_region(c, 0);
	for (unsigned i = 0; i < m->nr && res == 0; i++)
		res = add_region(c, &mem, vhost_take_fd(c, i), &m->regions[i], err);
	if (res < 0) {
		mem_table_put(mem);
		return res;
	}
	return take_table(c, mem, err);
}

int
vhost_mem_add(struct vhost_conn *c, int fd, const struct vhost_mem_region *r, struct err *err)
{
	struct mem_table *mem = mem_table_get(c->vf->mem);
	int res = add_region(c, &mem, fd, r, err);

	if (res < 0) {
		mem_table_put(mem);
		return res;
	}
	return take_table(c, mem, err);
}

int
vhost_add_mem_reg(struct vhost_conn *c, struct err *err)
{
	return vhost_mem_add(c, vhost_take_fd(c, 0), &c->in.one.region, err);
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
	forget_region(c, i);
	return take_table(c, mem, err);
}

/* ---- inflight ---- */

size_t
vhost_inflight_slice(uint32_t size)
{
	return MAX(vring_inflight_size(size, false), vring_inflight_size(size, true));
}

/* Behind the slices of the rings there is a word of ours: the cache mode that the guest has chosen.
 * A VMM that comes back does not tell it again, and its guest relies on it. Zero: none yet. */
enum { CACHE_THROUGH = 1, CACHE_BACK };

static uint64_t
cache_offset(const struct vhost_inflight *m)
{
	return m->queues * vhost_inflight_slice(m->queue_size);
}

/* NULL: there is no area, or one without it. */
static uint32_t *
cache_word(const struct vhost_conn *c)
{
	struct iovec iov;

	if (!c->inflight ||
	    mem_map(c->inflight, cache_offset(&c->area), VRING_INFLIGHT_ALIGN, &iov, 1) != 1 ||
	    (uintptr_t)iov.iov_base % sizeof(uint32_t))
		return NULL;
	return iov.iov_base;
}

void
vhost_inflight_note_cache(struct vhost_conn *c)
{
	uint32_t *word = cache_word(c);

	if (word)
		__atomic_store_n(word, c->wce ? CACHE_BACK : CACHE_THROUGH, __ATOMIC_RELEASE);
}

static void
recall_cache(struct vhost_conn *c)
{
	const uint32_t *word = cache_word(c);
	uint32_t mode = word ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : 0;

	if (mode == CACHE_THROUGH || mode == CACHE_BACK)
		c->wce = mode == CACHE_BACK;
	else
		vhost_inflight_note_cache(c);
}

static int
judge_inflight(struct vhost_conn *c, const struct vhost_inflight *m, uint64_t *ret_bytes,
               struct err *err)
{
	if (m->queues == 0 || m->queues > c->d->cfg.queues || m->queue_size == 0 ||
	    m->queue_size > VRING_SIZE_MAX)
		return err_set(err, -EINVAL, "an inflight area for %u rings of %u entries",
		               m->queues, m->queue_size);
	*ret_bytes =
		ROUND_UP(cache_offset(m) + VRING_INFLIGHT_ALIGN, (uint64_t)sysconf(_SC_PAGESIZE));
	return 0;
}

/* A new area, all zeroes; it comes back by SET_INFLIGHT_FD. */
int
vhost_get_inflight_fd(struct vhost_conn *c, struct err *err)
{
	uint64_t bytes = 0;
	int fd, res = judge_inflight(c, &c->in.inflight, &bytes, err);

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

static int
map_area(int fd, const struct vhost_inflight *m, struct mem_table **ret, struct err *err)
{
	struct mem_table *empty = mem_table_new();
	int res;

	if (!empty) {
		close(fd);
		return err_set(err, -ENOMEM, "no memory for a table");
	}
	res = mem_table_add_guarded(empty, fd, m->off, m->size, 0, ret, err);
	mem_table_put(empty);
	return res < 0 ? err_prefix(err, res, "inflight area") : 0;
}

int
vhost_inflight_take(struct vhost_conn *c, int fd, const struct vhost_inflight *m, struct err *err)
{
	int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0), res;
	struct mem_table *area = NULL;
	uint64_t bytes = 0;

	res = kept < 0 ? err_set(err, -errno, "%s", strerror(errno))
	               : judge_inflight(c, m, &bytes, err);
	if (res == 0 && m->size < cache_offset(m))
		res = err_set(err, -EINVAL,
		              "the inflight area has %llu bytes, too few for %u rings of %u",
		              (unsigned long long)m->size, m->queues, m->queue_size);
	if (res == 0)
		res = map_area(fd, m, &area, err);
	else
		close(fd);
	if (res < 0) {
		if (kept >= 0)
			close(kept);
		return res;
	}
	mem_table_put(c->inflight);
	if (c->inflight_fd >= 0)
		close(c->inflight_fd);
	c->inflight = area;
	c->inflight_fd = kept;
	c->area = *m;
	recall_cache(c);
	return 0;
}

int
vhost_set_inflight_fd(struct vhost_conn *c, struct err *err)
{
	if (vhost_any_running(c))
		return err_set(err, -EBUSY, "it changes the inflight area while rings run");
	return vhost_inflight_take(c, vhost_take_fd(c, 0), &c->in.inflight, err);
}
