"""The journal: what is acknowledged when, groups, checkpoints, a disk that fails, the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast.journal import (
    GROUP_BYTES,
    GROUP_LIMIT,
    RETRY_SECONDS,
    SAVE_BYTES,
    SAVE_CHANGES,
    SAVE_SECONDS,
)
from pushup.broadcast.journal_file import JournalFile, open_journal
from pushup.broadcast.waiting import size_of
from pushup.core.commands import Close, Closed, Command, Create, Entry, Expire, Expired, Outcome, Publish, Published
from pushup.core.errors import Overloaded, Unavailable, UnknownChannel
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from tests.broadcast.stepped_helpers import START, JournaledReplica
from tests.core.builders import batch, draft, publish


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


class Servers:
    """Servers with the same file, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started: list[JournaledReplica] = []

    def start(self, **how: Any) -> JournaledReplica:
        """Start one, after the one before has stopped; `how` is what JournaledReplica takes."""
        node = JournaledReplica(self._path, **how)
        self._started.append(node)
        return node

    def restart(self) -> JournaledReplica:
        """Kill the newest, and start the next with its clock."""
        self.close()
        return self.start(clock=self._started[-1].clock)

    def close(self) -> None:
        """Close the file, whoever has it open."""
        for node in self._started:
            node.file.close()


@pytest.fixture
def servers(path: Path) -> Iterator[Servers]:
    """None runs at first. Whatever file is open when the test ends is closed."""
    servers = Servers(path)
    yield servers
    servers.close()


@pytest.fixture
def node(servers: Servers) -> JournaledReplica:
    """The first of the servers."""
    return servers.start()


def cached(node: JournaledReplica) -> list[int]:
    return [message.sequence for message in node.state.snapshot().messages]


def done(stopped: Deferred[None]) -> bool:
    return bool(stopped.called)


def refused(outcomes: list[Outcome], part: str) -> bool:
    """Whether it was answered with 503, when to come again, and a reason with this in it, for the operator only."""
    (outcome,) = outcomes
    if not isinstance(outcome, Unavailable) or outcome.retry_after != 1:
        return False
    assert outcome.detail in (UNWRITABLE, UNKNOWN, STOPPING)
    return part in (outcome.operator_detail or outcome.detail)


UNWRITABLE = "the message log cannot be written"
UNKNOWN = "this may or may not have been published; retry with the same Idempotency-Key"
STOPPING = "the server is stopping"


def in_trouble(node: JournaledReplica, logged: list[str]) -> None:
    """Let a commit fail, which is logged once."""
    outcomes = node.append(publish("lost"))
    node.helpers.fail()
    assert refused(outcomes, "the disk is full")
    assert ["the disk is full" in line for line in logged] == [True]
    logged.clear()


# Groups.


def test_a_command_is_applied_and_acknowledged_once_it_is_on_the_disk(node: JournaledReplica) -> None:
    """Before the commit returns nobody sees anything of it; whoever appended it is told what the queue made of it."""
    outcomes = node.append(publish("a", "b"))
    assert node.helpers.names == ["append"]
    assert (outcomes, node.state.cursor.sequence) == ([], 0)
    assert list(node.file.entries()) == []
    node.helpers.step()
    assert outcomes == [Published("e1", 1, 1, START)]
    assert node.state.cursor.sequence == 1
    (entry,) = node.file.entries()
    assert (entry.sequence, entry.time) == (1, START)


def test_what_comes_while_a_commit_runs_goes_into_the_next(node: JournaledReplica) -> None:
    """A commit for each publisher would be slow; two commits are enough here, and the order is kept."""
    first = node.append(publish("a"))
    later = [node.append(batch(draft("a"), draft("b"))), node.append(Create("c")), node.append(publish("c"))]
    assert node.helpers.names == ["append"]
    node.helpers.step()
    assert [len(told) for told in (first, *later)] == [1, 0, 0, 0]
    assert node.helpers.names == ["append"]
    (entries,) = node.helpers.calls[0].arguments
    assert [entry.sequence for entry in entries] == [2, 4, 5]
    node.helpers.step()
    assert node.helpers.names == []
    assert node.told == [first[0], *(told[0] for told in later)]
    assert node.sequences() == [1, 2, 4, 5]
    assert node.state.cursor.sequence == 5


