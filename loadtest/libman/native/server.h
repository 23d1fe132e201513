/* What all parts of the echo server share. A process is one server, so what a file keeps is static. */

#pragma once

#include "wait.h"
#include <stddef.h>

#define FILES 65536 /* descriptors are below this */

extern size_t buffer_bytes; /* of each connection */

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* says what errno says, too */
int new_connection(int fd);              /* what `accept` returned, set up */
int accept_one(int listener, int flags); /* a new connection; below 0 if there is none */

/* A way to serve the connections of a listener. `wait`: the name of one of its own ways to wait. `threads`: what the engine
 * has them for. `open` fails if this system does not have it. */
struct engine {
    const char *name;
    void (*open)(int listener, const char *wait, int threads);
    void (*turn)(int may_block); /* wait, and handle what has happened */
};

extern const struct engine reactor, emulated, posix_aio, uring;

const struct wait_strategy *strategy(const char *name);
