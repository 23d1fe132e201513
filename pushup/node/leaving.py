"""Who leaves: members that may, once every living node has answered the question about them (decision 39).

The order alone cannot tell a node that has nothing to say from one whose answer is on its way, because Redis or the
parent process has stood still. So nodes report up to which entry they have answered (`Member.answered`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast, Member
from pushup.clock import Timer
from pushup.core.attendance import Key, Leave
from pushup.core.state import ReplicatedState
from pushup.node.expiry import SPREAD_SECONDS

TOGETHER_AT_MOST = 100
"""Members in one entry."""

LEAVE_AT_MOST = 1000
"""Members that leave at a time; others the next time, half a second later."""

PATIENCE_SECONDS = 10.0
"""For so long a question waits for a node that reports and does not answer, for it cannot apply entries; and for others
to come back after the order could not be reached."""


class Leaving:
    """Appends `Leave`. Call `look` regularly, and `start_from` whenever the node has another state."""

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        state: Callable[[], ReplicatedState],
        members: Callable[[], list[Member]],
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        """`state`, `members`, `random`: as for `Presence`."""
        self._broadcast = broadcast
        self._state = state
        self._members = members
        self._clock = clock
        self._random = random
        self._asked: dict[float, int] = {}  # the places of questions, by the time at which their members may leave
        self._asked_before = 0  # the place of those that the state already contained
        self._refused_at = -math.inf
        self._timer = Timer(clock, self._append)

    def start_from(self) -> None:
        self._asked, self._asked_before = {}, self._state().cursor.sequence

    def asked(self, keys: Iterable[Key]) -> None:
        """The entry applied last asks about these members."""
        state = self._state()
        for key in keys:
            if (row := state.members.member(key)) is not None:
                self._asked[row.leaves_at] = state.cursor.sequence

    def look(self) -> None:
        """Append soon, if there are members that may leave."""
        now, next_leave = self._clock.seconds(), self._state().members.next_leave
        if self._broadcast.why_not_ready() is not None:
            self._refused_at = now
        first = math.inf if next_leave is None else next_leave
        self._asked = {at: place for at, place in self._asked.items() if at >= first}
        if first <= self._broadcast.now():
            self._timer.not_after(now + SPREAD_SECONDS * self._random())

    def stop(self) -> None:
        self._timer.stop()

    def _append(self) -> None:
        if self._clock.seconds() >= self._refused_at + PATIENCE_SECONDS:  # or others may have yet to come back
            time, answered, members = self._broadcast.now(), self._answered_by_all(), self._state().members
            keys = []
            for key in members.due(time, LEAVE_AT_MOST):
                row = members.member(key)
                assert row is not None
                place = self._asked.get(row.leaves_at, self._asked_before)
                if place <= answered or row.leaves_at <= time - PATIENCE_SECONDS:
                    keys.append(key)
            for n in range(0, len(keys), TOGETHER_AT_MOST):
                self._broadcast.append(Leave(tuple(keys[n : n + TOGETHER_AT_MOST])), lambda _: None)

    def _answered_by_all(self) -> int:
        """All living nodes have answered the questions up to this entry."""
        epoch = self._state().cursor.epoch
        least = self._state().cursor.sequence
        for member in self._members():
            its_epoch, _, applied = member.cursor.rpartition("-")
            answered = int(applied) if member.answered is None else member.answered  # None: of an earlier release
            least = min(least, answered if its_epoch == epoch else -1)
        return least
