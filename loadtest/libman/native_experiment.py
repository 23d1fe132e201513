"""Libman & Gilbourd: Figures 1 and 2 and the paper's claims, with engines in C (`native/`).

The experiment is that of `experiment`, with five rounds. In Python, a call costs as much as a cheap system call, which
hides what the paper compares. POSIX AIO and real-time signals are here only.
"""

from __future__ import annotations

from loadtest.libman.experiment import FULL, QUICK, measure
from loadtest.libman.runs import native_kinds
from loadtest.reports.results import Figure, Table

ROUNDS = 5


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK if quick else FULL._replace(rounds=ROUNDS), native_kinds(), "echo-native", native=True)
