"""How a journal starts: whether entries are missing, and under which name the order goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pushup.broadcast.formats import NotUnderstood
from pushup.broadcast.journal_copy import verify
from pushup.broadcast.journal_file import JournalError, JournalFile, digest_of
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.progress_mark import Mark, mark_path
from pushup.core.commands import Close, Command, Entry, Upgrade
from pushup.core.cursor import Cursor, PastEpoch
from pushup.core.errors import Unavailable
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.rows import Rows
from pushup.core.snapshot import Snapshot
from pushup.core.state_transfer import restore
from tests.broadcast.stepped_helpers import (
    START,
    FullDisk,
    JournaledReplica,
    SteppedHelpers,
    after_restart,
    name_epoch,
)
from tests.core.builders import publish
from tests.net.observed_log import logged_at

Start = Callable[..., Snapshot]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def start(path: Path) -> Start:
    """Opens and closes the journal once; returns the state, which must be the one that the file has then."""

    def start(mark: Mark | None = None, limits: Limits | None = None) -> Snapshot:
        file, state = open_journal(path, limits or Limits(), name_epoch, mark)
        with closing(file):
            assert list(file.entries()) == []
            loaded = file.load()
            assert loaded is not None
            assert restore(loaded).snapshot() == state.snapshot()
        return state.snapshot()

    return start


@pytest.fixture
def state(path: Path) -> Snapshot:
    """The state of a journal that ends at e1-5: an open channel, a closed one, messages and a key."""
    file, state = open_journal(path, Limits(), name_epoch, None)
    with closing(file):
        commands: list[Command] = [
            publish("a", key="k"),
            publish("closed"),
            Close("closed"),
            publish("a"),
            publish("a"),
        ]
        for number, command in enumerate(commands, 1):
            entry = Entry("e1", number, START, command)  # so that nothing expires in these tests
            state.apply(entry)
            file.append((entry,))
            if number == 3:
                file.save(state.changes())
    return state.snapshot()


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    with logged_at("warn") as lines:
        yield lines


@pytest.mark.parametrize("mark", [None, Mark("e1", 5), Mark("e1", 3)])
def test_a_complete_journal_goes_on_under_a_new_name(
    start: Start, state: Snapshot, warnings: list[str], mark: Mark | None
) -> None:
    """Messages, keys and closings stay; it does so with each start, also if nothing came in between."""
    again = start(mark)
    assert again == after_restart(state)
    assert start(Mark(again.head.epoch, again.head.sequence)) == after_restart(again)
    assert warnings == []


@pytest.mark.parametrize("mark", [Mark("e1", 6), Mark("e2", 1), Mark("e9", 40), Mark("d10", 1)])
def test_a_journal_that_ends_before_the_mark_begins_again(
    start: Start, state: Snapshot, path: Path, warnings: list[str], mark: Mark
) -> None:
    """Its open channels and keys stay, in an epoch that is later than journal and mark; the log says so."""
    again = start(mark)
    assert again.head == replace(state.head, epoch=name_epoch(mark.epoch), past_epochs=())
    assert again.messages == ()
    assert again.tables["keys"] == state.tables["keys"] != Rows()
    (channel,) = again.channels
    assert (channel.name, channel.dropped_sequence, channel.dropped_sequence) == ("a", 0, 0)
    (line,) = warnings
    assert f"{path} ends at e1-5, but this machine has followed it up to {mark}" in line
    assert f"delete {mark_path(path)}" in line


@pytest.mark.parametrize("mark", [Mark("e1", 30), Mark("e2", 0)])
def test_a_journal_that_has_begun_again_does_so_once(
    start: Start, state: Snapshot, path: Path, mark: Mark, warnings: list[str]
) -> None:
    """What was published since stays, also if the server died before the mark was written."""
    epoch = start(Mark("e1", 30)).head.epoch
    assert epoch == "e2"
    warnings.clear()
    with closing(JournalFile(path)) as file:
        file.append((Entry(epoch, 6, START + 1, publish("a")),))
    again = start(mark)
    assert (again.head.epoch, again.head.past_epochs) == ("e3", (PastEpoch("e2", 6),))
    assert [message.sequence for message in again.messages] == [6]
    assert warnings == []


def test_a_new_journal_beside_a_mark(start: Start, warnings: list[str]) -> None:
    """It begins, with a later name than the old one, whose cursors it does not know."""
    again = start(Mark("e7", 30)).head
    assert (again.epoch, again.sequence, again.past_epochs) == ("e8", 0, ())
    assert warnings == []


def test_an_empty_journal_that_was_put_back(start: Start, warnings: list[str]) -> None:
    """It is not new: it was started before anything was published."""
    start()
    assert start(Mark("e1", 1)).head.past_epochs == ()
    assert len(warnings) == 1


def test_other_limits_come_after_the_new_name(start: Start, state: Snapshot) -> None:
    """Nothing takes a place under the old name: a cursor of what was lost there must not look valid."""
    limits = Limits(keys_limit=7)
    expected = after_restart(state)
    assert start(None, limits) == replace(expected, head=replace(expected.head, sequence=7, limits=limits))
    assert start(Mark("e2", 8), Limits()).head.limits == Limits()


def test_a_journal_that_is_not_that_of_the_mark(start: Start, state: Snapshot, path: Path) -> None:
    """The server does not start, and changes nothing; the error names both files, and what to do."""
    before = path.read_bytes()
    stray = Mark("e9", 1, "c2")
    with pytest.raises(JournalError) as raised:
        start(stray)
    mark = mark_path(path)
    assert str(raised.value) == (
        f"{path} is the journal of cluster e1, and {mark} the mark of cluster c2: they do not belong together, and "
        f"nothing was changed. Restore the journal of c2; or, to continue with this one, delete {mark}"
    )
    assert path.read_bytes() == before
    assert start(None) == after_restart(state)


def test_a_new_journal_is_of_the_cluster_of_its_mark(path: Path, start: Start, warnings: list[str]) -> None:
    """It replaces one that was removed; and so are those that begin again."""
    names: list[str] = []

    def name(after: str, cluster: str) -> str:
        names.append(cluster)
        return name_epoch(after)

    file, _ = open_journal(path, Limits(), name, Mark("e4", 1, "c2"))
    file.close()
    assert (file.cluster, {*names}) == ("c2", {"c2"})
    with pytest.raises(JournalError):
        start(Mark("e9", 1, "e1"))


@pytest.mark.parametrize("mark", [None, Mark("e1", 9), Mark("e1", 9, "e1")])
def test_a_journal_keeps_its_cluster(
    start: Start, state: Snapshot, path: Path, mark: Mark | None, warnings: list[str]
) -> None:
    """Also if it begins again, and whether or not the mark says which it is."""
    start(mark)
    with closing(JournalFile(path)) as file:
        file.load()
        assert file.cluster == "e1"


def test_a_name_that_is_none_is_damage(start: Start, state: Snapshot, path: Path) -> None:
    """Epochs are named after it, and those names are numbers."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE state SET value = 'x' WHERE name = 'cluster'")
    with pytest.raises(JournalError, match="is damaged"):
        start()


