"""A share of a processor for each of some processes: a quota of the kernel's, by control groups (cgroups)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

PERIOD_MICROSECONDS = 50_000
"""A process that has used up its share waits for the rest of such a period. The least quota is 1 ms, so 2 %."""

V1 = Path("/sys/fs/cgroup/cpu")
V2 = Path("/sys/fs/cgroup")


class Shares:
    """Gives processes their shares until the end of the block. Raises: OSError if this system does not allow it."""

    def __init__(self) -> None:
        self._groups: list[Path] = []

    def give(self, pids: Iterable[int], share: float) -> None:
        """Let these processes together use at most this share (0 to 1) of a processor."""
        quota = round(share * PERIOD_MICROSECONDS)
        is_v1 = (V1 / "cgroup.procs").exists()
        group = (V1 if is_v1 else V2) / f"pushup-{os.getpid()}-{len(self._groups)}"
        if not is_v1:
            (V2 / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
        self._groups.append(group)
        if is_v1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for group in self._groups:
            for pid in (group / "cgroup.procs").read_text().split():
                (group.parent / "cgroup.procs").write_text(pid)
            group.rmdir()
        self._groups.clear()


def why_not() -> str:
    """Why this system does not allow it; empty if it does."""
    try:
        with Shares() as shares:
            shares.give((), 0.5)
    except OSError as error:
        return f"processes cannot be given a share of a processor here: {error}. Root and a cgroup are needed."
    return ""
