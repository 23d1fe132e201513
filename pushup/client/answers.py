"""Answers that come into being over time, such as a model's: what one channel says of one.

An answer is made of messages with the event `answer`. Their data is a piece, `{"piece": n, "parts": [...]}`, numbered
without holes; or a beat, `{"beat": n}`, which is ephemeral: the writer lives, and piece n is next. The last piece has
an `end` as well: done, stopped, or error, and then an `error`, a text for users. A part is text, or another JSON value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pushup.client.values import Answer, Message


class AnswerError(Exception):
    """The answer cannot be written, or has ended."""


class AnswerStopped(AnswerError):
    """Somebody asked to stop. The `with` block of the answer swallows it."""


class AnswerCutOff(AnswerError):
    """Pieces of the answer are missing."""


@dataclass
class AnswerState:
    """What a channel says of an answer so far. `end` is None while it is written."""

    parts: list[Any] = field(default_factory=list)
    pieces: int = 0
    end: str | None = None
    error: str | None = None

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    def take(self, message: Message) -> None:
        """Take the next message of the channel. Raises: AnswerCutOff."""
        data = message.data
        if message.event != "answer" or not isinstance(data, dict) or self.end is not None:
            return
        number = data.get("piece", data.get("beat"))
        if isinstance(number, int) and number > self.pieces:
            raise AnswerCutOff(f"piece {self.pieces} is missing; keep more messages of this channel")
        if number != self.pieces or "piece" not in data:
            return
        self.pieces += 1
        self.parts += data.get("parts", [])
        self.end, self.error = data.get("end"), data.get("error")


async def read(poll: Callable[..., Awaitable[Answer]], channel: str) -> AnswerState:
    """The answer on a channel, as far as it is written. Raises: AnswerCutOff, ClientError."""
    state, cursor, more = AnswerState(), "", True
    while more:
        page = await poll(channel, cursor, timeout=0.0)
        for message in page.messages:
            state.take(message)
        cursor, more = page.cursor, page.more
    return state
