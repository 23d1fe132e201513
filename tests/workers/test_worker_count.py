"""What a control group limits: how many workers `auto` is, and memory."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import pytest

from pushup.host.process_limits import memory_limit, usable_cores, worker_count
from pushup.settings.server import ServerSettings


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty control group, on a machine of which this process may use eight processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    return tmp_path


def test_without_a_control_group_all_processors_are_used(cgroup: Path) -> None:
    """Those that this process may run on."""
    assert usable_cores(cgroup) == 8
    assert usable_cores(cgroup / "missing") == 8


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000\n", 8),
        ("150000 100000\n", 2),
        ("200000 100000\n", 2),
        ("200001 100000\n", 3),
        ("1000 100000\n", 1),
        ("50000 50000\n", 1),
        ("9900000 100000\n", 8),
        ("", 8),
        ("nonsense\n", 8),
    ],
)
def test_version_2(cgroup: Path, limit: str, expected: int) -> None:
    """`cpu.max` is time per period, in microseconds; part of a processor counts as one."""
    (cgroup / "cpu.max").write_text(limit)
    assert usable_cores(cgroup) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("0", 8), ("250000", 3), ("100000", 1), ("x", 8)])
def test_version_1(cgroup: Path, quota: str, expected: int) -> None:
    """In two files; -1 is no limit."""
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(cgroup) == expected


def test_version_2_counts_if_there_are_both(cgroup: Path) -> None:
    """It is the one in use."""
    (cgroup / "cpu.max").write_text("300000 100000\n")
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(cgroup) == 3


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_a_system_that_does_not_say_where_a_process_may_run(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    """Such as macOS: all processors, or one if nobody knows."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores(cgroup) == expected


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is that number; one is the default."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert worker_count(ServerSettings().workers) == 1
    assert worker_count(5) == 5
    assert worker_count("auto") == usable_cores()


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("memory.max", "2147483648\n", 2147483648),
        ("memory.max", "max\n", inf),
        ("memory/memory.limit_in_bytes", "1073741824\n", 1073741824),
        ("none", "", inf),
    ],
)
def test_memory(tmp_path: Path, name: str, limit: str, expected: float) -> None:
    """That of the control group, of version 2 or 1, if it is limited."""
    (tmp_path / "memory").mkdir()
    (tmp_path / name).write_text(limit)
    assert memory_limit(tmp_path) == expected
