"""Design 8, not in the paper: one thread and one epoll loop for all clients; the delay is a timer. PushUp's way."""

from __future__ import annotations

import select
import socket
import time
from collections import deque

from loadtest.roussev.baselines import RESPONSE, command_line

EVENTS = 256
"""Maximum number of events handled per call of epoll."""


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    loop = _Loop(listener, delay)
    while True:
        loop.turn()


class _Loop:
    """The connected clients, and when each pending response is due."""

    def __init__(self, listener: socket.socket, delay: float) -> None:
        self._listener = listener
        self._delay = delay
        self._epoll = select.epoll()
        self._clients: dict[int, socket.socket] = {}
        self._due: deque[tuple[float, socket.socket]] = deque()
        """Sorted without effort, since every client waits equally long."""
        listener.setblocking(False)
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def turn(self) -> None:
        """Wait for the next event or due response, and handle everything that is ready."""
        wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        for fd, _ in self._epoll.poll(wait, EVENTS):
            client = self._clients.get(fd)
            if client is None:
                self._accept()
            else:
                self._read(client)
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            self._answer(self._due.popleft()[1])

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client has already disconnected
            return
        client.setblocking(False)
        self._clients[client.fileno()] = client
        self._epoll.register(client.fileno(), select.EPOLLIN)

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(1)
        except OSError:
            data = b""
        if data:
            self._due.append((time.monotonic() + self._delay, client))
        else:
            self._close(client)

    def _answer(self, client: socket.socket) -> None:
        if client.fileno() < 0:  # the client disconnected before its response was due
            return
        try:
            whole = client.send(RESPONSE) == len(RESPONSE)
        except OSError:
            whole = False
        if not whole:  # a new connection's send buffer holds 4,000 bytes; if not, the connection is broken
            self._close(client)

    def _close(self, client: socket.socket) -> None:
        del self._clients[client.fileno()]
        client.close()


if __name__ == "__main__":
    command_line.run(serve)
