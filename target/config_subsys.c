/* Subsystems, their namespaces and hosts in a configuration.
 *
 * Happy path: names and attributes first, then allowed hosts and namespaces; a namespace's path
 * and our own keys become one spec text, the same that the command line takes. What can fail:
 * names and numbers out of bounds or there twice, ids that are none, and security that is asked
 * for but not there.
 */
#include "target/config_plain.h"

#include "common/conf.h"
#include "common/log.h"
#include "common/units.h"
#include "target/ids.h"
#include "target/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void
warn_unknown(const struct conf_node *n, const char *const *known)
{
	const struct conf_node *odd = NULL;
	struct conf_place place;

	while ((odd = conf_next_unknown(n, known, odd)))
		log_warn("%s: unknown key, ignored", conf_place(odd, &place));
}

/* A host's keys would not be enforced: better no service than an open one. */
static int
check_hosts(const struct conf_node *root, struct err *err)
{
	static const char *const keys[] = { "dhchap_key", "dhchap_ctrl_key", NULL };
	const struct conf_node *hosts = NULL, *h, *attr;
	const char *nqn;
	int ret;

	ret = conf_get_array(root, "hosts", &hosts, err);
	if (ret < 0)
		return ret;
	conf_for_each (hosts, h) {
		if (!conf_need(h, "nqn", err))
			return -EINVAL;
		ret = conf_get_str(h, "nqn", NVME_NQN_MAX, &nqn, err);
		if (ret < 0)
			return ret;
		attr = conf_get(h, "attr");
		for (unsigned i = 0; keys[i]; i++) {
			const struct conf_node *key = conf_get(h, keys[i]);
			const char *text = "";

			if (!key && attr)
				key = conf_get(attr, keys[i]);
			if (key && conf_type(key) == CONF_STRING)
				conf_as_str(key, 4096, &text, NULL);
			if (*text)
				return conf_err(key, err, -ENOTSUP,
						"authentication is not offered");
		}
	}
	return 0;
}

/* ---- namespaces ---- */

static int
read_id(const struct conf_node *device, const char *key, uint8_t *ret_id, size_t n, struct err *err)
{
	const char *text = NULL;
	int ret;

	ret = conf_get_str(device, key, 64, &text, err);
	if (ret <= 0 || !*text)
		return ret;
	if (ids_parse(text, ret_id, n))
		return conf_err(conf_get(device, key), err, -EINVAL, "'%s' is no id of %zu bytes",
				text, n);
	return 0;
}

/* path and our keys as a text for backend_spec_parse(). */
static int
read_spec(struct ns_config *ns, const struct conf_node *device, const struct conf_node *own,
          struct err *err)
{
	static const char *const known[] = { "block_size", "direct", "readonly",
		                             "size",       "qos",    NULL };
	static const char *const direct[] = { "auto", "on", "off", NULL };
	const char *path = NULL, *kind = "";
	bool readonly = false;
	unsigned word = 0;
	uint64_t size = 0;
	char *text;
	int ret;

	ret = conf_check_keys(own, known, err);
	if (ret >= 0)
		ret = conf_get_str(device, "path", 3072, &path, err);
	if (ret >= 0 && !*path)
		return conf_err(conf_get(device, "path"), err, -EINVAL, "is empty");
	if (ret >= 0)
		ret = conf_get_u32(own, "block_size", 512, 4096, &ns->block, err);
	if (ret > 0 && ns->block != 512 && ns->block != 4096)
		return conf_err(conf_get(own, "block_size"), err, -EINVAL, "must be 512 or 4096");
	if (ret >= 0)
		ret = conf_get_word(own, "direct", direct, &word, err);
	if (ret >= 0)
		ret = conf_get_bool(own, "readonly", &readonly, err);
	if (ret >= 0)
		ret = conf_get_size(own, "size", 512, INT64_MAX, &size, err);
	if (ret < 0)
		return ret;
	if (strncmp(path, "ram:", 4) && strncmp(path, "null:", 5) && strncmp(path, "file:", 5))
		kind = "file:";
	text = config_spec_text(kind, path, size, ns->block, direct[word], readonly);
	if (!text)
		return err_set(err, -ENOMEM, "no memory");
	ns->spec = text;
	return 0;
}

