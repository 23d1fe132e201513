"""Answers that come into being over time, such as a model's: what one channel says of one.

An answer is made of messages with the event `answer`. Their data is a piece, `{"piece": n, "parts": [...]}`, numbered
without holes; or a beat, `{"beat": n}`, which is ephemeral: the writer lives, and piece n is next. The last piece has
an `end` as well: done, stopped, or error, and then an `error`, a text for users. A part is text, or another JSON value.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from pushup.client.following import Follower
from pushup.client.http1 import Request
from pushup.client.values import Closed, Message, Stopped, answer_of

SILENCE_SECONDS = 15.0
"""A writer that lives is never silent for this long (as in answers.js)."""


Call = Callable[..., Awaitable[dict[str, Any]]]
"""Makes a request, again and again for its `patience`."""


class AnswerError(Exception):
    """The answer cannot be written, or has ended."""


class AnswerStopped(AnswerError):
    """Somebody asked to stop. The `with` block of the answer swallows it."""


class AnswerFailed(AnswerError):
    """The writer could not finish. The text is for users."""


class AnswerCutOff(AnswerError):
    """The rest of the answer will not come, or pieces of it are missing."""


@dataclass
class AnswerState:
    """What a channel says of an answer so far. `end` is None while it is written."""

    parts: list[Any] = field(default_factory=list)
    pieces: int = 0
    end: str | None = None
    error: str | None = None
    missing: int | None = None
    """The first piece that was missing when a later one came."""

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    def take(self, message: Message) -> None:
        """Take the next message of the channel."""
        data = message.data
        if message.event != "answer" or not isinstance(data, dict) or self.end is not None:
            return
        number = data.get("piece", data.get("beat"))
        if isinstance(number, int) and number > self.pieces:
            self.missing, self.pieces = self.pieces if self.missing is None else self.missing, number
        if number != self.pieces or "piece" not in data:
            return
        self.pieces += 1
        self.parts += data.get("parts") or []
        self.end, self.error = data.get("end"), data.get("error")

    def whole(self, channel: str) -> Self:
        """The same. Raises: AnswerCutOff if pieces are missing."""
        if self.missing is not None:
            raise AnswerCutOff(f"piece {self.missing} of {channel} is missing; keep more messages of this channel")
        return self


async def parts(channel: str, follower: Follower, silence: float) -> AsyncGenerator[Any, None]:
    """The parts of an answer, as they are written. Raises: AnswerFailed, AnswerCutOff, ClientError."""
    state = AnswerState()
    try:
        while state.end is None:
            try:
                item = await follower.next(silence)
            except TimeoutError:
                raise AnswerCutOff(f"the writer of {channel} was silent for {silence:g} s") from None
            if item is None:
                raise Stopped
            if isinstance(item, Closed):
                raise AnswerCutOff(f"the channel {channel} was closed")
            if isinstance(item, Message):
                known = len(state.parts)
                state.take(item)
                for part in state.whole(channel).parts[known:]:
                    yield part
        if state.end == "error":
            raise AnswerFailed(state.error)
    finally:
        follower.close()


async def read(call: Call, channel: str, patience: float | None = None) -> AnswerState:
    """The answer on a channel, as far as it is written. Raises: ClientError."""
    state, cursor, more = AnswerState(), "", True
    while more:
        request = Request("POST", "/v1/poll", {"channels": [channel], "cursor": cursor, "timeout": 0.0})
        page = answer_of(await call(request, patience=patience), cursor)
        for message in page.messages:
            state.take(message)
        cursor, more = page.cursor, page.more
    return state
