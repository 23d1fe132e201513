"""What an engine needs of a wait strategy. Events have the numbers that poll and epoll give them."""

from __future__ import annotations

from typing import Protocol

READ = 0x001
WRITE = 0x004
_BROKEN = 0x008 | 0x010  # POLLERR | POLLHUP
READABLE = READ | _BROKEN
"""Events after which a read does not block; on a broken connection it fails."""

WRITABLE = WRITE | _BROKEN

EVENTS = 256
"""Events taken from an epoll at a time."""

Event = tuple[int, int]
"""A descriptor, and what it is ready for."""


class WaitStrategy(Protocol):
    """Watches descriptors."""

    edge_triggered: bool
    """Whether a socket that was ready and still is will not be reported again."""

    def watch(self, fd: int, mask: int) -> None:
        """Watch a descriptor for READ, WRITE or both from now on, or with 0 for nothing, and forget it.

        Raises: ValueError if this strategy cannot watch a descriptor of this number.
        """

    def wait(self, timeout: float | None) -> list[Event]:
        """The next events, after at most that many seconds."""

    def close(self) -> None: ...
