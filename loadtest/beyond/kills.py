"""kill -9 of a server with a journal, at random times under load: is any acknowledged message lost?"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from loadtest.load.servers import free_port, running
from loadtest.load.witnesses import COLUMNS, Witnesses
from loadtest.reports.results import Figure, Progress, Table

KILLS = 200
QUICK_KILLS = 10
MAX_UPTIME_SECONDS = 1.5
"""Each server is killed after a random time up to this."""

SEED = 9


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK_KILLS if quick else KILLS)


def measure(kills: int) -> tuple[list[Table], list[Figure]]:
    """Kill the server `kills` times, and compare what was acknowledged with what is still there."""
    rng = random.Random(SEED)  # noqa: S311  # the same kills each time
    port = free_port()
    progress = Progress(kills)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        flags = ["--broadcast", f"journal:{Path(folder) / 'journal.db'}", "--set", "retention_messages=10000000"]
        flags += ["--set", "retention_seconds=1h", "--set", "retention_bytes=4GiB"]
        with running(*flags, port=port):
            witnesses = Witnesses([f"http://127.0.0.1:{port}"])
        witnesses.begin()
        for number in range(kills):
            progress.step(f"kill {number + 1}")
            with running(*flags, port=port):
                time.sleep(MAX_UPTIME_SECONDS * rng.random())
        with running(*flags, port=port):
            time.sleep(2.0)
            witnesses.end()
            found = witnesses.compare()
    progress.end()
    columns = ("kills", *COLUMNS)
    title = "kill -9 of a server with a journal, under load"
    return [Table("kills", title, columns, [(kills, *found)], found.failed)], []
