"""A checkpoint as journal and Redis keep it: JSON bodies that each save updates, read back in any order of channels."""

from __future__ import annotations

from random import Random

import msgspec

from pushup.broadcast.checkpoint import Head, encode, head_of, read_checkpoint
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes, Snapshot


class SavedCheckpoint:
    """The stored parts of one checkpoint."""

    def __init__(self) -> None:
        self.head = b""
        self.limits = Limits()
        self.channels: dict[str, bytes] = {}
        self.messages: list[bytes] = []
        self.keys: list[bytes] = []

    def save(self, changes: Changes) -> None:
        """Bring it up to date."""
        self.head = encode(head_of(changes))
        self.limits = changes.limits
        self.channels.update((c.name, encode(c)) for c in changes.channels)
        for name in changes.forgotten:
            self.channels.pop(name, None)
        self.messages.append(encode(changes.messages))
        self.keys.append(encode(changes.keys))

    def as_redis_reads_it(self, random: Random) -> Snapshot:
        """HVALS gives the channels in any order."""
        names = list(self.channels)
        random.shuffle(names)
        return self._read(names)

    def as_sqlite_reads_it(self) -> Snapshot:
        """A table gives the channels sorted by its key, the name in UTF-8."""
        return self._read(sorted(self.channels, key=str.encode))

    def _read(self, names: list[str]) -> Snapshot:
        head = msgspec.json.decode(self.head, type=Head)
        return read_checkpoint(head, self.limits, [self.channels[name] for name in names], self.messages, self.keys)
