/* Volumes and VMs over paths that are made up here: when a volume is ready, what it takes from its
 * members, who keeps what alive. No socket, no reactor.
 */
#include "initiator/config.h"
#include "initiator/crypt_key.h"
#include "initiator/discovery.h"
#include "initiator/front_shm.h"
#include "initiator/front_vhost.h"
#include "initiator/hidden.h"
#include "initiator/seal.h"
#include "initiator/vf.h"
#include "initiator/ways.h"

#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB UINT64_C(1048576)

/* ---- paths ---- */

struct path {
	struct list node;               /* all */
	struct path_config cfg;
	enum path_state state;
	struct path_info *info;         /* ours; room for two namespaces */
	void (*changed)(struct path *p, void *arg);
	void *arg;
	unsigned starts;
};

static struct list all = LIST_INIT(all);
static unsigned stops;

int
path_new(struct initiator *in, const struct path_config *cfg, struct path **ret, struct err *err)
{
	struct path *p = calloc(1, sizeof(*p));

	(void)in;
	(void)err;
	p->cfg = *cfg;
	list_push_back(&all, &p->node);
	*ret = p;
	return 0;
}

void
path_start(struct path *p)
{
	p->starts++;
}

void
path_stop(struct path *p, void (*freed)(void *arg), void *arg)
{
	(void)freed;
	(void)arg;
	CHECK(p->changed == NULL);
	stops++;
	list_del(&p->node);
	free(p->info);
	free(p);
}

void
path_watch(struct path *p, void (*changed)(struct path *p, void *arg), void *arg)
{
	p->changed = changed;
	p->arg = arg;
}

void
path_unwatch(struct path *p, void (*changed)(struct path *p, void *arg), void *arg)
{
	CHECK(p->changed == changed && p->arg == arg);
	p->changed = NULL;
}

uint32_t
path_zip_max(const struct path *p)
{
	(void)p;
	return 0;
}

void
path_want_zip(struct path *p)
{
	(void)p;
}

/* The command that is out: for the seals of volumes. */
static struct part *sent;
static struct path *sent_on;

void
path_send(struct reactor *r, struct path *p, struct part *part)
{
	(void)r;
	CHECK(sent == NULL && part->once && p->state == PATH_LIVE);
	sent = part;
	sent_on = p;
}

enum path_state
path_state(const struct path *p)
{
	return p->state;
}

const struct path_config *
path_config(const struct path *p)
{
	return &p->cfg;
}

const char *
path_name(const struct path *p)
{
	return p->cfg.traddr;
}

const char *
path_why(struct path *p, char *buf, size_t size)
{
	snprintf(buf, size, "%s", p->state == PATH_RECONNECTING ? "refused" : "");
	return buf;
}

const struct path_info *
path_info(struct path *p)
{
	return p->info;
}

void
path_info_put(const struct path_info *i)
{
	CHECK(i != NULL);
}

/* Sockets of disks: what would be opened and closed. */
static unsigned sockets;
static bool no_socket;

int
vhost_dev_add(struct initiator *i, const struct vm *vm, unsigned disk,
	      const struct vhost_config *cfg, struct vhost_dev **ret, struct err *err)
{
	(void)i;
	CHECK(vm->disks[disk] != NULL);
	if (no_socket)
		return err_set(err, -EADDRINUSE, "%s: another daemon answers there", cfg->socket);
	*ret = malloc(sizeof(*cfg));
	memcpy(*ret, cfg, sizeof(*cfg));
	sockets++;
	return 0;
}

void
vhost_dev_remove(struct vhost_dev *d)
{
	free(d);
	sockets--;
}

bool
vhost_dev_same(const struct vhost_dev *d, const struct vhost_config *cfg)
{
	if (!d || !cfg)
		return !d && !cfg;
	return !memcmp(d, cfg, sizeof(*cfg));
}

void
discoveries_apply(struct initiator *i)
{
	(void)i;
}

static unsigned told;

void
front_volume_changed(struct initiator *i, const struct volume *v)
{
	(void)i;
	(void)v;
	told++;
}

/* ---- a small world ---- */

static struct initiator in;
static struct reactor reactor;
static struct path_config hosts[4];

static void
host(unsigned i, const char *nqn, const char *addr)
{
	snprintf(hosts[i].subnqn, sizeof(hosts[i].subnqn), "%s", nqn);
	snprintf(hosts[i].traddr, sizeof(hosts[i].traddr), "%s", addr);
	snprintf(hosts[i].trsvcid, sizeof(hosts[i].trsvcid), "4420");
}

/* nqn.a over two paths, nqn.b over one. */
static void
world_begin(void)
{
	in = (struct initiator){ .lock = PTHREAD_MUTEX_INITIALIZER, .nr_reactors = 1,
		                  .reactors = &reactor };
	list_init(&in.volumes);
	list_init(&in.paths);
	list_init(&in.path_uses);
	list_init(&in.ways);
	list_init(&in.discoveries);
	list_init(&in.vfs);
	list_init(&in.vms);
	host(0, "nqn.a", "192.0.2.1");
	host(1, "nqn.a", "192.0.2.2");
	host(2, "nqn.b", "192.0.2.3");
	in.hosts = hosts;
	in.nr_hosts = 3;
	in.shm = (struct front_shm *)&in; /* only passed on */
	in.capacity = sched_node_new(1);
	stops = told = 0;
}

