"""PushUp §3.2: are the operations of the B-trees O(log N)? From 1,000 to 1,000,000 items in a tree.

The tree is the one that has held polls by their deadline. Each operation leaves as many
items in it as there were.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from loadtest.kit.application import TimeTree
from loadtest.reports.results import Figure, Progress, Table, Value

SEED = 2010
SPAN_SECONDS = 3600.0
"""Items are at random times in this span."""

RANGE = 10
"""Items that are taken from the beginning."""

OPERATIONS = ("insert and remove one us", f"take the first {RANGE} and insert {RANGE} us")


class Scale(NamedTuple):
    """`repeats`: how often each operation is done in a round."""

    items: Sequence[int]
    repeats: int
    rounds: int


FULL = Scale((1000, 10_000, 100_000, 1_000_000), 20_000, 5)
QUICK = Scale((1000, 10_000, 100_000), 2000, 1)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL)


def measure(scale: Scale) -> tuple[list[Table], list[Figure]]:
    """Each operation on trees of each size; medians of all rounds."""
    progress = Progress(len(scale.items))
    rows: list[list[Value]] = []
    for count in scale.items:
        progress.step(f"{count:,} items")
        rng = random.Random(SEED)  # noqa: S311  # the same times each time
        tree: TimeTree[int] = TimeTree()
        for item in range(count):
            tree.add(rng.uniform(0, SPAN_SECONDS), item)
        costs = [
            median(_cost(operation, scale.repeats) for _ in range(scale.rounds))
            for operation in (partial(_one, tree, rng), _First(tree, rng, count))
        ]
        rows.append([count, *costs])
    progress.end()
    lines = {
        name.removesuffix(" us"): [(float(row[0]), float(row[at])) for row in rows]
        for at, name in enumerate(OPERATIONS, 1)
    }
    title = "The operations of a tree, by how many items are in it"
    return [Table("range-operations", f"{title} (PushUp §3.2)", ("items", *OPERATIONS), rows)], [
        Figure("range-operations", title, "items", "us", lines, log_x=True)
    ]


def _cost(operation: Callable[[], None], repeats: int) -> float:
    """Microseconds."""
    began = time.perf_counter()
    for _ in range(repeats):
        operation()
    return 1e6 * (time.perf_counter() - began) / repeats


def _one(tree: TimeTree[int], rng: random.Random) -> None:
    moment = rng.uniform(0, SPAN_SECONDS)
    tree.add(moment, -1)
    tree.discard(moment, -1)


class _First:
    """Time goes on by as much as there was between the items taken: so those that follow are as old as they were."""

    def __init__(self, tree: TimeTree[int], rng: random.Random, count: int) -> None:
        self._tree, self._rng = tree, rng
        self._now, self._step = 0.0, RANGE * SPAN_SECONDS / count

    def __call__(self) -> None:
        self._now += self._step
        for item in [self._tree.pop_due(math.inf) for _ in range(RANGE)]:
            assert item is not None
            self._tree.add(self._now + self._rng.uniform(0, SPAN_SECONDS), item)
