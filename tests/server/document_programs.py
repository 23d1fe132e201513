"""The programs of a document, run as it says: its commands, and an application in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.raw_client import connected_socket
from tests.server.server_process import wait_until


@contextmanager
def started(command: list[str], port: int, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, a module of Python and its arguments, until the end of the block; enters once it listens."""
    with (folder / f"{port}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, stdout=log, stderr=log, env={**os.environ, **environment}
        )
        try:
            wait_until(lambda: _listens(port), f"{command[0]} to listen")
            yield process
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        connected_socket(f"127.0.0.1:{port}").close()
    except OSError:
        return False
    return True
