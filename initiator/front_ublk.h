/* The ublk front: a volume as a block device of this host, /dev/ublkbN.
 *
 * Happy path: front_ublk_open() finds the driver, and devices that an initiator before us left
 * behind; front_ublk_apply() makes the devices that the configuration lists, and takes those that
 * were left behind on volumes that are there; front_ublk_add() and front_ublk_end() are the verbs'.
 * A device whose volume is not ready waits for it. front_ublk_stop() ends all, but leaves what is
 * in use (mounted, say) to whoever starts next: I/O waits meanwhile.
 *
 * What can fail: the driver is not there or may not be used (a sentence); a device, which says why
 * in the log and to who asked for it. Everything here runs on reactor 0, without the lock.
 */
#ifndef SLUICE_FRONT_UBLK_H
#define SLUICE_FRONT_UBLK_H

#include "common/conf_write.h"
#include "initiator/initiator.h"
#include "initiator/volume.h"

enum {
	UBLK_QUEUES_MAX = 64, /* of a device */
	UBLK_TAGS_MAX = 512,  /* of a queue: "depth" */
	UBLK_TAGS_DEFAULT = 128,
	UBLK_CONFIGS_MAX = 1024,
};

struct ublk_config { /* an entry of "ublk" */
	char volume[64];
	uint32_t queues; /* 0: one for each reactor */
	uint32_t depth;
};

struct conf_node;
struct config;
struct front_ublk;

/* One entry, as in the file ("VOLUME" or an object) or as the parameters of a verb. */
int config_read_ublk(const struct conf_node *n, struct ublk_config *ret, struct err *err);

/* in->ublk is there afterwards. Where it is already: nothing. */
int front_ublk_open(struct initiator *in, struct err *err);
/* The same where the driver is, and in silence: devices may have been left behind. */
void front_ublk_look(struct initiator *in);

/* config_apply(), and the devices of c as well: those that are not in it any more begin to end
 * before their volumes are judged, the others come when these are there. */
int front_ublk_apply(struct initiator *in, struct config *c, struct err *err);

/* What the two verbs ask, again after each wake of the control server: CTL_LATER, or 0 and the
 * path, or why not. */
int front_ublk_add(struct initiator *in, const struct ublk_config *cfg, char path[32],
                   struct err *err);
/* By "/dev/ublkbN", "ublkbN" or the volume's name. Without force: not one that is in use. */
int front_ublk_end(struct initiator *in, const char *name, bool force, struct err *err);
/* A row for each. */
void front_ublk_list(struct initiator *in, struct conf_writer *w);

/* Whether no device is on its way to be there. */
bool front_ublk_settled(const struct initiator *in);
/* Prints a line for each device that is there. */
void front_ublk_show(const struct initiator *in);

/* stopped(arg) from reactor 0's loop when all have ended or are kept. */
void front_ublk_stop(struct front_ublk *f, void (*stopped)(void *arg), void *arg);
/* After stopped. True: some are kept, and the driver has commands of theirs in our rings until the
 * process has ended: the rings can be left, not freed. */
bool front_ublk_free(struct front_ublk *f);

#endif
