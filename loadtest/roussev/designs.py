"""Roussev & Wu: seven server designs, and the event-driven one, under the same load (Tables 1 and 2, §4, §5).

The paper measures how long a server takes for 2,800 requests from 140 clients, 20 each, and calls that CPU time. A
request takes 250 or 500 ms to serve, and the response has 4,000 bytes. The time has a lower bound, the number of
requests per worker times the delay, which the tables show beside it. The cost of a design itself is its processor time.

The iterative server gets all 2,800 requests of 250 ms once, in the background, as it answers four a second; with 500
ms, for which the paper has no value, it gets fewer. Table 1 is repeated, and has medians. Two more experiments are
behind numbers of the paper: the capacity of the buffers, and 140 to 700 clients. `thread_numbers` has Table 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import psutil

from loadtest.load.servers import Server, running
from loadtest.reports.results import PAPER, Figure, Progress, Table, Value, percentile
from loadtest.roussev import probes
from loadtest.roussev.baselines import (
    Design,
    accept_lock,
    concurrent_queue,
    event_driven,
    hash_table,
    iterative,
    pipes,
    shared_buffer,
    thread_per_client,
)
from loadtest.roussev.crowd import Crowd, Served
from loadtest.roussev.probes import Count, InService

DESIGNS: Mapping[str, Design] = {
    "iterative": iterative,
    "thread_per_client": thread_per_client,
    "accept_lock": accept_lock,
    "shared_buffer": shared_buffer,
    "concurrent_queue": concurrent_queue,
    "hash_table": hash_table,
    "pipes": pipes,
    "event_driven": event_driven,
}

ONE_THREAD = ("iterative",)
ANY_NUMBER = ("thread_per_client", "event_driven")
"""Designs that serve all clients concurrently; they have no worker pool."""

PRE_THREADED = tuple(name for name in DESIGNS if name not in (*ONE_THREAD, *ANY_NUMBER))

BUFFERED = ("shared_buffer", "hash_table")
"""Designs with a capacity."""

CLIENTS = 140
EACH = 20
DELAYS = (0.25, 0.5)
MOST_CLIENTS = 700
MOST_THREADS = 200
PATIENCE_SECONDS = 10.0
"""A client waits for twice the least possible time, plus this."""


class PaperResult(NamedTuple):
    """A row of the paper's Table 1: the best number of threads, and the milliseconds taken at each of `DELAYS`."""

    threads: int
    took: tuple[int | None, int | None]


TABLE_1 = {
    "iterative": PaperResult(1, (700_000, None)),
    "thread_per_client": PaperResult(1, (12_552, 21_499)),
    "accept_lock": PaperResult(50, (21_153, 33_602)),
    "shared_buffer": PaperResult(50, (16_562, 28_960)),
    "concurrent_queue": PaperResult(70, (13_048, None)),
    "hash_table": PaperResult(50, (14_562, 24_265)),
    "pipes": PaperResult(150, (13_195, 19_253)),
    "event_driven": PaperResult(1, (None, None)),
}
TABLE_2 = {10: 70_312, 30: 23_781, 40: 20_828, 50: 17_549, 60: 17_047, 70: 13_048, 80: 18_203}
TABLE_2_DESIGN = "concurrent_queue"


class Load(NamedTuple):
    """`clients` concurrent clients that make `each` requests; serving one takes `delay` seconds."""

    clients: int
    each: int
    delay: float

    @property
    def requests(self) -> int:
        return self.clients * self.each

    def least_seconds(self, name: str, threads: int) -> float:
        """The least time that a design can take with this many workers."""
        at_once = 1 if name in ONE_THREAD else self.clients if name in ANY_NUMBER else min(threads, self.clients)
        return math.ceil(self.requests / at_once) * self.delay


class Run(NamedTuple):
    """The result of one design under one load."""

    name: str
    threads: int
    load: Load
    served: Served
    cpu_seconds: float
    peak_bytes: int
    capacity: int | None = None

    @property
    def least_seconds(self) -> float:
        return self.load.least_seconds(self.name, self.threads)

    def row(self) -> tuple[Value, ...]:
        served = self.served
        return (
            self.name, self.threads if self.name in PRE_THREADED else "-", self.load.clients, 1e3 * self.load.delay,
            self.load.requests, 1e3 * served.seconds, 1e3 * self.least_seconds, served.seconds / self.least_seconds,
            1e3 * percentile(served.responses, 0.5), 1e3 * percentile(served.responses, 0.99),
            1e6 * self.cpu_seconds / self.load.requests, self.peak_bytes / 2**20, served.refused, served.unanswered,
            served.own_cpu,
        )  # fmt: skip


