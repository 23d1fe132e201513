"""The classic reactor: it reports that a socket is ready, and the handler reads or writes.

One turn, in the paper's steps: wait for events (1), dispatch "ready to read" to the handler (2), which reads (3) and
processes (4). What the handler wants to hear of next it says itself.
"""

from __future__ import annotations

from typing import Protocol

from loadtest.libman.wait.strategy import READABLE, WRITABLE, WaitStrategy


class EventHandler(Protocol):
    """What the developer writes for a reactor. Either may be called when nothing is to be had, and must not block."""

    def ready_to_read(self) -> None: ...

    def ready_to_write(self) -> None: ...


class Reactor:
    """Dispatches events to handlers, by descriptor."""

    def __init__(self, wait: WaitStrategy) -> None:
        self._wait = wait
        self._handlers: dict[int, EventHandler] = {}

    def watch(self, fd: int, handler: EventHandler, mask: int) -> None:
        """Tell the handler of these events from now on; of none, with 0. The descriptor must be open."""
        if mask:
            self._handlers[fd] = handler
            self._wait.watch(fd, mask)
        elif self._handlers.pop(fd, None):
            self._wait.watch(fd, 0)

    def turn(self, timeout: float | None) -> None:
        """Wait this many seconds (None: as long as it takes), and dispatch what has happened."""
        handlers = self._handlers
        for fd, mask in self._wait.wait(timeout):
            handler = handlers.get(fd)
            if handler is None:
                continue  # an event before this one ended it
            if mask & READABLE:
                handler.ready_to_read()
            if mask & WRITABLE and handlers.get(fd) is handler:
                handler.ready_to_write()

    def close(self) -> None:
        self._wait.close()
