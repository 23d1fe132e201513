"""The scripts in a real Redis: they behave like the in-memory ones; and what only a real Redis can show."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import hiredis
import pytest
from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
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
from pushup.core.state_transfer import head_of_new_epoch, restore, rows_of_new_epoch
from tests.broadcast.redis.fake_redis import FakeRedis, Stream
from tests.core.builders import draft, publish
from tests.core.random_entries import NAMES, random_commands
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
    """A log in a real or in-memory Redis with the same interface; `settle` does whatever a reply needs."""

    def __init__(self, connection: Any, settle: Callable[[], None] = lambda: None) -> None:
        self.log = RedisLog(connection, "pushup")
        self._settle = settle
        self.now(self.log.prepare())

    def now(self, asked: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """The result; an error is returned as a value."""
        results: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(results.append)
        self._settle()
        (result,) = results
        return result.value if isinstance(result, Failure) else result

    def append(self, command: Command, *, epoch: str = "e1", tag: str = "t") -> Any:
        replies: list[Any] = []
        self.log.append(epoch, tag, command, replies.append)
        self._settle()
        (reply,) = replies
        return reply

    def begin(self, epoch: str = "e1", over: str = "") -> bool:
        begun: bool = self.now(self.log.begin(over, empty_head(epoch, LIMITS)))
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

    def entries(self, after: int = 0, epoch: str = "e1") -> list[LogEntry]:
        return list(self.now(self.log.read(epoch, after)))

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


@pytest.fixture
def fake() -> FakeRedis:
    clock = Clock()
    clock.advance(1e9)
    return FakeRedis(clock)


# The in-memory Redis, on which many tests rely, behaves like a real one.


class Pair:
    """The same operations on both; the results must be equal except for times."""

    def __init__(self, real: Log, fake: Log, redis: FakeRedis, random: Random) -> None:
        self.real = real
        self.redis = redis
        self.fake = fake
        self.random = random
        self.commands = random_commands(random, names=(*NAMES, *STRANGE[4:]))
        self.tags = 0
        self.names = 1
        self.epoch = "e1"
        self.seen: dict[str, int] = {}

    def both(self, what: str, ask: Callable[[Log], Any]) -> Any:
        result, expected = (_without_times(ask(log)) for log in (self.real, self.fake))
        if isinstance(expected, Exception):
            assert type(result) is type(expected), what
        else:
            assert result == expected, what
        name = expected.name if isinstance(expected, LastEntry) else f"{type(expected).__name__} {bool(expected)}"
        self.seen[f"{what} {name}"] = 1
        return expected

    def new_name(self) -> str:
        """A name that no attempt has used."""
        self.names += 1
        return f"e{self.names}"

    def step(self) -> None:
        random = self.random
        kind = random.choice(("append", "append", "append", "append", "save", "load", "report", "place", "odd"))
        if kind == "append":
            self.append()
        elif kind == "save":
            self.save()
        elif kind == "load":
            self.both("load", lambda log: log.now(log.log.load()))
            self.both("tail", lambda log: log.now(log.log.tail()))
        elif kind == "report":
            node, member = random.choice("abc"), random.choice((b"", b'{"n":1}', b"x"))
            lease = random.choice((1000.0, 2000.0, -1.0))
            self.both("report", lambda log: _sorted(log.now(log.log.report(node, member, lease))))
        elif kind == "place":
            self.look()
        else:
            self.do_odd()

    def append(self) -> None:
        self.tags += 1
        _, command = next(self.commands)
        tag, epoch = f"t{self.tags}", self.random.choice((self.epoch,) * 9 + ("e0",))
        self.both("append", lambda log: log.append(command, epoch=epoch, tag=tag))

    def save(self) -> None:
        """Save as a node that has the whole log, that is late, or that is in another epoch."""
        loaded = self.fake.now(self.fake.log.load())
        if not isinstance(loaded, Loaded):
            return
        random, state = self.random, restore(loaded.snapshot)
        state.note_changes()
        tag = loaded.saved.tag
        for logged in loaded.entries[: random.choice((None, 3))]:
            if entry_of(logged).sequence != state.cursor.sequence + 1:
                break
            state.apply(entry_of(logged))
            tag = logged.tag.decode()
        changes = state.changes()
        saved = random.choice((loaded.saved.head.sequence,) * 5 + (loaded.saved.head.sequence + 1,))
        if random.random() < 0.1:
            changes = replace(changes, head=replace(changes.head, epoch="e0"))
        if changes.head.sequence > loaded.saved.head.sequence:
            keep = random.choice((0, saved, changes.head.sequence + 9))
            sweeps = keep > saved
            self.both("save", lambda log: log.now(log.log.save(saved, changes, tag, keep_after=keep, sweeps=sweeps)))

    def look(self) -> None:
        tail = self.fake.now(self.fake.log.tail())
        sequence = self.random.randrange(tail.sequence + 3)
        tag = self.random.choice((tail.tag, f"t{self.random.randrange(self.tags + 1)}".encode()))
        epoch = self.random.choice((self.epoch, self.epoch, "e0", "e99"))
        self.both("find", lambda log: log.find(Cursor(epoch, sequence), tag))
        log = self.redis.data.get(b"{pushup}:5:log", Stream())
        if log.rows and log.rows[-1][0] > sequence:
            self.both("read", lambda log: log.entries(sequence, self.epoch))

    def do_odd(self) -> None:
        random = self.random
        if random.random() < 0.5:
            over = random.choice((self.epoch, self.epoch, "e0", ""))
            state = ReplicatedState(LIMITS, epoch="e")
            for n, name in enumerate(random.sample(STRANGE, 4)):
                state.apply(Entry("e", n + 1, 1e9 + n, Create(name)))
            new = self.new_name()
            head, rows = head_of_new_epoch(new, state), list(rows_of_new_epoch(state))
            if self.both("begin", lambda log: log.now(log.log.begin(over, head, rows))):
                self.epoch = new
        elif random.random() < 0.5:
            key = "{pushup}:5:" + random.choice(("log", "rows", "leases", "members", "state"))
            self.both("del", lambda log: bool(log.now(_ask(log, "DEL", key))))
            if key == "{pushup}:5:state":
                self.epoch = self.new_name()
                assert self.both("begin anew", lambda log: log.begin(self.epoch))
        else:
            self.agree()

    def agree(self) -> None:
        """Vouch, or go on under a new name, or change something else by an entry."""
        random = self.random
        node, known = random.choice("ab"), random.choice((None, [], ["a"], ["a", "b"]))
        self.both("vouch", lambda log: log.now(log.log.vouch(node, known)))
        tail = self.fake.tail()
        if not tail.epoch or random.random() < 0.5:
            return
        self.tags += 1
        tag, after = f"t{self.tags}", random.choice((tail.tag, tail.tag, b"another"))
        if random.random() < 0.5:
            epoch = self.new_name()
            switch = partial(RedisLog.switch, after=after, tag=tag, command=Continue(epoch), epoch=epoch, run="r2")
            if self.both("switch", lambda log: log.now(switch(log.log))):
                self.epoch = epoch
        else:
            upgrade = partial(
                RedisLog.switch, after=after, tag=tag, command=Upgrade(LATEST_VERSION), version=str(LATEST_VERSION)
            )
            self.both("switch", lambda log: log.now(upgrade(log.log)))


async def _ask(log: Log, *words: str) -> Any:
    return await log.log.connection.ask(*words)


def _sorted(report: Any) -> Any:
    return replace(report, members=sorted(report.members)) if isinstance(report, Report) else report


def _without_times(value: Any) -> Any:
    if isinstance(value, Tail):
        return replace(value, founded=0.0)
    if isinstance(value, LogEntry):
        return replace(value, entry=replace(entry_of(value), time=0.0))
    if isinstance(value, Loaded):
        return (
            replace(
                value, tail=_without_times(value.tail), entries=_without_times(value.entries), saved=None, snapshot=None
            ),
            (value.saved.head.sequence, value.saved.tag),
            sorted((c.name, c.id) for c in value.snapshot.channels),
            [(m.sequence, bytes(m.data)) for m in value.snapshot.messages],
            list(value.snapshot.tables["keys"].in_order()),
        )
    if isinstance(value, Report):
        return replace(value, tail=_without_times(value.tail), time=0.0)
    return [_without_times(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_the_in_memory_redis_behaves_like_a_real_one(log: Log, fake: FakeRedis, client: RedisClient, seed: int) -> None:
    """Any sequence of operations has the same results on both, and leaves the same data."""
    link = fake.link()
    fake.run, _, fake.info["master_replid"] = log.log.run.partition(".")
    pair = Pair(log, Log(link.connection, fake.settle), fake, Random(seed))
    assert pair.both("begin", lambda log: log.begin())
    for _ in range(800):
        pair.step()
    for what in ("append int True", "append int False",
                 "save bool True", "save bool False", "save Incomplete True",
                 "begin bool True", "begin bool False", "find CONTAINED", "find UNKNOWN", "find MISSING",
                 "read list True", "load tuple True", "report Report True",
                 "switch bool True", "switch bool False", "vouch Vouchers True"):  # fmt: skip
        assert what in pair.seen, f"never seen: {what}"
    for key, value in fake.data.items():
        if isinstance(value, Stream):
            rows = client.ask("XRANGE", key, "-", "+")
            assert [id for id, _ in rows] == [b"%d-0" % number for number, _ in value.rows]  # noqa: A001
        elif isinstance(value, bytes):
            assert client.ask("GET", key) == value
        elif key not in (b"{pushup}:5:leases", b"{pushup}:5:state"):
            flat = client.ask("HGETALL", key)
            assert dict(zip(flat[::2], flat[1::2], strict=True)) == value


# What only a real Redis can show.


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


def test_a_publication_takes_a_sequence_for_each_message(log: Log) -> None:
    """The reply has the last one, the entry starts with the first, and the next entry follows the last."""
    log.begin()
    command = Publish(tuple(draft(f"c{n}", data=str(n)) for n in range(1000)))
    assert log.append(publish("a"), tag="a") == 1
    assert log.append(command, tag="b") == 1001
    assert log.append(publish("a"), tag="c") == 1002
    assert [entry_of(logged).sequence for logged in log.entries()] == [1, 2, 1002]
    assert entry_of(log.entries()[1]).command == command
    assert log.state().message_count == 1002


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


def test_a_log_in_another_epoch_accepts_nothing(log: Log, client: RedisClient) -> None:
    """It accepts no command, no checkpoint and no new epoch, and is not changed."""
    assert log.append(publish("a")) == 0
    assert client.ask("KEYS", "*") == []
    assert log.begin("e1")
    state = log.state()
    state.apply(Entry("e1", 1, 1e9, publish("a")))
    stored = client.ask("HGETALL", "{pushup}:5:state")
    assert not log.begin("e2")
    assert not log.begin("e2", over="e0")
    assert log.append(publish("a"), epoch="e2") == 0
    assert log.begin("e2", over="e1")
    assert log.save(state, 0) is False
    assert log.load().tail.epoch == "e2"
    assert client.ask("HGETALL", "{pushup}:5:state") != stored
    assert sorted(client.ask("KEYS", "*")) == [b"{pushup}:5:state", b"{pushup}:state"]


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
        before = log.log.run
        log.now(log.log.prepare())
        assert log.log.run != before


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


def test_of_two_nodes_that_save_one_succeeds(log: Log) -> None:
    """The other is told so and changes nothing; afterwards it can save on top of the first."""
    log.begin()
    for n in range(6):
        log.append(publish("a", "b", data=str(n), key=f"k{n}"), tag=f"t{n}")
    first, second = log.state(), log.state()
    assert log.save(first, 0, "t5") is True
    after = log.load()
    assert log.save(second, 0, "t5") is False
    assert log.load() == after
    log.append(publish("c"), tag="t6")
    second.apply(entry_of(log.load().entries[0]))
    assert log.save(second, 6, "t6") is True
    assert log.state().snapshot() == second.snapshot()


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


def test_time_does_not_go_back_in_a_new_epoch(log: Log) -> None:
    """A new epoch starts at the time of the previous one."""
    state = ReplicatedState(LIMITS, epoch="e0")
    state.apply(Entry("e0", 1, 4e9, Create("c")))
    assert log.now(log.log.begin("", head_of_new_epoch("e1", state))) is True
    assert log.append(publish("a"), tag="t") == 2
    assert [entry_of(logged).time for logged in log.entries()] == [4e9]
    assert log.state().message_count == 1


def test_entries_that_are_not_saved_are_never_trimmed(log: Log) -> None:
    """However far the log was meant to be trimmed."""
    log.begin()
    log.append(publish("a"), tag="t0")
    state = log.state()
    log.append(publish("a"), tag="t1")
    assert log.save(state, 0, "t0", keep_after=10**6) is True
    assert [entry_of(logged).sequence for logged in log.entries()] == [2]


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


def test_a_lease_from_before_the_clock_was_set_back_ends_no_later_than_others(log: Log, client: RedisClient) -> None:
    """Those that end sooner stay as they are, and a node that leaves changes none."""
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
    assert remaining() == [10, 20, 20]


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

    def complete(node: str) -> bool:
        received = log.now(log.log.report(node, node.encode(), 100))
        assert isinstance(received, Report), received
        return received.complete

    assert [complete(node) for node in "abab"] == [False, False, True, True]
    client.ask("ZADD", "{pushup}:5:leases", "1", "a")
    assert [complete(node) for node in "baba"] == [True, False, True, True]
    client.ask("ZADD", "{pushup}:5:leases", "1", "a")
    assert [complete(node) for node in "aab"] == [False, True, True], "its own lease has ended, and is still there"
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
    """There is no checkpoint, no end of the log and no node, and asking changes nothing."""
    assert log.now(log.log.load()) is None
    tail = log.now(log.log.tail())
    assert (tail.epoch, tail.sequence, tail.tag) == ("", 0, b"")
    assert tail.run == ""
    assert log.find(Cursor("e1", 1), b"t") is LastEntry.UNKNOWN
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
