"""A checkpoint: a message queue as it was after some entry, in parts, so that changes can be laid over it.

The parts are a body for each channel, a body for the messages and one for the keys of each time it was saved, and a
head that says where it is and from where on messages and keys count. Bodies are JSON; who keeps them, and under which
names, is the journal's file or Redis.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from pushup.core.keys import Remembered
from pushup.core.snapshot import Changes, ChannelSnapshot, MessageSnapshot, Snapshot


class Head(Struct, frozen=True):
    """Where the checkpoint is; the fields of `Changes`."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    first_message: int
    first_key: int


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
    )


def read_checkpoint(
    head: Head,
    channels: Iterable[bytes | str],
    messages: Iterable[bytes | str],
    keys: Iterable[bytes | str],
) -> Snapshot:
    """The state that the bodies stand for; those of messages and keys in the order in which they were saved.

    Raises: msgspec.DecodeError, UnicodeDecodeError.
    """
    return Snapshot(
        epoch=head.epoch,
        sequence=head.sequence,
        time=head.time,
        last_id=head.last_id,
        floor=head.floor,
        channels=tuple(sorted(map(_channel.decode, channels), key=lambda channel: (not channel.id, channel.due))),
        messages=_read_messages(head.first_message, messages),
        keys=_read_keys(head.first_key, keys),
    )


def _read_messages(first: int, bodies: Iterable[bytes | str]) -> tuple[MessageSnapshot, ...]:
    messages = []
    for body in bodies:
        for message in _messages.decode(body):
            if message.sequence >= first:
                # A checkpoint that was thought to have failed is saved again, and then both are there.
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
