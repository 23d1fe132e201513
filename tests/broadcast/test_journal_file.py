"""The journal's file: it loads what was saved, and errors explain why a file cannot be used."""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from msgspec import Raw
from msgspec.structs import replace

from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.broadcast.journal_start import open_journal
from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import Close, Command, Continue, Create, Entry, Expire, Outcome, Published
from pushup.core.cursor import REMEMBERED
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.snapshot import Changes, Snapshot, Stored, empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, rows_of_new_epoch
from tests.broadcast.stepped_helpers import KeptConnection, after_restart, name_epoch
from tests.core.builders import EPOCH, batch, draft, publish
from tests.core.random_entries import LIMITS, random_entries

PAGE = 4096

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


class Opened:
    """An open file and the state loaded from it; each entry is written before it is applied."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self.limits = limits or Limits()
        self.open()

    def open(self) -> None:
        self.connection = KeptConnection()
        open_file = partial(JournalFile, connect=self.connection)
        self.file, self.state = open_journal(self.path, self.limits, name_epoch, None, open_file)
        self.state.check()

    def reopen(self) -> None:
        """As the next server does."""
        self.close()
        self.open()

    def append(self, *entries: Entry) -> list[Outcome]:
        self.file.append(entries)
        return [self.state.apply(entry) for entry in entries]

    def do(self, command: Command, time: float) -> Outcome:
        """Apply the next entry, in a group of its own."""
        (outcome,) = self.append(Entry(self.state.cursor.epoch, self.state.cursor.sequence + 1, time, command))
        return outcome

    def save(self) -> None:
        self.file.save(self.state.changes())
        self.state.note_changes()

    def snapshot(self) -> Snapshot:
        return self.state.snapshot()

    def close(self) -> None:
        self.file.close()


@pytest.fixture
def opened(path: Path) -> Iterator[Opened]:
    opened = Opened(path)
    yield opened
    opened.close()


def filled(path: Path, messages: int = 40) -> None:
    """Make a journal with rows in each of its tables, spread over many pages."""
    opened = Opened(path)
    for number in range(messages):
        opened.do(publish("a", f"b{number}", data='"' + "x" * 1000 + '"', key=f"k{number}"), 10.0)
    opened.save()
    opened.do(publish("a", data='"since"'), 11.0)
    opened.close()


def error_of(path: Path) -> str:
    """The one-line error for a file that cannot be opened, which names it; the file is not left open."""
    with pytest.raises(JournalError) as raised:
        open_journal(path, Limits(), name_epoch, None)
    text = str(raised.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def change(path: Path, *statements: str) -> None:
    """Run statements on a journal that is not open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def count(path: Path, table: str) -> int:
    """The rows of a table of the database, or of the state."""
    table = table if table in ("entries", "state", "customers") else f"rows WHERE key LIKE '{table}/%'"
    with closing(sqlite3.connect(path)) as database:
        (number,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(number)


# Loading what was saved.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limits", LIMITS)
def test_a_file_restores_the_state(path: Path, limits: str, seed: int) -> None:
    """After groups, checkpoints and restarts at random moments, the state equals one that was never restarted."""
    random = Random(f"{limits} {seed}")
    steady = ReplicatedState(LIMITS[limits], epoch=EPOCH)
    opened = Opened(path, LIMITS[limits])
    group: list[Entry] = []
    for entry in random_entries(random, 250):
        last = group[-1].sequence + group[-1].command.width - 1 if group else steady.cursor.sequence
        group.append(replace(entry, epoch=steady.cursor.epoch, sequence=last + 1))
        if random.random() < 0.5:
            continue
        outcomes = [repr(steady.apply(entry)) for entry in group]
        assert [repr(outcome) for outcome in opened.append(*group)] == outcomes
        assert opened.snapshot() == steady.snapshot()
        group = []
        if random.random() < 0.2:
            opened.save()
        if random.random() < 0.15:
            opened.close()
            opened = Opened(path, LIMITS[limits])
            epoch, sequence = steady.cursor.epoch, steady.cursor.sequence
            steady.apply(Entry(epoch, sequence + 1, steady.time, Continue(name_epoch(epoch))))
            assert opened.snapshot() == steady.snapshot()
            assert list(opened.file.entries()) == []
    opened.close()


def test_a_new_file_starts_an_epoch(opened: Opened) -> None:
    """It is empty at the first sequence, and with each next server the order goes on under a new name."""
    expected = ReplicatedState(Limits(), epoch="e1").snapshot()
    assert opened.snapshot() == expected
    for _ in range(REMEMBERED + 2):
        opened.reopen()
        expected = after_restart(expected)
        assert opened.snapshot() == expected


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    """A file of no bytes, as made by `touch` or `mktemp`, is a new journal."""
    path.touch()
    opened = Opened(path)
    opened.do(publish("a"), 1.0)
    opened.reopen()
    assert opened.state.message_count == 1
    opened.close()


def test_an_unfinished_new_file_is_a_new_one(path: Path) -> None:
    """A server may die between creating the tables and the first checkpoint."""
    file = JournalFile(path)
    assert file.load() is None
    assert list(file.entries()) == []
    file.close()
    opened = Opened(path)
    assert opened.state.cursor.epoch == EPOCH
    opened.close()


def test_entries_are_those_since_the_checkpoint(opened: Opened) -> None:
    """They are in order, with sequence and time, and the size of the group is returned."""
    opened.do(publish("a"), 1.0)
    opened.save()
    assert list(opened.file.entries()) == []
    entries = (
        Entry(EPOCH, 2, 2.0, batch(draft("a", data="[1.50]"), draft("tag:é"), key="k")),
        Entry(EPOCH, 4, 2.5, Create(None, 0.5)),
    )
    more = Entry(EPOCH, 5, 2.5, Expire())
    assert opened.file.append(entries) > 100
    opened.file.append((more,))
    rows = opened.connection.last.execute("SELECT sequence FROM entries").fetchall()
    assert rows == [(2,), (5,)], "a row for each group"
    read = list(opened.file.entries())
    assert [(e.epoch, e.sequence, e.time, e.command.width) for e in read] == [
        (EPOCH, 2, 2.0, 2),
        (EPOCH, 4, 2.5, 1),
        (EPOCH, 5, 2.5, 1),
    ]
    assert read[1:] == [entries[1], more]
    assert opened.file.recover(after=2) == read[1:]
    assert opened.file.recover(after=5) == []


def test_a_save_deletes_only_the_entries_that_it_contains(opened: Opened) -> None:
    opened.do(publish("a"), 1.0)
    changes = opened.state.changes()
    later = Entry(EPOCH, 2, 2.0, publish("a"))
    opened.file.append((later,))
    opened.file.save(changes)
    assert list(opened.file.entries()) == [later]


def test_data_is_kept_as_it_was_written(path: Path) -> None:
    """Every digit and every space is kept, in the entries and in the checkpoint."""
    data = '{"a" :  1.50, "b": 12345678901234567890.10, "c": "\\u00e9\\u0000"}'
    opened = Opened(path)
    opened.do(publish("a", data=data), 1.0)
    for _ in range(3):
        (message,) = opened.state.snapshot().messages
        assert bytes(message.data).decode() == data
        opened.save()
        opened.reopen()
    opened.close()


@pytest.mark.parametrize(
    "name", ['"', "\\", "'; DROP TABLE rows; --", "\u2028", "é", "e\u0301", "A", "a ", "a/b", "/", "%", "😀"]
)
def test_a_channel_is_found_by_any_name(path: Path, name: str) -> None:
    """It is replaced and deleted by exactly its name, next to one with almost the same name."""
    limits = Limits(retention_seconds=5.0)
    opened = Opened(path, limits)
    opened.do(publish("a"), 1.0)
    opened.do(publish(name), 1.0)
    opened.save()
    opened.do(publish(name), 1.5)
    opened.save()
    opened.close()
    assert count(path, "channels") == 2
    opened = Opened(path, limits)
    assert opened.state.channels.get(name).latest_sequence == 3
    opened.do(Close(name), 2.0)
    opened.do(publish("a"), 8.0)
    assert [row.key for row in opened.state.changes().rows if row.key.startswith("channels/") and row.is_removed] == [
        f"channels/{name}"
    ]
    opened.save()
    opened.close()
    assert count(path, "channels") == 1


def test_rows_are_loaded_in_order(opened: Opened) -> None:
    """Open channels first, by id, whatever was written last; messages and keys in their original order."""
    for number, (name, ttl) in enumerate((("c", 500.0), ("a", 900.0), ("d", 20.0), ("b", 30.0))):
        opened.do(Create(name, ttl), 1.0 + number)
        opened.do(publish(name, key=f"k{number}"), 1.0 + number)
        opened.save()
    opened.do(Close("b"), 5.0)
    opened.save()
    loaded = opened.file.load()
    assert loaded is not None
    assert loaded == opened.state.snapshot()
    assert [c.name for c in loaded.channels] == ["c", "a", "d", "b"]
    assert [m.sequence for m in loaded.messages] == [2, 4, 6], "that on a closed channel only has gone"
    assert [row.key for row in loaded.tables["keys"].in_order()] == ["k0", "k1", "k2", "k3"]


def test_a_checkpoint_saved_twice_has_everything_once(opened: Opened) -> None:
    """If a checkpoint that seemed to have failed is saved again with newer changes, there are no duplicates."""
    opened.do(batch(draft("a"), draft("b"), key="k"), 1.0)
    opened.file.save(opened.state.changes())
    opened.do(publish("a", key="l"), 2.0)
    opened.file.save(opened.state.changes())
    opened.file.save(opened.state.changes())
    snapshot = opened.file.load()
    assert snapshot is not None
    assert [m.sequence for m in snapshot.messages] == [1, 2, 3]
    assert [row.key for row in snapshot.tables["keys"].in_order()] == ["k", "l"]
    opened.save()
    state = opened.snapshot()
    opened.reopen()
    assert opened.snapshot() == after_restart(state)


def test_a_checkpoint_that_fails_leaves_the_old_one(opened: Opened) -> None:
    opened.do(publish("a"), 1.0)
    opened.save()
    before = opened.file.load()
    opened.do(publish("a"), 2.0)
    opened.connection.last.execute(
        "CREATE TEMP TRIGGER fails BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(JournalError, match=r"failed: no \(SQLITE_CONSTRAINT_TRIGGER\)"):
        opened.save()
    assert opened.file.recover(after=1) == list(opened.file.entries())
    assert [entry.sequence for entry in opened.file.entries()] == [2]
    assert opened.file.load() == before
    opened.connection.last.execute("DROP TRIGGER fails")
    opened.save()


def test_a_new_beginning_that_fails_leaves_everything(opened: Opened) -> None:
    """Its error says why, and the next one succeeds."""
    opened.do(publish("a", key="k"), 1.0)
    opened.save()
    before = opened.file.load()
    beginning = Changes(head_of_new_epoch("e2", opened.state), tuple(rows_of_new_epoch(opened.state)))
    opened.connection.last.execute(
        "CREATE TEMP TRIGGER fails BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(JournalError, match="failed: no"):
        opened.file.save(beginning, starts_over=True)
    assert opened.file.recover(after=0) == []
    assert opened.file.load() == before
    opened.connection.last.execute("DROP TRIGGER fails")
    opened.file.save(beginning, starts_over=True)
    loaded = opened.file.load()
    assert loaded is not None
    assert (loaded.head.epoch, [channel.name for channel in loaded.channels], loaded.messages) == ("e2", ["a"], ())


def test_a_save_without_messages_and_keys_adds_no_row(path: Path) -> None:
    opened = Opened(path)
    opened.do(publish("a", key="k"), 1.0)
    opened.save()
    opened.do(Create("b"), 1.0)
    opened.save()
    opened.close()
    assert [count(path, table) for table in ("entries", "messages", "keys", "channels")] == [0, 1, 1, 2]


def test_a_save_may_have_any_number_of_rows(path: Path) -> None:
    """More than a statement of SQLite can have."""
    names = [f"keys/{number}" for number in range(20_000)]
    connection = KeptConnection()
    with closing(JournalFile(path, connection)) as file:
        connection.last.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)  # the default; some builds allow more
        for body, expected in ((b"{}", len(names)), (b"null", 0)):
            file.save(Changes(empty_head("e1", Limits()), tuple([Stored(name, Raw(body)) for name in names])))
            assert connection.last.execute("SELECT count(*) FROM rows").fetchone() == (expected,)


def test_a_disk_that_is_full_is_named(opened: Opened, path: Path) -> None:
    """Here SQLite is told that there is no room. What was in the file stays."""
    opened.do(publish("a"), 1.0)
    opened.connection.last.execute("PRAGMA max_page_count = 1")  # it takes the present size
    with pytest.raises(JournalError, match=f"the disk is full: {re.escape(str(path))} cannot grow"):
        opened.do(publish("a", data='"' + "x" * 100 * PAGE + '"'), 2.0)
    assert [entry.sequence for entry in opened.file.entries()] == [1]


def test_an_error_that_is_not_of_sqlite_itself(path: Path) -> None:
    """Its type tells more than nothing."""
    file = JournalFile(path)
    file.close()
    with pytest.raises(JournalError, match=r"failed: Cannot operate on a closed database\. \(ProgrammingError\)"):
        file.append((Entry(EPOCH, 1, 1.0, Expire()),))


@contextmanager
def _no_room(path: Path) -> Iterator[None]:
    """Limit the size of files of this process to that of the journal's largest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_grow(opened: Opened, path: Path) -> None:
    """A write that does not fit leaves no trace; the old content stays, and writing works once there is room."""
    for number in range(10):
        opened.do(publish("a"), 1.0 + number)
    with _no_room(path):
        entry = Entry(EPOCH, 11, 20.0, publish("a", data='"' + "x" * 10_000 + '"'))
        with pytest.raises(JournalError, match=re.escape(str(path))):
            opened.append(entry)
        with pytest.raises(JournalError, match=re.escape(str(path))):
            opened.save()
        assert len(list(opened.file.entries())) == 10
    assert opened.file.recover(after=10) == []
    opened.append(entry)
    opened.save()
    state = opened.snapshot()
    opened.reopen()
    assert opened.snapshot() == after_restart(state)


def test_recovery_fails_while_the_file_cannot_be_written(path: Path) -> None:
    """Otherwise a server would report that it is ready, and could not accept a publication."""
    opened = Opened(path)
    opened.do(publish("a"), 1.0)
    with _no_room(path):
        for _ in range(2):
            with pytest.raises(JournalError, match=re.escape(str(path))):
                opened.file.recover(after=1)
    assert opened.file.recover(after=0) == list(opened.file.entries())
    opened.close()
    assert count(path, "state") == 2
    change(path, "INSERT INTO state VALUES ('room', zeroblob(100000))")  # a server died while it tested for room
    opened = Opened(path)
    assert opened.state.message_count == 1
    opened.close()


# Limits that differ at the next start.


def test_entries_are_replayed_with_the_old_limits(path: Path) -> None:
    """Entries since the checkpoint have the same outcome as before, and the new limits apply afterwards."""
    opened = Opened(path, Limits(retention_messages=10))
    outcomes = [opened.do(publish("a", key=f"k{n}"), 1.0) for n in range(6)]
    opened.do(Create("b", None), 1.0)
    opened.close()
    strict = Limits(retention_messages=2, keys_limit=100, strict_channels=True, channel_ttl_seconds=7.0)
    opened = Opened(path, strict)
    assert [m.sequence for m in opened.state.snapshot().messages] == [1, 2, 3, 4, 5, 6]
    assert [opened.do(publish("a", key=f"k{n}"), 1.0) for n in range(6)] == outcomes
    assert opened.state.channels.get("b").ttl == 3600.0
    assert opened.do(publish("a"), 2.0) == Published("e2", 16, 1, 2.0), "new name, new limits: two places"
    assert [m.sequence for m in opened.state.snapshot().messages] == [3, 4, 5, 6, 16], "two go for one that comes"
    assert not isinstance(opened.do(publish("never created"), 2.0), Published)
    opened.save()
    state = opened.snapshot()
    opened.close()
    opened = Opened(path, strict)
    assert opened.snapshot() == after_restart(state)
    opened.close()


def test_other_policies_at_the_next_start(path: Path) -> None:
    """What is kept follows those of the present start; a message whose policy is gone, the limits for all channels."""

    def kept(time: float, *policies: ChannelPolicy) -> list[str]:
        """The channels that have messages, after a restart with these policies and an expiry at this time."""
        opened = Opened(path, Limits(channels=policies))
        assert opened.state.limits.channels == policies
        opened.do(Expire(), time)
        names = [message.channels[0] for message in opened.snapshot().messages]
        opened.close()
        return names

    long, short = (ChannelPolicy(prefix="chat:", retention_seconds=seconds) for seconds in (1000.0, 10.0))
    opened = Opened(path, Limits(channels=(long,)))
    for name in ("a", "chat:a"):
        opened.do(publish(name), 1.0)
    opened.close()
    assert kept(200.0, long) == ["a", "chat:a"]
    assert kept(400.0, long) == ["chat:a"]
    saved = path.read_bytes()
    assert kept(401.0, short) == []
    path.write_bytes(saved)
    assert kept(401.0) == []
    path.write_bytes(saved)
    assert kept(401.0, long, ChannelPolicy(prefix="chat:a", retention_seconds=10.0)) == ["chat:a"], "as published"


@pytest.mark.parametrize("seed", range(6))
def test_any_limits_may_follow_any(path: Path, seed: int) -> None:
    """However the limits change at a restart, the state stays the same; what exceeds them goes with later entries."""
    random = Random(seed)
    limits = random.choice(list(LIMITS.values()))
    opened = Opened(path, limits)
    for entry in random_entries(random, 300):
        opened.do(entry.command, entry.time)
        if random.random() < 0.1:
            opened.save()
        if random.random() < 0.1:
            state = opened.snapshot()
            opened.close()
            changed = random.choice(list(LIMITS.values()))
            expected = after_restart(state)
            sequence = expected.head.sequence + (changed != limits)
            expected = replace(expected, head=replace(expected.head, limits=changed, sequence=sequence))
            limits = changed
            opened = Opened(path, limits)
            assert opened.snapshot() == expected
    opened.close()


# The size of the file.


def test_a_file_contains_only_what_is_retained(path: Path) -> None:
    """Of 3000 messages, it has a row for each of the 20 that are retained at any time, and it does not grow."""
    limits = Limits(retention_messages=20, retention_seconds=1e6, keys_limit=10, channels_limit=1000)
    opened = Opened(path, limits)
    rows = size = 0
    for number in range(3000):
        opened.do(publish("busy", data='"' + "x" * 500 + '"', key=f"k{number}"), 1.0 + number)
        if number % 30 == 0:
            opened.save()
            rows = max(rows, opened.connection.last.execute("SELECT count(*) FROM rows").fetchone()[0])
            assert list(opened.file.entries()) == []
            size = max(size, path.stat().st_size)
    opened.close()
    assert rows == 20 + 10 + 1, "messages, keys and a channel"
    assert size < 60 * PAGE


def test_expired_and_closed_rows_are_deleted(path: Path) -> None:
    limits = Limits(retention_seconds=5.0, channel_ttl_seconds=2.0)
    opened = Opened(path, limits)
    for number in range(50):
        opened.do(publish(f"c{number}", key=f"k{number}"), 10.0 + number / 10)
        opened.save()
    for time in (30.0, 60.0):
        opened.do(Expire(), time)
        opened.save()
    opened.close()
    assert [count(path, table) for table in ("entries", "messages", "keys", "channels", "state")] == [0, 0, 0, 0, 2]


def test_eviction_by_bytes_trims_the_file(path: Path) -> None:
    opened = Opened(path, Limits(retention_bytes=4 * MESSAGE_OVERHEAD_BYTES + 100))
    for number in range(40):
        opened.do(publish(f"c{number}"), 1.0)
        opened.save()
    assert opened.state.message_count == 4
    opened.close()
    assert count(path, "messages") == 4


# Files that cannot be used.


@contextmanager
def _without_privileges() -> Iterator[None]:
    """Drop the privileges of root, which ignores permissions."""
    if os.geteuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o777)
        yield directory


def test_a_second_opener_gets_an_error(opened: Opened, path: Path) -> None:
    """A file is open in one server at a time; the first is not affected, and the next can open it afterwards."""
    assert "in use by another server" in error_of(path)
    opened.do(publish("a"), 1.0)
    assert "in use by another server" in error_of(path)
    opened.save()
    opened.reopen()
    assert opened.state.message_count == 1


def test_a_read_only_file(open_directory: Path) -> None:
    """The error names it, and it is not changed."""
    path = open_directory / "journal"
    filled(path)
    path.chmod(0o444)
    with _without_privileges():
        text = error_of(path)
    assert "is not writable" in text or "cannot be opened" in text


def test_a_read_only_directory(open_directory: Path) -> None:
    """A journal can neither be created nor used there."""
    filled(open_directory / "journal")
    (open_directory / "journal").chmod(0o666)
    open_directory.chmod(0o555)
    with _without_privileges():
        assert "cannot be opened: does its directory exist" in error_of(open_directory / "new")
        text = error_of(open_directory / "journal")
    assert "is not writable" in text or "cannot be opened" in text
    open_directory.chmod(0o777)


def test_a_missing_directory(tmp_path: Path) -> None:
    """It is not created."""
    assert "does its directory exist" in error_of(tmp_path / "nowhere" / "journal")
    assert not (tmp_path / "nowhere").exists()


def test_a_path_of_the_wrong_kind(tmp_path: Path) -> None:
    """A directory is not a journal, and a file is not a directory."""
    assert "cannot be opened" in error_of(tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be opened" in error_of(tmp_path / "file" / "journal")


def test_another_file_is_left_alone(path: Path) -> None:
    """A text, an image or a mistyped path is never overwritten."""
    path.write_bytes(b"Dear diary, " * 1000)
    assert "is not a journal" in error_of(path)
    assert path.read_bytes() == b"Dear diary, " * 1000


def test_another_database_is_left_alone(path: Path) -> None:
    """Whether or not it has an application id."""
    change(path, "CREATE TABLE customers (name TEXT)", "INSERT INTO customers VALUES ('Ann')")
    before = path.read_bytes()
    assert "is an SQLite database of another program" in error_of(path)
    assert path.read_bytes() == before
    for number in (4711, 0x7FFFFFFF):
        change(path, f"PRAGMA application_id = {number}")
        assert "is an SQLite database of another program" in error_of(path)
    assert count(path, "customers") == 1
    change(path, "DROP TABLE customers")
    assert "is an SQLite database of another program" in error_of(path)


def test_a_journal_of_another_format_is_left_alone(path: Path) -> None:
    """The error names both formats."""
    filled(path)
    for version in (0, 1, 2, 3, 4, 6):
        change(path, f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        assert re.search(f"has format {version}.*uses format 5.*nothing was changed", error_of(path))
        assert path.read_bytes() == before
        assert [*path.parent.iterdir()] == [path]
    change(path, "PRAGMA user_version = 5")
    Opened(path).close()


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"SQLite format 4\0" + b"x" * 84, b"x"])
def test_a_damaged_header(path: Path, garbage: bytes) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.write(garbage)
    text = error_of(path)
    assert "is not a journal" in text or "is damaged" in text


@pytest.mark.parametrize("seed", range(12))
def test_damaged_pages_are_reported_or_harmless(path: Path, seed: int) -> None:
    """Random damage behind the header gives an error, or a state that works."""
    random = Random(seed)
    filled(path)
    with path.open("r+b") as file:
        for _ in range(random.choice((1, 4, 20))):
            file.seek(random.randrange(100, path.stat().st_size))
            file.write(random.randbytes(random.choice((1, 30, PAGE))))
    try:
        opened = Opened(path)
    except (JournalError, NotUnderstood) as error:  # damage to the name of a field looks like a new one
        text = str(error)
    else:
        opened.do(publish("a"), 1e9)
        opened.close()
        text = f"{path} is damaged, and nobody has noticed"
    assert str(path) in text
    assert "is damaged" in text or "is not a journal" in text or "unknown field" in text


def test_damaged_pages_in_the_middle(path: Path) -> None:
    filled(path)
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(3 * PAGE)
        file.write(Random(1).randbytes((pages - 3) * PAGE))
    assert "is damaged" in (text := error_of(path))
    assert "move it away" in text
    assert "(*** in database main ***)" not in text, "that is only what SQLite says before what it has found"
    with pytest.raises(JournalError, match="is damaged"):
        JournalFile(path)  # before anything is read that may still be whole


@pytest.mark.parametrize("size", [99, 1000, PAGE, 2 * PAGE, 5 * PAGE + 100])
def test_a_truncated_file(path: Path, size: int) -> None:
    filled(path)
    os.truncate(path, size)
    text = error_of(path)
    assert "is not a journal" in text or "is damaged" in text


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rows SET body = '{' WHERE key = 'channels/a'",
        "UPDATE rows SET body = '{}' WHERE key = 'channels/a'",
        "UPDATE rows SET body = CAST(x'ff' AS TEXT) WHERE key = 'channels/a'",
        "UPDATE rows SET body = x'ff' WHERE key = 'channels/a'",
        "UPDATE rows SET body = '{' WHERE key = 'messages/40'",
        "UPDATE rows SET body = x'ff' WHERE key LIKE 'messages/%'",
        "UPDATE rows SET body = '[1]' WHERE key LIKE 'messages/%'",
        "UPDATE rows SET body = substr(body, 1, 20) WHERE key LIKE 'keys/%'",
        "UPDATE rows SET body = x'80' WHERE key LIKE 'keys/%'",
        "UPDATE rows SET key = CAST(x'ff' AS TEXT) WHERE key = 'channels/a'",
        "UPDATE entries SET body = substr(body, 1, length(body) - 1)",
        "UPDATE entries SET body = x'c3'",
        "UPDATE entries SET body = '[]x'",
        "UPDATE entries SET body = replace(body, '\"e1\"', '\"e9\"')",
        "UPDATE entries SET body = replace(body, '\"sequence\":41', '\"sequence\":42')",
        "UPDATE state SET value = 'x' WHERE name = 'checkpoint'",
        "UPDATE state SET value = '{}' WHERE name = 'checkpoint'",
        "UPDATE state SET value = CAST(x'ff' AS TEXT) WHERE name = 'checkpoint'",
        "UPDATE state SET value = json_set(value, '$.limits', json_array()) WHERE name = 'checkpoint'",
        "UPDATE state SET value = json_set(value, '$.limits.retention_messages', 'many') WHERE name = 'checkpoint'",
        "UPDATE state SET value = json_remove(value, '$.limits') WHERE name = 'checkpoint'",
        "DELETE FROM state WHERE name = 'checkpoint'",
        "DROP TABLE rows",
        "DROP TABLE entries",
        "DROP TABLE state",
    ],
)
def test_invalid_rows(path: Path, statement: str) -> None:
    """A valid database with unexpected contents is reported as damaged, and is not left open."""
    filled(path)
    change(path, statement)
    text = error_of(path)
    assert "is damaged" in text or "failed: " in text
    gc.collect()  # the error's traceback refers to a cursor
    assert "in use" not in error_of(path)


def test_a_file_that_could_not_be_used_is_closed(path: Path) -> None:
    """It is closed at once, so that it can be repaired and opened again."""
    filled(path)
    change(path, "UPDATE state SET value = '{}' WHERE name = 'checkpoint'")
    with pytest.raises(JournalError) as raised:
        open_journal(path, Limits(), name_epoch, None)
    JournalFile(path).close()
    assert str(path) in str(raised.value)


def test_each_commit_is_synced(path: Path) -> None:
    """No test cuts the power, but a committed transaction must be on the disk and not only in the kernel.

    Nor does a test measure that a file in use is reported at once.
    """
    opened = Opened(path)
    names = ("synchronous", "journal_mode", "busy_timeout")
    settings = [opened.connection.last.execute(f"PRAGMA {name}").fetchone() for name in names]
    assert settings == [(2,), (b"wal",), (0,)]
    opened.close()


def test_a_copy_of_an_open_file_is_complete(path: Path, tmp_path: Path) -> None:
    """File and write-ahead log, as they are after a crash, contain everything committed."""
    opened = Opened(path)
    for number in range(30):
        opened.do(publish("a"), 1.0 + number)
        if number % 7 == 0:
            opened.save()
        copy = tmp_path / f"copy{number}"
        _copy(path, copy)
        other = Opened(copy)
        assert other.snapshot() == after_restart(opened.snapshot())
        other.close()
    opened.close()


def _copy(path: Path, to: Path) -> None:
    for end in ("", "-wal"):
        if path.with_name(path.name + end).exists():
            shutil.copy(path.with_name(path.name + end), to.with_name(to.name + end))


@pytest.mark.parametrize("change", ["DROP TABLE rows", "DROP TABLE state", "UPDATE state SET value = '{'"])
def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_none(path: Path, change: str) -> None:
    """A server would begin with nothing, and save that."""
    connection = KeptConnection()
    with closing(JournalFile(path, connection)) as file:
        file.save(ReplicatedState(Limits(), epoch="e1").changes())
        assert file.load() is not None
        connection.last.execute(change)
        with pytest.raises(JournalError):
            file.load()


@pytest.mark.parametrize("change", ["DROP TABLE entries", "UPDATE entries SET body = '{'"])
def test_entries_that_cannot_be_read_are_not_taken_for_the_end(path: Path, change: str) -> None:
    """The order would go on without them."""
    connection = KeptConnection()
    with closing(JournalFile(path, connection)) as file:
        file.append((Entry("e1", 1, 1.0, publish("a")),))
        assert len(list(file.entries())) == 1
        connection.last.execute(change)
        with pytest.raises(JournalError):
            list(file.entries())
