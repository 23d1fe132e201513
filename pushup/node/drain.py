"""Draining: a stopping node answers its held polls over some time, so that clients do not reach other nodes at once.

It serves on until the load balancers that ask it /readyz have noticed that it is not ready. A node that an operator
takes out of rotation does the same, and then serves whoever still comes, until it is stopped or taken back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from pushup.clock import Timer
from pushup.core.held_polls import SLICE

STEP_SECONDS = 0.1
"""How often some of the held polls are answered."""

HOLD_SECONDS = 1.0
"""A draining node holds a new poll for at most this long, and at least half of it, at random. If it answered at once,
the client would return at once, hundreds of times a second: balancers prefer the node with few connections."""

RECENT_SECONDS = 30.0
"""Whoever has asked /readyz within this time is a load balancer that may still send requests."""

REFUSALS = 3
"""How often a balancer is refused before it has surely noticed: the usual threshold (`fall` of HAProxy)."""

BALANCERS_LIMIT = 64
"""How many are remembered; a client that pretends to be many can only make a stop take `drain_seconds`."""


class DrainLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node stops."""

    drain_seconds: float = 5.0
    """On shutdown, held polls are answered over this many seconds, so that their clients do not reach the other nodes
    all at once. It is also the longest wait for load balancers to notice."""


class Drain:
    """One drain. It ends at `end` (monotonic), when every held poll is answered; then `done` fires.

    If no poll is held when it begins, it ends as soon as every balancer has noticed.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        *,
        balancers: list[str],
        held: Callable[[], int],
        answer: Callable[[int], None],
    ) -> None:
        """`held` counts the held polls; `answer` answers this many of them, those with the latest deadlines first."""
        self._clock = clock
        self._held = held
        self._answer = answer
        self._unaware = dict.fromkeys(balancers, REFUSALS)
        self._waiting = held()  # how many of those held when it began still are
        self._is_empty = not self._waiting
        self._timer = Timer(clock, self.step)
        self.end = clock.seconds() + (seconds if balancers or not self._is_empty else 0.0)
        self.done: Deferred[None] = Deferred()

    def refused(self, host: str) -> None:
        """/readyz has answered this machine that the node is not ready."""
        left = self._unaware.get(host, 0) - 1
        if left > 0:
            self._unaware[host] = left
            return
        self._unaware.pop(host, None)
        if self._is_empty and not self._unaware and not self.done.called:
            self.end = self._clock.seconds()
            self._timer.stop()
            self.step()

    def cancel(self) -> None:
        """Answer no more polls; `done` never fires."""
        self._timer.stop()

    def hold_seconds(self, timeout: float, random: float) -> float:
        """How long to hold a poll that arrives now; `random` is in [0, 1)."""
        left = self.end - self._clock.seconds()
        return max(0.0, min(timeout, HOLD_SECONDS * (1 - random / 2), left))

    def step(self) -> None:
        """Answer the held polls whose turn it is, a slice at most.

        New polls are held briefly, so the old ones have the latest deadlines; at the end all polls are answered.
        """
        held, left = self._held(), max(0.0, self.end - self._clock.seconds())
        if not held and not left:
            self.done.callback(None)
            return
        waiting = min(self._waiting, held) if left else held
        steps = max(1, math.ceil(waiting / SLICE), min(waiting, math.ceil(left / STEP_SECONDS)))
        share = math.ceil(waiting / steps)
        self._answer(share)
        self._waiting = waiting - share
        self._timer.not_after(self._clock.seconds() + left / steps)


class Draining:
    """Whether a node drains, because it stops or because an operator has taken it out of rotation."""

    def __init__(
        self, clock: IReactorTime, seconds: float, *, held: Callable[[], int], answer: Callable[[int], None]
    ) -> None:
        """`seconds`: how long it takes if an operator asks for it. The others: see `Drain`."""
        self._clock = clock
        self._seconds = seconds
        self._held = held
        self._answer = answer
        self._asked_at: dict[str, float] = {}  # by which balancers; the longest ago first
        self.drain: Drain | None = None
        """The one under way, or that has led to the end of the node."""
        self._is_stopping = False
        self.is_out = False
        """Whether it is out of rotation."""
        self.on_out: Callable[[bool], None] = lambda is_out: None
        """Called when that changes."""

    @property
    def sends_away(self) -> bool:
        """Whether new clients should go to other nodes."""
        return self.is_out or self.drain is not None

    def asked(self, host: str) -> None:
        """A load balancer at this address has asked whether the node is ready, and gets the answer. O(1)."""
        self._asked_at.pop(host, None)
        self._asked_at[host] = self._clock.seconds()
        if len(self._asked_at) > BALANCERS_LIMIT:
            del self._asked_at[next(iter(self._asked_at))]
        if self.drain is not None:
            self.drain.refused(host)

    def balancers(self) -> list[str]:
        """The machines that have recently asked."""
        since = self._clock.seconds() - RECENT_SECONDS
        return [host for host, at in self._asked_at.items() if at >= since]

    def begin(self, seconds: float) -> Deferred[None]:
        """Drain, to stop. Balancers that have noticed that the node is out of rotation are not waited for again."""
        has_been_out = self.is_out and self.drain is None
        self._is_stopping = True
        return self._begin(seconds, [] if has_been_out else self.balancers())

    def set_out(self, is_out: bool) -> None:
        """Take the node out of rotation, or back; nothing changes while it stops."""
        if is_out == self.is_out or self._is_stopping:
            return
        self.is_out = is_out
        self.on_out(is_out)
        if is_out:
            self._begin(self._seconds, self.balancers()).addCallback(self._forget)
        elif self.drain is not None:
            self.drain.cancel()
            self.drain = None

    def _begin(self, seconds: float, balancers: list[str]) -> Deferred[None]:
        if self.drain is not None:
            self.drain.cancel()
        self.drain = Drain(self._clock, seconds, balancers=balancers, held=self._held, answer=self._answer)
        self.drain.step()
        return self.drain.done

    def _forget(self, _: None) -> None:
        self.drain = None
