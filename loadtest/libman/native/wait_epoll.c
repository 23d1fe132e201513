/* epoll, level-triggered and edge-triggered: the kernel keeps the descriptors, and returns those that are ready. */

#include "server.h"
#include "wait.h"
#include <sys/epoll.h>

#define EVENTS 256 /* taken at a time */

static int epoll;
static char is_watched[FILES];

static void open_it(void) { epoll = epoll_create1(0); }

static void change(int fd, int events, int flags)
{
    struct epoll_event event = {.events = events | flags, .data.fd = fd};
    int what = !events ? EPOLL_CTL_DEL : is_watched[fd] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll, what, fd, &event))
        fail("epoll cannot watch descriptor %d", fd);
    is_watched[fd] = events != 0;
}

static void watch(int fd, int events) { change(fd, events, 0); }

static void watch_edge(int fd, int events) { change(fd, events, EPOLLET); }

static void wait_for(int may_block, void (*ready)(int fd, int events))
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, may_block ? -1 : 0);
    for (int i = 0; i < count; i++)
        ready(events[i].data.fd, readiness(events[i].events));
}

const struct wait_strategy wait_epoll = {"epoll", 0, open_it, watch, wait_for};
const struct wait_strategy wait_epoll_edge = {"epoll-edge", 1, open_it, watch_edge, wait_for};
