"""The log in Redis: which keys there are, and what is done with them. The `.lua` scripts beside it are its verbs.

| key | what it is |
|---|---|
| `{PREFIX}:state` | hash: epoch; sequence, time, tag of the last entry; where the checkpoint is, and its head; `run` |
| `{PREFIX}:log` | stream: the entries, by their last place; those that the checkpoint contains go after a while |
| `{PREFIX}:channels`, `:messages`, `:keys` | the checkpoint's bodies (`pushup.broadcast.checkpoint`) |
| `{PREFIX}:leases`, `:members` | which nodes live until when, and what is known of each |

Each entry carries a *tag* of its own and that of the entry before, so the log is a chain: a node at some entry sees
whether what comes next really follows it, also when Redis has lost the end of the log and places were given again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import hiredis
import msgspec
from msgspec import Struct

from pushup.broadcast.checkpoint import Head, encode, head_of, read_checkpoint
from pushup.broadcast.redis.connection import RedisConnection, Reply
from pushup.broadcast.redis.epochs import age
from pushup.core.commands import Command, Draft, Entry, Publish
from pushup.core.cursor import Cursor
from pushup.core.errors import OutOfOrder
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes, Snapshot
from pushup.core.state import ReplicatedState

READ_SECONDS = 1.0
"""So long Redis waits for an entry before it says that there is none: the heartbeat of a node that reads."""

LEASE_SECONDS = 3.0
"""So long a node counts as living without having shown it."""

BATCH = 128
"""Entries read at a time: about 5 ms of work to apply."""


class Tail(Struct, frozen=True):
    """The end of the log: its last place and the tag of the entry there; no epoch where nothing was begun."""

    epoch: str
    sequence: int
    tag: bytes

    def includes(self, cursor: Cursor) -> bool:
        """Whether the log has had the entry at this cursor."""
        return cursor.epoch == self.epoch and cursor.sequence <= self.sequence


class LogEntry(Struct, frozen=True):
    """An entry, its tag, and the tag of the entry before."""

    entry: Entry
    tag: bytes
    after: bytes


class SavedHead(Struct, frozen=True):
    """The checkpoint's head, the tag of its last entry, and the limits by which its entries were applied."""

    head: Head
    tag: str
    limits: Limits


class Loaded(Struct, frozen=True):
    """A checkpoint, whether all its parts are there, and the entries after it, as of one moment."""

    tail: Tail
    run: str
    saved: SavedHead
    snapshot: Snapshot
    complete: bool
    entries: list[LogEntry]

    @property
    def is_whole(self) -> bool:
        """Whether the checkpoint is complete, and the entries go on from it to the end, each after the one before."""
        sequence, tag = self.saved.head.sequence, self.saved.tag.encode()
        for logged in self.entries:
            if logged.after != tag or logged.entry.sequence != sequence + 1:
                return False
            sequence += logged.entry.command.width
            tag = logged.tag
        return self.complete and (sequence, tag) == (self.tail.sequence, self.tail.tag)

    def state(self) -> ReplicatedState:
        """What the entries make of the checkpoint, as far as they follow it; its changes since then are noted."""
        state = ReplicatedState.restore(self.saved.limits, self.snapshot)
        state.note_changes()
        for logged in self.entries:
            try:
                state.apply(logged.entry)
            except OutOfOrder:
                break
        return state


class Report(Struct, frozen=True):
    """The answer to a report: where the log and its checkpoint are, and what is known of each node (JSON).

    `complete`: no node that lives can be missing among the members.
    """

    tail: Tail
    saved: int
    complete: bool
    members: list[bytes]


class Incomplete(Exception):
    """A part of the checkpoint is not in Redis any more."""


