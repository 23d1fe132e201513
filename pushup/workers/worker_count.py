"""How many workers there are: `auto` is one for each processor that this server may use."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

from pushup.settings.settings import Settings

CGROUP = Path("/sys/fs/cgroup")


def worker_count(settings: Settings) -> int:
    """How many workers these settings ask for."""
    workers = settings.server.workers
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
