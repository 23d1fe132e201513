"""Hsu §3.2: output that accumulates for one client, up to the limit of its buffer and beyond.

Client C1 follows an event stream and stops reading; messages go on, to it and to 50 other clients. The kernel's buffers
fill up, then the server's output buffer for C1 grows. In some runs C1 reads again before the buffer has reached its
limit (1 MB, as in the paper), in one it never does. We measure what the server's memory grows by (also for the messages
in its cache), whether the connection is closed and after how much output, how long the others wait, and whether C1 has
every message in the end: after its connection was closed it comes back with its cursor.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table, Value, percentile

OTHERS = 50
CHANNELS = 5
"""Of the others; a message goes to C1's and to one of these."""

PAYLOAD = "x" * 8_000
"""Small beside the limit, and large enough to reach it in a few seconds."""

RATE = 40.0
QUICK_RATE = 120.0
"""Messages a second."""

RECEIVE_BUFFER_BYTES = 2048
LIMIT_MB = 1.048576
"""`output_limit_bytes`, by default."""

RESUMES_MB = (0.25, 0.5, 0.9, None)
"""How much is published while C1 does not read; None: until its connection is closed, and a bit more."""

BEYOND_MB = 1.6
"""What is published if C1 never reads: enough to fill the kernel's buffers and the server's."""

Metrics = dict[str, float]


class Outcome(NamedTuple):
    """One run. Sizes in MB, times in seconds. `closed_after`: None if the connection stayed open.

    `had`: how many of the published messages C1 has in the end.
    """

    unread: float
    closed_after: float | None
    grew: float
    others: Sequence[float]
    published: int
    had: int
    repeated: int


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure((0.5, None), rate=QUICK_RATE) if quick else measure(RESUMES_MB, rate=RATE)


def measure(resumes: Sequence[float | None], *, rate: float) -> tuple[list[Table], list[Figure]]:
    """A run for each amount that C1 leaves unread."""
    progress = Progress(len(resumes))
    rows: list[tuple[Value, ...]] = []
    broken = []
    for amount in resumes:
        progress.step("C1 never reads again" if amount is None else f"C1 leaves {amount:g} MB unread")
        with running(module="loadtest.hsu.blocked_client_server") as server:
            one = _Run(server).play(amount, rate)
        if one.had < one.published or one.repeated:
            broken.append(f"C1 has {one.had} of {one.published} messages, {one.repeated} of them repeated")
        rows.append(
            (
                "never" if amount is None else f"after {amount:g} MB", one.unread,
                "-" if one.closed_after is None else one.closed_after, one.grew,
                1e3 * percentile(one.others, 0.5), 1e3 * max(one.others), one.published, one.had,
            )
        )  # fmt: skip
    progress.end()
    columns = (
        "C1 reads again", "MB published meanwhile", "connection closed after MB", "server's memory grew by MB",
        "others' p50 ms", "others' longest ms", "messages", "that C1 has",
    )  # fmt: skip
    title = f"An event stream whose client stops reading (Hsu §3.2; limit {LIMIT_MB:.2f} MB)"
    return [Table("growing-output", title, columns, rows, "\n".join(broken))], []


class _Run:
    """C1, the others and a publisher, at one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = Loop()
        self._found: list[Metrics] = []
        self._delays: list[float] = []
        self._numbers: list[int] = []
        self._cursor = ""
        self._published = 0
        self._publisher = Connection(self._loop, server.address, lambda connection, status, body: None)
        self._watcher = Connection(self._loop, server.address, self._measured)
        for number in range(OTHERS):
            self._poll_as_other(f"other-{number % CHANNELS}")
        self._c1 = self._follow("now")

    def play(self, amount: float | None, rate: float) -> Outcome:
        self._wait(0.5)
        self._publish(5, rate)
        before = self._server.usage.memory_bytes()
        self._loop.unwatch(self._c1)
        most, closed_after, unread = before, None, 0.0
        while unread < (BEYOND_MB if amount is None else amount):
            self._publish(1, rate)
            unread += len(PAYLOAD) / 1e6
            most = max(most, self._server.usage.memory_bytes())
            if closed_after is None and self._closed_outputs():
                closed_after = unread
        if closed_after is None:
            self._loop.watch(self._c1)
        else:
            self._c1.closed = True
            self._c1.socket.close()
            self._follow(self._cursor)
        self._wait(1.0)
        self._publish(5, rate)
        self._wait(1.0)
        self._loop.close()
        distinct = len(set(self._numbers))
        return Outcome(
            unread, closed_after, (most - before) / 1e6, self._delays, self._published, distinct,
            len(self._numbers) - distinct,
        )  # fmt: skip

    def _wait(self, seconds: float) -> None:
        self._loop.run_until(time.time() + seconds)

    def _publish(self, count: int, rate: float) -> None:
        """Publish one message after another, to C1's channel and to one of the others'."""
        for _ in range(count):
            self._published += 1
            channels = ["c1", f"other-{self._published % CHANNELS}"]
            data = [self._published, time.time(), PAYLOAD]
            self._publisher.post("/v1/messages", json.dumps({"channels": channels, "data": data}).encode())
            self._wait(1 / rate)

    def _follow(self, cursor: str) -> Connection:
        c1 = Connection(
            self._loop, self._server.address, _refused, receive_buffer_bytes=RECEIVE_BUFFER_BYTES
        )  # fmt: skip
        c1.stream(f"/v1/events?channel=c1&cursor={cursor}", self._streamed)
        return c1

    def _streamed(self, connection: Connection, event: bytes) -> None:
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
        self._cursor = fields.get(b"id", self._cursor.encode()).decode()
        if b"data" in fields and b"event" not in fields:
            self._numbers.append(json.loads(fields[b"data"])["data"][0])

    def _poll_as_other(self, channel: str) -> None:
        def received(connection: Connection, status: int, body: bytes) -> None:
            now = time.time()
            answer = json.loads(body)
            connection.get(f"/v1/poll?channel={channel}&cursor={answer['cursor']}&timeout=60")
            self._delays.extend(now - message["data"][1] for message in answer["messages"])

        Connection(self._loop, self._server.address, received).get(f"/v1/poll?channel={channel}&cursor=now&timeout=60")

    def _closed_outputs(self) -> float:
        """How many connections the server has closed because of their output."""
        self._found.clear()
        self._watcher.get("/metrics")
        self._wait(0.02)
        return self._found[0]["pushup_output_failures_total"] if self._found else 0.0

    def _measured(self, connection: Connection, status: int, body: bytes) -> None:
        lines = re.findall(r"^(\w+) ([\d.e+]+)$", body.decode(), re.MULTILINE)
        self._found.append({name: float(value) for name, value in lines})


def _refused(connection: Connection, status: int, body: bytes) -> None:
    raise RuntimeError(f"the stream was refused: {status} {body!r}")
