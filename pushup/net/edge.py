"""The edge: all listeners and connections of a node, and what they share.

Why it is our own: docs/decisions/0003-an-edge-of-our-own.md.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from msgspec import Struct
from twisted.internet.interfaces import IReactorFDSet, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from pushup.core.errors import Overloaded
from pushup.metrics import Metrics
from pushup.net.connection import Connection
from pushup.net.demultiplexer import Demultiplexer
from pushup.net.exchange import Application
from pushup.net.http1 import Request, RequestLimits, RequestParser
from pushup.net.listener import Listener
from pushup.net.refusals import Refusals
from pushup.net.responses import Header, Manner, ResponseWriter, problem

SWEEP_SECONDS = 1.0
"""How often connections are looked at for having got nowhere: 0.1 us each."""

SPARE_PARSERS = 64
"""Parsers kept for requests that come in part; 1.5 KB each."""


class EdgeLimits(Struct, frozen=True, kw_only=True):
    """The bounds of connections."""

    connections_limit: int = 100_000
    """Connections at a time; who comes beyond is told 503."""
    output_limit_bytes: int = 1024 * 1024
    """Unsent bytes of one client, past which its connection counts as failed (Hsu §3.2)."""
    request_timeout_seconds: float = 10.0
    """From the first byte of a request to its last."""
    waiting_requests_limit_bytes: int = 64 * 1024 * 1024
    """All requests together that have come in part, or wait behind another one on their connection."""
    idle_timeout_seconds: float = 75.0
    """Between two requests, and between two bytes that a client takes."""


class Edge:
    """Makes connections of accepted sockets, and ends them."""

    def __init__(
        self,
        *,
        application: Application,
        refusals: Refusals,
        demultiplexer: Demultiplexer,
        reactor: IReactorFDSet,
        clock: IReactorTime,
        limits: EdgeLimits,
        request_limits: RequestLimits,
        cors_origins: frozenset[str],
        metrics: Metrics,
        connect: Callable[[Edge, socket.socket], Connection] = Connection,
    ) -> None:
        """`connect` makes the connection of an accepted socket."""
        self.application = application
        self.refusals = refusals
        self.waiting_bytes = 0
        """What counts against `waiting_requests_limit_bytes`."""
        self.demultiplexer = demultiplexer
        self.limits = limits
        self.metrics = metrics
        self.writer = ResponseWriter()
        self.draining = False
        self.now = 0.0
        self._request_limits = request_limits
        self.parser = self._new_parser()
        self._spare_parsers: list[RequestParser] = []
        self._reactor = reactor
        self._clock = clock
        self._cors_origins = cors_origins
        self._connect = connect
        self._listeners: list[Listener] = []
        self._connections: dict[Connection, None] = {}
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = clock
        self._sweeping.start(SWEEP_SECONDS, now=True).addErrback(
            lambda failure: Logger().failure("the sweep of connections failed", failure)
        )

    def listen(self, sock: socket.socket) -> str:
        """Accept connections on a listening socket; returns its address."""
        listener = Listener(sock, reactor=self._reactor, clock=self._clock, accepted=self._accepted)
        self._listeners.append(listener)
        return listener.address

    def stop_listening(self) -> None:
        """Accept no more; connections live on."""
        for listener in self._listeners:
            listener.close()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def drain(self) -> None:
        """From now on every response ends its connection, and those with nothing open end at once."""
        self.draining = True
        for connection in list(self._connections):
            connection.close_if_idle()

    def close(self) -> None:
        """End everything now."""
        self.stop_listening()
        self._sweeping.stop()
        for connection in list(self._connections):
            connection.lost()
        self.demultiplexer.close()

    # What connections ask.

    def renew_parser(self) -> None:
        """The shared parser stays with a connection whose request came in part, or is used up."""
        self.parser = self._spare_parsers.pop() if self._spare_parsers else self._new_parser()

    def give_parser(self, parser: RequestParser) -> None:
        """Take back a parser whose request has come to its end."""
        parser.requests = []
        if len(self._spare_parsers) < SPARE_PARSERS:
            self._spare_parsers.append(parser)
        else:
            parser.discard()

    def forget(self, connection: Connection) -> bool:
        """Stop watching it; False when that was done before."""
        if connection not in self._connections:
            return False
        del self._connections[connection]
        self.demultiplexer.remove(connection)
        return True

    def manner(self, request: Request) -> Manner | None:
        """How the response to a request is to be written; None is the usual way."""
        origin = request.headers.get(b"origin")
        headers = self._cors(origin) if origin is not None and self._cors_origins else ()
        if request.keep_alive and request.method != b"HEAD" and not headers:
            return None
        return Manner(request.method == b"HEAD", not request.keep_alive, headers)

    def _cors(self, origin: bytes) -> tuple[Header, ...]:
        """Who may read the response: the Fetch standard's CORS protocol."""
        if "*" in self._cors_origins:
            return ((b"Access-Control-Allow-Origin", b"*"),)
        if origin.decode("latin-1") in self._cors_origins:
            return (
                (b"Access-Control-Allow-Origin", origin),
                (b"Access-Control-Allow-Credentials", b"true"),
                (b"Vary", b"Origin"),
            )
        return ((b"Vary", b"Origin"),)

    # Inside.

    def _new_parser(self) -> RequestParser:
        return RequestParser(self._request_limits, lambda request: self.application.admit(request))

    def _accepted(self, sock: socket.socket) -> None:
        if len(self._connections) >= self.limits.connections_limit:
            self.metrics.refused_connections += 1
            self._refuse(sock)
            return
        connection = self._connect(self, sock)
        self.demultiplexer.add(connection)
        self._connections[connection] = None
        self.metrics.accepted_connections += 1

    def _refuse(self, sock: socket.socket) -> None:
        error = Overloaded(f"connections_limit of {self.limits.connections_limit} is reached", retry_after=5)
        try:
            sock.send(self.writer.response(problem(error), Manner(close=True)))
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it does not want to hear it
        sock.close()

    def _sweep(self) -> None:
        last, self.now = self.now, self._clock.seconds()
        self.writer.set_time(self.now)
        for connection in list(self._connections):
            connection.sweep(last)
