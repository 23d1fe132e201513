"""The journal's file: an SQLite database. Everything here blocks, and is called in a helper pool.

It contains *entries*, those since the last checkpoint, with a row for each group that was committed together; and the
*checkpoint*, the replicated state as of some entry. From time to time the changes since then are written to the
checkpoint, and the entries that it then contains are deleted. So the file's size, and the time to start, depend on what
is retained and not on what was ever published.

| table | a row is |
|---|---|
| `entries` | a group of entries (JSON), by the sequence of the first |
| `rows` | a row of the checkpoint (JSON), by its key (`pushup.core.snapshot`) |
| `state` | `checkpoint`: its head; `cluster`; `erased`, if something was, until it is rewritten; a copy's `digest` |

SQLite leaves the bytes of deleted rows in the file, and with `secure_delete` still copies that it made of them when it
balanced its trees. Only `VACUUM`, which copies every row, leaves nothing.

An append is one self-committing statement, whatever the size of the group: sqlite3 releases Python's global lock for
each statement and then waits for it again (5 ms, if the reactor is busy).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path

import msgspec

from pushup.broadcast.formats import FORMAT, IN_A_JOURNAL, check_known, other_format
from pushup.core.commands import Entry, Erase
from pushup.core.snapshot import Changes, Head, Snapshot, Tables, encode

APPLICATION_ID = 0x50557368
"""Identifies PushUp's files: `PUsh`."""

ROOM_BYTES = 256 * 1024
"""What must fit on the disk before it counts as working again: more than most groups need."""

TABLES = f"""
CREATE TABLE entries (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE rows (key TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""


class JournalError(Exception):
    """The journal's file is not usable; the text says why, and what to do."""


_entries = msgspec.json.Decoder(tuple[Entry, ...])
_head = msgspec.json.Decoder(Head)

ROWS_AT_ONCE = 500
"""Rows that one statement writes; it has two parameters for each, and SQLite allows 32,766."""


def digest_of(database: sqlite3.Connection) -> str:
    """The SHA-256 of the checkpoint: its rows, and its head."""
    digest = sha256()
    rows = database.execute("SELECT CAST(key AS BLOB), body FROM rows ORDER BY key")
    head = database.execute("SELECT '', CAST(value AS BLOB) FROM state WHERE name = 'checkpoint'")
    for key, body in chain(rows, head):
        digest.update(b"%d %d " % (len(key), len(body)) + (key or b"") + body)
    return digest.hexdigest()


