/* The emulated proactor: it waits like a reactor, but reads and writes itself ("Proposed solution").
 *
 * The paper's steps: wait for an event (1), read into the handler's buffer (2), dispatch "read completed" (3) to the handler,
 * which processes (4). What Appendix II warns of is settled here, and no handler sees it:
 *
 * - Edge-triggered: a socket whose input was not read to the end is not reported again. So a new read is tried without
 *   waiting, and only one that finds nothing waits for an event.
 * - Level-triggered: an event would be dispatched twice if its socket were still watched while its handler runs. A socket
 *   that is ready when nothing waits for that is not watched any longer.
 *
 * What a handler starts is tried right after it returns, as a reactor's handler would do it. After BURST operations it is the
 * next event's turn. */

#define _GNU_SOURCE
#include "proactor.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define BURST 64

enum { WITH_HANDLER, STARTED, WAITING }; /* a channel's state: with its handler, in the list, for an event */

static const struct wait_strategy *wait_strategy;
static int listener;
static struct list started; /* what can be tried at once */

static void watch(struct channel *channel, int events)
{
    if (channel->watched != events)
        wait_strategy->watch(channel->fd, channel->watched = events);
}

static void add(struct channel *channel)
{
    channel->state = WITH_HANDLER;
    if (wait_strategy->is_edge_triggered)
        watch(channel, READ | WRITE);
}

static void remove_it(struct channel *channel) { watch(channel, 0); }

static void try_later(struct channel *channel)
{
    channel->state = STARTED;
    append(&started, channel);
}

static void wait_for_event(struct channel *channel)
{
    channel->state = WAITING;
    if (!wait_strategy->is_edge_triggered)
        watch(channel, channel->operation);
}

static void start(struct channel *channel)
{
    if (channel->operation == WRITE || wait_strategy->is_edge_triggered)
        try_later(channel);
    else
        wait_for_event(channel);
}

static void carry_out(struct channel *channel)
{
    int is_write = channel->operation == WRITE;
    char *from = channel->buffer + channel->completed;
    size_t length = channel->length - channel->completed;
    ssize_t bytes = is_write ? send(channel->fd, from, length, 0) : recv(channel->fd, from, length, 0);
    if (bytes < 0 && errno == EAGAIN) {
        wait_for_event(channel);
        return;
    }
    if (bytes < 0)
        channel->error = errno;
    else
        channel->completed += bytes;
    if (is_write && !channel->error && channel->completed < channel->length)
        try_later(channel);
    else {
        channel->state = WITH_HANDLER;
        completed(channel);
    }
}

static void ready(int fd, int events)
{
    struct channel *channel = channels[fd];
    if (fd == listener) {
        while ((fd = accept_one(listener, SOCK_NONBLOCK)) >= 0)
            accepted(fd);
    } else if (channel->state == WAITING && events & channel->operation)
        carry_out(channel);
    else if (channel->state == WITH_HANDLER && !wait_strategy->is_edge_triggered)
        watch(channel, 0);
    for (int i = 0; i < BURST && (channel = take(&started)); i++)
        carry_out(channel);
}

static void turn(int may_block)
{
    struct channel *channel;
    struct list now = started;
    started.first = NULL;
    while ((channel = take(&now)))
        carry_out(channel);
    wait_strategy->wait(may_block && !started.first, ready);
}

static void open_it(int fd, const char *wait, int threads)
{
    static const struct proactor proactor = {add, start, remove_it};
    wait_strategy = strategy(wait);
    listener = fd;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    wait_strategy->watch(listener, READ);
    open_proactor(&proactor, threads);
}

const struct engine emulated = {"emulated", open_it, turn};
