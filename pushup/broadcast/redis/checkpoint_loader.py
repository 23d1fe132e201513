"""Reading what a node starts from: the checkpoint in pieces, and then the entries after it.

The pieces are small: neither Redis nor this node is busy with one for long. Meanwhile saves wait (`save.lua`), so that
all pieces are of one checkpoint. If it has changed all the same, because the lease has ended, reading begins again with
larger pieces. In the end there is only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred

from pushup.broadcast.formats import IN_REDIS, NotUnderstood, check_known
from pushup.broadcast.redis.records import PIECE_BYTES, Count, LogEntry, Tail, log_entries, number, tail_of
from pushup.broadcast.redis.redis_errors import Malformed
from pushup.broadcast.redis.scripts import LOAD
from pushup.core.commands import Entry
from pushup.core.cursor import PastEpoch
from pushup.core.snapshot import Head, Snapshot, Tables

FIRST = 16
"""Rows or entries in the first piece: they may be large."""

MOST = 2048
"""The most of anything in one piece."""

LARGER = 8
"""By how much the pieces grow when reading begins again."""

LOAD_SECONDS = 30.0
"""How long saves wait for a node that loads after it has last renewed its lease. `save.lua` ignores more than 60."""

RENEW_PIECES = 16
"""After so many pieces the lease is renewed: 2 MB, so that a link with 100 KB/s is fast enough."""


class SavedHead(Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint's head, and the tag of its last entry."""

    head: Head
    tag: str


class Chain:
    """The entries after a checkpoint, as they are read, and where they lead."""

    def __init__(self, saved: SavedHead) -> None:
        self.entries: list[LogEntry] = []
        self.epoch = saved.head.epoch
        """The epoch of the next entry."""
        self.past = saved.head.past_epochs
        """The former names of the epoch."""
        self.sequence = saved.head.sequence
        """The last sequence so far."""
        self._tag = saved.tag.encode()
        self._is_unbroken = True

    def add(self, logged: LogEntry) -> None:
        entry = logged.entry
        is_next = not isinstance(entry, Entry) or entry.sequence == self.sequence + 1
        self._is_unbroken &= is_next and logged.after == self._tag
        self.sequence, self._tag = logged.last, logged.tag
        self.entries.append(logged)
        if logged.new_name:
            self.past = (*self.past, PastEpoch(self.epoch, logged.last - 1))
            self.epoch = logged.new_name

    def leads_to(self, tail: Tail) -> bool:
        """Whether each entry follows the one before, from the checkpoint to this end of the log."""
        return self._is_unbroken and (self.epoch, self.sequence, self._tag) == (tail.epoch, tail.sequence, tail.tag)

    def break_off(self) -> None:
        """What comes next is no entry."""
        self._is_unbroken = False


class Loaded(Struct, frozen=True):
    """A checkpoint and the entries after it, up to where the log ended when the checkpoint had been read.

    `complete`: no part of the checkpoint is missing; `is_whole`: nor any of the entries. `past`: the former names of
    the epoch at the end.
    """

    tail: Tail
    saved: SavedHead
    snapshot: Snapshot
    complete: bool
    entries: list[LogEntry]
    is_whole: bool
    past: tuple[PastEpoch, ...]


_saved_head = msgspec.json.Decoder(SavedHead)


class CheckpointLoader:
    """Reads the checkpoint in Redis once, and the entries after it."""

    def __init__(self, ask: Callable[..., Deferred[Any]], keys: tuple[str, str, str, str], node: str) -> None:
        """`keys`: state, log, rows, loads; `node`: its id."""
        self._ask = ask
        self._state, self._log, self._rows, self._loads = keys
        self._node = node
        self._larger = 1
        self._pieces = 0

    async def run(self) -> Loaded | None:
        """What is in Redis; None if there is no log, or no checkpoint that can be read.

        Raises: ErrorReply, Lost, NotUnderstood.
        """
        try:
            return await self._load()
        except NotUnderstood:
            await self._head(0.0)  # or saves would wait until the lease ends, since this node disconnects
            raise
        finally:
            # Not waited for: the connection may have ended, and the lease ends by itself.
            self._head(0.0).addErrback(lambda failure: None)

    async def _load(self) -> Loaded | None:
        try:
            while True:
                fields = await self._head()
                if fields[0] is None:
                    return None
                loaded = await self._read(fields)
                if loaded is not None:
                    return loaded
                self._larger *= LARGER
        except (msgspec.DecodeError, ValueError, KeyError, IndexError) as error:
            check_known("the checkpoint of the message log", error, IN_REDIS)
            return None

    def _head(self, lease: float = LOAD_SECONDS) -> Deferred[list[Any]]:
        """The fields of the state, and how many rows there are. Saves wait for `lease` seconds from now."""
        keys = (self._state, self._rows, self._loads)
        return self._ask("EVALSHA", LOAD.sha, len(keys), *keys, self._node, lease)

    async def _read(self, fields: list[Any]) -> Loaded | None:
        """The checkpoint with this head, and the entries after it; None if it was replaced meanwhile."""
        saved = _saved_head.decode(fields[9] or b"")
        tables, chain = Tables(), Chain(saved)
        await self._read_rows(tables)
        *end, saved_at, _, expected, found, time = await self._head()
        tail = tail_of(*end)
        complete = (
            expected == found
            and bool(tail.cluster)
            and number(saved_at or b"") == saved.head.sequence
            and number(time or b"") >= 0
        )
        await self._read_entries(chain, tail)
        if (await self._head())[9] != fields[9]:
            return None
        return Loaded(
            tail=tail,
            saved=saved,
            snapshot=Snapshot(saved.head, tables),
            complete=complete,
            entries=chain.entries,
            is_whole=complete and chain.leads_to(tail),
            past=chain.past,
        )

    async def _read_rows(self, tables: Tables) -> None:
        count, place = self._count(), b"0"
        while True:
            place, flat = await self._ask("HSCAN", self._rows, place, "COUNT", count.next)
            for key, body in zip(flat[::2], flat[1::2], strict=True):
                tables.add(key.decode(), body)
            if place == b"0":
                return
            count.had(count.next, sum(map(len, flat)))
            await self._renew()

    async def _read_entries(self, chain: Chain, tail: Tail) -> None:
        """Read the log to this end of it, or to what is no entry."""
        count, after = self._count(), f"({chain.sequence}-0"
        while rows := await self._ask("XRANGE", self._log, after, "+", "COUNT", count.next):
            try:
                for logged in log_entries(chain.epoch, rows):
                    if chain.sequence >= tail.sequence:
                        return  # it was appended meanwhile
                    chain.add(logged)
            except Malformed:
                chain.break_off()
                return
            after = f"({rows[-1][0].decode()}"
            count.had(len(rows), sum(len(fields[-1]) for _, fields in rows))
            await self._renew()

    def _count(self) -> Count:
        return Count(FIRST * self._larger, MOST * self._larger, PIECE_BYTES * self._larger)

    async def _renew(self) -> None:
        """Another piece was read."""
        self._pieces += 1
        if self._pieces % RENEW_PIECES == 0:
            await self._head()
