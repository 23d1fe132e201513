"""An in-memory Redis controlled by the test. Its scripts are the real ones, in an embedded Lua.

Connections are real `RedisConnection`s. The transport behind each keeps requests until they are executed, and replies
until they are delivered, so that a test can stop anywhere in between. `test_same_as_redis` checks that the commands and
scripts do what they do in a real Redis.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from itertools import count
from typing import Any

import hiredis
import msgspec
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.broadcast.redis.redis_errors import CannotConnect
from pushup.core.commands import Command
from tests.broadcast.redis.commands import CHANGE_IF_ANY, NEED_MEMORY, WRITES, Commands, Data, Stream
from tests.broadcast.redis.lua_scripts import ReplyError, Scripts

__all__ = ["TIMEOUT", "FakeRedis", "Link", "ReplyError", "Stream", "encode_reply"]

TIMEOUT = 5.0
ENOUGH = 20_000
"""Steps after which there should be an end of them."""

_lua = Scripts()


class FakeRedis(Commands):
    """One server: its data, its connections, and the faults that a test can cause."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.skew = 0.0
        """By so many seconds its clock is ahead."""
        self.runs = count(1)
        self.run = f"run{next(self.runs)}"
        self.scripts: dict[bytes, Callable[..., Any]] = {}
        self.links: list[Link] = []
        self.refuses = ""
        """Why no connection can be made, if so."""
        self.denies = ""
        """Why it takes no writes, if so. With OOM, only those are refused that need memory, but not if a script has
        written before."""
        self.hangs = False
        self.rate = 0
        """By a new connection so many bytes of replies come in a second; 0: all at once."""
        self.info = {"role": "master", "aof_enabled": "0", "connected_slaves": "0", "second_repl_offset": "-1"}
        self.appendfsync: bytes | None = b"everysec"
        self.replicas = 0
        self.follows = ""
        """The run of another server that it is a replica of, if it is one."""
        self.executed: list[bytes] = []
        """The names of all commands carried out, but for those of scripts."""
        self.effects: list[list[bytes]] = []
        """What the last command has changed: itself, or the commands of its script."""
        self._has_written = False  # the script that runs

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

    def dump(self) -> Data:
        """A copy of all data, as it would be on disk."""
        return copy.deepcopy(self.data)

    def restart(self, data: dict[bytes, Any] | None = None) -> None:
        """Restart as another run, with this data (by default the current data)."""
        self.cut()
        self.run = f"run{next(self.runs)}"
        self.scripts.clear()
        if data is not None:
            self.data = Data(copy.deepcopy(data))

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
        """The reply; an error is returned as a value."""
        self.executed.append(words[0].upper())
        self.effects = []
        self._has_written = False
        try:
            return self._perform(words, by_script=False)
        except ReplyError as error:
            return error

    def run_script(self, name: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Run the script in this file, as somebody would who has loaded it."""
        self._has_written = False
        return self._run(
            _lua.compile(files("pushup.broadcast.redis").joinpath(f"{name}.lua").read_bytes()), keys, arguments
        )

    def append(self, epoch: bytes, tag: bytes, command: Command) -> None:
        """Append to the log, as a node would that the others do not know."""
        keys, text = (b"{pushup}:5:state", b"{pushup}:5:log"), msgspec.json.encode(command)
        self.run_script("append", keys, (epoch, tag, b"1", text, self.history.encode()))

    def _perform(self, words: list[bytes], *, by_script: bool) -> Any:
        """Raises: ReplyError."""
        name = words[0].upper()
        if name not in WRITES:
            return self.carry_out(words)
        is_full = self.denies.startswith("OOM")
        if self.denies and (not is_full or (name in NEED_MEMORY and not (by_script and self._has_written))):
            raise ReplyError(self.denies)
        self._has_written = True
        reply = self.carry_out(words)
        if reply or name not in CHANGE_IF_ANY:
            self.effects.append(words)
        return reply

    def _run(self, sha: bytes, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        return _lua.run(sha, keys, arguments, partial(self._perform, by_script=True))

    def now(self) -> float:
        return self.clock.seconds() + self.skew

    def _ping(self) -> bytes:
        return b"PONG"

    def _info(self, section: bytes = b"") -> bytes:
        info = {"run_id": self.run, "master_replid": self.history, **self.info}
        if section:
            assert section == b"replication"
            info = {name: info[name] for name in REPLICATION if name in info}
        return "".join(f"{name}:{value}\r\n" for name, value in info.items()).encode()

    def _config(self, *words: bytes) -> list[bytes]:
        assert words == (b"GET", b"appendfsync")
        if self.appendfsync is None:
            raise ReplyError("NOPERM this user has no permissions to run the 'config|get' command")
        return [b"appendfsync", self.appendfsync]

    def _script(self, verb: bytes, text: bytes) -> bytes:
        assert verb == b"LOAD"
        sha = _lua.compile(text)
        self.scripts.setdefault(sha, partial(self._run, sha))
        return sha

    def _evalsha(self, sha: bytes, keys: bytes, *rest: bytes) -> Any:
        if sha not in self.scripts:
            raise ReplyError("NOSCRIPT No matching script. Please use EVAL.")
        return self.scripts[sha](rest[: int(keys)], rest[int(keys) :])

    def _eval(self, text: bytes, keys: bytes, *rest: bytes) -> Any:
        return self._run(_lua.compile(text), rest[: int(keys)], rest[int(keys) :])

    def _wait(self, wanted: bytes, milliseconds: bytes) -> int:
        assert wanted == b"1"
        return self.replicas


REPLICATION = (
    "role",
    "connected_slaves",
    "master_replid",
    "master_replid2",
    "master_repl_offset",
    "second_repl_offset",
)
"""Of INFO, the section of this name."""

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
        self.sends: Callable[[list[bytes]], list[bytes]] = lambda words: words
        """Makes each command what another release would have sent."""
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
            self.requests.append((self.redis.clock.seconds(), self.sends(words)))

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
