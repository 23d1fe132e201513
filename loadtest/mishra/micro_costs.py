"""The micro-costs of §5.3: a thread switch, lock and unlock, `select`; here, and with pthreads in C.

The paper counted 10,000 of each: 16 us a switch, 14 us to lock and unlock, less than 5 us a `select`. Python's global
lock makes a switch dearer: the thread that waits has to be woken for the condition and for the global lock. The same in
C (`micro_costs.c`, compiled when it is needed) shows how much of our result that is.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loadtest.reports.results import Table, Value

SOURCE = Path(__file__).with_name("micro_costs.c")

COUNT = 10_000
"""How many of each, as in the paper."""


class Costs(NamedTuple):
    """Microseconds each."""

    switch: float
    lock: float
    select: float

    @property
    def threads(self) -> float:
        """What the paper says an event costs with threads at least: lock, unlock, and a switch."""
        return self.switch + self.lock


PAPER = Costs(16.0, 14.0, 5.0)


def measure(*, count: int = COUNT, rounds: int = 5) -> Table:
    """The median of the rounds. Without a C compiler, there is no row for C."""
    found = {
        "paper (SGI, pthreads; select: less than)": PAPER,
        "Python": _medians([in_python(count) for _ in range(rounds)]),
    }
    if shutil.which("cc"):
        found["C, pthreads"] = _medians(in_c(count, rounds))
    rows: list[tuple[Value, ...]] = [
        (name, *costs, costs.threads, costs.threads / costs.select) for name, costs in found.items()
    ]
    if "C, pthreads" in found:
        python, c = found["Python"], found["C, pthreads"]
        shares = [1 - there / here for here, there in zip((*python, python.threads), (*c, c.threads), strict=True)]
        rows.append(("share of Python and its global lock, %", *(100 * share for share in shares), "-"))
    columns = ("", "thread switch us", "lock and unlock us", "select us", "switch, lock, unlock us", "that / select")
    return Table("group-micro-costs", f"Micro-costs (§5.3), {count:,} of each, median of {rounds}", columns, rows)


def in_python(count: int) -> Costs:
    """Of this interpreter, on one processor if the system can say so."""
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        if processors:
            os.sched_setaffinity(0, {min(processors)})
        return Costs(_switch(count), _lock(count), _select(count))
    finally:
        if processors:
            os.sched_setaffinity(0, processors)


def in_c(count: int, rounds: int) -> list[Costs]:
    """Compile the program and run it. Raises: CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "micro_costs"
        cc = shutil.which("cc") or "cc"
        subprocess.run([cc, "-O2", "-pthread", "-o", str(program), str(SOURCE)], check=True)  # noqa: S603
        found = []
        for _ in range(rounds):
            done = subprocess.run([str(program), str(count)], check=True, capture_output=True, text=True)  # noqa: S603
            switch, lock, selects = map(float, done.stdout.split())
            found.append(Costs(switch, lock, selects))
        return found


def _switch(count: int) -> float:
    """Two threads hand each other the turn."""
    condition = threading.Condition()
    turn = 0

    def take_turns(me: int) -> None:
        nonlocal turn
        with condition:
            for _ in range(count // 2):
                while turn != me:
                    condition.wait()
                turn = 1 - me
                condition.notify()

    other = threading.Thread(target=take_turns, args=(1,))
    begin = time.perf_counter()
    other.start()
    take_turns(0)
    other.join()
    return 1e6 * (time.perf_counter() - begin) / count


def _lock(count: int) -> float:
    lock = threading.Lock()

    def lock_and_unlock() -> None:
        lock.acquire()
        lock.release()

    return _each(count, lock_and_unlock)


def _select(count: int) -> float:
    """Of one file that is ready."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"x")
        files = [reading]
        return _each(count, lambda: select.select(files, [], []))
    finally:
        os.close(reading)
        os.close(writing)


def _each(count: int, function: Callable[[], object]) -> float:
    """Microseconds a call, without the loop."""
    begin = time.perf_counter()
    for _ in range(count):
        pass
    empty = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(count):
        function()
    return 1e6 * (time.perf_counter() - begin - empty) / count


def _medians(found: list[Costs]) -> Costs:
    return Costs(*(median(values) for values in zip(*found, strict=True)))
