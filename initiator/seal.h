/* The seal of an encrypted volume: a record by which its key proves to be the right one before any
 * command is let through.
 *
 * The last SEAL_BYTES of the stripes are not the clients'. Their last logical block holds the
 * record, encrypted as every block is: a random salt of 16 bytes; then, each 16 bytes of it mixed
 * with the salt so that volumes of one key cannot be told by it, a magic word, version and key
 * length; in the last 4 bytes CRC32C of all before. It is not secret and says nothing of the key.
 *
 * Happy path: volume_look() says where the record would be, seal_go() reads it, volume_look() finds
 * that the key opens it and the volume becomes ready. A volume that grows under its clients has its
 * record written at the new end before they get more. seal_order() reads, judges, writes, and reads
 * it back.
 *
 * What can fail: there is no record, or not one that the key opens: the volume waits, seal_why()
 * says for what. Reading or writing, by a status or a lost path: tried again every second while a
 * path works; an order is answered with that instead. Reactor 0.
 */
#ifndef SLUICE_SEAL_H
#define SLUICE_SEAL_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct seal;
struct volume;

enum { SEAL_BYTES = 4096 };

struct seal *seal_new(struct volume *v); /* NULL: no memory */
/* The volume goes. A command that is out ends by itself. NULL is fine. */
void seal_free(struct seal *s);

/* What the members have room for by now; 0: not all are known. */
void seal_place(struct seal *s, uint64_t total, unsigned lba_shift);
/* The members may be other disks: what was read does not count any more. */
void seal_forget(struct seal *s);
/* Bytes for clients; 0: the key has not proved to be right. */
uint64_t seal_capacity(const struct seal *s);
const char *seal_why(const struct seal *s); /* a sentence, when that is 0 */
bool seal_is_asking(const struct seal *s);  /* it may have proved so within moments */
/* Reads or writes what is due. Without the lock. */
void seal_go(struct seal *s);

/* For sluicectl: writes the record unless it is there; over what is no record of this key only by
 * force. 0; CTL_LATER: the control server is woken, call again; a negative errno. */
int seal_order(struct seal *s, bool force, struct err *err);
bool seal_has_order(const struct seal *s);

#endif
