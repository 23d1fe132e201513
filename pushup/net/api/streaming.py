"""Event streams: `GET /v1/events` and `POST /v1/events` (Hsu §3.2: output that accumulates).

A stream is a client for which this server polls. Its poll stays when it is answered (`core.poll`); at its deadline,
after a page that is not the last, and after a gap or a closing, the next poll begins where the answer ended. So streams
and long polls share the cursor, the limits, the drain and whatever else a poll meets, and a client can change from one
to the other at any cursor. The answer at the deadline is the heartbeat.

While a client is behind by more than one answer, the next poll waits until all is sent. So what accumulates in the
output buffer is what is published while its client does not read; beyond `output_limit_bytes` the connection is closed,
and the client continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.cursor import Cursor, Start, parse_cursor
from pushup.core.errors import PushUpError
from pushup.core.grant import NOTHING, Grant
from pushup.core.held_on_grants import HeldOnGrant
from pushup.core.poll import Poll, Selection
from pushup.core.subscription import Holder, Subscription
from pushup.metrics import Metric, gauge
from pushup.net.api.event_encoding import EventEncoding, EventEncodings
from pushup.net.api.node_interface import Node
from pushup.net.api.poll_access import PollAccess
from pushup.net.api.poll_parameters import PollReader, begins_at
from pushup.net.api.quotas import Place
from pushup.net.api.schemas import Format, StreamLimits
from pushup.net.api.url_tickets import UrlTickets
from pushup.net.application_interface import Exchange, Streamed
from pushup.net.http_errors import NotAcceptable, problem
from pushup.net.requests_and_responses import Request, Response

AGE_JITTER = 0.15
"""A stream ends earlier than at its maximum age by a random part up to this: clients that came together do not return
together."""

_NOT_ACCEPTABLE: dict[Format, str] = {
    "json": "events come as text/event-stream or as application/x-ndjson",
    "raw": "raw events come as text/event-stream only; for application/x-ndjson, leave out format=raw",
}


class Streaming:
    """Opens event streams, and knows what they share."""

    def __init__(
        self,
        node: Node,
        reader: PollReader,
        poll_access: PollAccess,
        limits: StreamLimits,
        *,
        seconds: Callable[[], float],
        soon: Callable[[Callable[[], None]], None],
        random: Callable[[], float],
    ) -> None:
        """`seconds` is a monotonic clock; `soon` calls its argument in the next turn of the reactor; `random` returns a
        number in [0, 1).
        """
        self.node = node
        self.seconds = seconds
        self.soon = soon
        self.count = 0
        """How many streams are open."""
        self._reader = reader
        self.poll_access = poll_access
        self.url_tickets = UrlTickets(poll_access, reader)
        self._heartbeat_seconds = limits.stream_heartbeat_seconds
        self._most_seconds = limits.stream_seconds
        self._random = random
        self._encodings = EventEncodings()
        # Streams that were sent the same answer continue with the same poll.
        self._answer: Answer | None = None
        self._next: Poll | None = None

    def metrics(self) -> list[Metric]:
        return [gauge("streams", "Open event streams", self.count)]

    def stream_by_query(
        self, request: Request, query: bytes, exchange: Exchange, grant: Grant
    ) -> Deferred[None] | None:
        poll, form = self._reader.stream_from_query(query)
        if request.url_ticket is not None:
            granted = self.url_tickets.grant(request.url_ticket, poll.selection.channels, request, grant)
            if granted is None:
                self.poll_access.quotas.count(request, grant, exchange)
                exchange.respond(Response(204))  # an EventSource gives up for good (HTML standard §9.2.3)
                return None
            grant = granted
        return self._stream(poll, form, request, exchange, grant)

    def stream_by_body(self, request: Request, query: bytes, exchange: Exchange, grant: Grant) -> Deferred[None] | None:
        poll, token, form = self._reader.from_body(request.body)
        return self._stream(poll, form, request, exchange, self.poll_access.with_token(grant, token, request))

    def next_poll(self, selection: Selection, answer: Answer) -> Poll:
        """The poll that continues after an answer."""
        poll = self._next
        if poll is None or answer is not self._answer or selection is not poll.selection:
            self._answer = answer
            poll = self._next = Poll(selection, parse_cursor(answer.cursor), self._heartbeat_seconds, stays=True)
        return poll

    def closed(self, encoding: EventEncoding) -> None:
        """A stream has ended. The last one leaves nothing of what was sent: that may be deleted."""
        self.count -= 1
        encoding.count -= 1
        if not encoding.count:
            encoding.forget()
        if not self.count:
            self._answer = self._next = None

    def _stream(
        self, poll: Poll, form: Format, request: Request, exchange: Exchange, grant: Grant
    ) -> Deferred[None] | None:
        self.poll_access.quotas.count(request, grant, exchange)
        encoding = self._encodings.find(request.header(b"accept"), form, chunked=not request.is_1_0)
        if encoding is None:
            raise NotAcceptable(_NOT_ACCEPTABLE[form], field="Accept")
        poll = Poll(poll.selection, begins_at(poll, request), self._heartbeat_seconds, stays=True)
        begin = partial(self._show if request.method == b"HEAD" else self._begin, poll, exchange, encoding)
        return self.poll_access.when_granted(poll, grant, request, exchange, begin)

    def _begin(self, poll: Poll, exchange: Exchange, encoding: EventEncoding, grant: Grant) -> None:
        if grant.subject and isinstance(poll.cursor, Cursor):
            self.node.readers.note(grant.subject, poll.selection.channels, poll.cursor)
        ends_at = self.seconds() + self._most_seconds * (1 - AGE_JITTER * self._random())
        Stream(self, poll.selection, encoding, grant, ends_at).begin(poll, exchange)

    def _show(self, poll: Poll, exchange: Exchange, encoding: EventEncoding, grant: Grant) -> None:
        """Answer with the head of a stream. Raises: as `Stream.begin`."""
        stream = Stream(self, poll.selection, encoding, grant, 0.0)
        result = self.node.poll(poll, stream)
        if isinstance(result, Subscription):
            self.node.abandon(result)
        exchange.stream(stream, encoding.content_type, b"", chunked=encoding.is_chunked)
        exchange.finish(b"")


class Stream:
    """One open stream."""

    __slots__ = (
        "_encoding", "_ends_at", "_exchange", "_is_behind", "_next", "_place", "_streaming", "_subscription",
        "grant", "selection",
    )  # fmt: skip

    def __init__(
        self, streaming: Streaming, selection: Selection, encoding: EventEncoding, grant: Grant, ends_at: float
    ) -> None:
        self._streaming = streaming
        self.selection = selection
        self._encoding = encoding
        self.grant = grant
        self._ends_at = ends_at
        self._exchange: Exchange | None = None  # while it is open
        self._subscription: Subscription[Any] | None = None
        self._next: Poll | None = None
        self._is_behind = False  # it continues when all is sent
        self._place: Place | None = None  # what it takes of a quota

    def begin(self, poll: Poll, exchange: Exchange) -> None:
        """Open the stream, with what there is for its client. Raises: what `Node.poll` does; nothing is sent then."""
        node, told = self._streaming.node, ""
        has_none = isinstance(poll.cursor, Start)
        if isinstance(poll.cursor, Start):
            told = str(node.here)  # if there is nothing yet, it will continue here
            if poll.cursor is Start.NOW:
                poll = Poll(poll.selection, node.here, poll.timeout, poll.stays)
        self._place = self._streaming.poll_access.quotas.hold(self.grant, exchange)
        try:
            result = node.poll(poll, self, self._seconds_left())
        except PushUpError:
            self._streaming.poll_access.quotas.release(self._place)
            raise
        self._subscription = result if isinstance(result, Subscription) else None
        told = told if self._subscription else ""
        self._streaming.count += 1
        self._encoding.count += 1
        node.held_on_grants.add(self)
        self._exchange, encoding = exchange, self._encoding
        seconds = self._streaming.poll_access.seconds_left(self.grant)
        first = encoding.start(told, self.grant.new_ticket, int(seconds) if self.grant.is_of_token else None)
        if not isinstance(result, Subscription):
            first += encoding.first_answer(result) if has_none else encoding.answer(result)
            first += self._question(result)
        is_sent = exchange.stream(self, encoding.content_type, first, chunked=encoding.is_chunked)
        if not isinstance(result, Subscription) and self._exchange is not None:
            self._continue(result, is_sent=is_sent)

    def _question(self, answer: Answer) -> bytes:
        """The event `unread`, if a message that this client has now waits for it; mostly nothing."""
        subject, are_awaited = self.grant.subject, self._streaming.node.readers.are_awaited
        asks = subject and are_awaited(subject, self.selection.channels, answer.cursor)
        return self._encoding.unread() if asks else b""

    # Called by the node, and by the connection.

    def answer(self, answer: Answer) -> None:
        """There is something for the client, or the heartbeat is due."""
        exchange, subscription = self._exchange, self._subscription
        if exchange is None:
            return  # the client has left meanwhile
        events = self._encoding.answer(answer)
        if self.grant is not NOTHING:
            if self._streaming.poll_access.seconds_left(self.grant) <= 0:
                self.end(self._streaming.poll_access.why_ended(self.grant))
                return
            events += self._question(answer)
        is_sent = exchange.write(events)
        if self._exchange is None:
            return  # the connection broke
        if self._streaming.node.is_draining:
            self._end(b"")
        elif subscription is None or subscription.holder is None:
            self._continue(answer, is_sent=is_sent)

    def drained(self) -> None:
        """Everything is sent."""
        if self._is_behind:
            self._is_behind = False
            self._send_page()

    def cancel(self) -> None:
        """The client has left."""
        if self._exchange is not None:
            self._close()

    def end(self, error: PushUpError) -> None:
        """Send the error as the last event; a stream that has ended already is ignored."""
        if self._exchange is not None:
            self._end(self._encoding.error(problem(error).body))

    def _continue(self, answer: Answer, *, is_sent: bool) -> None:
        """Continue after an answer that was written, and that ended the poll."""
        streaming = self._streaming
        self._subscription = None
        self._next = streaming.next_poll(self.selection, answer)
        if not answer.more:
            found = self._poll()
            if found is not None:
                streaming.soon(partial(self.answer, found))
        elif is_sent:
            streaming.soon(self._send_page)  # other connections get their turn before the next page
        else:
            self._is_behind = True

    def _send_page(self) -> None:
        """Send the next page of what the client lags behind."""
        if self._exchange is not None and (found := self._poll()) is not None:
            self.answer(found)

    def _poll(self) -> Answer | None:
        """Wait for what comes next, or end; returns what there is already."""
        assert self._next is not None
        try:
            result = self._streaming.node.poll(self._next, self, self._seconds_left())
        except PushUpError as error:
            self.end(error)
            return None
        if isinstance(result, Subscription):
            self._subscription = result
            return None
        if result.tells_something:
            return result
        # Its time is over, or it would be held.
        if self._streaming.poll_access.seconds_left(self.grant) <= 0:
            self.end(self._streaming.poll_access.why_ended(self.grant))
        else:
            self._end(self._encoding.answer(result))
        return None

    def _seconds_left(self) -> float:
        return min(self._ends_at - self._streaming.seconds(), self._streaming.poll_access.seconds_left(self.grant))

    def _end(self, last: bytes) -> None:
        """Send the last events, and end the stream."""
        exchange = self._exchange
        assert exchange is not None
        self._close()
        exchange.finish(last + self._encoding.end)

    def _close(self) -> None:
        self._exchange = None
        self._streaming.closed(self._encoding)
        self._streaming.node.held_on_grants.discard(self)
        self._streaming.poll_access.quotas.release(self._place)
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._streaming.node.abandon(subscription)


_check: tuple[type[Holder], type[Streamed], type[HeldOnGrant]] = (Stream, Stream, Stream)
