"""Stronger acknowledgements: publishers that wait, for a bounded time, until their entry is replicated or stable.

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

from pushup.broadcast import OnConfirmation
from pushup.broadcast.members import Member, applied_by_all
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.broadcast.redis.redis_errors import CannotConnect, ErrorReply, Lost
from pushup.core.commands import Ack, Confirmation
from pushup.core.cursor import Cursor
from pushup.deadline_timer import Timer

DEADLINE_STEP_SECONDS = 1 / 16
"""Deadlines are rounded up to a multiple of this: at each, all waiting requests are checked."""

_log = Logger()


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
                if self._log is None or self._log.connection.lost.called:
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
