"""Idempotency keys: the outcome of each publication with a key, for as long as messages are kept (docs/http.md)."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile

from msgspec import Struct

from pushup.core.commands import Published


class Remembered(Struct, frozen=True, omit_defaults=True):
    """A publication with a key: the fields of its `Published`, and the `fingerprint` of what was published.

    The fingerprint is empty in checkpoints saved by versions without one; then any messages count as the same.
    """

    epoch: str
    sequence: int
    count: int
    time: float
    fingerprint: str = ""

    @classmethod
    def of(cls, outcome: Published, fingerprint: str) -> Remembered:
        return cls(outcome.epoch, outcome.sequence, outcome.count, outcome.time, fingerprint)

    @property
    def outcome(self) -> Published:
        return Published(self.epoch, self.sequence, self.count, self.time)


class Keys:
    """The last publications with a key, oldest first; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._remembered: OrderedDict[str, Remembered] = OrderedDict()

    @property
    def oldest_time(self) -> float | None:
        return next(iter(self._remembered.values())).time if self._remembered else None

    def get(self, key: str) -> Remembered | None:
        return self._remembered.get(key)

    def add(self, key: str, remembered: Remembered) -> None:
        """Remember the newest publication."""
        self._remembered[key] = remembered
        if len(self._remembered) > self._most:
            self._remembered.popitem(last=False)

    def expire(self, time: float, most: int) -> None:
        """Forget at most `most` keys used at `time` or before."""
        while most > 0 and (oldest := self.oldest_time) is not None and oldest <= time:
            self._remembered.popitem(last=False)
            most -= 1

    @property
    def oldest_sequence(self) -> int | None:
        return next(iter(self._remembered.values())).sequence if self._remembered else None

    def items(self, after: int = 0) -> list[tuple[str, Remembered]]:
        """Keys used after this sequence, oldest first. O(their number)."""
        newest_first = takewhile(lambda item: item[1].sequence > after, reversed(self._remembered.items()))
        return list(newest_first)[::-1]
