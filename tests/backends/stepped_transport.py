"""The part of a transport that the reader of a body uses."""

from __future__ import annotations


class SteppedTransport:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closings = 0

    def loseConnection(self) -> None:
        self.closings += 1

    def abortConnection(self) -> None:
        self.closings += 1

    def stopProducing(self) -> None:
        self.closings += 1
