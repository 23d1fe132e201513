"""PushUp §4.3, Figures 9 to 11: a thread for each connection, or events; 500 to 16,000 connections.

Measures server memory, mean trip time and received share of the multithreaded server (`thread_per_request`)
and of PushUp. All clients listen to one channel, with a message every two seconds. The load comes from the swarm:
locust has a greenlet per client and makes at most about 20,000 requests per second on a processor, so with 16,000
clients it would be the bottleneck. The table shows the swarm's own share of its processor, and warns near its limit.

When a server fails (it cannot start more threads, exits, or loses messages), the table says so, and the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil

from loadtest.load.servers import Server, running
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

CONNECTIONS = (500, 1000, 2000, 4000, 8000, 16000)

KINDS = {"threads": "loadtest.liu.thread_per_request", "events": "pushup"}

INTERVAL = 2.0
SECONDS = 30.0
QUICK_SECONDS = 6.0

SWARM_AT_ITS_LIMIT = 0.8
"""Share of its processor above which the swarm's own delays distort the times."""

COLUMNS = (
    "connections", "server", "memory MB", "% of the machine's", "memory KB a connection", "threads",
    "mean trip s", "p50 s", "p99 s", "max s", "received %", "server's us a delivery",
    "server's share of a processor", "swarm's share of its processor",
    "what was seen",
)  # fmt: skip


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(CONNECTIONS, interval=INTERVAL, seconds=QUICK_SECONDS if quick else SECONDS)


def measure(connections: Sequence[int], *, interval: float, seconds: float) -> tuple[list[Table], list[Figure]]:
    """Measure each kind of server with each number of connections; every measurement starts a new server."""
    progress = Progress(len(connections) * len(KINDS))
    rows: list[tuple[Value, ...]] = []
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {"memory": {}, "trip": {}, "received": {}}
    for number in connections:
        for kind, module in KINDS.items():
            progress.step(f"{number} connections, {kind}")
            with running(module=module) as server:
                row = measure_server(server, number, interval=interval, seconds=seconds)
            rows.append((number, kind, *row))
            for name, column in (("memory", 0), ("trip", 4), ("received", 8)):
                lines[name].setdefault(kind, []).append((number, float(row[column])))
    progress.end()
    title = "A thread for each connection, or events (PushUp Figures 9 to 11)"
    return [Table("threads-or-events", title, COLUMNS, rows)], [
        Figure("threads-or-events-memory", "Server memory (PushUp Figure 9)", "connections", "MB", lines["memory"]),
        Figure("threads-or-events-trip-time", "Mean trip time (PushUp Figure 10)", "connections", "s", lines["trip"]),
        Figure("threads-or-events-received", "Received (PushUp Figure 11)", "connections", "%", lines["received"]),
    ]


def measure_server(server: Server, connections: int, *, interval: float, seconds: float) -> tuple[Value, ...]:
    """Measure a server with this many connections; returns a row from the memory column on. A failure is a result."""
    bare = server.usage.memory_bytes()
    memory = threads = 0
    measured: Measured | None = None
    seen = []
    swarm = Swarm([server.address], [server.address], subscribers=connections, watched={"server": [server.pid]})
    try:
        swarm.begin()
        swarm.measure(interval=interval, seconds=interval)
        memory, threads = server.usage.memory_bytes(), server.usage.thread_count()
        measured = swarm.measure(interval=interval, seconds=seconds)
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
    summary = ", ".join(seen) or "all is well"
    return (
        memory / 1e6, _percent(memory), (memory - bare) / 1e3 / connections, threads,
        measured.mean_trip, measured.trip(0.5), measured.trip(0.99), max(measured.trips, default=0.0),
        100 * measured.received_share,
        1e6 * cpu / max(1, measured.delivered), cpu / measured.seconds, measured.own_cpu, summary,
    )  # fmt: skip


def _percent(memory: int) -> float:
    """Of this machine's memory, as in the paper's Figure 9."""
    return float(100 * memory / psutil.virtual_memory().total)
