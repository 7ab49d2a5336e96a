/* Reads the discovery log of one address, once.
 *
 * Happy path: associate with the discovery controller, read its log (disc_log.c), tell it, end the
 * association. What can fail: connecting, or reading. done gets a sentence. Every wait has its
 * limit in assoc.c or disc_log.c.
 */
#include "initiator/path.h"

#include "initiator/disc_log.h"
#include "initiator/initiator.h"

#include <stdio.h>
#include <stdlib.h>

struct discover {
	struct initiator *in;
	struct path_config cfg;
	char name[128];
	struct assoc *assoc;
	struct disc_log log;
	struct op end_op;
	const struct nvmf_discovery_log *found; /* log's; NULL: not read */
	char why[256];          /* the first thing that went wrong */
	void (*done)(void *arg, const struct nvmf_discovery_log *log, const char *why);
	void *arg;
};

static void
log_done(struct disc_log *log, const struct nvmf_discovery_log *found, const char *why)
{
	struct discover *d = container_of(log, struct discover, log);

	d->found = found;
	if (!found)
		snprintf(d->why, sizeof(d->why), "%s", why);
	if (found)
		assoc_shutdown(d->assoc, "the discovery log is read");
	else
		assoc_close(d->assoc, why);
}

static void
discover_ready(void *owner)
{
	struct discover *d = owner;

	disc_log_start(&d->log);
}

static void
discover_changed(void *owner)
{
	(void)owner; /* it has no namespaces, and asks for no events */
}

static void
discover_free(struct discover *d)
{
	disc_log_fini(&d->log);
	assoc_free(d->assoc);
	free(d);
}

static void
discover_ended(struct op *op, int res, uint32_t flags)
{
	struct discover *d = container_of(op, struct discover, end_op);

	(void)res;
	(void)flags;
	d->done(d->arg, d->found, d->found ? NULL : d->why);
	discover_free(d);
}

static void
discover_down(void *owner, const char *why, bool dnr)
{
	struct discover *d = owner;
	struct ring *ring = d->in->reactors[0].ring;

	(void)dnr;
	disc_log_stop(&d->log);
	if (!d->why[0])
		snprintf(d->why, sizeof(d->why), "%s", why);
	ring_post(ring, ring, &d->end_op);
}

static const struct assoc_ops discover_ops = {
	.ready = discover_ready,
	.changed = discover_changed,
	.down = discover_down,
};

static struct discover *
discover_new(struct initiator *in, const struct path_config *cfg)
{
	struct discover *d = calloc(1, sizeof(*d));
	struct assoc_config ac;

	if (!d)
		return NULL;
	d->in = in;
	d->cfg = *cfg;
	d->cfg.keep_alive_tmo = 0; /* not a persistent connection */
	if (!d->cfg.subnqn[0])
		snprintf(d->cfg.subnqn, sizeof(d->cfg.subnqn), "%s", NVME_DISC_SUBSYS_NAME);
	snprintf(d->name, sizeof(d->name), "discovery at %s:%s", cfg->traddr, cfg->trsvcid);
	d->end_op = (struct op){ discover_ended, "discover.end" };
	ac = (struct assoc_config){
		.r = &in->reactors[0],
		.cfg = &d->cfg,
		.name = d->name,
		.discovery = true,
		.ops = &discover_ops,
		.owner = d,
	};
	d->assoc = assoc_new(&ac);
	if (disc_log_init(&d->log, in->reactors[0].ring, d->assoc, log_done) == 0 && d->assoc)
		return d;
	discover_free(d);
	return NULL;
}

void
path_discover(struct initiator *in, const struct path_config *cfg,
              void (*done)(void *arg, const struct nvmf_discovery_log *log, const char *why),
              void *arg)
{
	struct discover *d = discover_new(in, cfg);
	struct hconn_config addrs;

	if (!d) {
		done(arg, NULL, "no memory");
		return;
	}
	d->done = done;
	d->arg = arg;
	if (path_config_addrs(cfg, &addrs) < 0)
		discover_down(d, "the address must be in numbers", true);
	else
		assoc_start(d->assoc);
}
