"""What a server may use, and what it asks of its process: processors, descriptors, the garbage collector, malloc."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from contextlib import suppress
from math import ceil, inf
from pathlib import Path
from typing import Literal

from twisted.logger import Logger

CGROUP = Path("/sys/fs/cgroup")

RESERVED_FILES = 64
"""File descriptors that clients never get. A node needs some 20, and one for each request to the application."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""

LARGE_BLOCK_BYTES = 512 * 1024
"""The heap does not grow for blocks of memory from this size on. Answers are smaller by default, large tables are not:
touching new memory takes 0.25 to 2 us for each KiB, each time."""

_log = Logger()


def raise_file_limit() -> int:
    """Let this process open as many files as it is allowed to; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connection_limit(wanted: int, backend_connections: int, operator_connections: int) -> tuple[int, int]:
    """How many connections to accept at most, so that some file descriptors stay free; and how many of those operators
    may have.

    The others are for Redis, the journal and the application (`backend_connections`). If clients had them all, none of
    these could be opened again: each descriptor that becomes free would go to the next client.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = min(RESERVED_FILES + backend_connections + operator_connections, files // 2)
    limit = min(wanted, files - reserve)
    _log.info(
        "at most {limit} connections (connections_limit is {wanted}; of {files} file descriptors, {reserve} are "
        "reserved for Redis, the journal, the application and operators)",
        limit=limit, wanted=wanted, files=files, reserve=reserve,
    )  # fmt: skip
    return limit, min(operator_connections, reserve // 4)


def spare_garbage_collector() -> None:
    """Have no more searches look at what exists now. O(1), while a search takes 30 ns for each item of a collection.

    For rare moments at which much exists that is in no cycle: a cycle that exists now, and ends later, is never freed.
    """
    gc.freeze()


def tune_garbage_collector() -> None:
    """Look for reference cycles less often: a held poll is in none, and each search looks at all of them.

    By default Python searches after every 700 new objects; with a fan-out to 5,000 that took 5 % of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def tune_malloc() -> None:
    """Keep the heap from growing for large blocks of memory: they go back to the system as soon as they are freed.

    By default, glibc does that up to a size that grows, up to 32 MiB, with each such block that is freed. A table that
    fills up is copied to a new block; if it was in the heap, small objects soon take parts of the hole, and the next
    copy needs another one. So a heap grew by megabytes an hour, and what was in it did not.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)  # in the same proportion as by default


def worker_count(workers: int | Literal["auto"]) -> int:
    """How many this setting asks for: `auto` is one for each processor that this server may use."""
    return usable_cores() if workers == "auto" else workers


def usable_cores(cgroup: Path = CGROUP) -> int:
    """The processors that this process may run on; less, if its control group gets less time than they have.

    A container with `cpus: 1.5` on a large machine can use 2. Versions 1 and 2 of control groups are read, where the
    container sees its own.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _share(cgroup)
    return cores if share is None else max(1, min(cores, ceil(share)))


def _share(cgroup: Path) -> float | None:
    """How many processors' time the control group may use; None if that is not limited."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None  # "max", or no control groups


def memory_limit(cgroup: Path = CGROUP) -> float:
    """How many bytes of memory the control group may use; infinity if that is not limited."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            return int((cgroup / name).read_text())
    return inf  # "max", or no control groups
