/* Keys: which are taken from where, and that they are nowhere that a core dump would show.
 */
#include "initiator/crypt_key.h"
#include "initiator/hidden.h"
#include "initiator/stage_crypt.h"

#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char dir[64], path[128];

static void
dir_make(void)
{
	snprintf(dir, sizeof(dir), "%s/sluice-key-XXXXXX",
	         strlen(getenv("TMPDIR") ?: "/tmp") < 30 ? getenv("TMPDIR") ?: "/tmp" : "/tmp");
	if (!mkdtemp(dir))
		exit(1);
	snprintf(path, sizeof(path), "%s/key", dir);
}

static void
dir_remove(void)
{
	unlink(path);
	rmdir(dir);
}

static void
write_file(const void *bytes, size_t n, mode_t mode)
{
	int fd;

	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
	CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && fchmod(fd, mode) == 0);
	close(fd);
}

static void
count_up(uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(i * 7);
}

static void
test_a_key_file_is_taken_when_it_is_a_key_and_nobody_elses(void)
{
	static const struct {
		size_t n;
		mode_t mode;
		int want;
		const char *says;
	} rows[] = {
		{ 32, 0600, 0, "" },
		{ 64, 0600, 0, "" },
		{ 64, 0400, 0, "" },
		{ 64, 0640, -EPERM, "mode 0640" },
		{ 64, 0604, -EPERM, "others may open it" },
		{ 0, 0600, -EINVAL, "not 0" },
		{ 31, 0600, -EINVAL, "32 bytes for AES-128-XTS or 64 for AES-256-XTS, not 31" },
		{ 33, 0600, -EINVAL, "not 33" },
		{ 48, 0600, -EINVAL, "not 48" },
		{ 65, 0600, -EINVAL, "not 65 or more" },
		{ 200, 0600, -EINVAL, "not 65 or more" },
	};
	uint8_t bytes[200];

	dir_make();
	count_up(bytes, sizeof(bytes));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct crypt_key *k = NULL;
		struct err err = { 0 };

		unit_row("%zu bytes, mode %04o", rows[i].n, rows[i].mode);
		write_file(bytes, rows[i].n, rows[i].mode);
		CHECK_EQ(crypt_key_file(path, &k, &err), rows[i].want);
		CHECK(strstr(err.text, rows[i].says) != NULL);
		if (rows[i].want) {
			CHECK(strstr(err.text, path) != NULL);
			continue;
		}
		CHECK_EQ(k->len, rows[i].n);
		CHECK_MEM(k->bytes, bytes, k->len);
		crypt_key_put(k);
	}
	dir_remove();
}

static void
test_a_key_of_equal_halves_or_that_is_no_file_is_refused(void)
{
	struct crypt_key *k = NULL;
	uint8_t bytes[64];
	struct err err = { 0 };

	dir_make();
	count_up(bytes, 32);
	memcpy(bytes + 32, bytes, 32);
	write_file(bytes, 64, 0600);
	CHECK_EQ(crypt_key_file(path, &k, &err), -EINVAL);
	CHECK(strstr(err.text, "halves") != NULL);
	CHECK_EQ(crypt_key_file(dir, &k, &err), -EINVAL);
	CHECK(strstr(err.text, "no regular file") != NULL);
	unlink(path);
	CHECK_EQ(crypt_key_file(path, &k, &err), -ENOENT);
	dir_remove();
}

static void
test_a_key_of_another_user_is_refused(void)
{
	struct crypt_key *k = NULL;
	uint8_t bytes[32];
	struct err err = { 0 };

	dir_make();
	count_up(bytes, sizeof(bytes));
	write_file(bytes, sizeof(bytes), 0600);
	if (geteuid() == 0) { /* who else can give a file away? */
		CHECK_EQ(chown(path, 12345, 12345), 0);
		CHECK_EQ(crypt_key_file(path, &k, &err), -EPERM);
		CHECK(strstr(err.text, "belongs to user 12345") != NULL);
	}
	dir_remove();
}

static void
test_a_credential_is_a_file_in_the_directory_that_systemd_names(void)
{
	struct crypt_key *k = NULL;
	uint8_t bytes[64];
	struct err err = { 0 };

	dir_make();
	count_up(bytes, sizeof(bytes));
	write_file(bytes, sizeof(bytes), 0440);
	unsetenv("CREDENTIALS_DIRECTORY");
	CHECK_EQ(crypt_key_credential("key", &k, &err), -ENOENT);
	CHECK(strstr(err.text, "LoadCredential") != NULL);
	setenv("CREDENTIALS_DIRECTORY", dir, 1);
	CHECK_EQ(crypt_key_credential("../key", &k, &err), -EINVAL);
	CHECK_EQ(crypt_key_credential("", &k, &err), -EINVAL);
	if (CHECK_EQ(crypt_key_credential("key", &k, &err), 0))
		CHECK_MEM(k->bytes, bytes, sizeof(bytes));
	crypt_key_put(k);
	unsetenv("CREDENTIALS_DIRECTORY");
	dir_remove();
}

static long
add_key(const char *type, const char *description, const void *bytes, size_t n)
{
	return syscall(SYS_add_key, type, description, bytes, n, KEY_SPEC_PROCESS_KEYRING);
}

