"""The timeouts of connections: which are given up because they made no progress for too long."""

from __future__ import annotations

import socket

from pushup.net.connection import Connection
from pushup.net.connection_states import Event, Input, Phase
from pushup.net.edge_limits import EdgeLimits
from pushup.net.http_errors import RequestTimeout
from pushup.net.pipeline import Pipeline

LINGER_SECONDS = 2.0
"""How long a lingering connection is read after its last byte, so that a reset does not destroy the last response (RFC
9112 §9.6). A client that sends the body of a refused request has as long for it as for any request."""


_WAITING = frozenset((Phase.HELD, Phase.STREAMING))
_IN_TURN = frozenset((Phase.OPEN, Phase.HELD))


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
