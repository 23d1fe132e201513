"""Which process of a browser runs a page."""

from __future__ import annotations

from collections.abc import Callable

import psutil

WORK = "const end = Date.now() + 400; while (Date.now() < end);"
"""A script that keeps its page's process busy."""


def busiest(root: int, in_page: Callable[[str], object]) -> int:
    """The process, among all that descend from `root`, that works most while `in_page` runs a script in a page.

    No browser tells which process runs a page, and this works with all of them.
    """
    before = _seconds(root)
    in_page(WORK)
    after = _seconds(root)
    return max(after, key=lambda pid: after[pid] - before.get(pid, after[pid]))


def _seconds(root: int) -> dict[int, float]:
    """The processor time of each descendant, in seconds."""
    seconds = {}
    for process in psutil.Process(root).children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        seconds[process.pid] = times.user + times.system
    return seconds
