/* A VF's address space: what is mapped, what is refused, and how long a mapping lives. */
#include "initiator/mem.h"

#include "common/guard.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static int
memfd(uint64_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	if (seals)
		CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Adds a region and lets go of the old table. */
static int
add(struct mem_table **t, uint64_t size, bool fixed, uint64_t *addr)
{
	struct mem_table *old = *t;
	int res = mem_table_add(old, memfd(size, F_SEAL_SHRINK), 0, size, fixed, addr, t, NULL);

	if (res == 0)
		mem_table_put(old);
	return res;
}

static void
test_mem_finds_every_byte_of_every_region_and_none_outside(void)
{
	struct mem_table *t = mem_table_new();
	uint64_t addr[3];
	struct iovec iov;

	CHECK_EQ(mem_map(t, 0, 1, &iov, 1), 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(add(&t, (i + 1) * PAGE, false, &addr[i]), 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t size = (i + 1) * PAGE;

		unit_row("region %u", i);
		CHECK_EQ(mem_map(t, addr[i], size, &iov, 1), 1);
		CHECK_EQ(iov.iov_len, size);
		memset(iov.iov_base, (int)i + 1, size);
		CHECK_EQ(mem_map(t, addr[i] + size - 1, 1, &iov, 1), 1);
		CHECK_EQ(*(uint8_t *)iov.iov_base, i + 1);
		CHECK_EQ(mem_map(t, addr[i] + size - 1, 2, &iov, 1), 0);
		CHECK_EQ(mem_map(t, addr[i] + size, 1, &iov, 1), 0);
		CHECK_EQ(mem_map(t, addr[i] - 1, 1, &iov, 1), 0);
		CHECK_EQ(mem_map(t, addr[i] - 1, 2, &iov, 1), 0);
		CHECK_EQ(mem_map(t, addr[i], UINT64_MAX, &iov, 1), 0);
		CHECK_EQ(mem_map(t, addr[i] + 1, UINT64_MAX - addr[i], &iov, 1), 0);
	}
	CHECK_EQ(mem_map(t, 0, 1, &iov, 1), 0);
	CHECK_EQ(mem_map(t, UINT64_MAX, 1, &iov, 1), 0);
	mem_table_put(t);
}

static void
test_mem_crosses_regions_that_touch(void)
{
	struct mem_table *t = mem_table_new();
	uint64_t low = 0, high = 2 * PAGE, gap = 4 * PAGE;
	struct iovec iov[3];

	CHECK_EQ(add(&t, PAGE, true, &high), 0);
	CHECK_EQ(add(&t, 2 * PAGE, true, &low), 0);
	CHECK_EQ(add(&t, PAGE, true, &gap), 0);
	CHECK_EQ(mem_map(t, PAGE, 2 * PAGE, iov, 3), 2);
	CHECK_EQ(iov[0].iov_len, PAGE);
	CHECK_EQ(iov[1].iov_len, PAGE);
	CHECK_EQ(mem_map(t, PAGE, 2 * PAGE, iov, 1), 0);
	CHECK_EQ(mem_map(t, 0, 5 * PAGE, iov, 3), 0);
	mem_table_put(t);
}

static void
test_mem_refuses_what_could_hurt_with_a_sentence(void)
{
	static const struct {
		const char *name;
		uint64_t file, off, size;
		int seals, want;
	} rows[] = {
		{"not sealed", PAGE, 0, PAGE, 0, -EPERM},
		{"sealed against growing only", PAGE, 0, PAGE, F_SEAL_GROW, -EPERM},
		{"nothing", PAGE, 0, 0, F_SEAL_SHRINK, -EINVAL},
		{"half a page", PAGE, 0, PAGE / 2, F_SEAL_SHRINK, -EINVAL},
		{"odd offset", 2 * PAGE, 1, PAGE, F_SEAL_SHRINK, -EINVAL},
		{"beyond the file", PAGE, 0, 2 * PAGE, F_SEAL_SHRINK, -EINVAL},
		{"offset beyond the file", PAGE, 2 * PAGE, PAGE, F_SEAL_SHRINK, -EINVAL},
		{"size that wraps", PAGE, PAGE, 0u - (uint64_t)PAGE, F_SEAL_SHRINK, -EINVAL},
		{"sealed against writing", PAGE, 0, PAGE, F_SEAL_SHRINK | F_SEAL_WRITE, -EPERM},
	};
	struct mem_table *t = mem_table_new(), *more = NULL;
	struct err err;
	uint64_t addr = 0;
	int fds[2];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unit_row("%s", rows[i].name);
		err = (struct err){0};
		CHECK_EQ(mem_table_add(t, memfd(rows[i].file, rows[i].seals), rows[i].off,
				       rows[i].size, false, &addr, &more, &err),
			 rows[i].want);
		CHECK(err.text[0] != 0);
		CHECK(more == NULL);
	}
	unit_row("pipe");
	CHECK_EQ(pipe(fds), 0);
	CHECK_EQ(mem_table_add(t, fds[0], 0, PAGE, false, &addr, &more, &err), -EINVAL);
	close(fds[1]);
	mem_table_put(t);
}

static void
test_mem_refuses_overlaps_and_too_many_regions(void)
{
	static const struct {
		uint64_t addr, pages;
		int want;
	} rows[] = {
		{3 * PAGE, 1, -EEXIST},
		{2 * PAGE, 2, -EEXIST},
		{4 * PAGE, 1, -EEXIST},
		{2 * PAGE, 9, -EEXIST},
		{0u - (uint64_t)PAGE, 2, -EINVAL},
		{2 * PAGE, 1, 0},
		{5 * PAGE, 1, 0},
	};
	struct mem_table *t = mem_table_new();
	uint64_t addr = 3 * PAGE;

	CHECK_EQ(add(&t, 2 * PAGE, true, &addr), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unit_row("row %zu", i);
		addr = rows[i].addr;
		CHECK_EQ(add(&t, rows[i].pages * PAGE, true, &addr), rows[i].want);
	}
	for (unsigned i = 3; i < MEM_REGIONS_MAX; i++)
		CHECK_EQ(add(&t, PAGE, false, &addr), 0);
	CHECK_EQ(add(&t, PAGE, false, &addr), -ENOSPC);
	mem_table_put(t);
}

/* Looked up, not touched: valgrind would complain of the touch. */
static bool
is_mapped(const void *p)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	bool found = false;

	while (f && !found && fscanf(f, "%lx-%lx%*[^\n]", &from, &to) == 2)
		found = (unsigned long)p >= from && (unsigned long)p < to;
	if (f)
		fclose(f);
	return found;
}

