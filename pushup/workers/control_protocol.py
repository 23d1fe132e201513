"""What the parent and its workers say to each other beside the order: values, and their bytes (JSON)."""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from pushup.settings.settings import Settings
from pushup.transport.framed_link import LENGTH_BYTES, framed


class Begin(Struct, frozen=True, tag="begin", forbid_unknown_fields=True):
    """The first frame that a worker gets."""

    settings: Settings
    ticket_key: str
    """Of all workers, if the settings have none."""


class Reload(Struct, frozen=True, tag="reload", forbid_unknown_fields=True):
    """Apply those of these settings that can change in a running server."""

    settings: Settings


class Stop(Struct, frozen=True, tag="stop", forbid_unknown_fields=True):
    """Answer the held polls, and exit."""


class Question(Struct, frozen=True, tag="question", forbid_unknown_fields=True):
    """To a worker, or from one that wants the answers of all. Whoever asks numbers its own; the answer has the same.

    | fields | asks for |
    |---|---|
    | `channels` is None | the metrics |
    | `channels` | the number of subscribers of each |
    | `channels` is empty, `is_out` | nothing, but to leave the rotation (or, if False, to come back) |
    """

    number: int
    channels: tuple[str, ...] | None = None
    is_out: bool | None = None


class Answer(Struct, frozen=True, tag="answer", forbid_unknown_fields=True):
    """One worker's answer."""

    number: int
    body: Raw


class Answers(Struct, frozen=True, tag="answers", forbid_unknown_fields=True):
    """Those of all workers that answered in time, by name; and the parent's."""

    number: int
    bodies: dict[str, Raw]


class Sign(Struct, frozen=True, tag="sign", forbid_unknown_fields=True):
    """A heartbeat, once a second: why this worker is not ready; None if it is."""

    why_not_ready: str | None


ToWorker = Begin | Reload | Stop | Question | Answers
ToParent = Question | Answer | Sign

SIGN_SECONDS = 1.0
"""How often a worker sends a heartbeat."""

read_by_parent: Callable[[bytes], ToParent] = msgspec.json.Decoder(ToParent).decode
"""Raises: msgspec.DecodeError."""

read_by_worker: Callable[[bytes], ToWorker] = msgspec.json.Decoder(ToWorker).decode
"""Raises: msgspec.DecodeError."""

_encode = msgspec.json.Encoder().encode


def frame(message: ToParent | ToWorker) -> bytes:
    """The bytes to send."""
    return framed(_encode(message))


def read_begin(sock: socket.socket) -> Begin:
    """Wait for the first frame. Raises: EOFError, msgspec.DecodeError."""
    message = read_by_worker(_read(sock, int.from_bytes(_read(sock, LENGTH_BYTES), "big")))
    assert isinstance(message, Begin)
    return message


def _read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = sock.recv(count - len(data))
        if not some:
            raise EOFError
        data += some
    return data
