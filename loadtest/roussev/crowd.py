"""Many of Roussev & Wu's clients (Figure 1) in one process: connect, send one byte, receive 4,000, close, repeat."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import deque
from typing import NamedTuple

from loadtest.roussev.baselines import RESPONSE

READ_BYTES = 8 * 1024
EVENTS = 256


class Served(NamedTuple):
    """The outcomes of the requests. Times in seconds.

    `refused`: the connection was refused or reset. `unanswered`: no response within the client's patience, or one of
    the wrong length. `own_cpu`: the crowd's own share of a processor.
    """

    seconds: float
    answered: int
    refused: int
    unanswered: int
    responses: list[float]
    own_cpu: float


class _Client:
    """One client; `request` numbers its requests, so that a deadline can be matched to its request."""

    __slots__ = ("began", "connected", "left", "received", "request", "socket")

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.request = 0
        self.connected = False
        self.received = 0
        self.began = 0.0
        self.socket: socket.socket


class Crowd:
    """Concurrent clients, each of which makes its requests one after another."""

    def __init__(self, address: tuple[str, int], *, clients: int, each: int, patience: float) -> None:
        """`each`: requests per client; `patience`: seconds a client waits for a response."""
        self._address = address
        self._patience = patience
        self._epoll = select.epoll()
        self._clients = [_Client(each) for _ in range(clients)]
        self._by_fd: dict[int, _Client] = {}
        self._deadlines: deque[tuple[float, _Client, int]] = deque()
        self._responses: list[float] = []
        self._refused = 0
        self._unanswered = 0

    def run(self) -> Served:
        """Make all requests. Takes at most `each` times the patience."""
        cpu = time.process_time()
        began = time.perf_counter()
        for client in self._clients:
            self._begin(client)
        while self._by_fd:
            wait = max(0.0, self._deadlines[0][0] - time.perf_counter())
            for fd, _ in self._epoll.poll(wait, EVENTS):
                self._handle_event(self._by_fd[fd])
            self._give_up()
        self._epoll.close()
        took = time.perf_counter() - began
        own = (time.process_time() - cpu) / took
        return Served(took, len(self._responses), self._refused, self._unanswered, self._responses, own)

    def _begin(self, client: _Client) -> None:
        """Start the client's next request, if any is left."""
        while client.left:
            client.left -= 1
            client.request += 1
            client.connected = False
            client.received = 0
            client.began = time.perf_counter()
            client.socket = socket.socket()
            client.socket.setblocking(False)
            if client.socket.connect_ex(self._address) in (0, errno.EINPROGRESS):
                self._by_fd[client.socket.fileno()] = client
                self._epoll.register(client.socket.fileno(), select.EPOLLOUT)
                self._deadlines.append((client.began + self._patience, client, client.request))
                return
            client.socket.close()
            self._refused += 1

    def _handle_event(self, client: _Client) -> None:
        try:
            if not client.connected:
                client.socket.send(b"x")  # raises if the connection failed
                client.connected = True
                self._epoll.modify(client.socket.fileno(), select.EPOLLIN)
                return
            data = client.socket.recv(READ_BYTES)
        except OSError:
            self._refused += 1
            self._end(client)
            return
        client.received += len(data)
        if client.received == len(RESPONSE):
            self._responses.append(time.perf_counter() - client.began)
            self._end(client)
        elif not data or client.received > len(RESPONSE):
            self._unanswered += 1
            self._end(client)

    def _give_up(self) -> None:
        now = time.perf_counter()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, client, request = self._deadlines.popleft()
            if client.request == request and self._by_fd.get(client.socket.fileno()) is client:
                self._unanswered += 1
                self._end(client)

    def _end(self, client: _Client) -> None:
        del self._by_fd[client.socket.fileno()]
        client.socket.close()
        self._begin(client)