class JournalFile:
    """The open file. One call at a time, from any thread."""

    def __init__(
        self, path: Path, connect: Callable[..., sqlite3.Connection] = sqlite3.connect, *, is_only_read: bool = False
    ) -> None:
        """Open the file, or create it. `is_only_read`: all of it is checked. SQLite alone changes it, if
        there is a `-wal` file beside it.

        Raises: JournalError.
        """
        self.path = path
        self.has_erased = False
        """Whether the file may contain messages that were erased, so that it is to be rewritten."""
        self.cluster = ""
        """The cluster whose journal it is, once `load` has found it; empty if it is of none yet."""
        # Where VACUUM puts its copy: another directory may be read-only, or have no room.
        os.environ.setdefault("SQLITE_TMPDIR", str(path.parent))
        self._is_only_read = is_only_read
        if path.exists() and not is_only_read and not os.access(path, os.W_OK):
            raise JournalError(f"{path} is not writable")
        with self._errors():
            self._database = connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._prepare()
        except JournalError:
            self._database.close()
            raise

    def _prepare(self) -> None:
        self._database.text_factory = bytes  # damaged text is then found where it is decoded
        execute = self._database.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")  # no other process, and no shared-memory file
        execute("BEGIN" if self._is_only_read else "BEGIN EXCLUSIVE")
        (application,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application and not self._is_only_read:
            for statement in TABLES.split(";"):
                execute(statement)
        elif application != APPLICATION_ID:
            raise JournalError(f"{self.path} is an SQLite database of another program; choose another path")
        elif version != FORMAT:
            raise JournalError(f"{other_format(str(self.path), version)}, or another path")
        execute("COMMIT")
        if not self._is_only_read:  # and not earlier: it changes the file
            execute("PRAGMA journal_mode = WAL")
            execute("PRAGMA synchronous = FULL")  # a commit returns when the data is on disk
        (found,) = execute(f"PRAGMA {'integrity' if self._is_only_read else 'quick'}_check(1)").fetchone()
        if found != b"ok":
            raise JournalError(self.damaged(found.decode(errors="replace").splitlines()[-1]))

    def load(self) -> Snapshot | None:
        """The checkpoint; None if the file is new. A write that has failed is rolled back.

        Raises: JournalError, NotUnderstood.
        """
        record = ""
        try:
            with self._errors():
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                state = dict(self._database.execute("SELECT name, value FROM state"))
                if not state:
                    return None
                self.has_erased = b"erased" in state
                self.cluster = state.get(b"cluster", b"").decode()
                int(self.cluster or "0", 16)  # or it is not the name of an epoch
                tables = Tables()
                for key, body in self._database.execute("SELECT key, body FROM rows"):
                    record = f"row {key!r}: "
                    tables.add(key.decode(), body)
                record = "head: "
                return Snapshot(_head.decode(state[b"checkpoint"]), tables)
        except (msgspec.DecodeError, KeyError, ValueError) as error:
            check_known(str(self.path), error, IN_A_JOURNAL)
            raise JournalError(self.damaged(f"{record}{error}")) from None

    def append(self, entries: tuple[Entry, ...]) -> int:
        """Write a group of entries to the disk; returns its bytes.

        Raises: JournalError; the entries may or may not be on disk then.
        """
        body = encode(entries)
        with self._errors():
            if any([entry.command.__class__ is Erase for entry in entries]):  # noqa: C419  # no call for each
                # Before the entry: without it, this does no harm.
                self._database.execute("INSERT OR REPLACE INTO state VALUES ('erased', '')")
                self.has_erased = True
            self._database.execute("INSERT INTO entries VALUES (?, ?)", (entries[0].sequence, body))
        return len(body)

    def recover(self, after: int) -> list[Entry]:
        """After a failure: check that the file can be written, and return its entries after this sequence.

        Raises: JournalError.
        """
        with self._errors():
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._database.execute("INSERT OR REPLACE INTO state VALUES ('room', zeroblob(?))", (ROOM_BYTES,))
            self._database.execute("DELETE FROM state WHERE name = 'room'")
        if self.cluster:  # which the start could not write
            self.found(self.cluster)
        return [entry for entry in self.entries() if entry.sequence > after]

    def entries(self) -> Iterable[Entry]:
        """The entries since the checkpoint, in order.

        Raises: JournalError, NotUnderstood.
        """
        first = 0
        try:
            with self._errors():
                for sequence, body in self._database.execute("SELECT sequence, body FROM entries ORDER BY sequence"):
                    first = sequence
                    yield from _entries.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            check_known(str(self.path), error, IN_A_JOURNAL)
            raise JournalError(self.damaged(f"entries from {first}: {error}")) from None

    def digests(self) -> tuple[str, str]:
        """The digest that stands in the file, and that of its rows and its head. O(all). Raises: JournalError."""
        with self._errors():
            stored = self._database.execute("SELECT value FROM state WHERE name = 'digest'").fetchone()
            return (stored[0].decode(errors="replace") if stored else ""), digest_of(self._database)

    def save(self, changes: Changes, *, starts_over: bool = False) -> None:
        """Bring the checkpoint up to date, and delete the entries that it then contains. O(changes).

        `starts_over`: the changes are what a new epoch begins with, and replace everything in the file. O(all).
        Raises: JournalError; the save may or may not have happened then.
        """
        execute = self._database.execute
        removed = [row.key for row in changes.rows if row.is_removed]
        kept = iter([row for row in changes.rows if not row.is_removed])
        with self._errors():
            execute("BEGIN IMMEDIATE")
            if starts_over:
                execute("DELETE FROM entries")
                execute("DELETE FROM rows")
            execute("DELETE FROM rows WHERE key IN (SELECT value FROM json_each(?))", (encode(removed).decode(),))
            while some := list(islice(kept, ROWS_AT_ONCE)):
                insert = f"INSERT OR REPLACE INTO rows VALUES {', '.join(['(?, ?)'] * len(some))}"  # noqa: S608  # no values
                execute(insert, [value for row in some for value in (row.key, row.body)])
            execute("DELETE FROM entries WHERE sequence <= ?", (changes.head.sequence,))
            execute("INSERT OR REPLACE INTO state VALUES ('checkpoint', ?)", (encode(changes.head).decode(),))
            execute("DELETE FROM state WHERE name = 'digest'")  # that of a copy, which this is no longer
            execute("COMMIT")

    def rewrite(self, changes: Changes) -> None:
        """Save, and then rewrite the file, so that no byte is left of what is deleted. O(all), some 16 s for a GB.

        Raises: JournalError; it is to be repeated then.
        """
        self.save(changes)
        with self._errors():
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.execute("DELETE FROM state WHERE name = 'erased'")
        self.has_erased = False

    def found(self, cluster: str) -> None:
        """Make this the journal of this cluster. Raises: JournalError."""
        with self._errors():
            self._database.execute("INSERT OR REPLACE INTO state VALUES ('cluster', ?)", (cluster,))
        self.cluster = cluster

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        self._database.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns those of SQLite into JournalErrors."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from None

    def _error(self, error: sqlite3.Error) -> JournalError:
        path, kind = self.path, getattr(error, "sqlite_errorname", "")
        match kind.split("_")[:2]:
            case ["SQLITE", "BUSY"]:
                return JournalError(f"{path} is in use by another server; stop that server or choose another path")
            case ["SQLITE", "FULL"]:
                return JournalError(f"the disk is full: {path} cannot grow")
            case ["SQLITE", "READONLY"]:
                return JournalError(f"{path} is not writable")
            case ["SQLITE", "CANTOPEN"]:
                return JournalError(f"{path} cannot be opened: does its directory exist, and is it writable?")
            case ["SQLITE", "NOTADB"]:
                return JournalError(f"{path} is not a journal; choose another path")
            case ["SQLITE", "CORRUPT"]:
                return JournalError(self.damaged(str(error)))
        return JournalError(f"reading or writing {path} failed: {error} ({kind or type(error).__name__})")

    def damaged(self, what: str) -> str:
        """The text of an error: what is wrong with the file, and what to do."""
        return (
            f"{self.path} is damaged ({what}); move it away and start without it or with a backup: "
            "gaps are reported to subscribers"
        )
