"""Runs `client.c`, the paper's client: on each processor but the server's, or on the only one."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from loadtest.load.programs import program
from loadtest.load.servers import LOAD_CORE, pin

SOURCE = Path(__file__).with_name("client.c")

WINDOW = 8
"""Messages under way on each connection."""


class StreamFailed(Exception):
    """The client could not go on: it cannot connect, or the server has sent what it was not sent."""


class Measured(NamedTuple):
    """What was received in `seconds`. `trips`: how many messages took how long, one at a time of each connection."""

    seconds: float
    messages: float
    received_bytes: int
    trips: Mapping[float, int]
    stalled: int
    """Connections on which nothing came back."""

    ended: int
    """Connections that the server has closed."""

    shares: tuple[float, ...]
    """What each of the client's processes used of its processor."""

    reads: int

    @property
    def bits_per_second(self) -> float:
        """In one direction: as many were sent."""
        return 8 * self.received_bytes / self.seconds

    @property
    def messages_a_read(self) -> float:
        """How many messages came back together."""
        return self.messages / self.reads if self.reads else 0.0

    def trip(self, share: float) -> float:
        left = share * sum(self.trips.values())
        for seconds, count in sorted(self.trips.items()):
            left -= count
            if left <= 0:
                return seconds
        return 0.0


class Stream:
    """N connections that stream; closed at the end of a `with`."""

    def __init__(self, address: tuple[str, int], *, connections: int, message_bytes: int) -> None:
        """Raises: StreamFailed if it cannot connect."""
        self._message_bytes = message_bytes
        cores = range(LOAD_CORE, os.cpu_count() or 1) or range(1)
        bounds = [connections * number // len(cores) for number in range(len(cores) + 1)]
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for core, (first, end) in zip(cores, pairwise(bounds), strict=True):
                if first < end:
                    numbers = map(str, (address[1], end - first, first, WINDOW, message_bytes))
                    self._processes.append(_start([program(SOURCE), *numbers], core))
            self._said()
        except StreamFailed:
            self.close()
            raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def begin(self, *, patience: float) -> None:
        """Start the streams; returns when each has received something, or after `patience` seconds."""
        self._command(f"begin {patience}")

    def measure(self, seconds: float) -> Measured:
        """Stream for some seconds. Raises: StreamFailed."""
        parts = [json.loads(line) for line in self._command(f"measure {seconds}")]
        received = sum(part["received_bytes"] for part in parts)
        trips: Counter[float] = Counter()
        for part in parts:
            trips.update(dict(part["trips"]))
        return Measured(
            max(part["seconds"] for part in parts),
            received / self._message_bytes,
            received,
            trips,
            sum(part["stalled"] for part in parts),
            sum(part["ended"] for part in parts),
            tuple(part["own_share"] for part in parts),
            sum(part["reads"] for part in parts),
        )

    def _command(self, words: str) -> list[str]:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has failed, and what it said is read next
                process.stdin.write(f"{words}\n")
                process.stdin.flush()
        return self._said()

    def _said(self) -> list[str]:
        """The next line of each process."""
        lines = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise StreamFailed(process.communicate()[1].strip())
            lines.append(line)
        return lines


def _start(command: list[str], core: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pin(process.pid, core)
    return process
