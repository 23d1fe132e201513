"""Idempotency keys: the outcome of each publication with a key, for as long as messages are kept (docs/http.md)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from msgspec import Struct

from pushup.core.commands import Published
from pushup.core.rules import Rules


class Remembered(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A publication with a key: the fields of its `Published`, and the `fingerprint` of what was published."""

    epoch: str
    sequence: int
    count: int
    time: float
    fingerprint: str

    @classmethod
    def of(cls, outcome: Published, fingerprint: str) -> Remembered:
        return cls(outcome.epoch, outcome.sequence, outcome.count, outcome.time, fingerprint)

    @property
    def outcome(self) -> Published:
        return Published(self.epoch, self.sequence, self.count, self.time)


class Keys:
    """The last publications with a key, oldest first; at most `keys_limit` of them."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._remembered: OrderedDict[str, Remembered] = OrderedDict()

    @property
    def oldest_time(self) -> float | None:
        return next(iter(self._remembered.values())).time if self._remembered else None

    def get(self, key: str) -> Remembered | None:
        return self._remembered.get(key)

    def add(self, key: str, remembered: Remembered) -> None:
        """Remember the newest publication. If there are too many, the oldest two are forgotten."""
        self._remembered[key] = remembered
        for _ in range(2):
            if len(self._remembered) > self._rules.limits.keys_limit:
                self._forget_oldest()

    def restore(self, key: str, remembered: Remembered) -> None:
        """Add a key from a snapshot, newer than all that are here."""
        self._remembered[key] = remembered

    def expire(self, time: float, most: int) -> None:
        """Forget at most `most` keys used at `time` or before."""
        while most > 0 and (oldest := self.oldest_time) is not None and oldest <= time:
            self._forget_oldest()
            most -= 1

    def _forget_oldest(self) -> None:
        """Forget the oldest key, and with it those of its sequence: a checkpoint says only which sequence it begins at.

        There are several if an epoch began with the keys of a log and of a node that knew other entries.
        """
        _, oldest = self._remembered.popitem(last=False)
        while self.oldest_sequence == oldest.sequence:
            self._remembered.popitem(last=False)

    def take_apart(self) -> Iterator[None]:
        """As that of `Channels`."""
        while self._remembered:
            self._remembered.popitem()
            yield

    @property
    def oldest_sequence(self) -> int | None:
        return next(iter(self._remembered.values())).sequence if self._remembered else None

    def names(self) -> list[str]:
        """All keys, oldest first. O(their number), 0.01 us each."""
        return list(self._remembered)

    def items(self, after: int = 0) -> list[tuple[str, Remembered]]:
        """Keys used after this sequence, oldest first. O(their number)."""
        newest_first = takewhile(lambda item: item[1].sequence > after, reversed(self._remembered.items()))
        return list(newest_first)[::-1]
