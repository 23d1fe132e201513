"""The part of a transport that the reader of a body uses."""

from __future__ import annotations


class SteppedTransport:
    """Counts how often it was closed at once."""

    def __init__(self) -> None:
        self.closings = 0

    def loseConnection(self) -> None:
        """With TLS, the other end may go on sending."""

    def stopProducing(self) -> None:
        self.closings += 1
