"""A simulated Redis server behind the simulated network, and what is left of it after a restart.

The commands are those of `FakeRedis`, which is compared with a real Redis. What each write changes is recorded with its
time, so the data of any moment can be made again by repeating the changes until then. A file (AOF, RDB) or a replica is
thus only a number: how many writes it contains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import hiredis
from twisted.internet.task import Clock

from tests.broadcast.redis.commands import Data
from tests.broadcast.redis.fake_redis import FakeRedis, encode_reply
from tests.simulation.network import End, Network
from tests.simulation.world import Process, World

HOST = "redis"
FSYNC_SECONDS = 1.0
"""How often `appendfsync everysec` syncs."""

READS = frozenset(b"PING INFO CONFIG SCRIPT HMGET HGET HSCAN XRANGE XREVRANGE XREAD WAIT ROLE".split())


class Write(NamedTuple):
    """What a command has changed."""

    at: float
    words: list[bytes]
    effects: list[list[bytes]]
    """The commands that lead to the same; for a script, those that it called."""


class RedisServer:
    """The server at one address, over all its restarts. The steps of a simulation decide what happens to it."""

    def __init__(self, world: World, network: Network, *, appendfsync: str, host: str = HOST) -> None:
        """`appendfsync`: always, everysec, or none (snapshots only)."""
        self.world = world
        self.host = host
        self.network = network
        self.appendfsync = appendfsync
        self.offset_seconds = 0.0
        """By how much its clock is ahead."""
        self.writes: list[Write] = []
        self.synced = 0
        """How many writes survive the loss of power."""
        self.dumps = [0]
        """How many writes each snapshot (RDB) contains, the newest last."""
        self.has_replica = False
        self.replica_paused = False
        self.replicated = 0
        """How many writes the replica has."""
        self.replicas_before: list[tuple[float, list[Write]]] = []
        """When it started again, and the writes that the replica had until then."""
        self.asked_by, self.asked = "", [b""]  # who sent the last command, and its words
        """The host whose command is carried out."""
        self.runs = 0
        self.promoted = False
        self.on_write: Callable[[list[bytes], Any], None] = lambda words, reply: None
        """Called after each write or attempt at one, with its words and the reply; for counters and checks."""
        self.start(Data())

    # What the faults and the checker use.

    @property
    def data(self) -> Data:
        return self.redis.data

    def at(self, count: int) -> Data:
        """What it had after so many writes."""
        return self.made_by(self.writes[:count])

    def made_by(self, writes: list[Write]) -> Data:
        """What these writes lead to."""
        scratch = self._made(Data())
        for write in writes:
            scratch.clock.rightNow = write.at
            for words in write.effects:
                scratch.carry_out(words)
        return scratch.data

    @property
    def end(self) -> str:
        """Where the log ends, as a cursor."""
        state = self.data[b"{pushup}:5:state"]
        return f"{state[b'epoch'].decode()}-{int(state[b'sequence'])}"

    def start(self, data: Data, *, promoted: bool = False) -> None:
        """Run, with this data."""
        self.runs += 1
        self.promoted = promoted
        self.process = Process(self.world, self.host)
        self.redis = self._made(data)
        self.clients: list[_Client] = []
        self.network.listen(self.host, self.process, self._accept)
        self.process.later(FSYNC_SECONDS, self._sync)

    def _made(self, data: Data) -> FakeRedis:
        redis = FakeRedis(Clock())
        redis.run = f"run{self.runs}" if self.host == HOST else f"{self.host}-run{self.runs}"
        redis.data = data
        redis.info |= {
            "aof_enabled": "0" if self.appendfsync == "none" else "1",
            "second_repl_offset": "1" if self.promoted else "-1",
        }
        redis.appendfsync = self.appendfsync.encode() if self.appendfsync != "none" else b"everysec"
        return redis

    def stop(self) -> None:
        self.process.die()

    def restart(self, count: int, *, promoted: bool = False) -> None:
        """Be killed, and start again with so many of its writes; the others never happened."""
        self.stop()
        lost = len(self.writes) - count
        data = self.at(count)
        self.replicas_before.append((self.world.now, self.writes[: self.replicated]))
        del self.writes[count:]
        self.synced = min(self.synced, count)
        self.replicated = min(self.replicated, count)
        self.dumps = [dump for dump in self.dumps if dump <= count] or [0]
        self.world.tell(f"redis: starts again without its last {lost} writes{', promoted' if promoted else ''}")
        self.start(data, promoted=promoted)

    def evict(self, key: bytes) -> None:
        self.execute([b"DEL", key])

    def flush(self) -> None:
        self.execute([b"FLUSHALL"])

    def dump(self) -> None:
        """Save a snapshot."""
        self.dumps.append(len(self.writes))

    def now(self) -> float:
        return self.world.now + self.offset_seconds

    # Clients.

    def _accept(self, end: End) -> None:
        self.clients.append(_Client(self, end))

    def _wake(self, effects: list[list[bytes]]) -> None:
        """Look again at what clients wait for that may have come with this change."""
        for client in self.clients:
            if client.may_go_on(effects):
                client.serve_soon()

    def execute(self, words: list[bytes]) -> Any:
        redis = self.redis
        redis.clock.rightNow = self.now()
        redis.info["connected_slaves"] = str(int(self.has_replica))
        reply = redis.execute(words)
        if redis.effects:
            self.writes.append(Write(self.now(), words, redis.effects))
            if self.appendfsync == "always":
                self.synced = len(self.writes)
            if self.has_replica and not self.replica_paused:
                self._replicate(len(self.writes))
        if words[0] not in READS and not isinstance(reply, Exception):
            self.on_write(words, reply)
        self._wake(redis.effects)
        return reply

    def _replicate(self, count: int) -> None:
        def arrive() -> None:
            if self.has_replica and not self.replica_paused and self.replicated < count <= len(self.writes):
                self.replicated = count
                self._wake([[b"WAIT"]])

        self.process.later(0.001, arrive)

    def resume_replica(self) -> None:
        self.replica_paused = False
        self._replicate(len(self.writes))

    def _sync(self) -> None:
        if self.appendfsync == "everysec":
            self.synced = len(self.writes)
        self.process.later(FSYNC_SECONDS, self._sync)


class _Client:
    """One connection to Redis. Commands are executed in order; one that blocks holds up those behind it."""

    def __init__(self, server: RedisServer, end: End) -> None:
        self._server = server
        self._end = end
        self._reader = hiredis.Reader()
        self._requests: deque[tuple[float, list[bytes]]] = deque()
        self._scheduled = False
        self._waits_for: tuple[bytes, ...] = ()  # streams, or nothing but replicas, for which the first request waits
        self._last_write = 0
        end.on_data = self._received
        end.on_end = end.on_lost = self._gone

    def _received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self._requests.append((self._server.world.now, words))
        self.serve_soon()

    def _gone(self) -> None:
        self._end.close()
        self._requests.clear()
        if self in self._server.clients:
            self._server.clients.remove(self)

    def may_go_on(self, effects: list[list[bytes]]) -> bool:
        """Whether these changes may have brought what the first request waits for."""
        names = self._waits_for
        return any(effect[0] == b"FLUSHALL" or any(name in effect for name in names) for effect in effects)

    def serve_soon(self) -> None:
        if self._requests and not self._scheduled:
            self._scheduled = True
            self._server.process.later(0, self._serve)

    def _serve(self) -> None:
        self._scheduled = False
        server = self._server
        while self._requests and self._end.is_open:
            since, words = self._requests[0]
            name = words[0]
            before = len(server.writes)
            if name == b"WAIT":
                done = server.has_replica and server.replicated >= self._last_write
                reply: Any = int(done)
                blocks, empty = int(words[2]) / 1000, not done
            else:
                server.asked_by, server.asked = self._end.peer.host, words
                reply = server.execute(words)
                blocks, empty = (
                    (int(words[words.index(b"BLOCK") + 1]) / 1000 if name == b"XREAD" else 0.0),
                    reply is None,
                )
            if empty and blocks and server.world.now < since + blocks - 1e-6:
                if not self._waits_for:
                    self._waits_for = (name,) if name == b"WAIT" else _streams(words)
                    server.world.at(since + blocks, self.serve_soon, server.process)
                return
            self._waits_for = ()
            if len(server.writes) > before:
                self._last_write = len(server.writes)
            self._requests.popleft()
            self._end.send(encode_reply(reply))


def _streams(words: list[bytes]) -> tuple[bytes, ...]:
    """The names of the streams that an XREAD reads."""
    names_and_ids = words[words.index(b"STREAMS") + 1 :]
    return tuple(names_and_ids[: len(names_and_ids) // 2])
