/* See signals.h. */
#include "common/signals.h"

#include "common/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void
stop(struct signals *s)
{
	if (s->stopping)
		_exit(1);
	s->stopping = true;
	log_info("stopping");
	s->stop();
}

static void
signals_ready(struct op *op, int res, uint32_t flags)
{
	struct signals *s = container_of(op, struct signals, op);
	struct signalfd_siginfo si;

	(void)flags;
	if (res < 0)
		return;
	while (read(s->fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGHUP)
			s->reload();
		else if (si.ssi_signo == SIGUSR2)
			s->upgrade();
		else
			stop(s);
	}
	signals_start(s, s->ring);
}

void
signals_start(struct signals *s, struct ring *ring)
{
	s->ring = ring;
	s->op = (struct op){ signals_ready, "signals" };
	ring_poll(ring, &s->op, s->fd, POLLIN);
}

int
signals_block(struct signals *s, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (s->upgrade)
		sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return s->fd < 0 ? err_set(err, -errno, "signalfd: %s", strerror(errno)) : 0;
}

void
signals_end(struct signals *s)
{
	if (s->ring)
		ring_cancel(s->ring, &s->op);
}

void
signals_close(struct signals *s)
{
	close(s->fd);
}

void
raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur == rl.rlim_max)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}
