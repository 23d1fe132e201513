/* Linux's real-time signals, its way to report edges before it had epoll: the kernel queues a signal for each change.
 *
 * The queue is bounded (RLIMIT_SIGPENDING). When it is full, SIGIO is sent instead, and any socket may be ready. */

#define _GNU_SOURCE
#include "server.h"
#include "wait.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define READY (SIGRTMIN + 1)
#define EVENTS 256 /* taken at a time */

static sigset_t signals;
static char is_watched[FILES];
static int end;

static void open_it(void)
{
    sigemptyset(&signals);
    sigaddset(&signals, READY);
    sigaddset(&signals, SIGIO);
    sigprocmask(SIG_BLOCK, &signals, NULL);
}

static void watch(int fd, int events)
{
    is_watched[fd] = events != 0;
    if (fd >= end)
        end = fd + 1;
    int flags = fcntl(fd, F_GETFL);
    if (fcntl(fd, F_SETOWN, getpid()) || fcntl(fd, F_SETSIG, READY) ||
        fcntl(fd, F_SETFL, events ? flags | O_ASYNC : flags & ~O_ASYNC))
        fail("no signals for descriptor %d", fd);
}

static void wait_for(int may_block, void (*ready)(int fd, int events))
{
    struct timespec none = {0};
    siginfo_t info;
    int number = may_block ? sigwaitinfo(&signals, &info) : sigtimedwait(&signals, &info, &none);
    for (int i = 0; number > 0 && i < EVENTS; i++) {
        if (number == READY)
            ready(info.si_fd, readiness(info.si_band & (POLLIN | POLLOUT | POLLERR | POLLHUP)));
        else
            for (int fd = 0; fd < end; fd++)
                if (is_watched[fd])
                    ready(fd, READ | WRITE);
        number = sigtimedwait(&signals, &info, &none);
    }
}

const struct wait_strategy wait_signals = {"rt-signals", 1, open_it, watch, wait_for};
