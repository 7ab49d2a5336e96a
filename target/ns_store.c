/* Managed namespaces on disk: ns-<nsid>.img and its description ns-<nsid>.json.
 *
 * Happy path of create: room and NSID are judged, the namespace is added with a spec that makes
 * the image, and only then its description is written, whole or not at all: temporary file,
 * fsync, rename, fsync of the directory. Delete takes the description first. So an image without
 * a description is a leftover of a crash; loading skips it, and create makes it afresh. What can
 * fail is told in ns_store.h.
 */
#include "target/ns_store.h"

#include "common/conf.h"
#include "common/conf_write.h"
#include "common/file.h"
#include "common/log.h"
#include "target/config_plain.h"
#include "target/ids.h"
#include "target/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATH_SIZE = 3200 };

static void
file_name(char buf[PATH_SIZE], const struct subsys *s, uint32_t nsid, const char *suffix)
{
	snprintf(buf, PATH_SIZE, "%.3100s/ns-%u.%s", s->ns_dir, nsid, suffix);
}

/* ---- writing a description ---- */

static char *
describe(const struct ns *ns)
{
	struct conf_writer w;
	struct ids_text id;

	conf_writer_init(&w, true);
	conf_begin_object(&w, NULL);
	conf_put_str(&w, "uuid", ids_format(&id, ns->uuid, 16));
	conf_put_str(&w, "nguid", ids_format(&id, ns->nguid, 16));
	conf_put_u64(&w, "block_size", UINT64_C(1) << ns->lba_shift);
	conf_put_u64(&w, "size", ns->blocks << ns->lba_shift);
	conf_put_bool(&w, "auto_attach", ns->auto_attach);
	conf_end(&w);
	return conf_writer_take(&w);
}

static int
save(const struct ns *ns, struct err *err)
{
	char path[PATH_SIZE];
	char *text = describe(ns);
	int ret;

	if (!text)
		return err_set(err, -ENOMEM, "no memory");
	file_name(path, ns->subsys, ns->nsid, "json");
	ret = file_replace(path, text, err);
	free(text);
	return ret;
}

static void
save_or_log(const struct ns *ns)
{
	struct err err = { 0 };

	if (save(ns, &err))
		log_error("namespace %u of %s: %s", ns->nsid, ns->subsys->nqn, err.text);
}

void
ns_store_set_attach(struct ns *ns, bool auto_attach)
{
	if (ns->auto_attach == auto_attach)
		return;
	ns->auto_attach = auto_attach;
	if (ns->managed)
		save_or_log(ns);
}

void
ns_store_resized(struct ns *ns)
{
	if (ns->managed && !ns->gone)
		save_or_log(ns);
}

/* ---- room ---- */

static uint64_t
managed_bytes(const struct subsys *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < NS_MAX; i++) {
		const struct ns *ns = s->ns[i];

		if (ns && ns->managed)
			sum += ns->blocks << ns->lba_shift;
	}
	return sum;
}

void
ns_store_capacity(const struct subsys *s, uint64_t *total, uint64_t *unallocated)
{
	uint64_t used = managed_bytes(s);
	struct statvfs fs;

	*total = *unallocated = 0;
	if (!s->ns_dir)
		return;
	*total = s->ns_dir_limit;
	if (!*total && !statvfs(s->ns_dir, &fs))
		*total = (uint64_t)fs.f_blocks * fs.f_frsize;
	*unallocated = *total > used ? *total - used : 0;
}

/* ---- create, delete ---- */

static struct ns *
add(struct reactor *from, struct subsys *s, struct ns_config *cfg, uint64_t size, struct err *err)
{
	char path[PATH_SIZE];
	struct ns *ns;
	char *spec;

	file_name(path, s, cfg->nsid, "img");
	spec = config_spec_text("file:", path, size, cfg->block, "auto", false);
	if (!spec) {
		err_set(err, -ENOMEM, "no memory");
		return NULL;
	}
	cfg->spec = spec;
	cfg->managed = true;
	ns = ns_add(from, s, cfg, err);
	free(spec);
	return ns;
}

/* Not derived: the next namespace with this NSID is another one. */
static int
random_uuid(uint8_t uuid[16])
{
	if (getrandom(uuid, 16, 0) != 16)
		return -errno;
	uuid[6] = (uint8_t)(0x40 | (uuid[6] & 0x0f));
	uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
	return 0;
}

int
ns_store_create(struct reactor *from, struct subsys *s, uint64_t blocks, uint32_t block,
                struct ns **ret, struct err *err)
{
	struct ns_config cfg = { .block = block };
	uint64_t total, left;
	char path[PATH_SIZE];
	struct ns *ns;
	int res;

