"""What a node reads from the log in Redis, as values."""

from __future__ import annotations

from enum import Enum

from msgspec import Raw, Struct

from pushup.broadcast import Member
from pushup.core.commands import Continue, Entry
from pushup.core.cursor import Cursor, PastEpoch
from pushup.core.snapshot import Head, Snapshot


class Tail(Struct, frozen=True):
    """The end of the log: its last sequence and the tag of that entry. `epoch` is empty if there is no log.

    `run`: that of Redis in which the epoch is followed; `version`: of the state machine (0: none); `cluster`: whose log
    it is (empty: Redis has lost that); `founded`: when that was founded, seconds by the clock of Redis (0: not here).
    `was_replicated`: a node has seen a replica of this Redis, or a Sentinel.
    """

    epoch: str
    sequence: int
    tag: bytes
    run: str = ""
    version: int = 0
    cluster: str = ""
    founded: float = 0.0
    was_replicated: bool = False

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

    @property
    def new_name(self) -> str:
        """The epoch's name from the next entry on, if this one changes it; else empty."""
        command = self.entry.command if type(self.entry) is Entry else None
        return command.epoch if type(command) is Continue else ""


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


class SavedHead(Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint's head, and the tag of its last entry."""

    head: Head
    tag: str


class Chain:
    """The entries after a checkpoint, as they are read, and where they lead."""

    def __init__(self, saved: SavedHead) -> None:
        self.entries: list[LogEntry] = []
        self.epoch = saved.head.epoch
        """The epoch of the next entry."""
        self.past = saved.head.past_epochs
        """The former names of the epoch."""
        self.sequence = saved.head.sequence
        """The last sequence so far."""
        self._tag = saved.tag.encode()
        self._is_unbroken = True

    def add(self, logged: LogEntry) -> None:
        entry = logged.entry
        is_next = not isinstance(entry, Entry) or entry.sequence == self.sequence + 1
        self._is_unbroken &= is_next and logged.after == self._tag
        self.sequence, self._tag = logged.last, logged.tag
        self.entries.append(logged)
        if logged.new_name:
            self.past = (*self.past, PastEpoch(self.epoch, logged.last - 1))
            self.epoch = logged.new_name

    def leads_to(self, tail: Tail) -> bool:
        """Whether each entry follows the one before, from the checkpoint to this end of the log."""
        return self._is_unbroken and (self.epoch, self.sequence, self._tag) == (tail.epoch, tail.sequence, tail.tag)

    def break_off(self) -> None:
        """What comes next is no entry."""
        self._is_unbroken = False


class Loaded(Struct, frozen=True):
    """A checkpoint and the entries after it, up to where the log ended when the checkpoint had been read.

    `complete`: no part of the checkpoint is missing; `is_whole`: nor any of
    the entries. `past`: the former names of the epoch at the end.
    """

    tail: Tail
    saved: SavedHead
    snapshot: Snapshot
    complete: bool
    entries: list[LogEntry]
    is_whole: bool
    past: tuple[PastEpoch, ...]


class NodeReport(Member, frozen=True, omit_defaults=True):
    """What a node reports beside what everybody may see.

    Fields that this release does not know are ignored: reports do not change the state, and two releases agree on the
    version of the state machine by them. `latest_version`: the newest that its release knows; `limits`: those in its
    settings (JSON); `stuck_at`: the place of an entry that it cannot read.
    """

    latest_version: int
    limits: Raw
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