COLUMNS = (
    "design", "threads", "clients", "delay ms", "requests", "took ms", "at least ms", "ratio", "p50 ms", "p99 ms",
    "server us a request", "peak MB", "refused", "unanswered", "load's CPU",
)  # fmt: skip


PAPERS_COLUMN = "paper, 2,800 requests ms"


class Scale(NamedTuple):
    """How much of the experiment to run.

    `whole`: whether the iterative server gets all requests with the shorter delay; else, and with the longer one, it
    gets `one_by_one`. `repeats`: of Tables 1 and 2. `capacities`: of shared buffer and hash table; each measurement of
    these has `capacity_each` requests a client.
    """

    clients: int
    each: int
    delays: Sequence[float]
    whole: bool
    one_by_one: int
    repeats: int
    capacities: Sequence[int]
    table_2: Sequence[int]
    others: Sequence[int]
    capacity_each: int
    many_clients: Sequence[int]
    many_each: int
    rounds: int
    service_seconds: float


FULL = Scale(
    clients=CLIENTS, each=EACH, delays=DELAYS, whole=True, one_by_one=40, repeats=3, capacities=(11, 31, 61, 101, 199),
    table_2=(10, 15, *[*TABLE_2][1:], 100, 150, 200), others=(15, 30, 50, 80, 150, 200), capacity_each=4,
    many_clients=(140, 280, 420, 560, MOST_CLIENTS), many_each=4, rounds=20_000, service_seconds=10.0,
)  # fmt: skip
QUICK = Scale(
    clients=CLIENTS, each=1, delays=DELAYS[:1], whole=False, one_by_one=4, repeats=1, capacities=(11, 101),
    table_2=(15, 70, 150), others=(15, 150), capacity_each=1, many_clients=(140, MOST_CLIENTS), many_each=1,
    rounds=1000, service_seconds=2.0,
)  # fmt: skip

