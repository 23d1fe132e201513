/* The echo server's process: serve --listen 127.0.0.1:PORT --engine NAME --wait NAME --threads N --buffer-bytes N. */

#define _GNU_SOURCE
#include "proactor.h"
#include "server.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define BACKLOG 4096 /* the client opens all of its connections at once */

size_t buffer_bytes;

static const struct engine *const engines[] = {&reactor, &emulated, &posix_aio, &uring, NULL};
static const struct wait_strategy *const strategies[] = {
    &wait_select, &wait_poll, &wait_epoll, &wait_epoll_edge, &wait_signals, NULL};

void fail(const char *format, ...)
{
    va_list rest;
    const char *why = errno ? strerror(errno) : "";
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    fprintf(stderr, *why ? ": %s\n" : "%s\n", why);
    exit(1);
}

int new_connection(int fd)
{
    int on = 1;
    if (fd >= FILES)
        fail("more than %d connections", FILES);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int accept_one(int listener, int flags) { return new_connection(accept4(listener, NULL, NULL, flags)); }

const struct wait_strategy *strategy(const char *name)
{
    for (int i = 0; strategies[i]; i++)
        if (!strcmp(strategies[i]->name, name)) {
            strategies[i]->open();
            return strategies[i];
        }
    fail("there is no wait strategy %s", name);
}

/* The value after a flag; flags that nobody asks for are ignored. */
static const char *value(char **arguments, const char *flag, const char *otherwise)
{
    for (; *arguments; arguments++)
        if (!strcmp(*arguments, flag) && arguments[1])
            return arguments[1];
    if (!otherwise)
        fail("%s is missing", flag);
    return otherwise;
}

/* `send_buffer_bytes`: of its connections; 0: as the system has it. */
static int listen_at(const char *address, int send_buffer_bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = strrchr(address, ':');
    socklen_t size = sizeof at;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = htons(port ? atoi(port + 1) : 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (send_buffer_bytes)
        setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, BACKLOG) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        fail("cannot listen at %s", address);
    printf("the echo server listens on http://127.0.0.1:%d\n", ntohs(at.sin_port));
    return listener;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    (void)argc;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    buffer_bytes = atoi(value(argv, "--buffer-bytes", "1024"));
    const char *name = value(argv, "--engine", NULL);
    int i = 0;
    while (engines[i] && strcmp(engines[i]->name, name))
        i++;
    if (!engines[i])
        fail("there is no engine %s", name);
    int listener = listen_at(value(argv, "--listen", NULL), atoi(value(argv, "--send-buffer-bytes", "0")));
    engines[i]->open(listener, value(argv, "--wait", ""), atoi(value(argv, "--threads", "0")));
    fflush(stdout); /* the address, once the engine is open */
    for (;;)
        engines[i]->turn(!do_handed_over());
}
