/* Replaces a file as a whole. What can fail: the file system, told in a sentence; the old file is
 * there then. */
#ifndef SLUICE_FILE_H
#define SLUICE_FILE_H

#include "common/err.h"

/* Writes text to path, whole or not at all, durable when it returns. A file that was there keeps
 * its mode and, where we may, its owner. */
int file_replace(const char *path, const char *text, struct err *err);
/* What was made, renamed or taken away in dir stays so. */
int file_sync_dir(const char *dir);

#endif