static void
test_mem_a_region_lives_as_long_as_any_table_that_has_it(void)
{
	struct mem_table *empty = mem_table_new(), *with = NULL, *without = NULL;
	uint64_t addr = 0, again = 0;
	struct iovec iov;

	CHECK_EQ(mem_table_add(empty, memfd(PAGE, F_SEAL_SHRINK), 0, PAGE, false, &addr, &with,
			       NULL),
		 0);
	CHECK_EQ(mem_map(with, addr, PAGE, &iov, 1), 1);
	CHECK_EQ(mem_table_del(with, addr + 1, &without, NULL), -ENOENT);
	CHECK_EQ(mem_table_del(with, addr, &without, NULL), 0);
	mem_table_get(with);
	mem_table_put(with);
	CHECK_EQ(mem_map(without, addr, 1, &iov, 1), 0);
	CHECK_EQ(mem_map(with, addr, PAGE, &iov, 1), 1);
	memset(iov.iov_base, 1, PAGE); /* still mapped: an I/O holds the old table */
	CHECK(is_mapped(iov.iov_base));
	mem_table_put(with);
	CHECK(!is_mapped(iov.iov_base)); /* and now it is not */
	/* An address is not given out twice: late commands of a client must not hit what came
	 * after. */
	CHECK_EQ(add(&without, PAGE, false, &again), 0);
	CHECK(again != addr);
	mem_table_put(without);
	mem_table_put(empty);
}

static int
add_guarded(struct mem_table **t, int fd, uint64_t off, uint64_t size, uint64_t addr)
{
	struct mem_table *old = *t;
	int res = mem_table_add_guarded(old, fd, off, size, addr, t, NULL);

	if (res == 0)
		mem_table_put(old);
	return res;
}

