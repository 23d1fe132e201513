"""A planted bug: the text of a change to the source, and how it is made in a copy of the repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from tests.simulation.steps import Plan

ROOT = Path(__file__).parents[2]

COPIED = ("pushup", "tests")
"""What a copy consists of; everything else at the top level is linked."""


class DoesNotFit(Exception):
    """The source has changed, and the text to replace is not there exactly once."""


class Edit(NamedTuple):
    """Replace `old`, which is in the file exactly once, by `new`."""

    file: str
    old: str
    new: str

    def made_in(self, text: str) -> str:
        """The text of the file with the change. Raises: DoesNotFit."""
        if text.count(self.old) != 1:
            raise DoesNotFit(f"{self.file} has the text to replace {text.count(self.old)} times:\n{self.old}")
        return text.replace(self.old, self.new)


class Bug(NamedTuple):
    """A mistake that somebody has made, or could.

    `what`: what goes wrong, in one sentence; `source`: where it comes from. The simulation has to find it, unless
    `test` names the test that does: a file or a node id of pytest; `why` then says why the simulation cannot.
    `kind`: the only broadcast that it can be seen with, or empty; `needs`: steps of which a plan must have one, or none;
    `limits`: the limits of which a cluster must have one, or none.
    Other seeds count, and need not be run. `family`: what the names of its seeds begin with (`tests/simulation/plan.py`).
    """

    name: str
    what: str
    source: str
    edits: tuple[Edit, ...]
    kind: str = ""
    needs: tuple[str, ...] = ()
    test: str = ""
    why: str = ""
    family: str = ""
    limits: tuple[str, ...] = ()

    def may_show(self, plan: Plan) -> bool:
        """Whether a run of this plan can differ from one without the bug."""
        is_kind = self.kind in ("", plan.setup["kind"])
        has_limits = not self.limits or plan.setup["limits"] in self.limits
        return is_kind and has_limits and (not self.needs or any(step.kind in self.needs for step in plan.steps))


def plant(bug: Bug, root: Path) -> None:
    """Make the bug's changes in the tree at `root`. Raises: DoesNotFit."""
    for edit in bug.edits:
        path = root / edit.file
        path.write_text(edit.made_in(path.read_text()))


def copy_source(target: Path) -> None:
    """Make `target` a copy of the repository in which sources can be changed."""
    target.mkdir()
    for path in ROOT.iterdir():
        if path.name in COPIED:
            shutil.copytree(path, target / path.name)  # with what is compiled
        elif not path.name.startswith(".") and path.name != "results":
            (target / path.name).symlink_to(path)
