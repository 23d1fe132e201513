"""`stable` and what nodes answer: none says that there is nothing else while it lacks a stable message (ACK-2)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from twisted.internet.task import Clock

from pushup.broadcast.redis.lease import MARGIN_SECONDS, Lease
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.core.commands import Confirmation, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import Unavailable
from pushup.core.subscription import Subscription
from tests.broadcast.redis.fake_redis import Link
from tests.broadcast.redis.following_nodes import Cluster, FollowingNode, Poller
from tests.core.builders import ids, poll, publish

STATE = b"{pushup}:5:state"


@pytest.fixture
def log(log: list[str]) -> Iterator[list[str]]:
    """None of it is unexpected."""
    yield log
    assert not any("Traceback" in line for line in log)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(getattr(request, "param", 2))
    cluster.advance(LEASE_SECONDS + 1.0)
    yield cluster
    cluster.end()


def says_all_is_known(node: FollowingNode, cursor: str = "") -> str:
    """The cursor of a node's answer to somebody who asks what there is now; empty if it refuses to say."""
    try:
        return node.poll(poll("a", cursor=cursor)).cursor
    except Unavailable:
        return ""


def refuses(node: FollowingNode) -> bool:
    """Whether a node refuses whatever asks what there is now; it must refuse all of it, or nothing."""
    with_cursor, without = says_all_is_known(node, node.cursor), says_all_is_known(node)
    assert bool(with_cursor) == bool(without)
    try:
        here = str(node.node.here)
    except Unavailable:
        here = ""
    assert here == without
    assert (node.node.why_not_ready() is None) <= bool(without)
    return not without


def make_stable(cluster: Cluster, node: FollowingNode, seconds: float = 5.0) -> Published:
    """A publication that its publisher is told is stable within these seconds."""
    published = cluster.publish(node, "a")
    received = node.confirm("stable", published, 60.0)
    for _ in range(round(seconds * 20)):
        if received:
            break
        cluster.advance(0.05)
    assert [each.ack for each in received] == ["stable"]
    return published


def join_slowly(cluster: Cluster) -> tuple[FollowingNode, Link]:
    """A node that has loaded the log, and the connection by which its first report is still on its way to Redis."""
    node = FollowingNode(cluster.redis, cluster.clock, name="slow", limits=cluster.limits)
    cluster.nodes.append(node)
    while not node.cursor or node.cursor.startswith("-"):
        cluster.clock.advance(0)
        for link in cluster.links_of(node):
            if not node.state.cursor.epoch:
                link.step()
    link = cluster.links_of(node)[1]
    link.stuck = True
    return node, link


def test_a_node_that_joins_is_current_when_it_has_reported(cluster: Cluster) -> None:
    """And has applied what the log contained then. Until Redis knows its lease, `stable` does not wait for it."""
    first = cluster.nodes[0]
    cluster.publish(first, "a")
    joining, link = join_slowly(cluster)
    reading = cluster.links_of(joining)[0]
    reading.blind = True
    published = make_stable(cluster, first)
    assert joining.state.cursor.sequence < published.sequence
    assert refuses(joining)
    link.stuck = False
    cluster.advance(0.3)
    assert [member.id for member in first.node.members()] == ["node0", "node1", "slow"]
    assert refuses(joining), "it has reported, and lacks what the log contained then"
    reading.blind = False
    cluster.advance(1.1)
    assert not refuses(joining)


def test_a_node_that_joins_serves_those_who_wait(cluster: Cluster) -> None:
    """A poll with a cursor gets what the node knows, or is held: it asks for what comes next."""
    first = cluster.nodes[0]
    cluster.publish(first, "a")
    cursor = first.cursor
    cluster.publish(first, "a")
    joining, _ = join_slowly(cluster)
    assert ids(joining.poll(poll("a", cursor=cursor, timeout=5.0))) == [2]
    held = joining.hold(poll("a", cursor=joining.cursor, timeout=5.0))
    cluster.publish(first, "a")
    cluster.advance(0.1)
    assert [ids(answer) for answer in held.answers] == [[3]]
    assert refuses(joining)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0, 2.4, 2.6, 3.0, 4.0, 5.5, 8.0])
def test_a_node_that_is_cut_off_is_current_for_less_than_its_lease(
    cluster: Cluster, log: list[str], seconds: float
) -> None:
    """Its lease began when Redis carried out its last report, at the earliest when that was sent."""
    first, other = cluster.nodes
    cut_off = cluster.clock.seconds()
    cluster.stick(other)
    other.connector.is_cut_off = True
    cluster.advance(seconds)
    is_over = cluster.clock.seconds() - cut_off > LEASE_SECONDS - MARGIN_SECONDS
    assert refuses(other) == is_over
    assert (other.node.why_not_ready() is not None) == is_over
    published = make_stable(cluster, first)
    assert other.state.cursor.sequence < published.sequence
    assert refuses(other)


