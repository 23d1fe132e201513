"""The journal: acknowledgements, groups, checkpoints, a failing disk, shutdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from pushup.backends.helper_pool import HelperPool
from pushup.backends.limited_service import ServiceLimits
from pushup.broadcast.admission import size_of
from pushup.broadcast.journal import RETRY_SECONDS, REWRITE_SECONDS, SAVE_BYTES, SAVE_CHANGES, SAVE_SECONDS
from pushup.broadcast.journal_file import JournalFile
from pushup.broadcast.journal_groups import GROUP_BYTES, GROUP_LIMIT, GROUP_UNITS
from pushup.broadcast.journal_start import BEHIND_SECONDS
from pushup.core.commands import (
    Close,
    Closed,
    Command,
    Continue,
    Create,
    Done,
    Entry,
    Erase,
    Erased,
    Expire,
    Outcome,
    Publish,
    Published,
)
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded, Unavailable, UnknownChannel
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.host.host import Host
from pushup.parts import make_local_broadcast
from pushup.settings.settings import read_settings
from pushup.testing.in_memory import InMemoryDemultiplexer
from tests.backends.stepped_threads import SteppedThreads, ThreadClock
from tests.broadcast.stepped_helpers import START, JournaledReplica, KeptConnection, Replica, after_restart
from tests.core.builders import batch, draft, publish
from tests.metric_values import value_of
from tests.net.observed_log import logged_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


class Servers:
    """Servers that use the same file, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started: list[JournaledReplica] = []

    def start(self, **how: Any) -> JournaledReplica:
        """Start a server after the previous one has stopped; `how` is passed to JournaledReplica."""
        node = JournaledReplica(self._path, **how)
        self._started.append(node)
        return node

    def restart(self) -> JournaledReplica:
        """Kill the current server, and start the next one with the same clock."""
        self.close()
        return self.start(clock=self._started[-1].clock)

    def close(self) -> None:
        """Close the file in all servers."""
        for node in self._started:
            node.file.close()


@pytest.fixture
def servers(path: Path) -> Iterator[Servers]:
    """No server runs at first. Files that are open when the test ends are closed."""
    servers = Servers(path)
    yield servers
    servers.close()


@pytest.fixture
def node(servers: Servers) -> JournaledReplica:
    """The first server."""
    return servers.start()


def cached(node: JournaledReplica) -> list[int]:
    return [message.sequence for message in node.state.snapshot().messages]


def done(stopped: Deferred[None]) -> bool:
    return bool(stopped.called)


def refused(outcomes: list[Outcome], part: str) -> bool:
    """Whether the command got a 503 with a time to retry, and for the operator only a reason that contains this."""
    (outcome,) = outcomes
    if not isinstance(outcome, Unavailable) or outcome.retry_after != 1:
        return False
    assert outcome.detail in (UNWRITABLE, UNKNOWN, STOPPING)
    return part in (outcome.operator_detail or outcome.detail)


UNWRITABLE = "the message log cannot be written"
UNKNOWN = "this may or may not have been published; retry with the same Idempotency-Key"
STOPPING = "the server is stopping"


def fail_a_commit(node: JournaledReplica, logged: list[str]) -> None:
    """Let a commit fail, which is logged once."""
    outcomes = node.append(publish("lost"))
    node.helpers.fail()
    assert refused(outcomes, "the disk is full")
    assert ["the disk is full" in line for line in logged] == [True]
    logged.clear()


# Groups.


def test_a_command_is_applied_and_acknowledged_once_it_is_on_the_disk(node: JournaledReplica) -> None:
    outcomes = node.append(publish("a", "b"))
    assert node.helpers.names == ["append"]
    assert (outcomes, node.state.cursor.sequence) == ([], 0)
    assert list(node.file.entries()) == []
    node.helpers.step()
    assert outcomes == [Published("e1", 1, 1, START)]
    assert node.state.cursor.sequence == 1
    (entry,) = node.file.entries()
    assert (entry.sequence, entry.time) == (1, START)


