"""kill -9 of a server with a journal, at random moments under load: is anything lost that was acknowledged?"""

from __future__ import annotations

import random
import socket
import tempfile
import time
from pathlib import Path

from loadtest.results import Figure, Progress, Table
from loadtest.servers import running
from loadtest.witnesses import COLUMNS, Witnesses

KILLS = 200
QUICK_KILLS = 20
LONGEST_SECONDS = 1.5
"""A server lives between no time and so long."""

SEED = 9


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(QUICK_KILLS if quick else KILLS)


def measure(kills: int) -> tuple[list[Table], list[Figure]]:
    """What was acknowledged, and what became of it."""
    chance = random.Random(SEED)  # noqa: S311  # the same kills each time
    port = _free_port()
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
                time.sleep(LONGEST_SECONDS * chance.random())
        with running(*flags, port=port):
            time.sleep(2.0)
            witnesses.end()
            found = witnesses.compare()
    progress.end()
    columns = ("kills", *COLUMNS)
    return [Table("kills", "kill -9 of a server with a journal, under load", columns, [(kills, *found)])], []


def _free_port() -> int:
    """A port that is free, so that the server can come back to it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
