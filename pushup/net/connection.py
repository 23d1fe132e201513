"""A client's connection: bytes in, requests to the application one at a time, responses out (Hsu §3.2).

Requests of a pipeline are answered in order: while one is open, a held poll say, those behind it wait, and when too
many wait nothing more is read. A response goes straight to the kernel; what that refuses goes into an output buffer,
and no further request is begun until it is empty, so that a client who does not read can make nothing grow.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pushup.core.answer import Answer
from pushup.core.errors import Overloaded, PushUpError, RequestTimeout
from pushup.net.exchange import Client, Held
from pushup.net.http1 import Request, RequestParser
from pushup.net.output_buffer import OutputBuffer
from pushup.net.responses import Manner, Response, problem

if TYPE_CHECKING:
    from pushup.net.edge import Edge

PIPELINE_LIMIT = 64
"""Requests that may wait behind an open one before reading stops; browsers pipeline none, HTTP libraries a few."""

PIPELINE_LIMIT_BYTES = 64 * 1024
"""What these requests may take before reading stops; the one that goes past it is still taken, whole."""

PIPELINE_SHARE = 8
"""Requests of one pipeline that are begun before other connections have their turn."""

READ_BYTES = 4 * 1024
"""What one read takes: ample for a poll, and no more requests than may well wait: 64 KiB would hold 3,000, which take a
MiB. (Python allocates as much before it knows how much there is.)"""

READ_BODY_BYTES = 64 * 1024
"""What one read takes while a body of at least as much is still to come."""

LINGER_SECONDS = 2.0
"""How long a closed connection is read on while nothing comes, so that the last response is not lost to a reset (RFC
9112 §9.6). A client that sends the body of a refused request has as long for it as for any request."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_CLOSING = Manner(close=True)


class Refusal(NamedTuple):
    """What is answered to a request that will not be whole."""

    error: PushUpError
    head: Request | None
    """The request without its body, if so much has come and its response is not put off."""


