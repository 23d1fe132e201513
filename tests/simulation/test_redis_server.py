"""The simulated Redis: what is left after a restart, its replica, and commands that block."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from pushup.broadcast.redis.scripts import SCRIPTS
from tests.simulation.network import End, Network
from tests.simulation.redis_server import HOST, RedisServer
from tests.simulation.world import Process, World

KEY = b"key"
STATE, LOG = b"{pushup}:5:state", b"{pushup}:5:log"
APPEND = SCRIPTS[0].sha.encode()


class Client:
    """A connection to Redis, and the replies that it got, with the seconds from the first moment to each."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.process = Process(world, "client")
        self.replies: list[Any] = []
        self.reply_seconds: list[float] = []
        self.ends: list[End] = []
        self._reader = hiredis.Reader()
        network.connect("client", self.process, HOST, self._use, lambda: self.replies.append("refused"))
        world.run(world.now + 1)

    def _use(self, end: End) -> None:
        self.ends.append(end)
        end.on_data = self._received
        end.on_lost = lambda: self.replies.append("lost")

    def _received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self.replies.append(reply)
            self.reply_seconds.append(self.world.now - self.world.began)

    def send(self, *words: bytes) -> None:
        self.ends[0].send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def ask(self, *words: bytes) -> Any:
        """The reply; it must come within a second."""
        count = len(self.replies)
        self.send(*words)
        self.world.run(self.world.now + 1)
        (reply,) = self.replies[count:]
        return reply


class Setting:
    """A world with a Redis, and `client`."""

    def __init__(self, appendfsync: str = "always") -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.redis = RedisServer(self.world, self.network, appendfsync=appendfsync)
        self.client = self.connect()

    def connect(self) -> Client:
        return Client(self.world, self.network)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def write(self, *values: int) -> None:
        """Write each of these as the value of `KEY`."""
        for value in values:
            self.redis.execute([b"HSET", KEY, b"value", b"%d" % value])

    @property
    def value(self) -> Any:
        return self.redis.data.get(KEY, {}).get(b"value")

    def load_scripts_only(self) -> None:
        for script in SCRIPTS[:5]:
            self.redis.execute([b"SCRIPT", b"LOAD", script.text])

    def load_scripts(self) -> None:
        self.load_scripts_only()
        self.redis.redis.data[STATE] = {b"epoch": b"e", b"sequence": b"0", b"time": b"0", b"tag": b"t"}

    def set_out(self) -> None:
        """Have a log, also after a restart."""
        self.redis.execute([b"HSET", STATE, b"epoch", b"e", b"sequence", b"0", b"time", b"0", b"tag", b"t"])

    @property
    def history(self) -> bytes:
        return self.redis.redis.history.encode()

    def append(self) -> None:
        self.redis.execute([b"EVALSHA", APPEND, b"2", STATE, LOG, b"e", b"t", b"1", b"{}", self.history])


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_restart_with_some_of_its_writes(setting: Setting) -> None:
    """The others never happened; connections break, and it is another run."""
    setting.write(1, 2, 3, 4)
    assert setting.redis.at(3)[KEY] == {b"value": b"3"}
    setting.redis.restart(2)
    setting.run(1)
    assert setting.value == b"2"
    assert len(setting.redis.writes) == 2
    assert setting.client.replies == ["lost"]
    assert b"run_id:run2" in setting.connect().ask(b"INFO")
    setting.write(5)
    assert setting.redis.at(3)[KEY] == {b"value": b"5"}


def test_what_was_appended_before_several_restarts(setting: Setting) -> None:
    """An append is of the run in which it was made, and of no later one."""
    setting.load_scripts()
    setting.set_out()
    for sequence in (b"1", b"2", b"3"):
        setting.append()
        setting.redis.restart(len(setting.redis.writes))
        setting.load_scripts_only()
        assert setting.redis.data[STATE][b"sequence"] == sequence


def test_a_replayed_write_has_its_own_time(setting: Setting) -> None:
    """What a script read from the clock is what it read then, with how much the clock was ahead."""
    setting.load_scripts()
    setting.set_out()
    setting.run(5)
    setting.redis.offset_seconds = 30.0
    setting.append()
    was = setting.redis.data[STATE][b"time"]
    assert float(was) == pytest.approx(setting.world.now + 30)
    setting.run(60)
    setting.redis.offset_seconds = 0.0
    assert setting.redis.at(len(setting.redis.writes))[STATE][b"time"] == was


@pytest.mark.parametrize(
    ("appendfsync", "after_write", "later"), [("always", 2, 2), ("everysec", 0, 2), ("none", 0, 0)]
)
def test_what_survives_the_loss_of_power(appendfsync: str, after_write: int, later: int) -> None:
    """Every write, those until the last second, or none; and never more than a restart has left."""
    setting = Setting(appendfsync)
    setting.run(0.2)
    setting.write(1, 2)
    assert setting.redis.synced == after_write
    setting.run(1.1)
    assert setting.redis.synced == later
    setting.redis.restart(1)
    assert setting.redis.synced == min(later, 1)


