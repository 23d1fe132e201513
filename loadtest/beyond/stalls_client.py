"""The clients of `stalls`: they fill a server, and time its answers while something happens to it."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server

PUBLISHERS = 4
BATCH = 100
"""Messages in one publication; the default of `batch_limit`."""

EVERY_SECONDS = 0.01
"""How often a poll and a GET /healthz are sent; the next one only after the answer to the last."""

SETTLE_SECONDS = 2.5
"""How long to go on timing afterwards: a checkpoint is saved once a second."""

FILL_SECONDS = 120.0
"""How long to wait until everything is published."""

LIMIT_SECONDS = 60.0
"""How long to wait for what should happen."""

POLL = "/v1/poll?channel=beside&timeout=0"
"""A channel on which nobody publishes."""

DATA = "x" * 16


class Waits(NamedTuple):
    """The longest time to an answer, in seconds, of polls and of /healthz; how many there were; when it was done.

    `done_at`: by `time.perf_counter`.
    """

    poll: float
    health: float
    answers: int
    done_at: float


class Seen(NamedTuple):
    """One answer."""

    status: int
    body: bytes


IsDone = Callable[[Seen], bool]


def watch(server: Server, *, target: str, is_done: IsDone, act: Callable[[], None] | None = None) -> Waits:
    """Ask the server steadily until `is_done` accepts its answer to `target`, and for SETTLE_SECONDS more.

    `act` starts the situation to measure; it is called once the first requests are sent.
    Raises: RuntimeError after LIMIT_SECONDS, or if the server closes a connection.
    """
    loop = Loop()
    done_at = math.inf

    def check(seen: Seen) -> None:
        nonlocal done_at
        if done_at == math.inf and is_done(seen):
            done_at = time.perf_counter()
            loop.at(time.time() + SETTLE_SECONDS, loop.stop)

    poll, health = _Asking(loop, server, POLL), _Asking(loop, server, "/healthz")
    _Asking(loop, server, target, check)
    if act is not None:
        loop.at(time.time(), act)
    loop.run_until(time.time() + LIMIT_SECONDS)
    loop.close()
    if done_at == math.inf:
        raise RuntimeError(f"after {LIMIT_SECONDS:g} s it had not happened; GET {target} is what was asked")
    return Waits(poll.longest(), health.longest(), poll.count + health.count, done_at)


class _Asking:
    """Sends the same request again and again on one connection. `count`: of its answers."""

    def __init__(
        self, loop: Loop, server: Server, target: str, on_answer: Callable[[Seen], None] = lambda seen: None
    ) -> None:
        self.count = 0
        self._loop = loop
        self._target = target
        self._on_answer = on_answer
        self._longest = 0.0
        self._asked_at: float | None = None
        self._connection = Connection(loop, server.address, self._answered, ended=_closed)
        self._ask()

    def longest(self) -> float:
        """Of the answers, and of the wait for one that has not come yet."""
        waiting = 0.0 if self._asked_at is None else time.perf_counter() - self._asked_at
        return max(self._longest, waiting)

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        self._connection.get(self._target)

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        assert self._asked_at is not None
        took = time.perf_counter() - self._asked_at
        self._asked_at = None
        self._longest = max(self._longest, took)
        self.count += 1
        self._on_answer(Seen(status, body))
        self._loop.at(time.time() + max(0.0, EVERY_SECONDS - took), self._ask)


def fill(server: Server, channels: Sequence[str], count: int) -> None:
    """Publish `count` messages, each on one channel, in turn. Raises: RuntimeError."""
    firsts = range(0, count, BATCH)
    groups = ([[channels[n % len(channels)]] for n in range(first, min(first + BATCH, count))] for first in firsts)
    send_all(server, (("/v1/messages", publication(group)) for group in groups))


def publication(groups: Iterable[Sequence[str]], data: str = DATA) -> bytes:
    """The body of one publication: a message on each of these groups of channels."""
    messages = [{"channels": names, "data": data} for names in groups]
    return json.dumps({"messages": messages}, separators=(",", ":")).encode()


def close_together(server: Server, channels: Sequence[str], ttl: float) -> None:
    """Make open channels expire in the same whole second, about `ttl` seconds from now. Raises: RuntimeError."""
    body = json.dumps({"ttl": ttl}).encode()
    for _ in range(3):
        time.sleep(1 - time.time() % 1)
        answers = send_all(server, ((f"/v1/channels/{name}/renew", body) for name in channels))
        if len({math.ceil(json.loads(answer)["expires"]) for answer in answers}) == 1:
            return
    raise RuntimeError(f"renewing {len(channels)} channels takes longer than a second")


def send_all(server: Server, requests: Iterator[tuple[str, bytes]]) -> list[bytes]:
    """POST all these bodies to their targets, a few at a time, and return the answers.

    Raises: RuntimeError unless all succeed.
    """
    answers: list[bytes] = []
    loop = Loop()
    busy = PUBLISHERS

    def answered(connection: Connection, status: int, body: bytes) -> None:
        if status not in (200, 201):
            raise RuntimeError(f"the server answered {status}: {body.decode()}")
        answers.append(body)
        send(connection)

    def send(connection: Connection) -> None:
        nonlocal busy
        request = next(requests, None)
        if request is not None:
            connection.post(*request)
            return
        busy -= 1
        if not busy:
            loop.stop()

    for connection in [Connection(loop, server.address, answered, ended=_closed) for _ in range(PUBLISHERS)]:
        send(connection)
    loop.run_until(time.time() + FILL_SECONDS)
    loop.close()
    if busy:
        raise RuntimeError(f"the server did not take everything within {FILL_SECONDS:g} s")
    return answers


def _closed(connection: Connection) -> None:
    raise RuntimeError("the server closed a connection")


def get(server: Server, target: str) -> Seen:
    """One answer. Raises: OSError."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return Seen(response.status, response.read())
    finally:
        connection.close()
