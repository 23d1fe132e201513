"""Termination: what became of each own update, told once and in time. The paper names the semantic; how is ours."""

from __future__ import annotations

from loadtest.mishra.core.effects import Ended, Outcome
from loadtest.mishra.core.messages import Entry, Fate

OUTCOMES = {Fate.DELIVERED: Outcome.STABLE, Fate.LATE: Outcome.LATE, Fate.LOST: Outcome.UNKNOWN}
"""Of an entry that is stable."""


class Termination:
    """A member's own updates whose outcome it has not been told. `seconds`: the longest that this may take."""

    def __init__(self, member: int, seconds: float) -> None:
        self._member = member
        self._seconds = seconds
        self._due: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, sequence: int, now: float) -> None:
        """An update is proposed."""
        self._due[sequence] = now + self._seconds

    def settle(self, entries: list[Entry]) -> list[Ended]:
        """These entries are stable."""
        own = (entry for entry in entries if entry.proposer == self._member)
        return [
            Ended(entry.sequence, OUTCOMES[entry.fate])
            for entry in own
            if self._due.pop(entry.sequence, None) is not None
        ]

    def expire(self, now: float) -> list[Ended]:
        """The time of these is over."""
        over = []
        for sequence, due in self._due.items():  # in the order of their times
            if due > now:
                break
            over.append(sequence)
        return [self._unknown(sequence) for sequence in over]

    def give_up(self) -> list[Ended]:
        """This process has left the group, or begins anew."""
        return [self._unknown(sequence) for sequence in list(self._due)]

    def _unknown(self, sequence: int) -> Ended:
        del self._due[sequence]
        return Ended(sequence, Outcome.UNKNOWN)
