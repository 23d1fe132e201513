"""How many bytes of commands may wait for the disk or for Redis, so that a log that hangs cannot exhaust memory.

A command counts until nothing of it is kept any more: its publisher has been answered, and, if it was sent to Redis,
Redis has replied or the connection has ended. A command beyond the limit is refused.
"""

from __future__ import annotations

from msgspec import Struct

from pushup.core.commands import Command, Publish
from pushup.core.errors import PushUpError, Refusal

COMMAND_BYTES = 3 * 1024
"""Memory per waiting command besides its data, including its publisher's connection: 2 to 3 KiB."""

NAME_BYTES = 100
"""Memory of a channel's name besides its characters, and of a message besides its data."""


class WaitingLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limit of what waits for the message log."""

    waiting_limit_bytes: int = 64 * 1024 * 1024
    """Maximum size of all publications that wait for the disk or Redis, each plus 3 KiB; further ones get 503."""


class WaitingRoom:
    """Counts the waiting commands."""

    def __init__(self, limits: WaitingLimits) -> None:
        self._limit = limits.waiting_limit_bytes
        self.bytes = 0

    def enter(self, command: Command) -> int:
        """Count a command; returns its size, to be passed to `leave` once, or 0 if there is no room.

        A command of any size may wait if it is the only one.
        """
        size = size_of(command)
        if self.bytes and self.bytes + size > self._limit:
            return 0
        self.bytes += size
        return size

    def leave(self, size: int) -> None:
        """Stop counting a command of this size."""
        self.bytes -= size
        assert self.bytes >= 0

    def full(self) -> PushUpError:
        """The error for a publisher if there is no room."""
        refusal = Refusal.WAITING_LIMIT
        return refusal(detail=f"{refusal.detail} (waiting_limit_bytes = {self._limit})")


def size_of(command: Command) -> int:
    """The approximate memory of a command, in bytes."""
    size = COMMAND_BYTES
    if type(command) is Publish:
        for draft in command.messages:
            names = draft.channels
            size += len(memoryview(draft.data)) + NAME_BYTES * (1 + len(names)) + sum(map(len, names))
    return size
