"""The edge: all listeners and connections of a node.

Why it is our own: docs/decisions/0003-an-edge-of-our-own.md.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from twisted.internet.interfaces import IReactorFDSet, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from pushup.core.errors import Overloaded
from pushup.metrics import Metrics
from pushup.net.connection import Connection
from pushup.net.exchange import Application
from pushup.net.http1 import RequestParser
from pushup.net.input_budget import InputBudget
from pushup.net.known_heads import KnownHeads
from pushup.net.limits import EdgeLimits, RequestLimits
from pushup.net.listener import Listener
from pushup.net.parser_pool import ParserPool
from pushup.net.problems import problem
from pushup.net.responses import ResponseOptions, ResponseWriter
from pushup.net.shared import Shared
from pushup.net.timeouts import sweep
from pushup.net.wait.demultiplexer import Demultiplexer, Watched
from pushup.net.wait.dispatch import read

SWEEP_SECONDS = 1.0
"""How often every connection is checked for progress, which takes 0.1 us each."""

_log = Logger()


class Edge:
    """Makes a connection of each accepted socket, and ends it.

    The order of calls: `start`, `listen` (for each address), `drain`, `stop_listening`, `close`.
    """

    def __init__(
        self,
        *,
        application: Application,
        demultiplexer: Demultiplexer,
        reactor: IReactorFDSet,
        clock: IReactorTime,
        wall: Callable[[], float],
        limits: EdgeLimits,
        request_limits: RequestLimits,
        metrics: Metrics,
    ) -> None:
        """`wall` returns seconds since the epoch, for the Date header; `clock` is for timeouts."""
        self._reactor = reactor
        self._clock = clock
        self._wall = wall
        self._listeners: list[Listener] = []
        self._connections: dict[Watched, Connection] = {}

        known = KnownHeads(request_limits)

        def new_parser() -> RequestParser:
            return RequestParser(request_limits, lambda request: shared.application.admit(request), known)

        self._shared = shared = Shared(
            application=application,
            demultiplexer=demultiplexer,
            limits=limits,
            metrics=metrics,
            writer=ResponseWriter(),
            parsers=ParserPool(new_parser),
            input_budget=InputBudget(limits.waiting_requests_limit_bytes),
            forget=self._forget,
        )
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = clock

    def start(self) -> None:
        """Start the demultiplexer and the sweep of connections."""
        self._shared.demultiplexer.start()
        self._sweeping.start(SWEEP_SECONDS, now=True).addErrback(
            lambda failure: _log.failure(
                "the sweep of connections failed: connections no longer time out; restart the process", failure
            )
        )

    def listen(self, sock: socket.socket, *, is_shared: bool = False) -> str:
        """Accept connections on a listening socket, which other processes may share; returns its address."""
        listener = Listener(
            sock, reactor=self._reactor, clock=self._clock, accepted=self._accepted, is_shared=is_shared
        )
        self._listeners.append(listener)
        listener.start()
        return listener.address

    def use_application(self, application: Application) -> None:
        """Let another application answer from the next request on."""
        self._shared.application = application

    @property
    def limits(self) -> EdgeLimits:
        return self._shared.limits

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that count against `waiting_requests_limit_bytes`."""
        return self._shared.input_budget.used

    def drain(self) -> None:
        """From now on each response is the last of its connection. Idle connections end at once, unless a request has
        arrived on them: one that was just accepted would be closed without an answer."""
        self._shared.draining = True
        for connection in list(self._connections.values()):
            if connection.is_idle:
                read(connection)
            connection.close_if_idle()

    def stop_listening(self) -> None:
        """Accept no more connections; open ones continue."""
        for listener in self._listeners:
            listener.close()

    def close(self) -> None:
        """End everything now."""
        self.stop_listening()
        if self._sweeping.running:
            self._sweeping.stop()
        for connection in list(self._connections.values()):
            connection.lost()
        self._shared.demultiplexer.close()

    def _accepted(self, sock: socket.socket) -> None:
        shared = self._shared
        if len(self._connections) >= shared.limits.connections_limit:
            shared.metrics.refused_connections += 1
            self._refuse(sock)
            return
        connection = Connection(shared, sock)
        shared.demultiplexer.add(connection)
        self._connections[connection] = connection
        shared.metrics.accepted_connections += 1

    def _forget(self, connection: Watched) -> None:
        del self._connections[connection]
        self._shared.demultiplexer.remove(connection)

    def _refuse(self, sock: socket.socket) -> None:
        shared = self._shared
        error = Overloaded(
            f"the server has reached connections_limit ({shared.limits.connections_limit}); try again later",
            retry_after=5,
        )
        try:
            sock.send(shared.writer.response(problem(error), ResponseOptions(close=True)))
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has left already
        sock.close()

    def _sweep(self) -> None:
        shared = self._shared
        last, shared.now = shared.now, self._clock.seconds()
        shared.writer.set_time(self._wall())
        for connection in list(self._connections.values()):
            sweep(connection, last, shared.limits)