def test_a_journal_notes_what_it_has_applied(path: Path) -> None:
    """The mark is written at the start, a second after an entry, and at a stop; the next start reads it."""
    node = JournaledReplica(path)
    mark = mark_path(path)
    assert mark.read_bytes() == b'{"epoch":"e1","sequence":0,"cluster":"e1"}'
    node.publish(publish("a"))
    node.clock.advance(1.0)
    assert mark.read_bytes() == b'{"epoch":"e1","sequence":1,"cluster":"e1"}'
    node.publish(publish("a"))
    node.stop_at_once()
    assert mark.read_bytes() == b'{"epoch":"e1","sequence":2,"cluster":"e1"}'
    mark.write_bytes(b'{"epoch":"e1","sequence":3,"cluster":"e1"}')
    with logged_at("warn") as lines:
        node = JournaledReplica(path, clock=node.clock)
    node.file.close()
    assert (node.cursor, len(lines)) == (Cursor("e2", 2), 1)
    assert mark.read_bytes() == b'{"epoch":"e2","sequence":2,"cluster":"e1"}'


def test_a_journal_notes_what_it_has_found(path: Path, log: list[str]) -> None:
    """Entries that a commit has written after all, after it seemed to fail."""
    node = JournaledReplica(path)
    node.append(publish("a"))
    node.helpers.fail_after_effect()
    node.retry()
    node.clock.advance(1.0)
    assert mark_path(path).read_bytes() == b'{"epoch":"e1","sequence":1,"cluster":"e1"}'
    node.file.close()


