/* A key for AES-XTS: from a file, a systemd credential or the kernel's keyring.
 *
 * Happy path: one of crypt_key_...() reads 32 bytes (AES-128-XTS) or 64 (AES-256-XTS) straight into
 * hidden memory (hidden.h), where they stay while somebody counts the key. They are never logged.
 *
 * What can fail, with a sentence: there is no such thing; others may read the file; another length;
 * halves that are equal, with which XTS is not safe.
 */
#ifndef SLUICE_CRYPT_KEY_H
#define SLUICE_CRYPT_KEY_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CRYPT_KEY_MAX = 64 };

struct crypt_key {
	unsigned refs; /* reactor 0's */
	size_t len;
	uint8_t bytes[CRYPT_KEY_MAX];
};

/* A regular file of ours or root's, with nothing allowed to others. */
int crypt_key_file(const char *path, struct crypt_key **ret, struct err *err);
/* A file below $CREDENTIALS_DIRECTORY, which systemd makes. */
int crypt_key_credential(const char *name, struct crypt_key **ret, struct err *err);
/* A key of type "user" in a keyring of this process. */
int crypt_key_keyring(const char *description, struct crypt_key **ret, struct err *err);

struct crypt_key *crypt_key_get(struct crypt_key *k);
void crypt_key_put(struct crypt_key *k); /* NULL is fine */
bool crypt_key_same(const struct crypt_key *a, const struct crypt_key *b);

#endif
