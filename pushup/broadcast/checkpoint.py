"""A checkpoint: the replicated state as of some entry, stored in parts, so that it can be updated incrementally.

The parts: one body for each channel; for each save, one body of messages and one of idempotency keys; and a head with
the position and the first message and key that are still valid. Bodies are JSON. The journal's file or Redis stores
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pushup.core.keys import Remembered
from pushup.core.limits import Limits
from pushup.core.past_epochs import PastEpoch
from pushup.core.snapshot import Changes, ChannelSnapshot, MessageSnapshot, Snapshot, place_when_due


class Head(Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint's position, and what else `Changes` says of the whole state. The limits are stored beside it."""

    epoch: str
    sequence: int
    time: float
    last_id: int
    floor: int
    first_message: int
    first_key: int
    version: int
    past_epochs: tuple[PastEpoch, ...]


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


class Parts:
    """A checkpoint of which the bodies are read little by little."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._channels: dict[str, ChannelSnapshot] = {}
        self._messages: list[MessageSnapshot] = []
        self._keys: list[tuple[str, Remembered]] = []
        # A save that seemed to fail may have succeeded; after the retry its messages and keys are stored twice.
        self._next_message = head.first_message
        self._names: set[str] = set()  # of the keys; several may have one sequence

    def add_channels(self, bodies: Iterable[bytes | str]) -> None:
        """Channels in any order; one that comes twice counts once. Raises: msgspec.DecodeError, UnicodeDecodeError."""
        for channel in map(_channel.decode, bodies):
            self._channels[channel.name] = channel

    def add_messages(self, bodies: Iterable[bytes | str]) -> None:
        """The next messages, in the order in which they were saved. Raises: as `add_channels`."""
        for message in chain.from_iterable(map(_messages.decode, bodies)):
            if message.sequence >= self._next_message:
                self._next_message = message.sequence + 1
                self._messages.append(message)

    def add_keys(self, bodies: Iterable[bytes | str]) -> None:
        """The next keys, in the order in which they were saved. Raises: as `add_channels`."""
        for key, remembered in chain.from_iterable(map(_keys.decode, bodies)):
            if remembered.sequence >= self._head.first_key and key not in self._names:
                self._names.add(key)
                self._keys.append((key, remembered))

    def snapshot(self, limits: Limits) -> Snapshot:
        """The state; channels are in the order in which they came. Messages and keys are these lists, not copies."""
        head = self._head
        return Snapshot(
            epoch=head.epoch,
            sequence=head.sequence,
            time=head.time,
            last_id=head.last_id,
            floor=head.floor,
            version=head.version,
            past_epochs=head.past_epochs,
            limits=limits,
            channels=list(self._channels.values()),
            messages=self._messages,
            keys=self._keys,
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
    parts = Parts(head)
    parts.add_channels(channels)
    parts.add_messages(messages)
    parts.add_keys(keys)
    snapshot = parts.snapshot(limits)
    return replace(
        snapshot,
        channels=tuple(sorted(snapshot.channels, key=place_when_due)),
        messages=tuple(snapshot.messages),
        keys=tuple(snapshot.keys),
    )
