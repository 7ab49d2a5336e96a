/* Host identity and nvme-cli's JSON. See hosts.h for who reads what and why.
 *
 * Happy path: hosts -> subsystems -> ports, each object judged by its own function; a port becomes
 * a struct path_config that starts as a copy of what host and subsystem said.
 *
 * What can fail: a value (file:line, what it must be); a connection that cannot be made as it is
 * described (another transport, TLS, authentication), which is refused rather than made in another
 * way. Keys that nobody knows are told as warnings, since the file is shared with nvme-cli.
 */
#include "initiator/hosts.h"

#include "common/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libnvme.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
	PATHS_MAX = 4096,
	QUEUE_SIZE = 128,       /* the defaults are nvme-cli's and the kernel's */
	QUEUE_SIZE_MIN = 16,
	QUEUE_SIZE_MAX = 1024,
	KEEP_ALIVE = 5,         /* s */
	RECONNECT_DELAY = 10,   /* s */
	SECONDS_MAX = 1000000,
};

struct reading {
	const struct initiator *in;
	struct path_config *paths; /* ours */
	unsigned nr;
	struct err *err;
};

static const char uuid_prefix[] = "nqn.2014-08.org.nvmexpress:uuid:";

/* identity */

/* 36 characters, in the order of the text. */
static int
parse_uuid(const char *s, uint8_t ret[16])
{
	uint8_t id[16] = { 0 };
	unsigned i, at = 0;

	for (i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = s[i];
		unsigned v;

		if (dash != (c == '-'))
			return -EINVAL;
		if (dash)
			continue;
		if (c >= '0' && c <= '9')
			v = (unsigned)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v = (unsigned)((c | 0x20) - 'a' + 10);
		else
			return -EINVAL;
		id[at / 2] |= (uint8_t)(at % 2 ? v : v << 4);
		at++;
	}
	if (s[36])
		return -EINVAL;
	memcpy(ret, id, sizeof(id));
	return 0;
}

static bool
is_zero(const uint8_t id[16])
{
	static const uint8_t zero[16];

	return memcmp(id, zero, sizeof(zero)) == 0;
}

static int
id_from_nqn(const char *nqn, uint8_t ret[16])
{
	size_t n = strlen(uuid_prefix);

	return strncmp(nqn, uuid_prefix, n) == 0 ? parse_uuid(nqn + n, ret) : -EINVAL;
}

static int
check_nqn(const char *nqn)
{
	const unsigned char *p = (const unsigned char *)nqn;

	if (strncmp(nqn, "nqn.", 4) != 0 || strlen(nqn) > NVME_NQN_MAX)
		return -EINVAL;
	for (; *p; p++)
		if (*p <= 0x20 || *p == 0x7f)
			return -EINVAL;
	return 0;
}

int
hosts_identity(struct initiator *in, struct err *err)
{
	char *nqn = nvmf_hostnqn_from_file(), *id = nvmf_hostid_from_file();
	int res = 0;

	if (!nqn) {
		nqn = nvmf_hostnqn_generate();
		if (nqn)
			log_info("/etc/nvme/hostnqn is absent: this host is %s", nqn);
	}
	if (!nqn)
		res = err_set(err, -ENOENT,
		              "no host NQN: put one into /etc/nvme/hostnqn (nvme gen-hostnqn)");
	else if (check_nqn(nqn) < 0)
		res = err_set(err, -EINVAL, "/etc/nvme/hostnqn: must be an NQN of at most %u bytes",
		              NVME_NQN_MAX);
	else
		snprintf(in->hostnqn, sizeof(in->hostnqn), "%s", nqn);
	if (res == 0 && id && (parse_uuid(id, in->hostid) < 0 || is_zero(in->hostid)))
		res = err_set(err, -EINVAL, "/etc/nvme/hostid: must be a UUID that is not zero");
	if (res == 0 && !id && id_from_nqn(nqn, in->hostid) < 0 &&
	    getrandom(in->hostid, sizeof(in->hostid), 0) != sizeof(in->hostid))
		res = err_set(err, -EIO, "cannot make a host id: put one into /etc/nvme/hostid");
	free(nqn);
	free(id);
	return res;
}

