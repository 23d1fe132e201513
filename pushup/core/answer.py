"""Answers: what a poll gets. They are made by `reading`."""

from __future__ import annotations

from msgspec import Raw, Struct

from pushup.core.channel import Attributes, GapReason


class Received(Attributes, frozen=True):
    """A message as one subscriber gets it, its attributes among its fields; `time`: Unix time.

    `channels`: those of its channels that were asked for and still keep it. To name one that has dropped it would say
    that this channel's gap ends before it.
    """

    id: str
    time: float
    channels: tuple[str, ...]
    data: Raw


class Gap(Struct, frozen=True):
    """Messages of this channel after the client's cursor may have been dropped.

    `until`: the cursor of the last one that may be missing. No message up to there names the channel, and none after it
    is missing.
    """

    channel: str
    reason: GapReason
    until: str


class Answer(Struct, frozen=True):
    """What a poll gets; its fields are the JSON of the HTTP interface (docs/guide/http.md).

    `more`: poll again at once, there are further messages. `closed`: channels closed after the client's cursor.
    """

    cursor: str
    messages: tuple[Received, ...]
    more: bool
    gaps: tuple[Gap, ...]
    closed: tuple[str, ...]

    @property
    def tells_something(self) -> bool:
        """Whether it contains anything but a new cursor."""
        return bool(self.messages or self.gaps or self.closed)
