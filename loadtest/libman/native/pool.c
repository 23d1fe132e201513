/* Calls handlers in a pool of threads ("executed on a thread pool space provided by TProactor").
 *
 * The engine stays in its one thread: what handlers start in others is handed over, and a byte on a socket of the pool's own
 * ends the engine's wait. */

#define _GNU_SOURCE
#include "proactor.h"
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER;
static struct list to_call, handed_over;
static int is_awake; /* the engine is, or a byte is on its way to it */
static int wakeup[2];
static char bytes[64];
static struct channel *waker;
static __thread int in_pool;

static void *call_handlers(void *unused)
{
    in_pool = 1;
    for (;;) {
        struct channel *channel;
        pthread_mutex_lock(&lock);
        while (!(channel = take(&to_call)))
            pthread_cond_wait(&not_empty, &lock);
        pthread_mutex_unlock(&lock);
        call_handler(channel);
    }
    return unused;
}

int is_in_pool(void) { return in_pool; }

void call_in_pool(struct channel *channel)
{
    if (channel == waker) {
        call_handler(channel);
        return;
    }
    pthread_mutex_lock(&lock);
    append(&to_call, channel);
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&lock);
}

void hand_over(struct channel *channel)
{
    pthread_mutex_lock(&lock);
    append(&handed_over, channel);
    int must_wake = !is_awake;
    is_awake = 1;
    pthread_mutex_unlock(&lock);
    if (must_wake && write(wakeup[1], "x", 1) < 0)
        fail("the engine cannot be woken");
}

/* Called by the engine's thread before it waits; it must not block if there was something. */
int do_handed_over(void)
{
    struct channel *channel;
    pthread_mutex_lock(&lock);
    struct list now = handed_over;
    handed_over.first = NULL;
    is_awake = now.first != NULL;
    pthread_mutex_unlock(&lock);
    int was_something = now.first != NULL;
    while ((channel = take(&now)))
        do_operation(channel);
    return was_something;
}

static void read_again(struct channel *channel) { start_read(channel, bytes, sizeof bytes); }

void open_pool(int threads)
{
    static const struct handler handler = {read_again, read_again};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wakeup))
        fail("no socket to wake the engine");
    waker = add_channel(wakeup[0], &handler);
    read_again(waker);
    for (pthread_t thread; threads > 0; threads--)
        if ((errno = pthread_create(&thread, NULL, call_handlers, NULL)))
            fail("cannot start a thread");
}
