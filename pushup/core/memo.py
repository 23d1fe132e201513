"""A memo: what was made of the text that clients sent, to be used again."""

from __future__ import annotations

from typing import Generic, TypeVar

ENTRY_BYTES = 100
"""The memory of an entry beside its key and its value: its place in a table that has just grown, and the key's own
overhead."""

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Up to `limit_bytes`, since clients choose the text. Beyond that all is forgotten: what is in use comes again."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._known: dict[K, V] = {}
        self.bytes = 0

    def get(self, key: K) -> V | None:
        return self._known.get(key)

    def add(self, key: K, value: V, size: int) -> None:
        """Remember a new key; `size`: the bytes of its key and its value. One above the limit is not remembered."""
        size += ENTRY_BYTES
        if size > self._limit_bytes:
            return
        if self.bytes + size > self._limit_bytes:
            self._known.clear()
            self.bytes = 0
        self._known[key] = value
        self.bytes += size
