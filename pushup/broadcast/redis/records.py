"""What a node reads from the log in Redis, as values, and how they are made of what Redis replies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
from msgspec import Raw, Struct

from pushup.broadcast import Member
from pushup.broadcast.formats import IN_REDIS, check_known
from pushup.broadcast.redis.redis_errors import Malformed
from pushup.core.commands import Command, Continue, Entry, Publish, own_data
from pushup.core.cursor import Cursor

_command = msgspec.json.Decoder(Command)

PIECE_BYTES = 128 * 1024
"""A piece has about this size: one or two milliseconds of work, for Redis and for this node."""

_is_name = re.compile(rb"[0-9a-f]{1,32}").fullmatch

TAIL_FIELDS = ("epoch", "sequence", "tag", "run", "version", "cluster", "founded", "replicated")
"""The fields of the state that `tail_of` takes; the scripts that return the end of the log name the same."""


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


class NodeReport(Member, frozen=True, omit_defaults=True, kw_only=True):
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
    which gives entries their times. `is_loading`: a node reads the checkpoint, so saves wait.
    """

    tail: Tail
    saved: int
    complete: bool
    time: float
    is_loading: bool
    members: list[bytes]


def tail_of(*fields: bytes | None) -> Tail:
    """`fields`: those of `TAIL_FIELDS`."""
    epoch, sequence, tag, run, version, cluster, founded, replicated = fields
    return Tail(
        (epoch or b"").decode(errors="replace"),
        number(sequence or b"0"),
        tag or b"",
        (run or b"").decode(errors="replace"),
        number(version or b"0"),
        cluster.decode() if cluster is not None and _is_name(cluster) else "",
        _seconds(founded or b"0"),
        replicated is not None,
    )


def _seconds(text: bytes) -> float:
    """A time in the state; 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def number(text: bytes) -> int:
    """A number in the state; -1, which no log leads to, if it is none."""
    try:
        return int(text)
    except ValueError:
        return -1


def log_entries(epoch: str, rows: list[Any]) -> Iterator[LogEntry]:
    """Entries as Redis has sent them; `epoch`: that of the first.

    Each is decoded when it is reached, for that may be a millisecond of work. Raises: Malformed, NotUnderstood.
    """
    for row in rows:
        logged = log_entry(epoch, *row)
        yield logged
        epoch = logged.new_name or epoch


def log_entry(epoch: str, place: bytes, fields: list[bytes]) -> LogEntry:
    """Raises: Malformed, NotUnderstood."""
    try:
        return _log_entry(epoch, place, fields)
    except (KeyError, ValueError) as error:
        text = f"the stream has an entry {place.decode()} that PushUp did not write ({error!r})"
        raise Malformed(text) from None


def _log_entry(epoch: str, place: bytes, fields: list[bytes]) -> LogEntry:
    last = int(place.partition(b"-")[0])
    values = fields_of(fields)
    try:
        command = _command.decode(values[b"command"])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        check_known(f"the entry {epoch}-{last} of the message log", error, IN_REDIS)
        return LogEntry(Unreadable(f"{epoch}-{last}", str(error)), last, values[b"tag"], values[b"after"])
    if type(command) is Publish and len(command.messages) > 1:  # one message is nearly all of the text
        own_data(command)
    entry = Entry(epoch, last - command.width + 1, float(values[b"time"]), command)
    return LogEntry(entry, last, values[b"tag"], values[b"after"])


def info_of(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines())
    return {name: value for name, _, value in lines}


def replica_in(info: dict[str, str]) -> str:
    """The replica that this shows, if any."""
    if info.get("connected_slaves", "0") != "0":
        return "Redis has a replica"
    return "Redis was a replica itself" if info.get("second_repl_offset", "-1") != "-1" else ""


def fields_of(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Voucher(Struct, forbid_unknown_fields=True):
    """What a node writes when it vouches: the run, and the nodes that it knows of."""

    run: str
    known: list[str]


_voucher = msgspec.json.Decoder(Voucher)


def vouchers_of(followed: str, run: bytes, members: list[bytes], flat: list[bytes]) -> Vouchers:
    """Who vouches in the run that is followed. Raises: NotUnderstood, DecodeError."""
    try:
        vouchers = {name.decode(): _voucher.decode(text) for name, text in fields_of(flat).items()}
    except msgspec.DecodeError as error:
        check_known("what another node vouches for", error, IN_REDIS)
        raise
    return Vouchers(
        run.decode(),
        frozenset(member.decode() for member in members),
        {name: frozenset(each.known) for name, each in vouchers.items() if each.run == followed},
    )


class Count:
    """How many items to ask for, so that a piece gets its size, whatever the size of the items."""

    def __init__(self, first: int, most: int, piece_bytes: int = PIECE_BYTES) -> None:
        """`first`: in the first piece, when their size is not known; `most`: in any piece, however small they are."""
        self._most = most
        self._bytes = piece_bytes
        self.next = first
        """Ask for this many."""

    def had(self, items: int, size: int) -> None:
        """So many items had this size, in bytes. The next piece is at most twice as large."""
        if items:
            fitting = items * self._bytes // max(size, 1)
            self.next = max(1, min(2 * self.next, fitting, self._most))
