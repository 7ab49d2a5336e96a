/* The messages of a VMM: which there are, and what each does. See front_vhost_inner.h.
 *
 * Happy path: 1. vhost_msg_judge() holds a header to its row of the table: size, whether it may
 * come before what was negotiated; 2. with the payload there, vhost_msg_handle() counts the
 * descriptors and calls the row's function, which changes fields of the connection and gives orders
 * to queues; where those have to come back first, c->finish does the rest.
 *
 * What can fail: the message. The sentence ends the connection: whoever sends one thing wrong has
 * another idea of the state than we have.
 */
#include "common/log.h"
#include "initiator/front_vhost_msgs.h"

#include <errno.h>
#include <unistd.h>

enum {
	CONFIG_HDR = offsetof(struct vhost_config_msg, bytes),
	INFLIGHT_MIN = 20, /* it need not be padded */
};

static const uint64_t offered = BIT64(VHOST_P_MQ) | BIT64(VHOST_P_REPLY_ACK) |
                                BIT64(VHOST_P_BACKEND_REQ) | BIT64(VHOST_P_CONFIG) |
                                BIT64(VHOST_P_INFLIGHT_SHMFD) | BIT64(VHOST_P_RESET_DEVICE) |
                                BIT64(VHOST_P_CONFIGURE_MEM_SLOTS) | BIT64(VHOST_P_STATUS);

int
vhost_reply_u64(struct vhost_conn *c, uint64_t v)
{
	c->out.u64 = v;
	c->out.hdr.size = sizeof(v);
	c->replying = true;
	return 0;
}

bool
vhost_any_running(const struct vhost_conn *c)
{
	unsigned i;

	for (i = 0; i < VHOST_QUEUES_MAX && !c->rings[i].running; i++)
		;
	return i < VHOST_QUEUES_MAX;
}

int
vhost_settle_all(struct vhost_conn *c, struct err *err)
{
	int res = 0;

	for (unsigned i = 0; i < VHOST_QUEUES_MAX && res == 0; i++)
		res = vhost_ring_settle(c, i, err);
	return res;
}

/* ---- features ---- */

static int
get_features(struct vhost_conn *c, struct err *err)
{
	(void)err;
	return vhost_reply_u64(c, vhost_blk_features(c->d));
}

static int
set_features(struct vhost_conn *c, struct err *err)
{
	uint64_t f = c->in.u64, unknown = f & ~vhost_blk_features(c->d);

	if (unknown)
		return err_set(err, -EINVAL, "it takes features 0x%llx, which were not offered",
		               (unsigned long long)unknown);
	if (vhost_any_running(c)) {
		/* Logging of a migration, which we do not offer, comes like that; other bits stay.
		 */
		if (f == c->features)
			return 0;
		return err_set(err, -EBUSY, "it changes features while rings run");
	}
	c->features = f;
	c->has_features = true;
	return vhost_settle_all(c, err);
}

static int
get_protocol_features(struct vhost_conn *c, struct err *err)
{
	(void)err;
	return vhost_reply_u64(c, offered);
}

static int
set_protocol_features(struct vhost_conn *c, struct err *err)
{
	uint64_t unknown = c->in.u64 & ~offered;

	if (unknown)
		return err_set(err, -EINVAL,
		               "it takes protocol features 0x%llx, which were not offered",
		               (unsigned long long)unknown);
	c->protocol = c->in.u64;
	return 0;
}

static int
nothing(struct vhost_conn *c, struct err *err)
{
	(void)c;
	(void)err;
	return 0;
}

static int
get_queue_num(struct vhost_conn *c, struct err *err)
{
	(void)err;
	return vhost_reply_u64(c, c->d->cfg.queues);
}

/* ---- configuration ---- */

/* Odd sizes get an empty answer, which says that there is none. */
static int
get_config(struct vhost_conn *c, struct err *err)
{
	const struct vhost_config_msg *m = &c->in.config;
	uint8_t config[VHOST_CONFIG_SIZE];

	(void)err;
	c->replying = true;
	c->out.hdr.size = 0;
	if (m->size == 0 || m->size > VHOST_CONFIG_SIZE || m->off > VHOST_CONFIG_SIZE - m->size ||
	    c->in.hdr.size != CONFIG_HDR + m->size)
		return 0;
	vhost_blk_config(c, config);
	c->out.config.off = m->off;
	c->out.config.size = m->size;
	c->out.config.flags = m->flags;
	memcpy(c->out.config.bytes, config + m->off, m->size);
	c->out.hdr.size = c->in.hdr.size;
	return 0;
}