void
hosts_default(const struct initiator *in, struct path_config *cfg, const char *subnqn,
              const char *traddr, const char *svc)
{
	*cfg = (struct path_config){
		.queue_size = QUEUE_SIZE,
		.keep_alive_tmo = KEEP_ALIVE,
		.reconnect_delay = RECONNECT_DELAY,
		.ctrl_loss_tmo = NVMF_DEF_CTRL_LOSS_TMO,
		.fast_io_fail_tmo = -1,
	};
	snprintf(cfg->subnqn, sizeof(cfg->subnqn), "%s", subnqn);
	snprintf(cfg->traddr, sizeof(cfg->traddr), "%s", traddr);
	snprintf(cfg->trsvcid, sizeof(cfg->trsvcid), "%s", svc ? svc : "4420");
	memcpy(cfg->hostnqn, in->hostnqn, sizeof(cfg->hostnqn));
	memcpy(cfg->hostid, in->hostid, sizeof(cfg->hostid));
}

/* values */

static void
warn_unknown(const struct conf_node *obj, const char *const *known)
{
	const struct conf_node *n = NULL;
	struct conf_place place;

	while ((n = conf_next_unknown(obj, known, n)))
		log_warn("%s: key is not known, ignored", conf_place(n, &place));
}

static int
get_nqn(const struct conf_node *obj, const char *key, const char **ret, struct err *err)
{
	int res = conf_get_str(obj, key, 1024, ret, err);

	if (res > 0 && check_nqn(*ret) < 0)
		return conf_err(conf_get(obj, key), err, -EINVAL,
		                "must start with 'nqn.' and have at most %u printable bytes",
		                NVME_NQN_MAX);
	return res;
}

/* Seconds; -1 stands for "never". nvme-cli takes 0 for "not given" where 0 makes no sense. */
static int
get_seconds(const struct conf_node *obj, const char *key, bool zero_is_default, int *ret,
            struct err *err)
{
	int64_t v;
	int res = conf_get_i64(obj, key, -1, SECONDS_MAX, &v, err);

	if (res > 0 && (v != 0 || !zero_is_default))
		*ret = (int)v;
	return res;
}

static int
refuse_auth(const struct conf_node *obj, struct err *err)
{
	static const char *const keys[] = { "dhchap_key", "dhchap_ctrl_key", "tls_key", "keyring" };
	bool tls = false;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (conf_get(obj, keys[i]))
			return conf_err(conf_get(obj, keys[i]), err, -EOPNOTSUPP,
			                "authentication is not built in, the path is not used");
	if (conf_get_bool(obj, "tls", &tls, err) < 0)
		return err ? err->code : -EINVAL;
	if (tls)
		return conf_err(conf_get(obj, "tls"), err, -EOPNOTSUPP,
		                "TLS is not built in, the path is not used");
	return 0;
}

/* ports */

static int
get_addr(const struct conf_node *port, const char *key, char *ret, size_t size, struct err *err)
{
	const char *text;
	uint8_t addr[16];
	int res = conf_get_str(port, key, size - 1, &text, err);

	if (res <= 0)
		return res;
	if (inet_pton(AF_INET, text, addr) != 1 && inet_pton(AF_INET6, text, addr) != 1)
		return conf_err(conf_get(port, key), err, -EINVAL,
		                "must be an IPv4 or IPv6 address in numbers, not '%s'", text);
	snprintf(ret, size, "%s", text);
	return 1;
}

static int
read_address(const struct conf_node *port, struct path_config *cfg, struct err *err)
{
	static const char *const transports[] = { "tcp", NULL };
	unsigned transport, svc = cfg->discovery ? 8009 : 4420; /* as nvme-cli */

	if (!conf_need(port, "transport", err) || !conf_need(port, "traddr", err))
		return -EINVAL;
	if (conf_get_word(port, "transport", transports, &transport, err) < 0 ||
	    get_addr(port, "traddr", cfg->traddr, sizeof(cfg->traddr), err) < 0 ||
	    get_addr(port, "host_traddr", cfg->host_traddr, sizeof(cfg->host_traddr), err) < 0 ||
	    conf_get_u32(port, "trsvcid", 1, 65535, &svc, err) < 0)
		return -EINVAL;
	if (conf_get(port, "host_iface"))
		return conf_err(conf_get(port, "host_iface"), err, -EOPNOTSUPP,
		                "use host_traddr instead");
	snprintf(cfg->trsvcid, sizeof(cfg->trsvcid), "%u", svc);
	return 0;
}

