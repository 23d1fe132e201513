"""The longest turn of a reactor, kept in a file that another process reads and resets while the reactor is stuck."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_TURN = struct.Struct("dd")


class Turn(NamedTuple):
    """Seconds: by the clock, and of them on a processor. The two may be of different turns; each is the longest."""

    wall: float
    processor: float


class LongestTurn:
    """The longest turn since the last `reset`, in a file that both processes have mapped."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or creates it."""
        with path.open("ab") as file:
            if not file.tell():
                file.write(bytes(_TURN.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _TURN.size)

    def reset(self) -> None:
        self._map[:] = bytes(_TURN.size)

    def read(self) -> Turn:
        """The longest turn that has ended; one that still lasts is not in it."""
        return Turn(*_TURN.unpack(self._map))

    def add(self, turn: Turn) -> None:
        longest = self.read()
        if turn.wall > longest.wall or turn.processor > longest.processor:
            _TURN.pack_into(self._map, 0, max(turn.wall, longest.wall), max(turn.processor, longest.processor))

    def close(self) -> None:
        self._map.close()


class TimedPoller:
    """Stands between a Twisted reactor and its epoll. A turn is what the reactor does between two waits.

    So it contains everything that keeps others waiting: timers, readers, writers, garbage collection. The time in
    `poll` does not count, even if the process is stopped there.
    """

    def __init__(
        self,
        poller: Any,
        longest: LongestTurn,
        *,
        wall: Callable[[], float] = time.perf_counter,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._poller = poller
        self._longest = longest
        self._clocks = wall, processor
        self._began: Turn | None = None  # what came before the first wait is no turn: nobody could connect

    def poll(self, timeout: float, most: int) -> Any:
        wall, processor = self._clocks
        if self._began is not None:
            self._longest.add(Turn(wall() - self._began.wall, processor() - self._began.processor))
        try:
            return self._poller.poll(timeout, most)
        finally:
            self._began = Turn(wall(), processor())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)
