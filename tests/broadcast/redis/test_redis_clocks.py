"""The clock of Redis orders the log; a node's own clock, whatever it says, expires nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.error import ConnectionDone

from pushup.broadcast.redis.heartbeat import EPOCHS_LIMIT, REPORT_SECONDS
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.core.commands import Confirmation
from pushup.core.cursor import Cursor, next_epoch, order_of
from pushup.core.errors import Unavailable
from pushup.core.poll import Poll, Selection
from pushup.node.node import DEADLINE_STEP_SECONDS
from tests.broadcast.redis.following_nodes import START, Cluster, FollowingNode
from tests.core.builders import gaps, ids, poll

HOUR = 3600.0
LEASES, MEMBERS = b"{pushup}:5:leases", b"{pushup}:5:members"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two nodes whose messages expire after 30 s."""
    cluster = Cluster(2, retention_seconds=30.0)
    yield cluster
    cluster.end()


def set_clock(cluster: Cluster, ahead: float) -> None:
    """Set the clock of Redis, and let the nodes report once."""
    cluster.redis.skew = ahead
    cluster.advance(2 * REPORT_SECONDS)


def count_of(cluster: Cluster) -> int:
    """How many messages the nodes have, which must be equal."""
    first, second = (node.state.snapshot() for node in cluster.nodes)
    assert first == second
    return cluster.nodes[0].state.message_count


def times(node: FollowingNode) -> list[float]:
    return [message.time for message in node.poll(poll("a")).messages]


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_node_whose_clock_is_wrong_expires_nothing_early_or_late(cluster: Cluster, ahead: float) -> None:
    """Whether it or Redis is right: messages expire by the clock of Redis, and no entry is appended before."""
    for node in cluster.nodes:
        node.wall_ahead = -ahead
    set_clock(cluster, ahead)
    cluster.publish(cluster.nodes[0], "a")
    (published,) = times(cluster.nodes[0])
    assert abs(published - (cluster.clock.seconds() + ahead)) < 0.1
    before = cluster.nodes[0].cursor
    cluster.advance(29.0)
    assert cluster.nodes[0].cursor == before
    assert count_of(cluster) == 1
    cluster.advance(4.0)
    assert count_of(cluster) == 0
    after = cluster.nodes[0].cursor
    cluster.advance(10.0)
    assert cluster.nodes[0].cursor == after


def test_a_jump_of_a_nodes_clock_changes_nothing(cluster: Cluster) -> None:
    cluster.publish(cluster.nodes[0], "a")
    before = cluster.nodes[0].cursor
    for jump in (2 * HOUR, -HOUR):
        cluster.nodes[0].wall_ahead = jump
        cluster.advance(5.0)
        assert cluster.nodes[0].cursor == before
        assert count_of(cluster) == 1
        assert all(node.follows for node in cluster.nodes)


def test_redis_is_set_forward(cluster: Cluster) -> None:
    """What is due by its clock expires, as the time of the log is that of Redis; polls are held as long as before."""
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    held = node.hold(Poll(Selection(("b",)), timeout=8.0))
    set_clock(cluster, 2 * HOUR)
    cluster.advance(3.0)
    assert count_of(cluster) == 0
    cluster.publish(node, "a")
    assert times(node)[0] > START + 2 * HOUR
    assert held.answers == []
    cluster.advance(8.0 - 3.0)
    assert len(held.answers) == 1


def test_redis_is_set_back(cluster: Cluster) -> None:
    """Time stands still until Redis has caught up: messages stay, none is older than the one before, none is lost."""
    node = cluster.nodes[0]
    cluster.publish(node, "a")
    set_clock(cluster, -60.0)
    before = node.cursor
    cluster.advance(50.0)
    assert node.cursor == before
    cluster.publish(cluster.nodes[1], "a")
    first, second = times(node)
    assert first == second == node.broadcast.now()
    assert ids(node.poll(poll("a"))) == [1, 2]
    cluster.advance(20.0)
    assert count_of(cluster) == 2
    cluster.advance(25.0)
    assert count_of(cluster) == 0


def test_a_node_that_died_before_redis_was_set_back(cluster: Cluster) -> None:
    """It counts as alive for as long as without that; nobody is listed twice, and the others are not affected."""
    cluster.crash(cluster.nodes[1])
    set_clock(cluster, -60.0)
    cluster.advance(LEASE_SECONDS - 0.7)
    assert [member.id for member in cluster.nodes[0].broadcast.members()] == ["node0", "node1"]
    cluster.advance(0.8)
    assert [member.id for member in cluster.nodes[0].broadcast.members()] == ["node0"]


