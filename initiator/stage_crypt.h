/* The encrypt stage: AES-XTS between a volume's VMs and its targets.
 *
 * The data unit is a logical block of the volume, the tweak its number (LBA) on the volume, 64 bits
 * little endian, zeroes behind: what dm-crypt calls aes-xts-plain64 with sector_size set to the
 * block size and iv_large_sectors. A block is as long as before, so any target will do. Reads,
 * writes and compares pass; zeroes are written as what decrypts to zeroes; discards are refused
 * unless the volume allows them.
 *
 * Happy path: crypt_new() makes two contexts for each reactor from the volume's key; nothing is
 * allocated later. Blocks go from VM memory to staging memory and back in one pass; one that is
 * scattered is gathered in staging memory first, and wiped from there when it was a read.
 *
 * What can fail: libcrypto, when the stage is made (a sentence). The only file that knows OpenSSL.
 */
#ifndef SLUICE_STAGE_CRYPT_H
#define SLUICE_STAGE_CRYPT_H

#include "initiator/stage.h"

/* cfg->kind is STAGE_ENCRYPT; counts the key. */
int crypt_new(const struct stage_config *cfg, unsigned nr_reactors, uint32_t max_part,
              struct stage **ret, struct err *err);
/* "aes-256-xts" */
const char *crypt_name(const struct stage_config *cfg);

/* n bytes as one data unit, in place, by the context of reactor 0. */
void crypt_unit(struct stage *s, bool encrypt, uint8_t *data, size_t n, uint64_t tweak);

#endif
