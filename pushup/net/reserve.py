"""The reserve: a few connections beyond `connections_limit`, on which only operators and their probes are answered.

All others get 503 there, as the response to their request: a client that is still sending a body can read it, because
its connection lingers. When the reserve is full, the oldest connection makes room for the next one, so that clients
which send nothing cannot keep a probe out.

The addresses of operators (`operator_listen`) have a reserve of their own, on which every request is answered.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

from twisted.logger import Logger

from pushup.core.errors import PushUpError
from pushup.net.application_interface import Application, Exchange, Held
from pushup.net.connection import Connection
from pushup.net.connection_states import Phase
from pushup.net.edge_context import EdgeContext, Parsers
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import TooManyConnections
from pushup.net.log_throttle import LogThrottle
from pushup.net.pipeline import RejectedRequest
from pushup.net.requests_and_responses import Header, Request
from pushup.net.wait.demultiplexer import Watched, read_from

RESERVED_CONNECTIONS = 32
"""Probes and monitoring need two or three; a refused publisher needs one until it has sent its body."""

OPERATOR_PATHS = frozenset((b"/healthz", b"/readyz", b"/metrics"))

_log = Logger()


class Reserve:
    """The connections of the reserve, and the application that answers them. Each carries one request."""

    def __init__(
        self,
        usual: EdgeContext,
        new_parser: Callable[[Callable[[Request], int]], RequestParser],
        *,
        places: int,
        seconds: Callable[[], float],
        for_operators: bool = False,
    ) -> None:
        """`usual`: the surroundings of all other connections. `new_parser` makes a parser of what admits bodies.
        `seconds` of a monotonic clock. `for_operators`: it is that of their addresses.
        """
        self._usual = usual
        self._for_operators = for_operators
        self._places = places
        self._rarely = LogThrottle(seconds)
        self.connections: dict[Watched, Connection] = {}  # the oldest first
        self.context = replace(
            usual,
            application=self,
            parsers=Parsers(lambda: new_parser(self.admit)),
            forget=self.connections.pop,
            draining=True,
        )

    def accept(self, sock: socket.socket) -> None:
        """Make a connection of an accepted socket. Raises: OSError when the system can watch no more."""
        if len(self.connections) >= self._places:
            self._make_room()
        connection = Connection(self.context, sock)
        self.context.demultiplexer.add(connection)
        self.connections[connection] = connection

    def _make_room(self) -> None:
        """End the oldest connection whose request is not being answered, or else the oldest."""
        connections = list(self.connections.values())
        for oldest in connections:
            if oldest.is_idle:
                read_from(oldest)  # its request may have arrived: many connections are accepted in one turn
            if oldest.phase is not Phase.OPEN:
                break
        else:
            oldest = connections[0]
        if oldest.phase is Phase.IDLE:
            oldest.begin(RejectedRequest(self._error(), None))
        oldest.lost()

    def _error(self) -> TooManyConnections:
        limit = self._usual.limits.connections_limit
        what = f"has {self._places} connections on operator_listen"
        if not self._for_operators:
            what = f"has reached connections_limit ({limit})"
        return TooManyConnections(f"the server {what}; try again later", retry_after=5)

    # What connections ask (`Application`).

    def admit(self, request: Request) -> int:
        if not self._answers(request):
            raise self._error()
        return self._usual.application.admit(request)

    def __call__(self, request: Request, exchange: Exchange) -> None:
        if self._answers(request):
            self._usual.metrics.accepted_connections += 1
            self._usual.application(request, exchange)
        else:
            self.refuse(self._error(), request, exchange)

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        if isinstance(error, TooManyConnections):
            self._usual.metrics.refused_connections += 1
            if not self._for_operators and (count := self._rarely.passes("refused")):
                _log.warn(
                    "refused {count} connections, because connections_limit ({limit}) is reached: their clients got "
                    "503; raise it together with the limit on open files, or add workers or nodes",
                    count=count,
                    limit=self._usual.limits.connections_limit,
                )
        self._usual.application.refuse(error, request, exchange)

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        return self._usual.application.headers_for(request)

    def abandon(self, held: Held) -> None:
        self._usual.application.abandon(held)

    def _answers(self, request: Request) -> bool:
        return self._for_operators or request.target.partition(b"?")[0] in OPERATOR_PATHS


_check: type[Application] = Reserve