def test_a_living_node_keeps_its_lease_when_redis_is_set_back(cluster: Cluster) -> None:
    """Another node reports first; what is published meanwhile is stable only when both have it."""
    cluster.advance(LEASE_SECONDS + 1.0)
    for link in cluster.redis.links:
        link.stuck = link.connection in cluster.nodes[1].connector.made
    set_clock(cluster, -60.0)
    received = cluster.nodes[0].confirm("stable", cluster.publish(cluster.nodes[0], "a"), 20.0)
    cluster.advance(1.0)
    assert [member.id for member in cluster.nodes[0].broadcast.members()] == ["node0", "node1"]
    for link in cluster.redis.links:
        link.stuck = False
    assert received == []
    cluster.advance(LEASE_SECONDS)
    assert received == [Confirmation("stable", nodes=2)]


@pytest.mark.parametrize("set_back", [60.0, 0.4])
def test_redis_is_set_back_and_forgets_the_nodes(cluster: Cluster, set_back: float, log: list[str]) -> None:
    """The node that reports first gets no reply: with its next report, it may be the only one that Redis knows."""
    cluster.advance(LEASE_SECONDS + 1.0)
    node, behind = cluster.nodes
    cluster.stick(behind)
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.redis.skew = -set_back
    for key in (LEASES, MEMBERS):
        del cluster.redis.data[key]
    (link,) = [link for link in cluster.links_of(node) if not link.requests]
    while not link.requests:
        cluster.clock.advance(0.05)
    link.execute_next()
    assert LEASES in cluster.redis.data
    for link in cluster.links_of(node):
        link.end(ConnectionDone())
    while behind.broadcast.is_current:
        assert received == []
        cluster.advance(0.05)
    assert [member.id for member in node.node.members()] == ["node0"]
    cluster.advance(LEASE_SECONDS)
    assert received == [Confirmation("stable", nodes=1)]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("then", [0.0, -1.0, -60.0])
def test_redis_is_set_forward_and_back_while_others_do_not_report(
    cluster: Cluster, first: int, then: float, log: list[str]
) -> None:
    """A node that reports while the clock is ahead ends the lease of one that is cut off and still counts on it. All
    notice by the next report, whether its node has not seen the clock ahead (0) or has (1)."""
    cluster.start()
    cluster.advance(LEASE_SECONDS + 1.0)
    node, seeing, behind = cluster.nodes
    cluster.stick(behind)
    behind.connector.is_cut_off = True
    cluster.advance(1.3)
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    cluster.stick(node)
    cluster.redis.skew = 2.0
    cluster.advance(REPORT_SECONDS + 0.05)
    assert [member.id for member in seeing.node.members()] == ["node0", "node1"]
    cluster.redis.skew = then
    if first == 0:
        cluster.stick(seeing)
    else:
        cluster.advance(REPORT_SECONDS + 0.05)
    for link in cluster.links_of(node):
        link.stuck = False
    while behind.broadcast.is_current:
        assert received == []
        cluster.advance(0.05)
    for link in cluster.links_of(seeing):
        link.stuck = False
    cluster.advance(2 * LEASE_SECONDS)
    assert received == [Confirmation("stable", nodes=2)]


def test_time_ranges_end_by_the_clock_of_redis(cluster: Cluster) -> None:
    """A poll for messages up to some time is held until entries have that time."""
    set_clock(cluster, HOUR)
    node = cluster.nodes[0]
    end = cluster.clock.seconds() + HOUR + 5.0
    held = node.hold(Poll(Selection(("a",), end=end), timeout=20.0))
    cluster.advance(4.9)
    assert held.answers == []
    cluster.advance(0.1 + 0.05 + DEADLINE_STEP_SECONDS)
    assert len(held.answers) == 1


def test_the_time_goes_on_while_redis_hangs(cluster: Cluster) -> None:
    """It is the time of the last report and what has passed since."""
    set_clock(cluster, HOUR)
    cluster.redis.hangs = True
    now = cluster.nodes[0].broadcast.now()
    cluster.advance(3.0)
    assert cluster.nodes[0].broadcast.now() == pytest.approx(now + 3.0)
    assert abs(now - cluster.redis.now() + 3.0) < 0.1
    cluster.redis.hangs = False


