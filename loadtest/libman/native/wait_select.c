/* select: level-triggered; each call passes the sets of all descriptors, and the result is searched. */

#include "server.h"
#include "wait.h"
#include <sys/select.h>

static fd_set readers, writers;
static int end; /* above the highest descriptor */

static void open_it(void) {}

static void watch(int fd, int events)
{
    if (fd >= FD_SETSIZE)
        fail("select cannot watch descriptor %d: it ends at %d", fd, FD_SETSIZE - 1);
    FD_CLR(fd, &readers);
    FD_CLR(fd, &writers);
    if (events & READ)
        FD_SET(fd, &readers);
    if (events & WRITE)
        FD_SET(fd, &writers);
    if (fd >= end)
        end = fd + 1;
}

static void wait_for(int may_block, void (*ready)(int fd, int events))
{
    fd_set readable = readers, writable = writers;
    struct timeval none = {0};
    int left = select(end, &readable, &writable, NULL, may_block ? NULL : &none);
    for (int fd = 0; left > 0; fd++) {
        int events = (FD_ISSET(fd, &readable) ? READ : 0) | (FD_ISSET(fd, &writable) ? WRITE : 0);
        if (events) {
            left -= (events & READ ? 1 : 0) + (events & WRITE ? 1 : 0);
            ready(fd, events);
        }
    }
}

const struct wait_strategy wait_select = {"select", 0, open_it, watch, wait_for};
