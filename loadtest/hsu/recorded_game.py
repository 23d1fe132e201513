"""Hsu §5.1 and §5.2 with 1,000 players: a game is played and recorded, and its messages are then replayed.

In one of the paper's game servers there are up to 1,000 players. Here they sit at tables of five and move in turn: who
has received the move before theirs thinks for a while, and sends the next one to the table. On average, each player
sends as many messages as in the paper's log. The record has the time of each message and its table. It is then replayed
at those times, as in the paper, to a server with the output buffer and to one with plain writes, with C1's link blocked
and without. C1's table moves quickly, so that C1's send buffer of 32 kB is full after about two seconds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from loadtest.hsu.blocked_client import (
    CLIENTS,
    KINDS,
    MESSAGES,
    PAYLOAD,
    SEATS,
    SECONDS,
    SEED,
    Case,
    Game,
    Replay,
    Traffic,
    play,
)
from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table, Value, shown

PLAYERS = 1000
MOVE_SECONDS = SECONDS * CLIENTS / MESSAGES / SEATS
"""Between two moves at a table, on average, so that each player sends as much as in the paper's log."""

C1S_MOVE_SECONDS = 0.05
"""At C1's table, which then gets up to 24 KB a second."""


class Scale(NamedTuple):
    """`blocked`: the seconds for which C1's link is blocked in the replays."""

    players: int
    replay: Replay
    blocked: Sequence[float]
    rounds: int


FULL = Scale(PLAYERS, Replay(before=93.0, seconds=180.0), (0.0, 10.0), 3)
QUICK = Scale(PLAYERS, Replay(before=3.0, seconds=15.0), (0.0, 8.0), 1)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Record one game, and replay it in each case; medians of all rounds."""
    progress = Progress(1 + scale.rounds)
    progress.step(f"{scale.players} players, {scale.replay.seconds:g} s")
    traffic = record(scale.players, scale.replay.seconds)
    cases = {Case(kind, blocked): traffic for blocked in scale.blocked for kind in KINDS}
    found: dict[Case, list[Game]] = {}
    for _ in range(scale.rounds):
        progress.step(f"the same again, for each of {len(cases)} servers")
        for case, game in play(scale.replay, cases, scale.players).items():
            found.setdefault(case, []).append(game)
    progress.end()
    rows: list[tuple[Value, ...]] = []
    for case, games in found.items():
        worst = [game.longest() for game in games]
        expected = games[0].expected
        received = 100 * min(len(game.responses) for game in games) / expected
        spread = f"{shown(min(worst))} {shown(max(worst))}"
        rows.append((scale.players, case.blocked, case.kind, len(traffic), expected, received, median(worst), spread))
    title = f"A recorded game with {scale.players:,} players, replayed; C1 blocked for T s; medians of {scale.rounds}"
    columns = (
        "players", "T s", "server", "messages in", "messages out", "received %", "100 longest s",
        "100 longest s, from to",
    )  # fmt: skip
    return [Table("recorded-game", f"{title} (Hsu §5)", columns, rows)], []


def record(players: int, seconds: float) -> Traffic:
    """Play a game, and return its messages."""
    loop = Loop()
    with running() as server:
        game = _Live(loop, server, players)
        start = time.time() + 1.0
        game.play(start, seconds)
        loop.run_until(start + seconds + 1.0)
        loop.close()
    return game.messages


class _Live:
    """Players who move in turn, each after having received the move before. `messages`: the record."""

    def __init__(self, loop: Loop, server: Server, players: int) -> None:
        self.messages: list[tuple[float, int]] = []
        self._loop = loop
        self._start = self._end = 0.0
        self._rng = random.Random(SEED)  # noqa: S311  # players who think as long each time
        self._players: dict[Connection, int] = {}
        for number in range(players):
            player = Connection(loop, server.address, self._received)
            self._players[player] = number
            player.get(f"/v1/poll?channel=table-{number // SEATS}&cursor=now&timeout=60")
        self._publisher = Connection(loop, server.address, lambda client, status, body: None)

    def play(self, start: float, seconds: float) -> None:
        self._start, self._end = start, start + seconds
        for table in range(len(self._players) // SEATS):
            self._loop.at(start + self._thinking(table), partial(self._move, table, 0))

    def _thinking(self, table: int) -> float:
        return self._rng.expovariate(1 / (C1S_MOVE_SECONDS if table == 0 else MOVE_SECONDS))

    def _move(self, table: int, seat: int) -> None:
        now = time.time()
        if now < self._end:
            self.messages.append((now - self._start, table))
            move = {"channels": [f"table-{table}"], "data": {"by": seat, "text": PAYLOAD}}
            self._publisher.post("/v1/messages", json.dumps(move).encode())

    def _received(self, player: Connection, status: int, body: bytes) -> None:
        table, seat = divmod(self._players[player], SEATS)
        answer = json.loads(body)
        player.get(f"/v1/poll?channel=table-{table}&cursor={answer['cursor']}&timeout=60")
        for message in answer["messages"]:
            if (message["data"]["by"] + 1) % SEATS == seat:
                self._loop.at(time.time() + self._thinking(table), partial(self._move, table, seat))
