/* What all proactors share: channels, and the way from a handler to the engine and back. */

#include "proactor.h"
#include "echo.h"
#include <stdlib.h>
#include <unistd.h>

struct channel *channels[FILES];

static const struct proactor *proactor;
static int has_pool;

void open_proactor(const struct proactor *engine, int threads)
{
    proactor = engine;
    has_pool = threads > 0;
    if (has_pool)
        open_pool(threads);
}

struct channel *add_channel(int fd, const struct handler *handler)
{
    if (!channels[fd])
        channels[fd] = calloc(1, sizeof *channels[fd]);
    channels[fd]->fd = fd;
    channels[fd]->handler = handler;
    proactor->add(channels[fd]);
    return channels[fd];
}

void accepted(int fd) { start_echo(add_channel(fd, &echo)); }

/* From handlers. */

static void start(struct channel *channel, int operation)
{
    channel->operation = operation;
    if (has_pool && is_in_pool())
        hand_over(channel);
    else
        do_operation(channel);
}

static void start_with(struct channel *channel, int operation, char *buffer, size_t length)
{
    channel->buffer = buffer;
    channel->length = length;
    channel->completed = 0;
    channel->error = 0;
    start(channel, operation);
}

void start_read(struct channel *channel, char *buffer, size_t length) { start_with(channel, READ, buffer, length); }

void start_write(struct channel *channel, char *buffer, size_t length) { start_with(channel, WRITE, buffer, length); }

void close_channel(struct channel *channel) { start(channel, CLOSE); }

void do_operation(struct channel *channel)
{
    if (channel->operation != CLOSE) {
        proactor->start(channel);
        return;
    }
    proactor->remove(channel);
    close(channel->fd);
}

/* To handlers. */

void completed(struct channel *channel)
{
    if (has_pool)
        call_in_pool(channel);
    else
        call_handler(channel);
}

void call_handler(struct channel *channel)
{
    if (channel->operation == READ)
        channel->handler->read_completed(channel);
    else
        channel->handler->write_completed(channel);
}
