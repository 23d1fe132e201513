"""How sure a publisher can be that its message stays, and is everywhere: it waits, for a bounded time, and is told.

`replicated`: Redis says how many of its replicas have everything written so far (WAIT). All who ask while one WAIT runs
are answered by the next. `stable`: each node that lives has applied the entry (Mishra §2), as the nodes report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import hiredis
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from pushup.broadcast.members import Member
from pushup.broadcast.redis.connection import Lost
from pushup.broadcast.redis.connector import NotThere
from pushup.broadcast.redis.log import RedisLog
from pushup.core.commands import Ack, Confirmation
from pushup.timer import Timer


class _Waiting(Struct, eq=False):
    """Who waits until something is reached for the entry at `sequence`; at the deadline it is told what was."""

    ack: Ack
    sequence: int
    deadline: float
    then: Callable[[Confirmation], None]


class Confirmations:
    """The publishers that wait for more than their message's place."""

    def __init__(self, connect: Callable[[], Awaitable[RedisLog]], clock: IReactorTime) -> None:
        self._connect = connect
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._timer = Timer(clock, self._give_up_overdue)
        self._round: Deferred[None] | None = None
        self._log: RedisLog | None = None

    def confirm(self, ack: Ack, sequence: int, seconds: float, then: Callable[[Confirmation], None]) -> None:
        waiting = _Waiting(ack, sequence, self._clock.seconds() + seconds, then)
        self._waiting.append(waiting)
        self._timer.not_after(waiting.deadline)
        if ack == "replicated" and (self._round is None or self._round.called):
            self._round = Deferred.fromCoroutine(self._ask())

    def reported(self, members: list[Member]) -> None:
        """The nodes that live are these, and so far."""
        if not self._waiting:
            return
        reached = min((member.sequence for member in members), default=0)
        for waiting in [w for w in self._waiting if w.ack == "stable" and w.sequence <= reached]:
            self._tell(waiting, Confirmation("stable", nodes=len(members)))

    def stop(self) -> None:
        self._timer.stop()
        if self._round is not None:
            self._round.cancel()
        if self._log is not None:
            self._log.connection.abort("this node stops")
        for waiting in list(self._waiting):
            self._tell(waiting, Confirmation("accepted"))

    def _tell(self, waiting: _Waiting, confirmation: Confirmation) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.then(confirmation)

    def _give_up_overdue(self) -> None:
        now = self._clock.seconds()
        for waiting in [w for w in self._waiting if w.deadline <= now]:
            self._tell(waiting, Confirmation("accepted"))
        self._timer.not_after(min((w.deadline for w in self._waiting), default=None))

    async def _ask(self) -> None:
        """Ask Redis until nobody waits for its replicas, all who wait at a time together."""
        try:
            while together := [w for w in self._waiting if w.ack == "replicated"]:
                if self._log is None or self._log.connection.lost.called:
                    self._log = await self._connect()
                seconds = min(w.deadline for w in together) - self._clock.seconds()
                replicas = await self._log.replicas(max(seconds, 0.001))
                for waiting in together if replicas else ():
                    self._tell(waiting, Confirmation("replicated", replicas=replicas))
                if not replicas:
                    self._give_up_overdue()
        except CancelledError:
            pass  # this node stops
        except (NotThere, Lost, hiredis.ReplyError):
            # Not known is not reached; who still waits is told at its deadline, unless somebody asks again.
            self._log = None
