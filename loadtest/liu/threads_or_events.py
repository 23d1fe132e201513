"""PushUp §4.3, Figures 9 to 11: threads, or events; 500 to 16,000 connections.

Measures server memory, mean trip time and received share of the multithreaded server (`thread_per_request`), with a
thread for each connection and with one for each request, and of PushUp. All clients listen to one channel, with a
message every two seconds. Then one every half second, which is more than threads can deliver to many: there messages do
not arrive in time. Last, messages come more and more often to as many clients, until each server loses some. Each
measurement is repeated with new servers, the kinds in turn; tables have medians.

The load comes from the swarm: locust has a greenlet per client and makes at most about 20,000 requests per second on a
processor, so with 16,000 clients it would be the bottleneck. The table shows the swarm's own share of its processor,
and warns near its limit.

When a server fails (it cannot start more threads, exits, or loses messages), the table says so, and the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import psutil

from loadtest.load.servers import Server, running
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value, shown

CONNECTIONS = (500, 1000, 2000, 4000, 8000, 16000)

THREADS = "loadtest.liu.thread_per_request"
KINDS = {
    "threads": (THREADS, "--thread-for", "connection"),
    "threads for requests": (THREADS, "--thread-for", "request"),
    "events": ("pushup",),
}
"""A module with its flags, by the name that tables and figures have for it."""

INTERVAL = 2.0
OVERLOAD_INTERVAL = 0.5
"""32,000 deliveries a second to 16,000: more than threads manage, and two thirds of what the swarm does."""

LOSS_CONNECTIONS = 16_000
LOSS_INTERVALS = (4.0, 2.0, 1.0, 0.5, 0.25)
"""The last are 64,000 deliveries a second, about as many as the swarm can take. A poll brings all that it has missed,
so a message is lost only if a turn through all polls takes some seconds. With fewer connections it does not."""

WARM_UP_SECONDS = 0.1
"""Time for one message, before anything is measured."""

WARM_UP_DRAIN_SECONDS = 30.0
"""For so long it may take to come: else measuring begins with a backlog."""

IN_TIME_SECONDS = 5.0
"""What has not arrived so long after the last message was due counts as not received."""

SWARM_AT_ITS_LIMIT = 0.8
"""Share of its processor above which the swarm's own delays distort the times."""

ALL_IS_WELL = "all is well"

COLUMNS = (
    "connections", "server", "memory MB", "% of the machine's", "memory KB a connection", "threads",
    "mean trip s", "p50 s", "p99 s", "max s", "received %", "server's us a delivery",
    "server's share of a processor", "swarm's share of its processor",
    "what was seen",
)  # fmt: skip
RECEIVED = COLUMNS.index("received %") - 2
"""In what `measure_server` returns."""

SPREAD = ("mean trip s", "received %", "server's us a delivery")
"""Columns of which the table also has the least and the greatest value."""


class Scale(NamedTuple):
    """How much to measure. `seconds`: of messages in each measurement; `rounds`: how often it is repeated.

    The last part has `loss_connections`, and as many seconds and rounds as the one with `overload`.
    """

    connections: Sequence[int]
    seconds: float
    rounds: int
    overload: Sequence[int]
    overload_seconds: float
    overload_rounds: int
    loss_connections: int
    loss_intervals: Sequence[float]


FULL = Scale(CONNECTIONS, 6.0, 5, (2000, 4000, 8000, 16000), 6.0, 3, LOSS_CONNECTIONS, LOSS_INTERVALS)
QUICK = Scale((500, 2000), 2.0, 1, (8000,), 2.0, 1, 2000, (1.0, 0.0625))


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure_all(QUICK if quick else FULL)


