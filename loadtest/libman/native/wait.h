/* A wait strategy: how an engine learns which sockets are ready. Each is in a file of its own, wait_NAME.c. */

#pragma once

enum { READ = 1, WRITE = 4 }; /* as POLLIN and POLLOUT, EPOLLIN and EPOLLOUT */

struct wait_strategy {
    const char *name;
    int is_edge_triggered;                                        /* reports that a socket became ready, not that it is */
    void (*open)(void);
    void (*watch)(int fd, int events);                            /* from now on; 0: forget it */
    void (*wait)(int may_block, void (*ready)(int fd, int events)); /* `ready` may be called when there is nothing */
};

extern const struct wait_strategy wait_select, wait_poll, wait_epoll, wait_epoll_edge, wait_signals;

/* On a broken connection, neither a read nor a write blocks. */
static inline int readiness(int events) { return events & ~(READ | WRITE) ? READ | WRITE : events; }