static void
test_mem_of_a_vm_need_not_be_sealed_nor_begin_at_a_page(void)
{
	struct mem_table *t = mem_table_new();
	struct iovec iov;
	int fd = memfd(4 * PAGE, 0), fds[2];
	char c = 'x';

	CHECK_EQ(pwrite(fd, &c, 1, PAGE + 16), 1);
	CHECK_EQ(add_guarded(&t, dup(fd), PAGE + 16, 2 * PAGE, 0), 0);
	CHECK_EQ(mem_map(t, 0, 2 * PAGE, &iov, 1), 1);
	CHECK_EQ(*(char *)iov.iov_base, 'x');
	CHECK_EQ(add_guarded(&t, dup(fd), PAGE, 4 * PAGE, 16 * PAGE), -EINVAL);
	CHECK_EQ(add_guarded(&t, dup(fd), 0, PAGE, 2 * PAGE - 1), -EEXIST);
	CHECK_EQ(pipe(fds), 0);
	CHECK_EQ(add_guarded(&t, fds[0], 0, PAGE, 16 * PAGE), -EINVAL);
	CHECK(!mem_table_spoiled(t));
	close(fds[1]);
	close(fd);
	mem_table_put(t);
}

static void
test_mem_that_is_taken_away_is_spoiled_and_reads_as_zeroes(void)
{
	struct mem_table *t = mem_table_new(), *other = mem_table_new();
	int fd = memfd(4 * PAGE, 0), kept = memfd(PAGE, 0);
	struct iovec iov, safe;
	uint8_t *p;

	CHECK_EQ(add_guarded(&t, dup(fd), 0, 4 * PAGE, 0), 0);
	CHECK_EQ(add_guarded(&other, dup(kept), 0, PAGE, 0), 0);
	CHECK_EQ(mem_map(t, 0, 4 * PAGE, &iov, 1), 1);
	CHECK_EQ(mem_map(other, 0, PAGE, &safe, 1), 1);
	p = iov.iov_base;
	memset(p, 1, iov.iov_len);
	memset(safe.iov_base, 2, PAGE);
	CHECK(!guard_touch(&iov, 1));
	CHECK_EQ(ftruncate(fd, PAGE), 0);
	CHECK(guard_touch(&iov, 1)); /* what a call would have been refused is there again */
	CHECK(mem_table_spoiled(t));
	CHECK_EQ(p[3 * PAGE], 0);
	p[3 * PAGE] = 3;
	CHECK_EQ(p[3 * PAGE], 3);
	CHECK(!guard_touch(&iov, 1));
	CHECK(!mem_table_spoiled(other));
	CHECK_EQ(*(uint8_t *)safe.iov_base, 2);
	close(fd);
	close(kept);
	mem_table_put(t);
	mem_table_put(other);
}

/* In a child: what is not ours must end it as ever. */
static void
test_mem_elsewhere_keeps_the_default_action(void)
{
	int fd = memfd(PAGE, 0), status = 0;
	volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	struct mem_table *t = mem_table_new();
	pid_t pid;

	CHECK_EQ(add_guarded(&t, memfd(PAGE, 0), 0, PAGE, 0), 0);
	CHECK_EQ(ftruncate(fd, 0), 0);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, 2); /* a sanitizer has much to say */
		_exit(*p ? 1 : 0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(!WIFEXITED(status) || WEXITSTATUS(status) > 1);
	munmap((void *)(uintptr_t)p, PAGE);
	close(fd);
	mem_table_put(t);
}

static const struct unit_test tests[] = {
	UNIT_TEST(test_mem_of_a_vm_need_not_be_sealed_nor_begin_at_a_page),
	UNIT_TEST(test_mem_that_is_taken_away_is_spoiled_and_reads_as_zeroes),
	UNIT_TEST(test_mem_elsewhere_keeps_the_default_action),
	UNIT_TEST(test_mem_finds_every_byte_of_every_region_and_none_outside),
	UNIT_TEST(test_mem_crosses_regions_that_touch),
	UNIT_TEST(test_mem_refuses_what_could_hurt_with_a_sentence),
	UNIT_TEST(test_mem_refuses_overlaps_and_too_many_regions),
	UNIT_TEST(test_mem_a_region_lives_as_long_as_any_table_that_has_it),
};

int
main(int argc, char **argv)
{
	return unit_main(argc, argv, tests, ARRAY_SIZE(tests));
}
