"""Copies of journals: what is written, what `verify` finds in damaged ones, and what `restore` refuses."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from pushup.broadcast.formats import FORMAT, NotUnderstood
from pushup.broadcast.journal_copy import restore, verify, write_copy
from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.progress_mark import Mark
from pushup.core.commands import Entry
from pushup.core.cursor import Cursor, is_of_one_cluster, next_epoch
from pushup.core.limits import Limits
from pushup.core.snapshot import MESSAGES, encode, stored
from pushup.core.state import ReplicatedState
from tests.core.builders import publish

EPOCH = next_epoch("", 1e9, lambda: 0.5, "")

INCOMPLETE = "the backup is incomplete: the connection ended before it did; try again"


@pytest.fixture
def state() -> ReplicatedState:
    """One with 200 messages on three channels."""
    state = ReplicatedState(Limits(), epoch=EPOCH)
    for n in range(1, 201):
        state.apply(Entry(EPOCH, n, 1e9 + n, publish(f"news{n % 3}", data=f'"the text of {n}"')))
    return state


def lines_of(state: ReplicatedState) -> list[bytes]:
    end = encode({"format": FORMAT, "head": state.head})
    return [*[encode(row) for row in state.rows(state.names())], end]


@pytest.fixture
def copy(state: ReplicatedState, tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    write_copy(path, [b"\n".join(lines_of(state)) + b"\n"])
    return path


def start(path: Path, mark: Mark | None = None) -> tuple[str, ReplicatedState]:
    """The cluster and the state of a server that starts with this journal."""
    file, state = open_journal(path, Limits(), lambda after, of: next_epoch(after, 2e9, lambda: 0.1, of), mark)
    file.close()
    return file.cluster, state


def test_what_is_in_a_copy(state: ReplicatedState, copy: Path) -> None:
    found = verify(copy)
    assert (found.messages, found.channels, found.cursor) == (200, 3, Cursor(EPOCH, 200))
    assert (found.times, found.has_digest) == ([1e9 + 1, 1e9 + 200], True)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_a_copy_survives_a_loss_of_power(
    state: ReplicatedState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the file and its directory are on the disk before the call returns."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino))
    write_copy(tmp_path / "copy", [b"\n".join(lines_of(state)) + b"\n"])
    assert synced == [path.stat().st_ino for path in (tmp_path / "copy", tmp_path)]


def test_later_rows_replace_earlier_ones(state: ReplicatedState, tmp_path: Path) -> None:
    """In the same part and in another; removed ones are not in the copy, and may come again."""
    *rows, end = lines_of(state)
    removed = [encode((f"messages/{n}", None)) for n in range(1, 201)]
    old = [encode(stored(MESSAGES, 7, state.cache.row(8)))]  # not that of 7
    for number, between in enumerate((b"\n", None)):
        lines = [*old, *rows, *removed, *rows[:], *removed[:5], end]
        parts = [b"".join(line + b"\n" for line in lines)] if between else [line + b"\n" for line in lines]
        write_copy(tmp_path / str(number), parts)
        assert verify(tmp_path / str(number)).messages == 195


def test_a_backup_that_is_not_complete(state: ReplicatedState, tmp_path: Path) -> None:
    """Nothing is left of it, and the error says why."""
    *rows, end = lines_of(state)
    path = tmp_path / "copy"
    for last, reason in (
        (b"", "connection ended"),
        (end[:-1], "connection ended"),
        (b'{"format":4,"error":"a new epoch"}\n', "a new epoch"),
        (b'{"format":999,"head":' + encode(state.head) + b"}\n", "format 999"),
        (b"<html>\n", "not a backup"),
    ):
        with pytest.raises(JournalError, match=reason):
            write_copy(path, [b"\n".join(rows) + b"\n", last])
        assert [*tmp_path.iterdir()] == []
    path.write_text("something")
    with pytest.raises(JournalError, match="exists already"):
        write_copy(path, iter(()))
    assert path.read_text() == "something"


@pytest.mark.parametrize("ends", [False, True])
def test_two_backups_to_one_path(state: ReplicatedState, tmp_path: Path, *, ends: bool) -> None:
    """Two servers may send them. The first that is complete gets the name, and neither has touched the other."""
    path = tmp_path / "copy"
    *rows, end = [line + b"\n" for line in lines_of(state)]
    writes, goes_on = Event(), Event()
    errors: list[str] = []

    def parts_of_the_other() -> Iterator[bytes]:
        yield rows[0]
        writes.set()
        goes_on.wait()
        yield b"".join(rows[1:])
        if ends:
            yield end

    def write_the_other() -> None:
        try:
            write_copy(path, parts_of_the_other())
        except JournalError as error:
            errors.append(str(error))

    other = Thread(target=write_the_other)

    def parts() -> Iterator[bytes]:
        yield b"".join(rows)
        other.start()
        assert writes.wait(20)
        yield end

    try:
        write_copy(path, parts())
        assert verify(path).messages == 200
    finally:
        goes_on.set()
        other.join()
    assert errors == [f"{path} exists already; choose another path" if ends else INCOMPLETE]
    assert verify(path).messages == 200
    assert [*tmp_path.iterdir()] == [path]


def test_where_no_backup_can_be(state: ReplicatedState, copy: Path, tmp_path: Path) -> None:
    """The error names the directory that is missing."""
    for path in (tmp_path / "missing" / "file", copy / "file"):
        for write in (partial(write_copy, path, [b""]), partial(restore, copy, path)):
            with pytest.raises(JournalError, match=f"^{path.parent} is not a directory; create it first$"):
                write()
    assert [*tmp_path.iterdir()] == [copy]


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_is_found(copy: Path, seed: int) -> None:
    """Or it changes nothing that is read."""
    good = verify(copy)
    random, data = Random(seed), bytearray(copy.read_bytes())
    with closing(sqlite3.connect(copy)) as database:
        rows = database.execute("SELECT * FROM rows ORDER BY key").fetchall()
    place = random.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    copy.write_bytes(data)
    try:
        found = verify(copy)
    except (JournalError, NotUnderstood):
        return
    assert (found.messages, found.cursor, found.times) == (good.messages, good.cursor, good.times)
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT * FROM rows ORDER BY key").fetchall() == rows


@pytest.mark.parametrize("part", [0, 10, 100, 4096, -4096, -1])
def test_a_truncated_copy_is_found(copy: Path, part: int) -> None:
    copy.write_bytes(copy.read_bytes()[:part])
    with pytest.raises(JournalError, match="copy"):
        verify(copy)


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(statement, values).rowcount == 1
        database.commit()


@pytest.mark.parametrize(
    ("statement", "values", "told"),
    [
        ("UPDATE rows SET body = substr(body, 2) WHERE key = ?", ("messages/17",), "row b'messages/17'"),
        ("UPDATE rows SET key = ? WHERE key = 'messages/17'", ("messages/517",), "messages/517"),
        ("UPDATE rows SET key = ? WHERE key = 'messages/17'", ("nothing/17",), "nothing"),
        ("UPDATE rows SET body = replace(body, 'text', 'test') WHERE key = ?", ("messages/17",), "digest"),
        ("DELETE FROM rows WHERE key = ?", ("messages/17",), "digest"),
        ("UPDATE state SET value = substr(value, 2) WHERE name = ?", ("checkpoint",), "head"),
        ("UPDATE state SET value = replace(value, '000', '001') WHERE name = ?", ("checkpoint",), "digest"),
        ("DELETE FROM state WHERE name = ?", ("checkpoint",), "checkpoint"),
        ("INSERT INTO entries VALUES (201, ?)", (b"[{}]",), "entries from 201"),
        ("INSERT INTO entries VALUES (1, ?)", (encode((Entry(EPOCH, 3, 2e9, publish("a")),)),), "after"),
    ],
)
def test_the_record_that_is_wrong_is_named(copy: Path, statement: str, values: tuple[object, ...], told: str) -> None:
    change(copy, statement, *values)
    with pytest.raises((JournalError, NotUnderstood), match=told):
        verify(copy)


def test_a_copy_is_not_changed_by_looking(copy: Path) -> None:
    before = copy.read_bytes()
    verify(copy)
    assert copy.read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no file"):
        verify(tmp_path / "missing")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "empty").touch()
    with pytest.raises(JournalError, match="another program"):
        verify(tmp_path / "empty")
    JournalFile(tmp_path / "new").close()
    with pytest.raises(JournalError, match="contains nothing"):
        verify(tmp_path / "new")


def test_a_link_to_the_journal_of_a_killed_server(copy: Path, tmp_path: Path) -> None:
    """What stands in its `-wal` counts, and neither is changed."""
    file, _ = open_journal(copy, Limits(), lambda after, of: next_epoch(after, 2e9, lambda: 0.1, of), None)
    files = {f"killed{end}": Path(f"{copy}{end}").read_bytes() for end in ("", "-wal")}
    file.close()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to(tmp_path / "killed")
    assert verify(tmp_path / "link").cursor.sequence == 201
    assert {name: (tmp_path / name).read_bytes() for name in files} == files


# Restoring.


def test_a_server_goes_on_with_it(state: ReplicatedState, copy: Path, tmp_path: Path) -> None:
    """It has everything; the digest does not count then, and the journal can be restored again elsewhere."""
    restore(copy, tmp_path / "journal")
    assert verify(tmp_path / "journal").has_digest
    _, found = start(tmp_path / "journal")
    assert found.snapshot().tables == state.snapshot().tables
    used = restore(tmp_path / "journal", tmp_path / "other")
    assert (used.messages, used.cursor.sequence, used.has_digest) == (200, 201, False)


def test_restoring_replaces_nothing(copy: Path, tmp_path: Path) -> None:
    for name in ("journal", "journal-wal"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(JournalError, match=r"another program|exists already"):
            restore(copy, tmp_path / "journal")
        (tmp_path / name).unlink()
    server = JournalFile(tmp_path / "journal")
    with pytest.raises(JournalError, match="exists already: stop its server"):
        restore(copy, tmp_path / "journal")
    server.close()
    with pytest.raises(JournalError, match="exists already"):
        restore(copy, tmp_path / "journal")


def test_restoring_changes_nothing_that_is_there(copy: Path, tmp_path: Path) -> None:
    """Nor moves what is in a `-wal` file into its journal."""
    server = JournalFile(tmp_path / "used")
    server.found(EPOCH)
    files = {name: (tmp_path / f"used{name}").read_bytes() for name in ("", "-wal")}
    server.close()
    assert files["-wal"]
    for name, data in files.items():
        (tmp_path / f"journal{name}").write_bytes(data)
    with pytest.raises(JournalError, match="exists already"):
        restore(copy, tmp_path / "journal")
    assert {name: (tmp_path / f"journal{name}").read_bytes() for name in files} == files


def test_no_room_for_what_is_read(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a killed server: the error says where copies of its files go."""

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    (tmp_path / "copy-wal").touch()
    for read in (verify, partial(restore, target=tmp_path / "journal")):
        with pytest.raises(JournalError, match=r"^copying copy, and copy-wal if .* No space .*; set TMPDIR"):
            read(copy)
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "copy-wal"}


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links(
    state: ReplicatedState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A copy appears there as well, and replaces no file that was there first."""

    def link(new: Path, path: Path) -> None:
        raise OSError(error, os.strerror(error))

    def lines(path: Path) -> Iterator[bytes]:
        yield b"\n".join(lines_of(state)) + b"\n"
        path.write_bytes(b"another")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "copy"
    write_copy(path, (line + b"\n" for line in lines_of(state)))
    assert verify(path).has_digest
    path.unlink()
    with pytest.raises(JournalError, match="exists already"):
        write_copy(path, lines(path))
    assert ([*tmp_path.iterdir()], path.read_bytes()) == ([path], b"another")


@pytest.mark.parametrize("target", ["", ".", "..", "/"])
def test_a_copy_is_not_restored_to_a_directory(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The error says that it is one, and not that there is no file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JournalError, match=f"^{Path(target)} is a directory; append a file name$"):
        restore(copy, Path(target))
    assert [*tmp_path.iterdir()] == [copy]


class Full(JournalFile):
    """A disk with room for a checkpoint, and for no more."""

    def found(self, cluster: str) -> None:
        raise JournalError("the disk is full")


def test_a_copy_that_a_server_has_begun_to_use(copy: Path) -> None:
    """It has no digest from then on, even if the server stops at once, so it does not count as damaged."""
    with pytest.raises(JournalError, match="the disk is full"):
        open_journal(copy, Limits(), lambda after, of: next_epoch(after, 2e9, lambda: 0.1, of), None, Full)
    found = verify(copy)
    assert (found.messages, found.cursor.sequence, found.has_digest) == (200, 201, False)
    _, state = start(copy)
    assert state.message_count == 200


def test_a_damaged_copy_is_not_restored(copy: Path, tmp_path: Path) -> None:
    change(copy, "DELETE FROM rows WHERE key = 'messages/17'")
    with pytest.raises(JournalError, match="digest"):
        restore(copy, tmp_path / "journal")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_whose_journal_it_is(copy: Path, tmp_path: Path) -> None:
    """A backup has no cluster's name, but those of its epochs: a server refuses that of another cluster."""
    cluster = next_epoch("", 5e8, lambda: 0.5, "")
    other = next_epoch("", 5e8, lambda: 0.7, "")
    assert is_of_one_cluster(cluster, EPOCH)
    assert not is_of_one_cluster(other, EPOCH)
    restore(copy, tmp_path / "same")
    found, state = start(tmp_path / "same", Mark(EPOCH, 200, cluster))
    assert (found, state.message_count) == (cluster, 200)
    restore(copy, tmp_path / "other")
    with pytest.raises(JournalError, match="do not belong"):
        start(tmp_path / "other", Mark(other, 5, other))
    found, state = start(tmp_path / "other")
    assert (found, is_of_one_cluster(state.cursor.epoch, EPOCH)) == (EPOCH, True)
    restore(copy, tmp_path / "again")
    _, state = start(tmp_path / "again", Mark(state.cursor.epoch, state.cursor.sequence, found))
    assert state.message_count == 0, "the mark shows that something is missing"
