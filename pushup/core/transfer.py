"""Handing a state to another process in pieces, while it goes on changing.

What was read may change before the end. So it is read in rounds: everything, then what has changed during the first
round, then what has changed during the second, and so on, until so little is left that it is read in one go. That last
piece is a `Changes`: it turns what came before into the state as of now. Each round is shorter than the one before, as
long as reading is faster than changing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import TypeVar

from msgspec import Struct

from pushup.core.keys import Remembered
from pushup.core.snapshot import Changes, ChannelSnapshot, MessageSnapshot, Snapshot
from pushup.core.state import ReplicatedState

T = TypeVar("T")

PIECE = 256
"""Channels, messages or keys in one piece: about 1 ms to read and encode them."""

PIECE_BYTES = 512 * 1024
"""Messages in one piece, as they count against `retention_bytes`, if there is more than one."""

LAST = 512
"""The last piece has at most so many changed channels and sequences."""

ROUNDS = 20
"""After so many rounds the next piece is the last, whatever its size: changes come faster than they can be read."""


class Piece(Struct, frozen=True, forbid_unknown_fields=True):
    """Channels as they were at some moment, names of channels that were gone, and the next messages and keys."""

    channels: tuple[ChannelSnapshot, ...] = ()
    forgotten: tuple[str, ...] = ()
    messages: tuple[MessageSnapshot, ...] = ()
    keys: tuple[tuple[str, Remembered], ...] = ()


class Outgoing:
    """The pieces of a state. It must record changes from before this is made until the last piece was read."""

    def __init__(self, state: ReplicatedState) -> None:
        self._state = state
        self.since = state.cursor.sequence
        """The pieces so far contain all changes up to this sequence; those after it have to stay recorded."""
        self._message = 0  # the sequence of the last one that was read
        self._pieces = self._read()

    def next(self) -> Piece | Changes:
        """The next piece; after a `Changes` there is none."""
        piece = next(self._pieces, None)
        return self._state.changes(self.since) if piece is None else piece

    def _read(self) -> Iterator[Piece]:
        state = self._state
        names, keys = state.channels.remembered_names(), state.keys.items()
        for number in count(1):
            yield from self._round(names, keys)
            names = state.changed_names(self.since)
            if number == ROUNDS or len(names) + state.cursor.sequence - self.since <= LAST:
                return
            keys = state.keys.items(self.since)
            self.since = state.cursor.sequence

    def _round(self, names: list[str], keys: list[tuple[str, Remembered]]) -> Iterator[Piece]:
        remembered = self._state.channels.remembered
        for some in _parts(names):
            found = [(name, remembered(name)) for name in some]
            yield Piece(
                channels=tuple([ChannelSnapshot.of(c) for _, c in found if c is not None]),
                forgotten=tuple([name for name, c in found if c is None]),
            )
        while messages := self._next_messages():
            yield Piece(messages=messages)
        for some_keys in _parts(keys):
            yield Piece(keys=tuple(some_keys))

    def _next_messages(self) -> tuple[MessageSnapshot, ...]:
        messages: list[MessageSnapshot] = []
        size = 0
        for message in islice(self._state.cache.onward(self._message), PIECE):
            size += message.size
            if messages and size > PIECE_BYTES:
                break
            messages.append(MessageSnapshot.of(message))
            self._message = message.sequence
        return tuple(messages)


class Incoming:
    """A state as its pieces arrive."""

    def __init__(self) -> None:
        self._channels: dict[str, ChannelSnapshot] = {}
        self._messages: list[MessageSnapshot] = []
        self._keys: dict[str, Remembered] = {}  # by sequence; several may have one, in more than one piece

    def add(self, piece: Piece | Changes) -> None:
        """Take the next piece."""
        for channel in piece.channels:
            self._channels[channel.name] = channel
        for name in piece.forgotten:
            self._channels.pop(name, None)
        last_message = self._messages[-1].sequence if self._messages else 0
        self._messages += [m for m in piece.messages if m.sequence > last_message]
        for key, remembered in piece.keys:
            self._keys.pop(key, None)  # what is read again comes again in full
            self._keys[key] = remembered

    def snapshot(self, last: Changes) -> Snapshot:
        """The state as of the last piece, which was added as well; its channels are in any order.

        Its messages are this list, not a copy: that of a million takes 7 ms. So those that were dropped meanwhile are
        among them. All their channels have dropped them, and `Restoration` leaves them out.
        """
        return Snapshot(
            epoch=last.epoch,
            sequence=last.sequence,
            time=last.time,
            last_id=last.last_id,
            floor=last.floor,
            version=last.version,
            past_epochs=last.past_epochs,
            limits=last.limits,
            channels=list(self._channels.values()),
            messages=self._messages,
            keys=[item for item in self._keys.items() if item[1].sequence >= last.first_key],
        )


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, PIECE)):
        yield some