def test_a_group_ends_when_it_is_large(node: JournaledReplica) -> None:
    """By the messages in it; the command that fills it is its last, however wide."""
    node.append(Expire())
    commands: list[Command] = [batch(*[draft("a")] * 100) for _ in range(4)]
    commands += [Expire()] * (GROUP_LIMIT + 5)
    for command in commands:
        node.append(command)
    sizes = []
    while node.helpers.calls:
        (entries,) = node.helpers.calls[0].arguments
        sizes.append(sum(entry.command.width for entry in entries))
        node.helpers.step()
    assert sizes == [1, 300, 100 + (GROUP_LIMIT - 100), 105]
    assert len(node.told) == len(commands) + 1
    assert node.sequences() == sorted(set(node.sequences()))


def test_errors_are_outcomes_with_a_place(node: JournaledReplica) -> None:
    """What the queue refuses is in the order like anything else."""
    assert isinstance(node.do(Close("never")), UnknownChannel)
    assert node.publish(publish("a")).sequence == 2
    assert isinstance(node.do(Expire()), Expired)
    assert node.do(Close("a")) == Closed("a")
    assert node.sequences() == [1, 2, 3, 4]


def test_each_is_told_before_the_next_is_applied(node: JournaledReplica) -> None:
    """A publisher knows of its message before a later one can be delivered."""
    node.append(Expire())
    seen = []
    for _ in range(3):
        node.journal.append(publish("a"), lambda _: seen.append(node.state.cursor.sequence))
    node.helpers.run()
    assert seen == [2, 3, 4]


def test_who_appends_while_being_told_comes_after_the_group(node: JournaledReplica, servers: Servers) -> None:
    """A connection that pipelines publications begins the next when one is answered: it gets a place of its own."""
    told: list[Outcome] = []

    def again(outcome: Outcome) -> None:
        told.append(outcome)
        if len(told) < 9:
            node.journal.append(publish("a"), again)

    node.append(Expire())
    node.journal.append(publish("a"), again)
    others = [node.append(publish("a")) for _ in range(3)]
    node.helpers.run()
    sequences = [outcome.sequence for outcome in (*told, *(o[0] for o in others)) if isinstance(outcome, Published)]
    assert sorted(sequences) == list(range(2, 14))
    assert cached(servers.restart()) == list(range(2, 14))


