"""The edge: all listeners and connections of a node, and which connections are given up.

Why it is our own: docs/internals/decisions/0003-an-edge-of-our-own.md.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from twisted.internet.interfaces import IReactorFDSet, IReactorTime
from twisted.logger import Logger

from pushup.metrics import Metric, Metrics, gauge
from pushup.net.application_interface import Application
from pushup.net.connection import Connection
from pushup.net.connection_states import Event, Input, Phase
from pushup.net.edge_context import EdgeContext, InputBudget, Parsers
from pushup.net.edge_limits import EdgeLimits, RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import RequestTimeout
from pushup.net.known_heads import KnownHeads
from pushup.net.listener import Listener
from pushup.net.log_throttle import LogThrottle
from pushup.net.output_buffer import OutputBudget
from pushup.net.pipeline import Pipeline
from pushup.net.proxies import TrustedProxies
from pushup.net.requests_and_responses import ResponseWriter
from pushup.net.reserve import RESERVED_CONNECTIONS, Reserve
from pushup.net.wait.demultiplexer import Demultiplexer, Watched, read_from
from pushup.service_tree import Periodic

SWEEP_SECONDS = 1.0
"""How often every connection is checked for progress, which takes 0.1 us each."""

LINGER_SECONDS = 2.0
"""How long a lingering connection is read after its last byte, so that a reset does not destroy the last response (RFC
9112 §9.6). A client that sends the body of a refused request has as long for it as for any request."""

_WAITING = frozenset((Phase.HELD, Phase.STREAMING))
_IN_TURN = frozenset((Phase.OPEN, Phase.HELD))

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
        proxies: TrustedProxies | None = None,
        operators: Application | None = None,
    ) -> None:
        """`wall` returns seconds since the epoch, for the Date header; `clock` is for timeouts. `reserved_connections`:
        how many there may be beyond `connections_limit` (`reserve`), and how many more on the addresses of operators,
        where `operators` answers.
        """
        self._reactor = reactor
        self._clock = clock
        self._wall = wall
        self._listeners: list[Listener] = []
        self._connections: dict[Watched, Connection] = {}
        new_parser = partial(RequestParser, request_limits, known=KnownHeads(request_limits))
        self._context = context = EdgeContext(
            application=application,
            demultiplexer=demultiplexer,
            limits=limits,
            metrics=metrics,
            writer=ResponseWriter(),
            parsers=Parsers(lambda: new_parser(lambda request: context.application.admit(request))),
            input_budget=InputBudget(limits.waiting_requests_limit_bytes),
            output_budget=OutputBudget(limits.unsent_limit_bytes, lambda: demultiplexer.soon(self._relieve)),
            forget=self._connections.pop,
            proxies=proxies,
        )
        self._rarely = LogThrottle(clock.seconds)
        self._operators = replace(context, application=operators or application)
        self._reserves = [
            Reserve(around, new_parser, places=reserved_connections, seconds=clock.seconds, for_operators=is_theirs)
            for around, is_theirs in ((context, False), (self._operators, True))
        ]
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

    def listen(self, sock: socket.socket, *, is_shared: bool = False, for_operators: bool = False) -> str:
        """Accept connections on a listening socket, which other processes may share; returns its address."""
        accepted = self._reserves[1].accept if for_operators else self._accepted
        listener = Listener(sock, reactor=self._reactor, clock=self._clock, accepted=accepted, is_shared=is_shared)
        self._listeners.append(listener)
        listener.start()
        return listener.address

    def use_application(self, application: Application, operators: Application) -> None:
        """Let other applications answer from the next request on."""
        self._context.application, self._operators.application = application, operators

    @property
    def connection_count(self) -> int:
        return len(self._connections) + sum(len(reserve.connections) for reserve in self._reserves)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that count against `waiting_requests_limit_bytes`."""
        return self._context.input_budget.used

    @property
    def unsent_bytes(self) -> int:
        """Bytes that count against `unsent_limit_bytes`."""
        return self._context.output_budget.used

    def metrics(self) -> Iterator[Metric]:
        """What is open, and the limits."""
        for name in ("connections_limit", "unsent_limit_bytes", "waiting_requests_limit_bytes"):
            yield gauge(name, f"The limit {name}", getattr(self._context.limits, name))
        yield gauge("connections", "Open connections", self.connection_count)
        yield gauge("waiting_requests_bytes", "Bytes in use of waiting_requests_limit_bytes", self.waiting_bytes)
        yield gauge("unsent_bytes", "Bytes that count against unsent_limit_bytes", self.unsent_bytes)

    def begin_drain(self, begins: bool = True) -> None:
        """From now on each response is the last of its connection; or, if not `begins`, no longer."""
        self._context.draining = begins

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
            self._reserves[0].accept(sock)
            return
        connection = Connection(context, sock)
        context.demultiplexer.add(connection)
        self._connections[connection] = connection
        context.metrics.accepted_connections += 1

    def _all(self) -> list[Connection]:
        reserved = [each for reserve in self._reserves for each in reserve.connections.values()]
        return [*self._connections.values(), *reserved]

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
        for reserve in self._reserves:
            reserve.context.now = context.now
        context.writer.set_time(self._wall())
        for connection in self._all():
            sweep(connection, last, context.limits)


def sweep(connection: Connection, last: float, limits: EdgeLimits) -> None:
    """Give the connection up if it is overdue; called about once a second.

    `last`: the sweep before this one, because times are taken from the last sweep and may be too early by as much.
    """
    phase, pipeline = connection.phase, connection.pipeline
    if pipeline is None and phase in _WAITING and connection.input is Input.READING and connection.output is None:
        return  # most connections: a held poll has its own deadline, and a stream its heartbeats
    waited = last - connection.since
    receiving = pipeline is not None and pipeline.incomplete is not None  # then the request timeout counts
    if phase is Phase.LINGERING:
        if waited > LINGER_SECONDS or last > connection.lingers_until:
            connection.lost()
    elif pipeline is not None and _is_late(connection, pipeline, last, limits):
        limit = limits.request_timeout_seconds
        pipeline.refuse_incomplete(RequestTimeout(f"the request was not complete within {limit:g} s"))
        connection.advance(pipeline, Event.LAST)
    elif connection.output is not None:
        if waited > limits.idle_timeout_seconds:
            connection.lost()
    elif connection.input in (Input.PAUSED, Input.ENDED) and connection.socket.getsockopt(
        socket.SOL_SOCKET, socket.SO_ERROR
    ):
        connection.lost()  # a reset, which the reactor does not report while the socket is neither read nor written
    elif phase is Phase.IDLE and waited > limits.idle_timeout_seconds and not receiving:
        connection.lost()


def _is_late(connection: Connection, pipeline: Pipeline, last: float, limits: EdgeLimits) -> bool:
    """Whether the incomplete request is overdue."""
    parser = pipeline.incomplete
    if parser is None or last - pipeline.since <= limits.request_timeout_seconds:
        return False
    if parser.wants_continue and connection.phase in _IN_TURN:
        return False  # the client must wait before it sends the rest
    return connection.input is Input.READING  # while nothing is read, the rest may already be in the kernel
