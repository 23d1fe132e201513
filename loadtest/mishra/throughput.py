"""Figures 1 to 3: throughput over the rate at which updates arrive, up to saturation and beyond.

The paper's text has no curves, only what it says of them: events carry more than threads at every rate, and the
difference grows with the rate until saturation. Throughput is updates a second that a member delivers while the load
lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from loadtest.mishra import team
from loadtest.mishra.latency import STRICT_NONE, STRONG_TOTAL, WEAK_TIME, measured
from loadtest.mishra.team import DRIVERS, Load, Semantics
from loadtest.reports.results import Figure, Progress, Table, Value, shown

FIGURES = {1: WEAK_TIME, 2: STRONG_TOTAL, 3: STRICT_NONE}

RATES = (200, 500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10_000, 12_000, 15_000, 20_000)

SATURATED = 0.95
"""Below this share of the rate, a team is saturated."""


class Point(NamedTuple):
    """One rate on one team, in updates a second. `selects`: calls an event; `spread`: the least and the greatest
    throughput of all rounds.
    """

    figure: int
    driver: str
    rate: float
    throughput: float
    delivery_ms: float
    refused: int
    views: int
    selects: float
    spread: tuple[float, float]
    left: str


def measure(
    rates: Sequence[int], *, seconds: float, priorities: bool, rounds: int = 1
) -> tuple[list[Table], list[Figure]]:
    """Each rate with each figure's semantics, each time on a new team; the point with the median of all rounds."""
    progress = Progress(rounds * len(rates) * len(FIGURES) * len(DRIVERS))
    found: dict[tuple[int, str, int], list[Point]] = {}
    for turn in range(rounds):
        for figure, semantics in FIGURES.items():
            for rate in rates:
                for driver in DRIVERS[:: -1 if turn % 2 else 1]:
                    progress.step(f"Figure {figure}, {driver}, {rate} updates a second")
                    point = _point(figure, semantics, driver, rate, seconds, priorities)
                    found.setdefault((figure, driver, rate), []).append(point)
    progress.end()
    points = [_middle(found[figure, driver, rate]) for figure in FIGURES for driver in DRIVERS for rate in rates]
    return [_table(points), _saturation(points)], _figures(points)


def _middle(of_rounds: Sequence[Point]) -> Point:
    ordered = sorted(of_rounds, key=lambda point: point.throughput)
    spread = ordered[0].throughput, ordered[-1].throughput
    return ordered[len(ordered) // 2]._replace(spread=spread)


def _point(figure: int, semantics: Semantics, driver: str, rate: int, seconds: float, priorities: bool) -> Point:
    """One measurement. A team that does not find together again after the load is a result."""
    try:
        with team.running(driver, priorities=priorities) as members:
            reports = members.give(Load(semantics, 1 / rate, seconds))
    except (TimeoutError, RuntimeError) as error:
        return Point(figure, driver, rate, 0.0, 0.0, 0, 0, 0.0, (0.0, 0.0), str(error))
    result = measured(reports, seconds)
    throughput = sum(report.delivered_in_time for report in reports) / len(reports) / seconds
    return Point(
        figure, driver, rate, throughput, result.delivery, result.refused, result.views, result.selects,
        (throughput, throughput), result.left,
    )  # fmt: skip


def _table(points: Sequence[Point]) -> Table:
    rows: list[tuple[Value, ...]] = [
        (FIGURES[point.figure].name, *point[:-2], " ".join(map(shown, point.spread)), point.left) for point in points
    ]
    columns = (
        "semantics", "figure", "implementation", "arrivals a second", "delivered a second", "delivery ms", "refused",
        "new views", "select calls an event", "delivered, from to", "members left: why",
    )  # fmt: skip
    return Table("group-throughput", "Throughput over the arrival rate (Figures 1 to 3)", columns, rows)


def _saturation(points: Sequence[Point]) -> Table:
    """What the paper says of its figures, of ours: the difference at each rate, and each line's most."""
    rows: list[tuple[Value, ...]] = []
    for figure, semantics in FIGURES.items():
        by_driver = {
            driver: {
                point.rate: point.throughput for point in points if (point.figure, point.driver) == (figure, driver)
            }
            for driver in DRIVERS
        }
        most = {driver: max(values.values()) for driver, values in by_driver.items()}
        kept_up = {
            driver: max((rate for rate, value in values.items() if value >= SATURATED * rate), default=0.0)
            for driver, values in by_driver.items()
        }
        events, threads = DRIVERS
        rows.append((
            figure, semantics.name, kept_up[events], kept_up[threads], most[events], most[threads],
            most[events] / (most[threads] or 1.0),
        ))  # fmt: skip
    columns = (
        "figure", "semantics", "events keep up to", "threads keep up to", "most, events", "most, threads",
        "events over threads",
    )  # fmt: skip
    title = f"Saturation: the highest rate of which {SATURATED:.0%} is delivered, and the most that is"
    return Table("group-saturation", title, columns, rows)


def _figures(points: Sequence[Point]) -> list[Figure]:
    figures = []
    for number, semantics in FIGURES.items():
        by_driver = {
            driver: [point for point in points if (point.figure, point.driver) == (number, driver)]
            for driver in DRIVERS
        }
        lines = {driver: [(point.rate, point.throughput) for point in line] for driver, line in by_driver.items()}
        spreads = {driver: [point.spread for point in line] for driver, line in by_driver.items()}
        title = f"Throughput, {semantics.name} (Mishra & Yang, Figure {number})"
        figures.append(
            Figure(f"group-figure-{number}", title, "arrivals a second", "delivered a second", lines, spreads=spreads)
        )
    return figures
