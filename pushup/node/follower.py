"""The members of channels with presence, as the node sees them by which they follow."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from msgspec import Raw

from pushup.core.attendance import NULL, Key
from pushup.core.grant import Grant


class Follower:
    """How many polls and streams of the member are held, and until when the node waits for the next before it asks.

    `is_closing`: a page has said that it closes, and what it held may not have ended yet. `data`: of its latest token.
    `is_told`: the node has told them. It does so once: two pages with different data would answer each other forever.
    `looked_at`: when `Followers` looks whether it has ended; infinity: never.
    """

    __slots__ = ("_given", "count", "data", "grace", "is_closing", "is_told", "looked_at", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = self.grace = 0.0
        self.looked_at = inf
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


class Followers(dict[Key, Follower]):
    """Those of a node."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, Key]] = []  # a heap: when to look at whom; `looked_at` says whether that counts

    def expect_end(self, key: Key, follower: Follower) -> None:
        """Nothing of it is held. Each poll ends like this, and usually the next comes at once: all share one entry."""
        if follower.until < follower.looked_at:
            follower.looked_at = follower.until
            heappush(self._ends, (follower.until, key))

    def pop_ended(self, now: float) -> Iterator[tuple[Key, Follower]]:
        """Forget those who have not come back."""
        while self._ends and self._ends[0][0] <= now:
            at, key = heappop(self._ends)
            follower = self.get(key)
            if follower is None or follower.looked_at != at:
                continue
            follower.looked_at = inf
            if not follower.is_here(now):
                yield key, self.pop(key)
            elif not follower.count:
                self.expect_end(key, follower)
