"""Waits with `poll`: level-triggered, each call passes all descriptors, of any number."""

from __future__ import annotations

import math
import select

from loadtest.libman.wait.strategy import Event, WaitStrategy


class WithPoll:
    edge_triggered = False

    def __init__(self) -> None:
        self._poll = select.poll()

    def watch(self, fd: int, mask: int) -> None:
        if mask:
            self._poll.register(fd, mask)
        else:
            self._poll.unregister(fd)

    def wait(self, timeout: float | None) -> list[Event]:
        return self._poll.poll(None if timeout is None else math.ceil(1000 * timeout))

    def close(self) -> None:
        pass


_check: type[WaitStrategy] = WithPoll
