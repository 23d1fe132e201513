/* Loads a long-polling server from one thread, and checks that each subscriber receives each message once and in order.
 *
 * Arguments are NAME=VALUE, see `main`. It connects, sends every subscriber's first poll, and waits until the server is
 * idle. Then it prints "ready" and waits for the end of its input. It publishes for `warm` + `seconds` seconds, waits for
 * what is late or under way, and prints one line of JSON. What is measured is what happens in those `seconds`; what is
 * checked is everything. A response that it does not expect ends it.
 *
 * Requests are made from templates, so that it knows nothing of any server's interface: \1 stands for the channel, \2 and
 * \3 for the two parts of a cursor, \4 for the message. A message is @@NUMBER,PLACE,TIME, and padding: its number among
 * all, its place in its channel, and when it was due. */

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
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define CURSOR_BYTES 64
#define IDLE_SECONDS 0.2 /* a server that used no tick of processor time for so long has taken all first polls */

typedef int64_t nanoseconds;

struct connection {
    int fd;
    int channel;              /* of a subscriber; a publisher's next one */
    int is_publisher, is_busy;
    int32_t place;            /* in the channel, of the last message received */
    char cursor[2][CURSOR_BYTES];
    char *kept;               /* the beginning of a response whose end has not come */
    size_t kept_bytes;
    nanoseconds sent;
};

struct message {
    int left;                 /* subscribers that have not received it */
    nanoseconds due;
};

struct samples {              /* nanoseconds each */
    nanoseconds *values;
    size_t count, room;
};

struct counts {
    int64_t deliveries, acknowledgements;
    double user, system, own; /* processor seconds */
    nanoseconds at;
};

static int argument_count;
static char **arguments;
static int port, subscribers, channels, publishers, window, stalled, pipelined, size;
static double rate;
static const char *first_poll, *poll_again, *publish, *prefix, *part_starts[2];
static char part_end;

static struct connection *everybody; /* publishers first */
static int32_t *places;              /* the last message published, by channel */
static struct message *messages;
static int64_t published, planned, completed, message_room, lost, repeated;
static nanoseconds publishing_since, measured_since, measured_until;
static struct samples trips, lasts, acknowledgements;
static struct counts counts;
static char *padding;
static char buffer[4 << 20], request[64 << 10];
static int epoll;

static void fail(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    fprintf(stderr, "\n");
    exit(1);
}

static const char *text(const char *name, const char *otherwise)
{
    size_t length = strlen(name);
    for (int i = 1; i < argument_count; i++)
        if (!strncmp(arguments[i], name, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    if (!otherwise)
        fail("%s is missing", name);
    return otherwise;
}

static double number(const char *name, const char *otherwise) { return atof(text(name, otherwise)); }

static nanoseconds now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void add(struct samples *samples, nanoseconds value)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 1024;
        samples->values = realloc(samples->values, samples->room * sizeof *samples->values);
    }
    samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    nanoseconds x = *(const nanoseconds *)a, y = *(const nanoseconds *)b;
    return (x > y) - (x < y);
}

/* Milliseconds. */
static double percentile(struct samples *samples, double share)
{
    if (!samples->count)
        return 0;
    qsort(samples->values, samples->count, sizeof *samples->values, compare);
    size_t at = share * samples->count;
    return samples->values[at < samples->count ? at : samples->count - 1] / 1e6;
}

