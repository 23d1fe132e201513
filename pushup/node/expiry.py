"""Expiry of the shared state: like every change of it, an entry, which a node appends when something is due."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from pushup.broadcast import Broadcast
from pushup.core.commands import Expire, Outcome
from pushup.core.errors import PushUpError
from pushup.core.state import ReplicatedState

EXPIRY_SECONDS = 1.0
"""How often to check whether anything is due to expire while no entry comes; so also how late it may expire."""

_log = Logger()


class Expiry:
    """Appends `Expire` entries, one at a time, between `start` and `stop`."""

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        state: Callable[[], ReplicatedState],
        clock: IReactorTime,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`state`: the present one."""
        self._broadcast = broadcast
        self._state = state
        self._soon = soon
        self._is_appending = False
        self._checking = LoopingCall(self._check)
        self._checking.clock = clock

    def start(self) -> None:
        self._checking.start(EXPIRY_SECONDS, now=False).addErrback(
            lambda failure: _log.failure("the expiry loop failed; messages and channels no longer expire", failure)
        )

    def stop(self) -> None:
        if self._checking.running:
            self._checking.stop()

    def _check(self) -> None:
        due = self._state().next_expiry
        if due is not None and due <= self._broadcast.now() and not self._is_appending:
            self._is_appending = True
            self._broadcast.append(Expire(), self._expired)

    def _expired(self, outcome: Outcome) -> None:
        self._is_appending = False
        state = self._state()
        due = state.next_expiry
        if not isinstance(outcome, PushUpError) and due is not None and due <= state.time:
            self._soon(self._check)  # more was due than one entry expires
