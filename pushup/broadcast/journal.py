"""The broadcast of a single durable node: a command takes effect once it is on disk.

Commits are grouped: commands that arrive during a commit go into the next one. A group is applied, acknowledged and
delivered only after its commit, so nobody ever sees a message that a crash takes back. The disk is accessed through a
helper pool. While it cannot be written, publishing is refused and polling continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.broadcast import Broadcast, Follower, OneNode, OnOutcome
from pushup.broadcast.admission import WaitingLimits, WaitingRoom
from pushup.broadcast.journal_file import JournalFile
from pushup.broadcast.journal_groups import Waiting, next_group
from pushup.broadcast.journal_start import NotSaved, warn_if_behind
from pushup.broadcast.outage_log import OutageLog
from pushup.broadcast.progress_mark import Helpers, Mark, ProgressMark
from pushup.clock import Timer
from pushup.core.commands import Command, Continue, Entry, Outcome
from pushup.core.errors import PushUpError, Refusal
from pushup.core.state import ReplicatedState
from pushup.metrics import Histogram, Metric

SAVE_SECONDS = 1.0
"""How often the checkpoint is brought up to date while there are new entries."""

SAVE_CHANGES = 4096
"""After this many changed rows it is saved at once: collecting them takes 8 ms."""

SAVE_BYTES = 4 * 1024 * 1024
"""After this many bytes of entries it is saved at once, too."""

REWRITE_SECONDS = 300.0
"""The file is rewritten so long after something was erased, and not more often: it may contain traces of that."""

RETRY_SECONDS = 1.0
"""How often a failed disk is retried."""

T = TypeVar("T")

_log = Logger()


class JournalLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a journal."""

    journal_timeout_seconds: float = 10.0
    """Maximum time for a commit; then publishers are told that the outcome is unknown."""


