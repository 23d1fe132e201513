"""The longest turn of the reactor while a worker is replaced, and the new one gets a large state.

Of the workers, old and new, and of the parent, which hands the state over. Messages are published meanwhile.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.beyond.stalls_client import fill
from loadtest.beyond.stalls_probe import LongestTurn
from loadtest.beyond.stalls_server import TURNS_FILE
from loadtest.load.servers import Server, running
from loadtest.load.swarm import Swarm
from loadtest.reports.results import Progress, Table, Value


class Sizes(NamedTuple):
    """How much there is, and for how long it is watched."""

    channels: int
    messages: int
    seconds: float


FULL = Sizes(channels=100_000, messages=1_000_000, seconds=90.0)
QUICK = Sizes(channels=10_000, messages=20_000, seconds=6.0)
WORKERS = 2
MESSAGES_PER_SECOND = 50


def run(*, quick: bool) -> list[Table]:
    return measure(QUICK if quick else FULL)


def measure(sizes: Sizes) -> list[Table]:
    progress = Progress(2)
    flags = ["--workers", str(WORKERS), "--set", "retention_bytes=4GiB", "--set", "retention_seconds=1h"]
    module = "loadtest.beyond.workers.timed_server"
    with tempfile.TemporaryDirectory() as name:
        turns = Path(name) / "turns"
        environment = {TURNS_FILE: str(turns)}
        with running(*flags, module=module, environment=environment, core=None) as server:
            progress.step(f"{sizes.messages} messages on {sizes.channels} channels")
            fill(server, [f"channel-{number}" for number in range(sizes.channels)], sizes.messages)
            time.sleep(2.0)
            before = _files(turns)
            for path in (turns, *before):
                LongestTurn(path).reset()
            progress.step("a worker is replaced")
            took = _replace(server, sizes.seconds)
            after = _files(turns)
            (new,) = set(after) - set(before)
            (dead,) = [path for path in before if not psutil.pid_exists(int(path.suffix[1:]))]
            rows = [_row("the new worker", new, took)]
            rows += [_row("another worker", path, took) for path in before if path != dead]
            rows.append(_row("the parent", turns, took))
    progress.end()
    columns = ("process", "longest turn ms", "its processor ms", "replaced within s")
    title = f"A worker is replaced: {sizes.messages:,} messages on {sizes.channels:,} channels"
    return [Table("workers-replaced", title, columns, rows)]


def _replace(server: Server, seconds: float) -> float:
    """Kill a worker, publish meanwhile, and return how long it took until the next one served clients."""
    workers = sorted(child.pid for child in psutil.Process(server.pid).children())
    swarm = Swarm([server.address], [server.address], subscribers=100, channels=10)
    with closing(swarm):
        swarm.begin()
        began = time.monotonic()
        os.kill(workers[0], signal.SIGKILL)
        while (took := time.monotonic() - began) < seconds:
            swarm.measure(interval=1 / MESSAGES_PER_SECOND, seconds=0.5, drain=0.5)
            if _listeners(server) == len(workers):
                time.sleep(1.0)
                return took
    raise RuntimeError(f"the worker was not replaced within {seconds:.0f} s")


def _listeners(server: Server) -> int:
    """How many workers listen."""
    return sum(_listens(child) for child in psutil.Process(server.pid).children())


def _listens(worker: psutil.Process) -> bool:
    try:
        return any(c.status == psutil.CONN_LISTEN for c in worker.net_connections(kind="tcp"))
    except psutil.NoSuchProcess:  # it is the one that was killed
        return False


def _files(turns: Path) -> list[Path]:
    return sorted(turns.parent.glob(f"{turns.name}.*"))


def _row(process: str, path: Path, took: float) -> tuple[Value, ...]:
    longest = LongestTurn(path)
    turn = longest.read()
    longest.close()
    return process, 1e3 * turn.wall, 1e3 * turn.processor, took
