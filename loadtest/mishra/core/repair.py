"""Repair of losses: which updates to ask for, and which own ones to send again. Ours; the paper does not say how.

Both are looked at when a decision comes, and at most once each `period`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from loadtest.mishra.core.history import History
from loadtest.mishra.core.messages import Decision, Id, Update

REQUESTED = 100
"""Updates asked for at a time."""

RESENT = 10
"""Own updates sent again at a time, the oldest: only what is missing holds back the others."""


class Asked(NamedTuple):
    """Ask this member for these updates."""

    member: int
    ids: tuple[Id, ...]


class Repair:
    """A member's. `period`: seconds."""

    def __init__(self, member: int, period: float) -> None:
        self._member = member
        self._period = period
        self._asked_at = self._resent_at = -math.inf
        self._asked = 0
        self._missed: Id | None = None

    def ask(self, history: History, decision: Decision, now: float) -> Asked | None:
        """Ask for what has been missing since the decision before; first the decider, then the others in turn.

        What only this decision has overtaken will come by itself.
        """
        missing = tuple(islice(history.missing(), REQUESTED))
        others = [member for member in decision.members if member != self._member]
        before, self._missed = self._missed, missing[0] if missing else None
        if not missing:
            self._asked = 0
        if not missing or not others or missing[0] != before or now - self._asked_at < self._period:
            return None
        self._asked_at = now
        first = others.index(decision.decider) if decision.decider in others else 0
        member = others[(first + self._asked) % len(others)]
        self._asked += 1
        return Asked(member, missing)

    def resend(self, history: History, time: float, now: float) -> Iterable[Update]:
        """Own updates that should have their ordinals by now. `time`: synchronized."""
        if now - self._resent_at < self._period:
            return ()
        self._resent_at = now
        return tuple(islice(self._overdue(history, time - self._period), RESENT))

    def _overdue(self, history: History, before: float) -> Iterator[Update]:
        for update in history.loose.values():
            if update.proposer == self._member and update.stamp < before:
                yield update
