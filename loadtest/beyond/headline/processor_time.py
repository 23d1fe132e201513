"""Processor time per delivery, message or publication: the same work on each server in turn, in several rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from loadtest.beyond.headline.generator import Measured, Work, run
from loadtest.beyond.headline.servers import NCHAN, Start
from loadtest.reports.results import Table, Value

BROWSER = "the same, browser"


def works(few: int = 1_000, many: int = 10_000, rate: float = 5_000.0) -> list[Work]:
    """The rows of the table: `few` subscribers, `many`, and what is published to many channels in a second."""
    loop = "closed loop"
    fan_out = Work(f"fan-out to {few:,}, {loop}", few, window=4)
    spread = Work(f"spread over {few:,} channels, {loop}", few, few, window=64)
    return [
        fan_out,
        fan_out._replace(name=BROWSER, is_browser=True),
        Work(f"fan-out to {few:,}, 10 messages a second", few, rate=10),
        Work(f"fan-out to {many:,}, {loop}", many, window=4),
        spread,
        spread._replace(name=BROWSER, is_browser=True),
        Work(f"spread over {many:,} channels, {loop}", many, many, window=64),
        Work(f"spread over {many:,} channels, {rate:,.0f} messages a second", many, many, rate=rate),
        Work("publications, 8 connections", 0, 8, window=8, publishers=8),
    ]


class Costs:
    """What was measured, by the number of the work and the name of the server; a value for each round."""

    def __init__(self, works: Sequence[Work], servers: Mapping[str, Start]) -> None:
        self.works = works
        self.servers = servers
        self.found: dict[tuple[int, str], list[Measured]] = {}

    def measure_round(self, *, seconds: float, warm: float, step: Callable[[str], None]) -> None:
        """Each work on each server, one after the other; every time with a new server."""
        for number, work in enumerate(self.works):
            for name, start in self.servers.items():
                step(f"{work.name}, {name}")
                with start() as target:
                    measured = run(target, work, seconds=seconds, warm=warm)
                self.found.setdefault((number, name), []).append(measured)

    def tables(self, about: str) -> list[Table]:
        """The costs, and what else was seen of the runs."""
        columns = ["work", "unit"]
        for name in self.servers:
            columns += [f"{name} us", f"{name} user", f"{name} system"]
            if name != NCHAN and NCHAN in self.servers:
                columns.append(f"{name} to {NCHAN}")
        rows = [
            [work.name, work.unit, *(value for name in self.servers for value in self._row(number, name))]
            for number, work in enumerate(self.works)
        ]
        seen = (
            "work", "server", "range us", "a second", "trip p50 ms", "trip p99 ms", "lost", "repeated",
            "load's share of its processor",
        )  # fmt: skip
        return [
            Table(
                "headline",
                f"Processor time of the server; medians of {self._rounds} rounds; {about}",
                tuple(columns),
                rows,
            ),
            Table("headline-runs", "The runs of these rounds", seen, list(self._runs()), failed=self.failed()),
        ]

    def failed(self) -> str:
        return "\n".join(
            f"{self.works[number].name}, {name}: {fault}"
            for (number, name), runs in self.found.items()
            for measured in runs
            if (fault := faults(self.works[number], measured))
        )

    @property
    def _rounds(self) -> int:
        return max(map(len, self.found.values()))

    def _row(self, number: int, name: str) -> Iterator[Value]:
        work, runs = self.works[number], self.found[number, name]
        costs = [cost(work, m) for m in runs]
        yield median(costs)
        yield median(1e6 * m.user / done(work, m) for m in runs)
        yield median(1e6 * m.system / done(work, m) for m in runs)
        if name != NCHAN and NCHAN in self.servers:
            others = [cost(work, m) for m in self.found[number, NCHAN]]
            ratios = [value / other for value, other in zip(costs, others, strict=True) if other]
            yield f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else ""

    def _runs(self) -> Iterator[tuple[Value, ...]]:
        for (number, name), runs in self.found.items():
            work = self.works[number]
            costs = [cost(work, m) for m in runs]
            trips = (
                [median(m.trip_p50 for m in runs), median(m.trip_p99 for m in runs)] if work.subscribers else ["", ""]
            )
            yield (
                work.name, name, f"{min(costs):.1f}-{max(costs):.1f}", median(done(work, m) / m.seconds for m in runs),
                *trips, sum(m.lost for m in runs), sum(m.repeated for m in runs), max(m.own for m in runs),
            )  # fmt: skip


def done(work: Work, measured: Measured) -> int:
    """What the processor time is divided by."""
    return max(1, measured.deliveries if work.subscribers else measured.acknowledgements)


def cost(work: Work, measured: Measured) -> float:
    """Microseconds of the server."""
    return 1e6 * (measured.user + measured.system) / done(work, measured)


def faults(work: Work, measured: Measured) -> str:
    """What should not have happened; empty if everybody has everything, once and in order."""
    if measured.lost or measured.repeated:
        return f"{measured.lost} lost, {measured.repeated} repeated or out of order"
    return "" if measured.published else "nothing was published"
