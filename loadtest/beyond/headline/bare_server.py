"""The least that a long-polling server in Python can do: it receives, searches for a few bytes, and sends.

It has as much of PushUp's interface as `load.c` needs, and trusts its clients.
"""

from __future__ import annotations

import gc
import select
import socket
import sys
from collections import defaultdict

KEPT = 64
"""Messages of a channel that are kept."""

ACKNOWLEDGED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


def serve(port: int) -> None:
    """Forever, on loopback."""
    gc.disable()
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    listener.setblocking(False)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    clients: dict[int, socket.socket] = {}
    answers: defaultdict[bytes, list[bytes]] = defaultdict(list)
    waiting: defaultdict[bytes, list[socket.socket]] = defaultdict(list)
    while True:
        for file, _ in epoll.poll():
            if file == listener.fileno():
                client, _ = listener.accept()
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client
                epoll.register(client, select.EPOLLIN)
                continue
            client = clients[file]
            request = client.recv(65536)
            if not request:
                clients.pop(file).close()
            elif request.startswith(b"GET"):  # /v1/poll?channel=CHANNEL&cursor=CURSOR&...
                _, channel, cursor, _ = request.split(b"=", 3)
                channel, cursor = channel[:-7], cursor[: cursor.index(b"&")]
                ready = answers[channel]
                if int(cursor) < len(ready):
                    client.send(ready[int(cursor)])
                else:
                    waiting[channel].append(client)
            else:  # {"channels":["CHANNEL"],"data":DATA}
                at = request.index(b'["') + 2
                channel, data = request[at : request.index(b'"', at)], request[request.index(b'"data":') :]
                ready = answers[channel]
                body = b'{"cursor":"%d","messages":[{%b]}' % (len(ready) + 1, data)
                ready.append(ANSWER % (len(body), body))
                if len(ready) > KEPT:
                    ready[-KEPT - 1] = b""
                client.send(ACKNOWLEDGED)
                for reader in waiting.pop(channel, ()):
                    reader.send(ready[-1])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