def test_commands_that_arrive_during_a_commit_share_the_next(node: JournaledReplica) -> None:
    """A commit for each command would be slow; here two commits are enough, and the order is kept."""
    first = node.append(publish("a"))
    later = [node.append(batch(draft("a"), draft("b"))), node.append(Create("c")), node.append(publish("c"))]
    assert node.helpers.names == ["append"]
    node.helpers.step()
    assert [len(received) for received in (first, *later)] == [1, 0, 0, 0]
    assert node.helpers.names == ["append"]
    (entries,) = node.helpers.calls[0].arguments
    assert [entry.sequence for entry in entries] == [2, 4, 5]
    node.helpers.step()
    assert node.helpers.names == []
    assert node.received == [first[0], *(received[0] for received in later)]
    assert node.sequences() == [1, 2, 4, 5]
    assert node.state.cursor.sequence == 5


def test_a_group_ends_when_it_is_large(node: JournaledReplica) -> None:
    """The size is the number of messages; the command that reaches the limit is the last one, however large."""
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
    assert len(node.received) == len(commands) + 1
    assert node.sequences() == sorted(set(node.sequences()))


def groups(node: JournaledReplica) -> list[int]:
    """Write all that waits; returns how many commands each commit has."""
    sizes = []
    while node.helpers.calls:
        if node.helpers.names == ["append"]:
            sizes.append(len(node.helpers.calls[0].arguments[0]))
        node.helpers.step()
    return sizes


