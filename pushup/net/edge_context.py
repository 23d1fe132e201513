"""What all connections of an edge have in common: their parsers, and how much may wait, among others.

Connections share one request parser, and keep one of their own only while a request is incomplete. A held poll
therefore needs no parser, which would take 1.5 KB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pushup.metrics import Metrics
from pushup.net.application_interface import Application
from pushup.net.edge_limits import EdgeLimits
from pushup.net.http1 import RequestParser
from pushup.net.output_buffer import OutputBudget
from pushup.net.proxies import TrustedProxies
from pushup.net.requests_and_responses import ResponseWriter
from pushup.net.wait.demultiplexer import Demultiplexer, Watched


class Parsers:
    """Makes request parsers. Between two requests one keeps nothing, so the next bytes may be of another connection."""

    __slots__ = ("_make", "shared")

    def __init__(self, make: Callable[[], RequestParser]) -> None:
        self._make = make
        self.shared = make()
        """The parser for every connection that has none of its own."""

    def keep(self, parser: RequestParser) -> None:
        """A connection keeps its parser, or it cannot be used any more. If it was shared, others get a new one."""
        if parser is self.shared:
            self.shared = self._make()


class InputBudget:
    """Counts the memory of all requests that are incomplete, or wait behind another, against a limit.

    The pipeline that exceeds it notices that after it has counted its own.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.limit


@dataclass(kw_only=True, eq=False)
class EdgeContext:
    """The surroundings of a connection."""

    application: Application
    demultiplexer: Demultiplexer
    limits: EdgeLimits
    metrics: Metrics
    writer: ResponseWriter
    parsers: Parsers
    input_budget: InputBudget
    output_budget: OutputBudget
    forget: Callable[[Watched], object]
    """Removes a connection from those of its edge."""
    proxies: TrustedProxies | None = None
    """The proxies that are believed about whom they speak for; None: none is."""
    draining: bool = False
    """Whether every response is the last of its connection, because the node is stopping."""
    now: float = 0.0
    """The monotonic time at the last sweep."""
