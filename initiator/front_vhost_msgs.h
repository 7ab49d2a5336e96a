/* The functions behind a VMM's messages, by file. Each is called with the message in c->in, and
 * does what it says or returns an error, which ends the connection. */
#ifndef SLUICE_FRONT_VHOST_MSGS_H
#define SLUICE_FRONT_VHOST_MSGS_H

#include "initiator/front_vhost_inner.h"

#define MSG(name) int vhost_##name(struct vhost_conn *c, struct err *err)

/* front_vhost_msg_mem.c */
MSG(get_max_mem_slots);
MSG(set_mem_table);
MSG(add_mem_reg);
MSG(rem_mem_reg);
MSG(get_inflight_fd);
MSG(set_inflight_fd);

/* front_vhost_msg_ring.c */
MSG(set_vring_num);
MSG(set_vring_base);
MSG(set_vring_addr);
MSG(get_vring_base);
MSG(set_vring_kick);
MSG(set_vring_call);
MSG(set_vring_err);
MSG(set_vring_enable);

/* What they share. */
int vhost_reply_u64(struct vhost_conn *c, uint64_t v);
bool vhost_any_running(const struct vhost_conn *c);

#endif
