"""The disk of a machine: it outlives processes, may be full or fail, and can be put back to an older backup.

The journal on it is the real one, on a database in memory. A call to the disk takes effect some time after it was made,
and is reported some time after that. So a process may die before the effect, between effect and report, or after both.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred

from pushup.broadcast.journal_file import JournalError, JournalFile
from tests.simulation.world import Process, World

T = TypeVar("T")


class _Failure(sqlite3.OperationalError):
    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.sqlite_errorname = name


def _new_database() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", timeout=0, isolation_level=None, check_same_thread=False)


class Disk:
    """One machine's disk."""

    def __init__(self, world: World, name: str) -> None:
        self.random = world.random("disk", name)
        self.name = name
        self.failing = ""
        """`full`, or `broken`: every write fails; `unsure`: it fails as well, but what it wrote is there."""
        self.on_call: Callable[[float], None] | None = None
        """Called at the next call, with the seconds that it takes."""
        self.slow = 0.0
        """Additional seconds of each call."""
        self.database = _new_database()
        """Committed data is on the disk; a transaction is lost with its process."""
        self.mark: bytes | None = None
        """The file that says how far this machine has followed the order."""
        self.holder: Process | None = None
        """The process that has the journal open."""

    @property
    def in_transaction(self) -> bool:
        """Whether the journal is in the middle of a transaction."""
        return self.database.in_transaction

    def close(self) -> None:
        """Free the memory. Nothing can be read any more."""
        self.database.close()

    def backup(self) -> bytes:
        """A copy of the journal, which has all of it: a database that was put back may have a write-ahead log."""
        self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.database.serialize()

    def end(self) -> tuple[str, int] | None:
        """The epoch and the sequence of the last entry in the journal; None if it is new."""
        self.database.execute("PRAGMA locking_mode = EXCLUSIVE")  # as the journal does, or a copy cannot be opened
        head = self.database.execute("SELECT value FROM state WHERE name = 'checkpoint'").fetchone()
        if head is None:
            return None
        state = json.loads(head[0])
        group = self.database.execute("SELECT body FROM entries ORDER BY sequence DESC LIMIT 1").fetchone()
        if group is None:
            return state["epoch"], state["sequence"]
        last = json.loads(group[0])[-1]
        return last["epoch"], last["sequence"] + len(last["command"].get("messages", [None])) - 1

    def put_back(self, backup: bytes) -> None:
        """Replace the journal by a copy."""
        assert self.holder is None or not self.holder.alive
        self.database.close()
        self.database = _new_database()
        self.database.deserialize(backup)

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if self.failing and statement.split()[0] in ("INSERT", "BEGIN"):
            if self.failing == "unsure" and statement.startswith("INSERT INTO entries"):
                self.database.execute(statement, *arguments)
            full = self.failing == "full"
            text = "database or disk is full" if full else "disk I/O error"
            raise _Failure(text, "SQLITE_FULL" if full else "SQLITE_IOERR_WRITE")
        return self.database.execute(statement, *arguments)

    def open(self, process: Process) -> Callable[[Path], JournalFile]:
        """What opens the journal for a process."""

        def open_file(path: Path) -> JournalFile:
            if self.failing:
                raise JournalError(f"{path}: the disk is {self.failing}")
            if self.in_transaction:
                self.database.execute("ROLLBACK")  # the process that was in it has died
            self.holder = process
            return JournalFile(path, connect=lambda path, **options: cast(sqlite3.Connection, _Database(self)))

        return open_file


class SimulatedMark:
    """Where a server's mark is kept: on this disk."""

    name = "the mark"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self) -> bytes | None:
        self._check()
        return self._disk.mark

    def write(self, data: bytes) -> None:
        self._check()
        self._disk.mark = data

    def _check(self) -> None:
        if self._disk.failing:
            raise OSError(f"the disk is {self._disk.failing}")


class _Database:
    """The part of `sqlite3.Connection` that a journal uses."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    @property
    def text_factory(self) -> Any:
        return self.disk.database.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self.disk.database.text_factory = factory

    @property
    def in_transaction(self) -> bool:
        return self.disk.database.in_transaction

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        return self.disk.execute(statement, *arguments)

    def close(self) -> None:
        """The disk stays."""
        self.disk.holder = None


class SimulatedHelpers:
    """Calls to the disk, one after the other."""

    def __init__(self, process: Process, disk: Disk) -> None:
        self._process = process
        self._disk = disk
        self._free_at = 0.0
        self.busy = 0
        process.on_death.append(
            lambda: process.world.reach("a process was killed while it wrote to its disk") if self.busy else None
        )

    def call(self, function: Callable[..., T], /, *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        process, disk = self._process, self._disk
        begins = max(self._free_at, process.world.now)
        effect = begins + disk.random.uniform(0.0005, 0.003) + disk.slow
        reported = self._free_at = effect + disk.random.uniform(0.0, 0.002)

        self.busy += 1
        on_call, disk.on_call = disk.on_call, None
        if on_call is not None:
            on_call(reported - process.world.now)

        def carry_out() -> None:
            self.busy -= 1
            try:
                value = function(*args)
            except Exception as error:
                failure = error
                process.world.at(reported, lambda: result.errback(failure), process)
            else:
                process.world.at(reported, lambda: result.callback(value), process)

        # By a thread of the process: not if the process is dead or paused by then.
        process.world.at(effect, carry_out, process)
        return result
