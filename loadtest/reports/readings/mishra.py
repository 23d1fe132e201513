"""The readings of Mishra & Yang."""

from __future__ import annotations

from functools import partial
from statistics import median

from loadtest.mishra.latency import INTERVALS_MS
from loadtest.mishra.micro_costs import PAPER
from loadtest.mishra.team import EVENTS, THREADS
from loadtest.reports.readings.found import CLOSE, Found, beside, span
from loadtest.reports.results import shown
from loadtest.reports.saved import Saved, number

FEWER = 0.98
"""Of the other's throughput; more than this is no difference."""


def complexity(saved: Saved) -> Found:
    (events,), (threads,) = (saved.rows("group-complexity", implementation=driver) for driver in (EVENTS, THREADS))
    columns = ("lines of code", "threads", "places that wait")
    parts = [f"{column} {events[column]} to {threads[column]}" for column in columns]
    return Found("; ".join(parts), all(events[column] < threads[column] for column in columns))


def _lines(figure: int, saved: Saved) -> dict[float, tuple[float, float]]:
    """By arrival rate: the throughput with events and with threads."""
    found = {
        driver: {
            number(row, "arrivals a second"): number(row, "delivered a second")
            for row in saved.rows("group-throughput", figure=figure, implementation=driver)
        }
        for driver in (EVENTS, THREADS)
    }
    return {rate: (value, found[THREADS][rate]) for rate, value in found[EVENTS].items()}


def _figure(figure: int, saved: Saved) -> Found:
    lines = _lines(figure, saved)
    most = [max(values[kind] for values in lines.values()) for kind in (0, 1)]
    higher = all(events >= FEWER * threads for events, threads in lines.values()) and most[0] > most[1]
    return Found(f"at most {shown(most[0])} a second, threads {shown(most[1])}", higher)


figure_1, figure_2, figure_3 = (partial(_figure, figure) for figure in (1, 2, 3))


def difference_grows(saved: Saved) -> Found:
    parts = []
    grows = []
    for figure in (1, 2, 3):
        lines = _lines(figure, saved)
        best = max(lines, key=lambda rate: lines[rate][0])
        differences = [events - threads for rate, (events, threads) in sorted(lines.items()) if rate <= best]
        parts.append(f"{shown(differences[0])} to {shown(max(differences))}")
        grows.append(max(differences) == differences[-1] > differences[0])
    return Found(f"events - threads, a second: {', '.join(parts)}", all(grows))


def _table(name: str, saved: Saved) -> Found:
    return beside(
        (number(row, f"{interval} ms: ours"), number(row, f"{interval} ms: paper"))
        for row in saved.rows(name)
        for interval in INTERVALS_MS
    )


table_1 = partial(_table, "group-delivery")
table_2 = partial(_table, "group-stability")
table_3 = partial(_table, "group-messages")


def _pairs(name: str, saved: Saved) -> list[tuple[float, float]]:
    """Ours with events and with threads, in each row and at each interval."""
    threads = {row["semantics"]: row for row in saved.rows(name, implementation=THREADS)}
    return [
        (number(row, f"{interval} ms: ours"), number(threads[row["semantics"]], f"{interval} ms: ours"))
        for row in saved.rows(name, implementation=EVENTS)
        for interval in INTERVALS_MS
    ]


def _earlier(name: str, saved: Saved) -> Found:
    pairs = _pairs(name, saved)
    earlier = sum(events < threads for events, threads in pairs)
    ratio = median(threads / events for events, threads in pairs)
    return Found(f"{earlier} of {len(pairs)}; threads / events {shown(ratio)} (median)", earlier == len(pairs))


delivery_is_earlier = partial(_earlier, "group-delivery")
stability_is_earlier = partial(_earlier, "group-stability")


def more_messages(saved: Saved) -> Found:
    ratios = [events / threads for events, threads in _pairs("group-messages", saved)]
    return Found(f"{span(ratios)} times", min(ratios) >= 1)


def switches(saved: Saved) -> Found:
    events, threads = (
        median(number(row, "context switches an event") for row in saved.rows("group-latency", implementation=driver))
        for driver in (EVENTS, THREADS)
    )
    return Found(f"{shown(threads)} switches an event, with events {shown(events)}", threads >= 1 and threads > events)


def _micro(column: str, saved: Saved) -> dict[str, float]:
    """The cost in Python, and in C if there is a compiler."""
    rows = {row[""]: row for row in saved.rows("group-micro-costs")}
    return {name: number(rows[name], column) for name in ("Python", "C, pthreads") if name in rows}


def _cost(column: str, paper: float, saved: Saved) -> Found:
    costs = _micro(column, saved)
    text = ", ".join(f"{shown(cost)} us in {name}" for name, cost in costs.items())
    return Found(text, any(abs(cost - paper) <= CLOSE * paper for cost in costs.values()))


switch = partial(_cost, "thread switch us", PAPER.switch)
lock = partial(_cost, "lock and unlock us", PAPER.lock)


def select(saved: Saved) -> Found:
    costs = _micro("select us", saved)
    text = ", ".join(f"{shown(cost)} us in {name}" for name, cost in costs.items())
    return Found(text, all(cost < PAPER.select for cost in costs.values()))


def select_is_cheaper(saved: Saved) -> Found:
    ratios = {
        name: cost / _micro("select us", saved)[name] for name, cost in _micro("switch, lock, unlock us", saved).items()
    }
    text = ", ".join(f"{shown(ratio)} times a select in {name}" for name, ratio in ratios.items())
    return Found(text, all(ratio > 1.5 for ratio in ratios.values()))
