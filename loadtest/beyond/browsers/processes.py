"""Which process of a browser runs a page."""

from __future__ import annotations

from collections.abc import Callable

import psutil

WORK = "const end = Date.now() + 400; while (Date.now() < end);"
"""A script that keeps its page's process busy."""

LEAD = 2.0
"""How many times as long as any other process it must have worked: others have messages to show meanwhile."""

LEAST_SECONDS = 0.05
"""How long it must have worked at least."""

ATTEMPTS = 10


def busiest(root: int, kind: str, in_page: Callable[[str], object]) -> int:
    """The process, among those that descend from `root`, that works most while `in_page` runs a script in a page.

    No browser tells which process runs a page, and this works with all of them.

    kind: how an argument ends that only processes with pages are started with: what else belongs to a browser may work
        as long as a page does
    """
    for _ in range(ATTEMPTS):
        before = _seconds(root, kind)
        in_page(WORK)
        worked = {pid: seconds - before.get(pid, seconds) for pid, seconds in _seconds(root, kind).items()}
        most, second, *_ = [*sorted(worked.values(), reverse=True), 0.0, 0.0]
        if most > max(LEAST_SECONDS, LEAD * second):
            return max(worked, key=worked.__getitem__)
    raise AssertionError(f"no process stands out while a page works, in seconds by process: {worked}")


def _seconds(root: int, kind: str) -> dict[int, float]:
    """The processor time of each descendant of this kind, in seconds."""
    seconds = {}
    for process in psutil.Process(root).children(recursive=True):
        try:
            times = process.cpu_times()
            has_pages = any(argument.endswith(kind) for argument in process.cmdline())
        except psutil.Error:  # it has ended
            continue
        if has_pages:
            seconds[process.pid] = times.user + times.system
    return seconds