def test_stopping_waits_for_the_mark(path: Path) -> None:
    """The process ends when the journal has stopped, and its mark would be a second behind.

    No other server can open the journal before, and write a newer mark.
    """
    helpers = SteppedHelpers()
    node = JournaledReplica(path, mark_helpers=helpers)
    node.publish(publish("a"))
    stopped = node.stop()
    node.helpers.run()
    assert (helpers.names, stopped.called) == (["write"], False)
    with pytest.raises(JournalError, match="in use"):
        JournalFile(path)
    helpers.step()
    node.helpers.run()
    assert bool(stopped.called)
    JournalFile(path).close()


def test_a_journal_whose_mark_cannot_be_written_works(path: Path, log: list[str]) -> None:
    """It starts, publishes and stops, and that is logged once."""
    path.with_name("journal.mark.new").mkdir()
    node = JournaledReplica(path)
    for _ in range(3):
        node.publish(publish("a"))
        node.clock.advance(1.0)
    assert node.journal.why_not_ready() is None
    node.stop_at_once()
    assert len(log) == 1
    assert log[0].startswith(f"cannot write {path}.mark: ")


@pytest.mark.parametrize("after_write", [False, True])
@pytest.mark.parametrize("limits", [Limits(), Limits(retention_messages=77)])
@pytest.mark.parametrize("marked", [False, True])
def test_a_start_while_the_disk_is_full(
    state: Snapshot, path: Path, log: list[str], limits: Limits, *, after_write: bool, marked: bool
) -> None:
    """Polls get what the journal has, publications are refused, and the order goes on when there is space."""
    if marked:
        mark_path(path).write_text('{"epoch":"e1","sequence":5}')
    node = JournaledReplica(path, limits=limits, file=partial(FullDisk, after_write=after_write))
    assert isinstance(node.file, FullDisk)
    with closing(node.file):
        assert [message.sequence for message in node.state.snapshot().messages] == [1, 4, 5]
        for _ in range(2):
            assert isinstance(node.append(publish("a"))[0], Unavailable)
            trouble = node.journal.why_not_ready()
            assert trouble is not None
            assert "the disk is full" in trouble.operator_detail
            node.retry()
        node.file.full = False
        node.retry()
        assert node.journal.why_not_ready() is None
        after = node.publish(publish("a"))
        assert (node.state.cursor.epoch, node.state.limits) == ("e2", limits)
        node.stop_at_once()
    again = JournaledReplica(path, limits=limits)
    with closing(again.file):
        assert [message.sequence for message in again.state.snapshot().messages] == [1, 4, 5, after.sequence]
        assert again.state.snapshot().messages == node.state.snapshot().messages
        assert again.state.cursor.epoch == "e3"
    assert "publishing is refused: the disk is full: journal cannot grow" in "".join(log)