def test_a_lease_that_a_small_jump_of_the_clock_of_redis_ends(cluster: Cluster, log: list[str]) -> None:
    """Its node does not know, and goes by it. The lease of the node that confirms has not ended."""
    first, other = cluster.nodes
    cluster.stick(other)
    other.connector.is_cut_off = True
    cluster.advance(1.0)
    cluster.redis.skew = 1.6
    received = first.confirm("stable", cluster.publish(first, "a"), 60.0)
    for _ in range(100):
        cluster.advance(0.05)
        assert refuses(other) or not received
    assert received == [Confirmation("stable", nodes=1)]


def test_a_node_that_was_cut_off_is_current_when_it_has_caught_up(cluster: Cluster) -> None:
    """Its next report begins a new lease; a message became stable without it."""
    first, other = cluster.nodes
    reading, commands = cluster.links_of(other)
    reading.blind = commands.stuck = True
    published = make_stable(cluster, first)
    commands.stuck = False
    cluster.advance(1.0)
    assert len(first.node.members()) == 2
    assert refuses(other)
    reading.blind = False
    cluster.advance(1.1)
    assert says_all_is_known(other) == f"{published.epoch}-{published.sequence}"


def test_a_node_that_was_stopped_answers_nothing_from_the_past(cluster: Cluster) -> None:
    """After SIGCONT, before it has read anything."""
    other = cluster.nodes[1]
    held = other.hold(poll("a", cursor=other.cursor, timeout=30.0))
    cluster.stick(other)
    cluster.clock.rightNow += LEASE_SECONDS
    assert refuses(other)
    assert other.node.why_not_ready() is not None
    assert held.answers == []


def test_a_node_whose_machine_was_suspended_answers_nothing_from_the_past(cluster: Cluster) -> None:
    """The others did without it. Its timers and its monotonic clock have counted nothing when it wakes up."""
    first, other = cluster.nodes
    links = cluster.links_of(other)
    held = other.hold(poll("a", cursor=other.cursor, timeout=30.0))
    waiting = other.cursor
    for link in links:
        link.stuck = True
    other.suspended += LEASE_SECONDS - MARGIN_SECONDS
    assert refuses(other)
    assert other.node.why_not_ready() is not None
    assert isinstance(other.node.poll(poll("a", cursor=waiting, timeout=30.0), Poller()), Subscription)
    assert held.answers == []
    for link in links:
        link.stuck = False
    cluster.advance(0.5)
    assert not refuses(other)
    assert not refuses(first)


def test_a_node_that_has_reconnected_reports_before_it_is_current(cluster: Cluster, log: list[str]) -> None:
    """Although its lease lasts: it may have another state than when it last reported."""
    first, other = cluster.nodes
    for link in cluster.links_of(other):
        link.connection.abort("a test")
    for _ in range(100):
        cluster.clock.advance(0.01)
        for link in cluster.links_of(other):
            if not other.follows:
                link.step()
        if cluster.links_of(other) and other.follows:
            break
    cluster.links_of(other)[1].stuck = True
    assert refuses(other)
    assert len(first.node.members()) == 2
    cluster.links_of(other)[1].stuck = False
    cluster.settle()
    assert not refuses(other)


def test_a_reply_that_took_long_says_little(cluster: Cluster) -> None:
    """The lease that it renewed may have ended meanwhile: Redis has carried the report out when it came."""
    first, other = cluster.nodes
    link = cluster.links_of(other)[1]
    while not link.execute_next():  # the report; its reply stays where it is
        cluster.clock.advance(0.05)
    executed_at = cluster.clock.seconds()
    link.stuck = True
    reading = cluster.links_of(other)[0]
    reading.blind = True
    published = make_stable(cluster, first)
    link.stuck = False
    assert link.deliver()
    assert cluster.clock.seconds() >= executed_at + LEASE_SECONDS
    assert other.state.cursor.sequence < published.sequence
    assert refuses(other)


def test_a_node_that_leaves_is_not_current(cluster: Cluster) -> None:
    """From then on `stable` does not wait for it; a reply to its last report changes nothing."""
    first, other = cluster.nodes
    cluster.clock.advance(0.25)  # its report is under way
    other.stop()
    assert refuses(other)
    cluster.settle()
    assert len(cluster.redis.data[b"{pushup}:5:leases"]) == 1
    assert refuses(other)
    cluster.nodes.remove(other)
    assert not refuses(first)


