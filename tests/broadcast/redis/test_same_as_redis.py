"""The in-memory Redis does what a real one does: the same commands and scripts, with the same replies and data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from random import Random
from typing import Any

import hiredis
import pytest
from twisted.internet.task import Clock

from pushup.broadcast.redis.scripts import SCRIPTS
from tests.broadcast.redis.commands import SortedSet, Stream
from tests.broadcast.redis.fake_redis import FakeRedis
from tests.server.redis_server import RedisClient, RedisServer

pytestmark = pytest.mark.processes

SEEDS = 5
STEPS = 2000
MARK = files("pushup.broadcast.redis").joinpath("mark.lua").read_bytes()
NAMES = ("append", "begin", "save", "load", "report", "switch", "vouch")
STATE, LOG, ROWS, LOADS, LEASES, MEMBERS, VOUCHERS, NEW, FORMAT = (
    b"{p}:" + name for name in b"state log rows loads leases members vouchers begin:e format".split()
)
HASHES, STREAMS, SETS = (STATE, ROWS, MEMBERS, VOUCHERS, NEW), (LOG,), (LOADS, LEASES)
EVERY = (*HASHES, *STREAMS, *SETS)
DENIALS = {"OOM": ("maxmemory", "1"), "NOREPLICAS": ("min-replicas-to-write", "1")}
WITHOUT_ORDER = (b"HKEYS", b"HGETALL", b"HSCAN")
BOUNDS = (b"-inf", b"+inf", b"5", b"(5", b"1e3", b"x")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server, server.client() as client:
        yield client


class Pair:
    """A real and an in-memory Redis, and random commands for both."""

    def __init__(self, client: RedisClient, random: Random, seen: Counter[str]) -> None:
        self.client = client
        self.random = random
        self.fake = FakeRedis(Clock())
        info = dict(line.split(b":", 1) for line in client.ask("INFO", "replication").splitlines() if b":" in line)
        self.fake.info["master_replid"] = info[b"master_replid"].decode()
        self.history = info[b"master_replid"]
        self.denial = ""
        self.seen = seen
        for script in SCRIPTS:
            self.both([b"SCRIPT", b"LOAD", script.text])

    def both(self, words: list[bytes], what: str = "") -> None:
        """Carry out a command on both. Their clocks agree to a second."""
        seconds, microseconds = self.client.ask("TIME")
        self.fake.clock.rightNow = int(seconds) + int(microseconds) / 1e6
        given, expected = self.fake.execute(words), self.client.reply(*words)
        what = what or words[0].decode()
        if isinstance(expected, hiredis.ReplyError):
            assert isinstance(given, Exception), (words, given, expected)
            assert str(given).split()[0] == str(expected).split()[0], (words, given, expected)
            self.seen[f"{what} {str(expected).split()[0]}"] += 1
            return
        is_set = words[0] in WITHOUT_ORDER or what == "vouch"
        assert self.plain(given, is_set) == self.plain(expected, is_set), (words, given, expected)
        self.seen[f"{what} {expected if what == 'save' else bool(expected)}"] += 1

    def plain(self, value: Any, is_set: bool = False) -> Any:
        """A reply in which a time is only a time, and what Redis does not order is ordered."""
        if isinstance(value, list):
            items = [self.plain(each, is_set) for each in value]
            return sorted(items, key=repr) if is_set else items
        if isinstance(value, bytes) and re.fullmatch(rb"\d{10}(\.\d+)?", value):
            later = round(float(value) - self.fake.now())
            return f"in {round(later, -1)} s"
        return value

    def step(self) -> None:
        random = self.random
        if random.random() < 0.02:
            self.deny(random.choice(("", "", *DENIALS)))
        elif random.random() < 0.005:
            self.both([b"FLUSHALL"])
        elif random.random() < 0.02:
            self.both([random.choice((b"DEL", b"UNLINK")), random.choice(EVERY)])
        elif random.random() < 0.01:
            self.both([b"SET", random.choice(EVERY), b"odd"])
        elif random.random() < 0.02:
            self.both([b"HSET", STATE, b"sequence", self.number(99), b"time", self.number(99), b"saved", b"0"])
        elif random.random() < 0.4:
            self.both(self.command())
        else:
            self.script(random.choice((*NAMES, "append", "report", "save", "mark")))

    def deny(self, what: str) -> None:
        for name, (setting, value) in DENIALS.items():
            self.client.ask("CONFIG", "SET", setting, value if name == what else "0")
        self.fake.denies = f"{what} as it is" if what else ""

    def number(self, most: int = 12) -> bytes:
        return b"%d" % self.random.randrange(most)

    def command(self) -> list[bytes]:
        random, name = self.random, self.random.choice((b"a", b"b", b"c", b"sequence", b"time", b"saved"))
        hash_, stream, set_ = random.choice(HASHES), random.choice(STREAMS), random.choice(SETS)
        if random.random() < 0.05:  # of another type
            hash_, stream, set_ = stream, set_, hash_
        number = self.number()
        return random.choice(
            (
                [b"HSET", hash_, name, number],
                [b"HDEL", hash_, name, b"b"],
                [b"HGET", hash_, name],
                [b"HMGET", hash_, name, b"none"],
                [b"HINCRBY", hash_, name, b"1"],
                [b"HLEN", hash_],
                [b"HKEYS", hash_],
                [b"HGETALL", hash_],
                [b"HSCAN", hash_, b"0", b"COUNT", b"100"],
                [b"ZADD", set_, number, name],
                [b"ZADD", set_, b"odd", name],
                [b"ZREM", set_, name],
                [b"ZSCORE", set_, name],
                [b"ZRANGE", set_, b"0", b"-1"],
                [b"ZRANGEBYSCORE", set_, random.choice(BOUNDS), random.choice(BOUNDS)],
                [b"ZREMRANGEBYSCORE", set_, b"-inf", random.choice(BOUNDS)],
                [b"ZCOUNT", set_, random.choice(BOUNDS), b"+inf"],
                [b"XADD", stream, self.number(40) + b"-0", b"body", number],
                [b"XTRIM", stream, b"MINID", number],
                [b"XLEN", stream],
                [b"XRANGE", stream, random.choice((b"-", number + b"-0", b"(%s-0" % number)), b"+", b"COUNT", b"3"],
                [b"XREVRANGE", stream, random.choice((b"+", number + b"-0")), b"-", b"COUNT", b"3"],
                [b"XREAD", b"COUNT", b"3", b"BLOCK", b"1", b"STREAMS", stream, self.number(40) + b"-0"],
                [b"RENAME", random.choice(HASHES), random.choice(HASHES)],
                [b"EXPIRE", random.choice(EVERY), b"1000"],
                [b"PERSIST", random.choice(EVERY)],
                [b"EXISTS", random.choice(EVERY)],
            )
        )

    def script(self, name: str) -> None:
        if name == "mark":
            self.both([b"EVAL", MARK, b"1", STATE], name)
            return
        keys, arguments = getattr(self, name)()
        sha = SCRIPTS[NAMES.index(name)].sha.encode()
        self.both([b"EVALSHA", sha, b"%d" % len(keys), *keys, *arguments], name)

    def state(self, name: bytes) -> bytes:
        """A field of the state, or something else."""
        state = self.fake.data.get(STATE)
        value = state.get(name) if isinstance(state, dict) else None
        return value if value is not None and self.random.random() < 0.9 else self.number()

    def append(self) -> tuple[list[bytes], list[bytes]]:
        history = self.run_or_another()
        width = self.random.choice((b"1", b"3", b"1000"))
        return [STATE, LOG], [self.state(b"epoch"), self.number(999), width, b"{}", history]

    def begin(self) -> tuple[list[bytes], list[bytes]]:
        count = len(self.fake.data.get(NEW, b"")) if self.random.random() < 0.8 else 1
        over = self.state(b"epoch") if STATE in self.fake.data else b""
        time = b"%.6f" % (self.fake.now() + self.random.choice((-100, 5000)))
        epoch, sequence = b"e" + self.number(), self.state(b"sequence")
        checkpoint = b'{"sequence":%b}' % sequence
        after = self.random.choice((b"", b"", self.state(b"tag")))
        arguments = [over, epoch, time, b"run", b"2", checkpoint, b"%d" % count, epoch, sequence, b"2", after]
        return [STATE, LOG, ROWS, VOUCHERS, NEW, FORMAT], arguments

    def save(self) -> tuple[list[bytes], list[bytes]]:
        random, sequence = self.random, self.state(b"sequence")
        changed = [word for name in random.sample((b"a", b"b", b"c"), random.randrange(3)) for word in (name, b"body")]
        checkpoint = b'{"sequence":%b}' % sequence
        head = [self.state(b"epoch"), self.state(b"saved"), sequence, checkpoint, self.number(40)]
        forgotten = random.choice(([], [b"a"], [b"b", b"none"]))
        sweeps = random.choice((b"0", b"1"))
        arguments = [*head, sweeps, b"%d" % (len(changed) // 2), *changed, *forgotten]
        return [STATE, LOG, ROWS, LOADS], arguments

    def load(self) -> tuple[list[bytes], list[bytes]]:
        lease = self.random.choice((b"30.0", b"1000", b"0", b"-1", b"0.0"))
        return [STATE, ROWS, LOADS], [self.random.choice((b"m", b"n")), lease]

    def report(self) -> tuple[list[bytes], list[bytes]]:
        member, lease = self.random.choice((b"", b"M", b"N")), self.random.choice((b"1000.0", b"2000", b"-1", b"0"))
        node = self.random.choice((b"l", b"m", b"n"))
        return [STATE, LEASES, MEMBERS, FORMAT, LOADS], [node, member, lease, b"0", b"2", b"0", self.run_or_another()]

    def run_or_another(self) -> bytes:
        """The replication id of Redis, or that of another run."""
        return self.history if self.random.random() < 0.9 else b"another"

    def switch(self) -> tuple[list[bytes], list[bytes]]:
        fields = self.random.choice(([b"epoch", b"e" + self.number(), b"run", b"r"], [b"version", b"2"]))
        return [STATE, LOG, VOUCHERS], [self.state(b"tag"), b"s" + self.number(999), b"{}", *fields]

    def vouch(self) -> tuple[list[bytes], list[bytes]]:
        node, voucher = self.random.choice((b"m", b"n")), self.random.choice((b"", b"{}"))
        return [STATE, MEMBERS, VOUCHERS], [node, voucher, self.run_or_another()]

    def check_data(self) -> None:
        """All keys are of the same type, with the same contents, and expire or not."""
        fake = self.fake
        fake.carry_out([b"PING"])
        assert set(self.client.ask("KEYS", "*")) == set(fake.data)
        for key, value in fake.data.items():
            assert (self.client.ask("TTL", key) > 0) == (key in fake.data.expires), key
            match value:
                case Stream():
                    found, wanted = self.client.ask("XRANGE", key, "-", "+"), fake.execute([b"XRANGE", key, b"-", b"+"])
                case SortedSet():
                    found = self.client.ask("ZRANGE", key, "0", "-1")
                    wanted = fake.execute([b"ZRANGE", key, b"0", b"-1"])
                case dict():
                    found, wanted = self.client.ask("HGETALL", key), fake.execute([b"HGETALL", key])
                    found, wanted = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in (found, wanted))
                    found, wanted = ({name: self.plain(text) for name, text in d.items()} for d in (found, wanted))
                case _:
                    found, wanted = self.client.ask("GET", key), value
            assert self.plain(found) == self.plain(wanted), key


def test_any_commands_and_scripts(client: RedisClient) -> None:
    """Whatever state they leave, also if Redis is full or takes no writes, and if keys are of another type."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        client.ask("FLUSHALL")
        pair = Pair(client, Random(seed), seen)
        try:
            for number in range(STEPS):
                pair.step()
                if number % 50 == 0:
                    pair.check_data()
            pair.check_data()
        finally:
            pair.deny("")
    wanted = {
        *(f"{name} True" for name in NAMES if name != "save"),
        *("append False", "append ERR", "append OOM", "append WRONGTYPE", "begin False", "switch False", "mark OOM"),
        *("save 0", "save 1", "save -1", "save WRONGTYPE"),
        *("report NOREPLICAS", "report WRONGTYPE", "report RUN", "vouch RUN", "HSET OOM", "RENAME NOREPLICAS"),
    }
    assert wanted <= seen.keys(), wanted - seen.keys()
