/* The classic reactor: it reports that a socket is ready, and the handler reads and writes.
 *
 * The paper's steps: wait for an event (1), dispatch "ready to read" to the handler (2), which reads (3) and processes (4). */

#include "reactor.h"
#include "server.h"

static const struct wait_strategy *wait_strategy;
static struct event_handler *handlers[FILES]; /* by descriptor */

void reactor_watch(int fd, struct event_handler *handler, int events)
{
    handlers[fd] = events ? handler : NULL;
    wait_strategy->watch(fd, events);
}

static void dispatch(int fd, int events)
{
    struct event_handler *handler = handlers[fd];
    if (handler && events & READ)
        handler->ready_to_read(handler);
    if (handler && events & WRITE && handlers[fd] == handler) /* or the read has ended it */
        handler->ready_to_write(handler);
}

static void open_it(int listener, const char *wait, int threads)
{
    if (threads)
        fail("a reactor calls its handlers itself: it has no threads for them");
    wait_strategy = strategy(wait);
    reactive_acceptor(listener, wait_strategy->is_edge_triggered);
}

static void turn(int may_block) { wait_strategy->wait(may_block, dispatch); }

const struct engine reactor = {"reactor", open_it, turn};
