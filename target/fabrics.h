/* Fabrics commands: Connect, Property Get and Set, Disconnect.
 *
 * Called by cmd with the data of the command in place; every path ends in cmd_complete(), at
 * once. Connect's verdicts name the offending field (IPO/IATTR) in dw0.
 */
#ifndef SLUICE_FABRICS_H
#define SLUICE_FABRICS_H

#include "target/cmd.h"

void fabrics_execute(struct cmd *cmd);

#endif
