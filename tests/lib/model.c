/* See model.h. What can fail is the system: the test is aborted then. */
#include "tests/lib/model.h"

#include "common/log.h"
#include "tests/lib/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NR_REACTORS = 2, TURNS = 8 };

static void
nothing(struct ring_timer *t)
{
	(void)t;
}

void
model_start(struct target *t)
{
	const struct ring_config cfg = {
		.entries = 64, .max_bufs = 4, .name = "test"};
	struct err err = { 0 };

	log_level = LOG_LVL_ERROR;
	memset(t, 0, sizeof(*t));
	CHECK_EQ(target_model_init(t, &err), 0);
	t->reactors = calloc(NR_REACTORS, sizeof(*t->reactors));
	t->nr_reactors = NR_REACTORS;
	t->limits = (struct limits){ .reactors = NR_REACTORS, .connections = 0 };
	for (unsigned i = 0; i < NR_REACTORS; i++) {
		t->reactors[i].id = i;
		t->reactors[i].target = t;
		list_init(&t->reactors[i].conns);
		list_init(&t->reactors[i].dirty);
		limit_init(&t->reactors[i]);
		if (!CHECK_EQ(ring_new(&cfg, &t->reactors[i].ring, &err), 0))
			abort();
	}
}

void
model_settle(struct target *t)
{
	for (unsigned n = 0; n < TURNS; n++)
		for (unsigned i = 0; i < NR_REACTORS; i++) {
			struct ring *r = t->reactors[i].ring;
			struct ring_timer soon;

			/* A turn waits for something to happen: let that be a millisecond. */
			ring_timer_init(&soon, nothing);
			ring_timer_set(r, &soon, ring_now(r) + 1000000);
			ring_turn(r);
			ring_timer_del(&soon);
		}
}

void
model_stop(struct target *t)
{
	struct subsys *s;

	while (!list_empty(&t->ports))
		port_remove(&t->reactors[0], list_entry(t->ports.next, struct port, node));
	while (!list_empty(&t->subsystems)) {
		s = list_entry(t->subsystems.next, struct subsys, node);
		subsys_remove(&t->reactors[0], s);
	}
	model_settle(t);
	for (unsigned i = 0; i < NR_REACTORS; i++)
		ring_free(t->reactors[i].ring);
	target_model_fini(t);
	free(t->reactors);
}

int
model_apply(struct target *t, const char *json, struct err *err)
{
	struct config *c;
	int ret = config_parse(json, "test.json", &c, err);

	if (ret)
		return ret;
	target_lock(t);
	ret = config_apply(t, c, err);
	target_unlock(t);
	config_free(c);
	return ret;
}

static char dir[256];

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

static void
remove_dir(void)
{
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *
model_path(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	if (!*dir) {
		const char *tmp = getenv("TMPDIR");

		snprintf(dir, sizeof(dir), "%s/sluice-model-XXXXXX", tmp ? tmp : "/tmp");
		if (!mkdtemp(dir))
			abort();
		atexit(remove_dir);
	}
	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

const char *
model_file(const char *name, uint64_t size)
{
	const char *path = model_path(name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)size))
		abort();
	close(fd);
	return path;
}
