"""The parser pool: connections share one request parser, and keep one of their own only while a request is incomplete.

A held poll therefore needs no parser, which would take 1.5 KB.
"""

from __future__ import annotations

from collections.abc import Callable

from pushup.net.http1 import RequestParser

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
