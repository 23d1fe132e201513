"""A Twisted transport that the demultiplexer drives instead of the reactor, such as the connection to Redis."""

from __future__ import annotations

from typing import Protocol


class SharedTransport(Protocol):
    """Control over a transport that is read and written in the same turns as client connections."""

    def flush_soon(self) -> None:
        """Send what has been written to the transport at the end of this batch."""

    def release(self) -> None:
        """Stop driving the transport, because it has ended."""
