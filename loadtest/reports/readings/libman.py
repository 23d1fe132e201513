"""The readings of Libman & Gilbourd: what `loadtest/libman/claims.py` has judged, and the figures' highest rates.

They are of the engines in C, or of those in Python as long as the engines in C have not been measured.
"""

from __future__ import annotations

from functools import partial
from statistics import geometric_mean

from loadtest.libman.claims import NOISE, PAPERS_GAIN
from loadtest.reports.readings.found import Criterion, Found, span
from loadtest.reports.results import shown
from loadtest.reports.saved import NotMeasured, Row, Saved, number, some

FEW, MANY = 100, 1000
"""Connections: at most, and at least; the paper gives no numbers."""

FASTER, NOT_SLOWER = 1 + NOISE, 1 - NOISE
TIME = "processor time"
"""The paper's figures have bits/s, which other work on the machine changes more."""


def _rows(saved: Saved, table: str, **where: object) -> list[Row]:
    try:
        return saved.rows(table.replace("echo", "echo-native", 1), **where)
    except NotMeasured:
        return saved.rows(table, **where)


def _claim(claim: str, measure: str, least: float, saved: Saved) -> Found:
    """The pairs that a claim compares, by one measure."""
    rows = some([row for row in _rows(saved, "echo-claims", measure=measure) if row["claim"].startswith(claim)])
    ratios = [number(row, "ours") for row in rows]
    text = shown(geometric_mean(ratios)) + (f" (pairs {span(ratios)})" if len(ratios) > 1 else "")
    rules = [
        Criterion(f"{measure}, {row['of']} / {row['against']}", ratio, least)
        for row, ratio in zip(rows, ratios, strict=True)
    ]
    return Found(text, tuple(rules))


true_is_best = partial(_claim, "true asynchronous I/O is best", TIME, FASTER)
no_overhead = partial(_claim, "emulation costs nothing", TIME, NOT_SLOWER)
gain_in_throughput = partial(_claim, "faster than ACE's reactor", "bits/s", PAPERS_GAIN[0])
gain_in_response_times = partial(_claim, "faster than ACE's reactor", "response time", PAPERS_GAIN[0])
posix_aio = partial(_claim, "POSIX AIO is not", "bits/s", FASTER)
kernels_aio = partial(_claim, "the kernel's asynchronous I/O scales", "bits/s", FASTER)


def _waiting(better: str, other: str, low: int, high: int, saved: Saved) -> Found:
    """How many times the processor time one way of waiting takes of another's, at each number of connections."""
    costs = [
        {
            row["connections"]: number(row, "server's us a message")
            for row in _rows(saved, "echo", engine="emulated", wait=wait, threads="-")
            if low <= row["connections"] <= high
        }
        for wait in (better, other)
    ]
    ratios = {count: costs[1][count] / cost for count, cost in costs[0].items() if count in costs[1]}
    if not ratios:
        raise NotMeasured
    text = ", ".join(f"{shown(ratio)} with {count:,}" for count, ratio in ratios.items())
    metric = f"processor time, {other} / {better}, connections: {{:,}}"
    return Found(text, tuple(Criterion(metric.format(count), ratio, FASTER) for count, ratio in ratios.items()))


select_for_few = partial(_waiting, "select", "epoll", 1, FEW)
epoll_for_many = partial(_waiting, "epoll", "poll", MANY, 10**9)


def _most(kinds: tuple[tuple[str, str], ...], saved: Saved) -> Found:
    """The highest rate of each kind, and with how many connections."""
    parts = []
    for engine, wait in kinds:
        rows = _rows(saved, "echo", engine=engine, wait=wait)
        best = max(rows, key=lambda row: number(row, "Mbit/s"))
        name = engine if wait == "-" else f"{engine} {wait}"
        parts.append(f"{name} {shown(number(best, 'Mbit/s'))} Mbit/s ({best['connections']:,} connections)")
    return Found("at most " + ", ".join(parts))


figure_1 = partial(_most, (("reactor", "select"), ("emulated", "epoll"), ("uring", "-")))
figure_2 = partial(_most, (("reactor", "select"), ("emulated", "select"), ("emulated", "epoll")))
