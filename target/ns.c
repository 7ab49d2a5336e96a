/* Namespaces as part of the model: open, show, resize, take away. How I/O on one is stopped is
 * gate.c's.
 *
 * Happy path: ns_new() opens the backend and gives the namespace its ids, ns_publish() puts it
 * into its subsystem's table and attaches it; ns_remove() takes it out and closes its gate for
 * good; when nothing is in flight any more the backend is closed and it is freed. What can fail:
 * a path that cannot be opened, block sizes, NSIDs and ids that are taken. A resize waits for
 * the gate, so its failure is logged. Everything wants the target's lock.
 */
#include "target/ns.h"

#include "common/log.h"
#include "target/ctrl.h"
#include "target/ids.h"
#include "target/model.h"
#include "target/ns_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct removal {
	struct gate gate;
};

struct resize {
	struct gate gate;
	uint64_t bytes;
};

/* ---- making ---- */

void
ns_default_ids(struct ns_config *cfg, const char *nqn, const char *path)
{
	if (!ids_set(cfg->uuid, 16))
		ids_derive_uuid(cfg->uuid, nqn, cfg->nsid, path);
	if (!ids_set(cfg->nguid, 16))
		memcpy(cfg->nguid, cfg->uuid, 16);
}

/* The block size to be served; 0 with err filled when the backend cannot serve it. */
static uint32_t
pick_block(const struct backend *be, uint32_t asked, struct err *err)
{
	uint32_t block = asked ? asked : MAX(512u, be->min_block);

	if (block != 512 && block != 4096) {
		err_set(err, -EINVAL, "block size must be 512 or 4096, not %u", block);
		return 0;
	}
	if (block < be->min_block) {
		err_set(err, -EINVAL, "blocks of %u bytes need direct=off: the device's have %u",
		        block, be->min_block);
		return 0;
	}
	return block;
}

static struct ns *
ns_alloc(const struct target *t, const struct ns_config *cfg)
{
	struct ns *ns = calloc(1, sizeof(*ns));

	if (!ns)
		return NULL;
	ns->nsid = cfg->nsid;
	memcpy(ns->uuid, cfg->uuid, 16);
	memcpy(ns->nguid, cfg->nguid, 16);
	memcpy(ns->eui64, cfg->eui64, 8);
	ns->managed = cfg->managed;
	ns->auto_attach = cfg->auto_attach;
	list_init(&ns->gates);
	bad_init(&ns->bad);
	for (unsigned i = 0; i < t->nr_reactors; i++) {
		ns->h[i].ns = ns;
		ns->h[i].gate = GATE_OPEN;
		list_init(&ns->h[i].held);
		list_init(&ns->h[i].landing);
	}
	ns->spec = strdup(cfg->spec);
	if (!ns->spec) {
		free(ns);
		return NULL;
	}
	return ns;
}

struct ns *
ns_new(const struct target *t, const char *nqn, const struct ns_config *cfg, struct err *err)
{
	char *path = malloc(strlen(cfg->spec) + 1);
	const struct backend_ops *ops;
	struct ns_config full = *cfg;
	struct backend_spec spec;
	struct backend *be = NULL;
	struct ns *ns = NULL;
	uint32_t block = 0;

	if (!path) {
		err_set(err, -ENOMEM, "no memory");
		return NULL;
	}
	if (backend_spec_parse(cfg->spec, path, strlen(cfg->spec) + 1, &ops, &spec, err))
		goto out;
	if (cfg->block)
		spec.block = cfg->block;
	if (ops->open(&spec, &be, err))
		goto out;
	block = pick_block(be, spec.block, err);
	if (!block)
		goto out;
	if (be->size < block) {
		err_set(err, -EINVAL, "%s is smaller than a block", cfg->spec);
		goto out;
	}
	ns_default_ids(&full, nqn, spec.path ? spec.path : ops->name);
	ns = ns_alloc(t, &full);
	if (!ns) {
		err_set(err, -ENOMEM, "no memory for a namespace");
		goto out;
	}
	ns->be = be;
	ns->lba_shift = block == 4096 ? 12 : 9;
	ns->blocks = be->size >> ns->lba_shift;
	ns->write_protected = be->readonly;
out:
	if (!ns && be)
		ops->close(be);
	free(path);
	return ns;
}

void
ns_free(struct ns *ns)
{
	if (!ns)
		return;
	ns->be->ops->close(ns->be);
	bad_fini(&ns->bad);
	limit_free(ns->limit);
	free(ns->spec);
	free(ns);
}

uint32_t
ns_pick_nsid(const struct subsys *s, uint32_t nsid, struct err *err)
{
	if (nsid > NS_MAX) {
		err_set(err, -EINVAL, "the namespace id must be 1-%u, not %u", NS_MAX, nsid);
		return 0;
	}
	if (nsid) {
		if (!s->ns[nsid - 1])
			return nsid;
		err_set(err, -EEXIST, "namespace %u exists already", nsid);
		return 0;
	}
	for (nsid = 1; nsid <= NS_MAX; nsid++)
		if (!s->ns[nsid - 1])
			return nsid;
	err_set(err, -EMFILE, "%s has %u namespaces already", s->nqn, NS_MAX);
	return 0;
}

/* ---- showing ---- */