static unsigned
nr_paths(void)
{
	const struct path *p;
	unsigned n = 0;

	list_for_each(&all, p, node)
		n++;
	return n;
}

static void
world_end(void)
{
	struct list *n;

	while ((n = list_first(&in.vms)))
		CHECK_EQ(vm_remove(&in, list_entry(n, struct vm, node)->name, NULL), 0);
	while ((n = list_first(&in.volumes)))
		CHECK_EQ(volume_remove(&in, list_entry(n, struct volume, node)->name, NULL), 0);
	sched_node_free(in.capacity);
	CHECK_EQ(nr_paths(), 0);
	CHECK(list_empty(&in.path_uses));
}

static struct path *
path_at(const char *addr)
{
	struct path *p;

	list_for_each(&all, p, node)
		if (!strcmp(p->cfg.traddr, addr))
			return p;
	CHECK(!"there is such a path");
	abort();
}

static const struct path_ns small = { .nsid = 1, .blocks = 100 * MIB / 512 + 7, .lba_shift = 9,
	                              .uuid = { 1 } };
static const struct path_ns large = { .nsid = 1, .blocks = 200 * MIB / 512, .lba_shift = 9,
	                              .uuid = { 2 } };

/* Identify says so on the path to addr; ns NULL: there is no namespace. */
static void
identify(const char *addr, uint32_t mdts, const struct path_ns *ns)
{
	struct path *p = path_at(addr);

	free(p->info);
	p->info = calloc(1, sizeof(*p->info) + 2 * sizeof(*ns));
	p->info->mdts = mdts;
	if (ns)
		p->info->ns[p->info->nr_ns++] = *ns;
	p->state = PATH_LIVE;
	p->changed(p, p->arg);
}

static struct member_config both[] = { { "nqn.a", 1 }, { "nqn.b", 1 } };

/* Over the first n of both. */
static struct volume *
volume(const char *name, unsigned first, unsigned n)
{
	struct volume_config cfg = { .block = 32 << 10, .max_part = 128 << 10, .nr_members = n,
		                     .members = both + first };
	struct err err = { 0 };
	struct volume *v = NULL;

	snprintf(cfg.name, sizeof(cfg.name), "%s", name);
	if (!CHECK_EQ(volume_add(&in, &cfg, &v, &err), 0))
		fprintf(stderr, "%s\n", err.text);
	return v;
}

static int
vm(const char *name, uint32_t uid, char (*disks)[64], unsigned n, struct err *err)
{
	struct vm_config cfg = { .uid = uid, .nr_disks = n, .disks = disks };

	snprintf(cfg.name, sizeof(cfg.name), "%s", name);
	return vm_add(&in, &cfg, err);
}

/* ---- volumes ---- */

static void
test_volume_is_ready_when_every_member_was_identified(void)
{
	struct volume *v;

	world_begin();
	v = volume("v", 0, 2);
	CHECK_EQ(nr_paths(), 3);
	CHECK_EQ(path_at("192.0.2.1")->starts, 1);
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK(!volumes_settled(&in));
	identify("192.0.2.1", UINT32_MAX, &small);
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK_EQ(v->bytes, 0);
	CHECK(strstr(v->why, "nqn.b"));
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, 200 * MIB); /* whole stripes of the smaller one */
	CHECK_EQ(v->lba_shift, 9);
	CHECK_EQ(v->geo.nr, 2);
	CHECK_EQ(v->geo.block, 32 << 10);
	CHECK_EQ(v->geo.max_part, 128 << 10);
	CHECK(v->max_transfer >= MIB);
	CHECK_EQ(told, 1);
	CHECK(volumes_settled(&in));
	world_end();
	CHECK_EQ(stops, 3);
}

static void
test_volume_takes_the_smallest_mdts_of_all_its_paths(void)
{
	struct volume *v;

	world_begin();
	v = volume("v", 0, 2);
	identify("192.0.2.1", 1 << 20, &small);
	identify("192.0.2.2", (64 << 10) + 100, &small);
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->geo.max_part, 64 << 10);
	world_end();
}

static void
test_volume_of_one_member_has_all_of_it(void)
{
	struct volume *v;

	world_begin();
	v = volume("v", 1, 1);
	identify("192.0.2.3", UINT32_MAX, &small);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, small.blocks * 512);
	world_end();
}

static void
test_volume_whose_paths_failed_once_keeps_nobody_waiting(void)
{
	struct volume *v;

	world_begin();
	v = volume("v", 1, 1);
	path_at("192.0.2.3")->state = PATH_RECONNECTING;
	path_at("192.0.2.3")->changed(path_at("192.0.2.3"), &in);
	CHECK(volumes_settled(&in));
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK(strstr(v->why, "refused"));
	world_end();
}

