"""Which node a client tries next, and when."""

from __future__ import annotations

from collections.abc import Sequence

from pushup.client.driver import Driver
from pushup.client.exchange import Node
from pushup.client.values import ClientError

RETRY_SECONDS = (0.3, 30.0)
"""The longest pause before the first retry, and the longest of all, as in pushup.js."""

LAST_SECONDS = 0.1
"""Who has less time than this left does not try again."""


class Attempts:
    """Those of one call, or of following until a connection has lasted.

    A node that fails rests for a random time of 0 to `first * 2^failures` seconds, at most `longest` ("full jitter":
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), and for its `Retry-After` before that.
    Meanwhile the others are tried: first those that have not failed, in the order in which the client was given them.
    """

    def __init__(self, nodes: Sequence[Node], driver: Driver, pauses: tuple[float, float]) -> None:
        self._nodes = nodes
        self._driver = driver
        self._first, self._longest = pauses
        self._failures: dict[Node, int] = {}
        self._rests: dict[Node, tuple[float, float]] = {}  # until when it must rest, and for how long it then should

    def next(self) -> Node:
        return min(self._nodes, key=lambda node: (sum(self._rests.get(node, (0.0, 0.0))), node.failed_at))

    @property
    def untried(self) -> int:
        """How many nodes have not failed."""
        return len(self._nodes) - len(self._rests)

    def failed(self, node: Node, error: ClientError) -> None:
        now = node.failed_at = self._driver.now()
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        jitter = self._driver.random(min(self._longest, self._first * 2 ** min(failures - 1, 32)))
        self._rests[node] = now + error.retry_after, jitter

    def pause(self, left: float = float("inf")) -> float | None:
        """Seconds until the next node may be tried; None if that is not before `left` seconds have passed."""
        rests_until, jitter = self._rests.get(self.next(), (0.0, 0.0))
        must = max(0.0, rests_until - self._driver.now())
        return must + min(jitter, (left - must) / 2) if must + LAST_SECONDS < left else None
