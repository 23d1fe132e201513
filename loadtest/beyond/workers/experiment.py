"""What several workers cost, share and hold, and what is lost when processes die."""

from __future__ import annotations

from loadtest.beyond.workers import cost, kills, many, replaced
from loadtest.reports.results import Figure, Table

PARTS = (cost, kills, replaced, many)


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return [table for part in PARTS for table in part.run(quick=quick)], []
