/* The least that a long-polling server can do, in one thread: it copies responses that it prepared when a message came.
 *
 *     limit PORT
 *
 * It has as much of PushUp's interface as load.c needs: channels are named c000000 and so on, a cursor is a number, and an
 * answer has one message. It trusts its clients, and keeps the last few messages of a channel. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNELS 100000
#define KEPT 64
#define FILES 100000


static struct channel {
    int count;                                /* messages so far */
    struct { char *bytes; int length; } answers[KEPT];
    int first, last;                          /* files that wait, as a list through `following`; 0: none */
} channels[CHANNELS];

static int following[FILES];
static char buffer[256 << 10];

static void answer(int fd, struct channel *channel, int place)
{
    if (send(fd, channel->answers[place % KEPT].bytes, channel->answers[place % KEPT].length, MSG_NOSIGNAL) < 0)
        perror("send");
}

static void poll_of(int fd, char *request)
{
    struct channel *channel = &channels[atoi(strstr(request, "channel=c") + 9)];
    int cursor = atoi(strstr(request, "cursor=") + 7);
    if (cursor < channel->count) {
        answer(fd, channel, cursor);
        return;
    }
    following[fd] = 0;
    if (channel->first)
        following[channel->last] = fd;
    else
        channel->first = fd;
    channel->last = fd;
}

static void publication(int fd, char *body, int length)
{
    static const char acknowledged[] = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
    struct channel *channel = &channels[atoi(strstr(body, "[\"c") + 3)];
    char *data = strstr(body, "\"data\":") + 7, content[length + 64], *bytes;
    int place = channel->count++;
    int content_length = sprintf(content, "{\"cursor\":\"%d\",\"messages\":[{\"data\":%.*s]}", place + 1,
                                 (int)(body + length - data), data);
    free(channel->answers[place % KEPT].bytes);
    channel->answers[place % KEPT].length =
        asprintf(&bytes, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", content_length, content);
    channel->answers[place % KEPT].bytes = bytes;
    send(fd, acknowledged, sizeof acknowledged - 1, MSG_NOSIGNAL);
    int waiting = channel->first;
    channel->first = 0;
    for (; waiting; waiting = following[waiting])
        answer(waiting, channel, place);
}

static void read_from(int fd)
{
    ssize_t length = recv(fd, buffer, sizeof buffer - 1, MSG_DONTWAIT);
    if (length <= 0) {
        if (length == 0)
            close(fd);
        return;
    }
    buffer[length] = 0; /* a request comes whole, and alone: load.c sends it at once and waits for the response */
    if (buffer[0] == 'P') {
        char *body = strstr(buffer, "\r\n\r\n") + 4;
        publication(fd, body, buffer + length - body);
    } else
        poll_of(fd, buffer);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN}, events[256];
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, epoll = epoll_create1(0);
    address.sin_port = htons(argc > 1 ? atoi(argv[1]) : 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("listen");
        return 1;
    }
    event.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != listener) {
                read_from(events[i].data.fd);
                continue;
            }
            event.data.fd = accept(listener, NULL, NULL);
            if (event.data.fd < 0 || event.data.fd >= FILES) {
                perror("accept");
                return 1;
            }
            setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
        }
    }
}
