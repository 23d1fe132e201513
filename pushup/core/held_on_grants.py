"""The polls and streams that a node holds on tokens, tickets and keys, so that they can be ended before their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from pushup.core.errors import PushUpError
from pushup.core.grant import Grant
from pushup.core.held_polls import SLICE
from pushup.core.poll import Selection


class HeldOnGrant(Protocol):
    """A held poll or an open stream, and what allows it."""

    @property
    def grant(self) -> Grant: ...
    @property
    def selection(self) -> Selection: ...
    def end(self, error: PushUpError, /) -> None:
        """Tell its client why it ends. It calls `discard`; if it has ended already it does nothing."""


Why = Callable[[Grant], PushUpError | None]
"""Why what is held on a grant ends now; None: it goes on."""


class HeldOnGrants:
    """Contains nothing that has ended, and nothing whose grant has no name (`Grant.names`). Each change is O(1)."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], None],
        on_add: Callable[[HeldOnGrant], None],
        on_discard: Callable[[HeldOnGrant], None],
    ) -> None:
        """`soon` calls its argument later, in this turn of the reactor or the next. The others are told of each."""
        self._soon = soon
        self._on_add = on_add
        self._on_discard = on_discard
        self._held: dict[str, dict[HeldOnGrant, None]] = {}  # in order of arrival, the same in each run of a simulation

    def of(self, name: str) -> tuple[HeldOnGrant, ...]:
        """What is held for a subject, or on a token or a key, as `Grant.names` calls it; the oldest first."""
        return tuple(self._held.get(name, ()))

    @property
    def names(self) -> frozenset[str]:
        """The subjects, tokens and keys for which something is held. O(their number)."""
        return frozenset(self._held)

    def add(self, held: HeldOnGrant) -> None:
        self._on_add(held)
        for name in held.grant.names:
            self._held.setdefault(name, {})[held] = None

    def discard(self, held: HeldOnGrant) -> None:
        """It has ended, in whatever way."""
        self._on_discard(held)
        for name in held.grant.names:
            under_name = self._held.get(name)
            if under_name is not None:
                under_name.pop(held, None)
                if not under_name:
                    del self._held[name]

    def end(self, name: str, why: Why) -> None:
        """End what is held under this name on grants for which there is a reason, in slices.

        What arrives later, or is answered before its slice, is not ended: refuse such grants first.
        """
        reasons = [(held, why(held.grant)) for held in self._held.get(name, ())]
        self._end_some(iter([(held, error) for held, error in reasons if error is not None]))

    def end_all(self, why: Why) -> None:
        """The same for all names. O(all)."""
        for name in list(self._held):
            self.end(name, why)

    def _end_some(self, ending: Iterator[tuple[HeldOnGrant, PushUpError]]) -> None:
        count = 0
        for held, error in islice(ending, SLICE):
            held.end(error)
            count += 1
        if count == SLICE:
            self._soon(partial(self._end_some, ending))
