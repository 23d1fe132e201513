"""What a node reads from the log in Redis, as values."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pushup.broadcast.checkpoint import Head
from pushup.broadcast.members import Member
from pushup.core.commands import Entry
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.restoration import restore
from pushup.core.snapshot import Snapshot
from pushup.core.state import ReplicatedState


class Tail(Struct, frozen=True):
    """The end of the log: its last sequence and the tag of that entry. `epoch` is empty if there is no log.

    `run`: that of Redis in which the epoch is followed; `version`: of the state machine.
    """

    epoch: str
    sequence: int
    tag: bytes
    run: str = ""
    version: int = 1

    def includes(self, cursor: Cursor) -> bool:
        """Whether the log has reached the entry at this cursor."""
        return cursor.epoch == self.epoch and cursor.sequence <= self.sequence


class LastEntry(Enum):
    """What the log says of the last entry that this node has applied."""

    CONTAINED = "the log contains it"
    MISSING = "the log is in the same epoch and does not contain it, or the log is in an earlier epoch"
    UNKNOWN = "the log no longer reaches back to it, is in a later epoch, or does not exist"


class Unreadable(Struct, frozen=True):
    """An entry that this node cannot read: its place, as a cursor, and why."""

    place: str
    problem: str


class LogEntry(Struct, frozen=True):
    """An entry, its last sequence, its tag, and the tag of the previous entry (`after`)."""

    entry: Entry | Unreadable
    last: int
    tag: bytes
    after: bytes


class Vouchers(Struct, frozen=True):
    """Who vouches for the log after a restart of Redis.

    `run`: the run in which the epoch is followed. `members`: the nodes that were alive, as far as Redis knows. Each of
    `by_node` has found all that it knows in the log, and names the nodes that may know more.
    """

    run: str
    members: frozenset[str]
    by_node: dict[str, frozenset[str]]

    @property
    def are_all(self) -> bool:
        """Whether everybody vouches who may have acknowledged something."""
        return bool(self.by_node) and self.members.union(*self.by_node.values()) <= self.by_node.keys()


class SavedHead(Struct, frozen=True):
    """The checkpoint's head, the tag of its last entry, and the limits under which its entries were applied."""

    head: Head
    tag: str
    limits: Limits


class Loaded(Struct, frozen=True):
    """The checkpoint and the entries after it, read at one moment. `complete`: no part of the checkpoint is missing."""

    tail: Tail
    saved: SavedHead
    snapshot: Snapshot
    complete: bool
    entries: list[LogEntry]

    @property
    def is_whole(self) -> bool:
        """Whether the checkpoint is complete, and its entries form an unbroken chain to the end of the log."""
        sequence, tag = self.saved.head.sequence, self.saved.tag.encode()
        for logged in self.entries:
            if logged.after != tag:
                return False
            sequence, tag = logged.last, logged.tag
        return self.complete and (sequence, tag) == (self.tail.sequence, self.tail.tag)

    def state(self) -> ReplicatedState:
        """The checkpoint with the entries applied, up to the first that cannot be. Records its changes."""
        state = restore(self.snapshot)
        state.note_changes()
        for logged in self.entries:
            try:
                assert isinstance(logged.entry, Entry)
                state.apply(logged.entry)
            except Exception:  # an entry that cannot be applied ends the state, whatever the reason
                break
        return state


class NodeReport(Member, frozen=True, omit_defaults=True):
    """What a node reports beside what everybody may see.

    `latest_version`: of the state machine, that its release knows; `limits`: those in its settings; `stuck_at`: the
    place of an entry that it cannot read. Releases before 0.2 report none of it.
    """

    latest_version: int = 1
    limits: Limits | None = None
    stuck_at: str = ""

    @property
    def member(self) -> Member:
        return Member(*[getattr(self, name) for name in Member.__struct_fields__])


class Report(Struct, frozen=True):
    """The reply to a node's report: the end of the log, the checkpoint's sequence, and the members (JSON).

    `complete`: no living node can be missing among the members. `time`: seconds since the epoch, by the clock of Redis,
    which gives entries their times.
    """

    tail: Tail
    saved: int
    complete: bool
    time: float
    members: list[bytes]
