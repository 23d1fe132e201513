"""The pipeline of a connection: the incomplete request, and complete requests that wait behind the open one.

Requests begin one at a time and in order. Everything in here counts against the input budget of the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pushup.core.errors import Overloaded, PushUpError
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import RequestTimeout
from pushup.net.phases import Input, Phase
from pushup.net.request import Request
from pushup.net.shared import Shared

PIPELINE_LIMIT = 64
"""Requests that may wait behind an open one before reading pauses. Browsers pipeline none, HTTP libraries a few."""

PIPELINE_LIMIT_BYTES = 64 * 1024
"""What these requests may take before reading pauses; the request that exceeds it is still accepted."""

PIPELINE_SHARE = 8
"""Requests of one pipeline that begin before other connections have their turn."""

READ_BYTES = 4 * 1024
"""What one read takes: ample for a poll, and no more requests than may wait. 64 KiB would hold 3,000, which take a MiB.
(Python allocates as much before it knows how much has arrived.)"""

READ_BODY_BYTES = 64 * 1024
"""What one read takes while at least as much of a body is still to come."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""For a client that waits for it before it sends a body (RFC 9110 §10.1.1)."""


class Refusal(NamedTuple):
    """Stands for a request that is refused before it is complete; none follows it."""

    error: PushUpError
    head: Request | None
    """The request without its body, if the head has arrived and the refusal does not have to wait."""


class Owner(Protocol):
    """What a pipeline needs of its connection."""

    phase: Phase
    input: Input

    def begin(self, request: Request) -> None:
        """Open a request; it may be answered before this returns."""

    def refuse(self, error: PushUpError, head: Request | None) -> None:
        """Open an incomplete request and answer it with an error."""

    def set_input(self, state: Input) -> None:
        """Change what happens to the client's bytes."""

    def resume(self) -> None:
        """Call `Pipeline.resume`; an error in it must close this connection."""

    def lost(self) -> None:
        """Close."""


