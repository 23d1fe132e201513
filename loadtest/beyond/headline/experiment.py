"""`python -m loadtest headline`: the tables at the top of docs/lab/performance.md.

In full, PushUp is compiled and measured in both forms; with --quick, the compiled form is measured only if `make
compiled` has been run. Nchan is measured if it is installed. `limit` and `bare` are the least that a server in C and
one in Python can do. If anything is lost, repeated or out of order in these runs, the command fails.

| table | contents |
|---|---|
| headline, headline-runs | processor time per delivery, message or publication |
| headline-memory | memory of a held poll, of a channel, of the process |
| headline-delay | a fan-out to 15,000 polls, and another channel beside it |
| headline-stalled | clients that stop reading, and the others |
| headline-channels | a number of other, unused channels |
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deploy import compiled
from loadtest.beyond.headline import other_tables
from loadtest.beyond.headline.generator import Work
from loadtest.beyond.headline.processor_time import Costs, works
from loadtest.beyond.headline.servers import BARE, COMPILED, COMPILED_NAME, LIMIT, Start, fastest_pushup, servers
from loadtest.kit.values import form
from loadtest.reports.results import Figure, Progress, Table


class Sizes(NamedTuple):
    """How much is done. `few`, `many`: subscribers; `polls`: of memory and delay; `rate`: of the spread."""

    few: int
    many: int
    polls: int
    rate: float
    others: tuple[int, ...]
    warm: float
    seconds: float
    rounds: int
    memory_rounds: int


FULL = Sizes(1_000, 10_000, 15_000, 5_000.0, (0, 10_000, 100_000), warm=1.0, seconds=2.5, rounds=5, memory_rounds=3)
QUICK = Sizes(500, 2_000, 2_000, 2_000.0, (0, 10_000), warm=0.3, seconds=0.7, rounds=1, memory_rounds=1)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if not quick and form() != COMPILED_NAME:
        compiled.make(COMPILED)
    sizes = QUICK if quick else FULL
    return measure(sizes, works(sizes.few, sizes.many, sizes.rate), servers()), []


def measure(sizes: Sizes, works: Sequence[Work], servers: Mapping[str, Start]) -> list[Table]:
    """All tables, in the order of the document."""
    real = {name: start for name, start in servers.items() if name not in (LIMIT, BARE)}
    form, pushup = fastest_pushup()
    costs = Costs(works, servers)
    steps = sizes.rounds * len(costs.works) * len(servers) + sizes.memory_rounds * 4 * len(real)
    progress = Progress(steps + len(real) + 2 + sizes.memory_rounds * len(sizes.others))
    for _ in range(sizes.rounds):
        costs.measure_round(seconds=sizes.seconds, warm=sizes.warm, step=progress.step)
    seconds, step = 4 * sizes.seconds, progress.step
    tables = [
        *costs.tables(f"Python {platform.python_version()}"),
        other_tables.memory(
            real, polls=sizes.polls, channels=sizes.many, rounds=sizes.memory_rounds, step=step
        ),
        other_tables.delay(real, polls=sizes.polls, seconds=seconds, step=step),
        other_tables.stalled(pushup, polls=sizes.few, stalled=sizes.few // 100, seconds=seconds, step=step),
        other_tables.other_channels(
            pushup, polls=sizes.few, rate=0.6 * sizes.rate, others=sizes.others, seconds=sizes.seconds,
            rounds=sizes.memory_rounds, step=step,
        ),
    ]  # fmt: skip
    progress.end()
    return [
        table._replace(title=f"{table.title}; PushUp {form}") if table.name in PUSHUP_ONLY else table
        for table in tables
    ]


PUSHUP_ONLY = ("headline-stalled", "headline-channels")
"""Tables of the compiled PushUp, if there is one."""