	if (!s->ns_dir)
		return err_set(err, -ENOTSUP, "%s has no ns_dir", s->nqn);
	ns_store_capacity(s, &total, &left);
	if (blocks == 0 || blocks > INT64_MAX / block)
		return err_set(err, -EINVAL, "%llu blocks are no size", (unsigned long long)blocks);
	if (blocks * block > left)
		return err_set(err, -ENOSPC, "%s has only %llu bytes left", s->ns_dir,
		               (unsigned long long)left);
	cfg.nsid = ns_pick_nsid(s, 0, err);
	if (!cfg.nsid)
		return -EMFILE;
	res = random_uuid(cfg.uuid);
	if (res)
		return err_set(err, res, "no random numbers: %s", strerror(-res));
	/* Bytes of an earlier one must not be seen by the next host. */
	file_name(path, s, cfg.nsid, "img");
	if (unlink(path) && errno != ENOENT)
		return err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
	ns = add(from, s, &cfg, blocks * block, err);
	if (!ns)
		return err && err->code ? err->code : -EIO;
	res = save(ns, err);
	if (res) {
		unlink(path);
		ns_remove(from, ns);
		return res;
	}
	*ret = ns;
	return 0;
}

int
ns_store_delete(struct reactor *from, struct ns *ns, struct err *err)
{
	struct subsys *s = ns->subsys;
	char path[PATH_SIZE];

	if (!ns->managed)
		return err_set(err, -EPERM, "namespace %u belongs to the configuration", ns->nsid);
	file_name(path, s, ns->nsid, "json");
	if (unlink(path) && errno != ENOENT)
		return err_set(err, -errno, "cannot remove %s: %s", path, strerror(errno));
	file_name(path, s, ns->nsid, "img");
	if (unlink(path) && errno != ENOENT)
		log_error("namespace %u of %s: cannot remove %s: %s", ns->nsid, s->nqn, path,
		          strerror(errno));
	if (file_sync_dir(s->ns_dir))
		log_warn("namespace %u of %s: cannot sync %s", ns->nsid, s->nqn, s->ns_dir);
	ns_remove(from, ns);
	return 0;
}

/* ---- load ---- */

static int
read_id(const struct conf_node *o, const char *key, uint8_t id[16], struct err *err)
{
	const char *text = NULL;
	int ret = conf_get_str(o, key, 64, &text, err);

	if (ret > 0 && ids_parse(text, id, 16))
		return conf_err(conf_get(o, key), err, -EINVAL, "'%s' is no id", text);
	return ret;
}

static int
read_description(const struct conf *doc, struct ns_config *cfg, uint64_t *ret_size, struct err *err)
{
	const struct conf_node *o = conf_root(doc);
	int ret;

	ret = conf_as_object(o, err);
	if (ret >= 0 && !conf_need(o, "size", err))
		return -EINVAL;
	if (ret >= 0)
		ret = read_id(o, "uuid", cfg->uuid, err);
	if (ret >= 0)
		ret = read_id(o, "nguid", cfg->nguid, err);
	if (ret >= 0)
		ret = conf_get_u32(o, "block_size", 512, 4096, &cfg->block, err);
	if (ret >= 0)
		ret = conf_get_u64(o, "size", 512, INT64_MAX, ret_size, err);
	if (ret >= 0)
		ret = conf_get_bool(o, "auto_attach", &cfg->auto_attach, err);
	return ret < 0 ? ret : 0;
}

static int
load_one(struct reactor *from, struct subsys *s, uint32_t nsid, struct err *err)
{
	struct ns_config cfg = { .nsid = nsid };
	char path[PATH_SIZE];
	struct conf *doc;
	uint64_t size;
	int ret;

	file_name(path, s, nsid, "json");
	doc = conf_load(path, err);
	if (!doc)
		return -EINVAL;
	ret = read_description(doc, &cfg, &size, err);
	conf_free(doc);
	if (ret)
		return ret;
	file_name(path, s, nsid, "img");
	if (access(path, R_OK | W_OK)) /* made anew it would be a namespace full of zeroes */
		return err_set(err, -errno, "%s: %s", path, strerror(errno));
	return add(from, s, &cfg, size, err) ? 0 : -EIO;
}

/* The NSID in "ns-<nsid>.json", or 0. */
static uint32_t
nsid_of(const char *name)
{
	unsigned nsid = 0;
	int end = 0;

	if (sscanf(name, "ns-%4u.json%n", &nsid, &end) != 1 || !end || name[end] || nsid > NS_MAX)
		return 0;
	return nsid;
}

int
ns_store_load(struct reactor *from, struct subsys *s, struct err *err)
{
	DIR *dir = opendir(s->ns_dir);
	struct dirent *e;

	if (!dir)
		return err_set(err, -errno, "cannot read %s: %s", s->ns_dir, strerror(errno));
	while ((e = readdir(dir))) {
		uint32_t nsid = nsid_of(e->d_name);
		struct err why = { 0 };

		if (!nsid || (s->ns[nsid - 1] && s->ns[nsid - 1]->managed))
			continue;
		if (load_one(from, s, nsid, &why))
			log_error("%s/%s is left alone: %s", s->ns_dir, e->d_name, why.text);
	}
	closedir(dir);
	return 0;
}
