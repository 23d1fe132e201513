"""One order for all: total-order broadcast (PushUp §3.4; Mishra §2).

Every command that changes the replicated state is given to a broadcast, on a single node too. It gives the command its
place in the order and hands the entry to every node, to each in the same order. The outcome goes back to whoever
appended the command, on that node.

| file | what it defines |
|---|---|
| `memory` | the order of one process; it ends with the process |
| `journal`, `journal_file` | the order of one machine, which survives restarts; its file |
| `redis` | the order of many machines, kept in Redis and followed by each node |
| `checkpoint` | how journal and Redis store the state that past entries have led to |
| `members` | what the nodes of a cluster show each other |
| `waiting` | how much may wait for its place |
| `refusals` | what publishers are told when a command gets no place |
| `outage` | what the log says about it |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pushup.broadcast.members import Member
from pushup.core.commands import Ack, Command, Confirmation, Entry, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import Unavailable
from pushup.core.snapshot import Changes, Snapshot


class Follower(Protocol):
    """A node, as its broadcast sees it: a replica of the state."""

    @property
    def cursor(self) -> Cursor:
        """The last entry applied; its epoch is empty while the node has no state."""

    @property
    def time(self) -> float:
        """The time of the last entry applied, seconds since the epoch."""

    def apply(self, entry: Entry) -> Outcome:
        """Apply the next entry. Raises: OutOfOrder if it is not the next one."""

    def start_from(self, snapshot: Snapshot) -> None:
        """Go on from another state."""

    def snapshot(self) -> Snapshot:
        """The state. O(all)."""

    def note_changes(self, after: int | None = None) -> None:
        """Record what changes after this sequence, by default from here on, and drop the record of earlier changes."""

    @property
    def changed_count(self) -> int:
        """How much `changes` has to look at: sequences and channels."""

    def changes(self, after: int | None = None) -> Changes:
        """What has changed after this sequence, by default everything recorded. O(that)."""

    def member(self, id: str) -> Member:  # noqa: A002
        """What the other nodes are shown of this one, whose id this is."""


OnOutcome = Callable[[Outcome], None]
"""Takes the outcome of a command. A callback and not a Deferred: errors are outcomes already, and this path is taken by
every message (a Deferred with its callbacks took 6 us of it)."""

OnConfirmation = Callable[[Confirmation], None]


class Broadcast(Protocol):
    """One order of entries, followed by one node in this process."""

    def start(self, follower: Follower) -> None:
        """Give the follower its first state, then every entry; called once. The state may come later (Redis).

        Raises: JournalError.
        """

    async def stop(self) -> None:
        """Finish what was appended, take no more, and close files and connections."""

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        """Give the command the next place in the order.

        `on_outcome` is called once this node has applied the entry; or with `Unavailable` when the order cannot be
        reached, and then the command may have got a place or not.
        """

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        """Find out within this many seconds whether the entry at `cursor` has reached `ack`; report what it reached."""

    @property
    def waiting_bytes(self) -> int:
        """How much waits for its place."""

    def awaits(self, epoch: str) -> bool:
        """Whether the order may have moved on to this epoch, and this node may not know it yet."""

    def members(self) -> list[Member]:
        """The nodes that are alive and follow this order, as far as is known; empty where there is only one."""

    def why_not_ready(self) -> Unavailable | None:
        """Why a command appended now would get no place, or why this node is behind, if so."""


class OneNode:
    """The answers of a broadcast that has one node only."""

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        # Whoever is acknowledged was acknowledged by the only node.
        on_confirmation(Confirmation("stable" if ack == "stable" else "accepted", nodes=1))

    def awaits(self, epoch: str) -> bool:
        return False

    def members(self) -> list[Member]:
        return []
