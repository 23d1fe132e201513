"""A real server in its own process, for many tests: it can be started anew in milliseconds, at the same address."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

SECONDS = 10.0
"""By then a process whose input has ended has ended, too."""


class ServerProcess:
    """One that runs. `url`: where."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Raises: RuntimeError if the server does not start."""
        self._process = process
        self.url = self._answer()

    def restart(self, settings: Mapping[str, object]) -> None:
        """Forget all: channels, messages, keys of publications. Connections end. Raises: RuntimeError."""
        assert self._process.stdin is not None
        with suppress(OSError):  # the process has ended: there is no answer
            self._process.stdin.write(f"{json.dumps(dict(settings))}\n")
            self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            raise RuntimeError("PushUp did not start, or has ended; it says why on standard error")
        return url


@contextmanager
def running(settings: Mapping[str, object]) -> Iterator[ServerProcess]:
    """A server with these settings, on a free port of 127.0.0.1, in memory. Raises: RuntimeError."""
    command = [sys.executable, "-m", "pushup.testing", json.dumps(dict(settings))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield ServerProcess(process)
        finally:
            assert process.stdin is not None
            with suppress(OSError):  # it has ended, and there is a line that it did not read
                process.stdin.close()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
