"""Stability: how far each member holds all updates, as this member knows it from decisions.

A member says in its own decisions how far it holds everything, including what it orders there. So all know that an
update is stable when each other member has sent a decision after that. (The paper leaves this to [5]; acknowledgements
in decisions, without messages of their own, follow from its Table 3, where there are no other messages than proposals
and decisions.)
"""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.mishra.core.messages import Decision


class Stability:
    """Levels are ordinals: `stable`, which every member of the group holds; `majority`, most of the team."""

    def __init__(self, majority: int) -> None:
        self._majority = majority
        self._view = 0
        self._held: dict[int, int] = {}

    def learn(self, decision: Decision, *, member: int, up_to: int) -> None:
        """Take what a decision says, and how far this member holds everything itself."""
        if decision.view != self._view:
            self._view = decision.view
            self._held = {}
        for place in decision.places:
            self._held[place.member] = max(place.held, self._held.get(place.member, 0))
        self._held[member] = max(up_to, self._held[member])

    def of(self, member: int) -> int:
        return self._held[member]

    @property
    def stable(self) -> int:
        return min(self._held.values(), default=0)

    @property
    def majority(self) -> int:
        return level(tuple(self._held.values()), self._majority)


def level(held: Sequence[int], count: int) -> int:
    """The greatest ordinal up to which so many hold everything; 0 if there are fewer of them."""
    return sorted(held, reverse=True)[count - 1] if len(held) >= count else 0