static int
read_limits(const struct conf_node *port, struct path_config *cfg, struct err *err)
{
	unsigned queue_size = 0;
	int keep_alive = 0;

	if (conf_get_u32(port, "nr_io_queues", 0, REACTORS_MAX, &cfg->nr_io_queues, err) < 0 ||
	    conf_get_u32(port, "queue_size", 0, QUEUE_SIZE_MAX, &queue_size, err) < 0 ||
	    conf_get_bool(port, "hdr_digest", &cfg->hdr_digest, err) < 0 ||
	    conf_get_bool(port, "data_digest", &cfg->data_digest, err) < 0 ||
	    get_seconds(port, "keep_alive_tmo", true, &keep_alive, err) < 0 ||
	    get_seconds(port, "reconnect_delay", true, &cfg->reconnect_delay, err) < 0 ||
	    get_seconds(port, "ctrl_loss_tmo", false, &cfg->ctrl_loss_tmo, err) < 0 ||
	    get_seconds(port, "fast_io_fail_tmo", true, &cfg->fast_io_fail_tmo, err) < 0)
		return -EINVAL;
	if (queue_size > 0 && queue_size < QUEUE_SIZE_MIN)
		return conf_err(conf_get(port, "queue_size"), err, -EINVAL, "must be %u-%u, not %u",
		                QUEUE_SIZE_MIN, QUEUE_SIZE_MAX, queue_size);
	if (queue_size > 0)
		cfg->queue_size = queue_size;
	if (keep_alive < 0)
		return conf_err(conf_get(port, "keep_alive_tmo"), err, -EINVAL, "must be 1-%u",
		                SECONDS_MAX);
	if (keep_alive > 0)
		cfg->keep_alive_tmo = (unsigned)keep_alive;
	if (cfg->reconnect_delay < 0)
		return conf_err(conf_get(port, "reconnect_delay"), err, -EINVAL, "must be 1-%u",
		                SECONDS_MAX);
	return 0;
}

static int
add_path(struct reading *rd, const struct conf_node *port, const struct path_config *cfg)
{
	struct path_config *more;
	unsigned i;

	for (i = 0; i < rd->nr; i++)
		if (path_same_way(&rd->paths[i], cfg))
			return conf_err(port, rd->err, -EEXIST,
			                "the same connection is there already");
	if (rd->nr == PATHS_MAX)
		return conf_err(port, rd->err, -E2BIG, "more than %u connections", PATHS_MAX);
	more = realloc(rd->paths, (rd->nr + 1) * sizeof(*more));
	if (!more)
		return conf_err(port, rd->err, -ENOMEM, "no memory");
	rd->paths = more;
	rd->paths[rd->nr++] = *cfg;
	return 0;
}

static int
read_port(struct reading *rd, const struct conf_node *port, const struct path_config *subsystem)
{
	/* From "tos" on: known, and without meaning here. */
	static const char *const known[] = {
		"transport", "traddr", "trsvcid", "host_traddr", "host_iface", "nr_io_queues",
		"queue_size", "hdr_digest", "data_digest", "keep_alive_tmo", "reconnect_delay",
		"ctrl_loss_tmo", "fast_io_fail_tmo", "discovery", "tls", "dhchap_key",
		"dhchap_ctrl_key", "tls_key", "keyring",
		"tos", "nr_write_queues", "nr_poll_queues", "duplicate_connect", "disable_sqflow",
		"persistent", NULL
	};
	struct path_config cfg = *subsystem;

	if (conf_as_object(port, rd->err) < 0 ||
	    conf_get_bool(port, "discovery", &cfg.discovery, rd->err) < 0)
		return -EINVAL;
	cfg.discovery |= strcmp(cfg.subnqn, NVME_DISC_SUBSYS_NAME) == 0;
	warn_unknown(port, known);
	if (refuse_auth(port, rd->err) < 0 || read_address(port, &cfg, rd->err) < 0 ||
	    read_limits(port, &cfg, rd->err) < 0)
		return -EINVAL;
	return add_path(rd, port, &cfg);
}

/* hosts and subsystems */

static int
read_subsystem(struct reading *rd, const struct conf_node *subsystem,
               const struct path_config *host)
{
	static const char *const known[] = { "name", "nqn", "ports", "application", NULL };
	const struct conf_node *ports = NULL, *port;
	struct path_config cfg = *host;
	const char *nqn = NULL;

	if (conf_as_object(subsystem, rd->err) < 0 || !conf_need(subsystem, "nqn", rd->err) ||
	    get_nqn(subsystem, "nqn", &nqn, rd->err) < 0 ||
	    conf_get_array(subsystem, "ports", &ports, rd->err) < 0)
		return -EINVAL;
	warn_unknown(subsystem, known);
	snprintf(cfg.subnqn, sizeof(cfg.subnqn), "%s", nqn);
	conf_for_each(ports, port)
		if (read_port(rd, port, &cfg) < 0)
			return -EINVAL;
	return 0;
}

