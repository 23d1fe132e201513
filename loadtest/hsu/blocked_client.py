"""Hsu §5.2, Figures 14 and 15: while one client's link is blocked for T seconds, how long do others wait for messages?

The paper replays a game server's log: 300 players, 28,573 messages in and 142,570 out in ten minutes; from the 93rd
second on, nothing reaches client C1 for T seconds. The log was not published, so we generate traffic of the same size:
300 clients at 60 tables of five, and messages at random times, each to one table. A quarter of them go to C1's table,
and a message has 1.2 KB, so that C1's send buffer of 32 kB is full after about two seconds, as in the paper. C1
pipelines its polls, so that each message is written to it at once, as by a game server. C1's own response times are not
counted.

How much traffic C1 has decides from which T on the others wait, and that was our choice. So a second part blocks C1 for
long with several shares of the messages, without the output buffer, and finds when the server stalls: the longest wait
is from then until the link works again. What C1's connection holds until then is the send buffer of the paper.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping, Sequence
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

END_OF_HEAD = b"\r\n\r\n"
C1_POLL = "/v1/poll?channel=table-0&cursor=now&timeout=60"
C1_RECEIVE_BUFFER_BYTES = 2048
C1_PIPELINE_SECONDS = 15
"""C1 pipelines enough polls for the messages of this time, which is longer than it is blocked."""

TIMES = (0, 2, 3, 6, 10)
"""Seconds for which the link is blocked."""


class Replay(NamedTuple):
    """A section of the traffic: seconds before C1 is blocked, and seconds in total."""

    before: float
    seconds: float


PAPER = Replay(BLOCKED_FROM, SECONDS)
QUICK = Replay(3.0, 15.0)
SWEEP = Replay(20.0, 35.0)
QUICK_SWEEP = Replay(2.0, 13.0)

KINDS = {"output buffer": (), "plain writes": ("--plain-writes",)}

SHARES = (0.125, 0.25, 0.5, 1.0)
QUICK_SHARES = (0.125, 0.5)
"""Of the messages that go to C1's table, in the second part."""

LONG_BLOCK = 10.0

PATIENCE_SECONDS = 60.0
"""How long the clients wait at the end for what has not come yet."""

STEP_SECONDS = 0.25
"""Of Figure 14: the longest response time of the messages that were sent in each such step."""


Traffic = Sequence[tuple[float, int]]
"""The time of each message, in seconds from the start, and the table it goes to."""


class Case(NamedTuple):
    """A game: which server, for how long C1's link is blocked, and the share of the messages for C1's table."""

    kind: str
    blocked: float
    share: float = BUSY_SHARE


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    """In full, four servers at a time. `--quick`: all at the same time, on one processor."""
    if quick:
        tables, figures = measure(QUICK, TIMES, at_once=len(TIMES))
        sweep = measure_threshold(QUICK_SWEEP, QUICK_SHARES, at_once=len(QUICK_SHARES))
    else:
        tables, figures = measure(PAPER, TIMES, at_once=2)
        sweep = measure_threshold(SWEEP, SHARES, at_once=2)
    return [*tables, sweep], figures


def measure(replay: Replay, times: Sequence[float], *, at_once: int) -> tuple[list[Table], list[Figure]]:
    """Figures 15 and 14: the average of the 100 worst response times by T, and response times over time.

    `at_once`: how many values of T are measured at the same time, each with two servers.
    """
    games = _play_in_turn(
        replay, [[Case(kind, blocked) for kind in KINDS] for blocked in times], at_once=at_once
    )  # fmt: skip
    delays = {case: [delay for _, delay in game.responses] for case, game in games.items()}
    worst = {case: game.longest() for case, game in games.items()}
    sent = len(_traffic(replay.seconds, BUSY_SHARE))
    rows = [
        (
            blocked,
            *[value for kind in KINDS for value in (worst[Case(kind, blocked)], len(delays[Case(kind, blocked)]))],
            sent,
        )
        for blocked in times
    ]
    title = "Average of the 100 worst response times, one client's link blocked for T s (Hsu Figure 15)"
    columns = (
        "T s", "output buffer s", "output buffer responses", "plain writes s", "plain writes responses", "messages in",
    )  # fmt: skip
    lines = {kind: [(blocked, worst[Case(kind, blocked)]) for blocked in times] for kind in reversed(KINDS)}
    figure = Figure(
        "blocked-client",
        "One client's link is blocked (Hsu Figure 15)",
        "blocked for T (s)",
        "100 worst response times (s)",
        lines,
    )
    most = max(times)
    over_time = {kind: _timeline(games[Case(kind, most)].responses, replay.before, most) for kind in reversed(KINDS)}
    timeline_title = f"The link is blocked for {most:g} s (Hsu Figure 14)"
    timeline = Figure(
        "blocked-client-timeline",
        timeline_title,
        "since the link was blocked (s)",
        "longest response time (s)",
        over_time,
    )
    timeline_table = Table(
        "blocked-client-timeline",
        timeline_title,
        ("server", "since the block s", "longest response s"),
        [(kind, *point) for kind, points in over_time.items() for point in points],
    )
    return [Table("blocked-client", title, columns, rows), timeline_table], [figure, timeline]


