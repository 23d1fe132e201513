/* poll: level-triggered; each call passes an array of all descriptors, and the result is searched. */

#include "server.h"
#include "wait.h"
#include <poll.h>

static struct pollfd watched[FILES]; /* by descriptor; `fd` is -1 for those that are not watched */
static int end;

static void open_it(void) {}

static void watch(int fd, int events)
{
    for (; end <= fd; end++)
        watched[end].fd = -1;
    watched[fd].fd = events ? fd : -1;
    watched[fd].events = events;
}

static void wait_for(int may_block, void (*ready)(int fd, int events))
{
    int left = poll(watched, end, may_block ? -1 : 0);
    for (int fd = 0; left > 0; fd++)
        if (watched[fd].revents) {
            left--;
            ready(fd, readiness(watched[fd].revents));
        }
}

const struct wait_strategy wait_poll = {"poll", 0, open_it, watch, wait_for};