def test_before_the_first_report_the_time_is_that_of_the_last_entry(cluster: Cluster) -> None:
    """A node that could not report yet expires nothing, and may be in another epoch than the others."""
    cluster.redis.hangs = True
    node = cluster.start()
    assert node.broadcast.now() == 0.0
    assert node.broadcast.awaits("e1")
    cluster.redis.hangs = False


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_new_epoch_is_later_although_the_clock_was_set(cluster: Cluster, ahead: float, log: list[str]) -> None:
    """Both nodes take it for a later one."""
    cluster.publish(cluster.nodes[0], "a")
    old = cluster.nodes[0].state.cursor.epoch
    for node in cluster.nodes:
        node.wall_ahead = ahead
    cluster.redis.restart({})
    cluster.advance(10.0)
    assert all(node.follows for node in cluster.nodes)
    (new,) = {node.state.cursor.epoch for node in cluster.nodes}
    assert order_of(new) > order_of(old)
    began = int(new[:-6], 16) / 1000
    assert ahead < 0 or abs(began - (cluster.clock.seconds() + ahead)) <= 10


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_later_epoch_is_awaited_whatever_the_clocks_say(cluster: Cluster, ahead: float) -> None:
    """Until the log is seen to be in this node's epoch, by a report that was sent after the client came. The epoch may
    be of any cluster but this node's."""
    node = cluster.nodes[0]
    for other in cluster.nodes:
        other.wall_ahead = ahead
    cluster.redis.skew = -ahead
    later = next_epoch(node.state.cursor.epoch, cluster.clock.seconds() + 100 * HOUR, lambda: 0.0, "abcdef12")
    assert not node.broadcast.awaits(node.state.cursor.epoch)
    assert node.broadcast.awaits(later)
    cluster.redis.hangs = True
    cluster.advance(3.0)
    assert node.broadcast.awaits(later)
    cluster.redis.hangs = False
    cluster.advance(2 * REPORT_SECONDS + 0.05)
    assert not node.broadcast.awaits(later)


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_an_epoch_with_an_earlier_name_is_awaited_by_a_node_that_is_cut_off(
    cluster: Cluster, is_cut_off: bool, log: list[str]
) -> None:
    """It may be the next one, if the clock that named this node's was ahead; not one that this node has followed."""
    node = cluster.nodes[0]
    followed = node.state.cursor.epoch
    node.wall_ahead = HOUR
    cluster.redis.data.clear()
    cluster.advance(5.0)
    own = node.state.cursor.epoch
    earlier = next_epoch(followed, cluster.clock.seconds(), lambda: 0.0, "")
    assert order_of(followed) < order_of(earlier) < order_of(own)
    cluster.redis.hangs = is_cut_off
    cluster.advance(1.0)
    assert node.broadcast.awaits(earlier) is is_cut_off
    assert not node.broadcast.awaits(followed)
    cluster.redis.hangs = False
    cluster.advance(1.0)
    assert not node.broadcast.awaits(earlier)


def test_a_node_that_missed_one_report_awaits_no_earlier_epoch(cluster: Cluster, log: list[str]) -> None:
    """It counts as cut off after two: others may have begun such an epoch by then."""
    node, other = cluster.nodes
    cluster.crash(other)
    earlier = next_epoch(node.state.cursor.epoch, cluster.clock.seconds(), lambda: 0.0, "")
    node.wall_ahead = HOUR
    cluster.redis.data.clear()
    cluster.advance(5.0)
    assert order_of(earlier) < order_of(node.state.cursor.epoch)
    cluster.redis.executed.clear()
    while b"EVALSHA" not in cluster.redis.executed:
        cluster.advance(0.05)
    cluster.redis.hangs = True
    awaited = []
    for _ in range(20):
        cluster.advance(0.05)
        awaited.append(node.broadcast.awaits(earlier))
    assert 0.05 * awaited.index(True) == pytest.approx(2 * REPORT_SECONDS, abs=0.06)
    cluster.redis.hangs = False


