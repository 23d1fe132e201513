"""The scripts in a real Redis: what only that can show. The in-memory one does the same (`test_same_as_redis`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import hiredis
import pytest
from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from pushup.broadcast.redis.checkpoint_loader import Loaded
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import LastEntry, LogEntry, Report, Tail, Vouchers
from pushup.broadcast.redis.redis_errors import ErrorReply, Incomplete
from pushup.core.commands import (
    Close,
    Command,
    Configure,
    Continue,
    Create,
    Entry,
    Erase,
    Expire,
    Publish,
    Renew,
    Upgrade,
)
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.snapshot import empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from tests.core.builders import draft, publish
from tests.core.random_entries import random_commands
from tests.server.redis_server import RedisClient, RedisServer

pytestmark = pytest.mark.processes

LIMITS = Limits(retention_seconds=1e6, retention_messages=7, keys_limit=5)

STRANGE = (
    "0", "007", "1e3", "-1", "nan", "inf", "0x10", "", " ", "a b", "a\nb", "a\x00b", "'\"\\", "%s%d%%", "nil", "false",
    "{pushup}:5:state", "é", "e\u0301", "\u2028", "\N{GRINNING FACE}", "\U0010ffff", "\u202e", "x" * 255,
)  # fmt: skip


def entry_of(logged: LogEntry) -> Entry:
    """The entry, which is expected to be readable."""
    assert isinstance(logged.entry, Entry), logged.entry
    return logged.entry


class Blocking:
    """A connection to a real Redis that waits for each reply."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client

    def ask(self, *words: str | bytes | float, blocks: float = 0.0) -> Deferred[Any]:
        reply = self._reply(*words)
        return fail(reply) if isinstance(reply, Exception) else succeed(reply)

    def send(self, words: tuple[Any, ...], on_reply: Callable[[Any], None], *, blocks: float = 0.0) -> None:
        on_reply(self._reply(*words))

    def _reply(self, *words: Any) -> Any:
        reply = self.client.reply(*words)
        return ErrorReply(str(reply)) if isinstance(reply, hiredis.ReplyError) else reply


