"""Hsu §5.2, Figure 15: one client's link is blocked for T seconds; how long do the messages of the others take?

The paper replays a game server's log: 300 players, 28,573 messages in and 142,570 out in ten minutes; from the 93rd
second on nothing reaches client C1 for T seconds. The log was not published. Ours has its numbers: 300 clients at 60
tables of five, messages at random moments, each to the five of a table. C1's table has a quarter of them, and a
message 1.2 KB, so that the 32 kB of C1's send buffer are full after about two seconds, as in the paper. C1 pipelines
its polls, so that each message to it is written at once, as a game server's is. Its own messages are not counted.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.epoll_client import Connection, Loop
from loadtest.results import Figure, Progress, Table
from loadtest.servers import Server, running

CLIENTS = 300
SEATS = 5
MESSAGES = 28_573
SECONDS = 600.0
BLOCKED_FROM = 93.0
BUSY_SHARE = 0.25
PAYLOAD = "x" * 1200
TOP = 100
SEED = 2005

C1_RECEIVE_BUFFER_BYTES = 2048
C1_PIPELINE_SECONDS = 15
"""C1 has polls under way for as many messages as come in this time: longer than it is blocked."""

TIMES = (0, 1, 2, 3, 4, 6, 8, 10)


class Replay(NamedTuple):
    """A part of the traffic: so many seconds before C1 is blocked, and after."""

    before: float
    after: float


PAPER = Replay(BLOCKED_FROM, SECONDS - BLOCKED_FROM - max(TIMES))
QUICK = Replay(4.0, 4.0)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else PAPER, TIMES)


def measure(replay: Replay, times: Sequence[float]) -> tuple[list[Table], list[Figure]]:
    """The average of the 100 worst response times, over T, with and without the output buffer."""
    rows = []
    progress = Progress(2 * len(times))
    for blocked in times:
        row: list[float] = [blocked]
        for name, flags in (("output buffer", ()), ("plain writes", ("--plain-writes",))):
            progress.step(f"{name}, blocked for {blocked} s")
            with running(*flags, module="loadtest.blocked_client_server") as server:
                responses = _replay(server, replay, blocked)
            row += [sum(sorted(responses)[-TOP:]) / TOP, len(responses)]
        rows.append(row)
    progress.end()
    title = "Average of the 100 worst response times, one client's link blocked for T s (Hsu Figure 15)"
    columns = ("T s", "output buffer s", "responses", "plain writes s", "responses ")
    table = Table("blocked-client", title, columns, rows)
    lines = {
        name: [(row[0], row[column]) for row in rows] for name, column in (("plain writes", 3), ("output buffer", 1))
    }
    figure = Figure(
        "blocked-client", "One client's link is blocked", "blocked for T (s)", "100 worst response times (s)", lines
    )
    return [table], [figure]


def _replay(server: Server, replay: Replay, blocked: float) -> list[float]:
    """All response times, in seconds, but C1's."""
    loop = Loop()
    responses: list[float] = []

    def received(client: Connection, status: int, body: bytes) -> None:
        now = time.time()
        answer = json.loads(body)
        table = tables[client]
        client.get(f"/v1/poll?channel=table-{table}&cursor={answer['cursor']}&timeout=60")
        responses.extend(now - message["data"]["sent"] for message in answer["messages"])

    def received_by_c1(client: Connection, status: int, body: bytes) -> None:
        client.get(c1_poll)

    tables: dict[Connection, int] = {}
    for number in range(1, CLIENTS):
        client = Connection(loop, server.address, received)
        tables[client] = number // SEATS
        client.get(f"/v1/poll?channel=table-{number // SEATS}&cursor=now&timeout=60")
    c1_poll = "/v1/poll?channel=table-0&cursor=now&timeout=60"
    c1 = Connection(loop, server.address, received_by_c1, receive_buffer_bytes=C1_RECEIVE_BUFFER_BYTES)
    for _ in range(int(C1_PIPELINE_SECONDS * BUSY_SHARE * MESSAGES / SECONDS)):
        c1.get(c1_poll)
    publisher = Connection(loop, server.address, lambda client, status, body: None)

    start = time.time() + 0.5
    end = start + replay.before + blocked + replay.after
    for moment, table in _traffic(end - start):
        loop.at(start + moment, lambda table=table: _publish(publisher, table))  # type: ignore[misc]
    if blocked:
        loop.at(start + replay.before, lambda: loop.unwatch(c1))
        loop.at(start + replay.before + blocked, lambda: loop.watch(c1))
    loop.run_until(end + 0.5)
    loop.close()
    return responses


def _traffic(seconds: float) -> list[tuple[float, int]]:
    """When a message is sent, and to which table."""
    chance = random.Random(SEED)  # noqa: S311  # the same traffic each time
    tables = CLIENTS // SEATS
    return [
        (chance.uniform(0, seconds), 0 if chance.random() < BUSY_SHARE else chance.randrange(1, tables))
        for _ in range(int(MESSAGES * seconds / SECONDS))
    ]


def _publish(publisher: Connection, table: int) -> None:
    data = {"sent": time.time(), "text": PAYLOAD}
    publisher.post("/v1/messages", json.dumps({"channels": [f"table-{table}"], "data": data}).encode())
