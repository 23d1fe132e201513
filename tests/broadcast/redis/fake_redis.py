"""An in-memory Redis controlled by the test: the commands that PushUp uses, and its scripts rewritten in Python.

Connections are real `RedisConnection`s. The transport behind each keeps requests until they are executed, and replies
until they are delivered, so that a test can stop anywhere in between. `test_scripts` checks that all this behaves like
a real Redis.
"""

from __future__ import annotations

import copy
import hashlib
import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Any

import hiredis
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.broadcast.redis.connection import RedisConnection
from pushup.broadcast.redis.errors import CannotConnect
from pushup.broadcast.redis.log import SCRIPTS

TIMEOUT = 5.0
ENOUGH = 20_000
"""Steps after which there should be an end of them."""


class Refusal(Exception):
    """An error reply."""


@dataclass
class Stream:
    """Rows by the first part of their ids; the second part is always 0."""

    rows: list[tuple[int, list[bytes]]] = field(default_factory=list)
    last: int = 0

    def add(self, id: bytes, fields: list[bytes]) -> None:  # noqa: A002
        number = int(id.removesuffix(b"-0"))
        if number <= self.last:
            raise Refusal("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        self.rows.append((number, fields))
        self.last = number

    def trim(self, first: bytes) -> None:
        self.rows = [row for row in self.rows if row[0] >= int(first)]


class FakeRedis:
    """One server: its data, its connections, and the faults that a test can cause."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.skew = 0.0
        """By so many seconds its clock is ahead."""
        self.data: dict[bytes, Any] = {}
        self.runs = count(1)
        self.run = f"run{next(self.runs)}"
        self.scripts: dict[bytes, Callable[..., Any]] = {}
        self.links: list[Link] = []
        self.refuses = ""
        """Why no connection can be made, if so."""
        self.denies = ""
        """What is said to whatever would write, if so."""
        self.hangs = False
        self.rate = 0
        """By a new connection so many bytes of replies come in a second; 0: all at once."""
        self.info = {"aof_enabled": "0", "second_repl_offset": "-1"}
        self.appendfsync: bytes | None = b"everysec"
        self.replicas = 0
        self.follows = ""
        """The run of another server that it is a replica of, if it is one."""
        self.executed: list[bytes] = []
        """The names of all commands carried out."""

    @property
    def history(self) -> str:
        """The id of its replication history: another with each run, and while it is a replica."""
        return self.info.get("master_replid") or f"history-of-{self.follows or self.run}"

    @property
    def whole_run(self) -> str:
        """What a node calls this run."""
        return f"{self.run}.{self.history}"

    # Connections.

    async def connect(self) -> RedisConnection:
        if self.refuses:
            raise CannotConnect(self.refuses)
        return self.link().connection

    def link(self, timeout: float = TIMEOUT) -> Link:
        link = Link(self, RedisConnection(self.clock, timeout))
        self.links.append(link)
        link.connection.makeConnection(link)
        return link

    # Faults.

    def dump(self) -> dict[bytes, Any]:
        """A copy of all data, as it would be on disk."""
        return copy.deepcopy(self.data)

    def restart(self, data: dict[bytes, Any] | None = None) -> None:
        """Restart as another run, with this data (by default the current data)."""
        self.cut()
        self.run = f"run{next(self.runs)}"
        self.scripts.clear()
        if data is not None:
            self.data = copy.deepcopy(data)

    def cut(self) -> None:
        """Close all connections."""
        for link in list(self.links):
            link.end(ConnectionDone())

    # Steps.

    def step(self) -> bool:
        """Execute the oldest request of each connection and deliver its reply, and do what is due.

        Returns whether there was any of it.
        """
        now = self.clock.seconds()
        is_due = any(call.getTime() <= now for call in self.clock.getDelayedCalls())
        self.clock.advance(0)
        return sum(link.step() for link in list(self.links)) > 0 or is_due

    def settle(self) -> None:
        """Execute and deliver everything that does not have to wait."""
        for _ in range(ENOUGH):
            if not self.step():
                return
        raise AssertionError("there is no end of it")

    # Commands.

    def execute(self, words: list[bytes]) -> Any:
        name = words[0].upper()
        self.executed.append(name)
        try:
            if self.denies and name in _WRITES:
                raise Refusal(self.denies)
            return getattr(self, "_" + name.decode().lower())(*words[1:])
        except Refusal as error:
            return error

    def now(self) -> float:
        return self.clock.seconds() + self.skew

    def stream(self, key: bytes) -> Stream:
        stream: Stream = self.data.setdefault(key, Stream())
        return stream

    def _rows(self, key: bytes, first: float = 0, last: float = math.inf) -> list[list[Any]]:
        rows = self.data[key].rows if key in self.data else []
        begin, end = bisect_left(rows, first, key=itemgetter(0)), bisect_right(rows, last, key=itemgetter(0))
        return [[b"%d-0" % number, fields] for number, fields in rows[begin:end]]

    def _ping(self) -> bytes:
        return b"PONG"

    def _info(self) -> bytes:
        info = {"run_id": self.run, "master_replid": self.history, **self.info}
        return "".join(f"{name}:{value}\r\n" for name, value in info.items()).encode()

    def _config(self, *words: bytes) -> list[bytes]:
        assert words == (b"GET", b"appendfsync")
        if self.appendfsync is None:
            raise Refusal("NOPERM this user has no permissions to run the 'config|get' command")
        return [b"appendfsync", self.appendfsync]

    def _script(self, verb: bytes, text: bytes) -> bytes:
        assert verb == b"LOAD"
        (found,) = [script for script in SCRIPTS if script.text == text]
        sha = found.sha.encode()
        scripts = (self._append, self._begin, self._save, self._load, self._report, self._switch, self._vouch)
        self.scripts[sha] = scripts[SCRIPTS.index(found)]
        return sha

    def _evalsha(self, sha: bytes, keys: bytes, *rest: bytes) -> Any:
        if sha not in self.scripts:
            raise Refusal("NOSCRIPT No matching script. Please use EVAL.")
        return self.scripts[sha](rest[: int(keys)], rest[int(keys) :])

    def _eval(self, text: bytes, keys: bytes, *rest: bytes) -> Any:
        assert b"'waits'" in text
        assert int(keys) == len(rest)
        return self._mark(rest, ())

    def _hmget(self, key: bytes, *names: bytes) -> list[bytes | None]:
        return [self.data.get(key, {}).get(name) for name in names]

    def _hget(self, key: bytes, name: bytes) -> bytes | None:
        return self._hmget(key, name)[0]

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        self.data.setdefault(key, {}).update(zip(pairs[::2], pairs[1::2], strict=True))
        return 0

    def _expire(self, key: bytes, seconds: bytes) -> int:
        """It does not expire here: nobody looks for it then."""
        return int(key in self.data)

    def _hdel(self, key: bytes, *names: bytes) -> int:
        for name in names:
            self.data.get(key, {}).pop(name, None)
        if key in self.data and not self.data[key]:
            del self.data[key]
        return 0

    def _hscan(self, key: bytes, place: bytes, option: bytes, most: bytes) -> list[Any]:
        """At most this many, in an order that means nothing."""
        assert option == b"COUNT"
        by_name = self.data.get(key, {})
        names = sorted(by_name, key=_hash)
        begin, end = int(place), int(place) + int(most)
        flat = [word for name in names[begin:end] for word in (name, by_name[name])]
        return [b"%d" % end if end < len(names) else b"0", flat]

    def _xrange(self, key: bytes, first: bytes, last: bytes, *most: bytes) -> list[list[Any]]:
        assert last == b"+"
        assert most[:1] in ((), (b"COUNT",))
        return self._rows(key, _place(first))[: int(most[1]) if most else None]

    def _xrevrange(self, key: bytes, last: bytes, first: bytes, *most: bytes) -> list[list[Any]]:
        assert first == b"-"
        assert most[0] == b"COUNT"
        return self._rows(key, 0, _place(last))[::-1][: int(most[1])]

    def _xread(self, *words: bytes) -> list[Any] | None:
        assert words[:5:2] == (b"COUNT", b"BLOCK", b"STREAMS")
        _, most, _, _, _, key, after = words
        rows = self._rows(key, _place(after) + 1)[: int(most)]
        return [[key, rows]] if rows else None

    def _wait(self, wanted: bytes, milliseconds: bytes) -> int:
        assert wanted == b"1"
        return self.replicas

    # The scripts.

    def _append(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        state, log = keys
        epoch, tag, width, command, history = arguments
        if self._hget(state, b"epoch") != epoch or history != self.history.encode():
            return 0
        return self._add(state, log, tag, int(width), command)

    def _add(self, state: bytes, log: bytes, tag: bytes, width: int, command: bytes, *fields: bytes) -> int:
        """Append an entry; returns its last sequence."""
        sequence, time, after = self._hmget(state, b"sequence", b"time", b"tag")
        self._deny_writes()
        assert sequence is not None
        assert time is not None
        assert after is not None
        moment = b"%.6f" % max(self.now(), float(time))
        last = int(sequence) + width
        self.stream(log).add(b"%d-0" % last, [b"time", moment, b"after", after, b"tag", tag, b"command", command])
        self._hset(state, b"sequence", b"%d" % last, b"time", moment, b"tag", tag, *fields)
        return last

    def _switch(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        state, log, vouchers = keys
        after, tag, command, *fields = arguments
        if self._hget(state, b"tag") != after:
            return 0
        self._add(state, log, tag, 1, command, *fields)
        self.data.pop(vouchers, None)
        return 1

    def _vouch(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        state, members, vouchers = keys
        node, voucher = arguments
        if voucher:
            self._deny_writes()
            self._hset(vouchers, node, voucher)
        all_vouchers = [word for pair in self.data.get(vouchers, {}).items() for word in pair]
        return [self._hget(state, b"run") or b"", list(self.data.get(members, {})), all_vouchers]

    def _begin(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        over, epoch, time, run, version, checkpoint, count, cluster = arguments
        channels = self.data.get(keys[6], {})
        if (self._hget(keys[0], b"epoch") or b"") != over or len(channels) != int(count):
            return 0
        self._deny_writes()
        founded = b"%.6f" % self.now() if cluster == epoch else self._hget(keys[0], b"founded") or b"0"
        for key in keys:
            self.data.pop(key, None)
        new = {
            b"epoch": epoch, b"sequence": b"0", b"time": time, b"tag": epoch, b"run": run,
            b"version": version, b"cluster": cluster, b"founded": founded,
            b"saved": b"0", b"checkpoint": checkpoint,
        }  # fmt: skip
        self.data[keys[0]] = new
        if channels:
            self.data[keys[2]] = channels
        new[b"parts"] = self._parts(keys)
        return 1

    def _save(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        epoch, before, saved, checkpoint, first, messages, first_message, idempotency, first_key, number = arguments[
            :10
        ]
        if self._hmget(keys[0], b"epoch", b"saved") != [epoch, before]:
            return 0
        if self._is_loading(keys[5]):
            return 0
        if self._hget(keys[0], b"parts") != self._parts(keys):
            return -1
        for key, body, kept in ((keys[3], messages, first_message), (keys[4], idempotency, first_key)):
            if body:
                self.stream(key).add(saved + b"-0", [b"body", body])
            if key in self.data:
                self.stream(key).trim(kept)
        end = 10 + 2 * int(number)
        if arguments[10:end]:
            self._hset(keys[2], *arguments[10:end])
        self._hdel(keys[2], *arguments[end:])
        if keys[1] in self.data:
            self.stream(keys[1]).trim(first)
        self._hset(keys[0], b"saved", saved, b"checkpoint", checkpoint, b"parts", self._parts(keys))
        return 1

    def _parts(self, keys: tuple[bytes, ...]) -> bytes:
        return b"%d %d %d" % (len(self.data.get(keys[2], {})), len(self._rows(keys[3])), len(self._rows(keys[4])))

    def _load(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        state, *bodies, loads = keys
        node, lease = arguments
        if not self.denies:  # else the script goes on without
            leases = self.data.setdefault(loads, {})
            leases.pop(node, None)
            if float(lease) > 0:
                leases[node] = self.now() + float(lease)
            if not leases:
                del self.data[loads]
        return [*self._hmget(state, *_TAIL, b"saved", b"checkpoint", b"parts"), self._parts((state, loads, *bodies))]

    def _is_loading(self, loads: bytes) -> bool:
        """Whether a node that reads the checkpoint has a lease."""
        leases = {node: until for node, until in self.data.get(loads, {}).items() if until > math.floor(self.now())}
        self.data[loads] = leases
        if not leases:
            del self.data[loads]
        return any(until <= math.floor(self.now()) + 60 for until in leases.values())

    def _report(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        state, leases, members = keys
        node, member, lease = arguments
        complete = self.data.get(leases, {}).get(node, 0.0) > self.now()
        if member:
            self._hset(members, node, member)
            until = self.now() + float(lease)
            self.data.setdefault(leases, {})[node] = until
            self.data[leases] = {name: min(end, until) for name, end in self.data[leases].items()}
        gone = [name for name, until in self.data.get(leases, {}).items() if until <= self.now()]
        for name in gone if member else [node, *gone]:
            self._hdel(leases, name)
            self._hdel(members, name)
        living = sorted(self.data.get(leases, {}).items(), key=lambda lease: (lease[1], lease[0]))
        shown = [self._hget(members, name) for name, _ in living]
        known = [text for text in shown if text is not None]
        return [*self._hmget(state, *_TAIL, b"saved"), int(complete and shown == known), b"%.6f" % self.now(), *known]

    def _mark(self, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> Any:
        self._deny_writes()
        self._hset(keys[0], b"waits", b"%d" % (int(self._hget(keys[0], b"waits") or 0) + 1))
        return self._hmget(keys[0], *_TAIL)

    def _deny_writes(self) -> None:
        if self.denies:
            raise Refusal(self.denies)


_WRITES = (b"HSET",)
_TAIL = (b"epoch", b"sequence", b"tag", b"run", b"version", b"cluster", b"founded")
_BLOCKS = (b"XREAD", b"WAIT")


class Link:
    """The server's end of a connection, and the transport at the other end."""

    def __init__(self, redis: FakeRedis, connection: RedisConnection) -> None:
        self.redis = redis
        self.connection = connection
        self.requests: deque[tuple[float, list[bytes]]] = deque()
        self.replies: deque[bytes] = deque()
        self.open = True
        self.aborted = False
        self.stuck = False
        """Nothing passes by it any more, and neither end knows."""
        self.blind = False
        """No entry is read by it: it leads to a server that does not get them any more."""
        self.rate = redis.rate
        self.scripts: set[bytes] = set()
        """The SHA-1 of each script called by it."""
        self._paid_at = 0.0
        self._reader = hiredis.Reader()

    # The transport.

    def write(self, data: bytes) -> None:
        if not self.open or self.aborted:
            return
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self.requests.append((self.redis.clock.seconds(), words))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Nothing to do: this transport accepts everything that is written."""

    def abortConnection(self) -> None:
        """As with TCP, the connection ends in the next turn."""
        if self.open and not self.aborted:
            self.aborted = True
            self.redis.clock.callLater(0, self.end, ConnectionAborted())

    def end(self, reason: Exception) -> None:
        if self.open:
            self.open = False
            self.redis.links.remove(self)
            self.connection.connectionLost(Failure(reason))

    # Steps.

    @property
    def _passes(self) -> bool:
        return self.open and not self.stuck and not self.redis.hangs

    def execute_next(self) -> bool:
        """Execute the oldest request, unless it has to wait."""
        if not self.requests or not self._passes:
            return False
        since, words = self.requests[0]
        reply = None if self.blind and words[0] == b"XREAD" else self.redis.execute(words)
        if words[0] in _BLOCKS and not reply:
            milliseconds = words[words.index(b"BLOCK") + 1] if words[0] == b"XREAD" else words[2]
            if self.redis.clock.seconds() < since + int(milliseconds) / 1000:
                return False
        self.requests.popleft()
        if words[0] == b"EVALSHA":
            self.scripts.add(words[1])
        if not self.replies:
            self._paid_at = self.redis.clock.seconds()
        self.replies.append(encode_reply(reply))
        return True

    def deliver(self) -> bool:
        """Deliver the oldest reply, or as much of it as has arrived by now."""
        if not self.replies or not self._passes or self.aborted:
            return False
        if not self.rate:
            self.connection.dataReceived(self.replies.popleft())
            return True
        now = self.redis.clock.seconds()
        size = int((now - self._paid_at) * self.rate)
        if size == 0:
            return False
        self._paid_at = now
        data = self.replies.popleft()
        if len(data) > size:
            self.replies.appendleft(data[size:])
        self.connection.dataReceived(data[:size])
        return True

    def step(self) -> bool:
        done = self.execute_next()
        return self.deliver() or done


def encode_reply(value: Any) -> bytes:
    """A reply in the wire format (RESP2)."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, Exception):
        return b"-%s\r\n" % str(value).encode()
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(encode_reply, value))


def _hash(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=8).digest()


def _place(text: bytes) -> int:
    """The first sequence that a range bound includes, for ids that end with -0."""
    if text == b"-":
        return 0
    number = int(text.lstrip(b"(").removesuffix(b"-0"))
    return number + 1 if text.startswith(b"(") else number
