"""Checks that what an experiment writes can be read for the papers' items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.everything import PLAN
from loadtest.reports.items import PAPERS
from loadtest.reports.results import Table
from loadtest.reports.saved import Saved


def assert_readable(experiment: str, tables: Sequence[Table], folder: Path, *, but: Sequence[str] = ()) -> None:
    """Each table is in the experiment's plan, and each reading of these tables finds its number in them.

    `but`: readings of which a small run does not have everything.
    """
    names = {table.name for table in tables}
    assert names <= set(PLAN[experiment].writes)
    for table in tables:
        table.write(folder, {"command": f"python -m loadtest {experiment}"})
    found = [
        paper.reading(item)(Saved(folder)).ours
        for paper in PAPERS
        for item in paper.items()
        if item.results and set(item.results) <= names and item.reads not in but
    ]
    assert found
    assert all(found)