def measure_all(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Figures 9 to 11, Figure 11 with more messages than threads can deliver, and with more and more messages."""
    table, (memory, trip, received) = measure(
        scale.connections, interval=INTERVAL, seconds=scale.seconds, rounds=scale.rounds
    )
    overload, (_, _, lost) = measure(
        scale.overload, interval=OVERLOAD_INTERVAL, seconds=scale.overload_seconds, rounds=scale.overload_rounds,
        name="threads-or-events-overload",
    )  # fmt: skip
    loss, until_lost = measure_loss(
        scale.loss_connections, scale.loss_intervals, seconds=scale.overload_seconds, rounds=scale.overload_rounds
    )
    return [table, overload, loss], [memory, trip, received, lost, until_lost]


def measure_loss(connections: int, intervals: Sequence[float], *, seconds: float, rounds: int) -> tuple[Table, Figure]:
    """Each kind of server with a message at each of these intervals, and the share of them that arrives."""
    found = _in_rounds([(connections, interval) for interval in intervals], seconds, rounds)
    rows = [
        (connections / interval, number, kind, *_summary(of_rounds))
        for (number, interval, kind), of_rounds in found.items()
    ]
    lines: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    spreads: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for (_, interval, kind), of_rounds in found.items():
        shares = [float(row[RECEIVED]) for row in of_rounds]
        lines[kind].append((connections / interval, median(shares)))
        spreads[kind].append((min(shares), max(shares)))
    title = f"More and more messages to {connections:,} clients; medians of {rounds} (PushUp Figure 11)"
    columns = ("due a second", *COLUMNS, *(f"{column}, from to" for column in SPREAD))
    name = "threads-or-events-loss"
    return Table(name, title, columns, rows), Figure(
        name, f"Received, {connections:,} connections (PushUp Figure 11)", "deliveries due a second", "%", lines,
        spreads=spreads,
    )  # fmt: skip


def _in_rounds(
    loads: Sequence[tuple[int, float]], seconds: float, rounds: int
) -> dict[tuple[int, float, str], list[tuple[Value, ...]]]:
    """The rows of each load (connections and interval) and kind, one for each round."""
    progress = Progress(rounds * len(loads) * len(KINDS))
    found: dict[tuple[int, float, str], list[tuple[Value, ...]]] = {
        (number, interval, kind): [] for number, interval in loads for kind in KINDS
    }
    for turn in range(rounds):
        for number, interval in loads:
            for kind in [*KINDS][:: -1 if turn % 2 else 1]:
                progress.step(f"{number} connections, {kind}, a message every {interval:g} s")
                module, *flags = KINDS[kind]
                with running(*flags, module=module) as server:
                    row = measure_server(server, number, interval=interval, seconds=seconds)
                found[number, interval, kind].append(row)
    progress.end()
    return found


def measure(
    connections: Sequence[int], *, interval: float, seconds: float, rounds: int = 1, name: str = "threads-or-events"
) -> tuple[Table, list[Figure]]:
    """Each kind of server with each number of connections; the table has the medians of all rounds."""
    by_load = _in_rounds([(number, interval) for number in connections], seconds, rounds)
    found = {(number, kind): of_rounds for (number, _, kind), of_rounds in by_load.items()}
    rows = [(number, kind, *_summary(found[number, kind])) for number in connections for kind in KINDS]

    def figure(what: str, title: str, column: str, y: str) -> Figure:
        lines = {
            kind: [(float(row[0]), float(row[COLUMNS.index(column)])) for row in rows if row[1] == kind]
            for kind in KINDS
        }
        at = COLUMNS.index(column) - 2
        rounds_of = {case: of_rounds if at == RECEIVED else _worked(of_rounds) for case, of_rounds in found.items()}
        each = {case: [float(row[at]) for row in of_rounds] for case, of_rounds in rounds_of.items()}
        spreads = {kind: [(min(each[n, kind]), max(each[n, kind])) for n in connections] for kind in KINDS}
        title = f"{title}, a message every {interval:g} s"
        return Figure(f"{name}-{what}", title, "connections", y, lines, spreads=spreads)

    title = f"Threads, or events; a message every {interval:g} s; medians of {rounds} (PushUp Figures 9 to 11)"
    columns = (*COLUMNS, *(f"{column}, from to" for column in SPREAD))
    return Table(name, title, columns, rows), [
        figure("memory", "Server memory (PushUp Figure 9)", "memory MB", "MB"),
        figure("trip-time", "Mean trip time (PushUp Figure 10)", "mean trip s", "s"),
        figure("received", "Received (PushUp Figure 11)", "received %", "%"),
    ]


def _worked(rounds: Sequence[tuple[Value, ...]]) -> Sequence[tuple[Value, ...]]:
    """The rounds in which the server did not give up: its zeros would be the best times and costs."""
    return [row for row in rounds if row[RECEIVED]] or rounds


def _summary(rounds: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
    """The median of each column, everything that was seen, and the spread of some columns."""
    worked = [row[:-1] for row in _worked(rounds)]
    columns = [[float(value) for value in values] for values in zip(*worked, strict=True)]
    columns[RECEIVED] = [float(row[RECEIVED]) for row in rounds]
    seen = [str(row[-1]) for row in rounds if row[-1] != ALL_IS_WELL]
    spreads = [columns[COLUMNS.index(name) - 2] for name in SPREAD]
    return (
        *(median(values) for values in columns),
        "; ".join(dict.fromkeys(seen)) or ALL_IS_WELL,
        *(f"{shown(min(values))} {shown(max(values))}" for values in spreads),
    )


def measure_server(server: Server, connections: int, *, interval: float, seconds: float) -> tuple[Value, ...]:
    """Measure a server with this many connections; returns a row from the memory column on. A failure is a result."""
    bare = server.usage.memory_bytes()
    memory = threads = 0
    measured: Measured | None = None
    seen = []
    swarm = Swarm([server.address], [server.address], subscribers=connections, watched={"server": [server.pid]})
    try:
        swarm.begin()
        swarm.measure(interval=interval, seconds=WARM_UP_SECONDS, drain=WARM_UP_DRAIN_SECONDS)
        memory, threads = server.usage.memory_bytes(), server.usage.thread_count()
        last = interval * (max(1, round(seconds / interval)) - 1)
        measured = swarm.measure(interval=interval, seconds=seconds, drain=max(0.0, last + IN_TIME_SECONDS - seconds))
        # The most of both moments: while polls come back, not each has a thread yet.
        memory, threads = max(memory, server.usage.memory_bytes()), max(threads, server.usage.thread_count())
    except (OSError, RuntimeError, psutil.Error) as error:
        seen.append(f"the server gave up: {error}")
    finally:
        with suppress(OSError):
            swarm.close()
    if measured is None:
        return (memory / 1e6, _percent(memory), 0.0, threads, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ", ".join(seen))
    if measured.reconnected:
        seen.append(f"{measured.reconnected} connections were ended")
    if measured.refused:
        seen.append(f"{measured.refused} publications were refused")
    if measured.delivered < measured.expected:
        seen.append(f"{measured.expected - measured.delivered} messages did not arrive")
    if measured.repeated or measured.out_of_order or measured.gaps:
        seen.append(f"{measured.repeated} repeated, {measured.out_of_order} out of order, {measured.gaps} gaps")
    if measured.own_cpu > SWARM_AT_ITS_LIMIT:
        seen.append("the swarm is at its limit, which distorts the results")
    cpu = measured.cpu["server"]
    summary = ", ".join(seen) or ALL_IS_WELL
    return (
        memory / 1e6, _percent(memory), (memory - bare) / 1e3 / connections, threads,
        measured.mean_trip, measured.trip(0.5), measured.trip(0.99), max(measured.trips, default=0.0),
        100 * measured.received_share,
        1e6 * cpu / max(1, measured.delivered), cpu / measured.seconds, measured.own_cpu, summary,
    )  # fmt: skip


def _percent(memory: int) -> float:
    """Of this machine's memory, as in the paper's Figure 9."""
    return float(100 * memory / psutil.virtual_memory().total)