def test_snapshots(setting: Setting) -> None:
    """A snapshot contains the writes until then; those that a restart has lost are forgotten."""
    setting.write(1)
    setting.redis.dump()
    setting.write(2)
    setting.redis.dump()
    assert setting.redis.dumps == [0, 1, 2]
    setting.redis.restart(1)
    assert setting.redis.dumps == [0, 1]


def test_a_replica(setting: Setting) -> None:
    """It has each write a moment later; none while it is paused, and all when it goes on."""
    setting.write(1)
    setting.run(1)
    assert setting.redis.replicated == 0  # there is none
    setting.redis.has_replica = True
    setting.write(2)
    assert setting.redis.replicated == 0
    setting.run(1)
    assert setting.redis.replicated == 2
    setting.redis.replica_paused = True
    setting.write(3)
    setting.run(1)
    assert setting.redis.replicated == 2
    setting.redis.resume_replica()
    setting.run(1)
    assert setting.redis.replicated == 3
    setting.redis.restart(1)
    assert setting.redis.replicated == 1
    ((at, writes),) = setting.redis.replicas_before
    assert at == setting.world.now
    assert setting.redis.made_by(writes)[KEY] == {b"value": b"3"}


def test_a_replica_that_takes_over(setting: Setting) -> None:
    """What had not reached it is lost, and it says that it was promoted."""
    setting.redis.has_replica = True
    setting.write(1)
    setting.run(1)
    setting.write(2)  # on its way
    setting.redis.restart(setting.redis.replicated, promoted=True)
    setting.run(1)
    assert setting.value == b"1"
    assert setting.redis.replicated == 1
    assert b"second_repl_offset:1" in setting.connect().ask(b"INFO")


def test_eviction_and_flush(setting: Setting) -> None:
    """One key or all are gone; that is a write, so an older copy still has them."""
    setting.write(1)
    setting.redis.execute([b"HSET", b"other", b"a", b"b"])
    setting.redis.evict(KEY)
    assert set(setting.redis.data) == {b"other"}
    setting.redis.flush()
    assert not setting.redis.data
    found = [set(setting.redis.at(count)) for count in range(5)]
    assert found == [set(), {KEY}, {KEY, b"other"}, {b"other"}, set()]


def test_wait(setting: Setting) -> None:
    """It ends when the replica has the writes of this connection, or with 0 when its time is over."""
    setting.redis.has_replica = setting.redis.replica_paused = True
    assert setting.client.ask(b"WAIT", b"1", b"500") == 1  # nothing was written by this connection
    setting.client.ask(b"HSET", KEY, b"value", b"1")
    assert setting.client.ask(b"WAIT", b"1", b"500") == 0
    setting.client.send(b"WAIT", b"1", b"5000")
    setting.run(2)
    assert len(setting.client.replies) == 3
    setting.redis.resume_replica()
    setting.run(0.1)
    assert setting.client.replies[3:] == [1]


def test_a_blocking_read(setting: Setting) -> None:
    """It ends with the next entry, or with nothing when its time is over; commands behind it wait, others do not."""
    setting.load_scripts()
    read = (b"XREAD", b"COUNT", b"10", b"BLOCK", b"3000", b"STREAMS", LOG, b"0-0")
    began = setting.world.now - setting.world.began
    setting.client.send(*read)
    setting.client.send(b"PING")
    setting.run(2.9)
    assert setting.client.replies == []
    setting.run(0.2)
    assert setting.client.replies == [None, b"PONG"]
    assert setting.client.reply_seconds[0] == pytest.approx(began + 3, abs=0.01)
    setting.client.send(*read)
    other = setting.connect()
    assert other.ask(b"PING") == b"PONG"
    assert len(setting.client.replies) == 2
    setting.append()
    setting.run(0.1)
    ((key, ((id_, _),)),) = setting.client.replies[2]
    assert (key, id_) == (LOG, b"1-0")


def test_what_counts_as_a_write(setting: Setting) -> None:
    """Reads do not, nor does what was refused; each write is told to whoever watches."""
    told: list[bytes] = []
    setting.redis.on_write = lambda words, reply: told.append(words[0])
    setting.client.ask(b"PING")
    setting.client.ask(b"HGET", KEY, b"value")
    setting.redis.redis.denies = "OOM command not allowed"
    assert isinstance(setting.client.ask(b"HSET", KEY, b"value", b"1"), hiredis.ReplyError)
    setting.redis.redis.denies = ""
    setting.client.ask(b"HSET", KEY, b"value", b"1")
    assert told == [words[0] for _, words, _ in setting.redis.writes] == [b"HSET"]


def test_a_server_that_is_stopped_or_paused(setting: Setting) -> None:
    """Nobody can connect to one that is stopped; one that is paused replies when it goes on."""
    setting.redis.process.pause()
    setting.client.send(b"PING")
    setting.run(5)
    assert setting.client.replies == []
    setting.redis.process.resume()
    setting.run(0.1)
    assert setting.client.replies == [b"PONG"]
    setting.redis.stop()
    setting.run(1)
    assert setting.client.replies == [b"PONG", "lost"]
    assert setting.connect().replies == ["refused"]
