"""Copies of a journal: written from a backup that a server sends, verified, and put in the place of a journal.

A copy is a journal without entries and without the name of a cluster, which the server gives it that starts with it. It
has a digest of its rows and its head, which counts until then.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from fcntl import LOCK_NB, LOCK_SH, lockf
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

import msgspec
from msgspec import Struct

from pushup.broadcast.formats import FORMAT, other_format
from pushup.broadcast.journal_file import TABLES, JournalError, JournalFile, digest_of
from pushup.broadcast.journal_start import followed
from pushup.broadcast.progress_mark import sync
from pushup.core.cursor import Cursor
from pushup.core.snapshot import Head, Stored, encode

SQLITE_LOCKS = 0x40000000
"""Where in a file SQLite's locks are, of 512 bytes (https://www.sqlite.org/fileformat.html)."""

_connect = partial(sqlite3.connect, isolation_level=None)


class _Last(Struct, forbid_unknown_fields=True):
    """The last line of a backup (`pushup.net.api.backing_up`), with a head or an error."""

    format: int
    head: Head | None = None
    error: str = ""


_row = msgspec.json.Decoder(Stored).decode
_last = msgspec.json.Decoder(_Last).decode


class Contents(Struct, frozen=True):
    """What is in a journal, as far as an operator asks."""

    messages: int
    channels: int
    cursor: Cursor
    """The last entry."""
    times: list[float]
    """Of the first and the last message."""
    has_digest: bool
    """Whether a digest shows that nothing in it was changed."""


def write_copy(path: Path, parts: Iterable[bytes]) -> None:
    """Write the lines of a backup to a new file, which appears when it is complete.

    Raises: JournalError; OSError; what `parts` raises.
    """
    with _new_file(path) as new, closing(_connect(new)) as database:
        execute = database.execute
        execute("PRAGMA journal_mode = OFF")
        execute("PRAGMA synchronous = OFF")
        database.executescript(TABLES)
        execute("BEGIN")
        head = None
        for lines in _lines(parts):
            if lines and not lines[-1].startswith(b"["):
                head = _head_in(lines.pop())
            changed = {row.key: row for row in map(_row, lines)}
            database.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in changed])
            kept = [(row.key, bytes(row.body)) for row in changed.values() if not row.is_removed]
            database.executemany("INSERT INTO rows VALUES (?, ?)", kept)
        if head is None:
            raise JournalError("the backup is incomplete: the connection ended before it did; try again")
        execute("INSERT INTO state VALUES ('checkpoint', ?)", (encode(head).decode(),))
        execute("INSERT INTO state VALUES ('digest', ?)", (digest_of(database),))
        execute("COMMIT")


def _lines(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines, those of each part together."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield lines


def _head_in(line: bytes) -> Head:
    """What the last line says. Raises: JournalError; msgspec.DecodeError."""
    last = _last(line)
    if last.head is None:
        raise JournalError(f"the backup is incomplete: {last.error}")
    if last.format != FORMAT:
        raise JournalError(other_format("the backup", last.format))
    return last.head


def verify(path: Path) -> Contents:
    """Read all of a journal, or of a copy, as a server does that starts with it, and change nothing. O(all).

    Raises: JournalError, which says what is wrong with which record; NotUnderstood; OSError.
    """
    with _unchanged(path) as source:
        return _contents(source)


def _contents(path: Path) -> Contents:
    with closing(_open(path)) as file:
        found = file.load()
        if found is None:
            raise JournalError(file.damaged("it contains nothing"))
        state = followed(file, found)
        stored, actual = file.digests()
        has_digest = stored != "" and not file.cluster
        if has_digest and stored != actual:
            raise JournalError(file.damaged("its digest is not that of its rows: something in it was changed"))
        times = [message.time for message in state.snapshot().messages]
    return Contents(len(times), len(state.channels), state.cursor, times[:1] + times[-1:], has_digest)


def restore(path: Path, target: Path) -> Contents:
    """Put a copy, or the journal of a stopped server, in a place where there is no journal.

    Raises: JournalError, NotUnderstood; OSError.
    """
    if target.is_dir():
        raise JournalError(f"{target} is a directory; append a file name")
    wal = target.with_name(target.name + "-wal")
    if target.exists() or wal.exists():
        raise JournalError(f"{target} or {wal.name} exists already: stop its server, and move both away; not the mark")
    with _unchanged(path) as unchanged:
        contents = _contents(unchanged)
        with _new_file(target) as new, closing(_connect(unchanged)) as source, closing(_connect(new)) as database:
            source.execute("PRAGMA locking_mode = EXCLUSIVE")  # no other process, and no shared-memory file
            source.backup(database)
    return contents


@contextmanager
def _unchanged(path: Path) -> Iterator[Path]:
    """What to open in place of a file with a `-wal`, which SQLite would write into it, even that of another journal.

    And in place of a journal that cannot be written: to lock it, SQLite needs to.
    """
    source = path.resolve()  # SQLite follows a link, too
    wal = Path(f"{source}-wal")
    if not (source.is_file() and (wal.exists() or _is_fixed_journal(source))):
        yield path
        return
    with source.open("rb") as opened, ExitStack() as stack:
        try:
            lockf(opened, LOCK_SH | LOCK_NB, 512, SQLITE_LOCKS)
        except BlockingIOError:
            raise JournalError(f"{path} is in use by another server; stop that server") from None
        try:
            folder = stack.enter_context(TemporaryDirectory())
            for each in (wal, source):  # in this order: closing the file ends the lock
                if each.exists():
                    shutil.copyfile(each, Path(folder, each.name))
        except OSError as error:
            what = f"copying {path.name}, and {wal.name} if it is there, failed: {error}"
            raise JournalError(f"{what}; set TMPDIR to a directory with room for both") from None
        try:
            yield Path(folder, source.name)
        except JournalError as error:
            raise JournalError(str(error).replace(folder, str(source.parent))) from None


def _is_fixed_journal(path: Path) -> bool:
    """Whether this is a journal, and not a copy of one, that cannot be written."""
    if os.access(path, os.W_OK):
        return False
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"  # in WAL mode


def _open(path: Path) -> JournalFile:
    if not path.is_file():
        raise JournalError(f"there is no file {path}")
    return JournalFile(path, _connect, is_only_read=True)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A file to be written, which then gets this name, unless something has it. Only its owner can read it."""
    if path.exists():
        raise JournalError(f"{path} exists already; choose another path")
    if not path.parent.is_dir():
        raise JournalError(f"{path.parent} is not a directory; create it first")
    descriptor, name = mkstemp(".new", f"{path.name}.", path.parent)  # another may be writing for the same name
    os.close(descriptor)
    new = Path(name)
    try:
        yield new
        sync(new)
        try:
            os.link(new, path)  # and does not replace another
        except OSError:  # the file system has no hard links, or something has the name
            path.touch(exist_ok=False)
            try:
                new.replace(path)
            except OSError:
                path.unlink()
                raise
    except FileExistsError:
        raise JournalError(f"{path} exists already; choose another path") from None
    except msgspec.DecodeError as error:
        raise JournalError(f"the server's answer is not a backup ({error}); is it another release?") from None
    except sqlite3.Error as error:
        raise JournalError(f"writing {new} failed: {error}") from None
    finally:
        new.unlink(missing_ok=True)
        Path(f"{new}-journal").unlink(missing_ok=True)  # SQLite leaves it on a full disk
    sync(path.parent)
