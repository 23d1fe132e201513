"""Draining: a stopping node answers its held polls over some time, so that clients do not reach other nodes at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

SLICE = 256
"""Answers in one turn of the reactor: about 4 ms, so that other connections get their turn in between."""

STEP_SECONDS = 0.1
"""How often some of the held polls are answered."""

HOLD_SECONDS = 1.0
"""A draining node holds a new poll for at most this long, and at least half of it, at random. If it answered at once,
the client would return at once, hundreds of times a second: balancers prefer the node with few connections."""


class DrainLimits(Struct, frozen=True, kw_only=True):
    """How a node stops."""

    drain_seconds: float = 5.0
    """On shutdown, held polls are answered over this many seconds, so that their clients do not reach the other nodes
    all at once."""


class Drain:
    """One drain. It ends at `end` (monotonic), when everybody is answered; then `done` fires."""

    def __init__(
        self, clock: IReactorTime, seconds: float, *, held: Callable[[], int], answer: Callable[[int], None]
    ) -> None:
        """`held` counts the held polls; `answer` answers this many of them, those with the latest deadlines first."""
        self._clock = clock
        self._held = held
        self._answer = answer
        self.end = clock.seconds() + seconds
        self.done: Deferred[None] = Deferred()

    def start(self) -> None:
        self._step(self._held())

    def hold_seconds(self, timeout: float, random: float) -> float:
        """How long to hold a poll that arrives now; `random` is in [0, 1)."""
        left = self.end - self._clock.seconds()
        return max(0.0, min(timeout, HOLD_SECONDS * (1 - random / 2), left))

    def _step(self, waiting: int) -> None:
        """Answer the held polls whose turn it is, a slice at most.

        `waiting`: how many of those held when the drain began still are. New polls are held briefly, so the old ones
        have the latest deadlines; at the end everybody is answered.
        """
        held, left = self._held(), max(0.0, self.end - self._clock.seconds())
        if not held and not left:
            self.done.callback(None)
            return
        waiting = min(waiting, held) if left else held
        steps = max(1, math.ceil(waiting / SLICE), min(waiting, math.ceil(left / STEP_SECONDS)))
        share = math.ceil(waiting / steps)
        self._answer(share)
        self._clock.callLater(left / steps, self._step, waiting - share)
