"""The pipeline of a connection: the incomplete request, and complete requests that wait behind the open one.

Everything in here counts against the input budget of the edge. When a request begins is decided by its connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pushup.core.errors import Overloaded, PushUpError
from pushup.net.edge_context import EdgeContext
from pushup.net.http1 import RequestParser
from pushup.net.requests_and_responses import Request
from pushup.net.wait.demultiplexer import READ_LIMIT_BYTES

PIPELINE_LIMIT = 64
"""Requests that may wait behind an open one before reading pauses. Browsers pipeline none, HTTP libraries a few."""

PIPELINE_LIMIT_BYTES = 64 * 1024
"""What these requests may take before reading pauses; the request that exceeds it is still accepted."""

READ_BYTES = 4 * 1024
"""What one read takes: ample for a poll, and no more requests than may wait. 64 KiB can hold 3,000, of a MiB."""

READ_BODY_BYTES = READ_LIMIT_BYTES
"""What one read takes while at least as much of a body is still to come."""


class RejectedRequest(NamedTuple):
    """Stands for a request that is refused before it is complete; none follows it."""

    error: PushUpError
    head: Request | None
    """The request without its body, if the head has arrived and its answer does not have to wait."""


class Pipeline:
    """Exists only while there is something in it."""

    __slots__ = ("_context", "_waiting", "_waiting_bytes", "counted_bytes", "incomplete", "since")

    def __init__(self, context: EdgeContext) -> None:
        self._context = context
        self.counted_bytes = 0
        """What it adds to the input budget."""
        self._waiting: list[Request | RejectedRequest] = []  # bounded and short, so taking the first is cheap
        self._waiting_bytes = 0
        self.incomplete: RequestParser | None = None
        """The parser of the request that has arrived in part."""
        self.since = context.now
        """When that began, or reading resumed, monotonic."""

    @property
    def is_empty(self) -> bool:
        return not self._waiting and self.incomplete is None

    @property
    def has_waiting(self) -> bool:
        """Whether complete requests wait."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that reading must pause."""
        return len(self._waiting) >= PIPELINE_LIMIT or self._waiting_bytes >= PIPELINE_LIMIT_BYTES

    @property
    def read_bytes(self) -> int:
        """How much to read at a time."""
        parser = self.incomplete
        return READ_BODY_BYTES if parser is not None and parser.body_left >= READ_BODY_BYTES else READ_BYTES

    @property
    def exceeds_budget(self) -> bool:
        """Whether the input budget is exceeded, and it has a part in that."""
        return self.counted_bytes > 0 and self._context.input_budget.is_exceeded

    # The incomplete request.

    def take(self, parser: RequestParser, requests: Sequence[Request | RejectedRequest]) -> None:
        """Take what a parser made of some bytes: requests; and the parser itself, if one is incomplete."""
        if parser.idle and not parser.ended:
            self.drop_incomplete()
        else:
            self._context.parsers.keep(parser)
            if requests or self.incomplete is None:  # it begins here
                self.since = self._context.now
            self.incomplete = parser
            if parser.ended:
                self.drop_incomplete()
        self._add(requests)

    def refuse_incomplete(self, error: PushUpError) -> None:
        """Have an error wait in the place of the incomplete request, as the last one."""
        head = None if self.incomplete is None else self.incomplete.head
        self.drop_incomplete()
        self._add((RejectedRequest(error, head),))

    def refuse_all(self) -> None:
        """The input budget is exceeded: the error takes the place of all that waits, too."""
        self._discard_waiting()
        message = "the server has reached waiting_requests_limit_bytes; try again later"
        self.refuse_incomplete(Overloaded(message, retry_after=5))

    def drop_incomplete(self) -> None:
        """Drop the incomplete request, which will not be completed."""
        if self.incomplete is not None:
            self.incomplete.discard()
            self.incomplete = None

    def lets_continue(self) -> bool:
        """Whether the client waits for `100 Continue` and its turn has come, if no request is open. Says so once."""
        parser = self.incomplete
        if parser is None or not parser.wants_continue or self._waiting:
            return False
        parser.wants_continue = False
        self.since = self._context.now
        return True

    # Complete requests.

    def next(self) -> Request | RejectedRequest:
        """Take the first that waits."""
        request = self._waiting.pop(0)
        if isinstance(request, Request):
            self._waiting_bytes -= request.size
        return request

    def discard(self) -> None:
        """Drop everything."""
        self._discard_waiting()
        self.drop_incomplete()
        self._count()

    def settle(self, *, is_next: bool) -> None:
        """What can begin has begun: count what is left. `is_next`: the first that waits begins in the next turn."""
        if not is_next and self._waiting and isinstance(self._waiting[-1], RejectedRequest):
            # Without the head, which could be large and is not counted.
            self._waiting[-1] = RejectedRequest(self._waiting[-1].error, None)
        self._count()

    def _count(self) -> None:
        """Bring the input budget up to date."""
        size = self._waiting_bytes + (0 if self.incomplete is None else self.incomplete.size)
        self._context.input_budget.used += size - self.counted_bytes
        self.counted_bytes = size

    def _add(self, requests: Sequence[Request | RejectedRequest]) -> None:
        self._waiting += requests
        self._waiting_bytes += sum(request.size for request in requests if isinstance(request, Request))

    def _discard_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
