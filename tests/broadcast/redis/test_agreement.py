"""What all nodes do together by an entry: a newer state machine, other limits; and an entry that some cannot read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import msgspec
import pytest
from twisted.logger import ILogObserver, globalLogPublisher

from pushup.broadcast.redis.leader import SETTLED_SECONDS, STUCK_SECONDS
from pushup.broadcast.redis.log import LEASE_SECONDS
from pushup.broadcast.redis.records import NodeReport
from pushup.broadcast.redis.session import STUCK_RETRY_SECONDS
from pushup.core.commands import Create, Entry, Outcome, Upgrade
from pushup.core.errors import Unavailable
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.state import ReplicatedState
from tests.broadcast.redis.following_nodes import Cluster, FollowingNode, cluster_of
from tests.core.builders import ids, poll, publish
from tests.next_version import NEXT_VERSION, next_version

STATE, LOG, LEASES, MEMBERS, LOADS, VOUCHERS = (
    b"{pushup}:5:" + name for name in b"state log leases members loads vouchers".split()
)


@pytest.fixture
def cluster(log: list[str]) -> Iterator[Cluster]:
    """Two nodes. What they log as errors is what the tests cause."""
    with cluster_of(2) as cluster:
        cluster.advance(0.5)
        yield cluster


# An older version of the state machine than this release knows.


@pytest.fixture
def old(log: list[str]) -> Iterator[Cluster]:
    """A log of this version, no node, and a release that knows the next one."""
    cluster = Cluster()
    cluster.crash(cluster.start())
    cluster.advance(4.0)
    with next_version():
        yield cluster
        cluster.end()


def start_old(cluster: Cluster) -> FollowingNode:
    """A node that reports that it does not know the next version."""
    node = cluster.start()
    for link in cluster.links_of(node):
        link.sends = report_as_old
    cluster.advance(0.5)
    return node


def report_as_old(words: list[bytes]) -> list[bytes]:
    known, old = (b'"latest_version":%d' % version for version in (NEXT_VERSION, LATEST_VERSION))
    return [word.replace(known, old) for word in words]


def version(cluster: Cluster) -> set[int]:
    return {node.state.rules.version for node in cluster.nodes} | {int(cluster.redis.data[STATE][b"version"])}


def test_the_version_changes_when_every_node_knows_it(old: Cluster) -> None:
    """Not while one does not; and when the last of those is gone, only after a lease."""
    first = start_old(old)
    new = [old.start(), old.start()]
    for n in range(10):
        old.publish(new[n % 2], "a")
        old.advance(1.0)
        assert version(old) == {LATEST_VERSION}
    old.leave(first)
    old.advance(SETTLED_SECONDS - 0.5)
    assert version(old) == {LATEST_VERSION}
    old.advance(2.0)
    assert version(old) == {NEXT_VERSION}
    assert old.is_one()
    assert ids(old.start().poll(poll("a"))) == list(range(1, 11))


def test_before_that_nodes_can_be_replaced_by_older_ones(old: Cluster) -> None:
    """A rollback: nothing in the log is newer than they know."""
    start_old(old)
    new = old.start()
    old.publish(new, "a")
    old.advance(2.0)
    old.crash(new)
    start_old(old)
    old.advance(10.0)
    assert version(old) == {LATEST_VERSION}
    assert old.is_one()


@pytest.mark.parametrize("key", [b"{pushup}:5:leases", MEMBERS])
def test_the_version_stays_while_a_node_may_be_unknown(old: Cluster, key: bytes) -> None:
    """Redis has lost the list of nodes: those that are silent may still be alive."""
    start_old(old)
    old.start()
    old.crash(old.nodes[0])
    for _ in range(20):
        old.redis.data.pop(key, None)
        old.advance(0.2)
    assert version(old) == {LATEST_VERSION}
    old.advance(7.0)
    assert version(old) == {NEXT_VERSION}


# A newer state machine than this release knows.


def test_a_node_that_is_too_old_touches_nothing(cluster: Cluster, logged_failures: list[str]) -> None:
    """At its start, and however often it tries; it says once which version it needs."""
    cluster.redis.data[STATE][b"version"] = b"%d" % (LATEST_VERSION + 1)
    cluster.end()
    cluster.advance(4.0)
    before = cluster.redis.dump()
    node = cluster.start()
    cluster.advance(30.0)
    assert not node.follows
    trouble = node.broadcast.why_not_ready()
    assert trouble is not None
    assert f"version {LATEST_VERSION + 1}" in trouble.operator_detail
    assert cluster.redis.data == before
    assert [f"version {LATEST_VERSION + 1} of the state machine" in line for line in logged_failures] == [True]


def test_a_node_that_becomes_too_old_while_following(cluster: Cluster, logged_failures: list[str]) -> None:
    """It stops at the entry, is not ready at once, and touches nothing."""
    node = cluster.nodes[0]
    tail = cluster.redis.data[STATE][b"tag"]
    number = LATEST_VERSION + 1
    keys = (STATE, LOG, b"{pushup}:5:vouchers")
    cluster.redis.run_script(
        "switch", keys, (tail, b"s", msgspec.json.encode(Upgrade(number)), b"version", b"%d" % number)
    )
    held = cluster.redis.dump()
    cluster.settle()
    assert not node.follows
    assert node.broadcast.tag == tail  # what it has is known, and polls are answered from it
    assert node.broadcast.why_not_ready() is not None
    cluster.advance(30.0)
    assert node.state.rules.version == LATEST_VERSION
    for key in (STATE, LOG):
        assert cluster.redis.data[key] == held[key]
    assert len(logged_failures) <= 2 * len(cluster.nodes)


# Limits.


SMALL = Limits(retention_messages=5)


def test_limits_change_when_every_node_has_them(cluster: Cluster) -> None:
    """A node with others joins, and follows by the limits of the log until then."""
    for _ in range(8):
        cluster.publish(cluster.nodes[0], "a")
    cursor = cluster.nodes[0].state.cursor
    changed = cluster.start(limits=SMALL)
    cluster.advance(5.0)
    assert changed.follows
    assert {node.state.limits for node in cluster.nodes} == {Limits()}
    for node in cluster.nodes[:2]:
        cluster.crash(node)
    second = cluster.start(limits=SMALL)
    cluster.advance(8.0)
    assert {node.state.limits for node in cluster.nodes} == {SMALL}
    assert changed.state.cursor.epoch == cursor.epoch
    for _ in range(9):
        cluster.publish(second, "a")
    assert cluster.is_one()
    assert len(ids(changed.poll(poll("a")))) == 5
    assert cluster.start(limits=SMALL).state.limits == SMALL


def test_policies_change_when_every_node_has_them(cluster: Cluster) -> None:
    """As the limits that they are part of; then every replica keeps messages as they say."""
    strict, roomy = (
        Limits(channels=(ChannelPolicy(prefix="chat:", retention_messages=most, retention_seconds=1e6, share=2.5),))
        for most in (2, 5)
    )
    for limits, kept in ((strict, 2), (roomy, 5), (Limits(), 14)):
        cluster.end()
        first = cluster.start(limits=limits)
        cluster.start(limits=limits)
        cluster.advance(12.0)
        assert {node.state.limits for node in cluster.nodes} == {limits}
        for _ in range(9):
            cluster.publish(first, "chat:a", "b")
        assert cluster.is_one()
        assert {len(ids(node.poll(poll("chat:a")))) for node in cluster.nodes} == {kept}


def test_limits_stay_while_two_nodes_want_different_ones(cluster: Cluster) -> None:
    """Nothing is appended, however long it takes, whatever the first node wants."""
    cluster.end()
    cluster.start(limits=SMALL)
    cluster.start()
    cursor = cluster.nodes[0].cursor
    cluster.advance(20.0)
    assert {node.cursor for node in cluster.nodes} == {cursor}
    assert {node.state.limits for node in cluster.nodes} == {Limits()}


def test_limits_change_by_one_entry(cluster: Cluster) -> None:
    """And by none if they are those of the log."""
    cluster.end()
    cluster.advance(4.0)
    for _ in range(2):
        cluster.start(limits=SMALL)
    cluster.advance(20.0)
    commands = [msgspec.json.decode(fields[7])["type"] for _, fields in cluster.redis.data[LOG].rows]
    assert commands == ["configure"]


# What a newer release has written in this format.


KEPT = (STATE, LOG, b"{pushup}:5:rows")
"""All but who is there."""

NEWER = [b'{"type":"future"}', b'{"type":"close","channel":"a","why":1}']


@pytest.mark.parametrize("command", NEWER)
def test_an_entry_of_a_newer_release_is_left_alone(
    cluster: Cluster, logged_failures: list[str], command: bytes
) -> None:
    """However long it takes; every node says once what to do, and takes no publications."""
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(2.0)
    append(cluster, command)
    before = cluster.redis.dump()
    cluster.advance(1.0)
    new = cluster.start()
    for _ in range(50):
        cluster.advance(1.0)
        for node in cluster.nodes:
            outcomes = node.append(publish("a"))
            cluster.settle()
            assert [isinstance(outcome, Unavailable) for outcome in outcomes] == [True]
    for key in KEPT:
        assert cluster.redis.data.get(key) == before.get(key), key
    for node in cluster.nodes:
        trouble = node.broadcast.why_not_ready()
        assert trouble is not None
        assert "contains something that this release does not know" in trouble.operator_detail
    assert new.state.message_count == 0
    assert ["or a newer one" in line for line in logged_failures] == [True] * 3


def test_a_node_follows_again_when_the_entry_of_a_newer_release_is_behind(
    cluster: Cluster, logged_failures: list[str]
) -> None:
    """A newer node has applied it, and saved a state that this release understands."""
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(2.0)
    append(cluster, NEWER[0])
    cluster.advance(7.0)
    fields = cluster.redis.data[LOG].rows[-1][1]
    fields[7] = msgspec.json.encode(publish("a"))
    cluster.advance(7.0)
    assert cluster.is_one()
    assert ids(cluster.nodes[1].poll(poll("a"))) == [1, 2]
    assert ["or a newer one" in line for line in logged_failures] == [True] * 2


def test_a_checkpoint_of_a_newer_release_is_left_alone(cluster: Cluster, logged_failures: list[str]) -> None:
    """A node that needs it says so once, and begins no epoch."""
    cluster.publish(cluster.nodes[0], "a")
    cluster.advance(2.0)
    cluster.end()
    cluster.advance(4.0)
    state = cluster.redis.data[STATE]
    saved = msgspec.json.decode(state[b"checkpoint"])
    saved["head"]["why"] = 1
    state[b"checkpoint"] = msgspec.json.encode(saved)
    before = cluster.redis.dump()
    node = cluster.start()
    cluster.advance(50.0)
    assert not node.follows
    assert cluster.redis.data == before
    assert ["the checkpoint of the message log contains something that" in line for line in logged_failures] == [True]


def test_a_report_of_a_newer_release_is_read(cluster: Cluster, logged_failures: list[str]) -> None:
    """Its node counts; fields that this release does not know are ignored, in its settings as well."""
    report = {"id": "new", "name": "", "addresses": [], "cursor": "", "held_polls": 0, "version": "9", "why": 1}
    report |= {"latest_version": 2, "limits": msgspec.to_builtins(Limits()) | {"why": 1}}
    text = msgspec.json.encode(report)
    keys = (STATE, b"{pushup}:5:leases", MEMBERS, b"{pushup}:state", LOADS)
    for _ in range(8):
        cluster.redis.run_script("report", keys, (b"new", text, b"3", b"0", b"3", b"0", cluster.redis.history.encode()))
        cluster.advance(1.0)
    assert not logged_failures
    for node in cluster.nodes:
        assert node.follows
        assert "new" in [member.id for member in node.node.members()]
    assert {node.state.limits for node in cluster.nodes} == {Limits()}


# An entry that cannot be read, or applied.


def append(cluster: Cluster, command: bytes) -> None:
    """Append this to the log, whatever it is."""
    keys, after = (STATE, LOG, VOUCHERS), cluster.redis.data[STATE][b"tag"]
    assert cluster.redis.run_script("switch", keys, (after, b"odd", command)) == 1


def voucher(cluster: Cluster) -> bytes:
    """That of a node which knows no other."""
    return msgspec.json.encode({"run": cluster.redis.whole_run, "known": []})


def append_unreadable(cluster: Cluster) -> None:
    """Append an entry that no node can read."""
    append(cluster, b'{"type":')


def test_an_entry_that_no_node_can_read_ends_the_epoch(cluster: Cluster, logged_failures: list[str]) -> None:
    """Within 30 s, not before the others had time, and each node logs it once; then all goes on, and clients know."""
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    append_unreadable(cluster)
    began: list[str] = []
    observer = cast(ILogObserver, lambda event: began.append(event["log_format"]))
    globalLogPublisher.addObserver(observer)
    cluster.advance(STUCK_SECONDS - 1.0)
    globalLogPublisher.removeObserver(observer)
    assert [node.cursor for node in cluster.nodes] == [seen] * 2
    assert not any(node.follows for node in cluster.nodes)
    assert not any("works again" in text for text in began)
    cluster.advance(29.0 - STUCK_SECONDS)
    assert cluster.is_one()
    for node in cluster.nodes:
        answer = node.poll(poll("a", cursor=seen))
        assert [gap.reason for gap in answer.gaps] == ["lost"]
    cluster.publish(cluster.nodes[1], "a")
    assert ["cannot read the entry" in line for line in logged_failures] == [True] * 2


def stick(
    monkeypatch: pytest.MonkeyPatch, at: int, times: float = math.inf, other: FollowingNode | None = None
) -> None:
    """Let a node fail at the entry with this sequence so many times, however often it tries; not the other one."""
    apply, left = ReplicatedState.apply, times
    others_state = other and other.state  # it never has another, for it does not fail

    def fail(state: ReplicatedState, entry: Entry) -> Outcome:
        nonlocal left
        if entry.sequence == at and left > 0 and state is not others_state:
            left -= 1
            raise RuntimeError("this node only")
        return apply(state, entry)

    monkeypatch.setattr(ReplicatedState, "apply", fail)


@pytest.mark.interpreted
@pytest.mark.parametrize("which", [0, 1])
def test_an_entry_that_one_node_cannot_apply_concerns_that_node(
    cluster: Cluster, logged_failures: list[str], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not it is the first: the others go on and save, the entry stays, and it follows what they saved."""
    stuck, other = cluster.nodes[which], cluster.nodes[1 - which]
    stick(monkeypatch, 3, other=other)
    epoch = other.state.cursor.epoch
    for n in range(1, 31):
        assert cluster.publish(other, "a").sequence == n
        if n == 3:
            assert stuck.broadcast.why_not_ready() is not None
        cluster.advance(0.5)
        assert other.follows
    assert int(cluster.redis.data[STATE][b"saved"]) >= 28
    assert cluster.is_one()
    assert other.state.cursor.epoch == epoch
    assert ["cannot read the entry" in line for line in logged_failures] == [False, True, False]