def test_former_names_of_its_epoch_are_not_awaited_by_a_node_that_is_cut_off(cluster: Cluster, log: list[str]) -> None:
    """Although it has loaded the log under the last one and followed no other; whether or not anything had happened."""
    names = [cluster.nodes[0].state.cursor.epoch]
    for _ in range(2):
        cluster.redis.restart()
        cluster.advance(3.0)
        names.append(cluster.nodes[0].state.cursor.epoch)
        cluster.publish(cluster.nodes[0], "a")
    node = cluster.start()
    cluster.redis.hangs = True
    cluster.advance(2.0)
    past = node.state.past_epochs
    assert [past.good_up_to(name) for name in names] == [0, 2, -1]
    assert [node.broadcast.awaits(name) for name in names] == [False] * 3
    cluster.redis.hangs = False


def test_cursors_of_many_epochs_that_are_made_up_keep_nobody_from_an_answer(cluster: Cluster) -> None:
    """A node remembers some of the epochs that it hears of while it is cut off; others it takes for what they seem."""
    node = cluster.nodes[0]
    cluster.redis.hangs = True
    cluster.advance(1.0)
    awaited = [node.broadcast.awaits(f"{number:x}") for number in range(1, 2 * EPOCHS_LIMIT)]
    assert awaited == [True] * (EPOCHS_LIMIT - 1) + [False] * EPOCHS_LIMIT
    assert node.broadcast.awaits("1")
    cluster.redis.hangs = False


def test_epochs_that_a_node_has_not_heard_of_for_long_are_forgotten(cluster: Cluster) -> None:
    """Those with a later name than its own; then they are awaited again. Hearing of one twice takes no room."""
    node = cluster.nodes[0]
    later = [f"f{number:014x}abcd00" for number in range(EPOCHS_LIMIT + 1)]
    assert node.broadcast.awaits(later[0])
    cluster.advance(2 * REPORT_SECONDS)
    cluster.redis.hangs = True
    for epoch in later[1 : EPOCHS_LIMIT - 1]:  # its own is one of them
        assert node.broadcast.awaits(epoch)
    for epoch in (later[1], later[EPOCHS_LIMIT - 1], later[1]):
        assert node.broadcast.awaits(epoch)
    assert not node.broadcast.awaits(later[0])
    assert node.broadcast.awaits(later[EPOCHS_LIMIT])
    assert node.broadcast.awaits(later[0])
    cluster.redis.hangs = False


def test_clients_do_not_change_between_two_epochs_of_which_none_knows_the_other(
    cluster: Cluster, log: list[str]
) -> None:
    """One node's clock is ahead; it begins an epoch, and is cut off. Redis loses that, and the other begins one.

    The first node has the later name, and does not answer clients of the second.
    """
    one, other = cluster.nodes
    cluster.crash(other)
    one.wall_ahead = HOUR
    cluster.redis.data.clear()
    cluster.advance(2.0)
    cluster.publish(one, "a")
    for link in cluster.redis.links:
        link.stuck = True
    one.connector.is_cut_off = True
    cluster.redis.data.clear()
    other = cluster.start()
    cluster.advance(2.0)
    cursor = other.cursor
    assert order_of(other.state.cursor.epoch) < order_of(one.state.cursor.epoch)
    with pytest.raises(Unavailable):
        one.poll(poll("a", cursor=cursor))
    one.connector.is_cut_off = False
    cluster.advance(8.0)
    assert one.state.cursor.epoch == other.state.cursor.epoch
    assert [gaps(node.poll(poll("a", cursor=cursor))) for node in cluster.nodes] == [[("a", "lost")]] * 2


def test_a_report_that_was_long_on_its_way(cluster: Cluster) -> None:
    """The time of Redis is taken to be that of the reply, so it is never ahead, however late Redis got the question."""
    node = cluster.start()
    cluster.advance(1.0)
    link = cluster.redis.links[-1]
    link.stuck = True
    cluster.advance(2.0)
    assert link.requests
    link.stuck = False
    cluster.settle()
    assert node.broadcast.now() <= cluster.redis.now()


def test_who_asks_for_the_end_during_a_report_is_told_by_the_next(cluster: Cluster) -> None:
    """The log may have grown since that report was carried out."""
    node = cluster.start()
    cluster.advance(1.0)
    link = cluster.redis.links[-1]
    link.stuck = True
    cluster.advance(0.5)
    link.stuck = False
    assert link.execute_next()
    told: list[Cursor] = []
    node.broadcast.find_end(told.append)
    while link.deliver():
        pass
    assert told == []
    cluster.advance(0.5)
    assert len(told) == 1
