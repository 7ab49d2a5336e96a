/* Keys for AES-XTS. See crypt_key.h.
 *
 * Happy path: a source of the key is opened and judged, take() reads it into hidden memory and
 * judges the bytes. Nothing of them is ever anywhere else. What can fail: see there.
 */
#include "initiator/crypt_key.h"

#include "initiator/hidden.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	OPEN_FILE = 077,
	OPEN_CREDENTIAL = 007
}; /* mode bits that must not be there: systemd may let
    * the service in by its group */

/* Up to n bytes to dst: how many there are, which may be more; a negative errno. */
struct source {
	long (*read)(const struct source *s, void *dst, size_t n);
	long id;
};

static int
judge(const struct crypt_key *k, long n, struct err *err)
{
	if (n != 32 && n != 64)
		return err_set(
			err, -EINVAL,
			"a key has 32 bytes for AES-128-XTS or 64 for AES-256-XTS, not %ld%s", n,
			n > CRYPT_KEY_MAX ? " or more" : "");
	if (!memcmp(k->bytes, k->bytes + n / 2, (size_t)n / 2))
		return err_set(err, -EINVAL,
		               "the two halves of the key are the same, which makes XTS unsafe");
	return 0;
}

static int
take(const struct source *s, struct crypt_key **ret, struct err *err)
{
	struct crypt_key *k = hidden_pages(sizeof(*k));
	long n;
	int res;

	if (!k)
		return err_set(err, -ENOMEM, "no memory");
	n = s->read(s, k->bytes, sizeof(k->bytes));
	res = n < 0 ? err_set(err, (int)n, "cannot be read: %s", strerror((int)-n))
	            : judge(k, n, err);
	if (res) {
		hidden_pages_free(k, sizeof(*k));
		return res;
	}
	k->refs = 1;
	k->len = (size_t)n;
	*ret = k;
	return 0;
}

struct crypt_key *
crypt_key_get(struct crypt_key *k)
{
	k->refs++;
	return k;
}

void
crypt_key_put(struct crypt_key *k)
{
	if (k && --k->refs == 0)
		hidden_pages_free(k, sizeof(*k));
}

bool
crypt_key_same(const struct crypt_key *a, const struct crypt_key *b)
{
	return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

/* ---- files ---- */

static long
read_file(const struct source *s, void *dst, size_t n)
{
	size_t got = 0;
	uint8_t more;
	ssize_t res;

	while (got < n) {
		res = read((int)s->id, (uint8_t *)dst + got, n - got);
		if (res < 0 && errno != EINTR)
			return -errno;
		if (res == 0)
			return (long)got;
		got += res > 0 ? (size_t)res : 0;
	}
	return (long)got + (read((int)s->id, &more, 1) > 0);
}

static int
judge_file(int fd, mode_t open_to, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(err, -errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "is no regular file");
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(err, -EPERM, "belongs to user %u: it must be root's or our own",
		               st.st_uid);
	if (st.st_mode & open_to)
		return err_set(err, -EPERM, "others may open it (mode %04o): chmod 0600",
		               st.st_mode & 07777);
	return 0;
}

static int
from_file(const char *path, mode_t open_to, struct crypt_key **ret, struct err *err)
{
	struct source s = { read_file, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
	int res;

	if (s.id < 0)
		return err_set(err, -errno, "%s: %s", path, strerror(errno));
	res = judge_file((int)s.id, open_to, err);
	if (!res)
		res = take(&s, ret, err);
	close((int)s.id);
	return res ? err_prefix(err, res, "%s", path) : 0;
}

int
crypt_key_file(const char *path, struct crypt_key **ret, struct err *err)
{
	return from_file(path, OPEN_FILE, ret, err);
}

int
crypt_key_credential(const char *name, struct crypt_key **ret, struct err *err)
{
	const char *dir = getenv("CREDENTIALS_DIRECTORY");
	char path[512];

	if (!dir)
		return err_set(err, -ENOENT,
		               "there are no credentials: systemd sets CREDENTIALS_DIRECTORY for a "
		               "service with LoadCredential= or the like");
	if (!name[0] || strchr(name, '/') || name[0] == '.')
		return err_set(err, -EINVAL, "'%s' is no name of a credential", name);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return from_file(path, OPEN_CREDENTIAL, ret, err);
}

/* ---- the keyring ---- */

static long
find_key(const char *type, const char *description)
{
	return syscall(SYS_request_key, type, description, NULL, 0);
}

static long
read_keyring(const struct source *s, void *dst, size_t n)
{
	long res = syscall(SYS_keyctl, KEYCTL_READ, s->id, dst, n);

	return res < 0 ? -errno : res;
}

int
crypt_key_keyring(const char *description, struct crypt_key **ret, struct err *err)
{
	struct source s = { read_keyring, find_key("user", description) };
	int res;

	if (s.id >= 0)
		res = take(&s, ret, err);
	else if (find_key("logon", description) >= 0)
		res = err_set(err, -EACCES,
		              "it is of type logon, which no program can read: add it "
		              "with type user");
	else
		res = err_set(err, -errno, "%s", strerror(errno));
	return res ? err_prefix(err, res, "key '%s' of the keyring", description) : 0;
}