/* Hosts tell namespaces of one subsystem apart by these. */
static int
check_unique(const struct subsys *s, const struct ns *ns, struct err *err)
{
	for (unsigned i = 0; i < NS_MAX; i++) {
		const struct ns *other = s->ns[i];

		if (!other)
			continue;
		if (!memcmp(other->uuid, ns->uuid, 16) || !memcmp(other->nguid, ns->nguid, 16) ||
		    (ids_set(ns->eui64, 8) && !memcmp(other->eui64, ns->eui64, 8)))
			return err_set(err, -EEXIST, "namespace %u has the same id", other->nsid);
	}
	return 0;
}

void
ns_publish(struct reactor *from, struct subsys *s, struct ns *ns)
{
	struct ctrl *c;

	ns->subsys = s;
	subsys_get(s);
	subsys_count_limits(s);
	atomic_store_explicit(&s->ns[ns->nsid - 1], ns, memory_order_release);
	if (!ns->auto_attach)
		return;
	list_for_each(&s->ctrls, c, node)
		ctrl_attach(c, ns->nsid, true);
	ctrl_ns_changed(from, s, ns->nsid, NULL);
}

struct ns *
ns_add(struct reactor *from, struct subsys *s, const struct ns_config *cfg, struct err *err)
{
	struct ns_config full = *cfg;
	struct ns *ns;

	if (s->discovery) {
		err_set(err, -EINVAL, "the discovery subsystem has no namespaces");
		return NULL;
	}
	full.nsid = ns_pick_nsid(s, cfg->nsid, err);
	if (!full.nsid)
		return NULL;
	ns = ns_new(s->t, s->nqn, &full, err);
	if (ns && check_unique(s, ns, err)) {
		ns_free(ns);
		ns = NULL;
	}
	if (ns)
		ns_publish(from, s, ns);
	return ns;
}

/* ---- taking away ---- */

/* On the remover's reactor: no reactor knows the namespace any more. */
static void
removal_closed(struct gate *g)
{
	struct removal *r = container_of(g, struct removal, gate);
	struct subsys *s = g->ns->subsys;
	struct target *t = s->t;

	target_lock(t);
	ns_free(g->ns);
	subsys_put(s);
	target_unlock(t);
	free(r);
}

void
ns_remove(struct reactor *from, struct ns *ns)
{
	struct removal *r;
	struct subsys *s = ns->subsys;
	struct ctrl *c;

	if (ns->gone)
		return;
	ns->gone = true;
	atomic_store_explicit(&s->ns[ns->nsid - 1], NULL, memory_order_release);
	ctrl_ns_changed(from, s, ns->nsid, NULL);
	list_for_each(&s->ctrls, c, node)
		ctrl_attach(c, ns->nsid, false);
	subsys_count_limits(s);

	r = calloc(1, sizeof(*r));
	if (!r) {
		/* It is out of sight, and stays in memory: better than touching it under I/O. */
		log_error("namespace %u of %s: no memory to close it", ns->nsid, s->nqn);
		return;
	}
	r->gate.ns = ns;
	r->gate.owner = from;
	r->gate.closed = removal_closed;
	r->gate.for_good = true;
	gate_close(&r->gate);
}

/* ---- resizing ---- */

static void
resize_opened(struct gate *g)
{
	free(container_of(g, struct resize, gate));
}

static void
resize_closed(struct gate *g)
{
	struct resize *r = container_of(g, struct resize, gate);
	struct ns *ns = g->ns;
	struct subsys *s = ns->subsys;
	struct err err = { 0 };

	target_lock(s->t);
	if (ns->be->ops->resize(ns->be, r->bytes, &err)) {
		log_error("namespace %u of %s keeps its size: %s", ns->nsid, s->nqn, err.text);
	} else {
		ns->blocks = ns->be->size >> ns->lba_shift;
		log_info("namespace %u of %s has %llu blocks now", ns->nsid, s->nqn,
		         (unsigned long long)ns->blocks);
		ns_store_resized(ns);
		if (!ns->gone)
			ctrl_ns_changed(g->owner, s, ns->nsid, NULL);
	}
	gate_open(g);
	target_unlock(s->t);
}

/* What the file or device behind ns holds now; 0 when it cannot be told. */
static uint64_t
size_behind(const struct ns *ns)
{
	char *path = malloc(strlen(ns->spec) + 1);
	const struct backend_ops *ops;
	struct backend_spec spec;
	off_t size = -1;
	int fd = -1;

	if (path && !backend_spec_parse(ns->spec, path, strlen(ns->spec) + 1, &ops, &spec, NULL) &&
	    spec.path)
		fd = open(spec.path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		size = lseek(fd, 0, SEEK_END);
		close(fd);
	}
	free(path);
	return size < 0 ? 0 : (uint64_t)size;
}

int
ns_resize(struct reactor *from, struct ns *ns, uint64_t bytes, struct err *err)
{
	uint64_t block = UINT64_C(1) << ns->lba_shift;
	struct resize *r;

	if (ns->gone)
		return err_set(err, -ENOENT, "the namespace is being removed");
	if (!ns->be->ops->resize)
		return err_set(err, -ENOTSUP, "%s cannot be resized", ns->spec);
	if (!bytes)
		bytes = size_behind(ns) & ~(block - 1);
	if (!bytes)
		return err_set(err, -EINVAL, "%s does not tell its size", ns->spec);
	if (bytes % block)
		return err_set(err, -EINVAL, "the size must be a multiple of %u bytes",
		               (unsigned)block);
	r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(err, -ENOMEM, "no memory");
	r->bytes = bytes;
	r->gate.ns = ns;
	r->gate.owner = from;
	r->gate.closed = resize_closed;
	r->gate.opened = resize_opened;
	gate_close(&r->gate);
	return 0;
}
