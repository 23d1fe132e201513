"""Tries one bug: a copy of the source for it, and the seeds or the test that must notice it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from statistics import median_high
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.planted_bugs.bug import Bug, copy_source, plant
from tests.simulation.seeds import run_seed
from tests.simulation.shrink import kind_of

APART = 1000
"""The starting points are so many seeds apart."""

TESTS_FAILED = 1
"""The exit status of pytest if it ran, and a test failed."""


class Hunt(NamedTuple):
    """From one starting point: after how many seeds it was found, the last of them, and by which promise."""

    seeds: int
    seed: str
    broken: str


class Outcome(NamedTuple):
    """What became of a bug. `hunts` is empty if a test has to find it; `fails`: whether that does."""

    bug: Bug
    hunts: tuple[Hunt, ...]
    most: int
    fails: bool = False

    @property
    def median(self) -> int | None:
        """The median number of seeds; None if in most cases it was not found."""
        counts = [hunt.seeds if hunt.broken else self.most + 1 for hunt in self.hunts]
        middle = median_high(counts)
        return middle if middle <= self.most else None

    @property
    def is_found(self) -> bool:
        return self.fails if self.bug.test else self.median is not None

    @property
    def seeds(self) -> list[str]:
        """The seeds that found it."""
        return [hunt.seed for hunt in self.hunts if hunt.broken]

    @property
    def row(self) -> str:
        """A row of the table."""
        bug = self.bug
        if bug.test:
            cells = [f"`{bug.test}`" if self.fails else f"NOT by `{bug.test}`", "", bug.why, ""]
        else:
            promises = dict.fromkeys(kind_of(hunt.broken) for hunt in self.hunts if hunt.broken)
            counts = ", ".join(str(hunt.seeds) if hunt.broken else f">{self.most}" for hunt in self.hunts)
            cells = ["; ".join(promises), str(self.median or f">{self.most}"), counts, next(iter(self.seeds), "")]
        return f"| {' | '.join([f'{bug.name}: {bug.what}', bug.source, *cells])} |"


def try_bug(bug: Bug, *, seeds: int, repeat: int, known: Known) -> Outcome:
    """Look for a bug from so many starting points, with at most so many seeds from each."""
    with TemporaryDirectory(prefix="planted-") as directory:
        root = Path(directory) / "source"
        copy_source(root)
        plant(bug, root)
        if bug.test:
            tested = _run(root, "pytest", "-q", "-p", "no:cacheprovider", bug.test)
            return Outcome(bug, (), seeds, fails=tested.returncode == TESTS_FAILED)
        for number in range(repeat):
            if (bug.name, number) not in known:
                hunted = _run(root, "tests.planted_bugs.hunt", str(number * APART), str(seeds), bug.kind)
                hunted.check_returncode()
                known.add(bug.name, number, Hunt(**json.loads(hunted.stdout)))
        return Outcome(bug, tuple(known[bug.name, number] for number in range(repeat)), seeds)


class Known(dict[tuple[str, int], Hunt]):
    """The hunts that were finished, by the bug's name and the number of the starting point; kept in a file, if any."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                name, number, *hunt = json.loads(line)
                self[name, number] = Hunt(*hunt)

    def add(self, name: str, number: int, hunt: Hunt) -> None:
        self[name, number] = hunt
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps([name, number, *hunt]), file=file)


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a copy."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    )


@cache
def is_broken_without(seed: str) -> bool:
    """Whether a seed fails without any bug: then it has found none."""
    return bool(run_seed(seed).broken)