static int
check_spec(const struct ns_config *ns, const struct conf_node *device, struct err *err)
{
	const struct backend_ops *ops;
	struct backend_spec spec;
	char path[4096];
	struct err why = { 0 };

	if (backend_spec_parse(ns->spec, path, sizeof(path), &ops, &spec, &why))
		return conf_err(conf_get(device, "path"), err, why.code, "%s", why.text);
	return 0;
}

/* NSID and ids are there once; ids as they will be served. */
static int
check_ns(const struct config_subsys *s, const struct config_ns *n, const struct conf_node *at,
         struct err *err)
{
	for (unsigned i = 0; i + 1 < s->nr_ns; i++) {
		const struct ns_config *o = &s->ns[i].ns;

		if (o->nsid == n->ns.nsid)
			return conf_err(at, err, -EEXIST, "nsid %u stands there twice", o->nsid);
		if ((ids_set(o->uuid, 16) && !memcmp(o->uuid, n->ns.uuid, 16)) ||
		    (ids_set(o->nguid, 16) && !memcmp(o->nguid, n->ns.nguid, 16)) ||
		    (ids_set(o->eui64, 8) && !memcmp(o->eui64, n->ns.eui64, 8)))
			return conf_err(at, err, -EEXIST, "namespace %u has the same id", o->nsid);
	}
	return 0;
}

static int
read_ns(struct config_subsys *s, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = {"nsid", "enable",    "device", "sluice",
					    "ana",  "ana_grpid", "attr",   NULL};
	const struct conf_node *device = NULL, *own = NULL;
	struct config_ns *ns;
	bool enable = true;
	uint32_t nsid = 0;
	int ret;

	ret = conf_as_object(n, err);
	if (ret < 0)
		return ret;
	warn_unknown(n, known);
	if (!conf_need(n, "nsid", err) || !conf_need(n, "device", err))
		return -EINVAL;
	ret = conf_get_u32(n, "nsid", 1, NS_MAX, &nsid, err);
	if (ret >= 0)
		ret = conf_get_bool(n, "enable", &enable, err);
	if (ret >= 0)
		ret = conf_get_object(n, "device", &device, err);
	if (ret >= 0)
		ret = conf_get_object(n, "sluice", &own, err);
	if (ret < 0 || !enable)
		return ret < 0 ? ret : 0;
	if (!conf_need(device, "path", err))
		return -EINVAL;
	ns = config_grow(&s->ns, &s->nr_ns, sizeof(*ns));
	if (!ns)
		return err_set(err, -ENOMEM, "no memory");
	ns->ns.nsid = nsid;
	ns->ns.auto_attach = true;
	qos_init(&ns->qos);
	ret = qos_read_single(conf_get(own, "qos"), &ns->qos, err);
	if (ret >= 0)
		ret = read_id(device, "uuid", ns->ns.uuid, 16, err);
	if (ret >= 0)
		ret = read_id(device, "nguid", ns->ns.nguid, 16, err);
	if (ret >= 0)
		ret = read_id(device, "eui64", ns->ns.eui64, 8, err);
	if (ret >= 0)
		ret = read_spec(&ns->ns, device, own, err);
	if (ret >= 0)
		ret = check_spec(&ns->ns, device, err);
	if (ret >= 0)
		ret = check_ns(s, ns, n, err);
	return ret;
}

/* ---- subsystems ---- */

static int
read_text_attr(const struct conf_node *attr, const char *key, char *ret_text, size_t n,
               struct err *err)
{
	const char *text = NULL;
	int ret;

