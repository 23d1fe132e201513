/* The paper's client: "a continuous stream of arbitrary fixed sized messages via N connections", one process of it.
 *
 *     client PORT CONNECTIONS FIRST WINDOW MESSAGE_BYTES
 *
 * It connects, prints "connected", and does what it reads, a line at a time: "begin SECONDS" starts the streams, and prints
 * "begun" once each connection has received something, after so many seconds at most; "measure SECONDS" streams, and prints a
 * line of JSON. It ends with its input.
 *
 * WINDOW messages of each connection are under way, sent and not yet echoed. The kernel reports a connection only when half of
 * them have come back. So the client needs one read and one write for several messages, the server for each, and the server is
 * the limit. Each byte that comes back is compared with what was sent; connections (their numbers begin at FIRST) begin at
 * different places of the message, so that they are told apart. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define READ_BYTES (256 << 10)
#define EVENTS 256
#define PARTS 6 /* a bucket of trips is 1/64 of a power of two wide */

struct connection {
    int fd, is_blocked, has_ended;
    size_t offset, sent, received, arrived_before;
    size_t marked;        /* the message that is timed ends before this byte of the stream; 0: none */
    int64_t marked_at;
};

static struct connection *connections;
static int count, epoll, ended;
static size_t message_bytes, window_bytes;
static char *pattern, buffer[READ_BYTES];
static int64_t trips[64 << PARTS], reads; /* since the measurement began; trips by bucket of nanoseconds */

static void fail(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    fprintf(stderr, "\n");
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double processor_time(void)
{
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    return own.ru_utime.tv_sec + own.ru_stime.tv_sec + (own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
}

static int bucket(int64_t nanoseconds)
{
    int power = 63 - __builtin_clzll(nanoseconds | 1 << PARTS);
    return (power << PARTS) + (nanoseconds >> (power - PARTS)) - (1 << PARTS);
}

static double seconds_of(int bucket)
{
    int power = bucket >> PARTS;
    return ((bucket & ((1 << PARTS) - 1)) + (1 << PARTS) + 0.5) * (1ULL << (power - PARTS)) / 1e9;
}

static void watch(struct connection *c, int what, int events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll, what, c->fd, &event))
        fail("epoll: %s", strerror(errno));
}

/* Fill the window with whole messages. */
static void send_messages(struct connection *c)
{
    ssize_t due = c->received / message_bytes * message_bytes + window_bytes - c->sent;
    if (due <= 0)
        return;
    ssize_t sent = send(c->fd, pattern + (c->sent + c->offset) % message_bytes, due, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN)
        return; /* the read will tell */
    if (sent > 0) {
        c->sent += sent;
        if (!c->marked) {
            c->marked = c->sent;
            c->marked_at = now();
        }
    }
    if (c->is_blocked != (sent < due)) {
        c->is_blocked = sent < due;
        watch(c, EPOLL_CTL_MOD, c->is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

static void receive(struct connection *c)
{
    ssize_t bytes = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0) {
        watch(c, EPOLL_CTL_DEL, 0);
        c->has_ended = 1;
        ended++;
        return;
    }
    if (memcmp(buffer, pattern + (c->received + c->offset) % message_bytes, bytes))
        fail("the %zd bytes after byte %zu of connection %d are not those that were sent", bytes, c->received,
             (int)(c - connections));
    c->received += bytes;
    reads++;
    if (c->marked && c->marked <= c->received) {
        trips[bucket(now() - c->marked_at)]++;
        c->marked = 0;
    }
    send_messages(c);
}

static void run(double seconds)
{
    struct epoll_event events[EVENTS];
    int64_t end = now() + seconds * 1e9;
    for (int64_t left; (left = end - now()) > 0;) {
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        int ready = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT)
                receive(c);
            if (events[i].events & EPOLLOUT && !c->has_ended)
                send_messages(c);
        }
    }
}

static void connect_one(struct connection *c, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger reset = {1, 0}; /* so that nothing of it is left in the kernel for the next measurement */
    struct timeval patience = {20, 0};
    int on = 1, half = window_bytes / 2;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof at))
        fail("connection %d: %s", (int)(c - connections), strerror(errno));
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &half, sizeof half);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* What has come back, read or not: connections are read when half of their window is there, many at a time. */
static size_t arrived(const struct connection *c)
{
    int unread = 0;
    if (!c->has_ended)
        ioctl(c->fd, FIONREAD, &unread);
    return c->received + unread;
}

static int silent(void)
{
    int silent = 0;
    for (int i = 0; i < count; i++)
        silent += arrived(&connections[i]) == connections[i].arrived_before;
    return silent;
}

static void begin(double patience)
{
    int64_t end = now() + patience * 1e9;
    for (int i = 0; i < count; i++) {
        watch(&connections[i], EPOLL_CTL_ADD, EPOLLIN);
        send_messages(&connections[i]);
    }
    while (silent() && now() < end)
        run(0.05);
    printf("begun\n");
}

static void measure(double seconds)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes -= connections[i].arrived_before = arrived(&connections[i]);
    memset(trips, 0, sizeof trips);
    reads = 0;
    int ended_before = ended;
    int64_t began = now();
    double used = processor_time();
    run(seconds);
    double took = (now() - began) / 1e9;
    for (int i = 0; i < count; i++)
        bytes += arrived(&connections[i]);
    printf("{\"seconds\": %f, \"received_bytes\": %ld, \"reads\": %ld, \"stalled\": %d, \"ended\": %d, \"own_share\": %f, ",
           took, (long)bytes, (long)reads, silent(), ended - ended_before, (processor_time() - used) / took);
    printf("\"trips\": [");
    const char *comma = "";
    for (int i = 0; i < 64 << PARTS; i++)
        if (trips[i]) {
            printf("%s[%.9f, %ld]", comma, seconds_of(i), (long)trips[i]);
            comma = ", ";
        }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    char command[16];
    double seconds;
    if (argc != 6)
        fail("usage: client PORT CONNECTIONS FIRST WINDOW MESSAGE_BYTES");
    count = atoi(argv[2]);
    message_bytes = atoi(argv[5]);
    window_bytes = atoi(argv[4]) * message_bytes;
    size_t longest = window_bytes > READ_BYTES ? window_bytes : READ_BYTES, size = longest + 2 * message_bytes;
    pattern = malloc(size);
    for (size_t i = 0; i < size; i++)
        pattern[i] = i < message_bytes ? random() : pattern[i - message_bytes];
    connections = calloc(count, sizeof *connections);
    epoll = epoll_create1(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < count; i++) {
        connections[i].offset = (atoi(argv[3]) + i) % message_bytes;
        connect_one(&connections[i], atoi(argv[1]));
    }
    printf("connected\n");
    while (scanf("%15s %lf", command, &seconds) == 2)
        (strcmp(command, "begin") ? measure : begin)(seconds);
    return 0;
}
