"""Hsu §5.2, Figures 14 and 15: while one client's link is blocked for T seconds, how long do others wait for messages?

The paper replays a game server's log: 300 players, 28,573 messages in and 142,570 out in ten minutes; from the 93rd
second on, nothing reaches client C1 for T seconds. The log was not published, so we generate traffic of the same size:
300 clients at 60 tables of five, and messages at random times, each to one table. A quarter of them go to C1's table,
and a message has 1.2 KB, so that C1's send buffer of 32 kB is full after about two seconds, as in the paper. C1
pipelines its polls, so that each message is written to it at once, as by a game server. C1's own response times are not
counted.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table

CLIENTS = 300
SEATS = 5
MESSAGES = 28_573
SECONDS = 600.0
BLOCKED_FROM = 93.0
BUSY_SHARE = 0.25
PAYLOAD = "x" * 1200
TOP = 100
SEED = 2005

C1_POLL = "/v1/poll?channel=table-0&cursor=now&timeout=60"
C1_RECEIVE_BUFFER_BYTES = 2048
C1_PIPELINE_SECONDS = 15
"""C1 pipelines enough polls for the messages of this time, which is longer than it is blocked."""

TIMES = (0, 1, 2, 3, 4, 6, 8, 10)


class Replay(NamedTuple):
    """A section of the traffic: seconds before C1 is blocked, and seconds in total."""

    before: float
    seconds: float


PAPER = Replay(BLOCKED_FROM, SECONDS)
QUICK = Replay(4.0, 18.0)

KINDS = {"output buffer": (), "plain writes": ("--plain-writes",)}

STEP_SECONDS = 0.25
"""Of Figure 14: the longest response time of the messages that were sent in each such step."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    """In full, two servers at a time: an hour and a half. `--quick`: all 16 at the same time, on one processor."""
    return measure(QUICK, TIMES, at_once=len(TIMES)) if quick else measure(PAPER, TIMES, at_once=1)


def measure(replay: Replay, times: Sequence[float], *, at_once: int) -> tuple[list[Table], list[Figure]]:
    """The average of the 100 worst response times by T, with and without the output buffer.

    `at_once`: how many values of T are measured at the same time, each with two servers.
    """
    progress = Progress(math.ceil(len(times) / at_once))
    games: dict[tuple[str, float], _Game] = {}
    for first in range(0, len(times), at_once):
        some = times[first : first + at_once]
        progress.step(f"{replay.seconds:g} s of traffic for each of {len(KINDS) * len(some)} servers")
        games |= _play(replay, some)
    progress.end()
    delays = {which: [delay for _, delay in game.responses] for which, game in games.items()}
    worst = {which: sum(sorted(values)[-TOP:]) / TOP for which, values in delays.items()}
    rows = [
        (blocked, *[value for kind in KINDS for value in (worst[kind, blocked], len(delays[kind, blocked]))])
        for blocked in times
    ]
    title = "Average of the 100 worst response times, one client's link blocked for T s (Hsu Figure 15)"
    columns = ("T s", "output buffer s", "output buffer responses", "plain writes s", "plain writes responses")
    lines = {kind: [(blocked, worst[kind, blocked]) for blocked in times] for kind in reversed(KINDS)}
    figure = Figure(
        "blocked-client", "One client's link is blocked", "blocked for T (s)", "100 worst response times (s)", lines
    )
    longest = max(times)
    timeline = Figure(
        "blocked-client-timeline",
        f"The link is blocked for {longest:g} s (Hsu Figure 14)",
        "since the link was blocked (s)",
        "longest response time (s)",
        {kind: _timeline(games[kind, longest].responses, replay.before, longest) for kind in reversed(KINDS)},
    )
    return [Table("blocked-client", title, columns, rows)], [figure, timeline]


def _play(replay: Replay, times: Sequence[float]) -> dict[tuple[str, float], _Game]:
    """The games for these T, at the same time, each on a server of its own."""
    games: dict[tuple[str, float], _Game] = {}
    loop = Loop()
    with ExitStack() as servers:
        for blocked in times:
            for kind, flags in KINDS.items():
                server = servers.enter_context(running(*flags, module="loadtest.hsu.blocked_client_server"))
                games[kind, blocked] = _Game(loop, server)
        start = time.time() + 1.0
        for (_, blocked), game in games.items():
            game.play(start, replay, blocked)
        loop.run_until(start + replay.seconds + 1.0)
        loop.close()
    return games


def _timeline(responses: Sequence[tuple[float, float]], blocked_at: float, blocked: float) -> list[tuple[float, float]]:
    """The longest response time of the messages of each step, from shortly before the link is blocked on."""
    found: dict[int, float] = {}
    for sent, delay in responses:
        step = math.floor((sent - blocked_at) / STEP_SECONDS)
        if -2 <= step * STEP_SECONDS <= blocked + 4:
            found[step] = max(found.get(step, 0.0), delay)
    return [(step * STEP_SECONDS, found[step]) for step in sorted(found)]


class _Game:
    """The 300 clients of one server, and their messages.

    `responses`: when each message was sent, in seconds from the start, and how long it took; without those to C1.
    """

    def __init__(self, loop: Loop, server: Server) -> None:
        self.responses: list[tuple[float, float]] = []
        self._start = 0.0
        self._loop = loop
        self._tables: dict[Connection, int] = {}
        for number in range(1, CLIENTS):
            client = Connection(loop, server.address, self._received)
            self._tables[client] = number // SEATS
            client.get(f"/v1/poll?channel=table-{number // SEATS}&cursor=now&timeout=60")
        self._c1 = Connection(loop, server.address, _poll_as_c1, receive_buffer_bytes=C1_RECEIVE_BUFFER_BYTES)
        for _ in range(int(C1_PIPELINE_SECONDS * BUSY_SHARE * MESSAGES / SECONDS)):
            self._c1.get(C1_POLL)
        self._publisher = Connection(loop, server.address, lambda client, status, body: None)

    def play(self, start: float, replay: Replay, blocked: float) -> None:
        """Schedule the traffic, and the blocking of C1's link."""
        self._start = start
        for moment, table in _traffic(replay.seconds):
            self._loop.at(start + moment, partial(self._publish, table))
        if blocked:
            self._loop.at(start + replay.before, lambda: self._loop.unwatch(self._c1))
            self._loop.at(start + replay.before + blocked, lambda: self._loop.watch(self._c1))

    def _publish(self, table: int) -> None:
        data = {"sent": time.time(), "text": PAYLOAD}
        self._publisher.post("/v1/messages", json.dumps({"channels": [f"table-{table}"], "data": data}).encode())

    def _received(self, client: Connection, status: int, body: bytes) -> None:
        now = time.time()
        answer = json.loads(body)
        client.get(f"/v1/poll?channel=table-{self._tables[client]}&cursor={answer['cursor']}&timeout=60")
        for message in answer["messages"]:
            sent = message["data"]["sent"]
            self.responses.append((sent - self._start, now - sent))


def _poll_as_c1(client: Connection, status: int, body: bytes) -> None:
    client.get(C1_POLL)


def _traffic(seconds: float) -> list[tuple[float, int]]:
    """The time of each message, in seconds from the start, and the table it goes to."""
    rng = random.Random(SEED)  # noqa: S311  # the same traffic each time
    tables = CLIENTS // SEATS
    return [
        (rng.uniform(0, seconds), 0 if rng.random() < BUSY_SHARE else rng.randrange(1, tables))
        for _ in range(int(MESSAGES * seconds / SECONDS))
    ]
