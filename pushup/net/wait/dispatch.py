"""What every strategy does with a ready connection. An unexpected error ends that connection and is logged."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from pushup.net.wait.demultiplexer import Watched

_log = Logger()


def read(connection: Watched) -> None:
    """Read what has arrived and hand it to the connection."""
    try:
        try:
            data = connection.socket.recv(connection.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            connection.lost()
            return
        if data:
            connection.received(data)
        else:
            connection.ended()
    except Exception:
        _log.failure("error while reading a connection, which is closed; others are not affected")
        connection.lost()


def write(connection: Watched) -> None:
    """Let the connection write."""
    try:
        connection.writable()
    except Exception:
        _log.failure("error while writing to a connection, which is closed; others are not affected")
        connection.lost()


def call(deferred: Callable[[], None]) -> None:
    """Make a deferred call (`Demultiplexer.soon`)."""
    try:
        deferred()
    except Exception:
        _log.failure("deferred call failed")