class _Script:
    """A Lua script, which Redis knows by its SHA-1."""

    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath(f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


_APPEND, _BEGIN, _SAVE, _LOAD, _REPORT = SCRIPTS = tuple(map(_Script, ("append", "begin", "save", "load", "report")))
_MARK = _Script("mark")  # sent as a whole each time: only few connections ever need it

_command = msgspec.json.Decoder(Command)
_saved_head = msgspec.json.Decoder(SavedHead)


class RedisLog:
    """The log, by one connection. What Redis refuses fails with hiredis.ReplyError, a lost connection with Lost."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self.connection = connection
        key = f"{{{prefix}}}:".__add__  # what stands in braces keeps the keys on one node of a Redis Cluster
        self._state, self._log = key("state"), key("log")
        self._parts = (self._state, self._log, key("channels"), key("messages"), key("keys"))
        self._members = (self._state, key("leases"), key("members"))
        self.run = ""
        """Names this run of Redis: another one after it was restarted, or where another server has taken its place."""
        self.durable = False
        """Whether what Redis acknowledges survives its restart: each write is synced to its append-only file."""
        self._append_to = ("EVALSHA", _APPEND.sha, 2, self._state, self._log)

    async def prepare(self) -> None:
        """Let Redis know the scripts, and see what it is."""
        for script in SCRIPTS:
            await self.connection.ask("SCRIPT", "LOAD", script.text)
        info = _info(await self.connection.ask("INFO"))
        self.run = info["run_id"]
        self.durable = await self._is_durable(info)

    async def _is_durable(self, info: dict[str, str]) -> bool:
        if info.get("aof_enabled") != "1" or info.get("second_repl_offset", "-1") != "-1":
            return False  # a replica that was promoted may never have had the last writes
        try:
            reply = await self.connection.ask("CONFIG", "GET", "appendfsync")
        except hiredis.ReplyError:
            return False  # not every Redis lets itself be asked
        return bool(reply == [b"appendfsync", b"always"])

    def append(self, epoch: str, tag: str, command: Command, then: Callable[[Reply], None]) -> None:
        """Give the command the next places; `then` takes the last of them, or 0 if the epoch is over."""
        self.connection.send((*self._append_to, epoch, tag, command.width, encode(command)), then)

    async def read(self, epoch: str, after: int) -> list[LogEntry]:
        """The first entries after this place; waits for one, and then there may be none."""
        words = ("XREAD", "COUNT", BATCH, "BLOCK", round(READ_SECONDS * 1000), "STREAMS", self._log, f"{after}-0")
        reply = await self.connection.ask(*words, blocks=READ_SECONDS)
        return [] if reply is None else [_log_entry(epoch, *row) for row in reply[0][1]]

    async def tail(self) -> Tail:
        return _tail(*await self.connection.ask("HMGET", self._state, "epoch", "sequence", "tag"))

    async def goes_on_from(self, epoch: str, sequence: int, tag: bytes) -> bool | None:
        """Whether the log contains the entry with this last place and tag.

        None if that cannot be said: the log does not reach back so far, or is in a later epoch, or there is none.
        """
        tail = await self.tail()
        if tail.epoch != epoch:
            return False if tail.epoch and age(tail.epoch) < age(epoch) else None
        if tail.sequence <= sequence:
            return tail.sequence == sequence and tail.tag == tag
        ask = self.connection.ask
        place = f"{sequence}-0"
        rows = await ask("XRANGE", self._log, place, "+", "COUNT", 1)
        if rows:
            found = _log_entry(epoch, *rows[0])
            if tag in (found.after, found.tag):
                return True
            if found.entry.sequence <= sequence + 1:
                return False  # there, or right after, is what others have applied
        earlier = await ask("XREVRANGE", self._log, place, "-", "COUNT", 1)
        return False if earlier else None

    async def load(self) -> Loaded | None:
        """What a node begins with; None where nothing was begun. O(all).

        Raises: msgspec.DecodeError, UnicodeDecodeError.
        """
        state, channels, messages, keys, entries = await self._evaluate(_LOAD, self._parts)
        if state[0] is None:
            return None
        epoch, sequence, tag, run, _, head, parts, found = state
        saved = _saved_head.decode(head)
        return Loaded(
            tail=Tail(epoch.decode(), int(sequence), tag),
            run=(run or b"").decode(),
            saved=saved,
            snapshot=read_checkpoint(saved.head, channels, _bodies(messages), _bodies(keys)),
            complete=parts == found,
            entries=[_log_entry(epoch.decode(), *row) for row in entries],
        )

    async def begin(self, over: str, changes: Changes, limits: Limits, run: str) -> bool:
        """Begin the epoch of these changes, which are all channels, where `over` was; whether nobody else has."""
        head = encode(SavedHead(head_of(changes), changes.epoch, limits))
        channels = [word for channel in changes.channels for word in (channel.name, encode(channel))]
        reply = await self._evaluate(_BEGIN, self._parts, over, changes.epoch, changes.time, run, head, *channels)
        return bool(reply)

    async def save(self, saved: int, changes: Changes, tag: str, limits: Limits, *, keep_after: int) -> bool:
        """Lay changes over the checkpoint at `saved`; whether nobody else has. Entries after `keep_after` stay.

        Raises: Incomplete.
        """
        reply = await self._evaluate(
            _SAVE,
            self._parts,
            changes.epoch,
            saved,
            changes.sequence,
            encode(SavedHead(head_of(changes), tag, limits)),
            min(keep_after, changes.sequence) + 1,
            encode(changes.messages) if changes.messages else b"",
            changes.first_message,
            encode(changes.keys) if changes.keys else b"",
            changes.first_key,
            len(changes.channels),
            *[word for channel in changes.channels for word in (channel.name, encode(channel))],
            *changes.forgotten,
        )
        if reply == -1:
            raise Incomplete("a part of the checkpoint is missing in Redis: was it removed, or evicted?")
        return bool(reply)

    async def report(self, node: str, member: bytes, lease: float) -> Report:
        """Say that this node lives (for so many seconds, unless it says so again); b"": that it leaves."""
        reply = await self._evaluate(_REPORT, self._members, node, member, lease)
        epoch, sequence, tag, saved, complete, *members = reply
        return Report(_tail(epoch, sequence, tag), int(saved or 0), bool(complete), members)

    async def replicas(self, seconds: float) -> tuple[Tail, int]:
        """The end of the log, and how many replicas have all of it up to there, once one has, or the time is over."""
        # WAIT speaks of what this very connection has written last, and whatever came before: if that write is
        # refused, it must not be asked.
        end = _tail(*await self.connection.ask("EVAL", _MARK.text, 1, self._state))
        milliseconds = max(1, round(seconds * 1000))
        return end, int(await self.connection.ask("WAIT", 1, milliseconds, blocks=seconds))

    async def last_run(self) -> str:
        """The run of Redis in which the log was last found whole."""
        return (await self.connection.ask("HGET", self._state, "run") or b"").decode()

    async def set_run(self, run: str) -> None:
        """Remember which run of Redis the log was last found whole in."""
        await self.connection.ask("HSET", self._state, "run", run)

    async def _evaluate(self, script: _Script, keys: tuple[str, ...], *arguments: str | bytes | float) -> Any:
        return await self.connection.ask("EVALSHA", script.sha, len(keys), *keys, *arguments)


def _tail(epoch: bytes | None, sequence: bytes | None, tag: bytes | None) -> Tail:
    return Tail((epoch or b"").decode(), int(sequence or 0), tag or b"")


def _log_entry(epoch: str, place: bytes, fields: list[bytes]) -> LogEntry:
    values = _fields(fields)
    command = _command.decode(values[b"command"])
    if type(command) is Publish and len(command.messages) > 1:
        # Each message by itself: one that stays in the cache must not hold on to the text of all.
        command = Publish(tuple([Draft(draft.channels, draft.data.copy()) for draft in command.messages]), command.key)
    last = int(place.partition(b"-")[0])
    entry = Entry(epoch, last - command.width + 1, float(values[b"time"]), command)
    return LogEntry(entry, values[b"tag"], values[b"after"])


def _info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines())
    return {name: value for name, _, value in lines}


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _bodies(rows: list[Any]) -> list[bytes]:
    return [fields[1] for _, fields in rows]
