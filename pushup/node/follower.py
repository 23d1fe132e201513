"""A member of a channel with presence, as the node sees it by which it follows."""

from __future__ import annotations

from msgspec import Raw

from pushup.core.attendance import NULL
from pushup.core.grant import Grant


class Follower:
    """How many polls and streams of the member are held, and until when the node waits for the next before it asks.

    `is_closing`: a page has said that it closes, and what it held may not have ended yet. `data`: of its latest token.
    `is_told`: the node has told them. It does so once: two pages with different data would answer each other forever.
    """

    __slots__ = ("_given", "count", "data", "grace", "is_closing", "is_told", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = self.grace = 0.0
        self.is_closing = self.is_told = False
        self.data = NULL
        self._given = 0.0, b""  # when the token was issued, and its data

    def is_here(self, now: float) -> bool:
        return self.count > 0 or self.until > now

    def take_data(self, grant: Grant) -> None:
        """Take the public data of its token, unless it was issued before the last."""
        given = grant.issued_at, grant.presence
        if grant.presence and given != self._given and grant.issued_at >= self._given[0]:
            self.data, self._given, self.is_told = Raw(grant.presence), given, False
