"""What a process knows of others that are no members of its group, and its calls for a new view.

Ours; the paper leaves the protocol to [6], and says of it (§2): a no-decision message tells of a suspicion, a join
message asks to be let in, a reconfiguration message disseminates who is alive; a timeout elects the next decider.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.mishra.core.messages import Reconfiguration

RECENT_JOINS = 3
"""A join message counts for so many periods."""


@dataclass(slots=True)
class Call:
    """Our call for a view. It is over when all have answered of whom we expect it, or at the election timeout."""

    view: int
    expected: frozenset[int]
    answers: dict[int, Reconfiguration] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.expected <= self.answers.keys()


class Membership:
    """`promised`: the highest view we have agreed to; decisions of earlier ones are not followed any more."""

    def __init__(self, member: int, team: int, join_period: float) -> None:
        self._member = member
        self._team = team
        self._join_period = join_period
        self._highest = 0
        self._installed = 0
        self._joins: dict[int, float] = {}
        self._group_heard_at = float("-inf")
        self.promised = 0
        self.call: Call | None = None

    def see(self, view: int) -> None:
        """Remember that somebody has named this view; ours will be higher."""
        self._highest = max(self._highest, view)

    def hear_join(self, sender: int, promised: int, now: float) -> None:
        self._joins[sender] = now
        self.see(promised)

    def hear_group(self, now: float) -> None:
        """A decision came from a group that we are not in."""
        self._group_heard_at = now

    def joining(self, now: float) -> set[int]:
        """Who asked to join of late."""
        return {other for other, at in self._joins.items() if now - at <= RECENT_JOINS * self._join_period}

    def should_call(self, now: float) -> bool:
        """Whether we, outside of any group, begin one: most of the team is outside as well, and we are the first."""
        if now - self._group_heard_at <= RECENT_JOINS * self._join_period:
            return False
        outside = self.joining(now) | {self._member}
        return len(outside) > self._team // 2 and min(outside) == self._member

    def promise(self, view: int) -> bool:
        """Agree to a view that another calls for, unless we have agreed to a later one."""
        self.see(view)
        if view <= self.promised:
            return False
        self.promised = view
        self.call = None
        return True

    def begin_call(self, members: set[int], now: float) -> Call:
        """Call for a view of these members and whoever asked to join. Views of two callers are never the same."""
        self._highest = self.promised = (
            max(self._highest, self.promised) // self._team + 1
        ) * self._team + self._member
        self.call = Call(self.promised, frozenset(members | self.joining(now) | {self._member}))
        return self.call

    def install(self, view: int) -> None:
        """We follow a decision of this view. When it is new, whoever is not in it has to ask again."""
        if view != self._installed:
            self._joins.clear()
            self._installed = view
        self.see(view)
        self.promised = max(self.promised, view)
        self.call = None
