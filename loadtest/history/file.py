"""A history as JSON Lines: one event a line, in UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import IO

from msgspec import ValidationError, json

from loadtest.history.events import BadHistory, Event


class HistoryFile:
    """Writes a history as it happens; threads may share it. What was written before a crash can be judged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._encoder = json.Encoder()
        self._lock = Lock()

    def write(self, event: Event) -> None:
        line = self._encoder.encode(event) + b"\n"
        with self._lock:
            self._file.write(line)


def write_history(path: Path, events: Iterable[Event]) -> None:
    """A file with all these events."""
    with path.open("wb") as file:
        history = HistoryFile(file)
        for event in events:
            history.write(event)


def read_history(path: Path) -> Iterator[Event]:
    """The events of a file. Raises: BadHistory, with the number of the line."""
    decoder = json.Decoder(Event)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decoder.decode(line)
            except ValidationError as error:
                raise BadHistory(f"line {number}: {error}") from None
            except ValueError as error:  # not JSON, or not UTF-8
                raise BadHistory(f"line {number} is not a JSON object: {error}") from None
