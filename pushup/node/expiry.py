"""Expiry of the shared state: like every change of it, an entry, which a node appends when something is due."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast
from pushup.clock import Timer
from pushup.core.commands import Expire, Outcome
from pushup.core.errors import PushUpError
from pushup.core.state import ReplicatedState

EXPIRY_SECONDS = 1.0
"""How late something may expire while no entry comes. All that is due within this time takes one entry."""

LONGEST_SLEEP_SECONDS = 10.0
"""When to look again at the latest. What is due is compared with the time of the order, which may be set (Redis) or run
a little faster than the clock of the timer."""

SPREAD_SECONDS = 0.5
"""What any node may append (`Leave`, `Claim`), each appends after a random part of this, so that usually one does."""


class Expiry:
    """Appends `Expire` entries, one at a time, between `start` and `stop`.

    It sleeps until something is due, and looks at whole steps of EXPIRY_SECONDS since its start: if all nodes looked at
    the moment when something is due, each would append an entry.
    """

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        state: Callable[[], ReplicatedState],
        clock: IReactorTime,
        soon: Callable[[Callable[[], None]], None],
        on_look: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`state`: the present one. Those of `on_look` are called a second after an entry at the latest, and then
        every 10 s while something is kept.
        """
        self._broadcast = broadcast
        self._state = state
        self._clock = clock
        self._soon = soon
        self._on_look = on_look
        self._timer = Timer(clock, self._look)
        self._began = clock.seconds()
        self._is_running = False
        self._is_appending = False
        self.is_asleep = False
        """Whether it does not look at the next step. If the state changes then, call `wake`."""

    def start(self) -> None:
        self._began = self._clock.seconds()
        self._is_running = True
        self.wake()

    def stop(self) -> None:
        self._is_running = self.is_asleep = False
        self._timer.stop()

    def wake(self) -> None:
        """Look at the next step: something may be due earlier than it was."""
        self.is_asleep = False
        self._look_in(0.0)

    def _look_in(self, seconds: float) -> None:
        """Look at the first step after so many seconds."""
        now, began = self._clock.seconds(), self._began
        time = began + math.ceil((now + seconds - began) / EXPIRY_SECONDS) * EXPIRY_SECONDS
        self._timer.not_after(time if time > now else time + EXPIRY_SECONDS)

    def _look(self) -> None:
        if not self._is_running:
            return
        for look in self._on_look:
            look()
        self.is_asleep = True
        due = self._state().next_expiry
        if due is None or self._is_appending:
            return
        left = due - self._broadcast.now()
        if left > 0:
            self._look_in(min(left, LONGEST_SLEEP_SECONDS))
        else:
            self._is_appending = True
            self._broadcast.append(Expire(), self._expired)

    def _expired(self, outcome: Outcome) -> None:
        self._is_appending = False
        state = self._state()
        due = state.next_expiry
        if not isinstance(outcome, PushUpError) and due is not None and due <= state.time:
            self._soon(self._look)  # more was due than one entry expires
        elif self.is_asleep:
            self.wake()
