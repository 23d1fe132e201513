"""Two clusters: no node of one ever changes the log of the other, or gives its own up because of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from pushup.broadcast.progress_mark import Mark, ProgressMark
from pushup.broadcast.redis.catch_up import FOUNDED_SECONDS, VOUCH_SECONDS
from pushup.broadcast.redis.heartbeat import OUTDATED_SECONDS
from pushup.core.commands import Published
from pushup.core.cursor import order_of
from pushup.core.errors import Unavailable
from tests.broadcast.redis.fake_redis import FakeRedis
from tests.broadcast.redis.following_nodes import Cluster, Disk, FollowingNode, Poller
from tests.broadcast.stepped_helpers import AtOnce
from tests.core.builders import gaps, ids, poll, publish
from tests.net.observed_log import logged_at

STATE, VOUCHERS = b"{pushup}:5:state", b"{pushup}:5:vouchers"
FORMAT_KEY = b"{pushup}:state"
KEPT = (STATE, b"{pushup}:5:log", b"{pushup}:5:rows")
"""All but who is there."""


class Place(Cluster):
    """A cluster beside another one, on the same clock."""

    def __init__(self, beside: Cluster | None, seed: int) -> None:
        super().__init__()
        self.random = Random(seed).random
        self.beside = beside
        if beside is not None:
            self.clock = beside.clock
            self.redis = FakeRedis(self.clock)

    def start(self, *, disk: Disk | None = None, **settings: Any) -> FollowingNode:
        if disk is not None:
            settings["progress_mark"] = ProgressMark(disk, AtOnce(), self.clock)
        return super().start(random=self.random, **settings)

    def settle(self) -> None:
        while True:
            super().settle()
            if self.beside is None or not self.beside.redis.step():
                return

    @property
    def name(self) -> str:
        """The name of the cluster whose log is here."""
        name: bytes = self.redis.data[STATE][b"cluster"]
        return name.decode()

    def content(self) -> dict[bytes, Any]:
        data = self.redis.dump()
        return {key: data.get(key) for key in KEPT}

    def lead_to(self, node: FollowingNode, redis: FakeRedis) -> None:
        """What the node takes for its Redis is this one from now on."""
        node.connector.redis = redis
        for connection in node.connector.made:
            connection.abort("the address leads elsewhere")


def follows(node: FollowingNode) -> bool:
    """Whether it does now."""
    return node.follows


@pytest.fixture
def other() -> Place:
    """Another cluster, which was founded long ago, with a message and a key. Its node is not running now."""
    other = Place(None, 1)
    other.publish(other.start(), "a", key="k")
    other.advance(2.0)
    other.crash(other.nodes[0])
    other.advance(FOUNDED_SECONDS)
    return other


@pytest.fixture
def here(other: Place, log: list[str]) -> Iterator[Place]:
    """This cluster: two nodes, a message and a key."""
    here = Place(other, 2)
    for _ in range(2):
        here.start()
    here.publish(here.nodes[0], "a", key="k")
    here.advance(2 * FOUNDED_SECONDS)
    yield here
    here.end()
    here.settle()
    assert here.clock.getDelayedCalls() == []


def test_clusters_have_different_names_and_nodes_of_one_the_same(here: Place, other: Place) -> None:
    """The name is that of the first epoch."""
    assert here.name != other.name
    assert here.name == here.nodes[0].state.cursor.epoch
    assert all(follows(node) for node in here.nodes), "none takes the log for that of another"


@pytest.mark.parametrize("seconds", [4.0, 30.0])
def test_an_address_that_leads_to_another_cluster_for_a_while(here: Place, other: Place, seconds: float) -> None:
    """The node refuses to follow, says which clusters these are, and goes on as if it had been cut off."""
    node = here.nodes[0]
    before, seen, name = other.content(), node.cursor, here.name
    first = here.nodes[1].state.keys.row("k")
    with logged_at("error") as lines:
        here.lead_to(node, other.redis)
        here.advance(seconds)
    assert not follows(node)
    assert node.broadcast.why_not_ready() is not None
    (line,) = [line for line in lines if "cluster" in line]
    assert f"that of cluster {other.name}, and this node belongs to cluster {name}; nothing was changed" in line
    assert "Redis (redis_prefix pushup)" in line
    assert "restart it" in line
    assert other.content() == before
    assert b"{pushup}:5:vouchers" not in other.redis.data
    here.publish(here.nodes[1], "a")
    here.lead_to(node, here.redis)
    here.advance(4.0)
    assert follows(node)
    answer = node.poll(poll("a", cursor=seen))
    assert (ids(answer), answer.gaps) == ([2], ())
    assert first is not None
    assert here.publish(node, "a", key="k") == first.outcome


def test_a_machine_with_the_mark_of_another_cluster(here: Place, other: Place) -> None:
    """It touches nothing until its mark is removed; then it joins."""
    disk = Disk()
    disk.data = stray = msgspec.json.encode(Mark("f" * 17, 9, other.name))
    before = here.content()
    with logged_at("error") as lines:
        node = here.start(disk=disk)
        here.advance(5.0)
    assert not follows(node)
    assert here.content() == before
    assert disk.data == stray
    assert "stop it, remove the mark, and start it" in lines[0]
    here.crash(node)
    disk.data = None
    node = here.start(disk=disk)
    here.advance(2.0)
    assert follows(node)
    assert msgspec.json.decode(disk.data or b"", type=Mark).cluster == here.name
    assert here.content()[STATE][b"epoch"] == before[STATE][b"epoch"]


def test_a_mark_without_a_cluster_is_that_of_any(here: Place) -> None:
    """It was written by an earlier release."""
    disk = Disk()
    disk.data = b'{"epoch":"%s","sequence":1}' % here.nodes[0].state.cursor.epoch.encode()
    assert here.start(disk=disk).follows


@pytest.mark.parametrize("running", [True, False])
def test_a_flushed_log_begins_again_as_the_same_cluster(here: Place, running: bool) -> None:
    """By a node that remembers it, or by its mark; clients are told."""
    disk = Disk()
    name = here.name
    node = here.start(disk=disk)
    seen = node.cursor
    here.advance(2.0)
    if not running:
        here.end()
    here.redis.data.clear()
    here.advance(5.0)
    if not running:
        node = here.start(disk=disk)
        here.advance(5.0)
    assert here.name == name
    assert all(follows(each) for each in here.nodes)
    assert gaps(node.poll(poll("a", cursor=seen))) == [("a", "lost")]
    assert here.redis.data[STATE][b"founded"] == b"0", "not here"


def test_a_new_node_that_is_the_first_after_a_flush(here: Place) -> None:
    """It founds another cluster, and the others join that: it is younger than what they remember."""
    nodes, name = list(here.nodes), here.name
    for node in nodes:
        node.connector.is_cut_off = True
    here.redis.cut()
    here.redis.data.clear()
    here.start()
    assert here.name != name
    for node in nodes:
        node.connector.is_cut_off = False
    here.advance(5.0)
    assert all(follows(node) for node in here.nodes), "none takes the log for that of another"


def test_two_primaries_tell_a_client_that_changes_nodes_once(here: Place, other: Place) -> None:
    """The node whose log is outdated sends it elsewhere, and answers again when nobody can be there any longer."""
    old, new = here.nodes
    promoted = other.redis = FakeRedis(here.clock)
    promoted.data.update(copy.deepcopy(dict(here.redis.data)))
    promoted.run = "promoted"
    here.lead_to(new, promoted)
    here.advance(VOUCH_SECONDS + 5.0)
    assert old.follows
    assert new.follows
    assert order_of(new.state.cursor.epoch) > order_of(old.state.cursor.epoch)

    def cursor_at(node: FollowingNode, cursor: str) -> str:
        answer = node.poll(poll("a", cursor=cursor))
        assert gaps(answer) == [("a", "lost")]
        return answer.cursor

    told = cursor_at(new, str(old.cursor))
    for _ in range(3):
        here.advance(10.0)
        with pytest.raises(Unavailable):
            old.node.poll(poll("a", cursor=told), Poller())
        assert gaps(new.poll(poll("a", cursor=told))) == []
    here.advance(OUTDATED_SECONDS)
    cursor_at(old, told)


def test_a_voucher_of_a_node_that_has_followed_another_primary_since(here: Place, other: Place) -> None:
    """Two Sentinels disagree. It knows more by then, and cannot tell: it dies, with that other primary."""
    first, second = here.nodes
    seen = second.cursor
    promoted = other.redis = FakeRedis(here.clock)
    promoted.data.update(copy.deepcopy(dict(here.redis.data)))
    promoted.run = "promoted"
    second.connector.is_cut_off = True
    here.redis.restart()
    here.advance(1.0)
    assert b"node0" in here.redis.data[VOUCHERS]
    here.lead_to(first, promoted)
    here.advance(VOUCH_SECONDS + 2.0)
    here.publish(first, "a", data='"acknowledged"')
    here.crash(first)
    second.connector.is_cut_off = False
    here.advance(VOUCH_SECONDS + 3.0)
    assert follows(second)
    assert gaps(second.poll(poll("a", cursor=seen))) == [("a", "lost")]


def test_an_older_copy_of_the_log_is_of_the_same_cluster(here: Place) -> None:
    """Everybody is told of the loss, as always."""
    dump = here.redis.dump()
    here.publish(here.nodes[0], "a")
    seen, name = here.nodes[0].cursor, here.name
    here.redis.restart(dump)
    here.advance(10.0)
    assert here.name == name
    assert [gaps(node.poll(poll("a", cursor=seen))) for node in here.nodes] == [[("a", "lost")]] * 2


@pytest.mark.parametrize("value", [None, b"", b"not a name"])
def test_a_log_that_has_lost_its_cluster(here: Place, value: bytes | None) -> None:
    """A part of it is missing: an epoch begins, in the cluster of the nodes that were there."""
    name, before = here.name, here.nodes[0].cursor
    if value is None:
        del here.redis.data[STATE][b"cluster"]
    else:
        here.redis.data[STATE][b"cluster"] = value
    here.advance(5.0)
    assert here.name == name
    assert all(gaps(node.poll(poll("a", cursor=before))) == [("a", "lost")] for node in here.nodes)


def test_a_log_that_is_given_to_another_cluster_is_not_followed(here: Place) -> None:
    """Its nodes notice with the next report."""
    here.redis.data[STATE][b"cluster"] = b"c2"
    here.advance(1.0)
    before = here.content()
    here.advance(5.0)
    assert not any(follows(node) for node in here.nodes)
    assert here.content() == before


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_log_stays_with_its_cluster(
    here: Place, other: Place, seed: int, logged_failures: list[str]
) -> None:
    """Addresses lead elsewhere and back, nodes and both servers restart, and machines start with the wrong mark.

    Without a loss, no epoch begins, and every acknowledged message is there in the end.
    """
    random = Random(seed)
    other.start(disk=Disk())
    here.nodes.append(other.nodes.pop())  # so that all have their turns
    there = here.nodes[-1]
    homes: dict[FollowingNode, Place] = dict.fromkeys(here.nodes, here) | {there: other}
    begun = {place: place.redis.data[STATE][b"epoch"] for place in (here, other)}
    names = {place: place.name for place in (here, other)}
    counts = dict.fromkeys((here, other), 1)
    here.advance(1.0)
    for _ in range(25):
        node = random.choice(here.nodes)
        home = homes[node]
        match random.randrange(5):
            case 0 | 1:
                here.lead_to(node, random.choice((here.redis, other.redis)))
            case 2:
                outcomes = node.append(publish("a"))
                here.settle()
                counts[home] += sum(isinstance(outcome, Published) for outcome in outcomes)
            case 3:
                random.choice((here.redis, other.redis)).cut()
            case 4:
                wrong = random.choice((here, other))
                disk = Disk()
                disk.data = msgspec.json.encode(Mark("f" * 17, 3, names[other if wrong is here else here]))
                stranger = FollowingNode(
                    wrong.redis, here.clock, name="stranger", progress_mark=ProgressMark(disk, AtOnce(), here.clock)
                )
                here.nodes.append(stranger)
                here.advance(1.0)
                assert not follows(stranger)
                here.crash(stranger)
        here.advance(random.choice((0.05, 0.3, 3.0)))
        for place in (here, other):
            assert (place.name, place.redis.data[STATE][b"epoch"]) == (names[place], begun[place])
    for node, home in homes.items():
        here.lead_to(node, home.redis)
    here.advance(6.0)
    for node, home in homes.items():
        assert follows(node)
        assert node.state.message_count == counts[home]


@pytest.mark.parametrize("found", ["older", "newer"])
def test_a_log_of_another_format_is_refused(here: Place, found: str) -> None:
    """Nothing is changed, and the log says what to do. An older release finds a text where it keeps its state."""
    assert here.redis.data[FORMAT_KEY] == b"5"
    here.redis.data[FORMAT_KEY] = {b"epoch": b"1"} if found == "older" else b"6"
    before = here.redis.dump()
    with logged_at("error") as lines:
        for connection in here.nodes[0].connector.made:
            connection.abort("reconnect")
        here.advance(3.0)
    assert not here.nodes[0].follows
    assert any(f"has format {1 if found == 'older' else 6}, and this release uses format 5" in line for line in lines)
    unchanged = {key: value for key, value in here.redis.dump().items() if key in KEPT}
    assert unchanged == {key: value for key, value in before.items() if key in KEPT}
    here.redis.data[FORMAT_KEY] = b"5"
    here.advance(5.0)
    assert here.nodes[0].follows
