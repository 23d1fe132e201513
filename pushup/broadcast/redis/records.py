"""What a node reads from the log in Redis, as values."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from pushup.broadcast.checkpoint import Head
from pushup.core.commands import Entry
from pushup.core.cursor import Cursor
from pushup.core.errors import OutOfOrder
from pushup.core.limits import Limits
from pushup.core.restoration import restore
from pushup.core.snapshot import Snapshot
from pushup.core.state import ReplicatedState


class Tail(Struct, frozen=True):
    """The end of the log: its last sequence and the tag of that entry. `epoch` is empty if there is no log."""

    epoch: str
    sequence: int
    tag: bytes

    def includes(self, cursor: Cursor) -> bool:
        """Whether the log has reached the entry at this cursor."""
        return cursor.epoch == self.epoch and cursor.sequence <= self.sequence


class LastEntry(Enum):
    """What the log says of the last entry that this node has applied."""

    CONTAINED = "the log contains it"
    MISSING = "the log is in the same epoch and does not contain it, or the log is in an earlier epoch"
    UNKNOWN = "the log no longer reaches back to it, is in a later epoch, or does not exist"


class LogEntry(Struct, frozen=True):
    """An entry, its tag, and the tag of the previous entry (`after`)."""

    entry: Entry
    tag: bytes
    after: bytes


class SavedHead(Struct, frozen=True):
    """The checkpoint's head, the tag of its last entry, and the limits under which its entries were applied."""

    head: Head
    tag: str
    limits: Limits


class Loaded(Struct, frozen=True):
    """The checkpoint and the entries after it, read at one moment. `complete`: no part of the checkpoint is missing."""

    tail: Tail
    run: str
    saved: SavedHead
    snapshot: Snapshot
    complete: bool
    entries: list[LogEntry]

    @property
    def is_whole(self) -> bool:
        """Whether the checkpoint is complete, and its entries form an unbroken chain to the end of the log."""
        sequence, tag = self.saved.head.sequence, self.saved.tag.encode()
        for logged in self.entries:
            if logged.after != tag or logged.entry.sequence != sequence + 1:
                return False
            sequence += logged.entry.command.width
            tag = logged.tag
        return self.complete and (sequence, tag) == (self.tail.sequence, self.tail.tag)

    def state(self) -> ReplicatedState:
        """The checkpoint with the entries applied, up to the first that does not follow. Records its changes."""
        state = restore(self.snapshot)
        state.note_changes()
        for logged in self.entries:
            try:
                state.apply(logged.entry)
            except OutOfOrder:
                break
        return state


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
