"""The edge: all listeners and connections of a node.

Why it is our own: docs/internals/decisions/0003-an-edge-of-our-own.md.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from twisted.internet.interfaces import IReactorFDSet, IReactorTime
from twisted.logger import Logger

from pushup.metrics import Metrics
from pushup.net.application_interface import Application
from pushup.net.connection import Connection
from pushup.net.connection_states import Event
from pushup.net.edge_context import EdgeContext
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.input_budget import InputBudget
from pushup.net.known_heads import KnownHeads
from pushup.net.listener import Listener
from pushup.net.log_throttle import LogThrottle
from pushup.net.output_buffer import OutputBudget
from pushup.net.parser_pool import ParserPool
from pushup.net.request import Request
from pushup.net.reserve import RESERVED_CONNECTIONS, Reserve
from pushup.net.responses import ResponseWriter
from pushup.net.timeouts import sweep
from pushup.net.wait.demultiplexer import Demultiplexer, Watched, read_from
from pushup.service_tree import Periodic

SWEEP_SECONDS = 1.0
"""How often every connection is checked for progress, which takes 0.1 us each."""

_log = Logger()


class Edge:
    """Makes a connection of each accepted socket, and ends it.

    The order of calls: `start`, `listen` (for each address), `begin_drain`, `drain`, `stop_listening`, `close`.
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
        reserved_connections: int = RESERVED_CONNECTIONS,
    ) -> None:
        """`wall` returns seconds since the epoch, for the Date header; `clock` is for timeouts. `reserved_connections`:
        how many there may be beyond `connections_limit` (`reserve`).
        """
        self._reactor = reactor
        self._clock = clock
        self._wall = wall
        self._listeners: list[Listener] = []
        self._connections: dict[Watched, Connection] = {}

        known = KnownHeads(request_limits)

        def new_parser(admit: Callable[[Request], int]) -> RequestParser:
            return RequestParser(request_limits, admit, known)

        self._context = context = EdgeContext(
            application=application,
            demultiplexer=demultiplexer,
            limits=limits,
            metrics=metrics,
            writer=ResponseWriter(),
            parsers=ParserPool(lambda: new_parser(lambda request: context.application.admit(request))),
            input_budget=InputBudget(limits.waiting_requests_limit_bytes),
            output_budget=OutputBudget(limits.unsent_limit_bytes, lambda: demultiplexer.soon(self._relieve)),
            forget=self._forget,
        )
        self._rarely = LogThrottle(clock.seconds)
        self._reserve = Reserve(context, new_parser, places=reserved_connections, seconds=clock.seconds)
        self._sweeping = Periodic(
            self._sweep,
            SWEEP_SECONDS,
            clock,
            if_it_fails="the sweep of connections failed: connections no longer time out; restart the process",
            at_once=True,
        )

    def start(self) -> None:
        """Start the sweep of connections."""
        self._sweeping.startService()

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
        self._context.application = application

    @property
    def limits(self) -> EdgeLimits:
        return self._context.limits

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._reserve.connections)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that count against `waiting_requests_limit_bytes`."""
        return self._context.input_budget.used

    @property
    def unsent_bytes(self) -> int:
        """Bytes that count against `unsent_limit_bytes`."""
        return self._context.output_budget.used

    def begin_drain(self) -> None:
        """From now on each response is the last of its connection."""
        self._context.draining = True

    def drain(self) -> None:
        """As `begin_drain`. Idle connections end at once, unless a request has arrived on them: one that was just
        accepted would be closed without an answer."""
        self.begin_drain()
        for connection in self._all():
            if connection.is_idle:
                read_from(connection)
            if connection.is_idle:
                connection.on(Event.FINISHED)

    def stop_listening(self) -> None:
        """Accept no more connections; open ones continue."""
        for listener in self._listeners:
            listener.close()

    def close(self) -> None:
        """End everything now."""
        self.stop_listening()
        self._sweeping.stopService()
        for connection in self._all():
            connection.lost()

    def _accepted(self, sock: socket.socket) -> None:
        context = self._context
        if len(self._connections) >= context.limits.connections_limit:
            self._reserve.accept(sock)
            return
        connection = Connection(context, sock)
        context.demultiplexer.add(connection)
        self._connections[connection] = connection
        context.metrics.accepted_connections += 1

    def _forget(self, connection: Watched) -> None:
        del self._connections[connection]
        self._context.demultiplexer.remove(connection)

    def _all(self) -> list[Connection]:
        return [*self._connections.values(), *self._reserve.connections]

    def _relieve(self) -> None:
        """The output budget is exceeded."""
        context = self._context
        closed = context.output_budget.relieve()
        context.metrics.failed_unsent += closed
        if closed and self._rarely.passes("unsent"):
            _log.warn(
                "closed {closed} connections of clients that do not read, because unsent_limit_bytes ({limit}) was "
                "exceeded; they continue from their cursors (pushup_unsent_failures_total counts them)",
                closed=closed,
                limit=context.limits.unsent_limit_bytes,
            )

    def _sweep(self) -> None:
        context = self._context
        last, context.now = context.now, self._clock.seconds()
        self._reserve.set_time(context.now)
        context.writer.set_time(self._wall())
        for connection in self._all():
            sweep(connection, last, context.limits)
