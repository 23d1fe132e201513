"""One process of a cluster: starts it, waits for it, stops, kills and restarts it. Its output goes to a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

START_SECONDS = 20.0
"""How long a part may take to be ready; each takes less than 2 s on an idle machine."""

STOP_SECONDS = 15.0
"""How long a part may take to end before it is killed: a node's drain time and a little more."""

LAST_LINES = 15
"""Lines of its log that are shown when a part fails."""


class PartFailed(Exception):
    """A part did not start, or ended by itself; the text has its name and the end of its log."""


class Interrupted(Exception):
    """The cluster was asked to stop while it was starting."""


class Part:
    """A process and its command. `is_ready`: whether the process can be used; it may raise OSError if not.

    `start_seconds`: how long it may take until it is ready; None: START_SECONDS.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        is_ready: Callable[[], bool],
        start_seconds: float | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = folder / f"{name}.log"
        self._environment = dict(environment)
        self._folder = folder
        self._is_ready = is_ready
        self._start_seconds = START_SECONDS if start_seconds is None else start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not running."""
        return self._process.pid if self._process is not None and self.runs else None

    @property
    def runs(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    def begin(self) -> None:
        """Start the process in a new session, so that Ctrl-C at a terminal does not reach it."""
        assert self._process is None, f"{self.name} is already running"
        command = self.command
        if shutil.which("setpriv"):  # Linux: the process ends with its parent, even if that is killed
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment, cwd=self._folder, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Raises: PartFailed; Interrupted."""
        deadline = time.monotonic() + self._start_seconds
        while True:
            if interrupted():
                raise Interrupted
            if not self.runs:
                raise PartFailed(self.obituary())
            with contextlib.suppress(OSError):
                if self._is_ready():
                    return
            if time.monotonic() > deadline:
                raise PartFailed(f"{self.name} was not ready after {self._start_seconds:.0f} s. {self._last_words()}")
            time.sleep(0.03)

    def restart(self) -> None:
        """Start it after it has ended by itself, without waiting."""
        self.kill()  # ends its children, and reaps it
        self.begin()

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises: PartFailed."""
        self.begin()
        self.wait_until_ready()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None  # unlike os.kill, Popen.send_signal may reap it, and its pid could be reused
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL. Its pid cannot be reused until we have waited for it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask the process to end, wait for it, and kill whatever is left."""
        self.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        while self.runs and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.runs:
            click.echo(f"{self.name} has not stopped within {STOP_SECONDS:.0f} s; killing it.", err=True)
        self.kill()

    def ask_to_stop(self) -> None:
        """Ask the process to end, without waiting."""
        if self.runs:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a suspended process could not end

    def obituary(self) -> str:
        """Says how the process ended, with the end of its log."""
        assert self._process is not None
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if status is None:
            return f"{self.name} is running"
        how = "exited with" if status.si_code == os.CLD_EXITED else "was ended by signal"
        return f"{self.name} {how} {status.si_status}. {self._last_words()}"

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        return "Its last output was:\n" + "\n".join(f"    {line}" for line in lines) if lines else "It printed nothing."


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
