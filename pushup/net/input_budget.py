"""The input budget: how much memory all requests that are incomplete, or wait behind another, may take."""

from __future__ import annotations


class InputBudget:
    """Counts bytes against a limit. The pipeline that exceeds it notices that after it has counted its own."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit
