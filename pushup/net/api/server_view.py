"""What is asked about the whole server: of one process, or of all its workers together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServerView(Protocol):
    """All processes of this server."""

    def metrics(self, on_text: Callable[[bytes], None]) -> None:
        """Their metrics, in Prometheus' text format."""

    def subscribers(self, names: list[str], on_counts: Callable[[list[int]], None]) -> None:
        """How many polls wait for each of these channels."""


class OneProcess:
    """A server without workers: the answers come at once."""

    def __init__(self, metrics_text: Callable[[], bytes], subscribers: Callable[[str], int]) -> None:
        self._metrics_text = metrics_text
        self._subscribers = subscribers

    def metrics(self, on_text: Callable[[bytes], None]) -> None:
        on_text(self._metrics_text())

    def subscribers(self, names: list[str], on_counts: Callable[[list[int]], None]) -> None:
        on_counts([self._subscribers(name) for name in names])


_check: type[ServerView] = OneProcess