class Asker:
    """Takes every message that is said to be stable, and asks every node whether it knows it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stable = Cursor("", 0)
        self.count = self.refused = self.answered = 0

    def publish(self, node: FollowingNode) -> None:
        def confirmed(cursor: Cursor, confirmation: Confirmation) -> None:
            if confirmation.ack == "stable":
                self.count += 1
                if cursor.epoch != self._stable.epoch or cursor.sequence > self._stable.sequence:
                    self._stable = cursor
            self.ask()

        def published(outcome: object) -> None:
            if isinstance(outcome, Published):
                cursor = Cursor(outcome.epoch, outcome.sequence)
                node.node.confirm("stable", cursor, 60.0, lambda confirmation: confirmed(cursor, confirmation))

        node.node.submit(publish("a"), published)

    def ask(self) -> None:
        """Ask all nodes, also those that are cut off."""
        for node in self._cluster.nodes:
            cursor = says_all_is_known(node, node.cursor) if node.state.cursor.epoch else ""
            if not cursor:
                self.refused += 1
                continue
            self.answered += 1
            epoch, _, sequence = cursor.rpartition("-")
            knows = epoch != self._stable.epoch or int(sequence) >= self._stable.sequence
            assert knows, f"{node.node.member('').name} is at {cursor}, and {self._stable} is stable"


@pytest.mark.parametrize("seed", range(12))
def test_no_node_says_that_there_is_nothing_else_while_it_lacks_a_stable_message(seed: int, log: list[str]) -> None:
    """Whatever is cut, slow, blind, killed or started, and in whatever order replies come."""
    random = Random(seed)
    cluster = Cluster(3)
    asker = Asker(cluster)
    cluster.advance(4.0)
    for _ in range(400):
        what = random.random()
        node = random.choice(cluster.nodes)
        links = cluster.links_of(node)
        if what < 0.4:
            asker.publish(node)
        elif what < 0.5 and links:
            random.choice(links).stuck = True
        elif what < 0.6:
            for link in cluster.redis.links:
                link.stuck = link.blind = False
            cluster.redis.rate = random.choice([0, 0, 2_000, 400])
        elif what < 0.65 and links:
            links[0].blind = True
        elif what < 0.69:
            node.connector.is_cut_off = not node.connector.is_cut_off
        elif what < 0.72 and len(cluster.nodes) > 2:
            cluster.crash(node)
        elif what < 0.75 and len(cluster.nodes) < 4:
            cluster.start()
        asker.ask()
        cluster.advance(random.choice([0.05, 0.1, 0.3, 1.0]))
        asker.ask()
    cluster.end()
    assert asker.count > 5
    assert asker.refused > 50
    assert asker.answered > 50


# The lease by itself.

HERE = Cursor("e1", 5)


def ends_at(lease: Lease, clock: Clock) -> float:
    """When a lease ends, to a quarter of a second; now, if it is over."""
    while lease.is_current:
        clock.advance(0.25)
    return clock.seconds()


def test_a_lease_counts_from_when_its_report_was_sent() -> None:
    clock = Clock()
    lease = Lease(clock.seconds)
    lease.renewed(100.0, HERE, HERE, was_living=False)
    assert ends_at(lease, clock) == 100.0 + LEASE_SECONDS - MARGIN_SECONDS


@pytest.mark.parametrize(
    ("applied", "is_current"),
    [
        (Cursor("e1", 4), False),
        (Cursor("e1", 5), True),
        (Cursor("e1", 6), True),
        (Cursor("e2", 1), True),
        (Cursor("e0", 9), False),
        (Cursor("", 0), False),
    ],
)
def test_a_new_lease_counts_once_the_log_was_applied_up_to_its_end(applied: Cursor, is_current: bool) -> None:
    """As it was when the lease began."""
    clock = Clock()
    lease = Lease(clock.seconds)
    lease.renewed(100.0, HERE, Cursor("e0", 1), was_living=False)
    lease.renewed(101.0, Cursor("e1", 8), Cursor("e0", 1), was_living=True)
    lease.applied(applied)
    assert (ends_at(lease, clock) == 101.0 + LEASE_SECONDS - MARGIN_SECONDS) == is_current
    assert lease.is_behind == (not is_current)


@pytest.mark.parametrize("how", ["its lease ended", "it lapsed here"])
def test_a_node_has_to_catch_up_again(how: str) -> None:
    """If its lease ended in between, or if it may have another state."""
    clock = Clock()
    lease = Lease(clock.seconds)
    lease.renewed(100.0, HERE, HERE, was_living=True)
    were_current = [lease.is_current]
    if how == "it lapsed here":
        lease.lapse()
    lease.renewed(101.0, Cursor("e1", 8), HERE, was_living=how == "it lapsed here")
    were_current.append(lease.is_current)
    lease.renewed(102.0, Cursor("e1", 9), HERE, was_living=True)
    lease.applied(Cursor("e1", 7))
    were_current.append(lease.is_current)
    lease.applied(Cursor("e1", 8))
    assert were_current == [True, False, False]
    assert ends_at(lease, clock) == 102.0 + LEASE_SECONDS - MARGIN_SECONDS