static void
test_volume_of_unlike_blocks_fails_until_they_are_alike(void)
{
	struct path_ns other = { .nsid = 1, .blocks = 1 << 20, .lba_shift = 12, .uuid = { 2 } };
	struct volume *v;

	world_begin();
	v = volume("v", 0, 2);
	identify("192.0.2.1", UINT32_MAX, &small);
	identify("192.0.2.3", UINT32_MAX, &other);
	CHECK_EQ(v->state, VOLUME_FAILED);
	CHECK_EQ(v->bytes, 0);
	CHECK(strstr(v->why, "4096"));
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static void
test_volume_with_a_member_smaller_than_a_stripe_block_fails(void)
{
	struct path_ns tiny = { .nsid = 1, .blocks = 63, .lba_shift = 9 };
	struct volume *v;

	world_begin();
	v = volume("v", 0, 2);
	identify("192.0.2.1", UINT32_MAX, &tiny);
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_FAILED);
	tiny.blocks = 64;
	identify("192.0.2.1", UINT32_MAX, &tiny);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, 64 << 10);
	world_end();
}

static void
test_volume_grows_with_its_members_and_never_shrinks(void)
{
	struct path_ns ns = small;
	struct volume *v;

	world_begin();
	v = volume("v", 1, 1);
	identify("192.0.2.3", UINT32_MAX, &ns);
	ns.blocks *= 2;
	identify("192.0.2.3", UINT32_MAX, &ns);
	CHECK_EQ(v->bytes, small.blocks * 1024);
	CHECK_EQ(told, 2);
	ns.blocks = 8;
	identify("192.0.2.3", UINT32_MAX, &ns);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, small.blocks * 1024);
	identify("192.0.2.3", UINT32_MAX, NULL);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, small.blocks * 1024);
	CHECK_EQ(told, 2);
	world_end();
}

static void
test_volume_whose_member_is_another_disk_lets_no_command_through(void)
{
	struct path_ns other = small;
	struct volume *v;

	world_begin();
	v = volume("v", 1, 1);
	identify("192.0.2.3", UINT32_MAX, &small);
	other.uuid[0] = 9;
	identify("192.0.2.3", UINT32_MAX, &other);
	CHECK_EQ(v->state, VOLUME_FAILED);
	CHECK_EQ(v->bytes, 0);
	CHECK(strstr(v->why, "another disk"));
	identify("192.0.2.3", 8192, &small); /* the geometry is fixed by now */
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, small.blocks * 512);
	CHECK_EQ(v->geo.max_part, 128 << 10);
	world_end();
}

