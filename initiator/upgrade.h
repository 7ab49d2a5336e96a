/* A new program in the place of this one, under running VMs: "sluicectl upgrade", SIGUSR2.
 *
 * Happy path: upgrade_begin() has the new program judge the configuration, and stops the loop;
 * upgrade_exec() has the fronts hand over, and runs it; there upgrade_inherit() reads what was
 * left.
 *
 * What can fail: a program that is not there or does not like the configuration: nothing changes.
 */
#ifndef SLUICE_UPGRADE_H
#define SLUICE_UPGRADE_H

#include "common/err.h"
#include "initiator/initiator.h"

/* argv of main(): how the new program is found and called. Reads what the one before left. */
void upgrade_inherit(struct initiator *in, char **argv);
int upgrade_begin(struct initiator *in, struct err *err);
/* Returns when the program cannot be run after all. */
void upgrade_exec(struct initiator *in);

#endif