	ret = conf_get_str(attr, key, n - 1, &text, err);
	if (ret <= 0 || !*text)
		return ret;
	for (const char *p = text; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			return conf_err(conf_get(attr, key), err, -EINVAL,
					"must be printable ASCII");
	snprintf(ret_text, n, "%s", text);
	return 0;
}

static int
read_attr(struct config_subsys *s, const struct conf_node *attr, struct err *err)
{
	uint32_t min = 1, max = 0xffef;
	int ret;

	ret = read_text_attr(attr, "serial", s->serial, sizeof(s->serial), err);
	if (ret >= 0)
		ret = read_text_attr(attr, "model", s->model, sizeof(s->model), err);
	if (ret >= 0)
		ret = conf_get_bool(attr, "allow_any_host", &s->allow_any_host, err);
	if (ret >= 0)
		ret = conf_get_u32(attr, "cntlid_min", 1, 0xffef, &min, err);
	if (ret >= 0)
		ret = conf_get_u32(attr, "cntlid_max", 1, 0xffef, &max, err);
	if (ret < 0)
		return ret;
	if (min > max)
		return conf_err(attr, err, -EINVAL, "cntlid_min is above cntlid_max");
	s->cntlid_min = (uint16_t)min;
	s->cntlid_max = (uint16_t)max;
	return 0;
}

static int
read_allowed(struct config_subsys *s, const struct conf_node *hosts, struct err *err)
{
	const struct conf_node *e;
	const char *nqn, *fault;
	char **slot;
	int ret;

	conf_for_each (hosts, e) {
		ret = conf_as_str(e, NVME_NQN_MAX, &nqn, err);
		if (ret < 0)
			return ret;
		fault = nqn_fault(nqn);
		if (fault)
			return conf_err(e, err, -EINVAL, "the name %s", fault);
		for (unsigned i = 0; i < s->nr_hosts; i++)
			if (!strcmp(s->hosts[i], nqn))
				return conf_err(e, err, -EEXIST, "'%s' stands there twice", nqn);
		slot = config_grow(&s->hosts, &s->nr_hosts, sizeof(*slot));
		if (!slot || !(*slot = strdup(nqn)))
			return err_set(err, -ENOMEM, "no memory");
	}
	return 0;
}

/* {"nqn": ..., "qos": {...}}, of hosts that may come. */
static int
read_host_limit(struct config_subsys *s, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = { "nqn", "qos", NULL };
	struct config_host *h;
	const char *nqn, *fault;
	int ret;

	ret = conf_as_object(n, err);
	if (ret >= 0)
		ret = conf_check_keys(n, known, err);
	if (ret >= 0 && !conf_need(n, "nqn", err))
		return -EINVAL;
	if (ret >= 0)
		ret = conf_get_str(n, "nqn", NVME_NQN_MAX, &nqn, err);
	if (ret < 0)
		return ret;
	fault = nqn_fault(nqn);
	if (fault)
		return conf_err(conf_get(n, "nqn"), err, -EINVAL, "the name %s", fault);
	for (unsigned i = 0; i < s->nr_limits; i++)
		if (!strcmp(s->limits[i].nqn, nqn))
			return conf_err(n, err, -EEXIST, "'%s' stands there twice", nqn);
	h = config_grow(&s->limits, &s->nr_limits, sizeof(*h));
	if (!h)
		return err_set(err, -ENOMEM, "no memory");
	snprintf(h->nqn, sizeof(h->nqn), "%s", nqn);
	qos_init(&h->qos);
	return qos_read_single(conf_get(n, "qos"), &h->qos, err);
}

static int
read_host_limits(struct config_subsys *s, const struct conf_node *own, struct err *err)
{
	const struct conf_node *hosts = NULL, *e;
	int ret;

	ret = conf_get_array(own, "hosts", &hosts, err);
	if (ret < 0)
		return ret;
	conf_for_each (hosts, e)
		if ((ret = read_host_limit(s, e, err)) < 0)
			return ret;
	return 0;
}

static int
read_own(struct config_subsys *s, const struct conf_node *own, struct err *err)
{
	static const char *const known[] = { "ns_dir", "ns_dir_limit", "hosts", NULL };
	const char *dir = NULL;
	int ret;

	ret = conf_check_keys(own, known, err);
	if (ret >= 0)
		ret = read_host_limits(s, own, err);
	if (ret >= 0)
		ret = conf_get_str(own, "ns_dir", 3072, &dir, err);
	if (ret >= 0)
		ret = conf_get_size(own, "ns_dir_limit", 0, INT64_MAX, &s->ns_dir_limit, err);
	if (ret < 0)
		return ret;
	if (dir && *dir && !(s->ns_dir = strdup(dir)))
		return err_set(err, -ENOMEM, "no memory");
	return 0;
}

static int
read_name(struct config *c, struct config_subsys *s, const struct conf_node *n, struct err *err)
{
	const char *nqn = NULL, *fault;
	int ret;

	if (!conf_need(n, "nqn", err))
		return -EINVAL;
	ret = conf_get_str(n, "nqn", NVME_NQN_MAX, &nqn, err);
	if (ret < 0)
		return ret;
	fault = nqn_fault(nqn);
	if (fault)
		return conf_err(conf_get(n, "nqn"), err, -EINVAL, "the name %s", fault);
	if (!strcmp(nqn, DISCOVERY_NQN))
		return conf_err(conf_get(n, "nqn"), err, -EINVAL,
		                "the discovery subsystem is always there, leave it out");
	for (unsigned i = 0; i + 1 < c->nr_subsys; i++)
		if (!strcmp(c->subsys[i].nqn, nqn))
			return conf_err(conf_get(n, "nqn"), err, -EEXIST, "'%s' stands there twice",
					nqn);
	snprintf(s->nqn, sizeof(s->nqn), "%s", nqn);
	ids_derive_serial(s->serial, nqn);
	snprintf(s->model, sizeof(s->model), "Sluice");
	return 0;
}

static int
read_subsys(struct config *c, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = { "nqn", "allowed_hosts", "attr", "namespaces", "sluice",
		                             "passthru", NULL };
	const struct conf_node *hosts = NULL, *attr = NULL, *nss = NULL, *own = NULL, *e;
	struct config_subsys *s;
	int ret;

	ret = conf_as_object(n, err);
	if (ret < 0)
		return ret;
	warn_unknown(n, known);
	s = config_grow(&c->subsys, &c->nr_subsys, sizeof(*s));
	if (!s)
		return err_set(err, -ENOMEM, "no memory");
	ret = read_name(c, s, n, err);
	if (ret >= 0)
		ret = conf_get_object(n, "attr", &attr, err);
	if (ret >= 0)
		ret = read_attr(s, attr, err);
	if (ret >= 0)
		ret = conf_get_array(n, "allowed_hosts", &hosts, err);
	if (ret >= 0)
		ret = read_allowed(s, hosts, err);
	if (ret >= 0)
		ret = conf_get_object(n, "sluice", &own, err);
	if (ret >= 0)
		ret = read_own(s, own, err);
	if (ret >= 0)
		ret = conf_get_array(n, "namespaces", &nss, err);
	if (ret < 0)
		return ret;
	conf_for_each (nss, e)
		if ((ret = read_ns(s, e, err)) < 0)
			return ret;
	return 0;
}

int
config_read_subsystems(struct config *c, const struct conf_node *root, struct err *err)
{
	const struct conf_node *list = NULL, *e;
	int ret;

	ret = check_hosts(root, err);
	if (ret >= 0)
		ret = conf_get_array(root, "subsystems", &list, err);
	if (ret < 0)
		return ret;
	conf_for_each (list, e)
		if ((ret = read_subsys(c, e, err)) < 0)
			return ret;
	return 0;
}