class Log:
    """The log of a node."""

    def __init__(self, connection: Any) -> None:
        self.log = RedisLog(connection, "pushup")
        self.now(self.log.prepare())

    def now(self, asked: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """The result; an error is returned as a value."""
        results: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(results.append)
        (result,) = results
        return result.value if isinstance(result, Failure) else result

    def append(self, command: Command, *, epoch: str = "e1", tag: str = "t") -> Any:
        replies: list[Any] = []
        self.log.append(epoch, tag, command, replies.append)
        (reply,) = replies
        return reply

    def begin(self, epoch: str = "e1") -> bool:
        begun: bool = self.now(self.log.begin("", empty_head(epoch, LIMITS)))
        return begun

    def tail(self) -> Tail:
        tail: Tail = self.now(self.log.tail())
        return tail

    def find(self, last: Cursor, tag: bytes) -> LastEntry:
        found: LastEntry = self.now(self.log.find(self.tail(), last, tag))
        return found

    def load(self) -> Loaded:
        loaded = self.now(self.log.load())
        assert isinstance(loaded, Loaded), loaded
        return loaded

    def entries(self, after: int = 0) -> list[LogEntry]:
        return list(self.now(self.log.read("e1", after)))

    def state(self) -> ReplicatedState:
        """The state of a node that loads it."""
        loaded = self.load()
        state = restore(loaded.snapshot)
        state.note_changes()
        for logged in loaded.entries:
            state.apply(entry_of(logged))
        state.check()
        return state

    def save(self, state: ReplicatedState, saved: int, tag: str = "t", keep_after: int = 0, **how: bool) -> Any:
        return self.now(self.log.save(saved, state.changes(saved), tag, keep_after=keep_after, **how))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[RedisClient]:
    with server.client() as client:
        client.ask("FLUSHALL")
        yield client


@pytest.fixture
def log(client: RedisClient) -> Log:
    return Log(Blocking(client))


def test_commands_survive_the_round_trip(log: Log) -> None:
    """All kinds of commands, any name, and data that looks like a number, byte for byte."""
    log.begin()
    commands: list[Command] = [
        *[publish(name, data=f'"{n}"') for n, name in enumerate(STRANGE)],
        *[publish("a", data=data) for data in ("1e400", "-0", "1.50", "12345678901234567890123", "null", '"\\u0000"')],
        publish("a", key="k\N{GRINNING FACE}"),
        Create("007", 1.5),
        Create(),
        Renew("a", 2.0),
        Close("é"),
        Expire(),
        Upgrade(2),
        Configure(Limits(retention_messages=5)),
    ]
    for n, command in enumerate(commands):
        assert log.append(command, tag=f"t{n}") == n + 1
    entries = log.load().entries
    assert [entry_of(logged).command for logged in entries] == commands
    assert [logged.tag for logged in entries] == [b"t%d" % n for n in range(len(commands))]
    assert [logged.after for logged in entries] == [b"e1", *[logged.tag for logged in entries[:-1]]]


def test_large_sequences_are_exact(log: Log, client: RedisClient) -> None:
    """Beyond 2**31 and 10**15 no sequence is rounded or written with an exponent."""
    log.begin()
    for start in (2**31 - 1, 10**15 - 1, 2**53 - 3):
        client.ask("HSET", "{pushup}:5:state", "sequence", start)
        assert log.append(publish("a")) == start + 1
        assert client.ask("HGET", "{pushup}:5:state", "sequence") == b"%d" % (start + 1)
        assert client.ask("XREVRANGE", "{pushup}:5:log", "+", "-", "COUNT", "1")[0][0] == b"%d-0" % (start + 1)


def test_time_never_goes_back(log: Log, client: RedisClient) -> None:
    """If the clock of Redis was ahead, entries keep the latest time until it has caught up."""
    log.begin()
    log.append(publish("a"), tag="a")
    seconds, microseconds = client.ask("TIME")
    now = int(seconds) + int(microseconds) / 1e6
    assert now - 5 < entry_of(log.entries()[0]).time <= now
    client.ask("HSET", "{pushup}:5:state", "time", f"{now + 1000:.6f}")
    for tag in "bc":
        log.append(publish("a"), tag=tag)
    times = [entry_of(logged).time for logged in log.entries()]
    assert times[1:] == [pytest.approx(now + 1000, abs=1e-5)] * 2
    log.state()


def test_nothing_is_appended_to_a_server_that_was_a_replica(tmp_path: Path) -> None:
    """Its history is another one, so it refuses the append of a node that has not connected since; data may be lost."""
    with (
        RedisServer(tmp_path / "1") as server,
        RedisServer(tmp_path / "2") as other,
        server.client() as client,
    ):
        log = Log(Blocking(client))
        log.begin()
        assert log.append(publish("a"), tag="t0") == 1
        client.ask("REPLICAOF", "127.0.0.1", other.port)
        reply = log.append(publish("a"), tag="t1")
        assert reply == 0 or isinstance(reply, ErrorReply)
        client.ask("REPLICAOF", "NO", "ONE")
        assert log.append(publish("a"), tag="t2") == 0
        assert isinstance(log.now(log.log.report("n", b"N", 100)), ErrorReply)
        before = log.log.run
        log.now(log.log.prepare())
        assert log.log.run != before
        assert isinstance(log.now(log.log.report("n", b"N", 100)), Report)


def test_nothing_is_appended_after_a_restart(tmp_path: Path) -> None:
    """Though the data is the same, and the epoch has the same name."""
    with RedisServer(tmp_path / "1", flags={"appendonly": "yes", "appendfsync": "always"}) as server:
        with server.client() as client:
            connection = Blocking(client)
            old = Log(connection)
            log = Log(Blocking(client))
            log.begin()
            assert log.append(publish("a"), tag="t0") == 1
        server.kill()
        server.start()
        with server.client() as client:
            log = Log(Blocking(client))
            assert log.tail() == Tail("e1", 1, b"t0", old.log.run, LATEST_VERSION, "e1", log.tail().founded)
            assert log.log.run != old.log.run
            connection.client = client  # as a node would that has not noticed
            assert old.append(publish("a"), tag="t1") == 0
            assert log.append(publish("a"), tag="t1") == 2


def test_the_epoch_goes_on_under_a_new_name(log: Log, client: RedisClient) -> None:
    """One entry, after which the old name is over; checkpoint, messages and keys stay, and vouchers go."""
    log.begin()
    log.append(publish("a", key="k"), tag="t0")
    assert log.save(log.state(), 0, "t0") is True
    log.now(log.log.report("n", b"N", 100))
    vouchers: Vouchers = log.now(log.log.vouch("n", ["n"]))
    assert vouchers.are_all
    assert log.now(log.log.switch(b"t0", "s", Continue("e2"), epoch="e2", run=log.log.run)) is True
    assert log.now(log.log.switch(b"t0", "z", Continue("e3"), epoch="e3", run="z")) is False
    assert log.tail() == Tail("e2", 2, b"s", log.log.run, LATEST_VERSION, "e1", log.tail().founded)
    assert client.ask("EXISTS", "{pushup}:5:vouchers") == 0
    assert log.append(publish("a"), tag="t1") == 0
    assert log.append(publish("b"), epoch="e2", tag="t2") == 3
    state = log.state()
    assert (str(state.cursor), state.message_count) == ("e2-3", 2)
    assert state.past_epochs.good_up_to("e1") == 1
    assert log.save(state, 1, "t2") is True
    assert log.state().snapshot() == state.snapshot()


def test_an_epoch_begins_with_its_run_and_version(log: Log, client: RedisClient) -> None:
    """Those of the node that begins it; what was vouched for before means nothing. So has it a cluster."""
    log.now(log.log.vouch("n", ["n"]))
    assert log.begin()
    assert log.tail() == Tail("e1", 0, b"e1", log.log.run, LATEST_VERSION, "e1", log.tail().founded)
    assert client.ask("EXISTS", "{pushup}:5:vouchers") == 0
    founded = log.tail().founded
    head = replace(empty_head("e2", LIMITS), version=1)
    assert log.now(log.log.begin("e1", head, cluster="c1")) is True
    assert (log.tail().version, log.tail().cluster) == (1, "c1")
    assert (log.load().tail, log.now(log.log.report("n", b"N", 100)).tail) == (log.tail(), log.tail())
    assert log.tail().founded == founded > 1e9
    head = replace(head, epoch="e3")
    assert log.now(log.log.begin("e2", head)) is True
    assert log.tail().founded > founded
    client.ask("DEL", "{pushup}:5:state")
    assert log.now(log.log.begin("", head, cluster="c1")) is True
    assert log.tail().founded == 0.0, "somewhere else"


def test_the_state_is_the_same_wherever_it_was_saved(log: Log) -> None:
    """With 100 channels, expiring messages, and channels that close, checkpoint and log give the same state."""
    log.begin()
    random = Random(1)
    names = tuple(f"c{n}" for n in range(95)) + STRANGE[5:10]
    commands = random_commands(random, names=names)
    state, saved = log.state(), 0
    assert log.append(Publish((draft(*names),)), tag="t0") == 1
    for n in range(1, 120):
        _, command = next(commands)
        log.append(command, tag=f"t{n}")
        if random.random() < 0.2:
            for logged in log.entries(state.cursor.sequence):
                state.apply(entry_of(logged))
            keep = random.choice((0, saved, 10**9))
            assert log.save(state, saved, f"t{n}", keep_after=keep) is True
            saved = state.cursor.sequence
            state.note_changes()
        if random.random() < 0.1:
            assert log.state().cursor.sequence == log.load().tail.sequence
    for logged in log.load().entries:
        if entry_of(logged).sequence > state.cursor.sequence:
            state.apply(entry_of(logged))
    assert log.state().snapshot() == state.snapshot()
    assert len(state.snapshot().channels) > 90


def test_the_log_is_trimmed_as_far_as_the_checkpoint_goes_and_no_further(log: Log) -> None:
    """Entries that a node may still need are kept, and entries that are not saved always are."""
    log.begin()
    for n in range(5):
        log.append(publish("a"), tag=f"t{n}")
    state = log.state()
    log.append(publish("a"), tag="t5")
    assert log.save(state, 0, "t4", keep_after=2) is True
    assert [entry_of(logged).sequence for logged in log.entries()] == [3, 4, 5, 6]
    assert [entry_of(logged).sequence for logged in log.load().entries] == [6]
    state.apply(entry_of(log.load().entries[0]))
    assert log.save(state, 5, "t5", keep_after=10**6) is True
    assert log.entries(0) == []
    assert log.append(publish("a"), tag="t6") == 7
    assert log.find(Cursor("e1", 6), b"t5") is LastEntry.CONTAINED
    assert log.find(Cursor("e1", 6), b"other") is LastEntry.MISSING
    assert log.find(Cursor("e1", 3), b"t2") is LastEntry.UNKNOWN


MARKER = b"the text that somebody wants gone"


def all_bytes(client: RedisClient) -> bytes:
    """Everything that Redis has, as it would write it to its own files."""
    client.ask("CONFIG", "SET", "rdbcompression", "no")
    return b"".join([client.ask("DUMP", key) for key in client.ask("KEYS", "*")])


def say(log: Log, client: RedisClient, text: bytes, count: int, size: int = 1) -> None:
    """Publish, and then so many others of this size."""
    log.append(publish("a", data=f'"{text.decode()}"'))
    for _ in range(count):
        log.append(publish("a", data=f'"{"x" * size}"'))


@pytest.mark.parametrize("count", [0, 5, 99])
def test_what_was_erased_is_in_no_byte_of_redis(log: Log, client: RedisClient, count: int) -> None:
    """Trimming alone leaves it in the stream: other entries are in the same block."""
    client.ask("CONFIG", "SET", "stream-node-max-bytes", 1_000_000)
    log.begin()
    say(log, client, b"before", 2)
    say(log, client, MARKER, 0)
    log.append(Erase("message", cursor=Cursor("e1", 4)))
    for n in range(count):
        log.append(publish("a", data=str(n)))
    state = log.state()
    assert log.save(state, 0, keep_after=5) is True
    assert count == 0 or MARKER in all_bytes(client)
    entries = log.entries()
    assert log.save(state, state.cursor.sequence, keep_after=5, sweeps=True) is True
    assert MARKER not in all_bytes(client)
    assert log.entries() == entries
    assert log.state().snapshot() == state.snapshot()
    assert log.append(publish("a")) == 6 + count
    assert log.tail().sequence == 6 + count


@pytest.mark.parametrize(("count", "size"), [(101, 1), (3, 30_000)])
def test_a_long_rest_of_the_log_is_not_copied(log: Log, client: RedisClient, count: int, size: int) -> None:
    """It begins another block, and the first goes as a whole with what comes."""
    client.ask("CONFIG", "SET", "stream-node-max-bytes", 4096)
    log.begin()
    say(log, client, MARKER, count, size)
    state = log.state()
    assert log.save(state, 0, keep_after=1, sweeps=True) is False
    assert len(log.entries()) == min(count, 128)
    last = state.cursor.sequence
    assert log.save(state, last, keep_after=last - 2, sweeps=True) is True
    assert MARKER not in client.ask("DUMP", "{pushup}:5:log")
    assert len(log.entries()) == 2


def test_data_that_the_state_has_dropped_is_deleted(log: Log, client: RedisClient) -> None:
    """Old messages and keys and forgotten channels are deleted; the rest is exactly the state."""
    log.begin()
    limits = Limits(retention_seconds=8.0, retention_messages=3, keys_limit=2, channel_ttl_seconds=4.0)
    state = ReplicatedState(limits, epoch="e1")
    state.note_changes()
    for n in range(30):
        state.apply(Entry("e1", n + 1, 1000.0 + n, publish(f"c{n}", "all", key=f"k{n}")))
        assert log.save(state, n) is True
        state.note_changes()
        rows = {row.key.encode() for row in state.rows(state.names())}
        assert set(client.ask("HKEYS", "{pushup}:5:rows")) == rows
        queue_again = restore(log.load().snapshot)
        assert queue_again.snapshot() == state.snapshot()
    assert len(rows) < 30


@pytest.mark.parametrize("words", [("DEL", "{pushup}:5:rows"), ("HDEL", "{pushup}:5:rows", "messages/1")])
def test_a_missing_part_of_the_checkpoint_is_noticed(log: Log, client: RedisClient, words: tuple[str, ...]) -> None:
    """By a node that loads it and by one that saves, even if the key exists again."""
    log.begin()
    log.append(publish("a", key="k"), tag="t0")
    state = log.state()
    assert log.save(state, 0, "t0") is True
    assert log.load().complete
    client.ask(*words)
    assert not log.load().complete
    log.append(publish("b", "c", key="l"), tag="t1")
    state.apply(entry_of(log.load().entries[0]))
    assert isinstance(log.save(state, 1, "t1"), Incomplete)
    assert log.load().saved.head.sequence == 1


def test_a_node_is_listed_until_its_lease_ends(log: Log, client: RedisClient) -> None:
    """A node that leaves is gone at once; one whose lease has ended goes with the next report."""
    log.begin("e5")

    def report(node: str, member: bytes, lease: float) -> list[bytes]:
        received = log.now(log.log.report(node, member, lease))
        assert (received.tail.epoch, received.tail.sequence, received.tail.tag, received.saved) == ("e5", 0, b"e5", 0)
        return sorted(received.members)

    assert report("a", b"A", 100) == [b"A"]
    assert report("b", b"B", 100) == [b"A", b"B"]
    assert report("a", b"A2", 100) == [b"A2", b"B"]
    assert report("b", b"", 0) == [b"A2"]
    assert report("c", b"C", 100) == [b"A2", b"C"]
    client.ask("ZADD", "{pushup}:5:leases", "1", "a")
    assert report("c", b"C", 100) == [b"C"]
    assert client.ask("HKEYS", "{pushup}:5:members") == [b"c"]
    client.ask("DEL", "{pushup}:5:leases")
    assert report("d", b"D", 100) == [b"D"]


def test_leases_from_before_the_clock_was_set_back_end_together(log: Log, client: RedisClient) -> None:
    """With that of the first node that reports then. A node that leaves changes none."""
    log.begin("e5")
    for name, lease in (("leaves", 100), ("short", 1000), ("dead", 3600)):
        log.now(log.log.report(name, name.encode(), lease))
    log.now(log.log.report("leaves", b"", 0))

    def remaining() -> list[int]:
        now = int(client.ask("TIME")[0])
        flat = client.ask("ZRANGE", "{pushup}:5:leases", "0", "-1", "WITHSCORES")
        return [round((float(end) - now) / 100) for end in flat[1::2]]

    assert remaining() == [10, 36]
    assert len(log.now(log.log.report("living", b"living", 2000)).members) == 3
    assert remaining() == [20, 20, 20]


def test_a_log_is_given_to_another_cluster_when_all_leases_have_ended(log: Log, client: RedisClient) -> None:
    """One that no node can have by the present clock does not count."""
    log.begin()
    now = int(client.ask("TIME")[0])
    client.ask("ZADD", "{pushup}:5:leases", now + 3, "living", now + 3600, "dead")
    assert log.now(log.log.new_cluster("c1")) is None
    client.ask("ZREM", "{pushup}:5:leases", "living")
    assert log.now(log.log.new_cluster("c1")) == "e1"
    assert log.tail().cluster == "c1"


def test_vouchers_end(log: Log, client: RedisClient) -> None:
    """Soon after the first: nodes that still wait vouch again."""
    log.begin()
    for node in "ab":
        log.now(log.log.vouch(node, [node]))
        assert 0 < client.ask("TTL", "{pushup}:5:vouchers") <= 6
        client.ask("EXPIRE", "{pushup}:5:vouchers", 3600)


def test_a_report_says_the_time_that_an_entry_would_get(log: Log) -> None:
    """It is of the same clock as the times of the entries before and after it."""
    log.begin()
    log.append(publish("a"), tag="t1")
    reported = log.now(log.log.report("a", b"A", 100)).time
    log.append(publish("a"), tag="t2")
    first, second = (entry_of(logged).time for logged in log.entries())
    assert 1e9 < first <= reported <= second


def test_a_list_of_nodes_that_may_be_incomplete_says_so(log: Log, client: RedisClient) -> None:
    """After the first report of a node, or one after its lease was lost, and while the report of a node is missing."""
    log.begin()
    last = {"a": 0.0, "b": 0.0}

    def complete(node: str, *, reply_is_lost: bool = False) -> bool:
        received = log.now(log.log.report(node, node.encode(), 100, last=last[node]))
        assert isinstance(received, Report), received
        if not reply_is_lost:
            last[node] = received.time
        return received.complete

    assert [complete(node) for node in "abab"] == [False, False, True, True]
    client.ask("ZADD", "{pushup}:5:leases", "1", "a")
    assert [complete(node) for node in "baba"] == [True, False, True, True]
    client.ask("ZADD", "{pushup}:5:leases", "101", "a")
    last["a"] = 1.0
    assert [complete(node) for node in "aab"] == [False, True, True], "its own lease has ended, and is still there"
    client.ask("DEL", "{pushup}:5:leases")
    assert not complete("a", reply_is_lost=True)
    assert [complete(node) for node in "aab"] == [False, True, False], "it does not know what its last report found"
    assert complete("b")
    client.ask("ZINCRBY", "{pushup}:5:leases", "-0.3", "a")
    assert [complete(node) for node in "aab"] == [False, True, True], "its lease is another one"
    for later in "ba":
        client.ask("ZINCRBY", "{pushup}:5:leases", "50", later)
        assert [complete(node) for node in "aabab"] == [False, True, False, True, True], "the clock was set back"
    client.ask("DEL", "{pushup}:5:leases")
    assert [complete(node) for node in "abab"] == [False, False, True, True]
    client.ask("DEL", "{pushup}:5:members")
    assert [complete(node) for node in "aabab"] == [False, False, True, True, True]


def test_the_number_of_replicas_comes_with_the_end_of_the_log(log: Log, client: RedisClient) -> None:
    """A Redis that cannot be written to is not asked for its replicas."""
    log.begin()
    log.append(publish("a"), tag="t")
    end, replicas = log.now(log.log.replicas(0.01))
    assert ((end.epoch, end.sequence, end.tag), replicas) == (("e1", 1, b"t"), 0)
    assert end == log.tail()
    waited = client.ask("INFO", "commandstats").count(b"cmdstat_wait:calls=1,")
    client.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        assert str(log.now(log.log.replicas(0.01))).startswith("OOM")
    finally:
        client.ask("CONFIG", "SET", "maxmemory", "0")
    assert waited == client.ask("INFO", "commandstats").count(b"cmdstat_wait:calls=1,") == 1


def test_a_full_redis_refuses_commands_but_accepts_reports(log: Log, client: RedisClient) -> None:
    """A command that needs memory is refused completely; reports, and checkpoints, which free memory, are accepted."""
    log.begin()
    for n in range(3):
        log.append(publish("a", data=str(n)), tag=f"t{n}")
    state = log.state()
    before = log.load()
    client.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        assert str(log.append(publish("a"), tag="t3")).startswith("OOM")
        assert log.load() == before
        assert log.now(log.log.report("a", b"A", 100.0)).members == [b"A"]
        assert log.save(state, 0, "t2", keep_after=10**6) is True
        assert log.entries() == []
    finally:
        client.ask("CONFIG", "SET", "maxmemory", "0")
    assert log.append(publish("a"), tag="t3") == 4
    assert log.state().message_count == 4


def test_the_properties_of_redis_are_read_on_connecting(log: Log, client: RedisClient) -> None:
    """Its run, and whether acknowledged writes survive it, as with an append-only file that is always synced."""
    info = dict(line.split(":", 1) for line in client.ask("INFO").decode().splitlines() if ":" in line)
    assert log.log.run == f"{info['run_id']}.{info['master_replid']}"
    assert not log.log.syncs_each_write
    try:
        for appendonly, appendfsync, durable in (
            ("yes", "everysec", False),
            ("yes", "always", True),
            ("no", "always", False),
        ):
            client.ask("CONFIG", "SET", "appendonly", appendonly, "appendfsync", appendfsync)
            log.now(log.log.prepare())
            assert log.log.syncs_each_write is durable
    finally:
        client.ask("CONFIG", "SET", "appendonly", "no", "appendfsync", "everysec")


def test_an_empty_redis(log: Log, client: RedisClient) -> None:
    """There is no checkpoint, no end of the log and no node; asking changes nothing, and nothing is appended."""
    assert log.now(log.log.load()) is None
    tail = log.now(log.log.tail())
    assert (tail.epoch, tail.sequence, tail.tag) == ("", 0, b"")
    assert tail.run == ""
    assert log.find(Cursor("e1", 1), b"t") is LastEntry.UNKNOWN
    assert log.append(publish("a")) == 0
    assert client.ask("KEYS", "*") == []


def test_wrong_types_and_missing_scripts_are_errors(log: Log, client: RedisClient) -> None:
    """A key of another type, or scripts that Redis has forgotten, are reported as errors."""
    log.begin()
    client.ask("SCRIPT", "FLUSH")
    assert str(log.append(publish("a"))).startswith("NOSCRIPT")
    log.now(log.log.prepare())
    assert log.append(publish("a")) == 1
    client.ask("DEL", "{pushup}:5:log")
    client.ask("SET", "{pushup}:5:log", "x")
    assert isinstance(log.append(publish("a")), ErrorReply)
    assert log.now(log.log.tail()).sequence == 1
