"""Why Tables 1 and 2 vary as they do: what each delivery and each update's stability waits for.

`trace` watches the members. The sum of the waits is the time that the tables have. Each load runs twice: a decider
acknowledges the updates that it orders at once, or a rotation later, in its next decision. `--quick` gives each load a
third of a second, once, at two intervals and with events only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from loadtest.mishra import team
from loadtest.mishra.core.settings import Settings
from loadtest.mishra.latency import INTERVALS_MS, STRICT_NONE, STRICT_TOTAL, STRONG_TIME, WEAK_NONE, WEAK_TOTAL
from loadtest.mishra.requests import Report
from loadtest.mishra.team import DRIVERS, EVENTS, Load, can_prioritize
from loadtest.mishra.trace import DECISIONS, DELIVERED, DELIVERY_WAITS, OF_DECIDER, STABILITY_WAITS, STABLE
from loadtest.reports.results import Figure, Progress, Table, Value

SEMANTICS = (WEAK_NONE, WEAK_TOTAL, STRONG_TIME, STRICT_NONE, STRICT_TOTAL)

ACKNOWLEDGES, AT_ONCE, LATER = "the decider acknowledges", "at once", "a rotation later"
"""When a decider acknowledges what it orders: the column, and its values."""

DELIVERY = (
    "ms until held", "for the decision", "for a later decision", "for dependencies", "for earlier updates",
)  # fmt: skip
STABILITY = (
    "ms until held", "for the ordinal", "for the first acknowledgement", "for the last",
)  # fmt: skip
"""Columns, for the waits that `trace` names."""

LAST, UNTIL_LAST, EACH = "last is the decider's %", "decisions from the ordinal to the last", "ms a decision"


class Scale(NamedTuple):
    """How much to measure."""

    seconds: float
    rounds: int
    intervals_ms: Sequence[int]
    drivers: Sequence[str]


FULL = Scale(3.0, 5, INTERVALS_MS, DRIVERS)
QUICK = Scale(0.3, 1, (2, 10), (EVENTS,))

Row = tuple[float, ...]
Case = tuple[str, str, int, str]
"""Driver, semantics, interval and when the decider acknowledges."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL, priorities=not quick and can_prioritize()), []


def measure(scale: Scale, *, priorities: bool = False, settings: Settings | None = None) -> list[Table]:
    """The medians of all rounds; each round starts new teams."""
    settings = settings or Settings()
    progress = Progress(scale.rounds * len(scale.drivers) * 2 * len(SEMANTICS) * len(scale.intervals_ms))
    deliveries: dict[Case, list[Row]] = {}
    stabilities: dict[Case, list[Row]] = {}
    examples: dict[tuple[str, str], list[tuple[str, float, int]]] = {}
    for _ in range(scale.rounds):
        for driver in scale.drivers:
            for when in (AT_ONCE, LATER):
                changed = replace(settings, acknowledge_at_once=when == AT_ONCE)
                with team.running(driver, settings=changed, priorities=priorities, traced=True) as members:
                    for semantics in SEMANTICS:
                        for interval in scale.intervals_ms:
                            progress.step(f"{driver}, {semantics.name}, {interval} ms, acknowledged {when}")
                            reports = members.give(Load(semantics, interval / 1e3, scale.seconds))
                            case = driver, semantics.name, interval, when
                            deliveries.setdefault(case, []).append(delivery(reports))
                            stabilities.setdefault(case, []).append(stability(reports))
                            if semantics is WEAK_TOTAL:
                                examples[driver, when] = reports[0].example
    progress.end()
    return [
        _table("group-delivery-waits", "What a delivery waits for (Table 1)", ("delivery ms", *DELIVERY), deliveries),
        _table(
            "group-stability-waits",
            "What stability waits for (Table 2)",
            ("stability ms", *STABILITY, LAST, UNTIL_LAST, EACH),
            stabilities,
        ),
        Table(
            "group-trace",
            f"How an update becomes stable, as its proposer sees it: {WEAK_TOTAL.name}, {scale.intervals_ms[-1]} ms",
            ("implementation", ACKNOWLEDGES, "what", "ms after the request", "decisions after the ordinal"),
            [
                (driver, when, what, 1e3 * at, decisions)
                for (driver, when), example in examples.items()
                for what, at, decisions in example
            ],
        ),
    ]


def _sums(reports: Sequence[Report], name: str) -> float:
    return sum(report.traced.get(name, 0.0) for report in reports)


def _means(reports: Sequence[Report], names: Sequence[str], count: float) -> Row:
    """Their sum, and each."""
    means = [1e3 * _sums(reports, name) / count for name in names]
    return sum(means), *means


def delivery(reports: Sequence[Report]) -> Row:
    """The mean delivery time in ms, and what it is made of."""
    return _means(reports, DELIVERY_WAITS, _sums(reports, DELIVERED) or 1)


def stability(reports: Sequence[Report]) -> Row:
    """The mean stability time in ms, what it is made of, whose acknowledgement is the last, and the decisions until
    then.
    """
    count = _sums(reports, STABLE) or 1
    times = _means(reports, STABILITY_WAITS, count)
    decisions = _sums(reports, DECISIONS) / count
    return *times, 100 * _sums(reports, OF_DECIDER) / count, decisions, sum(times[3:]) / (decisions or 1)


def _table(name: str, title: str, columns: Sequence[str], results: dict[Case, list[Row]]) -> Table:
    """The median of each column; of the whole time also the least and the greatest."""
    rows: list[tuple[Value, ...]] = []
    for case, several in results.items():
        times = [row[0] for row in several]
        medians = [median(values) for values in zip(*several, strict=True)]
        rows.append((*case, *medians, f"{min(times):.3g} {max(times):.3g}"))
    head = ("implementation", "semantics", "interval ms", ACKNOWLEDGES, *columns, f"{columns[0]}, from to")
    return Table(name, title, head, rows)