def measure_threshold(replay: Replay, shares: Sequence[float], *, at_once: int, blocked: float = LONG_BLOCK) -> Table:
    """By the share of the messages that C1 gets: how long its link can be blocked until the others wait."""
    cases = [[Case("plain writes", blocked, share)] for share in shares]
    games = _play_in_turn(replay, cases, at_once=at_once)
    rows = []
    for case, game in games.items():
        after = [delay for sent, delay in game.responses if sent >= replay.before]
        threshold = blocked - max(after, default=blocked)
        before, until = (
            sum(first <= moment < last for moment, table in _traffic(replay.seconds, case.share) if table == 0)
            for first, last in ((0.0, replay.before), (replay.before, replay.before + threshold))
        )
        kilobytes = game.c1_bytes / 1000
        rows.append((case.share, kilobytes / replay.before, threshold, kilobytes / max(1, before) * until))
    title = f"The link is blocked for {blocked:g} s, plain writes: when the others begin to wait (Hsu §5.2)"
    columns = ("C1's share of the messages", "KB a second to C1", "the others wait after s", "KB until then")
    return Table("blocked-client-threshold", title, columns, rows)


def _play_in_turn(replay: Replay, groups: Sequence[Sequence[Case]], *, at_once: int) -> dict[Case, Game]:
    """The games of all groups of cases, `at_once` groups at the same time."""
    progress = Progress(math.ceil(len(groups) / at_once))
    games: dict[Case, Game] = {}
    for first in range(0, len(groups), at_once):
        cases = [case for group in groups[first : first + at_once] for case in group]
        progress.step(f"{replay.seconds:g} s of traffic for each of {len(cases)} servers")
        traffic = {case: _traffic(replay.seconds, case.share) for case in cases}
        games |= play(replay, traffic)
    progress.end()
    return games


def play(replay: Replay, traffic: Mapping[Case, Traffic], clients: int = CLIENTS) -> dict[Case, Game]:
    """These games, at the same time, each on a server of its own."""
    games: dict[Case, Game] = {}
    loop = Loop()
    with ExitStack() as servers:
        for case, messages in traffic.items():
            server = servers.enter_context(running(*KINDS[case.kind], module="loadtest.hsu.blocked_client_server"))
            games[case] = Game(loop, server, messages, clients)
        start = time.time() + 1.0
        for case, game in games.items():
            game.play(start, replay, case.blocked)
        end = start + replay.seconds
        loop.run_until(end)
        while time.time() < end + PATIENCE_SECONDS and not all(game.is_over for game in games.values()):
            loop.run_until(time.time() + 0.1)
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


class Game:
    """The clients of one server, and their messages.

    `responses`: when each message was sent, in seconds from the start, and how long it took; without those to C1.
    `expected`: how many of these there are if nothing is lost. `c1_bytes`: what C1 received before it was blocked.
    """

    def __init__(self, loop: Loop, server: Server, traffic: Traffic, clients: int) -> None:
        self.responses: list[tuple[float, float]] = []
        self.expected = sum(SEATS - (table == 0) for _, table in traffic)
        self.c1_bytes = 0
        self._traffic = traffic
        self._blocked_at = math.inf
        self._start = 0.0
        self._loop = loop
        self._tables: dict[Connection, int] = {}
        for number in range(1, clients):
            client = Connection(loop, server.address, self._received)
            self._tables[client] = number // SEATS
            client.get(f"/v1/poll?channel=table-{number // SEATS}&cursor=now&timeout=60")
        self._c1 = Connection(loop, server.address, self._c1_received, receive_buffer_bytes=C1_RECEIVE_BUFFER_BYTES)
        to_c1 = [moment for moment, table in traffic if table == 0]
        for _ in range(int(C1_PIPELINE_SECONDS * len(to_c1) / max(to_c1))):
            self._c1.get(C1_POLL)
        self._publisher = Connection(loop, server.address, lambda client, status, body: None)

    @property
    def is_over(self) -> bool:
        """Whether everybody has received everything."""
        return len(self.responses) >= self.expected

    def longest(self) -> float:
        """The paper's metric: the mean of the 100 longest response times. What did not come counts as the longest."""
        delays = [delay for _, delay in self.responses] + [PATIENCE_SECONDS] * (self.expected - len(self.responses))
        return sum(sorted(delays)[-TOP:]) / TOP

    def play(self, start: float, replay: Replay, blocked: float) -> None:
        """Schedule the traffic, and the blocking of C1's link."""
        self._start = start
        self._blocked_at = start + replay.before
        for moment, table in self._traffic:
            self._loop.at(start + moment, partial(self._publish, table))
        if blocked:
            self._loop.at(start + replay.before, lambda: self._loop.unwatch(self._c1))
            self._loop.at(start + replay.before + blocked, lambda: self._loop.watch(self._c1))

    def _publish(self, table: int) -> None:
        data = {"sent": time.time(), "text": PAYLOAD}
        self._publisher.post("/v1/messages", json.dumps({"channels": [f"table-{table}"], "data": data}).encode())

    def _c1_received(self, client: Connection, status: int, body: bytes) -> None:
        client.get(C1_POLL)
        if self._start and time.time() < self._blocked_at:
            self.c1_bytes += len(client.head) + len(END_OF_HEAD) + len(body)

    def _received(self, client: Connection, status: int, body: bytes) -> None:
        now = time.time()
        answer = json.loads(body)
        client.get(f"/v1/poll?channel=table-{self._tables[client]}&cursor={answer['cursor']}&timeout=60")
        for message in answer["messages"]:
            sent = message["data"]["sent"]
            self.responses.append((sent - self._start, now - sent))


def _traffic(seconds: float, share: float) -> Traffic:
    """Messages at random times; `share`: of C1's table."""
    rng = random.Random(SEED)  # noqa: S311  # the same traffic each time
    tables = CLIENTS // SEATS
    return [
        (rng.uniform(0, seconds), 0 if rng.random() < share else rng.randrange(1, tables))
        for _ in range(int(MESSAGES * seconds / SECONDS))
    ]
