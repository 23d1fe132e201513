"""The readings of Libman & Gilbourd: what `loadtest/libman/claims.py` has judged, and the figures' highest rates."""

from __future__ import annotations

from functools import partial
from statistics import geometric_mean

from loadtest.libman.claims import AGREES, NO_DIFFERENCE
from loadtest.reports.readings.found import Found, span
from loadtest.reports.results import shown
from loadtest.reports.saved import Saved, number, some


def _claim(claim: str, measure: str, saved: Saved) -> Found:
    """The pairs that a claim compares, by one measure. It agrees if each pair's verdict begins with "agrees"."""
    rows = some([row for row in saved.rows("echo-claims", measure=measure) if row["claim"].startswith(claim)])
    ratios = [number(row, "ours") for row in rows]
    verdicts = {row["verdict"] for row in rows}
    text = shown(geometric_mean(ratios)) + (f" (pairs {span(ratios)})" if len(ratios) > 1 else "")
    if verdicts == {NO_DIFFERENCE}:
        return Found(f"{text}: no difference", agrees=False)
    return Found(text, all(verdict.startswith(AGREES) for verdict in verdicts))


true_is_best = partial(_claim, "true asynchronous I/O is best", "bits/s")
select_for_few = partial(_claim, "select may be better", "bits/s")
epoll_for_many = partial(_claim, "what the kernel remembers", "bits/s")
no_overhead = partial(_claim, "emulation costs nothing", "bits/s")
gain_in_throughput = partial(_claim, "faster than ACE's reactor", "bits/s")
gain_in_response_times = partial(_claim, "faster than ACE's reactor", "response time")


def _most(kinds: tuple[tuple[str, str], ...], saved: Saved) -> Found:
    """The highest rate of each kind, and with how many connections."""
    parts = []
    for engine, wait in kinds:
        rows = saved.rows("echo", engine=engine, wait=wait)
        best = max(rows, key=lambda row: number(row, "Mbit/s"))
        name = engine if wait == "-" else f"{engine} {wait}"
        parts.append(f"{name} {shown(number(best, 'Mbit/s'))} Mbit/s ({best['connections']:,} connections)")
    return Found("at most " + ", ".join(parts))


figure_1 = partial(_most, (("reactor", "select"), ("emulated", "epoll"), ("uring", "-")))
figure_2 = partial(_most, (("reactor", "select"), ("emulated", "select"), ("emulated", "epoll")))


def posix_aio(saved: Saved) -> Found:
    """The emulated proactor against each way to wait for POSIX AIO."""
    rows = [row for row in saved.rows("echo-native-claims", measure="bits/s") if "POSIX AIO is not" in row["claim"]]
    return Found(", ".join(f"{shown(number(row, 'ours'))} ({row['against']})" for row in some(rows)))


def kernels_aio(saved: Saved) -> Found:
    """io_uring against each of them."""
    rows = [row for row in saved.rows("echo-native-claims", measure="bits/s") if "better than POSIX's" in row["claim"]]
    return Found(", ".join(f"{shown(number(row, 'ours'))} ({row['against']})" for row in some(rows)))