static int
read_identity(const struct conf_node *host, struct path_config *cfg, struct err *err)
{
	const char *nqn = NULL, *id = NULL;

	if (get_nqn(host, "hostnqn", &nqn, err) < 0 ||
	    conf_get_str(host, "hostid", 64, &id, err) < 0)
		return -EINVAL;
	if (nqn && strcmp(nqn, cfg->hostnqn) != 0) {
		snprintf(cfg->hostnqn, sizeof(cfg->hostnqn), "%s", nqn);
		/* Two NQNs with one id are taken for a mistake by targets: the id follows the
		 * NQN if it can. */
		if (!id)
			id_from_nqn(nqn, cfg->hostid);
	}
	if (id && (parse_uuid(id, cfg->hostid) < 0 || is_zero(cfg->hostid)))
		return conf_err(conf_get(host, "hostid"), err, -EINVAL,
		                "must be a UUID that is not zero, not '%s'", id);
	return 0;
}

static int
read_host(struct reading *rd, const struct conf_node *host)
{
	static const char *const known[] = {
		"hostnqn",  "hostid",     "hostsymname", "persistent_discovery_ctrl",
		"required", "dhchap_key", "subsystems",  NULL};
	const struct conf_node *subsystems = NULL, *s;
	struct path_config cfg;

	hosts_default(rd->in, &cfg, "", "", NULL);
	if (conf_as_object(host, rd->err) < 0 || refuse_auth(host, rd->err) < 0 ||
	    read_identity(host, &cfg, rd->err) < 0 ||
	    conf_get_array(host, "subsystems", &subsystems, rd->err) < 0)
		return -EINVAL;
	warn_unknown(host, known);
	conf_for_each(subsystems, s)
		if (read_subsystem(rd, s, &cfg) < 0)
			return -EINVAL;
	return 0;
}

/* The whole: an array of hosts, as nvme-cli writes it; one host alone is fine when it is inline. */
static int
read_hosts(struct reading *rd, const struct conf_node *n)
{
	const struct conf_node *host;

	if (conf_type(n) == CONF_OBJECT)
		return read_host(rd, n);
	if (conf_type(n) != CONF_ARRAY)
		return conf_err(n, rd->err, -EINVAL,
		                "must be an array of hosts, as 'nvme config --dump' prints it");
	conf_for_each(n, host)
		if (read_host(rd, host) < 0)
			return -EINVAL;
	return 0;
}

static int
finish(struct reading *rd, int res, struct path_config **ret, unsigned *ret_nr)
{
	if (res < 0) {
		free(rd->paths);
		return rd->err && rd->err->code ? rd->err->code : res;
	}
	*ret = rd->paths;
	*ret_nr = rd->nr;
	return 0;
}

int
hosts_load(const struct initiator *in, const char *file, struct path_config **ret,
           unsigned *ret_nr, struct err *err)
{
	struct reading rd = { .in = in, .err = err };
	struct conf *c = conf_load(file, err);
	int res;

	if (!c)
		return err ? err->code : -EINVAL;
	res = finish(&rd, read_hosts(&rd, conf_root(c)), ret, ret_nr);
	conf_free(c);
	return res;
}

int
hosts_read(const struct initiator *in, const struct conf_node *node, const char *dir,
           struct path_config **ret, unsigned *ret_nr, struct err *err)
{
	struct reading rd = { .in = in, .err = err };
	const char *file;
	char *path;
	int res;

	if (conf_type(node) != CONF_STRING)
		return finish(&rd, read_hosts(&rd, node), ret, ret_nr);
	if (conf_as_str(node, 4096, &file, err) < 0)
		return err ? err->code : -EINVAL;
	if (!dir || file[0] == '/')
		return hosts_load(in, file, ret, ret_nr, err);
	if (asprintf(&path, "%s/%s", dir, file) < 0)
		return err_set(err, -ENOMEM, "no memory");
	res = hosts_load(in, path, ret, ret_nr, err);
	free(path);
	return res;
}
