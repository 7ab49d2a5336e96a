/* The other end of the control socket, for programs that may wait: one call, one reply.
 *
 * Happy path: open, call as often as wanted, close. What can fail: nobody answers at the path (with
 * a sentence for each reason), the daemon goes away or is silent for CTL_REPLY_S, or it refuses:
 * then err has its sentence.
 */
#ifndef SLUICE_CTL_CLIENT_H
#define SLUICE_CTL_CLIENT_H

#include "common/conf.h"

enum { CTL_REPLY_S = 60 };      /* patience with a reply */

struct ctl_client {
	int fd;
	unsigned id;            /* of the last request */
	char *in;               /* ours: what was received behind the last whole line */
	size_t len, size;
};

int ctl_client_open(struct ctl_client *c, const char *path, struct err *err);
void ctl_client_close(struct ctl_client *c);

/* Calls method with params, the JSON text of an object or NULL. The reply's document is *ret, the
 * caller's to free; its result is *ret_result, inside *ret. Events that arrive meanwhile are
 * dropped. */
int ctl_client_call(struct ctl_client *c, const char *method, const char *params, struct conf **ret,
                    const struct conf_node **ret_result, struct err *err);

/* Waits for the next event, without end; "subscribe" was called. The document is the caller's. */
int ctl_client_event(struct ctl_client *c, struct conf **ret, struct err *err);

#endif
