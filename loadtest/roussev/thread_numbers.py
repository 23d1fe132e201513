"""Roussev & Wu, Table 2 and §3.2: which number of threads is best for each design, and how good are 15?

All 2,800 requests of 250 ms, three times. The paper has this table for the concurrent queue only, and says of the
others which number was best.
"""

from __future__ import annotations

from loadtest.reports.results import Figure, Table
from loadtest.roussev.designs import FULL, QUICK, measure_threads


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure_threads(QUICK if quick else FULL)