def test_one_who_cannot_be_told_does_not_harm_the_others(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """An error in one publisher's connection is logged; the rest of the group is applied, and the order goes on."""

    def fails(outcome: Outcome) -> None:
        raise ValueError("an error of somebody else")

    node.append(Expire())
    node.journal.append(publish("a"), fails)
    rest = [node.append(publish("a")) for _ in range(2)]
    node.helpers.run()
    assert len(logged_failures) == 1
    logged_failures.clear()
    assert [len(told) for told in rest] == [1, 1]
    assert node.publish(publish("a")).sequence == 5
    assert cached(servers.restart()) == [2, 3, 4, 5]


def test_time_never_falls(node: JournaledReplica, servers: Servers) -> None:
    """A clock that is set back, or is behind after a restart, does not turn the order round; later it goes on."""
    node.clock.advance(10.0)
    assert node.publish(publish("a")).time == START + 10
    node.clock.rightNow -= 100.0
    assert node.publish(publish("a")).time == START + 10
    node = servers.restart()
    assert node.publish(publish("a")).time == START + 10
    node.clock.advance(100.5)
    assert node.publish(publish("a")).time == START + 10.5


def test_the_epoch_is_the_files(node: JournaledReplica, servers: Servers) -> None:
    """The one it began with, so that cursors go on."""
    node.publish(publish("a"))
    node.file.close()
    again = servers.start(epoch="another")
    assert again.cursor.epoch == node.cursor.epoch == "e1"
    assert again.publish(publish("a")) == Published("e1", 2, 1, START)


LARGE = publish("a", data="7" * 100_000)


@pytest.fixture
def narrow(servers: Servers) -> JournaledReplica:
    """A journal for which ten large publications may wait."""
    return servers.start(waiting_limit_bytes=10 * size_of(LARGE))


def test_only_so_many_bytes_wait_for_the_disk(narrow: JournaledReplica) -> None:
    """Those that are being written count; beyond the limit a publisher is told to come again, and nobody else loses."""
    for round_ in range(3):
        waiting = [narrow.append(LARGE) for _ in range(10)]
        assert waiting == [[]] * 10
        for command in (LARGE, publish("a"), Expire()):
            (outcome,) = narrow.append(command)
            assert isinstance(outcome, Overloaded)
            assert outcome.retry_after == 1
        assert narrow.journal.why_not_ready() is None
        assert narrow.journal.waiting_bytes == 10 * size_of(LARGE)
        narrow.helpers.step()  # the first is written, and the others are on their way
        assert narrow.append(LARGE) == []
        narrow.helpers.run()
        assert narrow.journal.waiting_bytes == 0
        assert narrow.state.cursor.sequence == 11 * (round_ + 1)


@pytest.mark.parametrize("how", ["fails", "late", "stopped"])
def test_however_publications_end_there_is_room_again(
    narrow: JournaledReplica, logged_failures: list[str], how: str
) -> None:
    """Refused with the group they are in or behind it, not known, or written before the end."""
    waiting = [narrow.append(LARGE) for _ in range(10)]
    if how == "fails":
        narrow.helpers.fail()
    elif how == "late":
        narrow.helpers.give_up()
    else:
        narrow.stop_at_once()
    assert [len(told) for told in waiting] == [1] * 10
    assert narrow.journal.waiting_bytes == 0
    logged_failures.clear()


def test_a_group_that_cannot_be_applied_is_told_to_all_who_wait_for_it(
    narrow: JournaledReplica, logged_failures: list[str]
) -> None:
    """By a fault of ours: what is on the disk is not known to be applied, and nobody waits for ever."""
    narrow.append(Expire())
    waiting = [narrow.append(publish("a")) for _ in range(3)]
    behind = []
    narrow.helpers.step()
    behind.append(narrow.append(publish("a")))
    apply = narrow.state.apply
    calls = iter(range(9))

    def fails(entry: Entry) -> Outcome:
        if next(calls) == 1:
            raise RuntimeError("a fault of ours")
        return apply(entry)

    narrow.state.apply = fails  # type: ignore[method-assign]
    narrow.helpers.step()
    assert isinstance(waiting[0][0], Published)
    assert all(refused(told, "a fault of ours") for told in (*waiting[1:], *behind))
    assert narrow.journal.waiting_bytes == 0
    narrow.clock.advance(RETRY_SECONDS)
    narrow.helpers.run()
    assert narrow.publish(publish("a")).sequence == 5
    assert any("could not apply an entry" in line for line in logged_failures)
    logged_failures.clear()


def test_a_group_ends_when_it_has_many_bytes(node: JournaledReplica) -> None:
    """What is written at a time is a copy of all of them."""
    node.append(Expire())
    for _ in range(100):
        node.append(LARGE)
    sizes = []
    while node.helpers.calls:
        if node.helpers.names == ["append"]:
            sizes.append(len(node.helpers.calls[0].arguments[0]))
        node.helpers.step()
    assert sum(sizes) == 101
    assert max(sizes) == math.ceil(GROUP_BYTES / size_of(LARGE))


# Checkpoints.


def test_a_checkpoint_is_due_after_some_time(node: JournaledReplica) -> None:
    """With the first command after a second, if there is something new; then the entries go."""
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS - 0.01)
    node.publish(publish("a"))
    assert node.helpers.made == ["append", "append"]
    node.clock.advance(0.01)
    node.publish(publish("a"))
    assert node.helpers.made[2:] == ["save", "append"]
    assert [entry.sequence for entry in node.file.entries()] == [3]
    node.clock.advance(SAVE_SECONDS - 0.01)
    node.publish(publish("a"))
    assert node.helpers.made[4:] == ["append"]


