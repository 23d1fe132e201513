"""A checkpoint: the replicated state as of some entry, stored in parts, so that it can be updated incrementally.

The parts: one body for each channel; for each save, one body of messages and one of idempotency keys; and a head with
the position and the first message and key that are still valid. Bodies are JSON. The journal's file or Redis stores
them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from pushup.core.keys import Remembered
from pushup.core.limits import Limits
from pushup.core.past_epochs import PastEpoch
from pushup.core.snapshot import Changes, ChannelSnapshot, MessageSnapshot, Snapshot, place_when_due


class Head(Struct, frozen=True):
    """The checkpoint's position, and what else `Changes` says of the whole state, but for its limits.

    Heads saved before 0.2 have neither `version` nor `past_epochs`. The limits are stored beside the head.
    """

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    first_message: int
    first_key: int
    version: int = 1
    past_epochs: tuple[PastEpoch, ...] = ()


encode = msgspec.json.Encoder().encode
_channel = msgspec.json.Decoder(ChannelSnapshot)
_messages = msgspec.json.Decoder(tuple[MessageSnapshot, ...])
_keys = msgspec.json.Decoder(tuple[tuple[str, Remembered], ...])


def head_of(changes: Changes) -> Head:
    """The head after these changes."""
    return Head(
        changes.epoch,
        changes.sequence,
        changes.time,
        changes.last_id,
        changes.floor,
        changes.first_message,
        changes.first_key,
        changes.version,
        changes.past_epochs,
    )


def read_checkpoint(
    head: Head,
    limits: Limits,
    channels: Iterable[bytes | str],
    messages: Iterable[bytes | str],
    keys: Iterable[bytes | str],
) -> Snapshot:
    """The state in these bodies: channels in any order, `messages` and `keys` in the order in which they were saved.

    Raises: msgspec.DecodeError, UnicodeDecodeError.
    """
    return Snapshot(
        epoch=head.epoch,
        sequence=head.sequence,
        time=head.time,
        last_id=head.last_id,
        floor=head.floor,
        version=head.version,
        past_epochs=head.past_epochs,
        limits=limits,
        channels=tuple(sorted(map(_channel.decode, channels), key=place_when_due)),
        messages=_read_messages(head.first_message, messages),
        keys=_read_keys(head.first_key, keys),
    )


def _read_messages(first: int, bodies: Iterable[bytes | str]) -> tuple[MessageSnapshot, ...]:
    messages = []
    for body in bodies:
        for message in _messages.decode(body):
            if message.sequence >= first:
                # A save that seemed to fail may have succeeded; after the retry its messages are stored twice.
                first = message.sequence + 1
                messages.append(message)
    return tuple(messages)


def _read_keys(first: int, bodies: Iterable[bytes | str]) -> tuple[tuple[str, Remembered], ...]:
    keys = []
    for body in bodies:
        for key, remembered in _keys.decode(body):
            if remembered.sequence >= first:
                first = remembered.sequence + 1
                keys.append((key, remembered))
    return tuple(keys)
