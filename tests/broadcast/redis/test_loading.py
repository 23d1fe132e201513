"""A node loads in pieces, while saves wait; and gives everything else its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.broadcast.pace import TURN_UNITS, Pace, work_of
from pushup.broadcast.redis.loading import LEASE_SECONDS
from pushup.broadcast.redis.pieces import Count
from pushup.broadcast.redis.saving import SAVE_CHANGES
from pushup.core.commands import Create, Entry, Expire
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
        assert cluster.redis.data[b"{pushup}:state"][b"saved"] == b"1000"
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
    at: bytes = cluster.redis.data[b"{pushup}:state"][b"saved"]
    return at


def test_a_checkpoint_is_read_in_pieces(cluster: Cluster) -> None:
    """The new node has the same state, and no reply was large."""
    cluster.redis.executed.clear()
    node = cluster.start()
    assert cluster.redis.executed.count(SCAN) >= 3
    assert node.state.snapshot() == cluster.nodes[0].state.snapshot()
    assert b"{pushup}:loads" not in cluster.redis.data


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
    cluster.advance(LEASE_SECONDS - 5)
    assert saved(cluster) == b"1000"
    cluster.advance(10)
    assert saved(cluster) != b"1000"
    assert b"{pushup}:loads" not in cluster.redis.data


def test_a_lease_from_before_redis_clock_was_set_back_is_ignored(cluster: Cluster) -> None:
    cluster.crash(loading(cluster))
    cluster.redis.skew -= 3600
    cluster.do(cluster.nodes[0], publish("a"))
    cluster.advance(5)
    assert saved(cluster) != b"1000"


def test_reading_begins_again_if_the_checkpoint_was_saved_all_the_same(cluster: Cluster) -> None:
    """For instance by a node of an earlier release, which knows nothing of leases."""
    loading(cluster)
    cluster.redis.data.pop(b"{pushup}:loads")
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


def test_a_node_loads_although_redis_takes_no_writes(cluster: Cluster) -> None:
    cluster.redis.denies = "MISCONF no disk"
    node = cluster.start()
    assert node.state.snapshot() == cluster.nodes[0].state.snapshot()


def test_pieces_get_their_size_whatever_the_items_have() -> None:
    """They shrink at once and grow by a factor of two."""
    count = Count(100, 1000, piece_bytes=10_000)
    count.had(100, 1000)
    assert count.next == 200
    count.had(200, 200_000)
    assert count.next == 10
    count.had(1, 50_000)
    assert count.next == 1
    for expected in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000):
        count.had(1, 1)
        count.had(0, 0)
        assert count.next == min(expected, count.next)


def test_work_is_divided_into_turns() -> None:
    """Before work that would exceed `TURN_UNITS` the task waits for the next turn."""
    clock = Clock()
    turns = turns_of(clock, lambda: len(done))
    pace = Pace(clock)
    done: list[int] = []

    async def work() -> None:
        for n in range(10):
            await pace.spend(TURN_UNITS // 2)
            done.append(n)

    Deferred.fromCoroutine(work())
    clock.advance(0)
    assert turns == [2, 4, 6, 8]
    assert len(done) == 10


def test_one_piece_of_work_may_be_more_than_a_turn() -> None:
    """It gets a turn of its own."""
    clock = Clock()
    turns = turns_of(clock, lambda: len(done))
    pace = Pace(clock)
    done: list[int] = []

    async def work() -> None:
        for units in (2 * TURN_UNITS, 2 * TURN_UNITS, 1, 1):
            await pace.spend(units)
            done.append(units)

    Deferred.fromCoroutine(work())
    clock.advance(0)
    assert turns == [1, 2]
    assert len(done) == 4


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


def test_the_work_of_an_entry_is_what_it_puts_where_and_what_may_expire() -> None:
    """A publication counts its channels; an `Expire`, and the first entry of a second, what one entry may expire."""
    small = work_of(Entry("e", 1, START, publish("a")), START)
    large = work_of(Entry("e", 1, START, batch(draft(*"abc"), draft(*"defg"))), START)
    assert large == small + 6
    assert work_of(Entry("e", 1, START + 1, publish("a")), START) > small + 900
    assert work_of(Entry("e", 1, START + 0.9, publish("a")), START + 0.1) == small
    assert work_of(Entry("e", 1, START, Expire()), START) > small + 900


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


def test_the_channels_of_a_new_epoch_are_sent_in_pieces(cluster: Cluster, logged_failures: list[str]) -> None:
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
    logged_failures.clear()


def test_an_epoch_begins_with_all_of_its_channels_or_not_at_all(cluster: Cluster, logged_failures: list[str]) -> None:
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
    logged_failures.clear()


def test_many_changes_are_saved_at_once() -> None:
    """So that none of the saves is large, nor any piece that a node loads, however fast changes come."""
    with cluster_of(1) as cluster:
        cluster.advance(2)
        for n in range(20):
            cluster.do(cluster.nodes[0], batch(*[draft(f"c{n}") for _ in range(SAVE_CHANGES // 4)]))
        saves = [len(msgspec.json.decode(fields[1])) for _, fields in cluster.redis.data[b"{pushup}:messages"].rows]
        assert SAVE_CHANGES // 2 <= min(saves) <= max(saves) <= 2 * SAVE_CHANGES, saves
        assert sum(saves) >= 4 * SAVE_CHANGES


def test_reports_come_no_faster_while_saves_have_to_wait() -> None:
    """A node loads, and saves wait for it; each report is early only if much has changed since the one before."""
    with cluster_of(1) as cluster:
        redis: FakeRedis = cluster.redis
        cluster.do(cluster.nodes[0], batch(*[draft("c") for _ in range(SAVE_CHANGES)]))
        redis.data[b"{pushup}:loads"] = {b"other": redis.now() + 30}
        cluster.do(cluster.nodes[0], batch(*[draft("c") for _ in range(SAVE_CHANGES)]))
        redis.executed.clear()
        for _ in range(20):
            cluster.do(cluster.nodes[0], publish("c"))
            cluster.advance(0.05)
        reports = redis.executed.count(b"EVALSHA") - 20  # the others append
        assert 3 <= reports <= 12