static void
test_volume_that_was_not_ready_yet_takes_another_disk(void)
{
	struct path_ns other = small;
	struct volume *v;

	world_begin();
	v = volume("v", 0, 2);
	identify("192.0.2.1", UINT32_MAX, &small);
	other.uuid[0] = 9;
	identify("192.0.2.1", UINT32_MAX, &other);
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static void
test_volume_whose_paths_lead_to_two_disks_fails(void)
{
	struct path_ns other = small;
	struct volume *v;

	world_begin();
	v = volume("v", 0, 1);
	other.uuid[0] = 9;
	identify("192.0.2.1", UINT32_MAX, &small);
	CHECK_EQ(v->state, VOLUME_READY);
	identify("192.0.2.2", UINT32_MAX, &other);
	CHECK_EQ(v->state, VOLUME_FAILED);
	world_end();
}

static void
test_volume_that_cannot_be_leaves_nothing_behind(void)
{
	struct member_config lost[] = { { "nqn.b", 1 }, { "nqn.nowhere", 1 } };
	struct volume_config cfg = { .name = "w", .block = 4096, .max_part = 4096, .nr_members = 2,
		                     .members = lost };
	struct err err = { 0 };

	world_begin();
	CHECK_EQ(volume_add(&in, &cfg, NULL, &err), -ENOENT);
	CHECK(strstr(err.text, "nqn.nowhere"));
	CHECK_EQ(nr_paths(), 0);
	CHECK(list_empty(&in.volumes));
	volume("v", 1, 1);
	cfg.nr_members = 1;
	CHECK_EQ(volume_add(&in, &cfg, NULL, &err), -EEXIST); /* nqn.b 1 is v's */
	CHECK(strstr(err.text, "'v'"));
	CHECK_EQ(volume_remove(&in, "w", &err), -ENOENT);
	world_end();
}

static void
test_volume_shares_paths_and_the_last_one_ends_them(void)
{
	struct path_ns ns2 = small;
	struct member_config second = { "nqn.b", 2 };
	struct volume_config cfg = { .name = "w", .block = 4096, .max_part = 4096, .nr_members = 1,
		                     .members = &second };

	world_begin();
	volume("v", 1, 1);
	CHECK_EQ(volume_add(&in, &cfg, NULL, NULL), 0);
	CHECK_EQ(nr_paths(), 1);
	CHECK_EQ(path_at("192.0.2.3")->starts, 1);
	ns2.nsid = 2;
	identify("192.0.2.3", UINT32_MAX, &ns2);
	CHECK_EQ(volume_find(&in, "w")->state, VOLUME_READY);
	CHECK_EQ(volume_find(&in, "v")->state, VOLUME_WAITING);
	CHECK_EQ(volume_remove(&in, "v", NULL), 0);
	CHECK_EQ(stops, 0);
	world_end();
	CHECK_EQ(stops, 1);
}

/* ---- ways that come and go ---- */

static void
way(struct path_config *to, const char *addr)
{
	memset(to, 0, sizeof(*to));
	snprintf(to->subnqn, sizeof(to->subnqn), "nqn.b");
	snprintf(to->traddr, sizeof(to->traddr), "%s", addr);
	snprintf(to->trsvcid, sizeof(to->trsvcid), "4420");
}

static bool
is_path(const char *addr)
{
	const struct path *p;

	list_for_each(&all, p, node)
		if (!strcmp(p->cfg.traddr, addr))
			return true;
	return false;
}

/* Its state, told. */
static void
turn(const char *addr, enum path_state s)
{
	struct path *p = path_at(addr);

	p->state = s;
	p->changed(p, p->arg);
}

static void
test_volume_waits_for_ways_where_there_is_discovery(void)
{
	struct path_config to;
	struct ways w = { .to = &to };
	struct volume *v;

	world_begin();
	in.nr_hosts = 1;
	hosts[0].discovery = true;
	list_push_back(&in.ways, &w.node);
	v = volume("v", 1, 1);
	hosts[0].discovery = false;
	if (!v)
		return;
	CHECK_EQ(nr_paths(), 0);
	CHECK(strstr(v->why, "discovery"));
	CHECK(!volumes_settled(&in));
	w.settled = true;
	CHECK(volumes_settled(&in));
	way(&to, "192.0.2.9");
	w.nr = 1;
	volumes_follow(&in);
	CHECK_EQ(path_at("192.0.2.9")->starts, 1);
	CHECK(!volumes_settled(&in));
	identify("192.0.2.9", UINT32_MAX, &small);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK(member_path(&v->members[0], NULL) == path_at("192.0.2.9"));
	world_end();
}

static void
test_path_that_nobody_tells_of_goes_when_it_does_not_work_and_is_not_missed(void)
{
	struct path_config to[2];
	struct ways w = { .to = to, .settled = true };
	struct volume *v;

	world_begin();
	way(&to[0], "192.0.2.9");
	way(&to[1], "192.0.2.10");
	list_push_back(&in.ways, &w.node);
	v = volume("v", 1, 1); /* 192.0.2.3 is of "hosts" */
	w.nr = 2;
	volumes_follow(&in);
	volumes_follow(&in); /* what is there is not there twice */
	CHECK_EQ(nr_paths(), 3);
	identify("192.0.2.9", UINT32_MAX, &small);
	w.nr = 0;
	volumes_follow(&in); /* one works; of the other nobody tells */
	CHECK(is_path("192.0.2.9") && !is_path("192.0.2.10") && is_path("192.0.2.3"));
	turn("192.0.2.9", PATH_RECONNECTING); /* it is missed: no other one works */
	CHECK(is_path("192.0.2.9"));
	turn("192.0.2.9", PATH_DEAD);
	CHECK(is_path("192.0.2.9"));
	identify("192.0.2.3", UINT32_MAX, &small);
	CHECK(!is_path("192.0.2.9"));
	CHECK(member_path(&v->members[0], NULL) == path_at("192.0.2.3"));
	turn("192.0.2.3", PATH_RECONNECTING); /* "hosts" tells of it */
	CHECK(is_path("192.0.2.3"));
	w.nr = 2;
	volumes_follow(&in);
	CHECK_EQ(nr_paths(), 3);
	in.stopping = true;
	turn("192.0.2.10", PATH_LIVE);
	w.nr = 0;
	volumes_follow(&in);
	CHECK_EQ(nr_paths(), 3);
	world_end();
}

static void
test_member_has_no_more_paths_than_it_has_places(void)
{
	struct path_config to[VOLUME_PATHS_MAX + 3];
	struct ways w = { .to = to, .nr = ARRAY_SIZE(to), .settled = true };
	struct volume *v;
	char addr[32];

	world_begin();
	for (unsigned i = 0; i < w.nr; i++) {
		snprintf(addr, sizeof(addr), "192.0.2.%u", 100 + i);
		way(&to[i], addr);
	}
	list_push_back(&in.ways, &w.node);
	v = volume("v", 1, 1);
	CHECK_EQ(nr_paths(), VOLUME_PATHS_MAX);
	identify("192.0.2.3", UINT32_MAX, &small);
	w.nr = 1;
	volumes_follow(&in);
	CHECK_EQ(nr_paths(), 2);
	w.to = to + 2; /* places are used again */
	w.nr = VOLUME_PATHS_MAX + 1;
	volumes_follow(&in);
	CHECK_EQ(nr_paths(), VOLUME_PATHS_MAX);
	CHECK(!is_path("192.0.2.100"));
	CHECK(v->members[0].nr_paths == VOLUME_PATHS_MAX);
	world_end();
}

/* ---- VMs ---- */

static void
test_vf_has_the_disks_of_the_entry_with_its_uid(void)
{
	char disks[][64] = { "b", "a" };
	struct sluice_volume d;
	struct err err = { 0 };
	struct vf *vf;

	world_begin();
	volume("a", 0, 1);
	volume("b", 1, 1);
	CHECK_EQ(vm("x", 1000, disks, 2, NULL), 0);
	CHECK_EQ(vm("y", 1000, disks, 1, &err), -EEXIST);
	CHECK(vf_for_peer(&in, 1001, 1, &err) == NULL);
	CHECK(strstr(err.text, "1001"));
	vf = vf_for_peer(&in, 1000, 77, &err);
	if (!CHECK(vf))
		return;
	CHECK_EQ(vf_disk_find(vf, "", 0, &d), 0);
	CHECK_STR(d.name, "b");
	CHECK_EQ(d.nsid, 1);
	CHECK_EQ(d.blocks, 0); /* not ready */
	identify("192.0.2.1", UINT32_MAX, &small);
	CHECK_EQ(vf_disk_find(vf, "a", 7, &d), 0);
	CHECK_EQ(d.nsid, 2);
	CHECK_EQ(d.block, 512);
	CHECK_EQ(d.blocks, small.blocks);
	CHECK_EQ(d.stripe, 0);
	CHECK_EQ(d.members, 1);
	CHECK_EQ(vf_disk_find(vf, "", 2, &d), -ENOENT);
	CHECK_EQ(vf_disk_find(vf, "c", 0, &d), -ENOENT);
	vf_put(vf);
	world_end();
}

static struct vf *kicked;

static void
kick(struct vf *vf, const char *why)
{
	CHECK(why && why[0]);
	kicked = vf;
}

static void
test_vm_that_is_removed_loses_its_clients_and_they_keep_their_disks_till_then(void)
{
	char disks[][64] = { "b" };
	struct err err = { 0 };
	struct vf *vf, *other;

	world_begin();
	volume("b", 1, 1);
	CHECK_EQ(vm("x", 1000, disks, 1, NULL), 0);
	CHECK_EQ(vm("z", 1002, disks, 1, NULL), 0);
	vf = vf_for_peer(&in, 1000, 77, &err);
	other = vf_for_peer(&in, 1002, 78, &err);
	vf->kick = other->kick = kick;
	CHECK_EQ(volume_remove(&in, "b", &err), -EBUSY);
	CHECK_EQ(vm_remove(&in, "x", &err), 0);
	CHECK(kicked == vf);
	CHECK_EQ(vm_remove(&in, "x", &err), -ENOENT);
	kicked = NULL;
	CHECK_EQ(vm_remove(&in, "z", &err), 0);
	CHECK(kicked == other);
	CHECK_EQ(volume_remove(&in, "b", &err), 0);
	CHECK(list_empty(&in.volumes));
	CHECK_EQ(stops, 0); /* it is still a disk of both */
	vf_put(vf);
	CHECK_EQ(stops, 0);
	vf_put(other);
	CHECK_EQ(stops, 1);
	world_end();
}

static void
test_vm_opens_the_sockets_of_its_disks_and_closes_them(void)
{
	char a[][64] = { "a" }, b[][64] = { "b" };
	struct vhost_config s = { .socket = "/s", .queues = 1 };
	struct vm_config x = { .name = "x", .uid = 7, .nr_disks = 1, .disks = a, .vhost = &s };
	struct vm_config y = { .name = "y", .uid = 7, .nr_disks = 1, .disks = b, .vhost = &s };
	struct vm_config shm = { .name = "z", .uid = 7, .nr_disks = 1, .disks = a };
	struct err err = { 0 };
	struct vf *vf;

	world_begin();
	volume("a", 0, 1);
	volume("b", 1, 1);
	CHECK_EQ(vm_add(&in, &x, &err), 0);
	CHECK_EQ(vm_add(&in, &y, &err), 0); /* one user, many VMs */
	CHECK_EQ(vm_add(&in, &shm, &err), 0);
	CHECK_EQ(sockets, 2);
	CHECK(vm_same(vm_find(&in, "x"), &x));
	s.read_only = true;
	CHECK(!vm_same(vm_find(&in, "x"), &x));
	vf = vf_for_peer(&in, 7, 1, &err);
	CHECK_STR(vf->name, "z"); /* disks with a socket are nobody else's */
	vf_put(vf);
	vf = vf_for_disk(&in, "x", volume_find(&in, "a"), 0, 1);
	CHECK(vf->disks[0] == volume_find(&in, "a"));
	vf_put(vf);
	CHECK_EQ(vm_remove(&in, "x", &err), 0);
	CHECK_EQ(sockets, 1);
	no_socket = true;
	CHECK_EQ(vm_add(&in, &x, &err), -EADDRINUSE);
	CHECK(vm_find(&in, "x") == NULL);
	no_socket = false;
	CHECK_EQ(vm_remove(&in, "y", &err), 0);
	CHECK_EQ(vm_remove(&in, "z", &err), 0);
	CHECK_EQ(sockets, 0);
	CHECK_EQ(volume_remove(&in, "a", &err), 0); /* nobody counts it any more */
	CHECK_EQ(volume_remove(&in, "b", &err), 0);
	world_end();
}

/* ---- applying a file ---- */

static void
apply(struct volume_config *volumes, unsigned nv, struct vm_config *vms, unsigned nm)
{
	struct config c = { .volumes = volumes, .nr_volumes = nv, .vms = vms, .nr_vms = nm };
	struct err err = { 0 };

	in.hosts = NULL; /* it would be freed */
	c.hosts = malloc(sizeof(hosts));
	memcpy(c.hosts, hosts, sizeof(hosts));
	c.nr_hosts = 3;
	if (!CHECK_EQ(config_apply(&in, &c, &err), 0))
		fprintf(stderr, "%s\n", err.text);
	CHECK(c.hosts == NULL);
}

static void
test_config_apply_touches_only_what_changed(void)
{
	struct volume_config v[] = {
		{ .name = "a", .block = 32 << 10, .max_part = 128 << 10, .nr_members = 1,
		  .members = both },
		{ .name = "b", .block = 32 << 10, .max_part = 128 << 10, .nr_members = 1,
		  .members = both + 1 },
	};
	char a[][64] = { "a" }, b[][64] = { "b" };
	struct vm_config m[] = { { .name = "x", .uid = 1, .nr_disks = 1, .disks = a },
		                 { .name = "y", .uid = 2, .nr_disks = 1, .disks = b } };
	struct volume *was_a, *was_b;
	struct vm *was_x;

	world_begin();
	apply(v, 2, m, 2);
	free(in.hosts);
	was_a = volume_find(&in, "a");
	was_b = volume_find(&in, "b");
	was_x = vm_find(&in, "x");
	identify("192.0.2.3", UINT32_MAX, &small);
	CHECK_EQ(was_b->state, VOLUME_READY);
	v[1].block = 64 << 10;
	apply(v, 2, m, 2);
	free(in.hosts);
	CHECK(volume_find(&in, "a") == was_a);
	CHECK(vm_find(&in, "x") == was_x);
	CHECK_EQ(volume_find(&in, "b")->block, 64 << 10);
	CHECK(vm_find(&in, "y") != NULL);
	CHECK_EQ(stops, 1);
	apply(v, 1, m, 1);
	free(in.hosts);
	CHECK(volume_find(&in, "b") == NULL);
	CHECK(vm_find(&in, "y") == NULL);
	CHECK_EQ(stops, 2);
	in.hosts = hosts;
	world_end();
}

/* ---- seals ---- */

enum { LBA = 512 };

/* Over the first n of both, with a key that begins with that byte. */
static struct volume *
sealed(unsigned n, uint8_t first)
{
	struct crypt_key *k = hidden_pages(sizeof(*k));
	struct volume_config cfg = { .name = "v", .block = 32 << 10, .max_part = 128 << 10,
		                     .nr_members = n, .members = both };
	struct err err = { 0 };
	struct volume *v = NULL;

	k->refs = 1;
	k->len = 64;
	for (unsigned i = 0; i < 64; i++)
		k->bytes[i] = (uint8_t)(first + i);
	cfg.stage = (struct stage_config){ .kind = STAGE_ENCRYPT,
		                           .staging = 1 << 20,
		                           .crypt = { .key = k, .seal = true } };
	if (!CHECK_EQ(volume_add(&in, &cfg, &v, &err), 0))
		fprintf(stderr, "%s\n", err.text);
	crypt_key_put(k);
	return v;
}

static uint64_t
sent_lba(void)
{
	return le32_get(sent->sqe.cdw10) | (uint64_t)le32_get(sent->sqe.cdw11) << 32;
}

/* The command that is out ends; block is what a read brings, and takes what a write has. */
static void
end_sent(uint8_t opcode, uint8_t block[LBA], uint16_t status)
{
	struct part *p = sent;

	if (!CHECK(p != NULL))
		abort();
	CHECK_EQ(p->sqe.opcode, opcode);
	CHECK_EQ(p->len, LBA);
	CHECK_EQ(p->sg[0].iov_len, LBA);
	if (opcode == nvme_cmd_read && status == 0)
		memcpy(p->sg[0].iov_base, block, LBA);
	else if (status == 0)
		memcpy(block, p->sg[0].iov_base, LBA);
	sent = NULL;
	p->done(p, status, 0);
}

/* Seals v, whose block is not there yet, into block. */
static void
seal(struct volume *v, uint8_t block[LBA])
{
	struct err err;

	memset(block, 0, LBA);
	CHECK_EQ(seal_order(v->seal, false, &err), CTL_LATER);
	end_sent(nvme_cmd_read, block, 0);
	CHECK(le32_get(sent->sqe.cdw12) & (uint32_t)NVME_IO_FUA << 16);
	end_sent(nvme_cmd_write, block, 0);
	CHECK_EQ(v->state, VOLUME_WAITING); /* it is read back first */
	end_sent(nvme_cmd_read, block, 0);
	CHECK(sent == NULL);
}

static void
test_sealed_volume_is_ready_when_its_key_has_proved_to_be_right(void)
{
	uint8_t block[LBA] = { 0 }, again[LBA];
	struct volume *v;

	world_begin();
	v = sealed(2, 1);
	identify("192.0.2.1", UINT32_MAX, &small);
	CHECK(sent == NULL);
	identify("192.0.2.3", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK(!volumes_settled(&in));
	CHECK(sent_on == path_at("192.0.2.3")); /* the last member has the last block */
	CHECK_EQ(sent_lba(), 100 * MIB / LBA - 1);
	end_sent(nvme_cmd_read, block, 0);
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK_EQ(v->bytes, 0);
	CHECK(strstr(v->why, "not sealed yet: sluicectl volume seal v"));
	path_at("192.0.2.2")->state = PATH_RECONNECTING;
	CHECK(volumes_settled(&in));
	seal(v, block);
	CHECK_EQ(v->state, VOLUME_READY);
	CHECK_EQ(v->bytes, 200 * MIB - SEAL_BYTES);
	CHECK_EQ(volume_remove(&in, "v", NULL), 0);
	for (uint8_t key = 1; key <= 2; key++) { /* the right one, another */
		v = sealed(2, key);
		identify("192.0.2.1", UINT32_MAX, &small);
		identify("192.0.2.3", UINT32_MAX, &large);
		memcpy(again, block, LBA);
		end_sent(nvme_cmd_read, again, 0);
		CHECK_EQ(v->state, key == 1 ? VOLUME_READY : VOLUME_WAITING);
		CHECK_EQ(v->bytes, key == 1 ? 200 * MIB - SEAL_BYTES : 0);
		CHECK(key == 1 || strstr(v->why, "no seal that its key opens"));
		CHECK_EQ(volume_remove(&in, "v", NULL), 0);
	}
	world_end();
}

static void
test_seal_is_written_over_something_else_only_by_force(void)
{
	uint8_t block[LBA], other[LBA];
	struct err err = { 0 };
	struct volume *v;

	world_begin();
	memset(other, 0x5a, LBA);
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &large);
	end_sent(nvme_cmd_read, other, 0);
	CHECK_EQ(seal_order(v->seal, false, &err), CTL_LATER);
	CHECK_EQ(volume_remove(&in, "v", &err), -EBUSY);
	end_sent(nvme_cmd_read, other, 0);
	CHECK(sent == NULL);
	CHECK_EQ(v->state, VOLUME_WAITING);
	CHECK_EQ(seal_order(v->seal, true, &err), CTL_LATER);
	end_sent(nvme_cmd_read, other, 0);
	end_sent(nvme_cmd_write, block, 0);
	end_sent(nvme_cmd_read, block, 0);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static void
test_seal_that_is_damaged_lets_no_command_through(void)
{
	uint8_t block[LBA], bad[LBA];
	struct volume *v;

	world_begin();
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &large);
	memset(block, 0, LBA);
	end_sent(nvme_cmd_read, block, 0);
	seal(v, block);
	CHECK_EQ(v->state, VOLUME_READY);
	for (unsigned i = 0; i < LBA; i++) {
		unit_row("byte %u", i);
		CHECK_EQ(volume_remove(&in, "v", NULL), 0);
		v = sealed(1, 1);
		identify("192.0.2.1", UINT32_MAX, &large);
		memcpy(bad, block, LBA);
		bad[i] ^= 0x40;
		end_sent(nvme_cmd_read, bad, 0);
		CHECK_EQ(v->state, VOLUME_WAITING);
		CHECK(strstr(v->why, i < 32 ? "no seal that its key opens" : "its key is right"));
	}
	world_end();
}

static void
test_seal_moves_to_the_new_end_before_clients_get_more(void)
{
	uint8_t block[LBA] = { 0 };
	struct path_ns ns = large;
	struct volume *v;

	world_begin();
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &ns);
	end_sent(nvme_cmd_read, block, 0);
	seal(v, block);
	CHECK_EQ(v->bytes, 200 * MIB - SEAL_BYTES);
	ns.blocks *= 2;
	identify("192.0.2.1", UINT32_MAX, &ns);
	CHECK_EQ(v->bytes, 200 * MIB - SEAL_BYTES);
	CHECK_EQ(sent_lba(), 400 * MIB / LBA - 1);
	end_sent(nvme_cmd_write, block, 0);
	CHECK_EQ(v->bytes, 200 * MIB - SEAL_BYTES);
	end_sent(nvme_cmd_read, block, 0);
	CHECK_EQ(v->bytes, 400 * MIB - SEAL_BYTES);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static void
test_volume_may_go_while_its_seal_is_asked_for(void)
{
	uint8_t block[LBA] = { 0 };
	struct volume *v;

	world_begin();
	sealed(1, 1);
	v = volume("w", 1, 1); /* keeps nothing of it */
	identify("192.0.2.1", UINT32_MAX, &large);
	CHECK(sent != NULL);
	CHECK_EQ(volume_remove(&in, "v", NULL), 0);
	end_sent(nvme_cmd_read, block, 0);
	CHECK(sent == NULL);
	CHECK_EQ(v->state, VOLUME_WAITING);
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &large);
	in.stopping = true; /* otherwise it would be asked again after a while */
	end_sent(nvme_cmd_read, block, NVME_ST_PATH(NVME_SC_HOST_PATH_ERROR));
	CHECK(sent == NULL);
	CHECK(strstr(v->why, "could not be read: the path was lost"));
	world_end();
}