class Pipeline:
    """Exists only while there is something in it."""

    __slots__ = ("_counted_bytes", "_parser", "_shared", "_since", "_waiting", "_waiting_bytes", "is_serving")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._counted_bytes = 0
        self._parser: RequestParser | None = None  # of the incomplete request
        self._since = shared.now  # when the incomplete request began, or reading resumed
        self._waiting: list[Request | Refusal] = []  # bounded and short, so taking the first is cheap
        self._waiting_bytes = 0
        self.is_serving = False
        """Whether `serve` is running, or about to continue."""

    @property
    def is_empty(self) -> bool:
        return not self._waiting and self._parser is None and not self.is_serving

    @property
    def has_waiting(self) -> bool:
        """Whether complete requests wait."""
        return bool(self._waiting)

    @property
    def has_incomplete(self) -> bool:
        """Whether a request has arrived in part."""
        return self._parser is not None

    @property
    def parser(self) -> RequestParser:
        """The parser for the next bytes of this connection."""
        return self._parser or self._shared.parsers.shared

    @property
    def read_bytes(self) -> int:
        """How much to read at a time."""
        return READ_BODY_BYTES if self._parser is not None and self._parser.body_left >= READ_BODY_BYTES else READ_BYTES

    @property
    def counted_bytes(self) -> int:
        """What it adds to the input budget."""
        return self._counted_bytes

    def take(self, owner: Owner, parser: RequestParser, requests: Sequence[Request | Refusal]) -> None:
        """Take what `parser` made of some bytes. Complete requests begin or wait; it stays if one is incomplete."""
        shared = self._shared
        if owner.input is Input.IGNORED or not parser.idle:
            if parser is shared.parsers.shared:
                shared.parsers.take_shared()
            if self._parser is None or requests:  # the incomplete request begins here
                self._since = shared.now
            self._parser = parser
            if owner.input is Input.IGNORED:
                self.discard_incomplete()
        elif self._parser is not None:
            shared.parsers.give_back(parser)
            self._parser = None
        if requests:
            self._append(owner, requests)
        self._count()
        # A request that just became complete has begun, so it does not count any more.
        if shared.input_budget.is_exceeded and self._counted_bytes and owner.input is not Input.IGNORED:
            self._discard_waiting()
            error = Overloaded("the server has reached waiting_requests_limit_bytes; try again later", retry_after=5)
            self._refuse_incomplete(owner, error)

    def resume(self, owner: Owner) -> None:
        """Continue to serve after other connections have had their turn."""
        self.is_serving = False
        self.serve(owner)

    def serve(self, owner: Owner) -> None:
        """Begin waiting requests for as long as each is answered at once: a share of them now, the others later."""
        if self.is_serving:
            return  # the loop below, or `resume`, continues with what was added
        self.is_serving = True
        share = PIPELINE_SHARE
        while self._waiting and owner.phase is Phase.IDLE:
            if share == 0:
                self._shared.demultiplexer.soon(owner.resume)
                return
            share -= 1
            request = self._waiting.pop(0)
            if isinstance(request, Refusal):
                owner.refuse(*request)
            else:
                self._waiting_bytes -= request.size
                owner.begin(request)
        self.is_serving = False
        self._count()
        if self._waiting or owner.phase is Phase.CLOSED:
            return
        if owner.input is Input.PAUSED:
            owner.set_input(Input.READING)
            self._since = self._shared.now
        elif owner.input is Input.ENDED and owner.phase is Phase.IDLE:
            owner.lost()

    def refuse_late_request(self, owner: Owner, last: float) -> bool:
        """Refuse the incomplete request if it is overdue; whether it was. `last`: see `timeouts.sweep`."""
        parser = self._parser
        limit = self._shared.limits.request_timeout_seconds
        if parser is None or last - self._since <= limit or owner.input is not Input.READING:
            return False  # while nothing is read, the rest may already be in the kernel
        if parser.wants_continue and owner.phase in (Phase.OPEN, Phase.HELD):
            return False  # the client must wait before it sends the rest
        self._refuse_incomplete(owner, RequestTimeout(f"the request was not complete within {limit:g} s"))
        return True

    def lets_continue(self) -> bool:
        """Whether the client waits for `100 Continue` and its turn has come, if no request is open. Says so once."""
        parser = self._parser
        if parser is None or not parser.wants_continue or self._waiting:
            return False
        parser.wants_continue = False
        self._since = self._shared.now
        return True

    def discard_incomplete(self) -> None:
        """Drop the incomplete request, which will not be completed."""
        if self._parser is not None:
            self._parser.discard()
            self._parser = None
            self._count()

    def discard(self) -> None:
        """Drop everything."""
        self._discard_waiting()
        self.discard_incomplete()
        self._count()

    def _append(self, owner: Owner, requests: Sequence[Request | Refusal]) -> None:
        """Add complete requests, and begin those whose turn it is."""
        self._waiting += requests
        self._waiting_bytes += sum(request.size for request in requests if isinstance(request, Request))
        self.serve(owner)
        if self._waiting and isinstance(self._waiting[-1], Refusal):
            self._waiting[-1] = Refusal(self._waiting[-1].error, None)  # a head could be large, and is not counted
        is_full = len(self._waiting) >= PIPELINE_LIMIT or self._waiting_bytes >= PIPELINE_LIMIT_BYTES
        if is_full and owner.input is Input.READING:
            owner.set_input(Input.PAUSED)

    def _refuse_incomplete(self, owner: Owner, error: PushUpError) -> None:
        """Answer the incomplete request with an error in its turn, and ignore what arrives."""
        owner.set_input(Input.IGNORED)
        head = None if self._parser is None else self._parser.head
        self.discard_incomplete()
        self._append(owner, [Refusal(error, head)])
        self._count()

    def _discard_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _count(self) -> None:
        """Bring the input budget up to date."""
        size = self._waiting_bytes + (0 if self._parser is None else self._parser.size)
        self._shared.input_budget.used += size - self._counted_bytes
        self._counted_bytes = size
