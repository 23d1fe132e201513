"""kill -9 of workers, and of the parent, at random times under load: is any acknowledged message lost?

A worker that is killed is replaced; its clients reconnect, and get to another one. A parent that is killed leaves its
workers behind: they answer their clients and exit, while the next parent starts on the same port.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import psutil

from loadtest.load.servers import free_port, running
from loadtest.load.witnesses import COLUMNS, LONGEST_COLUMNS, Found, Witnesses
from loadtest.reports.results import Progress, Table, Value

WORKERS = 3
WORKER_KILLS, PARENT_KILLS = 100, 20
QUICK_WORKER_KILLS, QUICK_PARENT_KILLS = 6, 2

PAUSE_SECONDS = 3.0
"""The next worker is killed after a random time up to this."""

UPTIME_SECONDS = 4.0
"""A parent is killed after a random time between half of this and this."""

SETTLE_SECONDS = 6.0
"""Until all clients have found a server after the last kill."""

SEED = 16


def run(*, quick: bool) -> list[Table]:
    return measure(*((QUICK_WORKER_KILLS, QUICK_PARENT_KILLS) if quick else (WORKER_KILLS, PARENT_KILLS)))


def measure(worker_kills: int, parent_kills: int) -> list[Table]:
    rng = random.Random(SEED)  # noqa: S311  # the same kills each time
    progress = Progress(worker_kills + parent_kills)
    rows: list[tuple[Value, ...]] = []
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        port = free_port()
        flags = ["--workers", str(WORKERS), "--set", "retention_messages=10000000", "--set", "retention_seconds=1h"]
        flags += ["--set", "retention_bytes=4GiB", "--set", "drain_seconds=1s"]

        def journal(name: str) -> list[str]:
            return [*flags, "--broadcast", f"journal:{Path(folder) / name}"]

        with running(*journal("one.db"), port=port, core=None) as server:
            witnesses = Witnesses([f"http://127.0.0.1:{port}"], pause=0.005)
            witnesses.begin()
            for number in range(worker_kills):
                progress.step(f"worker {number + 1}")
                time.sleep(PAUSE_SECONDS * rng.random())
                _kill_one(server.pid, rng)
            time.sleep(SETTLE_SECONDS)
            witnesses.end()
            found["a worker"] = witnesses.compare()
            rows.append(("a worker", worker_kills, *found["a worker"], *witnesses.longest()))
        flags = journal("other.db")
        with running(*flags, port=port, core=None):
            witnesses = Witnesses([f"http://127.0.0.1:{port}"], pause=0.005)
        witnesses.begin()
        for number in range(parent_kills):
            progress.step(f"parent {number + 1}")
            with running(*flags, port=port, core=None):
                time.sleep(UPTIME_SECONDS * (0.5 + rng.random() / 2))
            time.sleep(0.2)  # until its workers have noticed, and listen no more
        with running(*flags, port=port, core=None):
            time.sleep(SETTLE_SECONDS)
            witnesses.end()
            found["the parent"] = witnesses.compare()
            rows.append(("the parent", parent_kills, *found["the parent"], *witnesses.longest()))
    progress.end()
    columns = ("killed", "times", *COLUMNS, *LONGEST_COLUMNS)
    failed = "; ".join(f"{name} was killed; {one.failed}" for name, one in found.items() if one.failed)
    title = f"kill -9 with {WORKERS} workers and a journal, under load"
    return [Table("workers-kills", title, columns, rows, failed)]


def _kill_one(parent: int, rng: random.Random) -> None:
    while not (workers := sorted(child.pid for child in psutil.Process(parent).children())):
        time.sleep(0.05)
    os.kill(rng.choice(workers), signal.SIGKILL)
