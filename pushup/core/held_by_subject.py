"""The polls and streams that a node holds for each subject, so that they can be ended before their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.held_polls import SLICE


class HeldOnGrant(Protocol):
    """A held poll or an open stream, and what allows it."""

    @property
    def grant(self) -> Grant: ...
    def end(self, error: PushUpError, /) -> None:
        """Tell its client why it ends. It calls `discard`; if it has ended already it does nothing."""


class HeldBySubject:
    """Contains nothing without a subject, and nothing that has ended. Each change is O(1)."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls its argument later, in this turn of the reactor or the next."""
        self._soon = soon
        self._held: dict[str, dict[HeldOnGrant, None]] = {}  # in order of arrival, the same in each run of a simulation

    @property
    def subjects(self) -> frozenset[str]:
        """Those for whom something is held. O(their number)."""
        return frozenset(self._held)

    def of(self, subject: str) -> tuple[HeldOnGrant, ...]:
        """What is held for a subject, the oldest first."""
        return tuple(self._held.get(subject, ()))

    def add(self, held: HeldOnGrant) -> None:
        subject = held.grant.subject
        if subject:
            self._held.setdefault(subject, {})[held] = None

    def discard(self, held: HeldOnGrant) -> None:
        """It has ended, in whatever way."""
        subject = held.grant.subject
        of_subject = self._held.get(subject)
        if of_subject is not None:
            of_subject.pop(held, None)
            if not of_subject:
                del self._held[subject]

    def end(self, subject: str, issued_before: float, error: PushUpError) -> None:
        """End what is held for a subject on grants issued before this time (seconds since the epoch), in slices.

        What arrives later, or is answered before its slice, is not ended: refuse such grants first. The times are whole
        seconds by the clocks of the nodes that issued them, which may differ by some seconds.
        """
        ending = [held for held in self._held.get(subject, ()) if held.grant.issued_at < issued_before]
        self._end_some(iter(ending), error)

    def _end_some(self, ending: Iterator[HeldOnGrant], error: PushUpError) -> None:
        count = 0
        for held in islice(ending, SLICE):
            held.end(error)
            count += 1
        if count == SLICE:
            self._soon(partial(self._end_some, ending, error))