/* Only the cache mode can be written; the rest is left as it is, as the specification has it. */
static int
set_config(struct vhost_conn *c, struct err *err)
{
	const struct vhost_config_msg *m = &c->in.config;
	const uint32_t wce = offsetof(struct vblk_config, wce);
	int res = 0;

	if (m->size > VHOST_CONFIG_SIZE || m->off > VHOST_CONFIG_SIZE - m->size ||
	    c->in.hdr.size != CONFIG_HDR + m->size)
		return err_set(err, -EINVAL, "it writes %u bytes of configuration at %u by %u",
		               m->size, m->off, c->in.hdr.size);
	if (m->off > wce || m->size <= wce - m->off || !(c->features & BIT64(VBLK_F_CONFIG_WCE)))
		return 0;
	c->wce = m->bytes[wce - m->off] & 1;
	vhost_inflight_note_cache(c);
	for (unsigned i = 0; i < VHOST_QUEUES_MAX && res == 0; i++)
		if (c->rings[i].running)
			res = vhost_ring_move(c, i, err);
	return res;
}

/* ---- the rest ---- */

static int
set_backend_req_fd(struct vhost_conn *c, struct err *err)
{
	if (c->backing)
		return err_set(err, -EBUSY, "it does not read the channel that it gave us");
	if (c->back_fd >= 0)
		close(c->back_fd);
	c->back_fd = vhost_take_fd(c, 0);
	return 0;
}

static int
reset_finish(struct vhost_conn *c, struct err *err)
{
	(void)err;
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++) {
		struct vhost_ring *ring = &c->rings[i];

		ring->has_num = ring->has_addr = ring->has_kick = ring->enabled = false;
		ring->base = 0;
		if (ring->q && ring->q->kick_fd >= 0) {
			close(ring->q->kick_fd);
			ring->q->kick_fd = -1;
		}
	}
	return 0;
}

static int
reset_device(struct vhost_conn *c, struct err *err)
{
	(void)err;
	for (unsigned i = 0; i < VHOST_QUEUES_MAX; i++)
		if (c->rings[i].running)
			vhost_ring_stop(c, i);
	c->status = 0;
	c->finish = reset_finish;
	return 0;
}

static int
set_status(struct vhost_conn *c, struct err *err)
{
	if (c->in.u64 == VHOST_STATUS_RESET)
		return reset_device(c, err);
	c->status = c->in.u64 & UINT8_MAX;
	return 0;
}

static int
get_status(struct vhost_conn *c, struct err *err)
{
	(void)err;
	return vhost_reply_u64(c, c->status);
}

/* ---- which there are ---- */

enum { ANY_TIME = -1 };

