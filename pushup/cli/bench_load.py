"""The load of `pushup bench`: clients that hold polls, and publishers, in one thread of this process.

They read no more of a response than they need to find its end, so that most of the processor is left for the server.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import deque
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple

CHANNEL = "bench"
"""What all polls wait for, each together with a channel of its own."""

QUIET = "bench:quiet"
"""A channel that nobody polls."""

POLL_SECONDS = 300
"""Longer than it all takes."""

WAIT_SECONDS = 20.0
"""How long a client waits at most."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n").search


class LoadError(Exception):
    """The server did not answer as it should."""


class _Client:
    """A connection, and what has arrived of a response."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Raises: LoadError, as all that follows."""
        try:
            self.socket = socket.create_connection(address, WAIT_SECONDS)
        except OSError as error:
            raise LoadError((error.strerror or str(error)).lower()) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.began_at = 0.0
        self._got = b""

    def send(self, request: bytes) -> None:
        try:
            self.socket.send(request)
        except OSError as error:
            raise LoadError(f"a connection broke: {error.strerror}") from None

    def has_response(self) -> bool:
        """Whether a whole response has arrived. It is an error if that is no success."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LoadError(f"a connection broke: {error.strerror}") from None
        if not data:
            raise LoadError("the server closed a connection")
        self._got += data
        head = self._got.find(b"\r\n\r\n")
        length = _LENGTH(self._got, 0, head + 2)
        if head < 0 or length is None or len(self._got) < head + 4 + int(length[1]):
            return False
        status, self._got = self._got[9:12], b""
        if status not in (b"200", b"201"):
            raise LoadError(f"the server answered with status {status.decode()}")
        return True


class HeldPolls:
    """Clients that hold a poll each."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._selector = DefaultSelector()
        self._clients: list[_Client] = []
        self.stopped_by = ""
        """Why there are no more; empty if there are as many as were wanted."""

    def open(self, most: int, deadline: float) -> int:
        """Hold more polls, up to `most` or until `deadline`; returns how many there are."""
        while len(self._clients) < most and not self.stopped_by:
            try:
                client = _Client(self._address)
            except LoadError as error:  # no more ports, for example
                self.stopped_by = str(error)
                break
            self._clients.append(client)
            self._selector.register(client.socket, EVENT_READ, client)
            self._poll(len(self._clients) - 1)
            if time.monotonic() > deadline:
                self.stopped_by = "there was no more time"
        return len(self._clients)

    def _poll(self, number: int) -> None:
        target = f"/v1/poll?channel={CHANNEL}&channel={CHANNEL}:{number}&cursor=now&timeout={POLL_SECONDS}"
        self._clients[number].send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def fan_out(self) -> float:
        """How long it takes from a publication to the last answer of all polls. Raises: LoadError."""
        publisher = _Client(self._address)
        with publisher.socket:
            began = time.monotonic()
            publisher.send(publication(CHANNEL))
            self._wait_for_all()
            return time.monotonic() - began

    def _wait_for_all(self) -> None:
        left, deadline = len(self._clients), time.monotonic() + WAIT_SECONDS
        while left:
            events = self._selector.select(WAIT_SECONDS)
            left -= sum(key.data.has_response() for key, _ in events)
            if time.monotonic() > deadline:
                raise LoadError(f"{left} polls were not answered within {WAIT_SECONDS:g} s")

    def poll_again(self) -> None:
        for number in range(len(self._clients)):
            self._poll(number)

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._selector.close()


class Published(NamedTuple):
    """What publishers have measured."""

    per_second: float
    seconds: list[float]
    """How long each publication took, sorted."""
    cores: float
    """How many cores this process used while it published."""

    def percentile(self, share: float) -> float:
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def publication(channel: str) -> bytes:
    """A request that publishes 100 bytes."""
    body = json.dumps({"channels": [channel], "data": "x" * 100})
    return (
        f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def publish(address: tuple[str, int], seconds: float, connections: int, rate: float | None = None) -> Published:
    """Publish for some time, on a channel that nobody polls.

    Without a `rate`, each connection publishes again as soon as it has an answer. With one, publications are due at
    fixed times, and each takes from when it was due: one that had to wait for a connection counts with its wait.
    Raises: LoadError.
    """
    request = publication(QUIET)
    took: list[float] = []
    with DefaultSelector() as selector:
        clients = [_Client(address) for _ in range(connections)]
        try:
            for client in clients:
                selector.register(client.socket, EVENT_READ, client)
            free = deque(clients)
            began, used = time.monotonic(), time.process_time()
            end, due = began + seconds, began
            while (now := time.monotonic()) < end or len(free) < connections:
                while free and now < end and due <= now:
                    client = free.popleft()
                    client.began_at = now if rate is None else due
                    due += 0.0 if rate is None else 1 / rate
                    client.send(request)
                for key, _ in selector.select(max(0.0, min(due - now, 1.0)) if free and now < end else WAIT_SECONDS):
                    if key.data.has_response():
                        took.append(time.monotonic() - key.data.began_at)
                        free.append(key.data)
                if now > end + WAIT_SECONDS:
                    raise LoadError(f"a publication was not answered within {WAIT_SECONDS:g} s")
            passed = time.monotonic() - began
            return Published(len(took) / passed, sorted(took), (time.process_time() - used) / passed)
        finally:
            for client in clients:
                client.socket.close()
