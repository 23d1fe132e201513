"""The log in Redis: its keys, and the operations on them. The atomic ones are the `.lua` scripts beside this file.

| key | what it is |
|---|---|
| `{PREFIX}:state` | string: `FORMAT` (`pushup.broadcast.formats`); it is part of the names of all others |
| `{PREFIX}:FORMAT:state` | hash: cluster, epoch and its run of Redis; the end of the log; the version; the checkpoint |
| `{PREFIX}:FORMAT:log` | stream: the entries, by their last sequence; trimmed some time after the checkpoint has them |
| `{PREFIX}:FORMAT:rows` | hash: the checkpoint's rows, by their keys (`pushup.core.snapshot`) |
| `{PREFIX}:FORMAT:loads` | until when saves wait for each node that reads the checkpoint (`checkpoint_loader`) |
| `{PREFIX}:FORMAT:begin:{EPOCH}` | hash: the rows of an epoch that is about to begin |
| `{PREFIX}:FORMAT:leases`, `:members` | until when each node counts as alive, and what is known of it |
| `{PREFIX}:FORMAT:vouchers` | after a restart of Redis: which nodes have found all they know in the log (`recovery`) |

Each entry carries a *tag* of its own and that of the previous entry, so the log is a chain. A node can tell whether the
next entry really follows the last one it applied, even if Redis has lost the end of the log and the sequences were used
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, FirstError, gatherResults

from pushup.broadcast.formats import FORMAT, other_format
from pushup.broadcast.redis import scripts
from pushup.broadcast.redis.checkpoint_loader import CheckpointLoader, Loaded, SavedHead
from pushup.broadcast.redis.connector import Connects
from pushup.broadcast.redis.records import (
    TAIL_FIELDS,
    Count,
    LastEntry,
    LogEntry,
    Report,
    Tail,
    Voucher,
    Vouchers,
    info_of,
    log_entries,
    log_entry,
    number,
    replica_in,
    tail_of,
    vouchers_of,
)
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import ErrorCode, ErrorReply, Incomplete, Lost
from pushup.core.commands import Command, Entry
from pushup.core.cursor import Cursor, order_of
from pushup.core.snapshot import Changes, Head, Stored, encode

READ_SECONDS = 1.0
"""How long Redis waits for a new entry before it replies that there is none. It is the heartbeat of a reading node."""

LEASE_SECONDS = 3.0
"""How long a node counts as alive after its last report. The same in all releases that may be in one cluster: to
`report.lua`, a lease that ends later than its own is from before the clock was set back."""

BATCH = 128
"""The most entries read at a time."""

PIECE_OF_EPOCH = 512
"""Rows of a new epoch that are encoded and sent at a time: 2 ms of work."""

BEGIN_SECONDS = 60
"""How long the rows of a new epoch stay in Redis if the node that sends them does not get to begin it."""

_TYPES = ("hash", "stream", "hash", "zset", "zset", "hash", "hash")
"""Of the state, the log, the rows, loads, leases, members and vouchers."""

Appended = int | ErrorReply | Lost
"""The reply to an append: the last sequence of the entry, 0 if the epoch is over, or why there is none. (After `Lost`
there may be one.)"""


class RedisLog:
    """The log, through one connection. Every operation may raise ErrorReply or Lost."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self.connection = connection
        self.prefix = prefix
        # The braces are a hash tag: Redis Cluster keeps all keys on one node.
        key = f"{{{prefix}}}:{FORMAT}:".__add__
        self._format = f"{{{prefix}}}:state"
        self._state, self._log, self._vouchers = key("state"), key("log"), key("vouchers")
        self._loads, self._begin = key("loads"), key("begin")
        self._parts = (self._state, self._log, key("rows"))
        self._members = (self._state, key("leases"), key("members"))
        self.run = ""
        """Identifies this run of Redis: it changes with a restart, and when another server takes over. The process'
        `run_id` and, after a full stop, the id of its replication history."""
        self.info: dict[str, str] = {}
        self.syncs_each_write = False
        """Whether each write is synced to the append-only file before it is acknowledged."""
        self.replica_seen = ""
        """Why there may be a replica, if so."""
        self._count = Count(BATCH, BATCH)
        self._append_to = ("EVALSHA", scripts.APPEND.sha, 2, self._state, self._log)

    async def prepare(self) -> None:
        """Load the scripts into Redis, and find out its run and durability. Raises: ErrorReply, Lost."""
        asked = [self.connection.ask("SCRIPT", "LOAD", script.text) for script in scripts.SCRIPTS]
        asked.append(self.connection.ask("INFO"))  # all in one round trip
        replies = await _all(asked)
        info = self.info = info_of(replies[-1])
        self.run = f"{info['run_id']}.{info['master_replid']}"
        self._history = info["master_replid"]
        self.syncs_each_write = await self._syncs_each_write(info)
        self.replica_seen = replica_in(info) or "a Sentinel knows Redis" * self.connection.is_from_sentinel

    async def _syncs_each_write(self, info: dict[str, str]) -> bool:
        if info.get("aof_enabled") != "1":
            return False
        try:
            reply = await self.connection.ask("CONFIG", "GET", "appendfsync")
        except ErrorReply:
            return True  # hosted Redis often forbids CONFIG; then the declaration has to do
        return bool(reply == [b"appendfsync", b"always"])

    def append(self, epoch: str, tag: str, command: Command, on_appended: Callable[[Appended], None]) -> None:
        """Append the command with the next sequences, unless the epoch is over, or Redis is in another run by now."""
        words = (*self._append_to, epoch, tag, command.width, encode(command), self._history)
        self.connection.send(words, on_appended)

    async def read(self, epoch: str, after: int) -> Iterator[LogEntry]:
        """The first entries after this sequence, at most BATCH, fewer if they are large.

        Waits READ_SECONDS for one, and may return none.
        """
        milliseconds = round(READ_SECONDS * 1000)
        words = ("XREAD", "COUNT", self._count.next, "BLOCK", milliseconds, "STREAMS", self._log, f"{after}-0")
        reply = await self.connection.ask(*words, blocks=READ_SECONDS)
        rows = [] if reply is None else reply[0][1]
        self._count.had(len(rows), sum(len(fields[-1]) for _, fields in rows))
        return log_entries(epoch, rows)

    async def trouble(self) -> str:
        """Why the keys that are in Redis cannot be used, and what to do; empty if they can."""
        try:
            found = (await self.connection.ask("GET", self._format) or b"%d" % FORMAT).decode(errors="replace")
        except ErrorReply as error:
            if error.code is not ErrorCode.WRONG_TYPE:
                raise
            found = "1"  # which had its state there
        if found != str(FORMAT):
            return (
                f"{other_format('the message log', found)}, or another redis_prefix, or remove its keys "
                f"({{{self.prefix}}}:*): gaps are then reported to every subscriber. If no other release was ever used "
                f"with them, remove {self._format} only; nothing is lost by that"
            )
        types = dict(zip((*self._parts, self._loads, *self._members[1:], self._vouchers), _TYPES, strict=True))
        replies = await _all([self.connection.ask("TYPE", key) for key in types])
        wrong = [key for key, reply in zip(types, replies, strict=True) if reply.decode() not in ("none", types[key])]
        if not wrong:
            return ""
        cost = (
            "gaps are then reported to every subscriber" if set(wrong) & {*self._parts} else "nothing is lost by that"
        )
        return f"{', '.join(wrong)}: not of the type that PushUp uses; remove it with DEL ({cost})"

    async def tail(self) -> Tail:
        return tail_of(*await self.connection.ask("HMGET", self._state, *TAIL_FIELDS))

    async def find(self, tail: Tail, last: Cursor, tag: bytes) -> LastEntry:
        """Look for the entry with this last sequence and tag in the log that ends with `tail`."""
        if (tail.sequence, tail.tag) == (last.sequence, tag):
            return LastEntry.CONTAINED
        ask = self.connection.ask
        rows = await ask("XRANGE", self._log, f"{last.sequence}-0", "+", "COUNT", 1)
        found = log_entry(last.epoch, *rows[0]) if rows else None
        if found is not None and tag in (found.after, found.tag):
            return LastEntry.CONTAINED
        if tail.epoch != last.epoch:
            is_earlier = tail.epoch and order_of(tail.epoch) < order_of(last.epoch)
            return LastEntry.MISSING if is_earlier else LastEntry.UNKNOWN
        if tail.sequence <= last.sequence:
            return LastEntry.MISSING
        if found is not None and isinstance(found.entry, Entry) and found.entry.sequence <= last.sequence + 1:
            return LastEntry.MISSING  # at its place, or right after it, is an entry of another chain
        earlier = await ask("XREVRANGE", self._log, f"{last.sequence}-0", "-", "COUNT", 1)
        return LastEntry.MISSING if earlier else LastEntry.UNKNOWN

    async def load(self, node: str = "") -> Loaded | None:
        """What a new node starts from, in pieces; None if there is no log. Saves wait meanwhile. O(all).

        `node`: the id of the node that loads.
        """
        return await CheckpointLoader(self.connection.ask, (*self._parts, self._loads), node).run()

    async def begin(
        self, over: str, head: Head, rows: Iterable[Stored] = (), cluster: str = "", *, after: bytes = b""
    ) -> bool:
        """Replace the epoch `over` by that of this head, with these rows; it is followed in this run.

        They are sent in pieces. `cluster`: its name; empty if it is founded now, and named by this epoch.
        `after`: the tag of the last entry that may be in the log; empty for any. Returns False if there is a later one,
        if another node has replaced the epoch already, or if the rows did not all arrive.
        """
        new, count = f"{self._begin}:{head.epoch}", 0
        rows = iter(rows)
        while piece := [word for row in islice(rows, PIECE_OF_EPOCH) for word in (row.key, bytes(row.body))]:
            count += len(piece) // 2
            # Together: without a reply to the first, the second would never be sent.
            await _all([self.connection.ask("HSET", new, *piece), self.connection.ask("EXPIRE", new, BEGIN_SECONDS)])
        saved = encode(SavedHead(head, head.epoch))
        names = (*self._parts, self._vouchers, new, self._format)
        words = (over, head.epoch, head.time, self.run, head.version, saved, count, cluster or head.epoch)
        return bool(await self._evaluate(scripts.BEGIN, names, *words, head.sequence, FORMAT, after))

    async def switch(self, after: bytes, tag: str, command: Command, **fields: str | float) -> bool:
        """Append a command right after the entry with the tag `after`, and change these fields of the state with it.

        Returns False if there is another entry by now.
        """
        keys = (self._state, self._log, self._vouchers)
        pairs = [word for pair in fields.items() for word in pair]
        return bool(await self._evaluate(scripts.SWITCH, keys, after, tag, encode(command), *pairs))

    async def vouch(self, node: str, known: list[str] | None) -> Vouchers:
        """See who vouches for the log in this run; with `known`, also vouch: these nodes may know entries as well."""
        mine = b"" if known is None else encode(Voucher(self.run, known))
        keys = (self._state, self._members[2], self._vouchers)
        run, members, flat = await self._evaluate(scripts.VOUCH, keys, node, mine, self._history)
        return vouchers_of(self.run, run, members, flat)

    async def save(self, saved: int, changes: Changes, tag: str, *, keep_after: int, sweeps: bool = False) -> bool:
        """Bring the checkpoint at `saved` up to date, and trim the log up to `keep_after`.

        `sweeps`: leave no byte of what is trimmed. Returns False if another node has saved since, or one is loading; or
        if some bytes may be left. Raises: Incomplete.
        """
        head = changes.head
        kept = [word for row in changes.rows if not row.is_removed for word in (row.key, bytes(row.body))]
        removed = [row.key for row in changes.rows if row.is_removed]
        saved_head, first = encode(SavedHead(head, tag)), min(keep_after, head.sequence) + 1
        words = (head.epoch, saved, head.sequence, saved_head, first, int(sweeps), len(kept) // 2, *kept, *removed)
        reply = await self._evaluate(scripts.SAVE, (*self._parts, self._loads), *words)
        if reply == -1:
            raise Incomplete("Redis has lost a part of the checkpoint (was a key deleted or evicted?)")
        return bool(reply == 1)

    async def report(
        self, node: str, member: bytes, lease: float, *, last: float = 0.0, was_replicated: bool = False
    ) -> Report:
        """Renew this node's lease (seconds), with what others are told about it; b"" ends it.

        `last`: the time of the last report that was answered, by the clock of Redis (`Report.time`).
        `was_replicated`: this node knows of a replica. That is noted in Redis, for all that come after it.
        """
        keys = (*self._members, self._format, self._loads)
        words = (node, member, lease, int(was_replicated), FORMAT, last, self._history)
        reply = await self._evaluate(scripts.REPORT, keys, *words)
        *tail, saved, complete, time, loading, members = reply
        return Report(tail_of(*tail), number(saved or b"0"), bool(complete), float(time), bool(loading), members)

    async def replicas(self, seconds: float) -> tuple[Tail, int]:
        """The end of the log, and how many replicas have received it; waits this long for the first."""
        # WAIT covers everything up to the last write of this connection, so it needs a write first. If that is
        # refused, WAIT would say nothing about the log.
        end = await self.mark()
        milliseconds = max(1, round(seconds * 1000))
        return end, int(await self.connection.ask("WAIT", 1, milliseconds, blocks=seconds))

    async def mark(self) -> Tail:
        """Write something that needs memory, as a publication does; returns the end of the log."""
        return tail_of(*await self.connection.ask("EVAL", scripts.MARK.text, 1, self._state))

    async def new_cluster(self, name: str) -> str | None:
        """Give the log to a cluster of this name. Returns the former one, '' without a log, None if a node lives."""
        former = await self.connection.ask("EVAL", scripts.NEW_CLUSTER.text, 2, *self._members[:2], name)
        return None if former == 0 else former.decode()

    async def _evaluate(self, script: scripts.Script, keys: tuple[str, ...], *arguments: str | bytes | float) -> Any:
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


async def _all(asked: list[Deferred[Any]]) -> list[Any]:
    """The replies, or the first error."""
    try:
        return await gatherResults(asked, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()
