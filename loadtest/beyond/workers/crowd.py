"""Some of the clients of `many`: `python -m loadtest.beyond.workers.crowd PORT COUNT SOURCE CHANNEL CURSOR`.

Each holds a poll on the channel, and polls again with its cursor when it is answered. It prints a line of JSON whenever
all have the same number of messages, and another when all connections have ended.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from functools import lru_cache
from typing import NamedTuple

READ_BYTES = 64 * 1024


class Answer(NamedTuple):
    """A response: the numbers of its messages, its gaps, and the next poll."""

    numbers: tuple[int, ...]
    gaps: int
    next_poll: bytes


class Client:
    """One poll after another."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.received = 0
        self.buffer = b""


class Crowd:
    """All clients of this process."""

    def __init__(self, port: int, count: int, source: str, channel: str, cursor: str) -> None:
        """`source`: the address that they come from; each has 28,000 ports."""
        self._channel = channel
        self._epoll = select.epoll()
        self._clients: dict[int, Client] = {}
        self._wrong = self._gaps = self._answers = 0
        self._counts = {0: count}
        self._count = count
        self.answer = lru_cache(1024)(self._answer)
        for _ in range(count):
            sock = socket.socket()
            sock.bind((source, 0))
            sock.connect(("127.0.0.1", port))
            sock.send(self._poll(cursor))
            sock.setblocking(False)
            self._clients[sock.fileno()] = Client(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Until all connections have ended."""
        tell(held=self._count)
        while self._clients:
            for fd, _ in self._epoll.poll():
                self._read(self._clients[fd])
        tell(ended=time.time(), answers=self._answers, wrong=self._wrong, gaps=self._gaps, counts=self._counts)

    def _poll(self, cursor: str) -> bytes:
        path = f"/v1/poll?channel={self._channel}&timeout=600&cursor={cursor}"
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    def _read(self, client: Client) -> None:
        try:
            data = client.socket.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            fd = client.socket.fileno()
            self._epoll.unregister(fd)
            client.socket.close()
            del self._clients[fd]
            return
        client.buffer += data
        head, found, body = client.buffer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0) if found else 0
        if not found or len(body) < length:
            return
        client.buffer = b""
        self._answers += 1
        answer = self.answer(body)
        self._gaps += answer.gaps
        if answer.numbers:
            expected = tuple(range(client.received + 1, client.received + 1 + len(answer.numbers)))
            self._wrong += answer.numbers != expected
            self._move(client, client.received + len(answer.numbers))
        if b"connection: close" not in head.lower():
            client.socket.send(answer.next_poll)

    def _move(self, client: Client, received: int) -> None:
        self._counts[client.received] -= 1
        client.received = received
        self._counts[received] = self._counts.get(received, 0) + 1
        if self._counts[received] == self._count:
            tell(all_have=received)

    def _answer(self, body: bytes) -> Answer:
        value = json.loads(body)
        numbers = tuple(message["data"] for message in value["messages"])
        return Answer(numbers, len(value["gaps"]), self._poll(value["cursor"]))


def tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    port, count, source, channel, cursor = sys.argv[1:]
    Crowd(int(port), int(count), source, channel, cursor).run()
