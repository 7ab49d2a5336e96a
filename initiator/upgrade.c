/* Replacing the program; see upgrade.h.
 *
 * It is exec, in the same process: the number of the process stays, for whoever watches over it.
 * What it leaves is JSON in a memfd, whose number is in the environment.
 *
 * What can fail: see there. When exec fails at the end, the process ends too: VMMs keep what was in
 * flight, and connect to the one that is started next.
 */
#include "initiator/upgrade.h"

#include "common/conf.h"
#include "common/conf_write.h"
#include "common/log.h"
#include "initiator/front_vhost.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HERITAGE "SLUICE_HERITAGE" /* the variable */
#define HAND_NS  2000000000ull

extern char **environ;

static char **program;
static unsigned turns; /* of the loop since it began to hand over */

enum { TURNS_MIN = 3 /* so that the answer to sluicectl has left */ };

/* the new one */

static char *
read_all(int fd)
{
	struct stat st;
	char *text;

	if (fstat(fd, &st) < 0 || !(text = calloc(1, (size_t)st.st_size + 1)))
		return NULL;
	if (pread(fd, text, (size_t)st.st_size, 0) == st.st_size)
		return text;
	free(text);
	return NULL;
}

void
upgrade_inherit(struct initiator *in, char **argv)
{
	const char *var = getenv(HERITAGE);
	struct err err = { 0 };
	char *text;
	int fd;

	program = argv;
	if (!var)
		return;
	fd = (int)strtol(var, NULL, 10);
	unsetenv(HERITAGE);
	text = read_all(fd);
	in->heritage = text ? conf_parse(text, "heritage", &err) : NULL;
	if (!in->heritage)
		log_error("what the program before left cannot be read: %s", err.text);
	free(text);
	close(fd);
}

/* the old one */

static int
judge_program(const struct initiator *in, struct err *err)
{
	char *argv[] = { program[0], "--check", "-c", in->config_path, NULL };
	int status = 0, res;
	pid_t pid;

	res = posix_spawnp(&pid, program[0], NULL, NULL, argv, environ);
	if (res)
		return err_set(err, -res, "%s: %s", program[0], strerror(res));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return err_set(err, -EINVAL, "%s does not take %s, its log says why", program[0],
	               in->config_path);
}

int
upgrade_begin(struct initiator *in, struct err *err)
{
	int res;

	if (in->stopping)
		return err_set(err, -ESHUTDOWN, "the initiator stops");
	res = judge_program(in, err);
	ring_look_at_clock(in->reactors[0].ring); /* what follows has times of its own */
	if (res < 0)
		return res;
	log_info("upgrade: %s takes over", program[0]);
	in->stopping = in->upgrading = true;
	ring_stop(in->reactors[0].ring);
	return 0;
}

static bool
handing(void *arg)
{
	return turns++ < TURNS_MIN || front_vhost_handing(arg);
}

static int
leave_state(struct initiator *in)
{
	int fd = memfd_create("sluice-heritage", 0);
	struct conf_writer w;
	char number[16], *text;
	size_t len;

	/* Of what we have, only that lives on which is named. */
	syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
	conf_writer_init(&w, false);
	conf_begin_object(&w, NULL);
	front_vhost_put_state(&w, in);
	conf_end(&w);
	text = conf_writer_take(&w);
	len = text ? strlen(text) : 0;
	if (fd < 0 || !text || write(fd, text, len) != (ssize_t)len) {
		free(text);
		return -ENOMEM;
	}
	free(text);
	fcntl(fd, F_SETFD, 0);
	snprintf(number, sizeof(number), "%d", fd);
	return setenv(HERITAGE, number, 1) < 0 ? -errno : 0;
}

void
upgrade_exec(struct initiator *in)
{
	front_vhost_hand_over(in);
	crew_turn_while(&in->crew, handing, in, HAND_NS);
	if (leave_state(in) == 0)
		execvp(program[0], program);
	log_error("upgrade: %s: %s", program[0], strerror(errno));
}
