/* The echo server as it is written for a reactor: it reads and writes itself, remembers what is left to write, and says what
 * it waits for.
 *
 * With an edge-triggered wait strategy it `drains`: it goes on until a read finds nothing (Appendix II). Otherwise it reads
 * once for each event. */

#define _GNU_SOURCE
#include "reactor.h"
#include "server.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct echo {
    struct event_handler handler; /* the first, so that a pointer to it is one to this */
    int fd;
    size_t sent, received; /* of what is in the buffer */
    char buffer[];
};

static int drains, listener;

static void end(struct echo *echo)
{
    reactor_watch(echo->fd, NULL, 0);
    close(echo->fd);
    free(echo);
}

static void wait_for(struct echo *echo, int events)
{
    if (!drains)
        reactor_watch(echo->fd, &echo->handler, events);
}

/* Write what is in the buffer. Returns whether all of it is written; if the connection is broken, the echo ends. */
static int flush(struct echo *echo)
{
    while (echo->sent < echo->received) {
        ssize_t sent = send(echo->fd, echo->buffer + echo->sent, echo->received - echo->sent, 0);
        if (sent < 0) {
            if (errno == EAGAIN)
                wait_for(echo, WRITE);
            else
                end(echo);
            return 0;
        }
        echo->sent += sent;
    }
    return 1;
}

static void ready_to_read(struct event_handler *handler)
{
    struct echo *echo = (struct echo *)handler;
    if (echo->sent < echo->received)
        return; /* first what is left to write */
    do {
        ssize_t received = recv(echo->fd, echo->buffer, buffer_bytes, 0);
        if (received < 0 && errno == EAGAIN)
            return;
        if (received <= 0) {
            end(echo);
            return;
        }
        echo->sent = 0;
        echo->received = received;
    } while (flush(echo) && drains);
}

static void ready_to_write(struct event_handler *handler)
{
    struct echo *echo = (struct echo *)handler;
    if (echo->sent == echo->received || !flush(echo))
        return;
    wait_for(echo, READ);
    if (drains) /* the edge of what has arrived in the meantime is over */
        ready_to_read(handler);
}

static void ready_to_accept(struct event_handler *handler)
{
    (void)handler;
    for (int fd; (fd = accept_one(listener, SOCK_NONBLOCK)) >= 0;) {
        struct echo *echo = calloc(1, sizeof *echo + buffer_bytes);
        echo->handler = (struct event_handler){ready_to_read, ready_to_write};
        echo->fd = fd;
        reactor_watch(fd, &echo->handler, drains ? READ | WRITE : READ);
        if (drains) /* there may be no edge for what came before */
            ready_to_read(&echo->handler);
    }
}

void reactive_acceptor(int fd, int has_edges)
{
    static struct event_handler acceptor = {ready_to_accept, ready_to_accept};
    listener = fd;
    drains = has_edges;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    reactor_watch(listener, &acceptor, READ);
}
