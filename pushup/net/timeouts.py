"""The timeouts of connections: which are given up because they made no progress for too long."""

from __future__ import annotations

import socket

from pushup.net.connection import Connection
from pushup.net.edge_limits import EdgeLimits
from pushup.net.phases import Input, Phase

LINGER_SECONDS = 2.0
"""How long a lingering connection is read after its last byte, so that a reset does not destroy the last response (RFC
9112 §9.6). A client that sends the body of a refused request has as long for it as for any request."""


_WAITING = frozenset((Phase.HELD, Phase.STREAMING))


def sweep(connection: Connection, last: float, limits: EdgeLimits) -> None:
    """Give the connection up if it is overdue; called about once a second.

    `last`: the sweep before this one, because times are taken from the last sweep and may be too early by as much.
    """
    phase, pipeline = connection.phase, connection.pipeline
    if pipeline is None and phase in _WAITING and connection.input is Input.READING and not connection.has_unsent:
        return  # most connections: a held poll has its own deadline, and a stream its heartbeats
    waited = last - connection.since
    receiving = pipeline is not None and pipeline.has_incomplete  # then the request timeout counts
    if phase is Phase.LINGERING:
        if waited > LINGER_SECONDS or last > connection.lingers_until:
            connection.lost()
    elif pipeline is not None and pipeline.refuse_late_request(connection, last):
        pass
    elif connection.has_unsent:
        if waited > limits.idle_timeout_seconds:
            connection.lost()
    elif connection.input in (Input.PAUSED, Input.ENDED) and connection.socket.getsockopt(
        socket.SOL_SOCKET, socket.SO_ERROR
    ):
        connection.lost()  # a reset, which the reactor does not report while the socket is neither read nor written
    elif phase is Phase.IDLE and waited > limits.idle_timeout_seconds and not receiving:
        connection.lost()
