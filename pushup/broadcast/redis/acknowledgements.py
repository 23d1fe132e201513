"""Acknowledgements: publishers that wait until their entry is read back, and those that want a stronger one then.

A command counts in the waiting room until its entry is read back, and Redis has answered it: a publisher is answered at
its deadline at the latest, but its command may still be in a buffer then.

Those who want more wait for a bounded time:
`replicated`: a replica of Redis has received the entry (WAIT). Requests that come during one WAIT share the next.
`stable`: every living node has applied the entry (Mishra §2), according to the nodes' reports.

Neither may be reported too early, in any epoch. A sequence means nothing outside its epoch, so whole cursors are
compared. WAIT is about one run of Redis: it counts only if this node has found all that it applied in that run, and
only for entries that the log contained when WAIT began. The list of nodes may be incomplete after Redis has lost
something: then nothing is stable until every living node has reported again, or its lease would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast import Member, OnConfirmation, OnOutcome
from pushup.broadcast.admission import WaitingRoom
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.clock import Timer
from pushup.core.commands import Ack, Command, Confirmation, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import Refusal

DEADLINE_STEP_SECONDS = 1 / 16
"""Deadlines are rounded up to a multiple of this: at each, all waiting requests are checked."""

_log = Logger()


class PendingPublishers:
    """The waiting publishers, by the tag of their entry; each is answered once."""

    def __init__(self, clock: IReactorTime, timeout: float, room: WaitingRoom) -> None:
        """`timeout`: how long a publisher waits, in seconds, before it is told that the outcome is not known."""
        self._clock = clock
        self._timeout = timeout
        self._room = room
        self._waiting: dict[bytes, tuple[float, OnOutcome, int]] = {}  # in the order of their deadlines
        self._unanswered: dict[bytes, int] = {}  # sizes of the commands
        self._deadline = Timer(clock, self._give_up_overdue)

    def add(self, tag: bytes, command: Command, on_outcome: OnOutcome) -> bool:
        """Have a publisher wait; returns False if there is no room, and it was refused."""
        size = self._room.enter(command)
        if not size:
            on_outcome(self._room.full())
            return False
        deadline = self._clock.seconds() + self._timeout
        self._waiting[tag] = (deadline, on_outcome, size)
        self._unanswered[tag] = size
        if len(self._waiting) == 1:
            self._deadline.not_after(deadline)
        return True

    def command_answered(self, tag: bytes) -> None:
        """Redis has answered the command, or the connection has ended. No buffer holds the command now."""
        size = self._unanswered.pop(tag)
        if tag not in self._waiting:
            self._room.leave(size)

    def tell(self, tag: bytes, outcome: Outcome) -> None:
        """Answer the publisher of this entry, if it waits here."""
        waiting = self._waiting.pop(tag, None)
        if waiting is not None:
            _, on_outcome, size = waiting
            if tag not in self._unanswered:
                self._room.leave(size)
            try:
                on_outcome(outcome)
            except Exception:
                _log.failure("could not answer a publisher")

    def stop(self) -> None:
        """Answer all publishers: their outcomes are not known."""
        self._deadline.stop()
        for tag in list(self._waiting):
            self.tell(tag, Refusal.UNKNOWN_OUTCOME("the server stopped before the entry was read back from Redis"))

    def abort(self) -> None:
        """Stop without answering anybody."""
        self._deadline.stop()
        self._waiting.clear()

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        while self._waiting:
            tag, (deadline, _, _) = next(iter(self._waiting.items()))
            if deadline > now:
                self._deadline.not_after(deadline)
                return
            why = f"the entry was not read back from Redis within {self._timeout:g} s"
            self.tell(tag, Refusal.UNKNOWN_OUTCOME(why))


class _Waiting(Struct, eq=False):
    """A publisher that waits until the entry at `cursor` has reached `ack`, or until the deadline."""

    ack: Ack
    cursor: Cursor
    deadline: float
    on_confirmation: OnConfirmation


class Confirmations:
    """The publishers that wait for a stronger acknowledgement."""

    def __init__(self, connect: Callable[[], Awaitable[RedisLog]], clock: IReactorTime) -> None:
        self._connect = connect
        self._clock = clock
        self._waiting: dict[_Waiting, None] = {}  # in order of arrival
        self._timer = Timer(clock, self._give_up_overdue)
        self._round: Deferred[None] | None = None
        self._log: RedisLog | None = None
        # The run of Redis in which this node has found all that it applied; empty while it does not follow the log.
        self._run = ""
        self._last_run = ""
        self._members_known_at = 0.0

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        deadline = math.ceil((self._clock.seconds() + seconds) / DEADLINE_STEP_SECONDS) * DEADLINE_STEP_SECONDS
        self._waiting[_Waiting(ack, cursor, deadline, on_confirmation)] = None
        self._timer.not_after(deadline)
        if ack == "replicated":
            self._begin_round()

    def follows(self, run: str) -> None:
        """This node has found all that it applied in this run of Redis; empty: it does not follow the log now."""
        self._run = run
        if run and run != self._last_run:
            self._last_run = run
            self._members_known_at = self._clock.seconds() + LEASE_SECONDS

    def reported(self, members: list[Member], *, complete: bool) -> None:
        """These nodes are alive. `complete`: no other node can be."""
        if not self._waiting:
            return
        applied = applied_by_all(members)
        if complete and applied is not None and self._clock.seconds() >= self._members_known_at:
            epoch, sequence = applied.epoch, applied.sequence
            for waiting in [w for w in self._waiting if w.ack == "stable"]:
                if waiting.cursor.epoch == epoch and waiting.cursor.sequence <= sequence:
                    self._tell(waiting, Confirmation("stable", nodes=len(members)))
        if any(w.ack == "replicated" for w in self._waiting):
            self._begin_round()

    def stop(self) -> None:
        """Answer all that wait: no more than `accepted` was reached."""
        waiting = list(self._waiting)
        self._end()
        for each in waiting:
            self._tell(each, Confirmation("accepted"))

    def abort(self) -> None:
        """Stop without answering anybody."""
        self._waiting.clear()
        self._end()

    def _end(self) -> None:
        self._timer.stop()
        if self._round is not None:
            self._round.cancel()
        self._disconnect("this node stops")

    def _tell(self, waiting: _Waiting, confirmation: Confirmation) -> None:
        if waiting in self._waiting:
            del self._waiting[waiting]
            try:
                waiting.on_confirmation(confirmation)
            except Exception:
                _log.failure("could not answer a publisher")  # the others still can be

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        for waiting in [w for w in self._waiting if w.deadline <= now]:
            self._tell(waiting, Confirmation("accepted"))
        self._timer.not_after(min((w.deadline for w in self._waiting), default=None))

    def _begin_round(self) -> None:
        if self._run and (self._round is None or self._round.called):
            self._round = Deferred.fromCoroutine(self._ask())

    async def _ask(self) -> None:
        """Ask Redis about its replicas, for all waiting publishers at once, while any could be answered."""
        missing: set[_Waiting] = set()  # their entries are not in the log: of another epoch, or lost
        try:
            while together := [w for w in self._waiting if w.ack == "replicated" and w not in missing]:
                if self._log is None or self._log.connection.has_ended:
                    self._log = await self._connect()
                log = self._log
                if log.run != self._run:
                    self._disconnect("Redis was restarted or replaced")
                    return  # until the next report
                seconds = min(w.deadline for w in together) - self._clock.seconds()
                end, replicas = await log.replicas(max(seconds, 0.001))
                for waiting in together if replicas else ():
                    if end.includes(waiting.cursor):
                        self._tell(waiting, Confirmation("replicated", replicas=replicas))
                    else:
                        missing.add(waiting)
                if not replicas:
                    self._give_up_overdue()
        except CancelledError:
            pass  # this node stops
        except (CannotConnect, Lost, ErrorReply) as error:
            self._disconnect(str(error))  # the next report starts another round
        except Exception:
            _log.failure("asking Redis about its replicas failed; publishers are told `accepted`")
            self._disconnect("asking about replicas failed")

    def _disconnect(self, reason: str) -> None:
        if self._log is not None:
            self._log.connection.abort(reason)
            self._log = None


def applied_by_all(members: list[Member]) -> Cursor | None:
    """The last entry that all of them are known to have applied; None if they are in different epochs."""
    places = [member.cursor.rpartition("-") for member in members]
    epochs = {epoch for epoch, _, _ in places}
    if len(epochs) != 1:
        return None
    return Cursor(epochs.pop(), min(int(sequence) for _, _, sequence in places))
