"""What a few busy connections cost beside thousands of idle ones, by how the server waits (PushUp §5.1).

This is the case of long polling: most clients wait. select and poll look at every descriptor in each call, epoll only
at those that are ready. In `experiment` all connections are busy, so nothing is looked at in vain. The server is the
reactor in C.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.libman.experiment import MESSAGE_BYTES
from loadtest.libman.runs import Kind, Run, measure_kind
from loadtest.reports.results import Figure, Progress, Table, Value, shown

BUSY = 10
WAITS = ("select", "poll", "epoll")


class Scale(NamedTuple):
    """`idle`: how many connections are idle."""

    idle: Sequence[int]
    seconds: float
    rounds: int


FULL = Scale((0, 100, 900, 3000, 10_000), 2.0, 5)
QUICK = Scale((0, 900, 5000), 0.3, 1)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Each way of waiting with each number of idle connections that it can have; medians of all rounds."""
    cases = [
        (idle, Kind("reactor", wait))
        for idle in scale.idle
        for wait in WAITS
        if Kind("reactor", wait).can_have(idle + BUSY)
    ]
    progress = Progress(scale.rounds * len(cases))
    runs: dict[tuple[int, Kind], list[Run]] = {}
    for turn in range(scale.rounds):
        for idle, kind in cases[:: -1 if turn % 2 else 1]:
            progress.step(f"{idle} idle connections, {kind.wait}")
            run = measure_kind(kind, BUSY, MESSAGE_BYTES, scale.seconds, native=True, idle=idle)
            runs.setdefault((idle, kind), []).append(run)
    progress.end()
    rows: list[tuple[Value, ...]] = []
    lines: dict[str, list[tuple[float, float]]] = {wait: [] for wait in WAITS}
    spreads: dict[str, list[tuple[float, float]]] = {wait: [] for wait in WAITS}
    failed = []
    for idle, kind in cases:
        good = [run for run in runs[idle, kind] if run.measured]
        failed += [f"{kind.wait}, {idle} idle: {run.problem}" for run in runs[idle, kind] if not run.measured]
        costs = [1e6 * run.cost for run in good] or [0.0]
        kernel = statistics.median([1e6 * run.kernel_cost for run in good] or [0.0])
        trip = statistics.median([1e6 * run.trip for run in good] or [0.0])
        seen = ", ".join(dict.fromkeys(run.problem for run in runs[idle, kind] if run.problem))
        spread = f"{shown(min(costs))} {shown(max(costs))}"
        rows.append((idle, BUSY, kind.wait, statistics.median(costs), spread, kernel, trip, seen or "all is well"))
        lines[kind.wait].append((idle, statistics.median(costs)))
        spreads[kind.wait].append((min(costs), max(costs)))
    columns = (
        "idle connections", "busy connections", "wait", "server's us a message", "from to", "in the kernel us",
        "response p50 us", "what was seen",
    )  # fmt: skip
    title = "A few busy connections beside idle ones"
    y = "us of processor time a message"
    return [
        Table("idle-connections", f"{title}; medians of {scale.rounds} (PushUp §5.1)", columns, rows, "\n".join(failed))
    ], [Figure("idle-connections", title, "idle connections", y, lines, spreads=spreads)]
