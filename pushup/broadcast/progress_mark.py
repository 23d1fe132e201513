"""How far this machine has followed the order, in a file of its own.

A journal, or the data of Redis, can be put back to an earlier time while no node is running. The new start then finds a
complete log that ends too early. The mark shows it: if this machine has seen more than the log contains, entries are
lost, and every subscriber must be told.

The mark is written at each start, at most once a second while there are entries, and when the server stops. After a
crash it may be a second behind. It can prove that entries are missing (`lacks`), but not that none are.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.broadcast.formats import check_known
from pushup.clock import Timer
from pushup.core.cursor import REMEMBERED, Cursor, PastEpochs, order_of

MARK_SECONDS = 1.0
"""How often the mark is written while there are new entries."""

T = TypeVar("T")

_log = Logger()


class Mark(Cursor, frozen=True, forbid_unknown_fields=True):
    """The last entry that this machine is known to have applied, and its cluster (empty: not known)."""

    cluster: str = ""


_decode = msgspec.json.Decoder(Mark).decode


def lacks(mark: Cursor, end: Cursor, past: PastEpochs) -> bool:
    """Whether an order that ends at `end`, and had these names before, lacks entries up to the mark.

    | the epoch of the mark | it lacks entries |
    |---|---|
    | is the present one | if the mark is beyond the end |
    | is a former one | if the mark is beyond what that was good up to |
    | is unknown, and later than the oldest known | yes: this machine followed the order where these epochs are not |
    | is unknown, and earlier than all known | no: the order began after the mark, which was not written since |
    """
    if mark.epoch == end.epoch:
        return mark.sequence > end.sequence
    good_up_to = past.good_up_to(mark.epoch)
    if good_up_to >= 0:
        return mark.sequence > good_up_to
    known = past.all[1 - REMEMBERED :]  # the first name is known for good, and some after it may be forgotten
    oldest = known[0].epoch if known else end.epoch
    return order_of(mark.epoch) > order_of(oldest)


def mark_path(path: Path) -> Path:
    """Where the mark of the journal at this path is."""
    return path.with_name(path.name + ".mark")


def lock_file(path: Path) -> IO[bytes]:
    """Lock this file, and create it if it is missing. The lock lasts until the result is closed, or this process ends.

    Raises: BlockingIOError if another process has locked it; other OSErrors.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def sync(path: Path) -> None:
    """Make a file, or which files a directory has, survive a loss of power. Raises: OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Store(Protocol):
    """Where the mark is kept. Both methods block."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    def read(self) -> bytes | None:
        """What was written last; None if nothing was. Raises: OSError."""

    def write(self, data: bytes) -> None:
        """Replace it; it survives a loss of power once this returns. Raises: OSError."""


class Helpers(Protocol):
    """Makes blocking calls, one after the other."""

    def call(self, function: Callable[..., T], /, *args: Any) -> Deferred[T]: ...


class MarkFile(Struct, frozen=True):
    """A mark in a file, which is replaced as a whole. Something else keeps other servers out: a journal, or a lock."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, data: bytes) -> None:
        new = self.path.with_name(self.path.name + ".new")
        new.write_bytes(data)
        sync(new)
        new.replace(self.path)
        sync(self.path.parent)


class ProgressMark:
    """The mark of one node."""

    def __init__(self, store: Store, helpers: Helpers, clock: IReactorTime) -> None:
        self._store = store
        self._helpers = helpers
        self._clock = clock
        self._timer = Timer(clock, self._write)
        self.cluster = ""
        """The cluster whose entries are noted."""
        self._noted: Cursor | None = None
        self._written: Mark | None = None
        self._is_writing = False
        self._next_at = -math.inf  # when it may be written again
        self._failed = False
        self._stopped: Deferred[None] | None = None

    @property
    def name(self) -> str:
        """What messages to the operator call it."""
        return self._store.name

    def read(self) -> Mark | None:
        """The mark: the last entry that this machine is known to have applied. None without a usable mark. Blocks.

        Raises: NotUnderstood.
        """
        try:
            data = self._store.read()
            mark = None if data is None else _decode(data)
            if mark is not None:
                int(mark.epoch + mark.cluster, 16)  # or one of them is not the name of an epoch
        except (OSError, ValueError) as error:
            check_known(self._store.name, error, "; or remove it, and losses since it was written are not noticed")
            _log.error(
                "cannot read {name}: {error}. This start cannot detect whether the message log was rolled back",
                name=self._store.name,
                error=error,
            )
            return None
        self._written = mark
        self.cluster = "" if mark is None else mark.cluster
        return mark

    def begin(self, cursor: Cursor) -> None:
        """Write this mark now; if that fails, log why. Blocks.

        Call it with a new epoch before any client hears of that epoch. An older log is then always recognized.
        """
        self._noted = cursor
        mark = self._mark(cursor)
        try:
            self._store.write(msgspec.json.encode(mark))
        except OSError as error:
            self._tell_failure(str(error))
            self._write_later()
        else:
            self._written = mark

    def note(self, cursor: Cursor) -> None:
        """This entry has been applied; it is written now, or MARK_SECONDS after the last time."""
        self._noted = cursor
        if self._timer.time == math.inf and not self._is_writing:
            self._write_later()

    async def stop(self) -> None:
        """Write what was noted, if that is possible."""
        self._timer.stop()
        self._stopped = Deferred()
        if not self._is_writing:
            self._write()
        await self._stopped

    def abort(self) -> None:
        """Write nothing more: this process is gone."""
        self._timer.stop()
        self._noted = None

    def _mark(self, cursor: Cursor) -> Mark:
        return Mark(cursor.epoch, cursor.sequence, self.cluster)

    def _write(self) -> None:
        if self._noted is None or self._mark(self._noted) == self._written:
            if self._stopped is not None:
                self._stopped.callback(None)
            return
        self._is_writing = True
        self._next_at = self._clock.seconds() + MARK_SECONDS
        mark = self._mark(self._noted)
        call = self._helpers.call(self._store.write, msgspec.json.encode(mark))
        call.addCallbacks(lambda _: self._succeeded(mark), self._fail)

    def _succeeded(self, mark: Mark) -> None:
        self._is_writing = self._failed = False
        self._written = mark
        if self._stopped is not None:
            self._write()
        elif self._noted is not None and self._mark(self._noted) != mark:
            self._write_later()

    def _fail(self, failure: Failure) -> None:
        self._is_writing = False
        self._tell_failure(failure.getErrorMessage())
        if self._stopped is not None:
            self._stopped.callback(None)
        else:
            self._write_later()

    def _tell_failure(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            _log.error(
                "cannot write {name}: {error}. Until this is fixed, a restart cannot detect that the message log was "
                "rolled back",
                name=self._store.name,
                error=reason,
            )

    def _write_later(self) -> None:
        if self._noted is not None:
            self._timer.not_after(max(self._clock.seconds(), self._next_at))
