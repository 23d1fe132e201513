/* POSIX AIO: aio_read and aio_write, in the C library's threads, and the three ways to learn of their completion that the
 * paper lists (Appendix I): aio_suspend, a real-time signal, a callback in a thread of its own.
 *
 * glibc carries operations out in up to 20 threads (`threads`, if it is not 0), each of which blocks in its read or write. So
 * the server stands still once so many connections are silent, or do not read: the paper calls it "not robust". */

#define _GNU_SOURCE
#include "proactor.h"
#include <aio.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define COMPLETED (SIGRTMIN + 2)
#define NEW_CONNECTIONS_NS 10000000 /* so soon aio_suspend waits for those, too */

static struct aiocb operations[FILES];     /* by descriptor */
static struct aiocb *under_way[FILES];     /* those that aio_suspend is to wait for */
static int listener, end;
static struct sigevent notification;
static sigset_t signals;

static void start(struct channel *channel)
{
    struct aiocb *operation = &operations[channel->fd];
    *operation = (struct aiocb){
        .aio_fildes = channel->fd, .aio_buf = channel->buffer + channel->completed,
        .aio_nbytes = channel->length - channel->completed, .aio_sigevent = notification};
    operation->aio_sigevent.sigev_value.sival_ptr = channel;
    if (channel->operation == READ ? aio_read(operation) : aio_write(operation))
        fail("POSIX AIO");
    __atomic_store_n(&under_way[channel->fd], operation, __ATOMIC_RELEASE);
}

static void finish(struct channel *channel)
{
    channel->error = aio_error(&operations[channel->fd]);
    ssize_t bytes = aio_return(&operations[channel->fd]);
    if (!channel->error)
        channel->completed += bytes;
    if (channel->operation == WRITE && !channel->error && channel->completed < channel->length)
        start(channel);
    else
        completed(channel);
}

static void add(struct channel *channel)
{
    if (channel->fd >= end)
        __atomic_store_n(&end, channel->fd + 1, __ATOMIC_RELEASE);
}

static void nothing(struct channel *channel) { (void)channel; }

static void *accept_all(void *unused)
{
    for (;;) {
        int fd = accept_one(listener, 0);
        if (fd >= 0)
            accepted(fd);
    }
    return unused;
}

/* The three ways. */

static void suspend(void)
{
    static const struct aiocb *waited[FILES];
    struct timespec timeout = {0, NEW_CONNECTIONS_NS};
    int count = __atomic_load_n(&end, __ATOMIC_ACQUIRE), any = 0;
    for (int fd = 0; fd < count; fd++)
        any |= (waited[fd] = __atomic_load_n(&under_way[fd], __ATOMIC_ACQUIRE)) != NULL;
    if (!any) {
        nanosleep(&timeout, NULL);
        return;
    }
    if (aio_suspend(waited, count, &timeout))
        return;
    for (int fd = 0; fd < count; fd++)
        if (waited[fd] && aio_error(waited[fd]) != EINPROGRESS) {
            under_way[fd] = NULL;
            finish(channels[fd]);
        }
}

static void wait_for_signal(void)
{
    siginfo_t info;
    if (sigwaitinfo(&signals, &info) == COMPLETED)
        finish(info.si_value.sival_ptr);
}

static void call_back(union sigval value) { finish(value.sival_ptr); }

static void sleep_on(void) { pause(); }

static const struct way {
    const char *name;
    int notify;
    void (*turn)(void);
} ways[] = {
    {"suspend", SIGEV_NONE, suspend},
    {"signal", SIGEV_SIGNAL, wait_for_signal},
    {"callback", SIGEV_THREAD, sleep_on},
}, *way;

static void turn(int may_block)
{
    (void)may_block;
    way->turn();
}

static void open_it(int fd, const char *wait, int threads)
{
    static const struct proactor proactor = {add, start, nothing};
    struct rlimit queue;
    pthread_t thread;
    for (way = ways; strcmp(way->name, wait);)
        if (++way == ways + sizeof ways / sizeof *ways)
            fail("POSIX AIO has no %s", wait);
    getrlimit(RLIMIT_SIGPENDING, &queue); /* a signal that finds no place in the queue is lost */
    queue.rlim_cur = queue.rlim_max;
    setrlimit(RLIMIT_SIGPENDING, &queue);
    sigemptyset(&signals);
    sigaddset(&signals, COMPLETED);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    notification.sigev_notify = way->notify;
    notification.sigev_signo = COMPLETED;
    if (way->notify == SIGEV_THREAD)
        notification.sigev_notify_function = call_back;
    if (threads)
        aio_init(&(struct aioinit){.aio_threads = threads, .aio_num = FILES});
    listener = fd;
    open_proactor(&proactor, 0);
    if ((errno = pthread_create(&thread, NULL, accept_all, NULL)))
        fail("cannot start a thread");
}

const struct engine posix_aio = {"posix-aio", open_it, turn};
