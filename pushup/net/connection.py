"""A client's connection: bytes in, requests to the application one at a time, responses out (Hsu §3.2).

What happens to it is an `Event`; `connection_states` decides what follows. Requests behind an open one wait in the
pipeline. What the kernel does not accept of a response is buffered, and until it is sent no other request begins.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.net.application_interface import NO_ROUTE, Client, Held, Streamed, options_for
from pushup.net.connection_states import AFTER_BEGUN, AFTER_HELD, AFTER_SENT, ENDS, READS, Event, Input, Phase, after
from pushup.net.edge_context import EdgeContext
from pushup.net.http1 import RequestParser
from pushup.net.output_buffer import OutputBuffer
from pushup.net.pipeline import READ_BYTES, Pipeline, RejectedRequest
from pushup.net.requests_and_responses import CONTINUE, Request, Response, ResponseOptions, last

# A poll needs several of these, and a global is cheaper than an attribute of an Enum.
IDLE, QUEUED, STREAMING, LINGERING, CLOSED = Phase.IDLE, Phase.QUEUED, Phase.STREAMING, Phase.LINGERING, Phase.CLOSED
READING, PAUSED, IGNORED = Input.READING, Input.PAUSED, Input.IGNORED


class Connection:
    """One client. Most connections hold a poll; the attributes that this does not need are None meanwhile."""

    __slots__ = (
        "_client", "_context", "_options", "held", "input", "lingers_until", "output", "phase", "pipeline",
        "read_bytes", "route", "since", "socket",
    )  # fmt: skip

    def __init__(self, context: EdgeContext, sock: socket.socket) -> None:
        self._context = context
        self.socket = sock
        self.phase = IDLE
        self.input = READING
        self.read_bytes = READ_BYTES
        self.since = context.now
        """When it last made progress, monotonic."""
        self.route = NO_ROUTE
        self.pipeline: Pipeline | None = None
        self.output: OutputBuffer | None = None
        self._options: ResponseOptions | None = None
        self._client: Client | None = None  # for whom a proxy has sent the request
        self.held: Held | None = None
        """What the application keeps for the request: a poll that waits, or a stream."""

    def on(self, event: Event) -> None:
        """Enter the states that follow an event. This may close the connection."""
        pipeline, phase, was_read = self.pipeline, self.phase, self.input in READS
        self.phase, self.input = after(event, phase, self.input, waits=pipeline is not None and pipeline.has_waiting)
        if (self.input in READS) != was_read and self.phase is not CLOSED:
            self._want()
        if self.phase is not phase and self.phase in ENDS:
            self.pipeline = None
            if pipeline is not None:
                pipeline.discard()
            (self._linger if self.phase is LINGERING else self._close)()

    # What the demultiplexer reports.

    def received(self, data: bytes) -> None:
        """Bytes have arrived."""
        context = self._context
        context.metrics.received_bytes += len(data)
        if self.input is IGNORED:
            if self.phase is LINGERING:
                self.since = context.now
            return
        pipeline, parser = self.pipeline, context.parsers.shared
        if pipeline is not None and pipeline.incomplete is not None:
            parser = pipeline.incomplete
        requests: Sequence[Request | RejectedRequest]
        try:
            requests = parser.feed(data)
        except PushUpError as error:
            parser.ended = True
            error.__traceback__ = None  # it would lead back here
            requests = [*parser.requests, RejectedRequest(error, parser.head)]
        except Exception:
            context.parsers.keep(parser)  # its state is unknown: no other connection may get it
            raise
        if pipeline is None and parser.idle and not parser.ended and len(requests) == 1 and self.phase is IDLE:
            self.begin(requests[0])  # a poll, most of the time
        else:
            self._take(parser, requests)

    def ended(self) -> None:
        """The client sends no more."""
        if self.pipeline is not None:
            self.pipeline.drop_incomplete()
        self.on(Event.LEFT)
        self._settle()

    def writable(self) -> None:
        """The kernel accepts bytes again."""
        output, context = self.output, self._context
        if output is None:
            return
        try:
            context.metrics.sent_bytes += output.write(self.socket.send)
        except OSError:
            self.lost()
            return
        self.since = context.now
        if output.size:
            return
        self.output = None
        output.discard()
        self._want()
        if self.phase is STREAMING:
            cast(Streamed, self.held).drained()
        else:
            self._sent(Event.FLUSHED)

    def lost(self) -> None:
        """The connection broke, or is given up: close it and forget everything about it."""
        self.on(Event.LOST)

    # Requests, one at a time.

    def begin(self, request: Request | RejectedRequest) -> None:
        """Open a request that arrived (`received`, `advance`) or waited (`_resume`). It may be answered in here."""
        self.phase = AFTER_BEGUN[self.phase]
        application = self._context.application
        if self._context.proxies is not None:
            head = request.head if isinstance(request, RejectedRequest) else request
            self._client = self._context.proxies.client(head, Client.of(self.socket))
        if isinstance(request, RejectedRequest):
            self._options = last(None if request.head is None else options_for(request.head, application))
            application.refuse(*request, self)
            return
        is_usual = request.keep_alive and request.method != b"HEAD" and b"origin" not in request.headers
        self._options = None if is_usual else options_for(request, application)
        application(request, self)

    def _take(self, parser: RequestParser, requests: Sequence[Request | RejectedRequest]) -> None:
        """A request is incomplete, is the last, or has to wait."""
        pipeline = self.pipeline = self.pipeline or Pipeline(self._context)
        pipeline.take(parser, requests)
        self.advance(pipeline, Event.LAST if parser.ended else Event.ARRIVED)
        # A request that just became complete has begun, so it does not count any more.
        if pipeline.exceeds_budget and self.input is not IGNORED:
            pipeline.refuse_all()
            self.advance(pipeline, Event.LAST)

    def advance(self, pipeline: Pipeline, event: Event) -> None:
        """The pipeline has got requests. If none is open, and none waited, the first of them begins."""
        was_idle = self.phase is IDLE
        self.on(event)
        if was_idle and self.phase is QUEUED:
            self.begin(pipeline.next())
        if pipeline.is_full:
            self.on(Event.FULL)
        self._settle()

    def _resume(self) -> None:
        """Begin the next request: other connections have had their turn. An error in here ends only this one."""
        if self.phase is QUEUED and self.pipeline is not None:
            try:
                self.begin(self.pipeline.next())
                self._settle()
            except Exception:
                self.lost()
                raise

    def _settle(self) -> None:
        """What can begin has begun: read again if nothing waits, drop an empty pipeline, or send `100 Continue`."""
        if (pipeline := self.pipeline) is None:
            return
        if self.input is PAUSED and not pipeline.has_waiting:
            self.on(Event.NONE_WAITS)
            pipeline.since = self._context.now
        pipeline.settle(is_next=self.phase is QUEUED)
        self.read_bytes = pipeline.read_bytes
        if pipeline.is_empty:
            self.pipeline = None
        elif self.phase is IDLE and pipeline.lets_continue() and not self._put(CONTINUE):
            self.on(Event.SENT_IN_PART)

    # What the application does: see `Exchange`.

    @property
    def client(self) -> Client:
        return self._client or Client.of(self.socket)

    def hold(self, held: Held) -> None:
        self.held = held
        if self.input is READING:
            self.phase = AFTER_HELD[self.phase]
        else:
            self.on(Event.HELD)

    def answer(self, answer: Answer) -> None:
        context = self._context
        if context.draining:
            self._options = last(self._options)
        self._respond(context.writer.answer(answer, self._options))

    def respond(self, response: Response) -> None:
        context = self._context
        context.metrics.requests[self.route, response.status] += 1
        if context.draining:
            self._options = last(self._options)
        self._respond(context.writer.response(response, self._options))

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        context = self._context
        if context.draining or not chunked:
            self._options = last(self._options)
        context.metrics.requests[self.route, 200] += 1
        self.held = streamed
        self.on(Event.STREAMED)
        return self.write(context.writer.stream_head(content_type, self._options, chunked=chunked) + first)

    def write(self, data: bytes) -> bool:
        return self.phase is STREAMING and self._put(data)

    def finish(self, data: bytes) -> None:
        if self._context.draining:
            self._options = last(self._options)
        self._respond(data)

    def _respond(self, data: bytes) -> None:
        """Send a response, or the end of one."""
        if self.phase is CLOSED:
            return  # the client left while the application had its request
        idle = AFTER_SENT[self.phase]
        self.held = None
        if not self._put(data):
            self.on(Event.SENT_IN_PART)
            return
        self.since = self._context.now
        if self._options is None and self.pipeline is None and self.input is READING:
            self.phase = idle
        else:
            self._sent(Event.SENT)

    def _sent(self, event: Event) -> None:
        """The kernel has accepted all of a response: decide what comes next."""
        self.on(event)
        if self._options is not None and self._options.close:
            self.on(Event.FINISHED)
        elif self.phase is QUEUED:
            self._context.demultiplexer.in_turn(self._resume)
        else:
            self._settle()

    def _put(self, data: bytes) -> bool:
        """Send, or add to what is unsent; returns whether nothing is. The connection is lost if it is too much."""
        context, output, sent = self._context, self.output, 0
        if output is None:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.lost()
                return False
            context.metrics.sent_bytes += sent
            if sent == len(data):
                return True
            self.since = context.now
            output = self.output = OutputBuffer(self, context.limits.output_limit_bytes, context.output_budget)
            self._want()
        if not output.append(data, sent):
            context.metrics.failed_outputs += 1
            self.lost()
        return False

    def _want(self) -> None:
        self._context.demultiplexer.want(self, reading=self.input in READS, writing=self.output is not None)

    @property
    def is_idle(self) -> bool:
        """Whether no request is open or waits on it."""
        return self.phase is IDLE and self.pipeline is None

    def _linger(self) -> None:
        """Send no more, and read until the client closes its side as well."""
        self.lingers_until = self._context.now + self._context.limits.request_timeout_seconds
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost()

    def _close(self) -> None:
        self._context.forget(self)
        self._context.demultiplexer.remove(self)
        self.socket.close()
        output, self.output = self.output, None
        if output is not None:
            output.discard()
        held, self.held = self.held, None
        if held is not None:
            self._context.application.abandon(held)
