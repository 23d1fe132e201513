"""Mishra & Yang §5: the two implementations side by side. Tables 1 to 3, Figures 1 to 3, micro-costs, complexity.

`--quick` gives each load a third of a second, once, without priorities, and two rates to each figure.
"""

from __future__ import annotations

from typing import NamedTuple

from loadtest.mishra import complexity, latency, micro_costs, throughput
from loadtest.mishra.team import can_prioritize
from loadtest.reports.results import Figure, Table


class Scale(NamedTuple):
    """How much to measure. `priorities`: schedule first in, first out, if that is allowed."""

    seconds: float
    rounds: int
    rates: tuple[int, ...]
    rate_seconds: float
    priorities: bool


FULL = Scale(seconds=6.0, rounds=3, rates=throughput.RATES, rate_seconds=5.0, priorities=True)
QUICK = Scale(seconds=0.3, rounds=1, rates=(500, 4000), rate_seconds=0.7, priorities=False)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """All of it; the tables of the paper come first."""
    priorities = scale.priorities and can_prioritize()
    tables, _ = latency.measure(seconds=scale.seconds, rounds=scale.rounds, priorities=priorities)
    more, figures = throughput.measure(
        scale.rates, seconds=scale.rate_seconds, priorities=priorities, rounds=scale.rounds
    )
    scheduling = "first in, first out, a clock's thread first" if priorities else "as any other program"
    titled = [table._replace(title=f"{table.title}; members are scheduled {scheduling}") for table in (*tables, *more)]
    return [*titled, micro_costs.measure(), complexity.measure()], figures
