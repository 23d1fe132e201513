"""Idempotency keys: what each publication came to, for as long as messages are kept (docs/http.md)."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile

from pushup.core.commands import Published


class Keys:
    """The outcomes of the last publications with a key, oldest first; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._outcomes: OrderedDict[str, Published] = OrderedDict()

    @property
    def oldest_time(self) -> float | None:
        return next(iter(self._outcomes.values())).time if self._outcomes else None

    def get(self, key: str) -> Published | None:
        return self._outcomes.get(key)

    def add(self, key: str, outcome: Published) -> None:
        """Remember the newest outcome."""
        self._outcomes[key] = outcome
        if len(self._outcomes) > self._most:
            self._outcomes.popitem(last=False)

    def expire(self, time: float, most: int) -> None:
        """Forget at most `most` of those that were published at `time` or before."""
        while most > 0 and (oldest := self.oldest_time) is not None and oldest <= time:
            self._outcomes.popitem(last=False)
            most -= 1

    @property
    def oldest_sequence(self) -> int | None:
        return next(iter(self._outcomes.values())).sequence if self._outcomes else None

    def items(self, after: int = 0) -> list[tuple[str, Published]]:
        """Those that were published after this sequence, oldest first. O(their number)."""
        newest_first = takewhile(lambda item: item[1].sequence > after, reversed(self._outcomes.items()))
        return list(newest_first)[::-1]
