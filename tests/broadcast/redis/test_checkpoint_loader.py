"""A node loads in pieces, while saves wait; and gives everything else its turn."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from pushup.broadcast.redis.checkpoint_loader import LARGER, LOAD_SECONDS, RENEW_PIECES, Loaded
from pushup.broadcast.redis.leader import SAVE_CHANGES
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.redis_connection import RedisConnection
from pushup.core.commands import Command, Create, Entry, Expire
from pushup.core.limits import Limits
from pushup.core.rows import ChannelRow
from pushup.core.snapshot import stored
from pushup.core.state import ReplicatedState
from tests.broadcast.redis.commands import SortedSet
from tests.broadcast.redis.fake_redis import FakeRedis
from tests.broadcast.redis.following_nodes import START, Cluster, cluster_of
from tests.core.builders import batch, draft, publish
from tests.net.observed_log import logged_at

SCAN = b"HSCAN"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(1) as cluster:
        node = cluster.nodes[0]
        for n in range(20):
            cluster.do(node, batch(*[draft(f"c{n}-{m}", data=f'"{n} {m}"') for m in range(50)]))
        cluster.advance(2)
        assert cluster.redis.data[b"{pushup}:5:state"][b"saved"] == b"1000"
        yield cluster


def loading(cluster: Cluster) -> Any:
    """A node that has read the first piece of the checkpoint."""
    settle, cluster.settle = cluster.settle, lambda: None  # type: ignore[method-assign]
    cluster.redis.executed.clear()
    node = cluster.start()
    cluster.settle = settle  # type: ignore[method-assign]
    while SCAN not in cluster.redis.executed:
        assert cluster.redis.step()
    return node


def saved(cluster: Cluster) -> bytes:
    at: bytes = cluster.redis.data[b"{pushup}:5:state"][b"saved"]
    return at


def test_a_checkpoint_is_read_in_pieces(cluster: Cluster) -> None:
    """The new node has the same state, and no reply was large."""
    cluster.redis.executed.clear()
    node = cluster.start()
    assert cluster.redis.executed.count(SCAN) >= 3
    assert node.state.snapshot() == cluster.nodes[0].state.snapshot()
    assert b"{pushup}:5:loads" not in cluster.redis.data


def test_saves_wait_while_a_node_loads(cluster: Cluster) -> None:
    """And are made once it has read all."""
    loading(cluster)
    link = cluster.redis.links[-2]
    link.stuck = True  # the new node's first connection: nothing more reaches it
    cluster.do(cluster.nodes[0], publish("a"))
    cluster.advance(3)
    assert saved(cluster) == b"1000"
    assert cluster.nodes[0].follows
    link.stuck = False
    cluster.advance(10)
    assert cluster.nodes[1].state.snapshot() == cluster.nodes[0].state.snapshot()
    assert saved(cluster) != b"1000"


def test_a_node_that_died_while_it_loaded_holds_saves_up_for_the_lease_only(cluster: Cluster) -> None:
    cluster.crash(loading(cluster))
    cluster.do(cluster.nodes[0], publish("a"))
    cluster.advance(LOAD_SECONDS - 5)
    assert saved(cluster) == b"1000"
    cluster.advance(10)
    assert saved(cluster) != b"1000"
    assert b"{pushup}:5:loads" not in cluster.redis.data


def test_a_lease_from_before_redis_clock_was_set_back_is_ignored(cluster: Cluster) -> None:
    cluster.crash(loading(cluster))
    cluster.redis.skew -= 3600
    cluster.do(cluster.nodes[0], publish("a"))
    cluster.advance(5)
    assert saved(cluster) != b"1000"


def test_reading_begins_again_if_the_checkpoint_was_saved_all_the_same(cluster: Cluster) -> None:
    """For instance by a node of an earlier release, which knows nothing of leases."""
    loading(cluster)
    cluster.redis.data.pop(b"{pushup}:5:loads")
    scans = cluster.redis.executed.count(SCAN)
    first = cluster.nodes[0]
    epoch = first.state.cursor.epoch
    changed = first.append(batch(*[draft(f"c{n}-0", data='"new"') for n in range(20)]))
    for n in range(20):  # in pieces that are read later they are there, and the entries that create them follow
        first.append(Create(f"new{n}"))
    for link in cluster.redis.links[-2:]:
        link.stuck = True
    cluster.advance(3)
    assert changed
    assert saved(cluster) == b"1040"
    for link in cluster.redis.links[-2:]:
        link.stuck = False
    with logged_at("critical") as lines:
        cluster.advance(3)
    assert lines == []  # pieces of two checkpoints were not put together
    assert cluster.redis.executed.count(SCAN) > 2 * scans
    assert cluster.nodes[1].state.snapshot() == first.state.snapshot()
    assert {node.state.cursor.epoch for node in cluster.nodes} == {epoch}


@pytest.mark.parametrize("why", ["MISCONF no disk", "OOM full"])
def test_a_node_loads_although_redis_takes_no_writes(cluster: Cluster, log: list[str], why: str) -> None:
    """If Redis is full, it can report, too; with MISCONF it cannot. Publishing is refused in both cases."""
    cluster.redis.denies = why
    node = cluster.start()
    assert node.state.snapshot() == cluster.nodes[0].state.snapshot()
    assert node.follows is (why == "OOM full")
    assert [why in line for line in log] == [True]


class Asks:
    """A connection whose commands are carried out at once; before that, `before` is called with each."""

    is_from_sentinel = False

    def __init__(self, redis: FakeRedis) -> None:
        self._redis = redis
        self.asked: list[list[bytes]] = []
        self.before: Callable[[list[bytes]], None] = lambda words: None

    def ask(self, *words: Any, blocks: float = 0.0) -> Deferred[Any]:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.asked.append(encoded)
        self.before(encoded)
        return succeed(self._redis.execute(encoded))

    def send(self, words: tuple[Any, ...], on_reply: Callable[[Any], None]) -> None:
        self.ask(*words).addCallback(on_reply)


class Reading:
    """A log in Redis; one node writes it and saves its checkpoint, another reads all."""

    def __init__(self, channels: int = 0, name: str = "") -> None:
        """So many channels have names that end with `name`."""
        clock = Clock()
        clock.advance(START)
        self.redis = FakeRedis(clock)
        self.writer, self.reader = Asks(self.redis), Asks(self.redis)
        self._log, self._reading = (
            RedisLog(cast(RedisConnection, asks), "pushup") for asks in (self.writer, self.reader)
        )
        for log in (self._log, self._reading):
            now(log.prepare())
        self.state = ReplicatedState(Limits(), epoch="e1")
        self.state.note_changes()
        self._saved = 0
        names = [f"{n}{name}" for n in range(channels)]
        opened = [ChannelRow(name, n, 9e9, 9e9, 9, 0, "expired", 0) for n, name in enumerate(names, 1)]
        rows = [stored("channels", row.name, row) for row in opened]
        assert now(self._log.begin("", self.state.head, rows))
        self.state.note_changes()

    def append(self, *commands: Command) -> None:
        for command in commands:
            sequence = self.state.cursor.sequence + 1
            self._log.append("e1", f"t{sequence}", command, lambda reply: None)
            self.state.apply(Entry("e1", sequence, START, command))

    def save(self) -> None:
        """And trim the log as far as possible."""
        self.redis.data.pop(b"{pushup}:5:loads", None)  # as a release before 0.2, which does not wait for who reads
        end = self.state.cursor.sequence
        assert now(self._log.save(self._saved, self.state.changes(), f"t{end}", keep_after=end))
        self.state.note_changes()
        self._saved = end

    def once(self, name: bytes, key: bytes, interfere: Callable[[], object]) -> None:
        """Do this when the reader asks for it the first time."""

        def before(words: list[bytes]) -> None:
            if words[:2] == [name, b"{pushup}:5:" + key]:
                self.reader.before = lambda words: None
                interfere()

        self.reader.before = before

    def load(self) -> Loaded | None:
        self.reader.asked.clear()
        loaded: Loaded | None = now(self._reading.load("reader"))
        return loaded

    def counts(self, name: bytes, key: bytes) -> list[int]:
        """How many items were asked for in each piece of this key."""
        return [int(words[-1]) for words in self.reader.asked if words[:2] == [name, b"{pushup}:5:" + key]]


def now(asked: Coroutine[Deferred[Any], Any, Any]) -> Any:
    results: list[Any] = []
    Deferred.fromCoroutine(asked).addCallback(results.append)
    (result,) = results
    return result


def test_where_no_epoch_has_begun_there_is_nothing_to_load() -> None:
    reading = Reading()
    reading.redis.data.clear()
    assert reading.load() is None
    assert b"{pushup}:5:loads" not in reading.redis.data


def test_small_items_are_read_in_few_pieces() -> None:
    """Each has up to twice as many as the one before, and no more than is good for Redis."""
    reading = Reading(channels=1000)
    for n in range(10):
        reading.append(publish("a", key=f"k{n}"))
        reading.save()
    reading.append(*[Expire()] * 4000)
    loaded = reading.load()
    assert loaded is not None
    assert [len(rows) for rows in loaded.snapshot.tables.all()] == [1001, 10, 10, 0, 0, 0, 0]
    assert [logged.last for logged in loaded.entries] == [*range(11, 4011)]
    assert loaded.is_whole
    assert reading.counts(SCAN, b"rows")[:5] == [16, 32, 64, 128, 256]
    assert reading.counts(b"XRANGE", b"log")[:9] == [16, 32, 64, 128, 256, 512, 1024, 2048, 2048]


def test_large_items_are_read_one_at_a_time_and_the_lease_is_renewed() -> None:
    """After each 16 pieces, whatever they are of."""
    reading = Reading()
    for _ in range(40):
        reading.append(publish("a", data='"' + "x" * 100_000 + '"'))
        reading.save()
    reading.load()
    assert max(reading.counts(SCAN, b"rows")[1:]) <= 2
    assert pieces_between_leases(reading)[0] == RENEW_PIECES
    reading = Reading(channels=40 * 128, name="x" * 500)
    reading.load()
    assert reading.counts(SCAN, b"rows")[4:6] == [pytest.approx(114, rel=0.2)] * 2
    assert pieces_between_leases(reading)[:2] == [RENEW_PIECES, RENEW_PIECES]


def pieces_between_leases(reading: Reading) -> list[int]:
    text = "".join("L" if words[0] == b"EVALSHA" else "p" for words in reading.reader.asked)
    return [len(pieces) for pieces in text[1:].split("L")]


@pytest.mark.parametrize("saved", [1, 9])
@pytest.mark.parametrize("key", [b"rows", b"log"])
def test_pieces_of_two_checkpoints_are_not_put_together(key: bytes, saved: int) -> None:
    """Reading begins again, with larger pieces, so that it ends however often others save."""
    reading = Reading(channels=4000)
    reading.append(*[publish("a", key=f"k{n}") for n in range(saved)])
    reading.save()
    reading.append(publish("b", key="l"))
    reading.once(SCAN if key == b"rows" else b"XRANGE", key, reading.save)
    loaded = reading.load()
    assert loaded is not None
    assert (loaded.saved.head.sequence, loaded.snapshot.head.sequence) == (saved + 1, saved + 1)
    assert (loaded.is_whole, len(loaded.snapshot.messages), loaded.entries) == (True, saved + 1, [])
    firsts = [count for count in reading.counts(SCAN, b"rows") if count in (16, 16 * LARGER)]
    assert firsts[0] == 16
    assert firsts[-1] == 16 * LARGER


def test_entries_that_come_while_a_node_reads_are_no_part_of_it() -> None:
    """However many come: it ends where the log ended when the checkpoint had been read, and the node reads on there."""
    reading = Reading()
    reading.append(publish("a"))
    reading.save()
    reading.append(publish("a"), publish("a"))
    reading.once(b"XRANGE", b"log", lambda: reading.append(*[publish("a")] * 300))
    loaded = reading.load()
    assert loaded is not None
    assert ([logged.last for logged in loaded.entries], loaded.tail.sequence) == ([2, 3], 3)
    assert loaded.is_whole
    assert reading.counts(b"XRANGE", b"log") == [16]


def test_what_else_changes_while_a_node_reads_does_not_matter() -> None:
    """Here the log goes on in another run of Redis, with another version."""
    reading = Reading(channels=1)
    state = reading.redis.data[b"{pushup}:5:state"]
    reading.once(b"XRANGE", b"log", lambda: state.update({b"run": b"another", b"version": b"9"}))
    loaded = reading.load()
    assert loaded is not None
    assert loaded.is_whole
    assert reading.counts(SCAN, b"rows") == [16]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.popitem(),
        lambda rows: rows.update({b"keys/more": rows[b"keys/k"].replace(b'"k"', b'"more"')}),
        lambda rows: rows.pop(b"messages/1"),
        lambda rows: rows.pop(b"keys/k"),
    ],
)
@pytest.mark.parametrize("when", ["before", "while it reads"])
def test_a_checkpoint_with_a_row_missing_is_not_complete(change: Callable[[Any], Any], when: str) -> None:
    """Or with one too many; nor is it whole, although no entry is missing."""
    reading = Reading(channels=5)
    reading.append(publish("a", key="k"))
    reading.save()
    reading.append(publish("b"))
    rows = reading.redis.data[b"{pushup}:5:rows"]
    if when == "before":
        change(rows)
    else:
        reading.once(SCAN, b"rows", lambda: change(rows))
    loaded = reading.load()
    assert loaded is not None
    assert (loaded.complete, loaded.is_whole, len(loaded.entries)) == (False, False, 1)


def test_a_checkpoint_without_the_last_entries_is_complete_but_not_whole() -> None:
    """The log ends after the entry that is missing."""
    reading = Reading()
    reading.append(publish("a"))
    reading.save()
    reading.append(publish("b"), publish("c"))
    reading.redis.data[b"{pushup}:5:log"].rows.pop()
    loaded = reading.load()
    assert loaded is not None
    assert (loaded.complete, loaded.is_whole, len(loaded.entries)) == (True, False, 1)


def turns_of(clock: Clock, look: Callable[[], Any]) -> list[Any]:
    """What there is to see whenever something is put off to the next turn."""
    seen: list[Any] = []
    call_later = clock.callLater

    def noted(delay: float, *what: Any, **how: Any) -> Any:
        if delay == 0:
            seen.append(look())
        return call_later(delay, *what, **how)

    clock.callLater = noted  # type: ignore[method-assign]
    return seen


def test_other_work_has_its_turn_while_a_backlog_is_applied() -> None:
    """A node that was away applies a large batch in many turns, and answers polls in between."""
    with cluster_of(2) as cluster:
        first, second = cluster.nodes
        redis: FakeRedis = cluster.redis
        cluster.advance(1)
        entry = batch(*[draft(*[f"c{n}" for n in range(50)]) for _ in range(40)])  # more than a turn's work
        for link in redis.links:
            link.stuck = link.connection in second.connector.made
        for _ in range(5):
            cluster.do(first, entry)
        for link in redis.links:
            link.stuck = False
        turns = turns_of(cluster.clock, lambda: second.cursor)
        cluster.settle()
        assert second.cursor == first.cursor
        assert len(set(turns)) == 4, "each of the entries is a turn of its own"


def test_the_channels_of_a_new_epoch_are_sent_in_pieces(cluster: Cluster, log: list[str]) -> None:
    """They get a key of their own first, which has a lifetime until the epoch begins with it."""
    node = cluster.nodes[0]
    before = node.cursor
    cluster.redis.executed.clear()
    cluster.redis.data.clear()
    cluster.advance(5)
    assert node.cursor.partition("-")[0] != before.partition("-")[0]
    assert len(node.state.channels) == 1000
    names = [name for name in cluster.redis.executed if name in (b"HSET", b"EXPIRE")]
    assert names == [b"HSET", b"EXPIRE"] * 2
    assert not [key for key in cluster.redis.data if b":begin:" in key]
    other = cluster.start()
    assert other.state.snapshot() == node.state.snapshot()


def test_an_epoch_begins_with_all_of_its_channels_or_not_at_all(cluster: Cluster, log: list[str]) -> None:
    """If Redis loses some of them before it begins, the node tries again."""
    node = cluster.nodes[0]
    cluster.redis.executed.clear()
    cluster.redis.data.clear()
    while b"EXPIRE" not in cluster.redis.executed:
        cluster.clock.advance(0.05)
        cluster.redis.step()
    cluster.redis.data.clear()
    cluster.advance(5)
    assert node.follows
    assert cluster.start().state.snapshot() == node.state.snapshot()
    assert len(node.state.channels) == 1000


def test_many_changes_are_saved_at_once() -> None:
    """So that none of the saves is large, nor any piece that a node loads, however fast changes come."""
    with cluster_of(1) as cluster:
        cluster.advance(2)
        counts = [0]
        for n in range(20):
            cluster.do(cluster.nodes[0], batch(*[draft(f"c{n}") for _ in range(SAVE_CHANGES // 4)]))
            rows = cluster.redis.data.get(b"{pushup}:5:rows", {})
            counts.append(sum(key.startswith(b"messages/") for key in rows))
        saves = [after - before for before, after in pairwise(counts) if after > before]
        assert sum(saves) >= 4 * SAVE_CHANGES
        assert SAVE_CHANGES // 2 <= min(saves) <= max(saves) <= 2 * SAVE_CHANGES, saves


def test_reports_come_no_faster_while_saves_have_to_wait() -> None:
    """A node loads, and saves wait for it; each report is early only if much has changed since the one before."""
    with cluster_of(1) as cluster:
        redis: FakeRedis = cluster.redis
        cluster.do(cluster.nodes[0], batch(*[draft("c") for _ in range(SAVE_CHANGES)]))
        redis.data[b"{pushup}:5:loads"] = SortedSet({b"other": redis.now() + 30})
        cluster.do(cluster.nodes[0], batch(*[draft("c") for _ in range(SAVE_CHANGES)]))
        redis.executed.clear()
        for _ in range(20):
            cluster.do(cluster.nodes[0], publish("c"))
            cluster.advance(0.05)
        reports = redis.executed.count(b"EVALSHA") - 20  # the others append, and none saves
        assert 3 <= reports <= 4
