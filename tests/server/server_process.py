"""A real server in its own process: started, measured, and stopped by its pid."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests.server.caller import Caller, poll_path
from tests.server.raw_client import WAIT_SECONDS, RawClient, get

START_SECONDS = 30.0
"""How long a server may take to print its address; it takes 0.3 s on an idle machine."""

WORKER = "pushup.cli.worker_command"
"""The module that a worker process runs."""

_QUIET = re.compile(r"\S+ (debug|info) ")


class Server:
    """A running server; `addresses` in the form of `--listen`, `address` is the first of them."""

    def __init__(self, process: subprocess.Popen[bytes], addresses: list[str], log: Path) -> None:
        self._process = process
        self.addresses = addresses
        self._log = log
        self._looked_at = 0
        self._expected: list[str] = []

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def url(self) -> str:
        return self.address if self.address.startswith("unix:") else f"http://{self.address}"

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    @property
    def memory_bytes(self) -> int:
        """Its resident memory."""
        return int(self.process.memory_info().rss)

    @property
    def cpu_seconds(self) -> float:
        """The processor time it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def busy_share(self, seconds: float = 1.0) -> float:
        """Its share of a processor over some time: 1 if it spins."""
        began, taken = time.monotonic(), self.cpu_seconds
        time.sleep(seconds)
        return (self.cpu_seconds - taken) / (time.monotonic() - began)

    def caller(self) -> Caller:
        """A new client that calls the HTTP interface."""
        return Caller(self.address)

    def connect(self, *, receive_buffer_bytes: int | None = None) -> RawClient:
        """A new client that sends arbitrary bytes."""
        return RawClient(self.address, receive_buffer_bytes=receive_buffer_bytes)

    def metric(self, name: str) -> float:
        """A metric from /metrics; `name` without `pushup_`. A gauge of several workers is added up."""
        with self.caller() as caller:
            text = caller.call("GET", "/metrics").text
        found = re.findall(rf'^pushup_{name}(?:{{worker="\d+"}})? (\S+)$', text, re.MULTILINE)
        assert found, f"there is no metric {name}"
        return sum(map(float, found))

    def wait_for_held(self, count: int) -> None:
        """Wait until this many polls are held."""
        wait_until(lambda: self.metric("held_polls") == count, f"{count} held polls")

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal; after a request to stop, it must exit with 0."""
        self.signal(number)
        assert self.wait() == (0 if number == signal.SIGTERM else -number)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait until it exits; returns its exit code."""
        return self._process.wait(seconds)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def log_lines(self) -> list[str]:
        """Its log."""
        return self._log.read_text().splitlines()

    def expect_log(self, pattern: str) -> None:
        """Expect such lines in the log, although they are above info."""
        self._expected.append(pattern)

    def trouble(self) -> list[str]:
        """Unexpected log lines above info since the last call."""
        lines = self.log_lines()
        new, self._looked_at = lines[self._looked_at :], len(lines)
        # The machine may be busy with other tests, and a test kills its servers at its end, which their workers notice.
        expected = (*self._expected, "this process stood still", "the parent process has ended")
        return [line for line in new if not _is_quiet(line) and not any(re.search(e, line) for e in expected)]


def _is_quiet(line: str) -> bool:
    if line.startswith("{"):
        return json.loads(line)["level"] in ("debug", "info")
    return _QUIET.match(line) is not None


@contextmanager
def running(
    log: Path,
    flags: tuple[str, ...],
    environment: Mapping[str, str] | None = None,
    files: int | None = None,
    python: str | Path = sys.executable,
) -> Iterator[Server]:
    """Run a server with these flags; enters once it listens. Without --listen, the kernel chooses the port.

    `files`: how many it may open, if not as many as this process. `python`: that of another environment.
    """
    if "--listen" not in flags:
        flags = ("--listen", "127.0.0.1:0", *flags)
    command = [str(python), "-W", "default::ResourceWarning", "-m", "pushup", "serve", *flags]
    if files is not None:
        command = ["prlimit", f"--nofile={files}", *command]
    with (
        log.open("ab") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, env=clean_environment(environment), cwd=log.parent
        ) as process,
    ):
        try:
            yield Server(process, _addresses(process, log), log)
        finally:
            process.kill()


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, without any of PushUp's settings."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PUSHUP_")}, **(more or {})}


def _addresses(process: subprocess.Popen[bytes], log: Path) -> list[str]:
    """Read the server's addresses from its output."""
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + START_SECONDS
    while b"To try it" not in said:
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(process.stdout.fileno(), 4096) if readable else b""
        assert data, f"the server did not start: {log.read_text()}"
        said += data
    return re.findall(r"^PushUp listens on (?:http://)?(\S+)$", said.decode(), re.MULTILINE)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until the condition is true; fails after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.01)


def set_flags(settings: Mapping[str, object]) -> tuple[str, ...]:
    """These settings as flags."""
    return tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))


def hold_polls(server: Server, stack: ExitStack, count: int, channel: str = "a") -> list[RawClient]:
    """This many clients whose polls are held."""
    clients = [stack.enter_context(server.connect()) for _ in range(count)]
    for client in clients:
        client.send(get(poll_path(channel, cursor="now", timeout=60)))
    server.wait_for_held(count)
    return clients


def workers_of(server: Server) -> list[psutil.Process]:
    """The worker processes, in the order of their numbers."""
    found = {}
    for child in server.process.children():
        with suppress(psutil.Error):  # it has just ended
            if WORKER in (command := child.cmdline()):
                found[command[command.index(WORKER) + 1]] = child
    return [found[number] for number in sorted(found)]