static void
test_a_key_of_the_keyring_is_found_by_its_description(void)
{
	struct crypt_key *k = NULL;
	uint8_t bytes[64], large[300] = { 1 };
	struct err err = { 0 };

	count_up(bytes, sizeof(bytes));
	if (add_key("user", "sluice:vol0", bytes, sizeof(bytes)) < 0) {
		printf("# no keyring here: %s\n", strerror(errno));
		CHECK(crypt_key_keyring("sluice:vol0", &k, &err) < 0);
		return;
	}
	if (CHECK_EQ(crypt_key_keyring("sluice:vol0", &k, &err), 0))
		CHECK_MEM(k->bytes, bytes, sizeof(bytes));
	crypt_key_put(k);
	CHECK(crypt_key_keyring("sluice:vol1", &k, &err) < 0);
	CHECK(strstr(err.text, "key 'sluice:vol1' of the keyring") != NULL);
	CHECK(add_key("user", "sluice:long", large, sizeof(large)) >= 0);
	CHECK_EQ(crypt_key_keyring("sluice:long", &k, &err), -EINVAL);
	if (add_key("logon", "sluice:secret", bytes, sizeof(bytes)) >= 0) {
		CHECK_EQ(crypt_key_keyring("sluice:secret", &k, &err), -EACCES);
		CHECK(strstr(err.text, "type logon") != NULL);
	}
}

/* Whether [from, to) has the n bytes at needle: read as another process would, for sanitizers do
 * not let us walk over what lies between variables. The copy is in hidden memory, or it would be
 * found. */
static bool
region_holds(int mem, unsigned long from, unsigned long to, const void *needle, size_t n)
{
	enum { STEP = 1 << 20 };
	uint8_t *copy = hidden_pages(STEP + 64);
	bool found = false;

	for (unsigned long at = from; at < to && !found; at += STEP) {
		ssize_t got = pread(mem, copy, MIN(to - at, (unsigned long)STEP + 64), (off_t)at);

		found = got > 0 && memmem(copy, (size_t)got, needle, n) != NULL;
	}
	hidden_pages_free(copy, STEP + 64);
	return found;
}

/* Memory that a core dump would hold, and that has the n bytes at needle. */
static unsigned
shown(const void *needle, size_t n)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	int mem = open("/proc/self/mem", O_RDONLY);
	unsigned found = 0;
	unsigned long from = 0, to = 0, a, b;
	char line[512], mode[8];

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %7s", &a, &b, mode) == 3 && strchr("r-", mode[0])) {
			from = mode[0] == 'r' && mode[1] == 'w' ? a : 0;
			to = b;
		} else if (!strncmp(line, "VmFlags:", 8) && from && !strstr(line, " dd")) {
			found += region_holds(mem, from, to, needle, n);
		}
	}
	fclose(f);
	close(mem);
	return found;
}

static void
test_no_core_dump_holds_a_key_nor_what_libcrypto_makes_of_it(void)
{
	struct stage_config cfg = { .kind = STAGE_ENCRYPT, .staging = 1 << 20 };
	uint8_t *bytes = hidden_pages(64), data[512] = { 0 };
	struct stage *s = NULL;
	struct err err = { 0 };

	dir_make();
	CHECK_EQ(getrandom(bytes, 64, 0), 64);
	write_file(bytes, 64, 0600);
	CHECK_EQ(crypt_key_file(path, &cfg.crypt.key, &err), 0);
	CHECK_EQ(stage_new(&cfg, 2, 4096, &s, &err), 0);
	crypt_unit(s, true, data, sizeof(data), 1);
	CHECK_EQ(shown(bytes, 32), 0);
	CHECK_EQ(shown(bytes + 32, 32), 0);
	memcpy(data, bytes, 32); /* so would it be found */
	CHECK_EQ(shown(bytes, 32), 1);
	stage_free(s);
	stage_config_fini(&cfg);
	hidden_pages_free(bytes, 64);
	dir_remove();
}

static void
test_hidden_memory_keeps_its_bytes_when_it_grows_and_forgets_them_when_freed(void)
{
	static const size_t sizes[] = { 1, 16, 17, 1000, 100000, 131056, 131057, 1 << 20 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t n = sizes[i];
		uint8_t *p, *q;

		unit_row("%zu bytes", n);
		p = hidden_malloc(n);
		CHECK(p != NULL && (uintptr_t)p % 16 == 0);
		memset(p, 'k', n);
		q = hidden_realloc(p, 2 * n);
		CHECK(q[0] == 'k' && q[n - 1] == 'k');
		memset(q, 'k', 2 * n);
		hidden_free(q);
		q = hidden_malloc(2 * n);
		CHECK(q[2 * n - 1] != 'k' && q[0] != 'k');
		hidden_free(q);
	}
	hidden_free(NULL);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_no_core_dump_holds_a_key_nor_what_libcrypto_makes_of_it),
	UNIT_TEST(test_a_key_file_is_taken_when_it_is_a_key_and_nobody_elses),
	UNIT_TEST(test_a_key_of_equal_halves_or_that_is_no_file_is_refused),
	UNIT_TEST(test_a_key_of_another_user_is_refused),
	UNIT_TEST(test_a_credential_is_a_file_in_the_directory_that_systemd_names),
	UNIT_TEST(test_a_key_of_the_keyring_is_found_by_its_description),
	UNIT_TEST(test_hidden_memory_keeps_its_bytes_when_it_grows_and_forgets_them_when_freed),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
