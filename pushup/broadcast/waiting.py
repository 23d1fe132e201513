"""The commands that wait for their places in the order, in bytes: a log that hangs must not fill the memory.

A command counts from when it is appended until nothing of it is kept any more: its publisher has been told, and, where
it was sent somewhere, it has been answered or its connection has ended. One that is not counted in is refused.
"""

from __future__ import annotations

from msgspec import Struct

from pushup.core.commands import Command, Publish
from pushup.core.errors import Overloaded

COMMAND_BYTES = 3 * 1024
"""What any command takes that waits, its publisher's connection included: 2 to 3 KiB."""

NAME_BYTES = 100
"""What the name of a channel takes besides its letters, and a message besides its data."""

RETRY_AFTER_SECONDS = 1


class WaitingLimits(Struct, frozen=True, kw_only=True):
    """The limit of what waits for the message log."""

    waiting_limit_bytes: int = 64 * 1024 * 1024
    """Maximum size of all publications that wait for the disk or Redis, each plus 3 KiB; further ones get 503."""


class WaitingRoom:
    """How much waits, and whether more may."""

    def __init__(self, limits: WaitingLimits) -> None:
        self._limit = limits.waiting_limit_bytes
        self.bytes = 0

    def enter(self, command: Command) -> int:
        """Count the command in; returns its size, which `leave` is to be called with once, or 0 if there is no room.

        Whatever its size, a command may wait alone.
        """
        size = size_of(command)
        if self.bytes and self.bytes + size > self._limit:
            return 0
        self.bytes += size
        return size

    def leave(self, size: int) -> None:
        """Nothing of a command of this size is kept any more."""
        self.bytes -= size
        assert self.bytes >= 0

    def full(self) -> Overloaded:
        """The error for a publisher when there is no room."""
        detail = f"waiting_limit_bytes of {self._limit} is reached: too much waits for the message log"
        return Overloaded(detail, retry_after=RETRY_AFTER_SECONDS)


def size_of(command: Command) -> int:
    """About how many bytes of memory a command takes."""
    size = COMMAND_BYTES
    if type(command) is Publish:
        for draft in command.messages:
            names = draft.channels
            size += len(memoryview(draft.data)) + NAME_BYTES * (1 + len(names)) + sum(map(len, names))
    return size
