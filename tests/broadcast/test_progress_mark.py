"""The mark beside a journal: what it proves, when it is written, and what happens if it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.progress_mark import MARK_SECONDS, Mark, MarkFile, ProgressMark, lacks, lock_file, mark_path
from pushup.core.cursor import REMEMBERED, Cursor, PastEpoch, PastEpochs
from tests.broadcast.stepped_helpers import SteppedHelpers

PAST = PastEpochs((PastEpoch("e2", 5), PastEpoch("e4", 9)))


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Cursor("e6", 12), False),  # the end
        (Cursor("e6", 11), False),  # a crash within a second
        (Cursor("e6", 13), True),  # an older copy of the same epoch
        (Cursor("e4", 9), False),  # a crash right after the start
        (Cursor("e4", 8), False),
        (Cursor("e4", 10), True),  # a copy that went on elsewhere while this machine followed e4 further
        (Cursor("e2", 5), False),
        (Cursor("e2", 6), True),
        (Cursor("e7", 1), True),  # a copy from before the last start
        (Cursor("e10", 1), True),  # the same: longer names are later
        (Cursor("e3", 1), True),  # this machine followed e3, which this journal has left out
        (Cursor("e1", 99), False),  # the order began after it, and the mark was not written since
    ],
)
def test_what_a_mark_proves(mark: Cursor, expected: bool) -> None:
    """A journal that ends at e6-12, and was e2 up to 5 and e4 up to 9."""
    assert lacks(mark, Cursor("e6", 12), PAST) is expected


@pytest.mark.parametrize(("mark", "expected"), [("e1", False), ("e2", False), ("e3", True), ("1a1fb6718005d", True)])
def test_what_a_mark_proves_of_an_order_without_past(mark: str, expected: bool) -> None:
    """It began as e2, perhaps because entries of e1 were missing; the mark may be of the second before."""
    assert lacks(Cursor(mark, 7), Cursor("e2", 7), PastEpochs()) is expected


def test_a_journal_of_the_last_release_is_earlier_than_any_mark() -> None:
    """Its name is eight hexadecimal digits, and it was put back if there is a mark."""
    assert lacks(Cursor("1a1fb6718005d", 1), Cursor("ffffffff", 100), PastEpochs())


def test_names_that_are_no_longer_remembered_prove_nothing() -> None:
    """A mark that could not be written for many starts is no alarm."""
    past = PastEpochs()
    for n in range(100, 100 + REMEMBERED + 1):
        past = past.and_then(f"e{n}", n, keeps_first=True)
    assert not lacks(Cursor("e101", 101), Cursor("e300", 300), past)
    assert lacks(Cursor("e100", 101), Cursor("e300", 300), past)
    assert lacks(Cursor("e250", 101), Cursor("e300", 300), past)


# Reading and writing.


class Store:
    """A mark in memory, which may fail."""

    name = "journal.mark"

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.trouble = ""

    def read(self) -> bytes | None:
        self._check()
        return self.data

    def write(self, data: bytes) -> None:
        self._check()
        self.data = data

    def _check(self) -> None:
        if self.trouble:
            raise OSError(self.trouble)


class Machine:
    """A store, the helper that writes to it, and the mark of one process after the other."""

    def __init__(self) -> None:
        self.store = Store()
        self.clock = Clock()
        self.start()

    def start(self) -> None:
        self.helpers = SteppedHelpers()
        self.mark = ProgressMark(self.store, self.helpers, self.clock)

    def note(self, sequence: int) -> None:
        self.mark.note(Cursor("e1", sequence))

    def written(self) -> int:
        """The sequence on the disk; 0 if there is none."""
        return 0 if self.store.data is None else msgspec.json.decode(self.store.data, type=Mark).sequence

    def second(self) -> None:
        self.clock.advance(MARK_SECONDS)

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping = Deferred.fromCoroutine(self.mark.stop())

    def has_stopped(self) -> bool:
        return bool(self._stopping.called) and self._stopping.result is None


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_beginning_is_written_at_once(machine: Machine) -> None:
    """Before any client can be told of the new epoch; no helper is needed."""
    machine.mark.begin(Cursor("e1", 5))
    assert machine.written() == 5
    assert machine.clock.getDelayedCalls() == []
    machine.note(5)
    machine.second()
    assert machine.helpers.made == []


@pytest.mark.parametrize("epoch", ["e1", "ffff", None])
def test_a_node_that_applies_nothing_leaves_the_mark_as_it_is(machine: Machine, epoch: str | None) -> None:
    """It starts and stops while there is no log to follow, for instance."""
    machine.store.data = before = None if epoch is None else msgspec.json.encode(Cursor(epoch, 5))
    assert machine.mark.read() == (None if epoch is None else Mark(epoch, 5))
    machine.stop()
    assert machine.has_stopped()
    assert (machine.store.data, machine.helpers.made) == (before, [])


def test_what_is_no_name_of_an_epoch_is_no_mark(machine: Machine, log: list[str]) -> None:
    """Names are hexadecimal numbers."""
    machine.store.data = msgspec.json.encode(Cursor("g1", 5))
    assert machine.mark.read() is None
    assert ["cannot read" in line for line in log] == [True]


def test_a_beginning_that_cannot_be_written_is_tried_again(machine: Machine, logged_failures: list[str]) -> None:
    machine.store.trouble = "no space left"
    machine.mark.begin(Cursor("e1", 5))
    assert len(logged_failures) == 1
    logged_failures.clear()
    machine.store.trouble = ""
    machine.second()
    machine.helpers.step()
    assert machine.written() == 5


def test_it_is_written_once_a_second_while_there_is_something_new(machine: Machine) -> None:
    """The first entry after a pause at once, however many are noted in one turn; and nothing while there are none."""
    for number in range(1, 101):
        machine.note(number)
    assert machine.helpers.names == []
    machine.clock.advance(0)
    assert machine.helpers.names == ["write"]
    machine.helpers.step()
    assert machine.written() == 100
    machine.note(101)
    machine.clock.advance(MARK_SECONDS - 0.01)
    machine.note(102)
    assert machine.helpers.names == []
    machine.clock.advance(0.01)
    machine.helpers.step()
    assert machine.written() == 102
    machine.clock.advance(10 * MARK_SECONDS)
    assert machine.helpers.made == ["write", "write"]
    assert machine.clock.getDelayedCalls() == []
    machine.note(102)
    machine.second()
    assert machine.helpers.made == ["write", "write"], "it is written already"


def test_what_is_noted_during_a_write_is_written_a_second_later(machine: Machine) -> None:
    """A slow disk has one call at a time."""
    machine.note(1)
    machine.second()
    machine.note(2)
    machine.clock.advance(5 * MARK_SECONDS)
    assert machine.helpers.names == ["write"]
    machine.helpers.step()
    assert (machine.written(), machine.helpers.names) == (1, [])
    machine.second()
    machine.helpers.step()
    assert machine.written() == 2


def test_stopping_after_a_failure_tries_once_more(machine: Machine, log: list[str]) -> None:
    """And comes to an end, whatever becomes of that."""
    machine.store.trouble = "no space left"
    machine.note(1)
    machine.clock.advance(0)
    machine.helpers.step()
    machine.store.trouble = ""
    stopped = Deferred.fromCoroutine(machine.mark.stop())
    assert machine.helpers.names == ["write"]
    machine.helpers.step()
    assert stopped.called
    assert machine.written() == 1


def test_stopping_writes_the_last_entry(machine: Machine) -> None:
    """Without waiting for the second to pass; nothing is left to do then."""
    machine.note(7)
    machine.stop()
    assert not machine.has_stopped()
    machine.helpers.step()
    assert machine.has_stopped()
    assert machine.written() == 7
    assert machine.clock.getDelayedCalls() == []


def test_stopping_during_a_write_writes_what_was_noted_since(machine: Machine) -> None:
    """The write under way has an older entry."""
    machine.note(1)
    machine.second()
    machine.note(2)
    machine.stop()
    machine.helpers.step()
    assert not machine.has_stopped()
    machine.helpers.step()
    assert machine.has_stopped()
    assert machine.written() == 2


@pytest.mark.parametrize("noted", [False, True])
def test_stopping_with_nothing_new_writes_nothing(machine: Machine, noted: bool) -> None:
    if noted:
        machine.note(1)
        machine.second()
        machine.helpers.step()
    before = list(machine.helpers.made)
    machine.stop()
    assert machine.has_stopped()
    assert machine.helpers.made == before


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_process_that_ends_at_once_writes_nothing_more(machine: Machine, is_writing: bool) -> None:
    """No timer is left, also when a write is reported later."""
    machine.note(1)
    if is_writing:
        machine.second()
        machine.note(2)
    machine.mark.abort()
    machine.helpers.run()
    assert machine.clock.getDelayedCalls() == []
    assert machine.written() == is_writing


def test_a_mark_that_cannot_be_written_is_tried_again_and_logged_once(machine: Machine, log: list[str]) -> None:
    """It is logged again only after it has worked in between, and the last entry is the one that is written."""
    machine.store.trouble = "no space left"
    for number in range(1, 4):
        machine.note(number)
        machine.second()
        machine.helpers.step()
    assert len(log) == 1
    assert log[0].startswith("cannot write journal.mark: no space left. ")
    machine.store.trouble = ""
    machine.second()
    machine.helpers.step()
    assert machine.written() == 3
    machine.store.trouble = "no space left"
    machine.note(4)
    machine.second()
    machine.helpers.step()
    assert len(log) == 2


@pytest.mark.parametrize("is_writing", [False, True])
def test_a_mark_that_cannot_be_written_does_not_keep_a_server_from_stopping(
    machine: Machine, log: list[str], is_writing: bool
) -> None:
    """It is tried once."""
    machine.store.trouble = "no space left"
    machine.note(1)
    if is_writing:
        machine.second()
        machine.note(2)
    machine.stop()
    machine.helpers.step()
    assert machine.has_stopped()
    assert machine.helpers.names == []
    assert machine.clock.getDelayedCalls() == []
    assert len(log) == 1


def test_the_next_process_reads_what_was_written(machine: Machine) -> None:
    """It does not write it again."""
    assert machine.mark.read() is None
    machine.note(3)
    machine.stop()
    machine.helpers.step()
    machine.start()
    assert machine.mark.read() == Mark("e1", 3)
    machine.note(3)
    machine.stop()
    assert machine.has_stopped()
    assert machine.helpers.made == []


def test_a_mark_of_a_newer_release_is_left_alone(machine: Machine) -> None:
    """It may prove what this release does not understand."""
    machine.store.data = before = b'{"epoch":"e1","sequence":1,"cluster":"","why":1}'
    with pytest.raises(NotUnderstood, match=r"journal.mark contains something .*why.*or a newer one; or remove it"):
        machine.mark.read()
    assert machine.store.data == before


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"epoch":"e1"}', b'{"epoch":"e1","sequence":"1"}', b'{"epoch":"zz","sequence":1}', b"\xff"],
)
def test_a_mark_that_is_damaged_counts_as_none(machine: Machine, log: list[str], data: bytes) -> None:
    """The log says what cannot be noticed now."""
    machine.store.data = data
    assert machine.mark.read() is None
    assert len(log) == 1
    assert "cannot read journal.mark" in log[0]
    assert "This start cannot detect whether" in log[0]


def test_a_mark_that_cannot_be_read_counts_as_none(machine: Machine, log: list[str]) -> None:
    """It is replaced later."""
    machine.store.trouble = "permission denied"
    assert machine.mark.read() is None
    machine.store.trouble = ""
    machine.note(1)
    machine.second()
    machine.helpers.step()
    assert machine.written() == 1
    assert "permission denied" in log[0]


# The file.


def test_the_mark_is_beside_the_journal(tmp_path: Path) -> None:
    assert mark_path(tmp_path / "journal.db") == tmp_path / "journal.db.mark"


def test_a_mark_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """The old mark is there until the new one is complete."""
    file = MarkFile(tmp_path / "mark")
    assert file.read() is None
    file.write(b"first")
    assert file.read() == b"first"
    tmp_path.joinpath("mark").chmod(0o400)
    file.write(b"second")
    assert file.read() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


@pytest.mark.parametrize(("sequence", "expected"), [(0, False), (1, True)])
def test_a_mark_of_an_epoch_in_which_nothing_happened(sequence: int, expected: bool) -> None:
    """It was good up to 0: whoever has seen 1 has seen what is lost."""
    assert lacks(Cursor("e1", sequence), Cursor("e2", 5), PastEpochs((PastEpoch("e1", 0),))) is expected


def test_a_mark_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on the disk before it takes the name of the old one; then the directory is, which has that name."""
    synced: list[tuple[int, bool]] = []
    descriptors: list[int] = []

    def fsync(descriptor: int) -> None:
        descriptors.append(descriptor)
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "mark").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    MarkFile(tmp_path / "mark").write(b"first")
    assert synced == [((tmp_path / "mark").stat().st_ino, False), (tmp_path.stat().st_ino, True)]
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    assert MarkFile(tmp_path / "mark").name == str(tmp_path / "mark")


def test_a_mark_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The old mark stays."""
    file = MarkFile(tmp_path / "mark")
    file.write(b"first")
    (tmp_path / "mark.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        file.write(b"second")
    assert file.read() == b"first"
    with pytest.raises(OSError, match="No such file"):
        MarkFile(tmp_path / "nowhere" / "mark").write(b"first")


def test_a_file_is_locked_by_one(tmp_path: Path) -> None:
    """Until the first one closes it."""
    first = lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    first.close()
    lock_file(tmp_path / "lock").close()