def test_a_node_that_cannot_read_an_entry_keeps_its_connections(cluster: Cluster, log: list[str]) -> None:
    """It does not read on, and that is not taken for a server that has stopped sending, however short the timeout."""
    node = cluster.start(timeout=1.0)
    links = cluster.links_of(node)
    append_unreadable(cluster)
    cluster.advance(STUCK_RETRY_SECONDS - 0.5)
    assert node.broadcast.why_not_ready() is not None
    assert [link.open for link in links] == [True, True]
    cluster.advance(1.0)
    assert [link.open for link in links] == [False, False]


def test_a_node_that_cannot_read_an_entry_notices_a_fork(log: list[str]) -> None:
    """Redis is put back meanwhile, and other entries take the places of those that the node has applied.

    Another node is the first, so this one does not save what it has.
    """
    first = NodeReport(
        "a", "", (), "", 0, "", latest_version=LATEST_VERSION, limits=msgspec.Raw(msgspec.json.encode(Limits()))
    )
    with cluster_of(1) as cluster:
        (node,) = cluster.nodes
        cluster.publish(node, "a")
        dump = cluster.redis.dump()
        cluster.publish(node, "a")
        seen = node.cursor
        append_unreadable(cluster)
        cluster.settle()
        assert not node.follows
        cluster.redis.data = dump
        for tag in (b"x.1", b"x.2"):
            cluster.redis.append(dump[STATE][b"epoch"], tag, publish("a"))
        history = cluster.redis.history.encode()
        keys, other = (STATE, b"{pushup}:5:leases", MEMBERS, b"{pushup}:state", LOADS), msgspec.json.encode(first)
        for _ in range(round(STUCK_RETRY_SECONDS) + 3):
            cluster.redis.run_script("report", keys, (b"a", other, b"3", b"0", b"3", b"0", history))
            cluster.advance(1.0)
        is_back: bool = node.follows
        assert is_back
        assert [gap.reason for gap in node.poll(poll("a", cursor=seen)).gaps] == ["lost"]


def test_a_node_that_cannot_read_an_entry_waits_for_the_others_after_a_failover(
    cluster: Cluster, log: list[str]
) -> None:
    """The Redis that takes over may have lost the lease of a node that does not know that yet, and says what it has."""
    cluster.advance(LEASE_SECONDS + 1.0)
    node, behind = cluster.nodes
    cluster.links_of(behind)[0].blind = True
    received = node.confirm("stable", cluster.publish(node, "a"), 30.0)
    append_unreadable(cluster)
    cluster.advance(STUCK_RETRY_SECONDS - 0.1)
    assert not node.follows
    failed_at = cluster.clock.seconds()
    cluster.redis.restart()
    for key in (LEASES, MEMBERS):
        del cluster.redis.data[key][behind.broadcast.node_id.encode()]
    behind.connector.is_cut_off = True
    cluster.redis.execute([b"HSET", VOUCHERS, behind.broadcast.node_id.encode(), voucher(cluster)])
    while behind.broadcast.is_current:
        assert received == []
        cluster.advance(0.05)
    assert cluster.clock.seconds() > failed_at + 1.0
    assert [member.id for member in node.node.members()] == ["node0"]


@pytest.mark.interpreted
def test_a_node_that_could_not_apply_an_entry_tries_it_again(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It can for reasons that pass. Here it is the only node, so nobody saves a checkpoint that is past the entry."""
    with cluster_of(1) as cluster:
        (node,) = cluster.nodes
        cluster.publish(node, "a")
        seen = node.cursor
        stick(monkeypatch, 2, times=2)  # when it has read the entry, and when it has loaded everything again
        node.append(publish("a"))
        cluster.advance(STUCK_RETRY_SECONDS - 1.0)
        assert (node.follows, node.cursor) == (False, seen)
        cluster.advance(3.0)
        assert node.follows
        answer = node.poll(poll("a", cursor=seen))
        assert (ids(answer), answer.gaps) == ([2], ())
    assert ["cannot read the entry" in line for line in log] == [False, True, False]


@pytest.mark.interpreted
def test_an_entry_that_fails_in_the_middle_leaves_nothing(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the state that was there nor in one that is built again: clients see it as a whole, or not at all."""
    apply, left = ReplicatedState.apply, 2

    def failing(state: ReplicatedState, entry: Entry) -> Outcome:
        nonlocal left
        outcome = apply(state, entry)
        if entry.sequence == 2 and left:
            left -= 1
            raise RuntimeError("in the middle")
        return outcome

    with cluster_of(1) as cluster:
        (node,) = cluster.nodes
        cluster.publish(node, "a")
        seen = node.cursor
        monkeypatch.setattr(ReplicatedState, "apply", failing)
        node.append(publish("a"))
        cluster.advance(STUCK_RETRY_SECONDS - 1.0)
        assert (node.follows, node.cursor) == (False, seen)
        assert node.broadcast.why_not_ready() is not None
        cluster.advance(3.0)
        assert node.follows
        answer = node.poll(poll("a", cursor=seen))
        assert (ids(answer), answer.gaps) == ([2], ())
    assert ["(a bug)" in line or "in the middle" in line for line in log] == [True] * 3


@pytest.mark.parametrize("which", [0, 1])
def test_a_node_that_cannot_read_an_entry_starts_from_what_others_saved(
    cluster: Cluster, logged_failures: list[str], which: int
) -> None:
    """It is not ready at once, and ready again when the checkpoint is past the entry; its held polls stay."""
    node, other = cluster.nodes[which], cluster.nodes[1 - which]
    held = node.hold(poll("a", cursor=node.cursor, timeout=60.0))
    text = b'{"type":'
    outcomes = other.append(publish("a"))
    cluster.links_of(other)[-1].execute_next()
    fields = cluster.redis.data[LOG].rows[-1][1]
    readable, fields[7] = fields[7], text
    reading = next(link for link in cluster.links_of(node) if link.requests)
    reading.execute_next()
    fields[7] = readable
    cluster.settle()
    assert outcomes
    assert not node.follows
    assert node.broadcast.why_not_ready() is not None
    fields[7] = text
    cluster.advance(STUCK_RETRY_SECONDS + 1.0)
    assert cluster.is_one()
    assert [ids(answer) for answer in held.answers] == [[1]]
    assert len(logged_failures) == 1


# The checkpoint.


def test_a_checkpoint_that_is_older_than_remembered_is_loaded_and_saved_again(cluster: Cluster) -> None:
    """Redis has lost only the last save; a node that starts later has what the others have, and held polls stay."""
    saver = cluster.nodes[0]
    cluster.publish(saver, "a", data="1")
    cluster.advance(1.5)
    dump = cluster.redis.dump()
    cluster.do(saver, Create("c", 500.0))
    cluster.advance(1.5)
    assert saver.state.change_log.start_sequence == 2
    held = [node.hold(poll("a", cursor=node.cursor, timeout=60.0)) for node in cluster.nodes]
    cluster.redis.data[b"{pushup}:5:rows"] = dump[b"{pushup}:5:rows"]
    state = cluster.redis.data[STATE]
    state |= {name: dump[STATE][name] for name in (b"saved", b"checkpoint", b"rows")}
    cluster.publish(cluster.nodes[1], "b")
    ready = []
    for _ in range(60):
        cluster.advance(0.05)
        if not saver.broadcast.tag:
            ready.append(saver.broadcast.why_not_ready() is None)
    assert set(ready) == {False}, "while it has no state that it can vouch for"
    assert cluster.is_one()
    assert int(state[b"saved"]) == 3
    new = cluster.start()
    assert new.node.channel("c").expires == saver.node.channel("c").expires
    assert cluster.is_one()
    assert [poller.answers for poller in held] == [[], []]
    cluster.publish(saver, "a")
    assert [[ids(answer) for answer in poller.answers] for poller in held] == [[[4]], [[4]]]
