"""Bytes between the processes of one machine, and to other servers.

| file | what it does |
|---|---|
| `framed_link` | frames between the processes of one machine |
| `client_tls` | TLS connections to other servers |
"""

from __future__ import annotations

from typing import Protocol


class SharedTransport(Protocol):
    """Control over a transport of Twisted that is read and written in the same turns as client connections.

    The demultiplexer drives it instead of the reactor, such as the connection to Redis.
    """

    def flush_soon(self) -> None:
        """Send what has been written to the transport at the end of this batch."""

    def release(self) -> None:
        """Stop driving the transport, because it has ended."""