static const struct rule {
	const char *name;
	uint16_t min, max; /* bytes of payload */
	uint8_t fds_min, fds_max;
	int8_t needs; /* a protocol feature, or ANY_TIME */
	int (*handle)(struct vhost_conn *c, struct err *err);
} rules[] = {
#define U64           sizeof(uint64_t), sizeof(uint64_t)
#define STATE         sizeof(struct vhost_state), sizeof(struct vhost_state)
#define REGION        sizeof(struct vhost_one_region), sizeof(struct vhost_one_region)
#define CONFIG        CONFIG_HDR, sizeof(struct vhost_config_msg)
#define AREA          INFLIGHT_MIN, sizeof(struct vhost_inflight)
#define RULE(id, ...) [VHOST_##id] = { #id, __VA_ARGS__ }
	RULE(GET_FEATURES, 0, 0, 0, 0, ANY_TIME, get_features),
	RULE(SET_FEATURES, U64, 0, 0, ANY_TIME, set_features),
	RULE(SET_OWNER, 0, 0, 0, 0, ANY_TIME, nothing),
	RULE(RESET_OWNER, 0, 0, 0, 0, ANY_TIME, nothing), /* obsolete: it says nothing */
	RULE(SET_MEM_TABLE, 8, sizeof(struct vhost_mem), 0, VHOST_TABLE_MAX, ANY_TIME,
	     vhost_set_mem_table),
	RULE(SET_VRING_NUM, STATE, 0, 0, ANY_TIME, vhost_set_vring_num),
	RULE(SET_VRING_ADDR, sizeof(struct vhost_addr), sizeof(struct vhost_addr), 0, 0, ANY_TIME,
	     vhost_set_vring_addr),
	RULE(SET_VRING_BASE, STATE, 0, 0, ANY_TIME, vhost_set_vring_base),
	RULE(GET_VRING_BASE, STATE, 0, 0, ANY_TIME, vhost_get_vring_base),
	RULE(SET_VRING_KICK, U64, 0, 1, ANY_TIME, vhost_set_vring_kick),
	RULE(SET_VRING_CALL, U64, 0, 1, ANY_TIME, vhost_set_vring_call),
	RULE(SET_VRING_ERR, U64, 0, 1, ANY_TIME, vhost_set_vring_err),
	RULE(GET_PROTOCOL_FEATURES, 0, 0, 0, 0, ANY_TIME, get_protocol_features),
	RULE(SET_PROTOCOL_FEATURES, U64, 0, 0, ANY_TIME, set_protocol_features),
	RULE(GET_QUEUE_NUM, 0, 0, 0, 0, VHOST_P_MQ, get_queue_num),
	RULE(SET_VRING_ENABLE, STATE, 0, 0, ANY_TIME, vhost_set_vring_enable),
	RULE(SET_BACKEND_REQ_FD, 0, 0, 1, 1, VHOST_P_BACKEND_REQ, set_backend_req_fd),
	RULE(GET_CONFIG, CONFIG, 0, 0, VHOST_P_CONFIG, get_config),
	RULE(SET_CONFIG, CONFIG, 0, 0, VHOST_P_CONFIG, set_config),
	RULE(GET_INFLIGHT_FD, AREA, 0, 0, VHOST_P_INFLIGHT_SHMFD, vhost_get_inflight_fd),
	RULE(SET_INFLIGHT_FD, AREA, 1, 1, VHOST_P_INFLIGHT_SHMFD, vhost_set_inflight_fd),
	RULE(RESET_DEVICE, 0, 0, 0, 0, VHOST_P_RESET_DEVICE, reset_device),
	RULE(GET_MAX_MEM_SLOTS, 0, 0, 0, 0, VHOST_P_CONFIGURE_MEM_SLOTS, vhost_get_max_mem_slots),
	RULE(ADD_MEM_REG, REGION, 1, 1, VHOST_P_CONFIGURE_MEM_SLOTS, vhost_add_mem_reg),
	RULE(REM_MEM_REG, REGION, 0, 1, VHOST_P_CONFIGURE_MEM_SLOTS, vhost_rem_mem_reg),
	RULE(SET_STATUS, U64, 0, 0, VHOST_P_STATUS, set_status),
	RULE(GET_STATUS, 0, 0, 0, 0, VHOST_P_STATUS, get_status),
};

static const struct rule *
rule_of(uint32_t id)
{
	return id < ARRAY_SIZE(rules) && rules[id].name ? &rules[id] : NULL;
}

int
vhost_msg_judge(struct vhost_conn *c, struct err *err)
{
	const struct vhost_hdr *h = &c->in.hdr;
	const struct rule *r = rule_of(h->id);

	if ((h->flags & VHOST_VERSION_MASK) != VHOST_VERSION || (h->flags & VHOST_REPLY) ||
	    h->flags > (VHOST_VERSION | VHOST_REPLY | VHOST_NEED_REPLY))
		return err_set(err, -EPROTO, "message %u has flags 0x%x", h->id, h->flags);
	if (!r)
		return err_set(err, -EPROTO, "there is no message %u here", h->id);
	if (h->size < r->min || h->size > r->max)
		return err_set(err, -EPROTO, "%s with %u bytes", r->name, h->size);
	if (r->needs != ANY_TIME && !(c->protocol & BIT64(r->needs)))
		return err_set(err, -EPROTO, "%s, whose protocol feature it did not take", r->name);
	return 0;
}

int
vhost_msg_handle(struct vhost_conn *c, struct err *err)
{
	const struct rule *r = rule_of(c->in.hdr.id);
	int res;

	if (c->nfds < r->fds_min || c->nfds > r->fds_max)
		return err_set(err, -EPROTO, "%s with %u descriptors", r->name, c->nfds);
	log_debug("%s: %s, %u bytes, %u descriptors", c->d->label, r->name, c->in.hdr.size,
	          c->nfds);
	res = r->handle(c, err);
	return res < 0 ? err_prefix(err, res, "%s", r->name) : 0;
}
