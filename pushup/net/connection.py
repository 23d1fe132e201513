"""A client's connection: bytes in, requests to the application one at a time, responses out (Hsu §3.2).

The phases and their transitions are tables in `phases`. Requests are answered in order: those behind an open one wait
in the pipeline, and when too many wait, reading pauses. A response goes straight to the kernel. What the kernel does
not accept is buffered, and no request begins until it is sent, so what a client that does not read can cost is bounded.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.net.application_interface import Client, Held, Streamed, options_for
from pushup.net.client_socket import ClientSocket
from pushup.net.http1 import RequestParser
from pushup.net.phases import Input, Phase
from pushup.net.pipeline import CONTINUE, READ_BYTES, Pipeline, Refusal
from pushup.net.request import Request
from pushup.net.responses import Response, ResponseOptions, last
from pushup.net.shared import Shared

# A poll needs several of these, and a global is cheaper than an attribute of an Enum.
IDLE, OPEN, HELD, STREAMING, SENDING, LINGERING, CLOSED = Phase
READING, IGNORED, ENDED = Input.READING, Input.IGNORED, Input.ENDED
_LEFT = frozenset((HELD, STREAMING, LINGERING))
"""A client that ends its side in these phases has left."""


class Connection(ClientSocket):
    """One client. Most connections hold a poll; the attributes that this does not need are None meanwhile."""

    __slots__ = ("_held", "_options", "lingers_until", "pipeline")

    def __init__(self, shared: Shared, sock: socket.socket) -> None:
        super().__init__(shared, sock, READ_BYTES)
        self.lingers_until = 0.0
        self.pipeline: Pipeline | None = None
        self._options: ResponseOptions | None = None
        self._held: Held | None = None

    # What the demultiplexer reports.

    def received(self, data: bytes) -> None:
        """Bytes have arrived."""
        shared = self._shared
        shared.metrics.received_bytes += len(data)
        if self.input is IGNORED:
            if self.phase is LINGERING:
                self.since = shared.now
            return
        pipeline = self.pipeline
        parser = shared.parsers.shared if pipeline is None else pipeline.parser
        try:
            requests = parser.feed(data)
        except PushUpError as error:
            self.set_input(IGNORED)
            # Without the traceback, which would lead back here.
            self._take(parser, [*parser.requests, Refusal(error.with_traceback(None), parser.head)])
            return
        except Exception:
            if parser is shared.parsers.shared:
                shared.parsers.take_shared()  # its state is unknown: no other connection may get it
            raise
        if pipeline is None and parser.idle and not parser.ended and len(requests) == 1 and self.phase is IDLE:
            self.begin(requests[0])  # a poll, most of the time
        else:
            self._take(parser, requests)

    def ended(self) -> None:
        """The client sends no more. If it waits for a message, it has left; any other request is still answered."""
        phase, pipeline = self.phase, self.pipeline
        if phase in _LEFT or (phase is IDLE and not (pipeline and pipeline.has_waiting)):
            self.lost()
            return
        self.set_input(ENDED)
        if pipeline is not None:
            pipeline.discard_incomplete()
            self._after_pipeline()

    def writable(self) -> None:
        """The kernel accepts bytes again."""
        if not self._flush():
            return
        if self.phase is STREAMING:
            cast(Streamed, self._held).drained()
        else:
            self._enter(IDLE)
            self._sent()

    def lost(self) -> None:
        """The connection broke, or is given up: close it and forget everything about it."""
        if self.phase is CLOSED:
            return
        super().lost()
        self._discard_pipeline()
        held, self._held = self._held, None
        if held is not None:
            self._shared.application.abandon(held)

    # What the application does (`Exchange`).

    @property
    def client(self) -> Client:
        return Client.of(self.socket)

    def hold(self, held: Held) -> None:
        """The open request is a poll that waits."""
        if self.input is ENDED:
            self._shared.application.abandon(held)
            self.lost()
            return
        if self.phase is OPEN:
            self.phase = HELD
        else:
            self._enter(HELD)
        self._held = held

    def answer(self, answer: Answer) -> None:
        """The open request is a poll, and this is its answer."""
        shared = self._shared
        if shared.draining:
            self._options = last(self._options)
        self._respond(shared.writer.answer(answer, self._options))

    def respond(self, response: Response) -> None:
        """Answer the open request."""
        shared = self._shared
        if shared.draining:
            self._options = last(self._options)
        self._respond(shared.writer.response(response, self._options))

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        """The open request is answered with a stream that begins with these bytes; returns what `write` does."""
        shared = self._shared
        if shared.draining or not chunked:
            self._options = last(self._options)
        self._enter(STREAMING)
        self._held = streamed
        return self._put(shared.writer.stream_head(content_type, self._options, chunked=chunked) + first)

    def write(self, data: bytes) -> bool:
        """Send the next bytes of the stream; returns whether the kernel has accepted everything so far."""
        return self.phase is STREAMING and self._put(data)

    def finish(self, data: bytes) -> None:
        """Send the last bytes of the stream."""
        if self._shared.draining:
            self._options = last(self._options)
        self._respond(data)

    @property
    def is_idle(self) -> bool:
        """Whether no request is open or waits on it."""
        return self.phase is IDLE and self.pipeline is None

    def close_if_idle(self) -> None:
        """Close the connection if nothing is open on it, because the node is stopping."""
        if self.is_idle:
            self._close()

    # Requests, one at a time.

    def begin(self, request: Request) -> None:
        """Open a request; it may be answered before this returns."""
        if self.phase is IDLE:
            self.phase = OPEN
        else:
            self._enter(OPEN)
        application = self._shared.application
        if request.keep_alive and request.method != b"HEAD" and b"origin" not in request.headers:
            self._options = None
        else:
            self._options = options_for(request, application)
        application(request, self)

    def refuse(self, error: PushUpError, head: Request | None) -> None:
        """Open an incomplete request and answer it with an error; the connection ends with it."""
        self._enter(OPEN)
        application = self._shared.application
        self._options = last(None if head is None else options_for(head, application))
        application.refuse(error, head, self)

    # The pipeline, where one is needed.

    def _take(self, parser: RequestParser, requests: Sequence[Request | Refusal]) -> None:
        """A request is incomplete, is the last, or has to wait."""
        if parser.ended:
            self.set_input(IGNORED)
        pipeline = self.pipeline = self.pipeline or Pipeline(self._shared)
        pipeline.take(self, parser, requests)
        self._after_pipeline()

    def resume(self) -> None:
        """Continue with the pipeline: other connections have had their turn. An error in here ends only this one."""
        if self.pipeline is not None:
            try:
                self.pipeline.resume(self)
                self._after_pipeline()
            except Exception:
                self.lost()
                raise

    def _after_pipeline(self) -> None:
        """The pipeline has changed: drop it if it is empty, or send the `100 Continue` that its client waits for."""
        pipeline = self.pipeline
        if pipeline is None:
            return
        self.read_bytes = pipeline.read_bytes
        if pipeline.is_empty:
            self.pipeline = None
        elif self.phase is IDLE and pipeline.lets_continue():
            self._send(CONTINUE)

    def _discard_pipeline(self) -> None:
        if self.pipeline is not None:
            self.pipeline.discard()
            self.pipeline = None

    # Writing.

    def _respond(self, data: bytes) -> None:
        if self.phase is CLOSED:
            return  # the client left while the application had its request
        self._held = None
        if self._send(data):
            if self.phase is HELD:
                self.phase = IDLE
            else:
                self._enter(IDLE)
            self.since = self._shared.now
            if self._options is not None or self.pipeline is not None or self.input is not READING:
                self._sent()

    def _send(self, data: bytes) -> bool:
        """Send a whole response, or the rest of one; returns whether the kernel accepted all of it."""
        if self._put(data):
            return True
        if self.phase is not CLOSED:
            self._enter(SENDING)
        return False

    def _sent(self) -> None:
        """The kernel has accepted all of a response: decide what comes next."""
        options, self._options = self._options, None
        if options is not None and options.close:
            self._close()
        elif self.pipeline is not None:
            if not self.pipeline.is_serving:  # else the response is one of those that it is serving
                self.pipeline.serve(self)
                self._after_pipeline()
        elif self.input is ENDED:
            self.lost()

    def _close(self) -> None:
        """Send no more, and linger until the client closes its side as well."""
        if self.input is ENDED:
            self.lost()
            return
        self._enter(LINGERING)
        self.lingers_until = self._shared.now + self._shared.limits.request_timeout_seconds
        self._discard_pipeline()
        self.set_input(IGNORED)
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost()