static void
test_seal_is_asked_for_when_a_path_works_again(void)
{
	uint8_t block[LBA] = { 0 };
	struct volume *v;
	struct path *p;

	world_begin();
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &large);
	end_sent(nvme_cmd_read, block, 0);
	seal(v, block);
	CHECK_EQ(volume_remove(&in, "v", NULL), 0);
	v = sealed(1, 1);
	p = path_at("192.0.2.1");
	p->state = PATH_RECONNECTING;
	p->info = calloc(1, sizeof(*p->info) + sizeof(large));
	p->info->mdts = UINT32_MAX;
	p->info->nr_ns = 1;
	p->info->ns[0] = large;
	p->changed(p, p->arg); /* all is known, but nobody answers now */
	CHECK(sent == NULL);
	CHECK(strstr(v->why, "its seal is behind nqn.a, which is not there"));
	p->state = PATH_LIVE;
	p->changed(p, p->arg);
	end_sent(nvme_cmd_read, block, 0);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static void
test_seal_is_read_anew_when_a_member_was_another_disk(void)
{
	struct path_ns other = large;
	uint8_t block[LBA] = { 0 };
	struct volume *v;

	world_begin();
	v = sealed(1, 1);
	identify("192.0.2.1", UINT32_MAX, &large);
	end_sent(nvme_cmd_read, block, 0);
	seal(v, block);
	other.uuid[0] = 9;
	identify("192.0.2.1", UINT32_MAX, &other);
	CHECK_EQ(v->state, VOLUME_FAILED);
	identify("192.0.2.1", UINT32_MAX, &large);
	CHECK_EQ(v->state, VOLUME_WAITING);
	end_sent(nvme_cmd_read, block, 0);
	CHECK_EQ(v->state, VOLUME_READY);
	world_end();
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_volume_is_ready_when_every_member_was_identified),
	UNIT_TEST(test_volume_takes_the_smallest_mdts_of_all_its_paths),
	UNIT_TEST(test_volume_of_one_member_has_all_of_it),
	UNIT_TEST(test_volume_whose_paths_failed_once_keeps_nobody_waiting),
	UNIT_TEST(test_volume_of_unlike_blocks_fails_until_they_are_alike),
	UNIT_TEST(test_volume_with_a_member_smaller_than_a_stripe_block_fails),
	UNIT_TEST(test_volume_grows_with_its_members_and_never_shrinks),
	UNIT_TEST(test_volume_whose_member_is_another_disk_lets_no_command_through),
	UNIT_TEST(test_volume_that_was_not_ready_yet_takes_another_disk),
	UNIT_TEST(test_volume_whose_paths_lead_to_two_disks_fails),
	UNIT_TEST(test_volume_that_cannot_be_leaves_nothing_behind),
	UNIT_TEST(test_volume_shares_paths_and_the_last_one_ends_them),
	UNIT_TEST(test_volume_waits_for_ways_where_there_is_discovery),
	UNIT_TEST(test_path_that_nobody_tells_of_goes_when_it_does_not_work_and_is_not_missed),
	UNIT_TEST(test_member_has_no_more_paths_than_it_has_places),
	UNIT_TEST(test_vf_has_the_disks_of_the_entry_with_its_uid),
	UNIT_TEST(test_vm_opens_the_sockets_of_its_disks_and_closes_them),
	UNIT_TEST(test_vm_that_is_removed_loses_its_clients_and_they_keep_their_disks_till_then),
	UNIT_TEST(test_config_apply_touches_only_what_changed),
	UNIT_TEST(test_sealed_volume_is_ready_when_its_key_has_proved_to_be_right),
	UNIT_TEST(test_seal_is_written_over_something_else_only_by_force),
	UNIT_TEST(test_seal_that_is_damaged_lets_no_command_through),
	UNIT_TEST(test_seal_moves_to_the_new_end_before_clients_get_more),
	UNIT_TEST(test_volume_may_go_while_its_seal_is_asked_for),
	UNIT_TEST(test_seal_is_asked_for_when_a_path_works_again),
	UNIT_TEST(test_seal_is_read_anew_when_a_member_was_another_disk),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