/* The processor time of the server's processes so far, and this one's. */
static struct counts count(void)
{
    counts.user = counts.system = 0;
    for (const char *pid = text("pids", NULL); *pid; pid += strspn(pid, "0123456789"), pid += *pid == ',') {
        char path[64], stat[1024];
        unsigned long user, system;
        snprintf(path, sizeof path, "/proc/%d/stat", atoi(pid));
        FILE *file = fopen(path, "r");
        if (!file)
            fail("process %d has ended", atoi(pid));
        stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
        fclose(file);
        char *fields = strrchr(stat, ')'); /* the name before it may contain anything */
        if (!fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            fail("%s: %s", path, stat);
        counts.user += (double)user / sysconf(_SC_CLK_TCK);
        counts.system += (double)system / sysconf(_SC_CLK_TCK);
    }
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    counts.own = own.ru_utime.tv_sec + own.ru_stime.tv_sec + (own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
    counts.at = now();
    return counts;
}

/* Requests. */

static size_t put(char *at, const char *from)
{
    size_t length = strlen(from);
    memcpy(at, from, length);
    return length;
}

static void send_request(struct connection *c, const char *template, int channel, const char *message)
{
    char *at = request;
    for (const char *from = template; *from;) {
        size_t length = strcspn(from, "\1\2\3\4");
        memcpy(at, from, length);
        at += length;
        from += length;
        if (*from == 1)
            at += sprintf(at, "%s%06d", prefix, channel);
        else if (*from == 2 || *from == 3)
            at += put(at, c->cursor[*from - 2]);
        else if (*from == 4)
            at += put(at, message);
        from += *from != 0;
    }
    if (send(c->fd, request, at - request, MSG_NOSIGNAL) != at - request)
        fail("a request could not be sent: %s", strerror(errno));
}

static void publish_one(struct connection *publisher, nanoseconds due)
{
    int channel = publisher->channel;
    publisher->channel = channel + publishers < channels ? channel + publishers : (publisher - everybody) % channels;
    if (published == message_room) {
        message_room = message_room ? 2 * message_room : 1024;
        messages = realloc(messages, message_room * sizeof *messages);
    }
    int readers = subscribers / channels + (channel < subscribers % channels);
    for (int i = 0; i < stalled; i++) /* the first subscribers never read */
        readers -= i % channels == channel;
    messages[published] = (struct message){readers, due};
    int length = sprintf(padding, "@@%ld,%d,%ld,", (long)published, ++places[channel], (long)due);
    padding[length] = 'x'; /* over the 0 */
    published++;
    publisher->is_busy = 1;
    publisher->sent = now();
    send_request(publisher, publish, channel, padding);
    memset(padding, 'x', length);
}

/* Publishes what is due: by the clock, or in a closed loop as long as fewer than `window` messages are under way. One
 * connection has one publication at a time. Returns when the next is due. */
static nanoseconds publish_due(void)
{
    nanoseconds time = now();
    for (int i = 0; published < planned && i < publishers; i++) {
        nanoseconds due = rate ? publishing_since + (nanoseconds)(published * SECOND / rate) : time;
        if (rate ? due > time : published - completed >= window)
            return rate ? due : INT64_MAX;
        if (!everybody[i].is_busy)
            publish_one(&everybody[i], due);
    }
    return INT64_MAX; /* all publishers wait for an acknowledgement */
}

/* Responses. */

static void complete(struct message *message, nanoseconds time)
{
    completed++;
    if (message->due >= measured_since && message->due < measured_until)
        add(&lasts, time - message->due);
}

static void receive_messages(struct connection *c, const char *body, const char *end)
{
    nanoseconds time = now();
    for (const char *at = body; (at = memmem(at, end - at, "@@", 2)); at += size) {
        char *next;
        long message_number = strtol(at + 2, &next, 10), place = strtol(next + 1, &next, 10);
        nanoseconds due = strtol(next + 1, &next, 10);
        if (*next != ',' || message_number >= published || end - at < size)
            fail("not a message: %.*s", (int)(end - at), at);
        if (place <= c->place) {
            repeated++;
            continue;
        }
        lost += place - c->place - 1;
        c->place = place;
        counts.deliveries++;
        if (due >= measured_since && due < measured_until)
            add(&trips, time - due);
        if (--messages[message_number].left == 0)
            complete(&messages[message_number], time);
    }
}

static void receive_response(struct connection *c, const char *head, const char *body, const char *end)
{
    int status = atoi(head + 9);
    if (c->is_publisher ? status != 201 && status != 202 : status != 200)
        fail("unexpected response: %.*s", (int)(end - head), head);
    if (c->is_publisher) {
        c->is_busy = 0;
        counts.acknowledgements++;
        add(&acknowledgements, now() - c->sent);
        if (!subscribers)
            completed++;
        return;
    }
    for (int i = 0; i < 2 && *part_starts[i]; i++) {
        size_t before = strlen(part_starts[i]);
        char *from = memmem(head, end - head, part_starts[i], before);
        from = from ? from + before : from;
        char *to = from ? memchr(from, part_end, end - from) : NULL;
        if (!to || to - from >= CURSOR_BYTES)
            fail("no cursor in: %.*s", (int)(end - head), head);
        memcpy(c->cursor[i], from, to - from);
        c->cursor[i][to - from] = 0;
    }
    send_request(c, poll_again, c->channel, "");
    receive_messages(c, body, end);
}

static void read_from(struct connection *c)
{
    memcpy(buffer, c->kept, c->kept_bytes);
    ssize_t received = recv(c->fd, buffer + c->kept_bytes, sizeof buffer - c->kept_bytes, MSG_DONTWAIT);
    if (received < 0 && errno == EAGAIN)
        return;
    if (received <= 0)
        fail("the server closed a connection");
    char *at = buffer, *end = buffer + c->kept_bytes + received, *body;
    while ((body = memmem(at, end - at, "\r\n\r\n", 4))) {
        char *length = memmem(at, body - at, "\r\nContent-Length: ", 18);
        body += 4;
        ssize_t bytes = length ? atoi(length + 18) : 0;
        if (end - body < bytes)
            break;
        receive_response(c, at, body, body + bytes);
        at = body + bytes;
    }
    c->kept_bytes = end - at;
    c->kept = c->kept_bytes ? realloc(c->kept, c->kept_bytes) : (free(c->kept), NULL);
    memcpy(c->kept, at, c->kept_bytes);
}

/* Until the time, or until all messages are published, and none is under way. */
static void run(nanoseconds until, int while_under_way)
{
    struct epoll_event events[256];
    for (nanoseconds time; (time = now()) < until && (!while_under_way || completed < planned);) {
        nanoseconds wait = publish_due();
        wait = (wait < until ? wait : until) - time;
        struct timespec timeout = {wait > 0 ? wait / SECOND : 0, wait > 0 ? wait % SECOND : 0};
        int ready = epoll_pwait2(epoll, events, 256, &timeout, NULL);
        if (ready < 0)
            fail("epoll: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            read_from(events[i].data.ptr);
            publish_due();
        }
    }
}

/* Beginning and end. */

static void connect_one(struct connection *c, int receive_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connection %ld: %s", (long)(c - everybody), strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!receive_bytes && epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event))
        fail("epoll: %s", strerror(errno));
}

static void connect_all(void)
{
    everybody = calloc(publishers + subscribers, sizeof *everybody);
    for (int i = 0; i < publishers; i++) {
        everybody[i].is_publisher = 1;
        everybody[i].channel = i % channels;
        connect_one(&everybody[i], 0);
    }
    for (int i = 0; i < subscribers; i++) {
        struct connection *c = &everybody[publishers + i];
        c->channel = i % channels;
        snprintf(c->cursor[0], CURSOR_BYTES, "%s", text("cursor", ""));
        connect_one(c, i < stalled ? 4096 : 0);
        for (int n = 0; n < (i < stalled ? pipelined : 1); n++)
            send_request(c, first_poll, c->channel, "");
        if (i % 64 == 63)
            usleep(1000); /* so that the server's queue of new connections does not overflow */
    }
}

static void wait_until_idle(void)
{
    double before = -1, used = 0;
    for (int i = 0; i < 30 / IDLE_SECONDS && used > before; i++) {
        before = used;
        run(now() + IDLE_SECONDS * SECOND, 0);
        struct counts found = count();
        used = found.user + found.system;
    }
}

int main(int argc, char **argv)
{
    argument_count = argc;
    arguments = argv;
    port = number("port", NULL);
    subscribers = number("subscribers", NULL);
    channels = number("channels", "1");
    publishers = number("publishers", "1");
    if (subscribers && publishers > channels)
        fail("%d publishers for %d channels: subscribers check the order, which only one publisher of a channel knows", publishers, channels);
    rate = number("rate", "0");             /* messages a second; 0: a closed loop */
    window = number("window", "1");         /* of a closed loop: messages under way */
    size = number("size", "128");           /* bytes of a message */
    stalled = number("stalled", "0");       /* subscribers that send so many polls at once and never read */
    pipelined = number("pipelined", "64");
    prefix = text("prefix", "c");           /* of channels' names */
    first_poll = text("first_poll", NULL);
    poll_again = text("poll", NULL);
    publish = text("publish", NULL);
    part_starts[0] = text("part_1", ""); /* what stands before a part of the cursor, and after it */
    part_starts[1] = text("part_2", "");
    part_end = *text("part_end", "\"");
    nanoseconds warm = number("warm", "1") * SECOND, seconds = number("seconds", "1") * SECOND;
    nanoseconds drain = number("drain", "5") * SECOND; /* without any response, until what is under way counts as lost */

    padding = calloc(1, size + 1);
    memset(padding, 'x', size);
    places = calloc(channels, sizeof *places);
    epoll = epoll_create1(0);
    connect_all();
    wait_until_idle();
    printf("ready\n");
    fflush(stdout);
    while (read(0, buffer, sizeof buffer) > 0) {}

    planned = rate ? rate * (warm + seconds) / SECOND + 0.5 : INT64_MAX;
    publishing_since = now();
    measured_since = publishing_since + warm;
    measured_until = measured_since + seconds;
    run(measured_since, 0);
    acknowledgements.count = 0;
    struct counts before = count();
    run(measured_until, 0);
    struct counts after = count();
    if (!rate)
        planned = published;
    for (int64_t received = -1; received != counts.deliveries + counts.acknowledgements;) {
        received = counts.deliveries + counts.acknowledgements;
        run(now() + drain, 1);
    }
    for (int i = publishers + stalled; i < publishers + subscribers; i++)
        lost += places[everybody[i].channel] - everybody[i].place;

    double took = (after.at - before.at) / 1e9;
    printf("{\"seconds\": %f, \"deliveries\": %ld, \"acknowledgements\": %ld, \"user\": %f, \"system\": %f, ", took,
           (long)(after.deliveries - before.deliveries), (long)(after.acknowledgements - before.acknowledgements),
           after.user - before.user, after.system - before.system);
    printf("\"own\": %f, \"published\": %ld, \"delivered\": %ld, \"lost\": %ld, \"repeated\": %ld, ",
           (after.own - before.own) / took, (long)published, (long)counts.deliveries, (long)lost, (long)repeated);
    printf("\"trip_p50\": %f, \"trip_p99\": %f, \"last_p50\": %f, \"acknowledged_p50\": %f}\n", percentile(&trips, 0.5),
           percentile(&trips, 0.99), percentile(&lasts, 0.5), percentile(&acknowledgements, 0.5));
    return 0;
}
