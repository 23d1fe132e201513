"""The order of things: total-order broadcast (PushUp §3.4; Mishra §2).

Every command that changes shared state is given to a broadcast, on one node too. It gives the command its place in
the order and hands the entry to every node, to each in the same order. What the node makes of the entry, its outcome,
goes back to whoever appended the command, on that node.

| file | whose order |
|---|---|
| `memory` | one process; it ends with it |
| `journal` | one machine; it survives restarts. `journal_file` is what is on the disk |
| `redis` | many machines; it is kept in Redis, and each node follows it |

`checkpoint` is how journal and Redis keep what the entries of the past have come to; `members`, what a node shows of
itself to the others; `waiting`, how much may wait for its place; `refusals`, what publishers are told when a command
gets none; `outage`, what the log says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pushup.broadcast.members import Member
from pushup.core.commands import Ack, Command, Confirmation, Entry, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import Unavailable
from pushup.core.snapshot import Snapshot


class Follower(Protocol):
    """A node, as its broadcast sees it."""

    def apply(self, entry: Entry) -> Outcome:
        """Take the next entry; returns what came of it."""

    async def start_from(self, snapshot: Snapshot) -> None:
        """Go on from another state than that which the last entry led to."""

    def member(self, id: str) -> Member:  # noqa: A002
        """What is to be shown of this node, which goes by this id."""


Then = Callable[[Outcome], None]
"""Takes what came of a command. A callback and not a Deferred: errors are outcomes already, and the way from a
publication to its acknowledgement is walked for every message (a Deferred with its callbacks took 6 us of it)."""


class Broadcast(Protocol):
    """One order of entries, followed by one node in this process."""

    @property
    def epoch(self) -> str:
        """Names this order; another one would give other cursors. Empty while it is not known."""

    def follow(self, follower: Follower) -> None:
        """From now on give every entry to the follower; called once."""

    def append(self, command: Command, then: Then) -> None:
        """Give the command the next place in the order.

        `then` is called once this node has applied the entry, with what came of it; or with `Unavailable` when the
        order cannot be reached, and then it is not known whether the command got a place.
        """

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, then: Callable[[Confirmation], None]) -> None:
        """See, within so many seconds, whether this is reached for the entry at `cursor`; `then` is told what was."""

    @property
    def waiting_bytes(self) -> int:
        """How much waits for its place."""

    def awaits(self, epoch: str) -> bool:
        """Whether this order may have gone on in this epoch, and this node not have come to it yet."""

    def members(self) -> list[Member]:
        """The nodes that live and follow this order, as far as is known; none where it has one node only."""

    async def stop(self) -> None:
        """Give what was appended its place, and take no more; let go of files and connections."""

    def why_not_ready(self) -> Unavailable | None:
        """Why a command appended now would not get its place, or this node is behind, if so."""


class OneNode:
    """What a broadcast says of its nodes that has one only."""

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, then: Callable[[Confirmation], None]) -> None:
        then(Confirmation("stable" if ack == "stable" else "accepted", nodes=1))  # who is acknowledged, is by that node

    def awaits(self, epoch: str) -> bool:
        return False

    def members(self) -> list[Member]:
        return []
