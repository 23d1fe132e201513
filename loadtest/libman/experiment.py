"""Libman & Gilbourd: reactor, emulated and true proactor under a stream of messages, in Python and with PushUp's own.

The server echoes on one core; the client streams fixed-size messages over N connections on the others. The paper charts
bits per second over 1 to 10,000 connections, but its text has no numbers, not even the size of a message, so only its
words can be compared: `claims` has them. Each number of connections is measured with all kinds of server one after the
other, in rounds that alternate their order, each with a new process. Ratios are taken within a round.

With --quick there is one short round, with at most 1,000 connections.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from loadtest.libman.claims import table_of_claims
from loadtest.libman.runs import AIO, BEST, PUSHUP, SYNCH, URING, Kind, Run, Runs, kinds, measure_kind
from loadtest.reports.results import Figure, Progress, Table, Value

MESSAGE_BYTES = 1024
"""The paper says "arbitrary fixed sized messages"."""


WAITS_OF_SIZES = (BEST.wait, URING.wait, "signal")
"""Of the servers that also echo messages of other sizes."""

SECONDS_A_CONNECTION = 6e-4
"""A measurement is at least this long, since a message then takes longer, too: with 10,000 connections about 2 s."""


class Scale(NamedTuple):
    """How much to measure. `sizes`: of messages, with `connections_of_sizes` connections."""

    connections: Sequence[int]
    seconds: float
    rounds: int
    sizes: Sequence[int]
    connections_of_sizes: int

    def seconds_for(self, connections: int) -> float:
        return max(self.seconds, SECONDS_A_CONNECTION * connections)


FULL = Scale((1, 10, 100, 1000, 2000, 5000, 10_000), 2.0, 3, (64, 1024, 16_384, 65_536), 100)
QUICK = Scale((1, 1000), 0.4, 1, (64, 16_384), 100)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL, kinds(), "echo")


def measure(
    scale: Scale, kinds: Sequence[Kind], name: str, *, native: bool = False
) -> tuple[list[Table], list[Figure]]:
    """The kinds with all numbers of connections, some with other sizes of messages, and the claims.

    `name`: what the names of tables and figures begin with. `native`: of the servers in C.
    """
    measured = partial(measure_kind, native=native)
    plan = [(kind, number, MESSAGE_BYTES) for number in scale.connections for kind in in_rounds(kinds, number, scale)]
    by_size = [kind for kind in kinds if kind.wait in WAITS_OF_SIZES and not kind.threads]
    number = scale.connections_of_sizes
    plan_of_sizes = [(kind, number, size) for size in scale.sizes for kind in in_rounds(by_size, number, scale)]
    progress = Progress(len(plan) + len(plan_of_sizes))
    runs: dict[tuple[Kind, int], list[Run]] = {}
    for kind, number, size in plan:
        progress.step(f"{number} connections, {kind.name}")
        runs.setdefault((kind, number), []).append(measured(kind, number, size, scale.seconds_for(number)))
    sizes: dict[tuple[Kind, int], list[Run]] = {}
    for kind, number, size in plan_of_sizes:
        progress.step(f"messages of {size} bytes, {kind.name}")
        sizes.setdefault((kind, size), []).append(measured(kind, number, size, scale.seconds))
    progress.end()
    return [
        table_of_claims(runs, f"{name}-claims"),
        _table(name, f"Echo of {MESSAGE_BYTES} byte messages (Libman Figures 1 and 2)", runs),
        _table(f"{name}-sizes", f"Echo of other messages, {scale.connections_of_sizes} connections", sizes),
    ], _figures(runs, name)


def in_rounds(kinds: Sequence[Kind], connections: int, scale: Scale) -> list[Kind]:
    """Those that can have so many connections, once for each round, forwards and backwards in turn."""
    found = [kind for kind in kinds if kind.can_have(connections)]
    return [kind for turn in range(scale.rounds) for kind in found[:: -1 if turn % 2 else 1]]


COLUMNS = (
    "connections", "message bytes", "engine", "wait", "threads", "Mbit/s", "lowest", "highest", "server's us a message",
    "in the kernel us", "response p50 ms", "p99 ms", "server's share of its processor",
    "client's share of its processor", "messages a client's read", "what was seen",
)  # fmt: skip


def _table(name: str, title: str, runs: Runs) -> Table:
    rows: list[tuple[Value, ...]] = []
    broken: list[str] = []
    for (kind, _), rounds in sorted(runs.items(), key=lambda item: (item[1][0].connections, item[1][0].message_bytes)):
        first = rounds[0]
        good = [run for run in rounds if run.measured and run.measured.messages]
        problems = ", ".join(dict.fromkeys(run.problem for run in rounds if run.problem))
        broken += [f"{kind.name}, {first.connections} connections: {run.problem}" for run in rounds if not run.measured]
        rates = [run.bits_per_second / 1e6 for run in good] or [0.0]

        def middle(value: Callable[[Run], float], good: Sequence[Run] = good) -> float:
            return statistics.median([value(run) for run in good] or [0.0])

        rows.append((
            first.connections, first.message_bytes, kind.engine, kind.wait, kind.threads or "-",
            statistics.median(rates), min(rates), max(rates), 1e6 * middle(lambda run: run.cost),
            1e6 * middle(lambda run: run.kernel_cost), 1e3 * middle(lambda run: run.trip),
            1e3 * middle(lambda run: run.measured.trip(0.99) if run.measured else 0),
            middle(lambda run: run.cpu_seconds / run.measured.seconds if run.measured else 0),
            middle(lambda run: max(run.measured.shares) if run.measured else 0),
            middle(lambda run: run.measured.messages_a_read if run.measured else 0), problems or "all is well",
        ))  # fmt: skip
    return Table(name, title, COLUMNS, rows, "\n".join(broken))


def _figures(runs: Runs, name: str) -> list[Figure]:
    """Figure 1, one of each, as the paper names them; Figure 2, the strategies; what a message costs, also PushUp."""

    def lines(value: Callable[[Run], float], names: Mapping[Kind, str]) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for (kind, number), rounds in runs.items():
            good = [value(run) for run in rounds if run.measured and run.measured.messages]
            if kind in names and good:
                found.setdefault(names[kind], []).append((number, statistics.median(good)))
        return found

    every = {kind: kind.name for kind, _ in runs}
    emulated = {kind: name for kind, name in every.items() if kind.engine == "emulated" and not kind.threads}
    by_strategy = {
        SYNCH: SYNCH.name,
        Kind("reactor", BEST.wait): f"reactor, {BEST.wait}",
        **emulated,
        URING: URING.name,
        Kind(AIO, "signal"): f"{AIO}, signal",
    }
    ours = {kind: name for kind, name in every.items() if kind.engine == PUSHUP or kind == BEST}
    marked = {SYNCH: f"Synch: {SYNCH.name}", BEST: f"AsyncE: {BEST.name}", URING: "Async: io_uring"}
    x, rate, megabits = "connections", "Transfer rate", 1e-6
    figures = [
        Figure(f"{name}-figure-1", f"{rate} (in place of Libman Figure 1)", x, "Mbit/s",
               lines(lambda run: megabits * run.bits_per_second, marked), log_x=True),
        Figure(f"{name}-figure-2", f"{rate} (Libman Figure 2)", x, "Mbit/s",
               lines(lambda run: megabits * run.bits_per_second, by_strategy), log_x=True),
        Figure(f"{name}-cost", "What a message costs the server", x, "us of processor time",
               lines(lambda run: 1e6 * run.cost, every), log_x=True),
        Figure(f"{name}-pushup", "What a message costs PushUp's demultiplexer", x, "us of processor time",
               lines(lambda run: 1e6 * run.cost, ours), log_x=True),
    ]  # fmt: skip
    return figures if set(ours) - {BEST} else figures[:-1]
