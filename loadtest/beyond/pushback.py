"""Do others notice a publisher that sends far more than the server can do, and what is it told?

A backend publishes at a constant rate to clients that hold a poll each, on a channel of its own. Then a flood comes
beside it: thousands of connections with many publications outstanding on each, by another key. Whatever is answered,
the flood sends again at once, also after a 503. Measured are the answers to the backend, and how long its messages take
to the clients: without the flood, while its first requests arrive all at once, and after that. The server should also
still have what the backend published.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import LOAD_CORE, Server, pin, running
from loadtest.reports.results import Figure, Progress, Table, Value, percentile

BACKEND, FLOOD = "backend-backend-backend", "flood-flood-flood-flood"

SETTINGS = {
    "PUSHUP_PUBLISH_KEYS": f"backend {BACKEND},flood {FLOOD}",
    "PUSHUP_RETENTION_BYTES": "16MiB",  # the flood could fill it in three seconds
}


FIRST_SECONDS = 3.0
"""Until the server has read the first requests of the flood, all of which arrive at once."""


class Sizes(NamedTuple):
    """`rate`: messages a second of the backend. The flood has so many `connections`, `depth` outstanding on each."""

    clients: int
    rate: int
    connections: int
    depth: int
    seconds: float


FULL = Sizes(clients=1000, rate=200, connections=2500, depth=20, seconds=20.0)
QUICK = Sizes(clients=100, rate=100, connections=100, depth=20, seconds=2.0)

COLUMNS = (
    "flood", "messages", "delivered", "answer p50 ms", "answer p99 ms", "delivery p50 ms", "delivery p99 ms",
    "of the flood 201", "503",
)  # fmt: skip


class Backend:
    """The publisher whose messages matter, and the clients that wait for them."""

    def __init__(self, server: Server, sizes: Sizes) -> None:
        self._server = server
        self._sizes = sizes
        self._loop = Loop()
        self._chance = random.Random(2026)  # noqa: S311
        self._publishers = [Connection(self._loop, server.address, self._accepted) for _ in range(sizes.rate)]
        self._sent: dict[Connection, float] = {}
        self.published: dict[str, list[int]] = {}
        self.answers: list[float] = []
        self.deliveries: list[float] = []
        self._next = 0.0
        self._end = 0.0
        for number in range(sizes.clients):
            self._follow(f"c{number}")

    def run(self, seconds: float) -> None:
        """Publish at the constant rate for so long, and wait for a second more."""
        self.answers.clear()
        self.deliveries.clear()
        self._next = time.time()
        self._end = self._next + seconds
        self._publish()
        self._loop.run_until(self._end + 1.0)

    def kept(self) -> tuple[int, int]:
        """How many of the messages are still there, and of how many."""
        found = 0

        def answered(_: Connection, status: int, body: bytes) -> None:
            nonlocal found
            assert status == 200, body
            found += len(json.loads(body)["messages"])

        for name in self.published:
            Connection(self._loop, self._server.address, answered).get(f"/v1/poll?timeout=0&channel={name}")
        self._loop.run_until(time.time() + 3.0)
        return found, sum(map(len, self.published.values()))

    def close(self) -> None:
        self._loop.close()

    def _publish(self) -> None:
        now = time.time()
        while self._next <= now and self._publishers:
            name = f"c{self._chance.randrange(self._sizes.clients)}"
            connection = self._publishers.pop()
            self._sent[connection] = self._next
            body = json.dumps({"channels": [name], "data": self._next})
            connection.post("/v1/messages", body.encode(), f"Authorization: Bearer {BACKEND}\r\n")
            self.published.setdefault(name, []).append(1)
            self._next += 1 / self._sizes.rate
        if now < self._end:
            self._loop.at(max(self._next, now + 0.0005), self._publish)

    def _accepted(self, connection: Connection, status: int, body: bytes) -> None:
        assert status == 201, body
        self.answers.append(time.time() - self._sent.pop(connection))
        self._publishers.append(connection)

    def _follow(self, name: str) -> None:
        target = f"/v1/poll?timeout=60&channel={name}"

        def answered(connection: Connection, status: int, body: bytes) -> None:
            assert status == 200, body
            answer = json.loads(body)
            now = time.time()
            self.deliveries.extend(now - message["data"] for message in answer["messages"])
            connection.get(f"{target}&cursor={answer['cursor']}")

        Connection(self._loop, self._server.address, answered).get(target)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(sizes: Sizes) -> tuple[list[Table], list[Figure]]:
    """A row without the flood, and two with it."""
    progress = Progress(3)
    rows: list[tuple[Value, ...]] = []
    with running(environment=SETTINGS) as server:
        backend = Backend(server, sizes)
        backend.run(1.0)
        backend.run(sizes.seconds)
        progress.step("without the flood")
        rows.append(("none", *_row(backend), "", ""))
        with _flood(server, sizes) as told:
            backend.run(FIRST_SECONDS)
            progress.step("while the flood begins")
            rows.append((f"{sizes.connections} x {sizes.depth} begins", *_row(backend), "", ""))
            backend.run(sizes.seconds)
        progress.step("with the flood")
        rows.append((f"{sizes.connections} x {sizes.depth}", *_row(backend), *told))
        kept, of = backend.kept()
        backend.close()
    progress.end()
    title = f"A flood beside {sizes.clients} clients; of the backend's messages, {kept} of {of} are still there"
    return [Table("pushback", title, COLUMNS, rows)], []


def _row(backend: Backend) -> tuple[Value, ...]:
    answers, deliveries = backend.answers, backend.deliveries
    shares = [round(1e3 * percentile(times, share), 2) for times in (answers, deliveries) for share in (0.5, 0.99)]
    return len(answers), len(deliveries), *shares


@contextmanager
def _flood(server: Server, sizes: Sizes) -> Iterator[list[int]]:
    """Flood the server from another process; at the end, the list has how many were accepted, and how many refused."""
    command = [sys.executable, "-m", __name__, server.host, *map(str, (server.port, sizes.connections, sizes.depth))]
    flood = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert flood.stdout is not None
    told: list[int] = []
    try:
        flood.stdout.readline()  # it is connected
        yield told
        told.extend(json.loads(flood.communicate(timeout=30)[0]))
    finally:
        flood.kill()
        flood.wait()


def _main(host: str, port: int, connections: int, depth: int) -> None:
    """The process of the flood: ends when its input does."""
    os.nice(10)  # what it costs the server counts, not what it takes from the backend
    loop = Loop()
    body = json.dumps({"channels": ["flood"], "data": "x" * 100}).encode()
    counts = {201: 0, 503: 0}

    def post(connection: Connection) -> None:
        connection.post("/v1/messages", body, f"Authorization: Bearer {FLOOD}\r\n")

    def answered(connection: Connection, status: int, _: bytes) -> None:
        counts[status] += 1
        post(connection)

    opened = [Connection(loop, (host, port), answered) for _ in range(connections)]
    _tell("connected")
    for connection in opened:
        for _ in range(depth):
            post(connection)
    stdin = _Stdin(loop)
    loop.watch(stdin)  # type: ignore[arg-type]
    loop.run_until(time.time() + 300)
    _tell(json.dumps([counts[201], counts[503]]))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class _Stdin:
    """Ends the loop when the input ends."""

    def __init__(self, loop: Loop) -> None:
        self.socket = sys.stdin
        self.read = loop.stop


if __name__ == "__main__":
    pin(0, LOAD_CORE)
    _main(sys.argv[1], *map(int, sys.argv[2:]))
