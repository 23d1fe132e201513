"""PushUp §4.2 as the paper did it: connections are closed after each response, and no two cases run at the same time.

Otherwise it is `push_or_pull`. In 45 minutes there is time for three messages at three of the paper's five intervals.
"""

from __future__ import annotations

from loadtest.liu import push_or_pull
from loadtest.liu.push_or_pull import CONNECTIONS, POLL_SECONDS, PULL_SECONDS, QUICK_SPEED, Pace
from loadtest.reports.results import Figure, Table

FULL = Pace((10.0, 30.0, 50.0), PULL_SECONDS, POLL_SECONDS, 3)
QUICK = Pace((10.0 / QUICK_SPEED, 50.0 / QUICK_SPEED), PULL_SECONDS / QUICK_SPEED, POLL_SECONDS / QUICK_SPEED, 1)
QUICK_CONNECTIONS = CONNECTIONS[:2]
"""With 1,000, a pull every 0.1 s would be 10,000 connections a second."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return push_or_pull.measure(QUICK_CONNECTIONS, QUICK, closing=True)
    return push_or_pull.measure(CONNECTIONS, FULL, closing=True)
