"""Bounded tables: one that only tests have is one class and one line, and everything that keeps the state keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec import Struct

from pushup.broadcast.journal_file import JournalFile
from pushup.core import snapshot
from pushup.core.bounded_table import BoundedTable, Remembered
from pushup.core.commands import Close, Expire
from pushup.core.rows import BUCKET, Rows
from pushup.core.snapshot import Changes, Snapshot, Tables
from pushup.core.state_transfer import Outgoing, head_of_new_epoch, restore, rows_of_new_epoch, take_apart

from .builders import EPOCH, Feed, publish
from .saved_checkpoint import SavedCheckpoint

pytestmark = pytest.mark.interpreted  # the table is added while the tests run


class Note(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of it."""

    about: str
    sequence: int
    time: float
    text: str

    @property
    def row_name(self) -> str:
        return self.about

    @property
    def place(self) -> int:
        return self.sequence


class Notes(BoundedTable[Note]):
    """The last notes."""

    name = "notes"
    row_type = Note
    limit = 3
    seconds = 20.0


@pytest.fixture(autouse=True)
def with_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "BOUNDED", [*snapshot.BOUNDED, Notes])
    monkeypatch.setattr("pushup.core.state_rows.BOUNDED", snapshot.BOUNDED)


def note(feed: Feed, about: str, text: str = "") -> None:
    """Put a note there, as an entry would."""
    feed.apply(publish("a"), feed.state.time or 1.0)
    feed.state.bounded["notes"].put(Note(about, feed.state.cursor.sequence, feed.state.time, text))


def noted(feed: Feed) -> list[str | int]:
    return feed.state.bounded["notes"].names()


@pytest.fixture
def feed() -> Feed:
    feed = Feed()
    feed.state.note_changes()
    for about in ("x", "y"):
        note(feed, about, "old")
    note(feed, "x", "new")
    return feed


def test_a_row_that_is_put_again_is_the_newest(feed: Feed) -> None:
    assert noted(feed) == ["y", "x"]
    assert feed.state.bounded["notes"].row("x") == Note("x", 3, 1.0, "new")


def test_the_oldest_rows_go_beyond_the_limit(feed: Feed) -> None:
    for about in ("z", "v"):
        note(feed, about)
    assert noted(feed) == ["x", "z", "v"]


def test_rows_expire_after_their_time(feed: Feed) -> None:
    feed.apply(Close("a"), 1.5)
    feed.apply(Expire(), 20.0)
    assert noted(feed) == ["y", "x"]
    assert feed.state.bounded["notes"].next_time == 21.0
    assert feed.state.next_expiry == 21.0
    feed.apply(Expire(), 21.0)
    assert noted(feed) == []


def test_a_checkpoint_has_them(feed: Feed) -> None:
    """And loses those that go."""
    saved = SavedCheckpoint()
    saved.save(feed.state.changes())
    again = restore(saved.as_redis_reads_it(Random(1)))
    assert again.snapshot() == feed.state.snapshot()
    assert again.bounded["notes"].names() == ["y", "x"]
    feed.state.note_changes()
    feed.apply(Expire(), 30.0)
    saved.save(feed.state.changes())
    assert len(saved.as_sqlite_reads_it().tables["notes"]) == 0
    assert not [key for key in saved.rows if key.startswith("notes/")]


def test_a_journal_has_them(feed: Feed, tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal")
    file.save(feed.state.changes())
    assert file.load() == feed.state.snapshot()
    feed.apply(Expire(), 30.0)
    file.save(feed.state.changes())
    assert file.load() == feed.state.snapshot()
    file.close()


def test_another_process_gets_them(feed: Feed) -> None:
    incoming, outgoing = Tables(), Outgoing(feed.state)
    while not isinstance(piece := outgoing.next(), Changes):
        incoming.take(piece)
        note(feed, "during")
    incoming.take(piece.rows)
    assert restore(Snapshot(piece.head, incoming)).snapshot() == feed.state.snapshot()
    assert noted(feed) == ["y", "x", "during"]


def test_a_new_epoch_keeps_what_its_node_knew(feed: Feed) -> None:
    """Of two states: a row of both is what the last of them says."""
    other = Feed()
    note(other, "y", "other")
    note(other, "o", "other")
    saved = SavedCheckpoint()
    states = feed.state, other.state
    saved.save(Changes(head_of_new_epoch("e2", *states), tuple(rows_of_new_epoch(*states))))
    again = restore(saved.as_redis_reads_it(Random(2)))
    assert again.cursor.sequence == 3
    kept = [again.bounded["notes"].row(name) for name in again.bounded["notes"].names()]
    assert [(row.about, row.text) for row in kept if isinstance(row, Note)] == [
        ("y", "other"),
        ("o", "other"),
        ("x", "new"),
    ]


def test_it_is_taken_apart(feed: Feed) -> None:
    for _ in take_apart(feed.state):
        pass
    assert noted(feed) == []


def test_a_table_that_is_not_known_is_refused() -> None:
    """A node of an older release sees it in a checkpoint."""
    with pytest.raises(msgspec.ValidationError, match="there is no table 'unheard'"):
        Tables().add("unheard/of", b"{}")


def rows_of(count: int) -> Iterator[Remembered]:
    for n in range(count):
        yield Remembered(f"k{n}", EPOCH, count - n, 1, 1.0, "f")


def test_rows_are_sorted_by_their_place() -> None:
    """However many they are; one with the same name replaces the other."""
    rows = Rows(rows_of(3 * BUCKET))
    rows.put(Remembered("k5", EPOCH, 0, 1, 1.0, "f"))
    rows.remove("k7")
    rows.remove("not there")
    assert len(rows) == 3 * BUCKET - 1
    ordered = [row.sequence for row in rows.in_order()]
    assert ordered == sorted(ordered)
    assert [row.key for row in rows.in_order()][:2] == ["k5", f"k{3 * BUCKET - 1}"]
    others = Rows(rows.in_order())
    assert others == rows
    others.remove("k9")
    assert others != rows
    steps = 1
    while rows.free_some():
        steps += 1
    assert (len(rows), steps > 100) == (0, True)


@pytest.mark.parametrize(
    ("key", "body", "what"),
    [
        ("notes/a", b'{"about":"b","sequence":1,"time":1.0,"text":""}', "is called 'b'"),
        ("messages/8", b'{"sequence":9,"time":1.0,"channels":["a"],"data":1}', "is called 9"),
        ("notes/a", b"null", "got `null`"),
        ("other/a", b"{}", "no table 'other'"),
        ("notes", b"{}", "required field"),
    ],
)
def test_a_row_that_is_stored_wrongly(key: str, body: bytes, what: str) -> None:
    """It is no row of any state: under another row's key it would be removed with that one, or never."""
    stored = Tables()
    with pytest.raises(msgspec.ValidationError, match=what):
        stored.add(key, body)
    assert not any(stored.all())
