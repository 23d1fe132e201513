"""Waits with `select`: level-triggered, each call passes all descriptors."""

from __future__ import annotations

import select

from loadtest.libman.wait.strategy import READ, WRITE, Event, WaitStrategy

DESCRIPTORS = 1024
"""FD_SETSIZE: a set has bits for the descriptors below."""


class WithSelect:
    edge_triggered = False

    def __init__(self) -> None:
        self._readers: set[int] = set()
        self._writers: set[int] = set()

    def watch(self, fd: int, mask: int) -> None:
        if fd >= DESCRIPTORS:
            raise ValueError(f"select cannot watch descriptor {fd}: it ends at {DESCRIPTORS - 1}")
        (self._readers.add if mask & READ else self._readers.discard)(fd)
        (self._writers.add if mask & WRITE else self._writers.discard)(fd)

    def wait(self, timeout: float | None) -> list[Event]:
        readable, writable, _ = select.select(self._readers, self._writers, (), timeout)
        events = [(fd, READ) for fd in readable]
        events.extend([(fd, WRITE) for fd in writable])
        return events

    def close(self) -> None:
        pass


_check: type[WaitStrategy] = WithSelect