@pytest.mark.parametrize("full", [False, True])
def test_a_journal_of_an_earlier_version_gets_the_latest(
    state: Snapshot, path: Path, log: list[str], *, full: bool
) -> None:
    """After the new name; if the disk is full at the start, when there is room."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        earlier = "UPDATE state SET value = json_set(value, '$.version', 1) WHERE name = 'checkpoint'"
        assert database.execute(earlier).rowcount == 1
    node = JournaledReplica(path, file=partial(FullDisk, full=full))
    assert isinstance(node.file, FullDisk)
    assert node.state.version == (1 if full else LATEST_VERSION)
    node.file.full = False
    node.retry()
    assert (node.state.version, node.cursor) == (LATEST_VERSION, Cursor("e2", 7))
    node.stop_at_once()
    with closing(JournalFile(path)) as file:
        found = file.load()
    assert found is not None
    assert (found.head.version, found.head.sequence) == (LATEST_VERSION, 7)


def test_a_stop_while_the_disk_is_full_since_the_start(state: Snapshot, path: Path, log: list[str]) -> None:
    """Nothing is written, and the next start finds what this one found."""
    before = path.read_bytes()
    JournaledReplica(path, file=FullDisk).stop_at_once()
    assert path.read_bytes() == before
    again = JournaledReplica(path)
    with closing(again.file):
        assert again.state.snapshot() == after_restart(state)


def test_a_copy_on_a_full_disk_becomes_a_journal(state: Snapshot, path: Path, log: list[str]) -> None:
    """When the disk can be written it gets the name of its cluster, and its digest does not count any more."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM entries")
        database.execute("UPDATE state SET name = 'digest', value = ? WHERE name = 'cluster'", (digest_of(database),))
        database.commit()
    assert verify(path).has_digest
    node = JournaledReplica(path, file=FullDisk)
    assert isinstance(node.file, FullDisk)
    node.file.full = False
    node.retry()
    last = node.publish(publish("a"))
    node.stop_at_once()
    assert msgspec.json.decode(mark_path(path).read_bytes())["cluster"] == "e1"
    assert (verify(path).cursor, verify(path).has_digest) == (Cursor("e2", last.sequence), False)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '}]', ',\"why\":1}]')",
        "UPDATE entries SET body = replace(body, '\"publish\"', '\"future\"')",
        "UPDATE state SET value = json_set(value, '$.why', 1) WHERE name = 'checkpoint'",
        "UPDATE state SET value = json_set(value, '$.limits.why', 1) WHERE name = 'checkpoint'",
        "UPDATE rows SET body = json_set(body, '$.why', 1) WHERE key LIKE 'channels/%'",
        "UPDATE rows SET body = json_set(body, '$.why', 1) WHERE key LIKE 'messages/%'",
        "UPDATE rows SET body = json_set(body, '$.why', 1) WHERE key LIKE 'keys/%'",
        "UPDATE rows SET key = replace(key, 'keys/', 'future/') WHERE key LIKE 'keys/%'",
    ],
)
def test_what_a_newer_release_has_added_to_a_journal_is_left_alone(
    start: Start, state: Snapshot, path: Path, change: str
) -> None:
    """The error says what to do, and not that the file is damaged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert database.execute(change).rowcount > 0
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(NotUnderstood, match=r"contains something .*(why|future).*; or move it away"):
            start()
    assert path.read_bytes() == before


def test_a_journal_of_a_newer_release_is_left_alone(path: Path) -> None:
    """The error says so; the file stays as it is, and closed."""
    file, state = open_journal(path, Limits(), name_epoch, None)
    with closing(file):
        file.append((Entry(state.cursor.epoch, state.cursor.sequence + 1, state.time, Upgrade(LATEST_VERSION + 1)),))
    for _ in range(2):
        with pytest.raises(
            NotUnderstood,
            match=rf"{path} contains something .* version {LATEST_VERSION + 1} .* or a newer",
        ):
            open_journal(path, Limits(), name_epoch, None)
    with closing(JournalFile(path)) as file:
        assert len(list(file.entries())) == 1


@pytest.mark.parametrize("mark", [None, Mark("e1", 30)])
def test_a_checkpoint_of_a_newer_release_is_left_alone(
    state: Snapshot, start: Start, path: Path, mark: Mark | None
) -> None:
    """Also if entries are missing after it; and it is not a copy that can be restored."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM entries")
        newer = "UPDATE state SET value = json_set(value, '$.version', ?) WHERE name = 'checkpoint'"
        assert database.execute(newer, (LATEST_VERSION + 1,)).rowcount == 1
    before = path.read_bytes()
    for use in (partial(start, mark), partial(verify, path)):
        with pytest.raises(NotUnderstood, match=rf"{path} contains something .* version {LATEST_VERSION + 1} "):
            use()
    assert path.read_bytes() == before
