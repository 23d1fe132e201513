"""The command line in its own processes: run to the end, or kept running and read from."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from tests.server.raw_client import WAIT_SECONDS
from tests.server.server_process import clean_environment


def run(*arguments: str, given: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `pushup` until it exits."""
    return subprocess.run(
        [sys.executable, "-m", "pushup", *arguments],
        input=given,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def error_of(*arguments: str, **environment: str) -> str:
    """The error message of a call that must fail, without a traceback."""
    ended = run(*arguments, **environment)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


class Running:
    """A running `pushup`; `line` and `error_line` return what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._error_lines: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=_read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self._lines), (process.stderr, self._error_lines))
        ]
        for reader in self._readers:
            reader.start()

    def line(self) -> Any:
        """The next line of its output, parsed as JSON."""
        return json.loads(self.text())

    def text(self) -> str:
        """The next line of its output."""
        return self._lines.get(timeout=WAIT_SECONDS).rstrip("\n")

    def error_line(self, part: str) -> str:
        """The next line of standard error that contains this text."""
        while True:
            line = self._error_lines.get(timeout=WAIT_SECONDS)
            if part in line:
                return line

    def write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def interrupt(self) -> int:
        """Send Ctrl-C; returns the exit code, negative for a signal as in `subprocess`."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(10)

    def wait(self) -> int:
        return self._process.wait(20)

    def join(self) -> None:
        for reader in self._readers:
            reader.join(10)


@contextmanager
def started(url: str, *arguments: str) -> Iterator[Running]:
    """Run `pushup` until the `with` block ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "pushup", *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=clean_environment({"PUSHUP_URL": url}),
        text=True,
    ) as process:
        runs = Running(process)
        try:
            yield runs
        finally:
            process.kill()
            runs.join()


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
