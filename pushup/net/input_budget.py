"""The input budget: what all requests that are incomplete, or wait behind another, may take together."""

from __future__ import annotations


class InputBudget:
    """Counts bytes against a limit. Exceeding it is noticed afterwards, by whoever caused it."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit
