"""The order of things: total-order broadcast (PushUp §3.4; Mishra §2).

Every command that changes shared state is given to a broadcast, on one node too. It gives the command its place in
the order and hands the entry to every node, to each in the same order. What the node makes of the entry, its outcome,
goes back to whoever appended the command, on that node.

| file | whose order |
|---|---|
| `memory` | one process; it ends with it |
| `journal` | one machine; it survives restarts. `journal_file` is what is on the disk |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pushup.core.commands import Command, Entry, Outcome

Follower = Callable[[Entry], Outcome]
"""A node's `apply`: takes the next entry, returns what came of it."""

Then = Callable[[Outcome], None]
"""Takes what came of a command. A callback and not a Deferred: errors are outcomes already, and the way from a
publication to its acknowledgement is walked for every message (a Deferred with its callbacks took 6 us of it)."""


class Broadcast(Protocol):
    """One order of entries, followed by one node in this process."""

    @property
    def epoch(self) -> str:
        """Names this order; another one would give other cursors."""

    def follow(self, follower: Follower) -> None:
        """From now on give every entry to the follower; called once."""

    def append(self, command: Command, then: Then) -> None:
        """Give the command the next place in the order.

        `then` is called once this node has applied the entry, with what came of it; or with `Unavailable` when the
        order cannot be reached, and then it is not known whether the command got a place.
        """

    async def stop(self) -> None:
        """Give what was appended its place, and take no more; let go of files and connections."""

    def ready(self) -> bool:
        """Whether a command appended now would get its place, and this node is not behind."""