def test_a_group_ends_when_it_makes_much_work(node: JournaledReplica) -> None:
    """The work is what is put on channels; a command that makes more than a group may is one by itself."""
    node.append(Expire())
    for count in (GROUP_UNITS // 2, GROUP_UNITS // 2, 1, 2 * GROUP_UNITS, 1):
        node.append(publish(*[f"c{number}" for number in range(count)]))
    assert groups(node) == [1, 2, 1, 1, 1]


def test_errors_are_outcomes_with_a_sequence(node: JournaledReplica) -> None:
    assert isinstance(node.do(Close("never")), UnknownChannel)
    assert node.publish(publish("a")).sequence == 2
    assert isinstance(node.do(Expire()), Done)
    assert node.do(Close("a")) == Closed("a")
    assert node.sequences() == [1, 2, 3, 4]


def test_the_order_goes_on_under_another_name(node: JournaledReplica) -> None:
    """Entries after it have the new one, also those of the same group."""
    node.append(Expire())
    node.append(Continue("e9"))
    same_group = node.append(publish("a"))
    node.helpers.run()
    assert same_group == [Published("e9", 3, 1, START)]
    assert node.publish(publish("a")) == Published("e9", 4, 1, START)


def test_the_end_of_the_order_is_the_last_entry_applied(node: JournaledReplica) -> None:
    """No cursor has an entry that is still being written."""
    ends: list[Cursor] = []
    node.publish(publish("a"))
    node.append(publish("a"))
    node.journal.find_end(ends.append)
    assert ends == [Cursor("e1", 1)]


def test_each_outcome_is_reported_before_the_next_entry_is_applied(node: JournaledReplica) -> None:
    """A publisher gets its response before a later message can be delivered."""
    node.append(Expire())
    seen = []
    for _ in range(3):
        node.journal.append(publish("a"), lambda _: seen.append(node.state.cursor.sequence))
    node.helpers.run()
    assert seen == [2, 3, 4]


def test_a_command_appended_from_a_callback_comes_after_the_group(node: JournaledReplica, servers: Servers) -> None:
    """A connection with pipelined publications starts the next one as soon as one is answered."""
    received: list[Outcome] = []

    def again(outcome: Outcome) -> None:
        received.append(outcome)
        if len(received) < 9:
            node.journal.append(publish("a"), again)

    node.append(Expire())
    node.journal.append(publish("a"), again)
    others = [node.append(publish("a")) for _ in range(3)]
    node.helpers.run()
    sequences = [outcome.sequence for outcome in (*received, *(o[0] for o in others)) if isinstance(outcome, Published)]
    assert sorted(sequences) == list(range(2, 14))
    assert cached(servers.restart()) == list(range(2, 14))


def test_a_callback_that_fails_does_not_affect_others(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """The error is logged; the rest of the group is applied, and publishing continues."""

    def fails(outcome: Outcome) -> None:
        raise ValueError("an error of somebody else")

    node.append(Expire())
    node.journal.append(publish("a"), fails)
    rest = [node.append(publish("a")) for _ in range(2)]
    node.helpers.run()
    assert len(logged_failures) == 1
    logged_failures.clear()
    assert [len(received) for received in rest] == [1, 1]
    assert node.publish(publish("a")).sequence == 5
    assert cached(servers.restart()) == [2, 3, 4, 5]


def test_time_never_goes_back(node: JournaledReplica, servers: Servers) -> None:
    """If the clock is set back, or is behind after a restart, entries keep the latest time until it has caught up."""
    node.clock.advance(10.0)
    assert node.publish(publish("a")).time == START + 10
    node.clock.rightNow -= 100.0
    assert node.publish(publish("a")).time == START + 10
    node = servers.restart()
    assert node.publish(publish("a")).time == START + 10
    node.clock.advance(100.5)
    assert node.publish(publish("a")).time == START + 10.5


def test_a_restart_goes_on_under_a_new_name(node: JournaledReplica, servers: Servers) -> None:
    """Cursors from before stay valid up to the end of the file; the new name takes one place."""
    node.publish(publish("a"))
    again = servers.restart()
    assert again.cursor == Cursor("e2", 2)
    assert again.state.past_epochs.good_up_to("e1") == 1
    assert again.publish(publish("a")) == Published("e2", 3, 1, START)


LARGE = publish("a", data="7" * 100_000)


@pytest.fixture
def narrow(servers: Servers) -> JournaledReplica:
    """A journal for which ten large publications may wait."""
    return servers.start(waiting_limit_bytes=10 * size_of(LARGE))


def test_the_bytes_that_wait_for_the_disk_are_limited(narrow: JournaledReplica) -> None:
    """Those being written count; beyond the limit a publisher is told when to retry, and waiting commands are kept."""
    for round_ in range(3):
        waiting = [narrow.append(LARGE) for _ in range(10)]
        assert waiting == [[]] * 10
        for command in (LARGE, publish("a"), Expire()):
            (outcome,) = narrow.append(command)
            assert isinstance(outcome, Overloaded)
            assert outcome.retry_after == 1
        assert narrow.journal.why_not_ready() is None
        assert narrow.journal.waiting_bytes == 10 * size_of(LARGE)
        narrow.helpers.step()  # the first is written, and the others are being written
        assert narrow.append(LARGE) == []
        narrow.helpers.run()
        assert narrow.journal.waiting_bytes == 0
        assert narrow.state.cursor.sequence == 11 * (round_ + 1)


@pytest.mark.parametrize("how", ["fails", "late", "stopped"])
def test_room_is_freed_however_publications_end(narrow: JournaledReplica, log: list[str], how: str) -> None:
    """Whether they are refused, of unknown outcome, or written during shutdown."""
    waiting = [narrow.append(LARGE) for _ in range(10)]
    if how == "fails":
        narrow.helpers.fail()
    elif how == "late":
        narrow.helpers.give_up()
    else:
        narrow.stop_at_once()
    assert [len(received) for received in waiting] == [1] * 10
    assert narrow.journal.waiting_bytes == 0


@pytest.mark.interpreted
def test_a_bug_while_applying_a_group_is_reported_to_all_its_publishers(
    narrow: JournaledReplica, log: list[str]
) -> None:
    """The remaining publications of the group, and those waiting behind it, get an error; none waits forever.

    The bug is logged once, although the entry is tried again.
    """
    narrow.append(Expire())
    waiting = [narrow.append(publish("a")) for _ in range(3)]
    behind = []
    narrow.helpers.step()
    behind.append(narrow.append(publish("a")))
    apply = narrow.state.apply
    calls = iter(range(9))

    def fails(entry: Entry) -> Outcome:
        if next(calls) in (1, 2, 3):
            raise RuntimeError("a bug in apply")
        return apply(entry)

    narrow.state.apply = fails  # type: ignore[method-assign]
    narrow.helpers.step()
    assert isinstance(waiting[0][0], Published)
    assert all(refused(received, "a bug in apply") for received in (*waiting[1:], *behind))
    assert narrow.journal.waiting_bytes == 0
    for _ in range(3):
        assert narrow.journal.why_not_ready() is not None
        narrow.retry()
    assert narrow.publish(publish("a")).sequence == 5
    assert len([line for line in log if "could not apply an entry" in line]) == 1


def test_a_group_ends_when_it_has_many_bytes(node: JournaledReplica) -> None:
    """A commit copies all its bytes, so they are limited."""
    node.append(Expire())
    for _ in range(100):
        node.append(LARGE)
    sizes = groups(node)
    assert sum(sizes) == 101
    assert max(sizes) == math.ceil(GROUP_BYTES / size_of(LARGE))


# Checkpoints.


def test_a_checkpoint_is_due_after_some_time(node: JournaledReplica) -> None:
    """It is made before the first command after a second, if there are new entries; then the entries are deleted."""
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


def test_no_checkpoint_is_made_without_a_new_entry(node: JournaledReplica) -> None:
    """One is enough, even if it changes no channel."""
    node.clock.advance(10 * SAVE_SECONDS)
    node.do(Expire())
    assert node.helpers.made == ["append", "save"]
    node.clock.advance(SAVE_SECONDS)
    node.do(Expire())
    assert node.helpers.made[2:] == ["append", "save"]


def test_a_checkpoint_is_due_after_many_messages(node: JournaledReplica) -> None:
    for _ in range(SAVE_CHANGES // 64):
        assert "save" not in node.helpers.made
        node.publish(batch(*[draft("a")] * 64))
    assert node.helpers.made[-1] == "save"
    assert list(node.file.entries()) == []
    node.publish(publish("a"))
    assert node.helpers.made.count("save") == 1


def test_a_checkpoint_is_due_after_many_channels(node: JournaledReplica) -> None:
    for number in range(SAVE_CHANGES // 101):
        node.publish(publish(*[f"{number}:{n}" for n in range(100)]))
        assert "save" not in node.helpers.made
    node.publish(publish(*[f"c{n}" for n in range(100)]))
    assert node.helpers.made[-1] == "save"


def test_a_checkpoint_is_due_after_many_bytes(node: JournaledReplica) -> None:
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
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    outcomes = node.append(publish("a"))
    assert node.helpers.names == ["save"]
    other = node.append(publish("a"))
    node.helpers.step()
    assert node.helpers.names == ["append"]
    assert outcomes == other == []
    node.helpers.step()
    assert node.received[1:] == [Published("e1", 2, 1, START + 1), Published("e1", 3, 1, START + 1)]
    assert cached(servers.restart()) == [1, 2, 3]


# What is erased.


MARKER = "the text that somebody wants gone"


def bytes_of(path: Path) -> bytes:
    """Of all files of the journal."""
    return b"".join([file.read_bytes() for file in sorted(path.parent.iterdir())])


def say(node: JournaledReplica, text: str) -> Cursor:
    """Publish between others; returns the id."""
    for _ in range(30):
        node.publish(publish("a", data=f'"{"x" * 100}"'))
    node.publish(publish("a", data=f'"{text}"'))
    return node.state.cursor


def test_what_is_erased_is_in_no_byte_of_the_files(node: JournaledReplica, path: Path) -> None:
    """After some time, also of the write-ahead log, and although nothing else happens."""
    erased = say(node, MARKER)
    node.clock.advance(SAVE_SECONDS)
    say(node, "others")
    assert node.do(Erase("message", cursor=erased)) == Erased(1, erased)
    assert MARKER.encode() in bytes_of(path)
    node.clock.advance(REWRITE_SECONDS - 0.01)
    assert node.helpers.names == []
    node.clock.advance(0.01)
    assert node.helpers.names == ["rewrite"]
    node.helpers.step()
    assert MARKER.encode() not in bytes_of(path)
    assert b"others" in bytes_of(path)
    node.clock.advance(10 * REWRITE_SECONDS)
    assert node.helpers.names == []
    assert node.journal.why_not_ready() is None


def test_several_erasures_share_one_rewriting(node: JournaledReplica, path: Path) -> None:
    """The first of them sets the time. One that comes later has its own."""
    for _ in range(3):
        node.do(Erase("message", cursor=say(node, MARKER)))
        node.clock.advance(REWRITE_SECONDS / 4)
    node.clock.advance(REWRITE_SECONDS / 4)
    assert node.helpers.names == ["rewrite"]
    node.append(publish("b"))
    node.helpers.step()
    assert MARKER.encode() not in bytes_of(path)
    node.helpers.run()
    node.clock.advance(REWRITE_SECONDS)
    assert node.rewriter.made == ["rewrite"]


def test_a_stop_does_not_leave_it_there(node: JournaledReplica, path: Path) -> None:
    """The file is rewritten then."""
    node.do(Erase("message", cursor=say(node, MARKER)))
    stopped = node.stop()
    node.helpers.run()
    assert done(stopped)
    assert (node.rewriter.made, node.helpers.made[-1]) == (["rewrite"], "close")
    assert MARKER.encode() not in bytes_of(path)


@pytest.mark.parametrize("is_saved", [False, True])
def test_after_a_crash_it_is_still_done(servers: Servers, path: Path, is_saved: bool) -> None:
    """Whether the erasure was in the checkpoint by then or not."""
    node = servers.start()
    node.do(Erase("message", cursor=say(node, MARKER)))
    if is_saved:
        node.clock.advance(SAVE_SECONDS)
        node.do(Expire())
    node = servers.restart()
    assert node.file.has_erased
    node.clock.advance(REWRITE_SECONDS)
    node.helpers.step()
    assert MARKER.encode() not in bytes_of(path)
    node = servers.restart()
    node.clock.advance(REWRITE_SECONDS)
    assert node.helpers.names == []


def test_a_rewriting_that_fails_is_repeated(node: JournaledReplica, path: Path, log: list[str]) -> None:
    """Publishing goes on when the disk works again."""
    node.do(Erase("message", cursor=say(node, MARKER)))
    node.clock.advance(REWRITE_SECONDS)
    node.helpers.fail("the disk is full")
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()
    node.publish(publish("a"))
    node.clock.advance(REWRITE_SECONDS)
    assert node.helpers.names == ["rewrite"]
    node.helpers.step()
    assert MARKER.encode() not in bytes_of(path)


class SteppedHost(Host):
    """A process whose threads the test moves."""

    def __init__(self) -> None:
        super().__init__(ThreadClock(), InMemoryDemultiplexer())
        self.threads: dict[str, SteppedThreads] = {}
        """Those of each helper pool, by its name."""

    def helpers(self, name: str, seconds: float) -> HelperPool:
        self.threads[name] = SteppedThreads()
        return HelperPool(
            name,
            ServiceLimits(at_most=1, queue_limit=1, deadline_seconds=seconds),
            reactor=self.reactor,
            counters=self.metrics.backend(name),
            threads=self.threads[name],
        )


@pytest.mark.parametrize("stops", [False, True])
def test_a_rewriting_may_take_longer_than_a_commit(path: Path, stops: bool) -> None:
    """Publications wait meanwhile, and a stop does, too."""
    host = SteppedHost()
    settings = read_settings(flags={"broadcast": f"journal:{path}", "journal_timeout_seconds": 10})
    journal = make_local_broadcast(settings, host)
    assert journal is not None
    journal.start(Replica())
    outcomes: list[Outcome] = []
    stopped: Deferred[None] = Deferred()
    commits, rewriting, mark = (host.threads[name] for name in ("journal", "journal_rewrite", "journal_mark"))
    journal.append(Erase("channel", "a"), outcomes.append)
    commits.step_all()
    if stops:
        stopped = Deferred.fromCoroutine(journal.stop())
    else:
        host.reactor.advance(REWRITE_SECONDS)
        journal.append(publish("a"), outcomes.append)
    mark.step_all()
    host.reactor.advance(1000.0)
    assert (len(rewriting.running), len(commits.running), len(outcomes)) == (1, 0, 1)
    assert stops or journal.why_not_ready() is None
    rewriting.step()
    commits.step_all()
    if not stops:
        stopped = Deferred.fromCoroutine(journal.stop())
        mark.step_all()
        commits.step_all()
    assert done(stopped)
    assert [type(outcome) for outcome in outcomes[1:]] == ([] if stops else [Published])


# A disk that fails.


def test_a_failed_commit_refuses_all_waiting_commands(node: JournaledReplica, logged_failures: list[str]) -> None:
    """Their publishers, and those behind them, get the reason and a time to retry; nothing is applied."""
    in_group = node.append(publish("a"))
    behind = [node.append(publish("a")), node.append(Create("b"))]
    node.helpers.fail("the disk is full: /j cannot grow")
    for outcomes in (in_group, *behind):
        assert refused(outcomes, "the disk is full: /j cannot grow")
    assert [getattr(received[0], "detail", "") for received in (in_group, *behind)] == [UNKNOWN, UNWRITABLE, UNWRITABLE]
    assert (node.state.cursor.sequence, node.state.message_count) == (0, 0)
    assert len(logged_failures) == 1
    assert "publishing is refused: the disk is full: /j cannot grow" in logged_failures.pop()


def test_after_a_failure_new_commands_are_refused_at_once(node: JournaledReplica, logged_failures: list[str]) -> None:
    """The node is not ready, and the disk is not used until the next retry."""
    assert node.journal.why_not_ready() is None
    fail_a_commit(node, logged_failures)
    assert node.journal.why_not_ready() is not None
    assert refused(node.append(publish("a")), "the disk is full")
    assert refused(node.append(Expire()), "the disk is full")
    assert node.helpers.names == []


def test_recovery_is_retried_until_it_succeeds(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """It is retried each second, each reason is logged once, and then the sequences continue without a hole."""
    node.publish(publish("a"))
    fail_a_commit(node, logged_failures)
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
    with logged_at("info") as lines:
        node.helpers.run()
    assert lines == ["publishing works again; it was refused for 4.0 s (the disk is full)"]
    assert node.journal.why_not_ready() is None
    assert node.publish(publish("a")).sequence == 2
    assert logged_failures == ["publishing is refused: the disk is still full"]
    logged_failures.clear()
    node.clock.advance(10 * RETRY_SECONDS)
    assert "recover" not in node.helpers.names
    assert cached(servers.restart()) == [1, 2]


def test_a_late_commit_is_found(node: JournaledReplica, log: list[str], servers: Servers) -> None:
    """It is applied once, and a publisher that retries with its key after an unknown outcome gets the first outcome."""
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
    assert len(log) == 1


def test_a_late_group_is_found(node: JournaledReplica, log: list[str], servers: Servers) -> None:
    """All its entries are applied in order, with their original times, and earlier ones are not applied again."""
    node.publish(publish("a"))
    for command in (Expire(), batch(draft("a"), draft("b"), key="l"), publish("b", key="m")):
        node.append(command)
        node.clock.advance(0.25)
    node.helpers.step()
    node.helpers.fail_after_effect()
    node.append(publish("lost"))
    node.retry()
    assert node.sequences() == [1, 2, 3, 5]
    assert node.publish(publish("c")).sequence == 6
    assert node.publish(publish("b", key="m")).sequence == 5
    assert cached(servers.restart()) == [1, 3, 4, 5, 6]


def test_recovery_may_be_late_as_well(node: JournaledReplica, log: list[str]) -> None:
    """It is tried again, and the effects of the first attempt remain."""
    node.append(publish("a"))
    node.helpers.give_up()
    for _ in range(2):
        node.clock.advance(RETRY_SECONDS)
        late = node.helpers.calls[0]
        node.helpers.step()
        assert late.result is None
        node.helpers.give_up()
    node.retry()
    assert node.sequences() == [1]
    assert node.publish(publish("a")).sequence == 2


def test_a_checkpoint_that_fails_loses_nothing(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Commands behind it are refused; acknowledged ones are still in the entries, and in the next checkpoint."""
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


def test_a_late_checkpoint_is_made_twice(node: JournaledReplica, log: list[str], servers: Servers) -> None:
    """The second one writes the same and what is new, without duplicate messages or keys."""
    for number in range(3):
        node.publish(publish("a", key=f"k{number}"))
    node.clock.advance(SAVE_SECONDS)
    node.append(publish("lost"))
    node.helpers.give_up()
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()  # it completes after all
    node.helpers.step()
    assert list(node.file.entries()) == []
    node.helpers.fail()  # the second one fails
    node.clock.advance(RETRY_SECONDS)
    node.helpers.step()
    node.helpers.run()
    node.publish(publish("a", key="k3"))
    node.clock.advance(SAVE_SECONDS)
    node.publish(publish("a", key="k4"))
    state = node.state.snapshot()
    again = servers.restart()
    assert cached(again) == [1, 2, 3, 4, 5]
    assert again.state.snapshot() == after_restart(state)
    assert len(log) == 2


def test_a_failed_append_is_not_in_a_later_checkpoint(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """Refused commands that are not on the disk have no effect, and their sequences are used again."""
    node.publish(publish("a"))
    fail_a_commit(node, logged_failures)
    node.retry()
    assert node.publish(publish("a", data='"next"')).sequence == 2
    node.stop_at_once()
    again = servers.start()
    assert [(m.sequence, m.channels) for m in again.state.snapshot().messages] == [(1, ("a",)), (2, ("a",))]


def test_a_file_that_is_locked_in_a_transaction_recovers(log: list[str], servers: Servers) -> None:
    """A checkpoint that failed halfway is rolled back first."""
    connection = KeptConnection()
    node = servers.start(file=partial(JournalFile, connect=connection))
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    node.append(publish("a"))
    call = node.helpers.calls.popleft()
    connection.last.execute("BEGIN IMMEDIATE")
    connection.last.execute("DELETE FROM rows")
    connection.last.execute("DELETE FROM entries")
    node.helpers.calls.appendleft(call)
    node.helpers.step()  # cannot begin another transaction
    assert node.journal.why_not_ready() is not None
    node.retry()
    assert node.journal.why_not_ready() is None
    assert node.publish(publish("a")).sequence == 2
    assert cached(servers.restart()) == [1, 2]


# Shutdown.


def test_stopping_finishes_waiting_commands(node: JournaledReplica, servers: Servers, path: Path) -> None:
    """They are written, applied and acknowledged; then the last checkpoint is made and the file closed."""
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
    file = JournalFile(path)  # it is not locked any more
    assert list(file.entries()) == []
    file.close()
    assert cached(servers.start()) == [1, 2]


def test_stopping_with_nothing_to_do(node: JournaledReplica, path: Path) -> None:
    """It saves and closes at once, and leaves no timer."""
    node.stop_at_once()
    assert node.helpers.made == ["save", "close"]
    assert node.clock.getDelayedCalls() == []
    JournalFile(path).close()


def test_stopping_after_a_failure(node: JournaledReplica, logged_failures: list[str], servers: Servers) -> None:
    """The disk is not tried again; the file is closed, and the next server finds everything acknowledged."""
    node.publish(publish("a"))
    fail_a_commit(node, logged_failures)
    stopped = node.stop()
    assert node.helpers.names == ["close"]
    assert node.clock.getDelayedCalls() == []
    node.helpers.run()
    assert done(stopped)
    assert refused(node.append(publish("a")), "the disk is full")
    assert cached(servers.start()) == [1]


def test_stopping_after_a_failure_while_a_checkpoint_is_due(
    node: JournaledReplica, log: list[str], servers: Servers
) -> None:
    """It is not made either: the next start reads the entries."""
    node.publish(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    node.append(publish("b"))
    assert node.helpers.names == ["save"]
    node.helpers.fail()
    stopped = node.stop()
    assert node.helpers.names == ["close"]
    node.helpers.run()
    assert done(stopped)
    assert cached(servers.start()) == [1]


def test_stopping_during_recovery(node: JournaledReplica, logged_failures: list[str], servers: Servers) -> None:
    """Entries found on the disk are applied; if recovery fails, the journal stops all the same."""
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
    fail_a_commit(node, logged_failures)
    node.clock.advance(RETRY_SECONDS)
    stopped = node.stop()
    node.helpers.fail()
    node.helpers.run()
    assert done(stopped)
    assert node.helpers.made[-2:] == ["recover", "close"]
    assert node.clock.getDelayedCalls() == []
    assert cached(servers.start()) == [1]


def test_a_commit_that_fails_while_stopping(node: JournaledReplica, log: list[str], servers: Servers) -> None:
    """Waiting commands are refused, and the journal stops without a checkpoint."""
    node.publish(publish("a"))
    outcomes = [node.append(publish("a")), node.append(publish("a"))]
    stopped = node.stop()
    node.helpers.fail()
    assert all(refused(received, "the disk is full") for received in outcomes)
    node.helpers.run()
    assert done(stopped)
    assert node.helpers.made[-1] == "close"
    assert "save" not in node.helpers.made
    assert node.clock.getDelayedCalls() == []
    assert cached(servers.start()) == [1]


def test_a_last_checkpoint_that_fails_is_logged(
    node: JournaledReplica, logged_failures: list[str], servers: Servers
) -> None:
    """The server stops all the same, and the next one has the entries."""
    node.publish(publish("a"))
    stopped = node.stop()
    node.helpers.fail("the disk is full")
    node.helpers.run()
    assert done(stopped)
    (failure,) = logged_failures
    logged_failures.clear()
    assert re.search("saving the last checkpoint failed; .* may take longer, .* until then: the disk is full", failure)
    assert node.helpers.made[-1] == "close"
    assert cached(servers.restart()) == [1]


def test_a_file_that_cannot_be_closed_is_logged(node: JournaledReplica, log: list[str]) -> None:
    """The server stops all the same."""
    stopped = node.stop()
    node.helpers.step()
    node.helpers.fail("the disk is gone")
    assert done(stopped)
    assert log == ["closing the journal failed: the disk is gone"]


def test_a_restart_changes_nothing_but_the_name(servers: Servers) -> None:
    """A state that is restarted after each command equals one that is not."""
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
        for entry in node.applied:
            steady.apply(entry)
        node.clock.advance(0.75)
        if number % 2:
            node.stop_at_once()
        else:
            node.file.close()
        node = servers.start(limits=limits, clock=node.clock)
        steady.apply(Entry(steady.cursor.epoch, steady.cursor.sequence + 1, steady.time, Continue(node.cursor.epoch)))
        assert node.state.snapshot() == steady.snapshot()
        node.check()


# The clock.


def test_time_goes_on_while_a_server_is_down(servers: Servers) -> None:
    """What is due by then expires with the first entry after the start."""
    node = servers.start(limits=Limits(retention_seconds=10.0))
    node.do(publish("a"))
    node.file.close()
    node.clock.advance(11.0)
    node = servers.start(limits=Limits(retention_seconds=10.0), clock=node.clock)
    assert cached(node) == [1]
    assert node.journal.now() == START + 11.0
    node.do(Expire())
    assert cached(node) == []


def test_the_journal_of_a_clock_that_was_ahead(servers: Servers) -> None:
    """Time stands still until the clock has caught up: nothing expires, and no message is older than the one before."""
    limits = Limits(retention_seconds=10.0)
    node = servers.start(limits=limits, steady_ahead=60.0)
    node.do(publish("a"))
    node.file.close()
    with logged_at("warn") as lines:
        node = servers.start(limits=limits, clock=node.clock)
    assert len(lines) == 1
    assert lines[0].startswith("the clock is 60 s behind the last entry of the journal; ")
    node.clock.advance(30.0)
    assert node.journal.now() == START + 60.0
    assert [outcome.time for outcome in [node.do(publish("a"))] if isinstance(outcome, Published)] == [START + 60.0]
    assert cached(node) == [1, 3]
    node.clock.advance(41.0)
    assert node.journal.now() == START + 71.0
    node.do(Expire())
    assert cached(node) == []


@pytest.mark.parametrize(("ahead", "warnings"), [(0.0, 0), (BEHIND_SECONDS - 0.01, 0), (BEHIND_SECONDS, 1)])
def test_a_clock_that_agrees_with_the_journal_is_not_mentioned(servers: Servers, ahead: float, warnings: int) -> None:
    """Neither at the first start nor at a restart; one that is behind by little agrees."""
    with logged_at("warn") as lines:
        node = servers.start(steady_ahead=ahead)
        node.do(publish("a"))
        servers.restart()
    assert len(lines) == warnings


def test_checkpoints_are_saved_on_the_monotonic_clock(servers: Servers) -> None:
    """A clock of messages that goes back an hour delays none."""
    node = servers.start()
    node.steady_ahead = -3600.0
    node.do(publish("a"))
    node.clock.advance(SAVE_SECONDS)
    node.do(publish("a"))
    assert node.helpers.made == ["append", "save", "append"]


def test_how_long_commits_take(node: JournaledReplica) -> None:
    """Of a group, as long as the disk takes."""
    for _ in range(3):
        node.append(publish("a"))
    node.clock.advance(0.2)
    node.helpers.step()
    node.clock.advance(0.5)
    node.helpers.step()
    assert value_of(node.journal.metrics(), "journal_commit_seconds_count") == 2
    assert value_of(node.journal.metrics(), "journal_commit_seconds_sum") == pytest.approx(0.7)
