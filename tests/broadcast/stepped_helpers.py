"""Helper calls made by the test, and a node's state with its journal on them: no threads, no waiting."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from pushup.broadcast import HoldsState, Member
from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.journal import RETRY_SECONDS, Journal
from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.broadcast.journal_start import NotSaved, open_journal
from pushup.broadcast.progress_mark import Helpers, Mark, MarkFile, ProgressMark, mark_path
from pushup.core.commands import Command, Entry, Outcome, Publish, Published
from pushup.core.cursor import REMEMBERED, PastEpoch
from pushup.core.errors import Unavailable
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes, Snapshot
from pushup.core.state import ReplicatedState

T = TypeVar("T")

START = 1_800_000_000.0
"""When the clocks of these tests begin, seconds since the epoch."""


ENOUGH = 1000
"""Calls after which there should be an end of them."""


class Call(NamedTuple):
    """A call that waits for its turn; `result` is None once the call was given up."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    result: Deferred[Any] | None

    @property
    def name(self) -> str:
        """The name of the called method."""
        return self.function.__name__


class SteppedHelpers:
    """A single helper controlled by the test: the oldest call is made, fails, or is late."""

    def __init__(self, calls: deque[Call] | None = None) -> None:
        """`calls`: those of other helpers, with which these take turns."""
        self.calls: deque[Call] = deque() if calls is None else calls
        self.made: list[str] = []
        """The names of all calls so far."""

    def call(self, function: Callable[..., T], /, *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        call = Call(function, args, result)
        self.calls.append(call)
        self.made.append(call.name)
        return result

    @property
    def names(self) -> list[str]:
        """The names of the waiting calls, oldest first."""
        return [call.name for call in self.calls]

    def step(self) -> None:
        """Make the oldest call, and report its outcome unless the call was given up."""
        call = self.calls.popleft()
        try:
            value = call.function(*call.arguments)
        except Exception as error:
            if call.result is not None:
                call.result.errback(error)
        else:
            if call.result is not None:
                call.result.callback(value)

    def run(self) -> None:
        """Make all calls, including those that follow from them."""
        for _ in range(ENOUGH):
            if not self.calls:
                return
            self.step()
        raise AssertionError(f"endless calls: {self.names}")

    def fail(self, reason: str = "the disk is full") -> None:
        """Let the oldest call fail without an effect."""
        self._fail(self.calls.popleft(), JournalError(reason))

    def fail_after_effect(self, reason: str = "the disk is slow") -> None:
        """Let the oldest call take effect and then fail."""
        call = self.calls.popleft()
        call.function(*call.arguments)
        self._fail(call, JournalError(reason))

    def give_up(self) -> None:
        """Let the oldest call exceed its deadline: it has failed for the caller, and is made at the next step."""
        call = self.calls.popleft()
        self.calls.appendleft(call._replace(result=None))
        self._fail(call, Unavailable("journal did not answer within 10 s", retry_after=2))

    def do_and_crash(self) -> None:
        """Make the oldest call, but die before its outcome is reported."""
        call = self.calls.popleft()
        if call.result is not None or call.name != "close":
            with suppress(JournalError):
                call.function(*call.arguments)

    def _fail(self, call: Call, error: Exception) -> None:
        assert call.result is not None, "it was given up already"
        call.result.errback(error)


class AtOnce:
    """A helper that makes each call at once."""

    def call(self, function: Callable[..., T], /, *args: Any) -> Deferred[T]:
        return maybeDeferred(function, *args)


class KeptConnection:
    """Connects to SQLite, for the test as well: an open journal lets no other connection read its file."""

    last: sqlite3.Connection

    def __call__(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        self.last = sqlite3.connect(*arguments, **options)
        return self.last


class FullDisk(JournalFile):
    """A journal that can be read, and written once `full` is false."""

    def __init__(self, path: Path, *, after_write: bool = False, full: bool = True) -> None:
        """`after_write`: a save takes place before it fails."""
        self.after_write = after_write
        self.full = full
        super().__init__(path)

    def save(self, changes: Changes, *, starts_over: bool = False) -> None:
        if self.after_write or not self.full:
            super().save(changes, starts_over=starts_over)
        self._check()

    def append(self, entries: tuple[Entry, ...]) -> int:
        self._check()
        return super().append(entries)

    def recover(self, after: int) -> list[Entry]:
        self._check()
        return super().recover(after)

    def _check(self) -> None:
        if self.full:
            raise JournalError("the disk is full: journal cannot grow")


class Replica(HoldsState):
    """Follows a broadcast, and does nothing else."""

    def apply(self, entry: Entry) -> Outcome:
        return self.state.apply(entry)

    def start_from(self, state: ReplicatedState) -> None:
        self.state = state

    def member(self, id: str) -> Member:  # noqa: A002
        raise AssertionError("a broadcast of one machine does not ask")


class JournaledReplica(Replica):
    """A replica that follows its journal as a node does; the test has access to file, helper and clock."""

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        steady_ahead: float = 0.0,
        mark_helpers: Helpers | None = None,
        waiting_limit_bytes: int = WaitingLimits().waiting_limit_bytes,
        file: Callable[[Path], JournalFile] = JournalFile,
    ) -> None:
        self.clock = clock or make_clock()
        self.steady_ahead = steady_ahead
        """By this the time of entries is ahead of the monotonic clock."""
        self.helpers = SteppedHelpers()
        self.rewriter = SteppedHelpers(self.helpers.calls)

        def open_file(mark: Mark | None) -> tuple[JournalFile, ReplicatedState]:
            try:
                self.file, state = open_journal(path, limits or Limits(), name_epoch, mark, file)
            except NotSaved as error:
                self.file = error.file
                raise
            return self.file, state

        self.journal = Journal(
            open_file,
            progress_mark=ProgressMark(MarkFile(mark_path(path)), mark_helpers or AtOnce(), self.clock),
            waiting_limits=WaitingLimits(waiting_limit_bytes=waiting_limit_bytes),
            helpers=self.helpers,
            rewriter=self.rewriter,
            clock=self.clock,
            steady_time=lambda: self.clock.seconds() + self.steady_ahead,
        )
        self.applied: list[Entry] = []
        self.outcomes: list[Outcome] = []
        """The outcomes of the entries applied."""
        self.received: list[Outcome] = []
        """The outcomes of all commands, in the order in which they were reported."""
        self.journal.start(self)

    def apply(self, entry: Entry) -> Outcome:
        outcome = super().apply(entry)
        self.polls.wake(self.state.touched)
        self.applied.append(entry)
        self.outcomes.append(outcome)
        return outcome

    def start_from(self, state: ReplicatedState) -> None:
        self.state = state
        self.polls: HeldPolls[int] = HeldPolls(self.state)

    def snapshot(self) -> Snapshot:
        return self.state.snapshot()

    def check(self) -> None:
        self.state.check()
        self.polls.check()

    def append(self, command: Command) -> list[Outcome]:
        """Append a command; the list returned will have its outcome."""
        outcomes: list[Outcome] = []

        def on_outcome(outcome: Outcome) -> None:
            assert not outcomes, "reported twice"
            outcomes.append(outcome)
            self.received.append(outcome)

        self.journal.append(command, on_outcome)
        return outcomes

    def retry(self) -> None:
        """Let it try again after a failure, with a disk that completes every call."""
        self.clock.advance(RETRY_SECONDS)
        self.helpers.run()

    def do(self, command: Command) -> Outcome:
        """Append a command, with a disk that completes every call."""
        outcomes = self.append(command)
        self.helpers.run()
        (outcome,) = outcomes
        return outcome

    def publish(self, command: Publish) -> Published:
        """Make a publication that must succeed."""
        outcome = self.do(command)
        assert isinstance(outcome, Published), outcome
        return outcome

    def sequences(self) -> list[int]:
        """The sequences of all entries applied."""
        return [entry.sequence for entry in self.applied]

    def stop(self) -> Deferred[None]:
        """Begin to stop; the Deferred fires at the end."""
        return Deferred.fromCoroutine(self.journal.stop())

    def stop_at_once(self) -> None:
        """Stop, with a disk that completes every call."""
        stopped = self.stop()
        self.helpers.run()
        assert stopped.called


def name_epoch(after: str, cluster: str = "") -> str:
    """The epochs of tests are e1, e2, e3 ..."""
    return f"e{int(after[1:] or 0) + 1}"


def after_restart(snapshot: Snapshot) -> Snapshot:
    """What a state is after a restart: the order goes on under the next name, one place later."""
    head = snapshot.head
    past = (*head.past_epochs, PastEpoch(head.epoch, head.sequence))
    if len(past) > REMEMBERED:
        past = (past[0], *past[2:])
    head = replace(head, epoch=name_epoch(head.epoch), sequence=head.sequence + 1, past_epochs=past)
    return replace(snapshot, head=head)


def make_clock() -> Clock:
    clock = Clock()
    clock.advance(START)
    return clock


_check: type[Helpers] = SteppedHelpers