class Connection:
    """One client. Most of the time it is a held poll, so what a held poll does not need is None then."""

    __slots__ = (
        "_backlog", "_backlog_bytes", "_counted_bytes", "_deaf", "_edge", "_ended", "_lingering_until", "_manner",
        "_open", "_output", "_parser", "_proceeding", "_reading", "held", "read_bytes", "since", "socket",
    )  # fmt: skip

    def __init__(self, edge: Edge, sock: socket.socket) -> None:
        # for the connection's life; deaf: what still comes is passed over, and only its end is of interest
        self._edge = edge
        self.socket = sock
        self._ended = False
        self._lingering_until = 0.0
        self._deaf = False
        self._reading = True
        # of the request that is coming in
        self.read_bytes = READ_BYTES
        self._parser: RequestParser | None = None
        self._backlog: deque[Request | Refusal] | None = None
        self._backlog_bytes = 0
        self._counted_bytes = 0
        # of the request that is open, and of its response
        self._open = False
        self._proceeding = False
        self._manner: Manner | None = None
        self.held: Held | None = None
        self._output: OutputBuffer | None = None
        # when it last got anywhere, seconds since the epoch
        self.since = edge.now

    # What the demultiplexer reports.

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        edge = self._edge
        edge.metrics.received_bytes += len(data)
        if self._deaf:
            if self._lingering_until:
                self.since = edge.now
            return
        parser = self._parser or edge.parser
        requests: Sequence[Request | Refusal]
        try:
            requests = parser.feed(data)
            self._deaf = parser.ended
        except PushUpError as error:
            # Without the traceback, which would lead back here.
            requests = [*parser.requests, Refusal(error.with_traceback(None), parser.head)]
            self._deaf = True
        except Exception:
            if self._parser is None:
                edge.renew_parser()  # who knows what is in this one: nobody else shall get it
            raise
        if self._deaf or not parser.idle:
            if self._parser is None:  # it is the one for all
                edge.renew_parser()
            if self._parser is None or requests:  # here begins the one that has come in part
                parser.since = self.since = edge.now
                parser.kept_bytes = 0
            parser.kept_bytes += len(data)
            self._parser = parser
            self.read_bytes = READ_BODY_BYTES if parser.body_left >= READ_BODY_BYTES else READ_BYTES
        elif self._parser is not None:
            edge.give_parser(parser)
            self._parser = None
            self.read_bytes = READ_BYTES
        if self._deaf:
            self._drop_parser()
        if requests:
            self._take(requests)
        if self._parser is not None or self._backlog is not None or self._counted_bytes:
            self._count()
            # Nothing may wait here any more, when the last request has become whole and was begun.
            too_much = edge.waiting_bytes > edge.limits.waiting_requests_limit_bytes
            if too_much and self._counted_bytes and not self._deaf:
                if self._backlog is not None:
                    self._backlog.clear()
                    self._backlog_bytes = 0
                self._refuse_the_rest(Overloaded("too many requests have come in part only", retry_after=5))
                self._count()
        if parser.wants_continue:
            self._let_continue()

    def ended(self) -> None:
        """The client sends no more. One that waits for a message has left; what else is open is still answered."""
        if self.held is not None or self._lingering_until or not (self._open or self._output or self._backlog):
            self.lost()
        else:
            self._ended = True
            self._drop_parser()
            self._stop_reading()

    def writable(self) -> None:
        """The kernel takes bytes again."""
        output = self._output
        if output is None:
            return
        before = output.size
        try:
            output.write(self.socket.send)
        except BlockingIOError:
            pass
        except OSError:
            self.lost()
            return
        self.since = self._edge.now
        self._edge.metrics.sent_bytes += before - output.size
        if output.size:
            return
        self._output = None
        self._edge.demultiplexer.want(self, reading=self._reading, writing=False)
        self._sent()

    def lost(self) -> None:
        """The connection is gone, or is given up: forget all of it."""
        if not self._edge.forget(self):
            return
        self.socket.close()
        self._backlog = self._output = None
        self._drop_parser()
        self._count()
        held, self.held = self.held, None
        if held is not None:
            self._edge.application.abandon(held)

    # What the application says.

    @property
    def client(self) -> Client:
        """Who is at the other end."""
        try:
            name = self.socket.getpeername()
        except OSError:
            return Client("gone")
        return Client(*name[:2]) if isinstance(name, tuple) else Client("")

    def hold(self, held: Held) -> None:
        """The open request is a poll that waits."""
        if self._ended:
            self._edge.application.abandon(held)
            self.lost()
        else:
            self.held = held

    def answer(self, answer: Answer) -> None:
        """The open request is a poll, and this is its answer."""
        self.held = None
        if self._edge.draining:
            self._manner = (self._manner or _CLOSING)._replace(close=True)
        self._respond(self._edge.writer.answer(answer, self._manner))

    def respond(self, response: Response) -> None:
        """Answer the open request."""
        self.held = None
        if self._edge.draining:
            self._manner = (self._manner or _CLOSING)._replace(close=True)
        self._respond(self._edge.writer.response(response, self._manner))

    # What time brings.

    def sweep(self, last: float) -> None:
        """Give up what has got nowhere for too long; called about once a second.

        `last`: the sweep before this one, since times are taken from the last sweep and may be too early by as much.
        """
        limits = self._edge.limits
        waited = last - self.since
        if self._lingering_until:
            if waited > LINGER_SECONDS or last > self._lingering_until:
                self.lost()
        elif (
            self._parser is not None
            and last - self._parser.since > limits.request_timeout_seconds
            and self._reading  # else the rest may have come
            and not (self._open and self._parser.wants_continue)  # it waits for its turn to go on
        ):
            self._refuse_the_rest(RequestTimeout(f"no whole request within {limits.request_timeout_seconds:g} s"))
        elif self._output is not None:
            if waited > limits.idle_timeout_seconds:
                self.lost()
        elif not self._reading and self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.lost()  # a reset, which the reactor does not report of a socket that is neither read nor written
        elif self._open or self._parser is not None:
            pass  # the application has it, and a held poll has a deadline of its own; or the next one is coming in
        elif waited > limits.idle_timeout_seconds:
            self.lost()

    def close_if_idle(self) -> None:
        """Close it now if nothing is open on it: the node is to stop."""
        waiting = self._backlog is not None or self._parser is not None
        if not self._open and self._output is None and not waiting and not self._lingering_until:
            self._linger()

    # Inside.

    def _take(self, requests: Sequence[Request | Refusal]) -> None:
        """Begin the next requests, or put them behind the one that is open."""
        if len(requests) == 1 and not self._open and self._backlog is None and self._output is None:
            self._begin(requests[0])
            return
        if self._backlog is None:
            self._backlog = deque()
            self._backlog_bytes = 0
        self._backlog += requests
        self._backlog_bytes += sum(r.size for r in requests if isinstance(r, Request))
        self._proceed()
        if self._backlog and isinstance(self._backlog[-1], Refusal):
            self._backlog[-1] = Refusal(self._backlog[-1].error, None)  # a head is too large to wait uncounted
        if self._backlog is not None and (
            len(self._backlog) >= PIPELINE_LIMIT or self._backlog_bytes >= PIPELINE_LIMIT_BYTES
        ):
            self._stop_reading()

    def _refuse_the_rest(self, error: PushUpError) -> None:
        """The request that is coming in will not be whole: answer the error in its turn, and pass over what comes."""
        self._deaf = True
        head = None if self._parser is None else self._parser.head
        self._drop_parser()
        self._take([Refusal(error, head)])

    def _count(self) -> None:
        """Let the edge know what the requests take that wait here, behind another or for their end."""
        bytes_ = self._backlog_bytes if self._backlog is not None else 0
        if self._parser is not None:
            bytes_ += self._parser.size
        self._edge.waiting_bytes += bytes_ - self._counted_bytes
        self._counted_bytes = bytes_

    def _begin(self, request: Request | Refusal) -> None:
        self._open = True
        if isinstance(request, Refusal):
            self._refuse(*request)
            return
        if request.keep_alive and request.method != b"HEAD" and b"origin" not in request.headers:
            self._manner = None
        else:
            self._manner = self._edge.manner(request)
        self._edge.application(request, self)

    def _refuse(self, error: PushUpError, head: Request | None) -> None:
        """Answer the error, in the way that the request wants if that is known; the connection ends with it."""
        if head is None:
            self._manner = _CLOSING
            self._edge.refusals.note(error, self.client)
            self.respond(problem(error))
        else:
            self._manner = (self._edge.manner(head) or _CLOSING)._replace(close=True)
            self._edge.application.refuse(error, head, self)

    def _drop_parser(self) -> None:
        """The parser here is used up, or its request will not be whole any more."""
        if self._parser is not None:
            self._parser.discard()
            self._parser = None
            self._count()

    def _proceed(self) -> None:
        """Begin the requests that wait, as far as they are answered at once; a share of them now, the others soon."""
        if self._proceeding:
            return  # an answer given at once comes back here; the loop below goes on with the next
        self._proceeding = True
        share = PIPELINE_SHARE
        while self._backlog and not self._open and self._output is None:
            if share == 0:
                self._edge.demultiplexer.soon(self._proceed_again)
                return
            share -= 1
            request = self._backlog.popleft()
            if isinstance(request, Request):
                self._backlog_bytes -= request.size
            self._begin(request)
        self._proceeding = False
        if self._backlog is not None and not self._backlog:
            self._backlog = None
            self._count()
            if self._ended:
                if not self._open and self._output is None:
                    self.lost()
            elif not self._reading and not self._lingering_until:
                self._reading = True
                if self._parser is not None:
                    self._parser.since = self._edge.now
                self._edge.demultiplexer.want(self, reading=True, writing=self._output is not None)

    def _proceed_again(self) -> None:
        """The others have had their turn. An error in here ends this connection and no other."""
        self._proceeding = False
        try:
            self._proceed()
            self._let_continue()
        except Exception:
            self.lost()
            raise

    def _respond(self, data: bytes) -> None:
        self._open = False
        if self._write(data):
            self.since = self._edge.now
            if self._manner is not None or self._backlog is not None or self._parser is not None or self._ended:
                self._sent()

    def _sent(self) -> None:
        """All bytes of the response are with the kernel: what now?"""
        if self._manner is not None and self._manner.close:
            self._linger()
        elif self._backlog is not None:
            self._proceed()
        elif self._ended and not self._open:
            self.lost()
        self._let_continue()

    def _let_continue(self) -> None:
        """Tell a client that waits with a body to send it, once its turn has come (RFC 9110 §10.1.1)."""
        parser = self._parser
        first = self._backlog is None and not self._open and self._output is None
        if parser is not None and parser.wants_continue and first:
            parser.wants_continue = False
            parser.since = self._edge.now
            self._write(CONTINUE)

    def _write(self, data: bytes) -> bool:
        """Whether the kernel took all of it; what it did not is buffered, or the connection is lost."""
        edge = self._edge
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.lost()
            return False
        edge.metrics.sent_bytes += sent
        if sent == len(data):
            return True
        self.since = edge.now
        self._output = OutputBuffer(edge.limits.output_limit_bytes)
        if self._output.append(memoryview(data)[sent:]):
            edge.demultiplexer.want(self, reading=self._reading, writing=True)
        else:
            edge.metrics.failed_outputs += 1
            self.lost()
        return False

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._edge.demultiplexer.want(self, reading=False, writing=self._output is not None)

    def _linger(self) -> None:
        """Say that no more comes, and read on until the client has closed, too."""
        self._deaf = True
        self._lingering_until = self._edge.now + self._edge.limits.request_timeout_seconds
        self._backlog = None
        self._drop_parser()
        self._count()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost()
            return
        self._reading = True
        self._edge.demultiplexer.want(self, reading=True, writing=False)
