/* A reactor and its handlers. */

#pragma once

/* What the developer writes. Either may be called when there is nothing, and must not block. */
struct event_handler {
    void (*ready_to_read)(struct event_handler *);
    void (*ready_to_write)(struct event_handler *);
};

void reactor_watch(int fd, struct event_handler *handler, int events); /* from now on; 0: no more */
void reactive_acceptor(int listener, int drains);                      /* echoes on each connection; see reactive_echo.c */
