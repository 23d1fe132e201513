"""One process of a cluster: started, awaited, killed, stopped, started again; its output goes to a file."""

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
"""How long a part may take until it is ready; all take less than 2 s on an idle machine."""

STOP_SECONDS = 15.0
"""How long a part may take to end before it is killed: a node's drain window and a little more."""

LAST_LINES = 15
"""How much of its log is told of a part that failed."""


class PartFailed(Exception):
    """A part did not start, or ended by itself; the text says which, and what it said last."""


class Interrupted(Exception):
    """Somebody wants the cluster to end while it starts."""


class Part:
    """A process by its command; `is_ready` asks it whether it can be used, and may fail with OSError if not."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        is_ready: Callable[[], bool],
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = folder / f"{name}.log"
        self._environment = dict(environment)
        self._folder = folder
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, unless it does not run."""
        return self._process.pid if self._process is not None and self.runs else None

    @property
    def runs(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    def begin(self) -> None:
        """Start its process, in a session of its own: Ctrl-C at a terminal reaches only who started the cluster."""
        assert self._process is None, f"{self.name} runs already"
        command = self.command
        if shutil.which("setpriv"):  # Linux: it ends with its parent, even if that is killed
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment, cwd=self._folder, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Raises: PartFailed; Interrupted."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if interrupted():
                raise Interrupted
            if not self.runs:
                raise PartFailed(self.obituary())
            with contextlib.suppress(OSError):
                if self._is_ready():
                    return
            if time.monotonic() > deadline:
                raise PartFailed(f"{self.name} was not ready after {START_SECONDS:.0f} s. {self._last_words()}")
            time.sleep(0.03)

    def begin_again(self) -> None:
        """Start it after it has ended by itself, without waiting."""
        self.kill()  # its children, and what the kernel remembers of it
        self.begin()

    def start(self) -> None:
        """Start it and wait until it is ready. Raises: PartFailed."""
        self.begin()
        self.wait_until_ready()

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self._process is not None  # Popen.send_signal may wait for it, and then its number is free
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        if self._process is not None:
            self._end_group()

    def stop(self) -> None:
        """Ask it to end, wait, and kill what is left of it."""
        self.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        while self.runs and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.runs:
            click.echo(f"{self.name} has not ended after {STOP_SECONDS:.0f} s and is killed.", err=True)
        self.kill()

    def ask_to_stop(self) -> None:
        """Ask it to end, without waiting."""
        if self.runs:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # if somebody has stopped it, it could not end

    def obituary(self) -> str:
        """That it has ended, how, and what it said last."""
        assert self._process is not None
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if status is None:
            return f"{self.name} runs"
        how = "exited with" if status.si_code == os.CLD_EXITED else "was ended by signal"
        return f"{self.name} {how} {status.si_status}. {self._last_words()}"

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if self.log.exists() else []
        return "It said last:\n" + "\n".join(f"    {line}" for line in lines) if lines else "It said nothing."

    def _end_group(self) -> None:
        """Its process and its children. Until it is waited for, nobody else can have its number."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
