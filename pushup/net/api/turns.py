"""Publishers take turns when more publications arrive than can be carried out, so that polls and others do not wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred

from pushup.core.errors import PushUpError, Refusal
from pushup.metrics import Metrics
from pushup.net.wait.demultiplexer import Demultiplexer

AT_ONCE = 16
"""Publications that are carried out at once of those that arrive in one batch: 2 ms of work."""

LIMIT_BYTES = 16 * 1024 * 1024
"""Memory for the bodies of those that wait."""


class _Waiting(NamedTuple):
    since: float
    size: int
    turn: Deferred[None]


class PublisherTurns:
    """Those that wait, by publisher: each publisher has one turn, and then all others have theirs."""

    def __init__(
        self, demultiplexer: Demultiplexer, metrics: Metrics, seconds: Callable[[], float], limit_seconds: float
    ) -> None:
        """`seconds` of a monotonic clock. Who has waited for longer than the limit is refused."""
        self._demultiplexer = demultiplexer
        self._metrics = metrics
        self._seconds = seconds
        self._limit_seconds = limit_seconds
        self._at_once = 0
        self._waiting: dict[str, deque[_Waiting]] = {}  # the first is the next
        self._bytes = 0

    def wait(self, publisher: str, size: int) -> Deferred[None] | None:
        """The turn of a publication with a body of this size; None: it has its turn now.

        Raises: PushUpError, also as the failure of the turn.
        """
        if self._at_once < AT_ONCE and not self._waiting:
            if not self._at_once:
                self._demultiplexer.soon(self._next_batch)
            self._at_once += 1
            return None
        if self._bytes + size > LIMIT_BYTES:
            raise self._refused(f"{LIMIT_BYTES} bytes wait already")
        turn: Deferred[None] = Deferred()
        self._bytes += size
        self._waiting.setdefault(publisher, deque()).append(_Waiting(self._seconds(), size, turn))
        self._demultiplexer.in_turn(self._next)
        return turn

    def _next_batch(self) -> None:
        self._at_once = 0

    def _next(self) -> None:
        """Called once for each that waits."""
        publisher = next(iter(self._waiting))
        waiting = self._waiting.pop(publisher)
        since, size, turn = waiting.popleft()
        if waiting:
            self._waiting[publisher] = waiting
        self._bytes -= size
        if self._seconds() - since > self._limit_seconds:
            turn.errback(self._refused(f"turn_limit_seconds = {self._limit_seconds:g}"))
        else:
            turn.callback(None)

    def _refused(self, why: str) -> PushUpError:
        refusal = Refusal.BUSY
        self._metrics.refused_publications[refusal.kind] += 1
        return refusal(detail=f"{refusal.detail} ({why})")
