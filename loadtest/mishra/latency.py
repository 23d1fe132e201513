"""Tables 1 to 3: delivery time, stability time and messages per broadcast, by the time between two updates.

Exactly the paper's rows. A team of three (the paper does not say how many) takes updates of 100 bytes at a fixed rate.
Times are from the client's request, by the one clock of the machine: to each delivery, at all members, and to when the
proposer knows that its update is stable. A message to all others counts once, as the paper's two a broadcast (a
proposal and a decision, at 2 ms) show; clock messages do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from loadtest.mishra import team
from loadtest.mishra.core.messages import Atomicity, Order
from loadtest.mishra.requests import Report
from loadtest.mishra.team import DRIVERS, EVENTS, THREADS, Load, Semantics
from loadtest.reports.results import Progress, Table, Value

WEAK_NONE = Semantics("Wk atm/No ord", Atomicity.WEAK, Order.NONE)
WEAK_TIME = Semantics("Wk atm/Tm ord", Atomicity.WEAK, Order.TIME)
WEAK_TOTAL = Semantics("Wk atm/Ttl ord", Atomicity.WEAK, Order.TOTAL)
STRONG_TIME = Semantics("Strn atm/Tm ord", Atomicity.STRONG, Order.TIME)
STRONG_TOTAL = Semantics("Strn atm/Ttl ord", Atomicity.STRONG, Order.TOTAL)
STRICT_NONE = Semantics("Strc atm/No ord", Atomicity.STRICT, Order.NONE)
STRICT_TOTAL = Semantics("Strc atm/Ttl ord", Atomicity.STRICT, Order.TOTAL)

INTERVALS_MS = (2, 5, 8, 10)

Row = tuple[float, float, float, float]
"""A row of the paper: a value for each of `INTERVALS_MS`."""

Paper = Mapping[tuple[str, Semantics], Row]

TABLE_1: Paper = {
    (EVENTS, WEAK_TOTAL): (2.58, 1.9, 1.49, 1.55),
    (EVENTS, STRONG_TIME): (2.6, 2.0, 1.5, 1.57),
    (EVENTS, STRICT_NONE): (2.6, 2.1, 1.5, 1.57),
    (EVENTS, STRICT_TOTAL): (2.62, 2.13, 1.52, 1.6),
    (THREADS, WEAK_TOTAL): (2.87, 4.0, 4.0, 4.2),
    (THREADS, STRONG_TIME): (2.9, 4.1, 4.1, 4.21),
    (THREADS, STRICT_NONE): (2.88, 4.0, 4.1, 4.2),
    (THREADS, STRICT_TOTAL): (2.91, 4.14, 4.12, 4.2),
}
TABLE_2: Paper = {
    (EVENTS, WEAK_NONE): (5.5, 4.0, 3.99, 4.18),
    (EVENTS, WEAK_TOTAL): (5.5, 4.9, 4.2, 4.22),
    (EVENTS, STRONG_TIME): (5.51, 4.9, 4.22, 4.22),
    (EVENTS, STRICT_NONE): (5.5, 4.9, 4.2, 4.21),
    (THREADS, WEAK_NONE): (7.05, 9.0, 10.5, 10.7),
    (THREADS, WEAK_TOTAL): (8.0, 9.5, 9.6, 10.6),
    (THREADS, STRONG_TIME): (8.2, 9.6, 9.6, 10.8),
    (THREADS, STRICT_NONE): (8.1, 9.7, 9.6, 10.7),
}
TABLE_3: Paper = {(EVENTS, WEAK_NONE): (2.0, 2.9, 4.0, 5.0), (THREADS, WEAK_NONE): (1.9, 2.5, 3.0, 3.3)}

UNCOUNTED = frozenset({"ClockMessage"})


class Measured(NamedTuple):
    """One load on one team. Times in ms; `events`: a second, of all members.

    `switches`: of context, an event; `selects`: calls of `select`, an event.
    """

    delivery: float
    delivery_p99: float
    stability: float
    stability_p99: float
    messages: float
    refused: int
    unsure: int
    views: int
    left: str
    events: float
    switches: float
    cpu_us: float
    selects: float


def measured(reports: Sequence[Report], seconds: float) -> Measured:
    """All members' reports in one. Means are over deliveries and broadcasts, percentiles the worst member's."""
    accepted = sum(report.accepted for report in reports) or 1
    deliveries = sum(report.delivery_count for report in reports) or 1
    stable = sum(report.stability_count for report in reports) or 1
    events = sum(report.costs.events for report in reports) or 1
    sent = sum(count for report in reports for kind, count in report.costs.sent.items() if kind not in UNCOUNTED)
    return Measured(
        delivery=1e3 * sum(report.delivery_mean * report.delivery_count for report in reports) / deliveries,
        delivery_p99=1e3 * max(report.delivery_p99 for report in reports),
        stability=1e3 * sum(report.stability_mean * report.stability_count for report in reports) / stable,
        stability_p99=1e3 * max(report.stability_p99 for report in reports),
        messages=sent / accepted,
        refused=sum(report.refused for report in reports),
        unsure=sum(count for report in reports for what, count in report.outcomes.items() if what != "STABLE"),
        views=max(report.views for report in reports),
        left=", ".join(sorted({reason for report in reports for reason in report.left})) or "-",
        events=events / seconds,
        switches=sum(report.costs.switches for report in reports) / events,
        cpu_us=1e6 * sum(report.costs.cpu for report in reports) / accepted,
        selects=sum(report.costs.selects for report in reports) / events,
    )


Results = Mapping[tuple[str, Semantics], Mapping[int, Sequence[Measured]]]
"""By driver and semantics, then by interval in ms: one for each round."""


def measure(
    *, seconds: float, rounds: int, priorities: bool, intervals_ms: Sequence[int] = INTERVALS_MS
) -> tuple[list[Table], Results]:
    """Measure every row; each round starts new teams."""
    rows = list(dict.fromkeys([*TABLE_1, *TABLE_2, *TABLE_3]))
    progress = Progress(rounds * len(rows) * len(intervals_ms))
    results: dict[tuple[str, Semantics], dict[int, list[Measured]]] = {row: {} for row in rows}
    for _ in range(rounds):
        for driver in DRIVERS:
            with team.running(driver, priorities=priorities) as members:
                for kind, semantics in rows:
                    if kind != driver:
                        continue
                    for interval in intervals_ms:
                        progress.step(f"{driver}, {semantics.name}, an update each {interval} ms")
                        reports = members.give(Load(semantics, interval / 1e3, seconds))
                        result = measured(reports, seconds)
                        results[driver, semantics].setdefault(interval, []).append(result)
    progress.end()
    return tables(results, intervals_ms), results


def tables(results: Results, intervals_ms: Sequence[int]) -> list[Table]:
    return [
        _table("group-delivery", "Delivery time, ms (Table 1)", TABLE_1, results, "delivery", intervals_ms),
        _table("group-stability", "Stability time, ms (Table 2)", TABLE_2, results, "stability", intervals_ms),
        _table("group-messages", "Messages for each broadcast (Table 3)", TABLE_3, results, "messages", intervals_ms),
        _details(results),
    ]


def _table(name: str, title: str, paper: Paper, results: Results, field: str, intervals_ms: Sequence[int]) -> Table:
    """The median of the rounds, beside the paper's value, and the least and greatest."""
    columns = ["implementation", "semantics"]
    for interval in intervals_ms:
        columns += [f"{interval} ms: paper", f"{interval} ms: ours", f"{interval} ms: from to"]
    rows: list[list[Value]] = []
    for (driver, semantics), values in paper.items():
        row: list[Value] = [driver, semantics.name]
        for interval in intervals_ms:
            ours = [float(getattr(one, field)) for one in results[driver, semantics][interval]]
            row += [values[INTERVALS_MS.index(interval)], median(ours), f"{min(ours):.3g} {max(ours):.3g}"]
        rows.append(row)
    return Table(name, title, tuple(columns), rows)


def _details(results: Results) -> Table:
    """Everything else that was measured, each round by itself."""
    rows = [
        (driver, semantics.name, interval, number, *one)
        for (driver, semantics), by_interval in results.items()
        for interval, several in by_interval.items()
        for number, one in enumerate(several, 1)
    ]
    columns = (
        "implementation", "semantics", "interval ms", "round", "delivery ms", "delivery p99 ms", "stability ms",
        "stability p99 ms", "messages", "refused", "not stable", "new views", "members left: why", "events a second",
        "context switches an event", "processor us a broadcast", "select calls an event",
    )  # fmt: skip
    return Table("group-latency", "Every measurement behind Tables 1 to 3", columns, rows)
