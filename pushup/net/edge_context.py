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

SPARE_PARSERS = 64
"""Parsers kept for the next incomplete requests; 1.5 KB each."""


class ParserPool:
    """Request parsers. Between two requests a parser keeps nothing, so the next bytes may be of another connection."""

    __slots__ = ("_make", "_spare", "shared")

    def __init__(self, make: Callable[[], RequestParser]) -> None:
        self._make = make
        self._spare: list[RequestParser] = []
        self.shared = make()
        """The parser for every connection that has none of its own."""

    def keep(self, parser: RequestParser) -> None:
        """A connection keeps its parser, or it cannot be used any more. If it was shared, others get another one."""
        if parser is self.shared:
            self.shared = self._spare.pop() if self._spare else self._make()

    def give_back(self, parser: RequestParser) -> None:
        """Take a parser back, between two requests."""
        if parser is self.shared:
            return
        parser.requests = []
        if len(self._spare) < SPARE_PARSERS:
            self._spare.append(parser)
        else:
            parser.discard()


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
    parsers: ParserPool
    input_budget: InputBudget
    output_budget: OutputBudget
    forget: Callable[[Watched], None]
    """Removes a connection from its edge and from the demultiplexer; its socket must still be open."""
    proxies: TrustedProxies | None = None
    """The proxies that are believed about whom they speak for; None: none is."""
    draining: bool = False
    """Whether every response is the last of its connection, because the node is stopping."""
    now: float = 0.0
    """The monotonic time at the last sweep."""
