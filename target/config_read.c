/* The "sluice" section and the ports of a configuration.
 *
 * Happy path: every key has its bounds beside it; ports name subsystems that config_subsys.c has
 * read before. What can fail: values out of bounds, names that nothing has, addresses that are
 * none, asking for security that is not there. A port of another transport is left out with a
 * warning, unless none is left.
 */
#include "target/config_plain.h"

#include "common/conf.h"
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- "sluice" ---- */

static const char *const settings[] = {
	"reactors",
	"connections",
	"queues",
	"depth",
	"controllers",
	"mdts",
	"in_capsule",
	"buffers",
	"poll_us",
	"handshake_timeout",
	"header_timeout",
	"zero_copy",
	"compress",
	"pin",
	"control",
	"discovery_port",
	NULL,
};

static int
read_numbers(struct limits *l, const struct conf_node *o, struct err *err)
{
	const struct {
		const char *key;
		uint32_t min, max;
		unsigned *at;
	} rows[] = {
		{ "reactors", 1, REACTORS_MAX, &l->reactors },
		{ "connections", 1, 65536, &l->connections },
		{ "queues", 1, 128, &l->queues },
		{ "depth", 2, 1024, &l->depth },
		{ "controllers", 1, 65519, &l->controllers },
		{ "poll_us", 0, 1000000, &l->poll_us },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int ret = conf_get_u32(o, rows[i].key, rows[i].min, rows[i].max, rows[i].at, err);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int
read_times(struct limits *l, const struct conf_node *o, struct err *err)
{
	uint64_t handshake = l->handshake_ms * UINT64_C(1000),
		 header = l->header_ms * UINT64_C(1000);
	const uint64_t min = 100 * 1000, max = UINT64_C(3600) * 1000 * 1000;
	int ret;

	ret = conf_get_duration(o, "handshake_timeout", min, max, &handshake, err);
	if (ret >= 0)
		ret = conf_get_duration(o, "header_timeout", min, max, &header, err);
	if (ret < 0)
		return ret;
	l->handshake_ms = (unsigned)(handshake / 1000);
	l->header_ms = (unsigned)(header / 1000);
	return 0;
}

static int
read_sizes(struct limits *l, const struct conf_node *o, struct err *err)
{
	uint64_t mdts = l->mdts, in_capsule = l->in_capsule, buffers = l->buffers;
	int ret;

	ret = conf_get_size(o, "mdts", 8192, 2 << 20, &mdts, err);
	if (ret >= 0 && (mdts & (mdts - 1)))
		return conf_err(conf_get(o, "mdts"), err, -EINVAL, "must be a power of two");
	if (ret >= 0)
		ret = conf_get_size(o, "in_capsule", 0, 64 << 10, &in_capsule, err);
	if (ret >= 0 && in_capsule % 16)
		return conf_err(conf_get(o, "in_capsule"), err, -EINVAL,
				"must be a multiple of 16");
	if (ret >= 0)
		ret = conf_get_size(o, "buffers", 1 << 16, UINT64_C(1) << 40, &buffers, err);
	if (ret < 0)
		return ret;
	if (buffers / l->reactors < 2 * mdts)
		return conf_err(
			o, err, -EINVAL,
			"buffers must hold two transfers of mdts for each reactor: at least %llu",
			(unsigned long long)(2 * mdts * l->reactors));
	l->mdts = (uint32_t)mdts;
	l->in_capsule = (uint32_t)in_capsule;
	l->buffers = buffers;
	return 0;
}

/* 8009, 0 or false. */
static int
read_discovery_port(struct config *c, const struct conf_node *o, struct err *err)
{
	const struct conf_node *n = conf_get(o, "discovery_port");
	uint64_t port;
	int ret;

	c->discovery_port = 8009;
	if (!n)
		return 0;
	c->discovery_explicit = true;
	if (conf_type(n) == CONF_BOOL) {
		bool on = false;

		ret = conf_as_bool(n, &on, err);
		if (!ret && !on)
			c->discovery_port = 0;
		return ret;
	}
	ret = conf_as_u64(n, 0, UINT16_MAX, &port, err);
	if (!ret)
		c->discovery_port = (uint16_t)port;
	return ret;
}

int
config_read_limits(struct config *c, const struct conf_node *root, struct err *err)
{
	static const char *const zc[] = { "auto", "always", "never", NULL }; /* enum chan_zc */
	unsigned word = c->limits.zero_copy;
	const struct conf_node *o = NULL;
	const char *control = NULL;
	int ret;

	ret = conf_get_object(root, "sluice", &o, err);
	if (ret > 0)
		ret = conf_check_keys(o, settings, err);
	if (ret >= 0)
		ret = read_numbers(&c->limits, o, err);
	if (ret >= 0)
		ret = read_sizes(&c->limits, o, err);
	if (ret >= 0)
		ret = read_times(&c->limits, o, err);
	if (ret >= 0)
		ret = conf_get_word(o, "zero_copy", zc, &word, err);
	if (ret >= 0)
		ret = conf_get_bool(o, "compress", &c->limits.compress, err);
	if (ret >= 0)
		ret = conf_get_bool(o, "pin", &c->limits.pin, err);
	if (ret >= 0)
		ret = read_discovery_port(c, o, err);
	if (ret >= 0)
		ret = conf_get_str(o, "control", 107, &control, err); /* sun_path */
	if (ret < 0)
		return ret;
	c->limits.zero_copy = word;
	if (control && !(c->control = strdup(control)))
		return err_set(err, -ENOMEM, "no memory");
	return 0;
}

/* ---- addresses ---- */

/* adrfam, traddr, trsvcid and what must not be asked for. */
static int
read_addr(const struct conf_node *addr, const char *svc_default, char traddr[64], char trsvcid[8],
          bool *ret_ipv6, struct err *err)
{
	static const char *const families[] = { "ipv4", "ipv6", NULL };
	const char *text = NULL, *treq = "", *tsas = "";
	unsigned family;
	uint64_t svc = strtoul(svc_default, NULL, 10);
	int ret;

	ret = conf_get_str(addr, "treq", 64, &treq, err);
	if (ret >= 0 && !strcmp(treq, "required"))
		return conf_err(conf_get(addr, "treq"), err, -ENOTSUP,
				"a secure channel is not offered");
	if (ret >= 0)
		ret = conf_get_str(addr, "tsas", 64, &tsas, err);
	if (ret >= 0 && !strncmp(tsas, "tls", 3))
		return conf_err(conf_get(addr, "tsas"), err, -ENOTSUP, "TLS is not offered");
	if (ret >= 0 && !conf_need(addr, "traddr", err))
		return -EINVAL;
	if (ret >= 0)
		ret = conf_get_str(addr, "traddr", 63, &text, err);
	if (ret >= 0 && config_check_addr(text, ret_ipv6))
		return conf_err(conf_get(addr, "traddr"), err, -EINVAL,
		                "'%s' is no IPv4 or IPv6 address", text);
	if (ret >= 0)
		ret = conf_get_word(addr, "adrfam", families, &family, err);
	if (ret > 0 && *ret_ipv6 != (family == 1))
		return conf_err(conf_get(addr, "adrfam"), err, -EINVAL, "'%s' is an address of %s",
				text, families[*ret_ipv6]);
	if (ret >= 0)
		ret = conf_get_u64(addr, "trsvcid", 0, UINT16_MAX, &svc, err);
	if (ret < 0)
		return ret;
	snprintf(traddr, 64, "%s", text);
	snprintf(trsvcid, 8, "%u", (unsigned)svc);
	return 0;
}

/* 1: TCP, 0: another transport, which is told. */
static int
is_tcp(const struct conf_node *addr, const char *what, struct err *err)
{
	const char *trtype = "tcp";
	struct conf_place place;
	int ret;

	ret = conf_get_str(addr, "trtype", 64, &trtype, err);
	if (ret < 0)
		return ret;
	if (!strcmp(trtype, "tcp"))
		return 1;
	log_warn("%s: %s of transport '%s' refused, only tcp is served", conf_place(addr, &place),
		 what, trtype);
	return 0;
}

/* ---- ports ---- */

static int
read_referral(struct config_port *p, const struct conf_node *n, struct err *err)
{
	const struct conf_node *addr = NULL;
	struct config_referral *r;
	const char *name = "";
	uint32_t portid = 0;
	bool enable = true;
	int ret;

	ret = conf_as_object(n, err);
	if (ret >= 0)
		ret = conf_get_bool(n, "enable", &enable, err);
	if (ret >= 0 && !conf_need(n, "addr", err))
		return -EINVAL;
	if (ret >= 0)
		ret = conf_get_object(n, "addr", &addr, err);
	if (ret >= 0)
		ret = conf_get_str(n, "name", 63, &name, err);
	if (ret >= 0)
		ret = conf_get_u32(addr, "portid", 0, UINT16_MAX, &portid, err);
	if (ret < 0)
		return ret;
	ret = is_tcp(addr, "referral", err);
	if (ret <= 0 || !enable)
		return ret < 0 ? ret : 0;
	r = config_grow(&p->referrals, &p->nr_referrals, sizeof(*r));
	if (!r)
		return err_set(err, -ENOMEM, "no memory");
	snprintf(r->name, sizeof(r->name), "%s", name);
	r->portid = (uint16_t)portid;
	return read_addr(addr, "8009", r->traddr, r->trsvcid, &r->ipv6, err);
}

static int
read_link(struct config *c, struct config_port *p, const struct conf_node *n, struct err *err)
{
	const char *nqn;
	unsigned *slot;
	unsigned i;
	int ret;

	ret = conf_as_str(n, NVME_NQN_MAX, &nqn, err);
	if (ret < 0)
		return ret;
	if (!strcmp(nqn, DISCOVERY_NQN))
		return 0; /* is on every port anyway */
	for (i = 0; i < c->nr_subsys; i++)
		if (!strcmp(c->subsys[i].nqn, nqn))
			break;
	if (i == c->nr_subsys)
		return conf_err(n, err, -ENOENT, "there is no subsystem '%s'", nqn);
	for (unsigned k = 0; k < p->nr_links; k++)
		if (p->links[k] == i)
			return conf_err(n, err, -EEXIST, "'%s' stands there twice", nqn);
	slot = config_grow(&p->links, &p->nr_links, sizeof(*slot));
	if (!slot)
		return err_set(err, -ENOMEM, "no memory");
	*slot = i;
	return 0;
}

static int
read_lists(struct config *c, struct config_port *p, const struct conf_node *n, struct err *err)
{
	const struct conf_node *links = NULL, *referrals = NULL, *e;
	int ret;

	ret = conf_get_array(n, "subsystems", &links, err);
	if (ret >= 0)
		ret = conf_get_array(n, "referrals", &referrals, err);
	if (ret < 0)
		return ret;
	conf_for_each (links, e)
		if ((ret = read_link(c, p, e, err)) < 0)
			return ret;
	conf_for_each (referrals, e)
		if ((ret = read_referral(p, e, err)) < 0)
			return ret;
	return 0;
}

/* No other port has this number or address. */
static int
check_port(const struct config *c, const struct config_port *p, const struct conf_node *n,
           struct err *err)
{
	for (unsigned i = 0; i + 1 < c->nr_ports; i++) {
		const struct config_port *o = &c->ports[i];

		if (o->id == p->id)
			return conf_err(n, err, -EEXIST, "portid %u stands there twice", p->id);
		if (!strcmp(o->traddr, p->traddr) && !strcmp(o->trsvcid, p->trsvcid) &&
		    strcmp(p->trsvcid, "0"))
			return conf_err(n, err, -EEXIST, "port %u has the same address", o->id);
	}
	return 0;
}

/* 1: read, 0: left out. */
static int
read_port(struct config *c, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = { "addr", "ana_groups", "param", "portid", "referrals",
		                             "subsystems", "attr", NULL };
	const struct conf_node *addr = NULL, *odd = NULL;
	struct conf_place place;
	struct config_port *p;
	uint32_t id = 0;
	int ret;

	ret = conf_as_object(n, err);
	if (ret < 0)
		return ret;
	while ((odd = conf_next_unknown(n, known, odd)))
		log_warn("%s: unknown key, ignored", conf_place(odd, &place));
	if (!conf_need(n, "addr", err) || !conf_need(n, "portid", err))
		return -EINVAL;
	ret = conf_get_object(n, "addr", &addr, err);
	if (ret >= 0)
		ret = conf_get_u32(n, "portid", 1, UINT16_MAX, &id, err);
	if (ret >= 0)
		ret = is_tcp(addr, "port", err);
	if (ret <= 0)
		return ret;
	p = config_grow(&c->ports, &c->nr_ports, sizeof(*p));
	if (!p)
		return err_set(err, -ENOMEM, "no memory");
	p->id = (uint16_t)id;
	ret = read_addr(addr, "4420", p->traddr, p->trsvcid, &p->ipv6, err);
	if (ret >= 0)
		ret = check_port(c, p, n, err);
	if (ret >= 0)
		ret = read_lists(c, p, n, err);
	return ret < 0 ? ret : 1;
}

int
config_read_ports(struct config *c, const struct conf_node *root, struct err *err)
{
	const struct conf_node *ports = NULL, *e;
	int ret;

	ret = conf_get_array(root, "ports", &ports, err);
	if (ret < 0)
		return ret;
	conf_for_each (ports, e)
		if ((ret = read_port(c, e, err)) < 0)
			return ret;
	if (conf_len(ports) > 0 && c->nr_ports == 0)
		return conf_err(ports, err, -EINVAL, "no port is left: only trtype tcp is served");
	return 0;
}
