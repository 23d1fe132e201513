"""Which channels have changed since some entry, so that only these have to be saved in a checkpoint."""

from __future__ import annotations

from itertools import takewhile


class ChangeLog:
    """Names of changed channels, each with the sequence of its last change. Off until `start` is called.

    `sequence` is the last sequence of the entry being applied; `ReplicatedState.apply` sets it.
    """

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.start_sequence = sequence
        """Changes after this sequence are known."""
        self._changed: dict[str, int] = {}  # the most recently changed last
        self._is_on = False

    def __len__(self) -> int:
        return len(self._changed)

    def start(self, after: int) -> None:
        """Record changes after this sequence, and drop the record of earlier ones. O(dropped)."""
        self._is_on = True
        self.start_sequence = after
        for name in list(takewhile(lambda name: self._changed[name] <= after, self._changed)):
            del self._changed[name]

    def stop(self) -> None:
        """Record nothing, until `start` is called again. O(recorded)."""
        self._is_on = False
        self._changed = {}

    def note(self, name: str) -> None:
        """Record that the entry being applied changes this channel."""
        if self._is_on:
            self._changed.pop(name, None)
            self._changed[name] = self.sequence

    def names(self, after: int) -> list[str]:
        """Channels changed after this sequence, the most recent last. O(their number)."""
        newest_first = takewhile(lambda item: item[1] > after, reversed(self._changed.items()))
        return [name for name, _ in newest_first][::-1]
