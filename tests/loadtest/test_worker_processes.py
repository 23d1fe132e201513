"""The experiment with several workers, in small: each part finds what it should, and would notice if it did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.beyond.workers import cost, counts, kills, many, replaced
from loadtest.reports.results import Table

pytestmark = pytest.mark.xdist_group("worker-processes")


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_cost_and_balance() -> None:
    costs, capacity, balance = cost.measure(
        (1, 2), 1, {100: 0.05}, seconds=1.0, connections=400, together=(8,), capacity_subscribers=400
    )
    rows = rows_of(costs)
    assert [(row["work"], row["workers"]) for row in rows] == [
        ("delivery, fan-out to 100", 1), ("delivery, fan-out to 100", 2), ("publication", 1), ("publication", 2),
        ("publication, 8 at a time", 1), ("publication, 8 at a time", 2),
    ]  # fmt: skip
    assert all(row["us, all processes"] > 0 and row["received %"] == 100 for row in rows)
    assert all(row["per second"] > 0 for row in rows_of(capacity))  # how many is up to the machine
    (row,) = rows_of(balance)
    assert sum(json.loads(row["of each worker"])) > 400
    # The kernel takes a worker by a hash. With a coin, of 401 connections, it is 1.6 once in 250,000 times.
    assert row["largest / smallest"] < 1.6


def test_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and something was published meanwhile."""
    monkeypatch.chdir(tmp_path)
    (table,) = kills.measure(2, 2)
    for row in rows_of(table):
        assert row["acknowledged"] > 0
        assert (row["lost"], row["repeated"], row["out of order"], row["gaps reported"]) == (0, 0, 0, 0)
        assert row["complete cursor chains"] == "3 of 3"


def test_a_worker_is_replaced() -> None:
    (table,) = replaced.measure(replaced.Sizes(channels=100, messages=1000, seconds=60.0))
    rows = rows_of(table)
    assert [row["process"] for row in rows] == ["the new worker", "another worker", "the parent"]
    assert all(row["longest turn ms"] > 0 for row in rows)


def test_many_polls() -> None:
    (table,) = many.measure(60, 2, 3)
    (row,) = rows_of(table)
    assert (row["received"], row["wrong"], row["gaps"], row["not answered at the end"]) == (180, 0, 0, 0)
    assert 0 < row["answered after SIGTERM within s"] < many.DRAIN_SECONDS + 5


def test_calls_and_bytes_are_counted() -> None:
    """By process, with what failed (-EAGAIN) among the calls but not the bytes."""
    text = """
     11 raw_syscalls:sys_exit:  NR 45 = 205
     11 syscalls:sys_exit_recvfrom:  0xcd
     11 raw_syscalls:sys_exit:  NR 45 = -11
     11 syscalls:sys_exit_recvfrom:  0xfffffffffffffff5
     12 raw_syscalls:sys_exit:  NR 232 = 1
     12 syscalls:sys_exit_epoll_wait:  0x1
     12 raw_syscalls:sys_exit:  NR 44 = 16
     12 syscalls:sys_exit_sendto:  0x10
    """
    assert counts.read_recorded(text, {"parent": [11], "workers": [12, 13]}) == {
        "parent": counts.Counted(waits=0, calls=2, read=205, written=0),
        "workers": counts.Counted(waits=1, calls=2, read=0, written=16),
    }
