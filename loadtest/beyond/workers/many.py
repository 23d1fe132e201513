"""More held polls than one process has file descriptors: each gets every message once, and an answer when it stops.

20 messages go to all of them, each when all have the one before. Then the server gets SIGTERM.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from loadtest.beyond.workers.cost import gauges
from loadtest.load.servers import Server, running
from loadtest.reports.results import Progress, Table, Value
from pushup.client import Client

POLLS, WORKERS, MESSAGES = 90_000, 5, 20
QUICK_POLLS, QUICK_WORKERS, QUICK_MESSAGES = 3000, 2, 5

DESCRIPTORS = 20_000
"""Of each worker: the usual limit of a service."""

CROWD = 15_000
"""Clients in one process."""

DRAIN_SECONDS = 10.0
LIMIT_SECONDS = 120.0
CHANNEL = "news"


def run(*, quick: bool) -> list[Table]:
    if quick:
        return measure(QUICK_POLLS, QUICK_WORKERS, QUICK_MESSAGES)
    return measure(POLLS, WORKERS, MESSAGES)


def measure(polls: int, workers: int, messages: int) -> list[Table]:
    """Raises: RuntimeError if the clients do not get what they should in time."""
    progress = Progress(messages + 2)
    flags = ["--workers", str(workers), "--set", f"drain_seconds={DRAIN_SECONDS}"]
    flags += ["--set", "poll_timeout_limit_seconds=1h"]
    with ExitStack() as stack:
        stack.enter_context(_descriptors(DESCRIPTORS))
        server = stack.enter_context(running(*flags, core=None))
        idle = _memory(server)
        client = stack.enter_context(closing(Client(f"http://{server.host}:{server.port}")))
        progress.step(f"opening {polls} polls")
        crowds = [
            stack.enter_context(_crowd(server, number, count, client.cursor()))
            for number, count in enumerate(_parts(polls))
        ]
        for crowd in crowds:
            _next(crowd, "held")
        _wait_for_held(server, polls)
        held = gauges(server, "held_polls")
        full = _memory(server)
        seconds = []
        for number in range(1, messages + 1):
            progress.step(f"message {number}")
            began = time.monotonic()
            client.publish([CHANNEL], number)
            for crowd in crowds:
                _next(crowd, "all_have", number)
            seconds.append(time.monotonic() - began)
        _wait_for_held(server, polls)
        progress.step("SIGTERM")
        stopped = time.time()
        os.kill(server.pid, signal.SIGTERM)
        ends = [_next(crowd, "ended") for crowd in crowds]
    progress.end()
    received = sum(int(n) * count for end in ends for n, count in end["counts"].items())
    row: tuple[Value, ...] = (
        polls, workers, f"{min(held):,.0f}-{max(held):,.0f}", (full - idle) / polls, idle / (workers + 1) / 1e6,
        messages, received, sum(end["wrong"] for end in ends), sum(end["gaps"] for end in ends), max(seconds),
        polls - (sum(end["answers"] for end in ends) - received), max(end["ended"] for end in ends) - stopped,
    )  # fmt: skip
    columns = (
        "polls", "workers", "of each", "bytes per poll", "MB per idle process", "messages", "received", "wrong", "gaps",
        "slowest message s", "not answered at the end", "answered after SIGTERM within s",
    )  # fmt: skip
    title = f"Many held polls, {DESCRIPTORS:,} file descriptors for each process (memory is PSS)"
    failed = "" if (*row[6:9], row[10]) == (polls * messages, 0, 0, 0) else "not every client got every message once"
    return [Table("workers-many", title, columns, [row], failed)]


def _parts(polls: int) -> list[int]:
    return [min(CROWD, polls - first) for first in range(0, polls, CROWD)]


def _memory(server: Server) -> int:
    time.sleep(2.0)
    return server.usage.memory_bytes()


def _wait_for_held(server: Server, polls: int) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while sum(gauges(server, "held_polls")) != polls:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{sum(gauges(server, 'held_polls')):.0f} of {polls} polls are held")
        time.sleep(0.2)


@contextmanager
def _descriptors(count: int) -> Iterator[None]:
    """Child processes may open so many files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def _crowd(server: Server, number: int, count: int, cursor: str) -> Iterator[subprocess.Popen[str]]:
    module = "loadtest.beyond.workers.crowd"
    arguments: Sequence[object] = (server.port, count, f"127.0.1.{number + 1}", CHANNEL, cursor)
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _next(crowd: subprocess.Popen[str], what: str, value: int | None = None) -> dict[str, Any]:
    """The next line that says this. Raises: RuntimeError if the crowd ends."""
    assert crowd.stdout is not None
    for line in crowd.stdout:
        told: dict[str, Any] = json.loads(line)
        if what in told and value in (None, told[what]):
            return told
    raise RuntimeError(f"a crowd of clients ended, and did not say {what}")
