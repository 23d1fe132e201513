"""A team of members in processes of their own, and a client that gives them updates at a fixed rate."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import msgspec

from loadtest.load.servers import SERVER_CORE, pin
from loadtest.mishra.core.messages import Atomicity, Order
from loadtest.mishra.core.settings import Settings
from loadtest.mishra.process import Task
from loadtest.mishra.requests import Ask, Broadcast, Measure, Report, decode_report, encode

EVENTS, THREADS = "events", "threads"
DRIVERS = (EVENTS, THREADS)

START_SECONDS = 30.0
ANSWER_SECONDS = 0.5
LEAD_SECONDS = 0.1
"""From when the members are told to measure to the first update."""
BUFFER_BYTES = 1 << 20
DATA = b"x" * 100
"""Of an update. The paper does not say how large its updates are."""


class Semantics(NamedTuple):
    """Atomicity and order, as the paper's tables name them."""

    name: str
    atomicity: Atomicity
    order: Order


class Load(NamedTuple):
    """Updates with these semantics, one each `interval` seconds, to the members in turn."""

    semantics: Semantics
    interval: float
    seconds: float


class Team:
    """Running members. `addresses`: where they take requests."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], addresses: Sequence[tuple[str, int]]) -> None:
        self.processes = processes
        self.addresses = addresses
        self._tokens = itertools.count(1)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))

    def close(self) -> None:
        self._socket.close()

    def ask(self, member: int, patience: float = START_SECONDS) -> Report:
        """What this member reports. Raises: TimeoutError if it says nothing, RuntimeError if its process has ended."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if self.processes[member].poll() is not None:
                raise RuntimeError(f"the process of member {member} has ended")
            token = next(self._tokens)
            self._socket.sendto(encode(Ask(token)), self.addresses[member])
            self._socket.settimeout(ANSWER_SECONDS)
            try:
                while (report := decode_report(self._socket.recv(65536))).token != token:
                    pass
            except (TimeoutError, ConnectionError):
                continue
            return report
        raise TimeoutError(f"member {member} does not answer")

    def reports(self, members: Sequence[int] | None = None) -> list[Report]:
        return [self.ask(member) for member in (range(len(self.addresses)) if members is None else members)]

    def wait_for_group(self, members: Sequence[int] | None = None) -> int:
        """Wait until these members are in one group of just them, and return its view. Raises: TimeoutError."""
        deadline = time.monotonic() + START_SECONDS
        count = len(self.addresses) if members is None else len(members)
        while time.monotonic() < deadline:
            reports = self.reports(members)
            seen = {(report.in_group, report.members, report.view) for report in reports}
            if seen == {(True, count, reports[0].view)}:
                return reports[0].view
            time.sleep(0.05)
        raise TimeoutError("there is no group of all members")

    def give(self, load: Load) -> list[Report]:
        """Give the members this load, wait until they have finished, and return what they report."""
        begin = time.monotonic() + LEAD_SECONDS
        until = begin + load.seconds
        for address in self.addresses:
            self._socket.sendto(encode(Measure(until)), address)
        self.reports()  # so all have begun to measure
        turn = itertools.cycle(self.addresses)
        for number in itertools.count():
            due = begin + number * load.interval
            if due >= until:
                break
            while (now := time.monotonic()) < due:
                time.sleep(due - now)
            self._socket.sendto(
                encode(Broadcast(load.semantics.order, load.semantics.atomicity, now, DATA)), next(turn)
            )
        return self._finished()

    def _finished(self) -> list[Report]:
        """The reports when no more is delivered."""
        self.wait_for_group()
        before: list[int] = []
        while True:
            time.sleep(0.1)
            reports = self.reports()
            counts = [report.delivery_count + sum(report.outcomes.values()) for report in reports]
            if counts == before:
                return reports
            before = counts


@contextmanager
def running(
    driver: str, *, settings: Settings | None = None, priorities: bool = False, traced: bool = False
) -> Iterator[Team]:
    """A team in one group; its processes are killed at the end. `traced`: their reports say what updates wait for."""
    settings = settings or Settings()
    with ExitStack() as stack:
        sockets = [_bound(stack) for _ in range(2 * settings.team)]
        messages, clients = sockets[: settings.team], sockets[settings.team :]
        peers = [sock.getsockname() for sock in messages]
        processes = []
        for member, (message, client) in enumerate(zip(messages, clients, strict=True)):
            task = Task(member, driver, priorities, peers, message.fileno(), client.fileno(), settings, traced)
            processes.append(_start(stack, task))
        team = Team(processes, [sock.getsockname() for sock in clients])
        stack.callback(team.close)
        team.wait_for_group()
        yield team


def _bound(stack: ExitStack) -> socket.socket:
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    sock.bind(("127.0.0.1", 0))
    return sock


def _start(stack: ExitStack, task: Task) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "loadtest.mishra.process", msgspec.json.encode(task).decode()]
    process = subprocess.Popen(command, pass_fds=(task.messages, task.clients))  # noqa: S603
    stack.callback(_kill, process)
    pin(process.pid, SERVER_CORE)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def can_prioritize() -> bool:
    """Whether a process started here may have priorities as in the paper."""
    attempt = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return subprocess.run([sys.executable, "-c", attempt], stderr=subprocess.DEVNULL, check=False).returncode == 0  # noqa: S603
