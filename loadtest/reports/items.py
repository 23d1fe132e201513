"""The items of the five papers: each mechanism, experiment, table, figure and claim, and what became of it.

A file for each paper in `items/`. An item was either not done, for a reason, or it has code and tests. If something was
measured, `reads` is the function in `readings/` that finds our number in the result files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from loadtest.reports.readings import hsu, libman, mishra, pushup, roussev
from loadtest.reports.readings.found import NO, NO_RULE, NOT_MEASURED, PARTLY, Found, Reading
from loadtest.reports.saved import NotMeasured, Saved

FOLDER = Path(__file__).with_name("items")


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    """An item of a paper. Paths are relative to the repository.

    place: the section, table or figure
    says: what the paper says, in short
    value: its number, where its text has one
    code: files
    tests: files, or `file::function`
    results: tables that an experiment writes, without suffix; `figures` likewise
    reads: the name of a function of the paper's module in `readings/`
    differs: why ours is another result, if it is; shown only then
    was: an earlier verdict, if it has changed; `because`: why it has
    note: anything else that a reader must know
    not_done: why there is none of the above
    """

    place: str
    says: str
    value: str = ""
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    reads: str = ""
    differs: str = ""
    was: str = ""
    because: str = ""
    note: str = ""
    not_done: str = ""


class Paper(NamedTuple):
    """A paper. `readings`: the module with the functions that its items name."""

    name: str
    title: str
    readings: object

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name.lower()}.toml"

    def items(self) -> list[Item]:
        return msgspec.convert(tomllib.loads(self.file.read_text())["item"], list[Item])

    def reading(self, item: Item) -> Reading:
        """Raises: AttributeError if there is no such function."""
        reading: Reading = getattr(self.readings, item.reads)
        return reading


PAPERS = (
    Paper("PushUp", 'Kai Liu, Yilun Cui, "PushUp: A Scalable Event-driven Long-Polling Server"', pushup),
    Paper(
        "Hsu",
        'Chien-Chih Hsu, I-Chen Wu, "An event-driven framework for inter-user communication applications", 2005',
        hsu,
    ),
    Paper(
        "Libman",
        'Alexander Libman, Vladimir Gilbourd, "Comparing Two High-Performance I/O Design Patterns", 2005',
        libman,
    ),
    Paper(
        "Mishra",
        'Shivakant Mishra, Rongguang Yang, "Thread-based vs Event-based Implementation of a Group Communication '
        'Service"',
        mishra,
    ),
    Paper(
        "Roussev", 'Boris Roussev, Jie Wu, "Client-Server Design Alternatives: Back to Pipes but with Threads"', roussev
    ),
)

TESTED, NOT_DONE = "tested", "not done"
"""Verdicts of items of which nothing was to be measured."""

TOO_SHORT = "the run was too short to tell"


class Compared(NamedTuple):
    """An item beside what we measured: our number, the rule, whether it agrees with the paper by it, and why not."""

    item: Item
    ours: str
    rule: str
    verdict: str
    why: str


def compare(paper: Paper, saved: Saved) -> list[Compared]:
    """Every item of a paper of which something was to be measured."""
    return [one for one in judge(paper, saved) if one.item.reads]


def judge(paper: Paper, saved: Saved) -> list[Compared]:
    """Every item of a paper."""
    return [_judge(paper, item, saved) for item in paper.items()]


def _judge(paper: Paper, item: Item, saved: Saved) -> Compared:
    if not item.reads:
        return Compared(item, "", "", NOT_DONE if item.not_done else TESTED, item.not_done or item.note)
    try:
        found: Found = paper.reading(item)(saved)
    except NotMeasured:
        return Compared(item, "", "", NOT_MEASURED, item.note)
    except (ArithmeticError, LookupError, ValueError):  # a cost of 0, or a number of connections that was left out
        return Compared(item, TOO_SHORT, "", NO_RULE, item.note)
    why = (item.differs if found.verdict in (PARTLY, NO) else "", item.note)
    return Compared(item, found.ours, found.rule, found.verdict, "; ".join(filter(None, why)))


def problems(paper: Paper, item: Item, root: Path, written: Container[str]) -> list[str]:
    """What an item lacks; empty if it is accounted for. `written`: the tables and figures that experiments write."""
    done = bool(item.code or item.tests or item.results or item.reads)
    if item.not_done:
        return ["both done and not done"] if done else []
    found = [f"no {what}, and no reason" for what, had in (("code", item.code), ("test", item.tests)) if not had]
    for path in item.code:
        found += [] if (root / path).exists() else [f"no {path}"]
    for test in item.tests:
        path, _, function = test.partition("::")
        if not (root / path).exists():
            found.append(f"no {path}")
        elif not Path(path).name.startswith("test_"):
            found.append(f"{path} is no test")
        elif function and f"def {function}(" not in (root / path).read_text():
            found.append(f"no {function} in {path}")
    found += [f"no experiment writes {name}" for name in (*item.results, *item.figures) if name not in written]
    if item.results and not item.reads:
        found.append("nothing reads its results")
    if item.reads and not item.results:
        found.append("a reading without results")
    if item.reads and not hasattr(paper.readings, item.reads):
        found.append(f"no reading {item.reads}")
    return found
