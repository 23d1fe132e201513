/* The paper's example, for any proactor: what has been read is written, and when it is written the next is read. */

#include "echo.h"
#include <stdlib.h>

void start_echo(struct channel *channel)
{
    start_read(channel, channel->buffer ? channel->buffer : malloc(buffer_bytes), buffer_bytes);
}

static void read_completed(struct channel *channel)
{
    if (channel->error || channel->completed == 0)
        close_channel(channel);
    else
        start_write(channel, channel->buffer, channel->completed);
}

static void write_completed(struct channel *channel)
{
    if (channel->error)
        close_channel(channel);
    else
        start_read(channel, channel->buffer, buffer_bytes);
}

const struct handler echo = {read_completed, write_completed};