def test_a_checkpoint_is_due_after_many_messages(node: JournaledReplica) -> None:
    """However little time has gone by."""
    for _ in range(SAVE_CHANGES // 64):
        assert "save" not in node.helpers.made
        node.publish(batch(*[draft("a")] * 64))
    assert node.helpers.made[-1] == "save"
    assert list(node.file.entries()) == []
    node.publish(publish("a"))
    assert node.helpers.made.count("save") == 1


def test_a_checkpoint_is_due_after_many_channels(node: JournaledReplica) -> None:
    """However few messages they are."""
    for number in range(SAVE_CHANGES // 101):
        node.publish(publish(*[f"{number}:{n}" for n in range(100)]))
        assert "save" not in node.helpers.made
    node.publish(publish(*[f"c{n}" for n in range(100)]))
    assert node.helpers.made[-1] == "save"


def test_a_checkpoint_is_due_after_many_bytes(node: JournaledReplica) -> None:
    """However few messages they are."""
    data = '"' + "x" * 2**16 + '"'
    for _ in range(math.ceil(SAVE_BYTES / (2**16 + 100)) - 1):
        node.publish(publish("a", data=data))
    assert "save" not in node.helpers.made
    node.publish(publish("a", data=data))
    node.publish(publish("a", data=data))
    assert node.helpers.made.count("save") == 1
    node.publish(publish("a", data=data))
    assert node.helpers.made.count("save") == 1


def test_nothing_is_appended_while_a_checkpoint_is_made(node: JournaledReplica, servers: Servers) -> None:
    """What comes meanwhile waits, and is after it."""
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    outcomes = node.append(publish("a"))
    assert node.helpers.names == ["save"]
    other = node.append(publish("a"))
    node.helpers.step()
    assert node.helpers.names == ["append"]
    assert outcomes == other == []
    node.helpers.step()
    assert node.told[1:] == [Published("e1", 2, 1, START + 1), Published("e1", 3, 1, START + 1)]
    assert cached(servers.restart()) == [1, 2, 3]


# A disk that fails.


def test_a_commit_that_fails_refuses_those_who_wait_for_it(node: JournaledReplica, logged_failures: list[str]) -> None:
    """They, and those behind them, are told why and when to come again; nothing is applied."""
    in_group = node.append(publish("a"))
    behind = [node.append(publish("a")), node.append(Create("b"))]
    node.helpers.fail("the disk is full: /j cannot grow")
    for outcomes in (in_group, *behind):
        assert refused(outcomes, "the disk is full: /j cannot grow")
    assert [getattr(told[0], "detail", "") for told in (in_group, *behind)] == [UNKNOWN, UNWRITABLE, UNWRITABLE]
    assert (node.state.cursor.sequence, node.state.message_count) == (0, 0)
    assert len(logged_failures) == 1
    assert "publishing is refused: the disk is full: /j cannot grow" in logged_failures.pop()


def test_in_trouble_new_commands_are_refused_at_once(node: JournaledReplica, logged_failures: list[str]) -> None:
    """The node is not ready, and the disk is left alone until it is tried again."""
    assert node.journal.why_not_ready() is None
    in_trouble(node, logged_failures)
    assert node.journal.why_not_ready() is not None
    assert refused(node.append(publish("a")), "the disk is full")
    assert refused(node.append(Expire()), "the disk is full")
    assert node.helpers.names == []


def test_trouble_is_retried_until_it_is_over(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Each second, and each reason is logged once; then the order goes on without a hole."""
    node.publish(publish("a"))
    in_trouble(node, logged_failures)
    for _ in range(3):
        node.clock.advance(RETRY_SECONDS - 0.01)
        assert node.helpers.names == []
        node.clock.advance(0.01)
        assert node.helpers.names == ["recover"]
        assert refused(node.append(publish("a")), "full")
        node.helpers.fail("the disk is still full")
        assert node.journal.why_not_ready() is not None
        assert refused(node.append(publish("a")), "the disk is still full")
    node.clock.advance(RETRY_SECONDS)
    assert refused(node.append(publish("a")), "the disk is still full")
    node.helpers.run()
    assert node.journal.why_not_ready() is None
    assert node.publish(publish("a")).sequence == 2
    assert logged_failures == ["publishing is refused: the disk is still full"]
    logged_failures.clear()
    node.clock.advance(10 * RETRY_SECONDS)
    assert "recover" not in node.helpers.names
    assert cached(servers.restart()) == [1, 2]


def test_who_asks_while_it_recovers_is_refused(node: JournaledReplica, logged_failures: list[str]) -> None:
    """A place before that of what may be found on the disk would be a fork."""
    in_trouble(node, logged_failures)
    node.clock.advance(RETRY_SECONDS)
    assert refused(node.append(publish("a")), "the disk is full")
    assert node.helpers.names == ["recover"]


def test_a_commit_that_was_late_is_found(node: JournaledReplica, logged_failures: list[str], servers: Servers) -> None:
    """Its publishers were told that it is not known; it is applied once, and by its key the first outcome is told."""
    node.publish(publish("a"))
    late = [node.append(publish("a", key="k"))]
    late += [node.append(batch(draft("a"), draft("b"), key="l"))]
    node.helpers.give_up()
    assert refused(late[0], "journal did not answer within 10 s")
    assert refused(late[1], "journal did not answer within 10 s")
    assert node.state.cursor.sequence == 1
    node.clock.advance(RETRY_SECONDS)
    assert node.helpers.names == ["append", "recover"]
    node.helpers.run()
    assert node.journal.why_not_ready() is None
    found = [entry.sequence for entry in node.applied]
    assert node.publish(publish("a", key="k")) == Published("e1", 2, 1, START)
    assert cached(node) == found
    again = servers.restart()
    assert cached(again) == found
    assert again.publish(publish("a", key="k")) == Published("e1", 2, 1, START)
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_a_whole_group_that_was_late_is_found(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Each entry of it in its order, with the time it had; those of before are not applied again."""
    node.publish(publish("a"))
    for command in (Expire(), batch(draft("a"), draft("b"), key="l"), publish("b", key="m")):
        node.append(command)
        node.clock.advance(0.25)
    node.helpers.step()
    node.helpers.fail_after_all()
    node.append(publish("lost"))
    node.clock.advance(RETRY_SECONDS)
    node.helpers.run()
    assert node.sequences() == [1, 2, 3, 5]
    assert node.publish(publish("c")).sequence == 6
    assert node.publish(publish("b", key="m")).sequence == 5
    assert cached(servers.restart()) == [1, 3, 4, 5, 6]
    logged_failures.clear()


def test_recovering_may_be_late_too(node: JournaledReplica, logged_failures: list[str]) -> None:
    """It is tried again; what the first try has done is done."""
    node.append(publish("a"))
    node.helpers.give_up()
    for _ in range(2):
        node.clock.advance(RETRY_SECONDS)
        late = node.helpers.calls[0]
        node.helpers.step()
        assert late.result is None
        node.helpers.give_up()
    node.clock.advance(RETRY_SECONDS)
    node.helpers.run()
    assert node.sequences() == [1]
    assert node.publish(publish("a")).sequence == 2
    logged_failures.clear()


def test_a_checkpoint_that_fails_loses_nothing(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Who waited behind it is refused; what was acknowledged is in the entries, and the next one has it all."""
    node.publish(publish("a", key="k"))
    node.clock.advance(SAVE_SECONDS)
    waiting = node.append(publish("a"))
    node.helpers.fail()
    assert refused(waiting, "the disk is full")
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()
    assert node.helpers.names == ["save"]
    node.helpers.run()
    assert node.publish(publish("a")).sequence == 2
    assert len(logged_failures) == 1
    logged_failures.clear()
    again = servers.restart()
    assert cached(again) == [1, 2]
    assert again.publish(publish("a", key="k")).sequence == 1


def test_a_checkpoint_that_was_late_is_made_twice(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """What it has written is written again with what is new, and no message or key comes twice of it."""
    for number in range(3):
        node.publish(publish("a", key=f"k{number}"))
    node.clock.advance(SAVE_SECONDS)
    node.append(publish("lost"))
    node.helpers.give_up()
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()  # it is made after all
    node.helpers.step()
    assert list(node.file.entries()) == []
    node.helpers.fail()  # and again, which fails
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()
    node.helpers.run()
    node.publish(publish("a", key="k3"))
    node.clock.advance(SAVE_SECONDS)
    node.publish(publish("a", key="k4"))
    state = node.state.snapshot()
    again = servers.restart()
    assert cached(again) == [1, 2, 3, 4, 5]
    assert again.state.snapshot() == state
    assert len(logged_failures) == 2
    logged_failures.clear()


def test_a_failed_append_is_not_in_a_later_checkpoint(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """What was refused and is not on the disk stays away; its places go to what comes next."""
    node.publish(publish("a"))
    in_trouble(node, logged_failures)
    node.clock.advance(RETRY_SECONDS)
    node.helpers.run()
    assert node.publish(publish("a", data='"next"')).sequence == 2
    node.stop_at_once()
    again = servers.start()
    assert [(m.sequence, m.channels) for m in again.state.snapshot().messages] == [(1, ("a",)), (2, ("a",))]


def test_a_file_that_is_locked_in_a_transaction_recovers(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """A checkpoint that failed in the middle is rolled back before anything else is done."""
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    node.append(publish("a"))
    call = node.helpers.calls.popleft()
    node.file._database.execute("BEGIN IMMEDIATE")
    node.file._database.execute("DELETE FROM messages")
    node.file._database.execute("DELETE FROM entries")
    node.helpers.calls.appendleft(call)
    node.helpers.step()  # cannot begin another transaction
    assert node.journal.why_not_ready() is not None
    node.clock.advance(RETRY_SECONDS)
    node.helpers.run()
    assert node.journal.why_not_ready() is None
    assert node.publish(publish("a")).sequence == 2
    assert cached(servers.restart()) == [1, 2]
    logged_failures.clear()


# The end.


def test_stopping_finishes_what_was_appended(node: JournaledReplica, servers: Servers, path: Path) -> None:
    """All that waits is written, applied and acknowledged; then the checkpoint is brought up to it, and it closes."""
    first, second = node.append(publish("a")), node.append(publish("b"))
    stopped = node.stop()
    assert not done(stopped)
    assert node.journal.why_not_ready() is not None
    assert refused(node.append(publish("late")), "is stopping")
    node.helpers.step()
    assert (len(first), len(second)) == (1, 0)
    assert refused(node.append(publish("late")), "is stopping")
    node.helpers.step()
    assert second == [Published("e1", 2, 1, START)]
    assert node.helpers.names == ["save"]
    node.helpers.step()
    assert node.helpers.names == ["close"]
    assert not done(stopped)
    node.helpers.step()
    assert done(stopped)
    assert refused(node.append(publish("late")), "is stopping")
    file = JournalFile(path)  # nobody holds it any more
    assert list(file.entries()) == []
    file.close()
    assert cached(servers.start()) == [1, 2]


def test_stopping_with_nothing_to_do(node: JournaledReplica, path: Path) -> None:
    """It saves and closes at once, and leaves no timer."""
    node.stop_at_once()
    assert node.helpers.made == ["save", "close"]
    assert node.clock.getDelayedCalls() == []
    JournalFile(path).close()


def test_stopping_while_in_trouble(node: JournaledReplica, logged_failures: list[str], servers: Servers) -> None:
    """The disk is not tried again; the file is let go of, and the next server finds all that was acknowledged."""
    node.publish(publish("a"))
    in_trouble(node, logged_failures)
    stopped = node.stop()
    assert node.helpers.names == ["close"]
    assert node.clock.getDelayedCalls() == []
    node.helpers.run()
    assert done(stopped)
    assert refused(node.append(publish("a")), "the disk is full")
    assert cached(servers.start()) == [1]


def test_stopping_while_it_recovers(node: JournaledReplica, logged_failures: list[str], servers: Servers) -> None:
    """What is found on the disk is applied; and if nothing can be found, it ends, too."""
    node.append(publish("a"))
    node.helpers.give_up()
    node.clock.advance(RETRY_SECONDS)
    stopped = node.stop()
    assert not done(stopped)
    node.helpers.run()
    assert done(stopped)
    assert node.sequences() == [1]
    node = servers.start(clock=node.clock)
    assert cached(node) == [1]
    logged_failures.clear()
    in_trouble(node, logged_failures)
    node.clock.advance(RETRY_SECONDS)
    stopped = node.stop()
    node.helpers.fail()
    node.helpers.run()
    assert done(stopped)
    assert node.helpers.made[-2:] == ["recover", "close"]
    assert node.clock.getDelayedCalls() == []
    assert cached(servers.start()) == [1]


def test_a_commit_that_fails_while_stopping(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Those who wait are refused, and it ends without a checkpoint."""
    node.publish(publish("a"))
    outcomes = [node.append(publish("a")), node.append(publish("a"))]
    stopped = node.stop()
    node.helpers.fail()
    assert all(refused(told, "the disk is full") for told in outcomes)
    node.helpers.run()
    assert done(stopped)
    assert node.helpers.made[-1] == "close"
    assert "save" not in node.helpers.made
    assert node.clock.getDelayedCalls() == []
    assert cached(servers.start()) == [1]
    logged_failures.clear()


def test_a_last_checkpoint_that_fails_is_logged(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """The server ends all the same, and the next one has the entries."""
    node.publish(publish("a"))
    stopped = node.stop()
    node.helpers.fail("the disk is full")
    node.helpers.run()
    assert done(stopped)
    assert len(logged_failures) == 1
    assert "saving the last checkpoint failed; the next start takes longer: the disk is full" in logged_failures.pop()
    assert node.helpers.made[-1] == "close"
    assert cached(servers.restart()) == [1]


def test_a_restart_is_as_if_nothing_had_been(servers: Servers, path: Path) -> None:
    """Two queues, one of which is restarted after each command, have equal states."""
    limits = Limits(retention_seconds=5.0, channel_ttl_seconds=3.0, retention_messages=2)
    steady = ReplicatedState(limits, epoch="e1")
    node = servers.start(limits=limits)
    commands: list[Command] = [
        publish("a", key="k"),
        batch(draft("a"), draft("a", "b"), draft("b")),
        Close("a"),
        Create(None, 2.0),
        publish("a", key="k"),
        Publish((draft("c"),)),
        Expire(),
    ]
    for number, command in enumerate(commands * 3):
        node.do(command)
        steady.apply(node.applied.pop())
        node.clock.advance(0.75)
        if number % 2:
            node.stop_at_once()
        else:
            node.file.close()
        node = servers.start(limits=limits, clock=node.clock)
        assert set(node.state.snapshot().channels) == set(steady.snapshot().channels)
        assert node.state.snapshot().messages == steady.snapshot().messages
        assert node.state.snapshot().keys == steady.snapshot().keys
        assert node.state.snapshot().floor == steady.snapshot().floor
        node.check()
    node.file.close()
    file, snapshot = open_journal(path, limits, "e2")
    file.close()
    assert snapshot.epoch == "e1"