class Journal(OneNode):
    """A node's journal."""

    _file: JournalFile  # set by `start`

    def __init__(
        self,
        open_file: Callable[[Mark | None], tuple[JournalFile, ReplicatedState]],
        *,
        progress_mark: ProgressMark,
        waiting_limits: WaitingLimits,
        helpers: Helpers,
        rewriter: Helpers,
        clock: IReactorTime,
        steady_time: Callable[[], float],
    ) -> None:
        """`open_file` opens the file and returns it with the state in it; called by `start` with the mark, and blocks.

        `rewriter` has no deadline: it makes the one call that may take long.
        """
        super().__init__(steady_time)
        self._open_file = open_file
        self._progress_mark = progress_mark
        self._helpers = helpers
        self._rewriter = rewriter
        self._clock = clock
        self._room = WaitingRoom(waiting_limits)
        self._waiting: deque[Waiting] = deque()
        self._group: deque[Waiting] = deque()  # those being written
        self._busy = False
        self._commit_seconds = Histogram()
        self._outage_log = OutageLog(clock, "publishing is refused: {reason}")
        self._trouble: PushUpError | None = None  # why commands are refused, if they are
        self._first: tuple[Command, ...] = ()  # what could not be written at the start
        self._retry: IDelayedCall | None = None
        self._rewrite_timer = Timer(clock, self._rewrite)
        self._is_time_to_rewrite = False
        self._stopped: Deferred[None] | None = None  # while stopping: fires when nothing is left to do

    def start(self, follower: Follower) -> None:
        self._follower = follower
        try:
            self._file, state = self._open_file(self._progress_mark.read())
        except NotSaved as error:
            self._file, state, self._first = error.file, error.state, error.commands
            self._refuse(str(error))
        follower.start_from(state)
        self._progress_mark.cluster = self._file.cluster
        self._progress_mark.begin(follower.cursor)
        self._begin_checkpoint(state.change_log.start_sequence)  # not the end, if the start could not be saved
        self._rewrite_soon()
        warn_if_behind(state.time - self._steady_time())

    def why_not_ready(self) -> PushUpError | None:
        return self._trouble or (None if self._stopped is None else Refusal.STOPPING())

    def metrics(self) -> list[Metric]:
        text = "Time to write a group of publications to the disk and have it synced"
        return [self._commit_seconds.metric("journal_commit_seconds", text)]

    @property
    def waiting_bytes(self) -> int:
        return self._room.bytes

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        if self._trouble:
            on_outcome(self._trouble)
        elif self._stopped is not None:
            on_outcome(Refusal.STOPPING())
        elif size := self._room.enter(command):
            self._waiting.append(Waiting(command, on_outcome, size))
            self._start_next()
        else:
            on_outcome(self._room.full())

    async def stop(self) -> None:
        """Finish all commands that were appended, write the mark, and close the file."""
        self._stopped = Deferred()
        self._rewrite_timer.stop()
        if self._retry is not None:
            self._retry.cancel()
        self._start_next()
        await self._stopped
        marked = Deferred.fromCoroutine(self._progress_mark.stop())  # meanwhile
        try:
            if not self._trouble and self._file.has_erased:
                await self._rewriter.call(self._file.rewrite, self._follower.changes())
            elif not self._trouble:
                await self._helpers.call(self._file.save, self._follower.changes())
        except Exception as error:
            _log.error(
                "saving the last checkpoint failed; the next start may take longer, and what was erased may be in the "
                "file until then: {error}",
                error=error,
            )
        await marked  # before the next server can open the file, and write its own
        try:
            await self._helpers.call(self._file.close)
        except Exception as error:
            _log.error("closing the journal failed: {error}", error=error)

    def _start_next(self) -> None:
        """Start the next call to the disk, unless one is under way."""
        if self._busy:
            return
        if self._trouble:
            self._finish_stopping()
        elif self._is_time_to_rewrite:
            self._is_time_to_rewrite = False
            self._run(self._rewriter.call(self._file.rewrite, self._follower.changes()), self._saved)
        elif self._save_is_due():
            self._run(self._helpers.call(self._file.save, self._follower.changes()), self._saved)
        elif self._waiting:
            entries = next_group(self._waiting, self._group, self._follower.cursor, self.now())
            written = partial(self._written, entries, self._clock.seconds())
            self._run(self._helpers.call(self._file.append, entries), written)
        else:
            self._finish_stopping()

    def _finish_stopping(self) -> None:
        if self._stopped is not None:
            self._stopped.callback(None)

    def _run(self, call: Deferred[T], succeeded: Callable[[T], None]) -> None:
        """Wait for a call to the disk, then start the next. If it fails, waiting publishers are told."""
        self._busy = True

        def done(result: T) -> None:
            try:
                succeeded(result)
            finally:
                self._busy = False  # not earlier: a publisher may append again when answered, and comes after the group
            self._start_next()

        call.addCallbacks(done, self._failed)
        call.addErrback(self._not_applied)

    def _written(self, entries: tuple[Entry, ...], began_at: float, size: int) -> None:
        self._commit_seconds.observe(self._clock.seconds() - began_at)
        self._unsaved_bytes += size
        for entry in entries:
            self._tell(self._group, self._follower.apply(entry))
        self._progress_mark.note(self._follower.cursor)
        if self._file.has_erased:
            self._rewrite_soon()

    def _rewrite_soon(self) -> None:
        """If something was erased, rewrite the file within REWRITE_SECONDS; later calls do not delay it."""
        if self._file.has_erased and self._stopped is None:
            self._rewrite_timer.not_after(self._clock.seconds() + REWRITE_SECONDS)

    def _rewrite(self) -> None:
        self._is_time_to_rewrite = True
        self._start_next()

    def _tell(self, waiting: deque[Waiting], outcome: Outcome) -> None:
        """Answer the publisher of the first command."""
        _, on_outcome, size = waiting.popleft()
        self._room.leave(size)
        try:
            on_outcome(outcome)
        except Exception:
            _log.failure("could not answer a publisher")  # the others still can be, and the entry is on disk

    # The checkpoint.

    def _save_is_due(self) -> bool:
        count = self._follower.changed_count
        return count > 0 and (
            count >= SAVE_CHANGES
            or self._unsaved_bytes >= SAVE_BYTES
            or self._clock.seconds() >= self._saved_at + SAVE_SECONDS
        )

    def _saved(self, result: None) -> None:
        self._begin_checkpoint()

    def _begin_checkpoint(self, after: int | None = None) -> None:
        self._follower.note_changes(after)
        self._saved_at = self._clock.seconds()
        self._unsaved_bytes = 0

    # A failing disk.

    def _failed(self, failure: Failure) -> None:
        """Refuse all waiting commands, and retry until the disk works and shows which entries it has."""
        self._busy = False
        reason = failure.getErrorMessage()
        trouble = self._refuse(reason)
        while self._group:
            self._tell(self._group, Refusal.UNKNOWN_OUTCOME(reason))
        while self._waiting:
            self._tell(self._waiting, trouble)
        if self._stopped is not None:
            self._start_next()

    def _refuse(self, reason: str) -> PushUpError:
        """Refuse commands from now on, and look again soon; returns why."""
        self._outage_log.refused(reason)
        trouble = self._trouble = Refusal.UNWRITABLE(reason)
        if self._stopped is None:
            self._retry = self._clock.callLater(RETRY_SECONDS, self._recover)
        return trouble

    def _not_applied(self, failure: Failure) -> None:
        """An entry on disk could not be applied, because of a bug: no other entry may take its sequence."""
        is_news = self._outage_log.refused(failure.getErrorMessage())
        if is_news:
            _log.failure("could not apply an entry of the journal (a bug); publishing is refused", failure)
        self._failed(failure)

    def _recover(self) -> None:
        self._retry = None
        self._run(self._helpers.call(self._file.recover, self._follower.cursor.sequence), self._recovered)

    def _recovered(self, entries: list[Entry]) -> None:
        """Apply entries that were written though the call failed; a retry with the same key gets their outcome."""
        for entry in entries:
            self._follower.apply(entry)
        self._progress_mark.note(self._follower.cursor)
        self._trouble = None
        self._rewrite_soon()
        if self._first and self._first[0] != Continue(self._follower.cursor.epoch):
            for command in self._first:
                self.append(command, lambda outcome: None)
        self._outage_log.over()


_check: type[Broadcast] = Journal
