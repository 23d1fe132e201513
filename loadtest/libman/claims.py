"""What the paper claims in words, our ratios beside it, and whether they agree.

A ratio compares two kinds of server with the same number of connections in the same round; the table has the geometric
mean of them, the lowest and the highest. Above 1 the first kind is the better one. A mean within `NOISE` of 1 is no
difference.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from operator import eq

from loadtest.libman.runs import (
    AIO,
    AIO_WAYS,
    BEST,
    OTHERS_AT_MOST,
    POOL_THREADS,
    PUSHUP,
    SYNCH,
    URING,
    Kind,
    Run,
    Runs,
)
from loadtest.reports.results import Table, Value

NOISE = 0.03
PAPERS_GAIN = (1.10, 1.35)
FEW = 100
"""Up to so many connections are "a limited number"."""

AGREES, DISAGREES, NO_DIFFERENCE, UNKNOWN = "agrees", "does not agree", "no difference", "not measured"

Metric = Callable[[Run], float]
"""Of a run; the more the better."""

COLUMNS = ("claim", "of", "against", "measure", "paper", "ours", "lowest", "highest", "verdict")


def rate(run: Run) -> float:
    return run.bits_per_second


def quickness(run: Run) -> float:
    return 1 / run.trip if run.trip else 0.0


def thrift(run: Run) -> float:
    """Messages for each second of the server's processor time."""
    return 1 / run.cost if run.cost else 0.0


def thrift_in_kernel(run: Run) -> float:
    """The same, of what its system calls take: without the interpreter's part."""
    return 1 / run.kernel_cost if run.kernel_cost else 0.0


def ratios(
    runs: Runs, kind: Kind, other: Kind, metric: Metric, among: Callable[[int], bool] = lambda connections: True
) -> list[float]:
    """For each number of connections that both kinds were measured with, and each round in which both served all."""
    found = []
    for (measured, number), rounds in runs.items():
        if measured == kind and among(number):
            pairs = zip(rounds, runs.get((other, number), ()), strict=False)
            whole = [pair for pair in pairs if all(run.served_all for run in pair)]
            found += [metric(one) / metric(two) for one, two in whole if metric(one) and metric(two)]
    return found


def not_slower(mean: float) -> str:
    """It "can be faster, but not slower"."""
    return AGREES if mean >= 1 - NOISE else DISAGREES


def faster(mean: float) -> str:
    return NO_DIFFERENCE if abs(mean - 1) <= NOISE else AGREES if mean > 1 else DISAGREES


def as_much_faster(mean: float) -> str:
    """It "gives on average of up to 10-35 % better performance"."""
    low, high = PAPERS_GAIN
    return AGREES if low <= mean <= high else "agrees, and more" if mean > high else DISAGREES


def table_of_claims(runs: Runs, name: str = "echo-claims") -> Table:
    """One row for each claim and pair of kinds."""
    emulated = dict.fromkeys(kind for kind, _ in runs if kind.engine == "emulated" and not kind.threads)
    engines = {kind.engine for kind, _ in runs}
    most = max(number for _, number in runs)
    rows: list[tuple[Value, ...]] = []

    def add(
        claim: str, kind: Kind, other: Kind, what: str, metric: Metric, paper: str,
        verdict: Callable[[float], str], among: Callable[[int], bool] = lambda connections: True,
    ) -> None:  # fmt: skip
        found = ratios(runs, kind, other, metric, among)
        shown: tuple[Value, ...] = ("-", "-", "-", UNKNOWN)
        if found:
            mean = statistics.geometric_mean(found)
            shown = (mean, min(found), max(found), verdict(mean))
        rows.append((claim, kind.name, other.name, what, paper, *shown))

    for kind in emulated:
        reactor = Kind("reactor", kind.wait)
        for what, metric in (("bits/s", rate), ("processor time", thrift), ("kernel's time", thrift_in_kernel)):
            add("emulation costs nothing", kind, reactor, what, metric, "1 or more", not_slower)
    for kind in emulated:
        for what, metric in (("bits/s", rate), ("response time", quickness)):
            add("faster than ACE's reactor", kind, SYNCH, what, metric, "1.10 to 1.35", as_much_faster)
    for other in (BEST, SYNCH):
        add("true asynchronous I/O is best", URING, other, "bits/s", rate, "above 1", faster)
        add("true asynchronous I/O is best", URING, other, "processor time", thrift, "above 1", faster)
    for way in AIO_WAYS if AIO in engines else ():
        aio = Kind(AIO, way)
        add("POSIX AIO is not efficient", BEST, aio, "bits/s", rate, "above 1", faster)
        add("POSIX AIO is not efficient", BEST, aio, "processor time", thrift, "above 1", faster)
        add("the kernel's asynchronous I/O scales better than POSIX's", URING, aio, "bits/s", rate, "above 1", faster)
    select = Kind("emulated", "select")
    for few in sorted({number for _, number in runs if number <= FEW}):
        add(f"select may be better for few ({few})", select, BEST, "bits/s", rate, "above 1", faster,
            partial(eq, few))  # fmt: skip
    add(f"what the kernel remembers is best for many ({most:,})", BEST, Kind("emulated", "poll"), "bits/s", rate,
        "above 1", faster, lambda number: number == most)  # fmt: skip
    for what, metric in (("bits/s", rate), ("processor time", thrift)):
        add("a pool of threads for handlers pays", BEST._replace(threads=POOL_THREADS), BEST, what, metric,
            "not in the paper", faster)  # fmt: skip
    for what, metric in (("bits/s", rate), ("processor time", thrift)) if PUSHUP in engines else ():
        add("PushUp: an epoll of its own pays", Kind(PUSHUP, "epoll"), Kind(PUSHUP, "reactor"), what, metric,
            "not in the paper", faster)  # fmt: skip
    measured = [run for rounds in runs.values() for run in rounds]
    disturbed = sum(1 for run in measured if run.others > OTHERS_AT_MOST)
    title = "What the paper claims, and what was measured"
    if disturbed:
        title += f"; other work disturbed {disturbed} of {len(measured)} measurements"
    return Table(name, title, COLUMNS, rows)
