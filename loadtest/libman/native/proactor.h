/* The proactor's interface, as in the paper's example: a handler starts a read or a write with a buffer of its own, and is
 * called when that is completed. It has one operation under way at a time, as an echo server does. */

#pragma once

#include "server.h"

enum { CLOSE = 0 }; /* beside READ and WRITE */

struct channel {
    const struct handler *handler;
    int fd;
    int operation;            /* READ or WRITE: what is under way, or was completed; or CLOSE */
    char *buffer;
    size_t length, completed; /* bytes; a write is completed as a whole; a read of 0: the peer has sent its last byte */
    int error;                /* why it failed; 0: it did not */
    int state, watched;       /* the emulated proactor's */
    struct channel *next;     /* in the list that it is in */
};

/* What the developer writes. */
struct handler {
    void (*read_completed)(struct channel *);
    void (*write_completed)(struct channel *);
};

void start_read(struct channel *channel, char *buffer, size_t length);
void start_write(struct channel *channel, char *buffer, size_t length);
void close_channel(struct channel *channel); /* nothing must be under way */

/* What a proactor has to do for that. Only one thread calls it, except with POSIX AIO. */
struct proactor {
    void (*add)(struct channel *);
    void (*start)(struct channel *);  /* its operation */
    void (*remove)(struct channel *); /* before its descriptor is closed */
};

extern struct channel *channels[FILES]; /* by descriptor; they stay, for the next connection with the same descriptor */

void open_proactor(const struct proactor *proactor, int threads); /* `threads`: that call handlers; 0: the engine does */
struct channel *add_channel(int fd, const struct handler *handler);
void accepted(int fd);                   /* a new connection */
void completed(struct channel *channel); /* its operation */

/* Between the two, if there are threads that call handlers (pool.c). */
void open_pool(int threads);
void call_in_pool(struct channel *channel);
int is_in_pool(void);                    /* whether this thread is one of the pool's */
void hand_over(struct channel *channel); /* what a handler has started there, to the engine's thread */
int do_handed_over(void);                /* in the engine's thread; whether there was something */

void call_handler(struct channel *channel);
void do_operation(struct channel *channel);

struct list { /* first in, first out */
    struct channel *first, *last;
};

static inline void append(struct list *list, struct channel *channel)
{
    channel->next = NULL;
    *(list->first ? &list->last->next : &list->first) = channel;
    list->last = channel;
}

static inline struct channel *take(struct list *list)
{
    struct channel *channel = list->first;
    if (channel)
        list->first = channel->next;
    return channel;
}
