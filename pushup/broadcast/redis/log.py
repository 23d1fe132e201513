"""The log in Redis: its keys, and the operations on them. The atomic ones are the `.lua` scripts beside this file.

| key | what it is |
|---|---|
| `{PREFIX}:state` | hash: epoch; sequence, time, tag of the last entry; the checkpoint's sequence and head; `run` |
| `{PREFIX}:log` | stream: the entries, by their last sequence; trimmed some time after the checkpoint contains them |
| `{PREFIX}:channels`, `:messages`, `:keys` | the checkpoint's bodies (`pushup.broadcast.checkpoint`) |
| `{PREFIX}:leases`, `:members` | until when each node counts as alive, and what is known of it |

Each entry carries a *tag* of its own and that of the previous entry, so the log is a chain. A node can tell whether the
next entry really follows the last one it applied, even if Redis has lost the end of the log and the sequences were used
again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

import msgspec

from pushup.broadcast.checkpoint import encode, head_of, read_checkpoint
from pushup.broadcast.redis.connection import RedisConnection, Reply
from pushup.broadcast.redis.connector import Connects
from pushup.broadcast.redis.epochs import order_of
from pushup.broadcast.redis.errors import EpochOver, ErrorReply, Incomplete, Lost
from pushup.broadcast.redis.records import LastEntry, Loaded, LogEntry, Report, SavedHead, Tail
from pushup.core.commands import Command, Draft, Entry, Publish
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes

READ_SECONDS = 1.0
"""How long Redis waits for a new entry before it replies that there is none. It is the heartbeat of a reading node."""

LEASE_SECONDS = 3.0
"""How long a node counts as alive after its last report."""

BATCH = 128
"""Entries read at a time: about 5 ms of work to apply."""

Appended = int | EpochOver | ErrorReply | Lost
"""The reply to an append: the last sequence of the entry, or why it has none (after `Lost` it may have one)."""


class _Script:
    """A Lua script, called by its SHA-1."""

    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath(f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


_APPEND, _BEGIN, _SAVE, _LOAD, _REPORT = SCRIPTS = tuple(map(_Script, ("append", "begin", "save", "load", "report")))
_MARK = _Script("mark")  # sent in full each time: few connections ever need it

_command = msgspec.json.Decoder(Command)
_saved_head = msgspec.json.Decoder(SavedHead)


class RedisLog:
    """The log, through one connection. Every operation may raise ErrorReply or Lost."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self.connection = connection
        key = f"{{{prefix}}}:".__add__  # the braces are a hash tag: Redis Cluster keeps all keys on one node
        self._state, self._log = key("state"), key("log")
        self._parts = (self._state, self._log, key("channels"), key("messages"), key("keys"))
        self._members = (self._state, key("leases"), key("members"))
        self.run = ""
        """Identifies this run of Redis: it changes with a restart, and when another server takes over."""
        self.durable = False
        """Whether acknowledged writes survive a restart of Redis: each is synced to its append-only file."""
        self._append_to = ("EVALSHA", _APPEND.sha, 2, self._state, self._log)

    async def prepare(self) -> None:
        """Load the scripts into Redis, and find out its run and durability."""
        for script in SCRIPTS:
            await self.connection.ask("SCRIPT", "LOAD", script.text)
        info = _info(await self.connection.ask("INFO"))
        self.run = info["run_id"]
        self.durable = await self._is_durable(info)

    async def _is_durable(self, info: dict[str, str]) -> bool:
        if info.get("aof_enabled") != "1" or info.get("second_repl_offset", "-1") != "-1":
            return False  # a promoted replica may never have received the last writes
        try:
            reply = await self.connection.ask("CONFIG", "GET", "appendfsync")
        except ErrorReply:
            return False  # hosted Redis often forbids CONFIG
        return bool(reply == [b"appendfsync", b"always"])

    def append(self, epoch: str, tag: str, command: Command, on_appended: Callable[[Appended], None]) -> None:
        """Append the command with the next sequences, unless the epoch is over."""
        words = (*self._append_to, epoch, tag, command.width, encode(command))
        self.connection.send(words, partial(_appended, on_appended))

    async def read(self, epoch: str, after: int) -> list[LogEntry]:
        """The first entries after this sequence, at most BATCH. Waits READ_SECONDS for one, and may return none."""
        words = ("XREAD", "COUNT", BATCH, "BLOCK", round(READ_SECONDS * 1000), "STREAMS", self._log, f"{after}-0")
        reply = await self.connection.ask(*words, blocks=READ_SECONDS)
        return [] if reply is None else [_log_entry(epoch, *row) for row in reply[0][1]]

    async def tail(self) -> Tail:
        return _tail(*await self.connection.ask("HMGET", self._state, "epoch", "sequence", "tag"))

    async def find(self, last: Cursor, tag: bytes) -> LastEntry:
        """Look for the entry with this last sequence and tag."""
        tail = await self.tail()
        if tail.epoch != last.epoch:
            is_earlier = tail.epoch and order_of(tail.epoch) < order_of(last.epoch)
            return LastEntry.MISSING if is_earlier else LastEntry.UNKNOWN
        if tail.sequence <= last.sequence:
            return LastEntry.CONTAINED if (tail.sequence, tail.tag) == (last.sequence, tag) else LastEntry.MISSING
        ask = self.connection.ask
        place = f"{last.sequence}-0"
        rows = await ask("XRANGE", self._log, place, "+", "COUNT", 1)
        if rows:
            found = _log_entry(last.epoch, *rows[0])
            if tag in (found.after, found.tag):
                return LastEntry.CONTAINED
            if found.entry.sequence <= last.sequence + 1:
                return LastEntry.MISSING  # at its place, or right after it, is an entry of another chain
        earlier = await ask("XREVRANGE", self._log, place, "-", "COUNT", 1)
        return LastEntry.MISSING if earlier else LastEntry.UNKNOWN

    async def load(self) -> Loaded | None:
        """What a new node starts from; None if there is no log. O(all).

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
            snapshot=read_checkpoint(saved.head, saved.limits, channels, _bodies(messages), _bodies(keys)),
            complete=parts == found,
            entries=[_log_entry(epoch.decode(), *row) for row in entries],
        )

    async def begin(self, over: str, changes: Changes, limits: Limits, run: str) -> bool:
        """Replace the epoch `over` by that of these changes, which are all channels.

        Returns False if another node has replaced it already.
        """
        head = encode(SavedHead(head_of(changes), changes.epoch, limits))
        channels = [word for channel in changes.channels for word in (channel.name, encode(channel))]
        reply = await self._evaluate(_BEGIN, self._parts, over, changes.epoch, changes.time, run, head, *channels)
        return bool(reply)

    async def save(self, saved: int, changes: Changes, tag: str, limits: Limits, *, keep_after: int) -> bool:
        """Bring the checkpoint at `saved` up to date, and trim the log up to `keep_after`.

        Returns False if another node has saved since. Raises: Incomplete.
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
            raise Incomplete("Redis has lost a part of the checkpoint (was a key deleted or evicted?)")
        return bool(reply)

    async def report(self, node: str, member: bytes, lease: float) -> Report:
        """Renew this node's lease (seconds), with what others are told about it; b"" ends it."""
        reply = await self._evaluate(_REPORT, self._members, node, member, lease)
        epoch, sequence, tag, saved, complete, time, *members = reply
        return Report(_tail(epoch, sequence, tag), int(saved or 0), bool(complete), float(time), members)

    async def replicas(self, seconds: float) -> tuple[Tail, int]:
        """The end of the log, and how many replicas have received it; waits this long for the first."""
        # WAIT covers everything up to the last write of this connection, so it needs a write first. If that is
        # refused, WAIT would say nothing about the log.
        end = _tail(*await self.connection.ask("EVAL", _MARK.text, 1, self._state))
        milliseconds = max(1, round(seconds * 1000))
        return end, int(await self.connection.ask("WAIT", 1, milliseconds, blocks=seconds))

    async def last_run(self) -> str:
        """The run of Redis in which a node last found the log to be complete."""
        return (await self.connection.ask("HGET", self._state, "run") or b"").decode()

    async def set_run(self, run: str) -> None:
        """Record in which run of Redis the log was found to be complete."""
        await self.connection.ask("HSET", self._state, "run", run)

    async def _evaluate(self, script: _Script, keys: tuple[str, ...], *arguments: str | bytes | float) -> Any:
        return await self.connection.ask("EVALSHA", script.sha, len(keys), *keys, *arguments)


async def open_log(connector: Connects, prefix: str) -> RedisLog:
    """The log through a new connection. Raises: CannotConnect, ErrorReply, Lost."""
    connection = await connector.connect()
    log = RedisLog(connection, prefix)
    try:
        await log.prepare()
    except Exception:
        connection.abort("preparing the connection failed")
        raise
    return log


def _appended(on_appended: Callable[[Appended], None], reply: Reply) -> None:
    on_appended(EpochOver() if reply == 0 else reply)


def _tail(epoch: bytes | None, sequence: bytes | None, tag: bytes | None) -> Tail:
    return Tail((epoch or b"").decode(), int(sequence or 0), tag or b"")


def _log_entry(epoch: str, place: bytes, fields: list[bytes]) -> LogEntry:
    values = _fields(fields)
    command = _command.decode(values[b"command"])
    if type(command) is Publish and len(command.messages) > 1:
        # Copied, so that a message that stays in the cache does not keep the text of all alive.
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