LOADS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Table 1, buffers of several capacities, many clients, and the theorems."""
    loads = [Load(scale.clients, scale.each, delay) for delay in scale.delays]
    in_background = ONE_THREAD if scale.whole else ()
    plan = [
        (name, TABLE_1[name].threads, _load_for(name, load, scale))
        for load in loads
        for name in DESIGNS
        if load is not loads[0] or name not in in_background
    ] * scale.repeats
    more = Load(scale.clients, scale.capacity_each, loads[0].delay)
    by_capacity = [(name, TABLE_1[name].threads, more, places) for name in BUFFERED for places in scale.capacities]
    many = [
        (name, MOST_THREADS, Load(clients, scale.many_each, loads[0].delay))
        for clients in scale.many_clients
        for name in (*ANY_NUMBER, *PRE_THREADED)
    ]
    progress = Progress(len(plan) + len(by_capacity) + len(many) + 3)
    with ExitStack() as stack:
        whole = [stack.enter_context(_whole(name, loads[0])) for name in in_background]
        table_1, capacities, most = ([_step(progress, *what) for what in group] for group in (plan, by_capacity, many))
        progress.step("the theorems, by themselves")
        counts = probes.count_probes(LOADS, rounds=scale.rounds)
        progress.step("the theorems, in service")
        in_service = [
            *probes.table_in_service(clients=CLIENTS, workers=50, delay=0.02, seconds=scale.service_seconds),
            *probes.workers_in_service(busy=100, delay=0.05, seconds=scale.service_seconds / 3),
        ]
        progress.step("the iterative server, until all is served")
        table_1 = [*(wait() for wait in whole), *table_1]
    progress.end()
    tables = [_table_1(table_1), _table_capacities(capacities), _table_most(most)]
    figures = [_figure_cost([*table_1, *most]), _figure_probes(counts)]
    return [*tables, *_tables_probes(counts, in_service)], figures


def measure_threads(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Table 2, and the same for the other designs with workers: all requests, and the median run of each."""
    load = Load(scale.clients, scale.each, scale.delays[0])
    cases = [(TABLE_2_DESIGN, threads) for threads in scale.table_2]
    cases += [(name, threads) for name in PRE_THREADED if name != TABLE_2_DESIGN for threads in scale.others]
    progress = Progress(scale.repeats * len(cases))
    found: dict[tuple[str, int], list[Run]] = {}
    for turn in range(scale.repeats):
        for name, threads in cases[:: -1 if turn % 2 else 1]:
            found.setdefault((name, threads), []).append(_step(progress, name, threads, load))
    progress.end()
    runs = [sorted(found[case], key=lambda run: run.served.seconds) for case in cases]
    return [_table_2(runs)], [_figure_threads([same[len(same) // 2] for same in runs])]


@contextmanager
def _whole(name: str, load: Load) -> Iterator[Callable[[], Run]]:
    """A design under a load in the background. Enters at once; the function waits for the result."""
    with running("--delay", str(load.delay), module=f"loadtest.roussev.baselines.{name}") as server:
        found: list[Served] = []
        patience = 2 * load.least_seconds(name, 1) + PATIENCE_SECONDS
        crowd = Crowd(server.address, clients=load.clients, each=load.each, patience=patience)
        thread = Thread(target=lambda: found.append(crowd.run()), daemon=True)
        thread.start()

        def wait() -> Run:
            thread.join()
            return Run(name, 1, load, found[0], server.cpu_seconds(), _peak_bytes(server))

        yield wait


def serve(name: str, threads: int, load: Load, capacity: int | None = None) -> Run:
    """Run a design under a load. If its server does not start, all requests count as refused.

    `capacity`: of its buffer, unless it is the paper's.
    """
    patience = 2 * load.least_seconds(name, threads) + PATIENCE_SECONDS
    flags = ["--delay", str(load.delay), "--threads", str(threads)]
    flags += ["--capacity", str(capacity)] if capacity else []
    try:
        with running(*flags, module=f"loadtest.roussev.baselines.{name}") as server:
            before = server.cpu_seconds()
            served = Crowd(server.address, clients=load.clients, each=load.each, patience=patience).run()
            try:
                cpu = server.cpu_seconds() - before
                return Run(name, threads, load, served, cpu, _peak_bytes(server), capacity)
            except (psutil.Error, OSError):  # the server died under the load
                return Run(name, threads, load, served, 0.0, 0)
    except RuntimeError:
        return Run(name, threads, load, Served(0.0, 0, load.requests, 0, [], 0.0), 0.0, 0)


def _load_for(name: str, load: Load, scale: Scale) -> Load:
    return load._replace(clients=scale.one_by_one, each=1) if name in ONE_THREAD else load


def _step(progress: Progress, name: str, threads: int, load: Load, capacity: int | None = None) -> Run:
    places = f", {capacity} places" if capacity else ""
    progress.step(f"{name}, {threads} threads{places}, {load.clients} clients, {1e3 * load.delay:g} ms")
    return serve(name, threads, load, capacity)


def _peak_bytes(server: Server) -> int:
    """The server's peak resident memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def _table_1(runs: Sequence[Run]) -> Table:
    """The median run of each design and delay, with the spread, and how many times as fast as the iterative server."""
    groups: dict[tuple[float, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.load.delay, run.name), []).append(run)
    rows = []
    for (delay, name), same in sorted(groups.items(), key=lambda item: (item[0][0], [*DESIGNS].index(item[0][1]))):
        ordered = sorted(same, key=lambda run: run.served.seconds)
        run = ordered[len(ordered) // 2]
        one_by_one = groups[delay, ONE_THREAD[0]][0]
        each = one_by_one.served.seconds / one_by_one.load.requests
        paper = TABLE_1[name].took[DELAYS.index(delay)] or "-"
        rows.append(
            (
                *run.row(), paper, f"{1e3 * ordered[0].served.seconds:.0f} {1e3 * ordered[-1].served.seconds:.0f}",
                len(same), each * run.load.requests / run.served.seconds if run.served.seconds else 0.0,
            )
        )  # fmt: skip
    title = "Each design with the paper's best number of threads (Table 1)"
    columns = (*COLUMNS, PAPERS_COLUMN, "took ms, from to", "runs", "times as fast as iterative")
    return Table("designs-table-1", title, columns, rows)


def _table_2(runs: Sequence[Sequence[Run]]) -> Table:
    """`runs`: those of each design with each number of threads, the fastest first."""
    papers = {TABLE_2_DESIGN: TABLE_2}
    rows = [
        (
            *same[len(same) // 2].row(), papers.get(same[0].name, {}).get(same[0].threads, "-"),
            f"{1e3 * same[0].served.seconds:.0f} {1e3 * same[-1].served.seconds:.0f}", len(same),
        )
        for same in runs
    ]  # fmt: skip
    title = "By number of threads (the paper's Table 2 covers only the concurrent queue)"
    return Table("designs-table-2", title, (*COLUMNS, PAPERS_COLUMN, "took ms, from to", "runs"), rows)


def _table_capacities(runs: Sequence[Run]) -> Table:
    title = "By capacity of the buffer; the paper has 101 places"
    return Table("designs-capacities", title, (*COLUMNS, "capacity"), [(*run.row(), run.capacity or 0) for run in runs])


def _table_most(runs: Sequence[Run]) -> Table:
    clients = [run.load.clients for run in runs]
    title = f"{min(clients)} to {max(clients)} concurrent clients; the paper has at most {MOST_CLIENTS}"
    return Table("designs-most-clients", title, COLUMNS, [run.row() for run in runs])


def _tables_probes(counts: Sequence[Count], in_service: Sequence[InService]) -> list[Table]:
    alone = Table(
        "designs-theorems",
        "Probes at a known load, random keys: at most 1/(1 - load) to insert, 1/load to find (Theorems 1 to 3)",
        ("theorem", "operation", "slots", "taken or free", "load", "at most", "exactly", "measured", "std. error",
         "samples"),
        [
            (count.theorem.name, count.theorem.operation, count.m, count.n, count.n / count.m, count.bound, count.exact,
             count.mean, count.error, count.samples)
            for count in counts
        ],
    )  # fmt: skip
    together = Table(
        "designs-probes-in-service",
        "Probes while clients are being served, at whatever load that causes",
        ("theorem", "operation", "how", "slots", "load", "at most", "exactly", "measured", "std. error", "samples"),
        [
            (found.theorem.name, found.theorem.operation, found.how, found.m, found.load, found.bound, found.exact,
             found.mean, found.error, found.samples)
            for found in in_service
        ],
    )  # fmt: skip
    return [alone, together]


def _figure_threads(runs: Sequence[Run]) -> Figure:
    """Requests per second by number of threads, with the upper bound threads / delay."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run.served.seconds:
            lines.setdefault(run.name, []).append((run.threads, run.served.answered / run.served.seconds))
    paper = [(float(threads), CLIENTS * EACH * 1e3 / took) for threads, took in TABLE_2.items()]
    lines[TABLE_2_DESIGN + PAPER] = paper
    counts = sorted({run.threads for run in runs})
    clients, _, delay = runs[0].load
    lines["at most"] = [(threads, min(threads, clients) / delay) for threads in counts]
    return Figure("designs-threads", f"{clients} clients, {1e3 * delay:g} ms", "threads", "requests a second", lines)


def _figure_cost(runs: Sequence[Run]) -> Figure:
    """Processor time per request by number of clients."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run.load.delay == runs[0].load.delay and run.name not in ONE_THREAD:
            cost = 1e6 * run.cpu_seconds / run.load.requests
            lines.setdefault(run.name, []).append((run.load.clients, cost))
    return Figure("designs-cost", "What a request costs the server", "clients at once", "us of processor time", lines)


def _figure_probes(counts: Sequence[Count]) -> Figure:
    """Measured probes by load, with the theorems' bounds."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        if count.n / count.m < 0.97 or count.theorem is not probes.THEOREM_1:
            lines.setdefault(f"Theorem {count.theorem.name}, measured", []).append((count.n / count.m, count.mean))
            if count.theorem is not probes.THEOREM_3:
                bound = f"at most 1/{'(1 - load)' if count.theorem is probes.THEOREM_1 else 'load'}"
                lines.setdefault(bound, []).append((count.n / count.m, count.bound))
    return Figure("designs-theorems", "Probes by load", "load: n/m", "probes", lines)
