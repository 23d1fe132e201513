"""What nodes know after a restart of Redis, and what subscribers are told: vouching, marks, new names of an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pushup.broadcast.progress_mark import MARK_SECONDS, Mark, ProgressMark
from pushup.broadcast.redis.catch_up import VOUCH_SECONDS
from pushup.broadcast.redis.log import PIECE_OF_EPOCH
from pushup.broadcast.redis.scripts import SCRIPTS
from pushup.core.commands import ChannelState, Create, Entry, Outcome
from pushup.core.cursor import Cursor, next_epoch, order_of
from pushup.core.errors import Overloaded
from pushup.core.state import ReplicatedState
from tests.broadcast.redis.following_nodes import Cluster, Disk, FollowingNode, cluster_of
from tests.broadcast.stepped_helpers import AtOnce
from tests.core.builders import ids, poll, publish
from tests.net.observed_log import logged_at

STATE = b"{pushup}:5:state"


@pytest.fixture
def cluster(log: list[str]) -> Iterator[Cluster]:
    """Two nodes that know each other. What they log as errors is what the tests cause."""
    with cluster_of(2) as cluster:
        cluster.advance(0.5)
        yield cluster
    cluster.settle()
    assert cluster.clock.getDelayedCalls() == []


def epoch_of(cluster: Cluster) -> str:
    """The epoch of all nodes, which follow it in the same state."""
    assert cluster.is_one()
    return cluster.nodes[0].state.cursor.epoch


def told(cluster: Cluster, cursor: str) -> list[str]:
    """What a client with this cursor is told at each node: `nothing`, or the reason of its gap."""
    answers = [node.poll(poll("a", cursor=cursor)) for node in cluster.nodes]
    return [answer.gaps[0].reason if answer.gaps else "nothing" for answer in answers]


def blind(cluster: Cluster, node: FollowingNode) -> None:
    """Let the node read nothing more through its present connection."""
    (reading,) = [link for link in cluster.links_of(node) if link.requests and link.requests[0][1][0] == b"XREAD"]
    reading.blind = True


# Vouching.


def test_every_node_vouches(cluster: Cluster) -> None:
    """The epoch goes on at once, and again after the next restart; cursors of all its names are valid."""
    cursors = []
    for n in range(1, 4):
        cluster.publish(cluster.nodes[n % 2], "a")
        cursors.append(cluster.nodes[0].cursor)
        cluster.redis.restart()
        cluster.advance(2.0)
    epoch_of(cluster)
    for cursor, later in zip(cursors, (2, 1, 0), strict=True):
        assert [len(ids(node.poll(poll("a", cursor=cursor)))) for node in cluster.nodes] == [later] * 2
        assert told(cluster, cursor) == ["nothing"] * 2
    epochs = [cursor.partition("-")[0] for cursor in cursors]
    assert epochs == sorted(epochs, key=order_of)
    assert len(set(epochs)) == 3


def test_redis_gets_another_replication_id_while_it_runs(cluster: Cluster) -> None:
    """Its first replica connects, or the last one has left. A node that publishes nothing notices it, and vouches."""
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    cluster.redis.follows = "another"
    cluster.nodes[0].append(publish("a"))
    cluster.advance(VOUCH_SECONDS + 2.0)
    assert order_of(epoch_of(cluster)) > order_of(seen.partition("-")[0])
    assert told(cluster, seen) == ["nothing"] * 2


def test_a_cursor_beyond_a_former_name_is_lost_for_good(cluster: Cluster) -> None:
    """Also when the log is longer than that by now, and through two renamings."""
    cursor = Cursor(cluster.publish(cluster.nodes[0], "a").epoch, 3)
    for _ in range(2):
        cluster.redis.restart()
        cluster.advance(2.0)
        for _ in range(3):
            cluster.publish(cluster.nodes[0], "a")
        assert told(cluster, str(cursor)) == ["lost"] * 2
        assert told(cluster, f"{cursor.epoch}-1") == ["nothing"] * 2


def test_a_node_that_dies_with_redis_does_not_vouch(cluster: Cluster) -> None:
    """It may have acknowledged what Redis has lost. So subscribers are told, but not before it had time to return."""
    dump = cluster.redis.dump()
    blind(cluster, cluster.nodes[0])
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    cluster.crash(cluster.nodes[1])
    cluster.redis.restart(dump)
    cluster.advance(VOUCH_SECONDS - 0.5)
    assert not cluster.nodes[0].follows
    cluster.advance(2.0)
    assert told(cluster, seen) == ["lost"]
    assert told(cluster, cluster.nodes[0].cursor) == ["nothing"]


def test_redis_loses_everything_while_nodes_wait_for_others(cluster: Cluster) -> None:
    """There is nothing to vouch for any more: an epoch begins (tests/simulation, seed 40146 of e22b49a)."""
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    cluster.crash(cluster.nodes[1])
    cluster.redis.restart()
    cluster.advance(1.0)
    cluster.redis.data.clear()
    cluster.advance(VOUCH_SECONDS + 3.0)
    assert cluster.nodes[0].follows
    assert told(cluster, seen) == ["lost"]


def test_a_node_that_only_redis_knows_must_vouch(cluster: Cluster) -> None:
    """It had just begun, and the others have not seen it yet."""
    new = cluster.start()
    assert [member.id for member in cluster.nodes[0].node.members()] == ["node0", "node1"]
    dump = cluster.redis.dump()
    for node in cluster.nodes[:2]:
        blind(cluster, node)
    epoch = cluster.publish(new, "a").epoch
    cluster.crash(new)
    cluster.redis.restart(dump)
    cluster.advance(VOUCH_SECONDS + 2.0)
    epoch_of(cluster)
    assert told(cluster, f"{epoch}-0") == ["lost"] * 2


def test_a_node_that_only_another_node_knows_must_vouch(cluster: Cluster) -> None:
    """Redis has lost the entry and the list of nodes; whoever has seen the node waits for it."""
    other = cluster.nodes[0]
    dump = cluster.redis.dump()
    for key in (b"leases", b"members"):
        del dump[b"{pushup}:5:" + key]
    new = cluster.start()
    cluster.advance(0.5)
    assert [member.id for member in other.node.members()] == ["node0", "node1", "node2"]
    for node in cluster.nodes[:2]:
        blind(cluster, node)
    epoch = cluster.publish(new, "a").epoch
    cluster.crash(new)
    cluster.redis.restart(dump)
    cluster.advance(VOUCH_SECONDS + 2.0)
    epoch_of(cluster)
    assert told(cluster, f"{epoch}-0") == ["lost"] * 2


def test_a_node_that_dies_alone_delays_nothing_later(cluster: Cluster) -> None:
    """Its lease has ended, and another node has applied all that it acknowledged."""
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    cluster.crash(cluster.nodes[1])
    cluster.advance(8.0)
    cluster.redis.restart()
    cluster.advance(2.0)
    epoch_of(cluster)  # it is followed by now
    assert told(cluster, seen) == ["nothing"]


def test_a_node_that_left_in_good_order_need_not_vouch(cluster: Cluster) -> None:
    """Redis no longer lists it, and the others forget it in time."""
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    left = cluster.nodes.pop()
    stopped = left.stop()
    cluster.advance(4.0)
    assert stopped.called
    cluster.redis.restart()
    cluster.advance(2.0)
    epoch_of(cluster)  # it is followed by now
    assert told(cluster, seen) == ["nothing"]


def test_a_node_without_a_state_vouches_for_nothing(cluster: Cluster) -> None:
    """All others have left in good order. The log that it finds was put back to an earlier time, and it cannot know."""
    seen = cluster.publish(cluster.nodes[0], "a")
    dump = cluster.redis.dump()
    cluster.publish(cluster.nodes[0], "a")
    while cluster.nodes:
        cluster.leave(cluster.nodes[-1])
    cluster.redis.restart(dump)
    cluster.redis.data.pop(b"{pushup}:5:members")
    cluster.start()
    cluster.advance(VOUCH_SECONDS + 2.0)
    assert told(cluster, f"{seen.epoch}-{seen.sequence}") == ["lost"]


@pytest.mark.parametrize("follows", ["", "another"], ids=["", "a replica connects meanwhile"])
def test_a_slow_node_is_waited_for(cluster: Cluster, follows: str) -> None:
    """It vouches in time, and until then nobody publishes. When the first replica connects, Redis takes another id."""
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    cluster.nodes[1].connector.is_cut_off = True
    cluster.redis.restart()
    cluster.advance(1.5)
    assert not cluster.nodes[0].follows
    cluster.redis.follows = follows
    cluster.nodes[1].connector.is_cut_off = False
    cluster.advance(4.0)
    assert order_of(epoch_of(cluster)) > order_of(seen.partition("-")[0])
    assert told(cluster, seen) == ["nothing"] * 2


def test_a_node_that_returns_too_late_finds_a_new_epoch(cluster: Cluster) -> None:
    """All its clients are told, once."""
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    cluster.nodes[1].connector.is_cut_off = True
    cluster.redis.restart()
    cluster.advance(VOUCH_SECONDS + 2.0)
    assert cluster.nodes[0].follows
    cluster.nodes[1].connector.is_cut_off = False
    cluster.advance(6.0)
    epoch_of(cluster)
    assert told(cluster, seen) == ["lost"] * 2
    assert told(cluster, cluster.nodes[1].cursor) == ["nothing"] * 2


def test_an_older_file(cluster: Cluster) -> None:
    """One node had applied what is missing: it says so, whatever the other believes."""
    dump = cluster.redis.dump()
    cluster.nodes[0].connector.made[-1].abort("behind")
    cluster.publish(cluster.nodes[1], "a")
    seen = cluster.nodes[1].cursor
    cluster.redis.restart(dump)
    cluster.advance(3.0)
    epoch_of(cluster)
    assert told(cluster, seen) == ["lost"] * 2


@pytest.mark.parametrize("lost", [False, True])
def test_a_replica_takes_over(cluster: Cluster, lost: bool) -> None:
    """It never counts as durable. With all entries everybody vouches; without the last one nobody can."""
    cluster.redis.info |= {"aof_enabled": "1", "second_repl_offset": "700"}
    cluster.redis.appendfsync = b"always"
    dump = cluster.redis.dump()
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    cluster.redis.restart(dump if lost else None)
    cluster.advance(3.0)
    epoch_of(cluster)
    assert told(cluster, seen) == ["lost" if lost else "nothing"] * 2


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("seen_by", ["nobody", "report", "connection", "another node"])
def test_a_replica_that_is_started_as_a_primary(declared: bool, seen_by: str, log: list[str]) -> None:
    """It looks like the server that was there before. Primary and a node are lost, and entries that only these had."""
    with cluster_of(0) as cluster, logged_at("warn") as lines:
        redis = cluster.redis
        redis.info["aof_enabled"], redis.appendfsync = "1", b"always"
        one, other = (cluster.start(redis_durable=declared) for _ in range(2))
        cluster.advance(1.0)
        if seen_by in ("connection", "another node", "report"):
            redis.info["connected_slaves"] = "1"
        if seen_by == "connection":
            redis.cut()
        cluster.advance(5.0)
        redis.info["connected_slaves"] = "0"
        dump = redis.dump()
        if seen_by == "another node":
            cluster.crash(other)
            other = cluster.start(redis_durable=declared)
            cluster.advance(1.0)
            dump = redis.dump()
        other.connector.is_cut_off = True
        for connection in other.connector.made:
            connection.abort("cut off")
        cluster.advance(0.2)
        seen = other.cursor
        cluster.publish(one, "a")
        cluster.crash(one)
        redis.restart(dump)
        other.connector.is_cut_off = False
        cluster.advance(3.0)
        trusts = declared and seen_by == "nobody"
        assert other.follows == trusts
        cluster.advance(VOUCH_SECONDS + 2.0)
        assert other.follows
        assert told(cluster, seen) == ["nothing" if trusts else "lost"], (
            "that nothing is lost is believed once declared"
        )
        assert sum("redis_durable is ignored" in line for line in lines) <= 3, "once at each node"
        assert any("redis_durable is ignored" in line for line in lines) == (declared and not trusts)
        again = redis.data[STATE].get(b"replicated")
        assert again == (None if seen_by == "nobody" else b"1"), "for good"


@pytest.mark.parametrize("leave", [True, False])
def test_a_durable_redis_needs_nobody(cluster: Cluster, leave: bool) -> None:
    """The epoch goes on with a new node only, and has a new name all the same.

    At once if every node had left in good order, and otherwise when they have had time to start again.
    """
    cluster.redis.info["aof_enabled"] = "1"
    cluster.redis.appendfsync = b"always"
    cluster.publish(cluster.nodes[0], "a")
    before = cluster.nodes[0].state.cursor
    for node in list(cluster.nodes):
        if leave:
            cluster.leave(node)
        else:
            cluster.crash(node)
    cluster.redis.restart()
    new = cluster.start()
    cluster.advance(0.5)
    assert new.follows == leave
    cluster.advance(VOUCH_SECONDS + 3.0)
    assert order_of(epoch_of(cluster)) > order_of(before.epoch)
    assert told(cluster, str(before)) == ["nothing"]
    assert told(cluster, f"{before.epoch}-{before.sequence + 1}") == ["lost"]


def test_a_new_node_waits_for_those_that_know(cluster: Cluster) -> None:
    """It cannot vouch, and starts from the checkpoint when the others have gone on."""
    cluster.publish(cluster.nodes[0], "a")
    for node in cluster.nodes:
        node.connector.is_cut_off = True
    cluster.redis.restart()
    new = cluster.start()
    cluster.advance(1.5)
    assert not new.follows
    for node in cluster.nodes:
        node.connector.is_cut_off = False
    cluster.advance(4.0)
    epoch_of(cluster)
    assert ids(new.poll(poll("a"))) == [1]


def test_vouchers_of_an_earlier_run_do_not_count(cluster: Cluster) -> None:
    """Redis restarts again while a node waits for the other, and then that one waits for the first."""
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    first, second = cluster.nodes
    second.connector.is_cut_off = True
    cluster.redis.restart()
    cluster.advance(0.5)
    assert b"node0" in cluster.redis.data[b"{pushup}:5:vouchers"]
    cluster.crash(first)
    second.connector.is_cut_off = False
    cluster.redis.restart()
    cluster.advance(VOUCH_SECONDS - 0.5)
    assert b"node0" in cluster.redis.data[b"{pushup}:5:vouchers"]
    assert not second.follows
    cluster.advance(5.0)
    assert told(cluster, seen) == ["lost"]


# Several nodes decide at the same time.


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_nodes_that_go_on_one_names_the_epoch(cluster: Cluster, first: int) -> None:
    """Whatever the order of their requests: there is one new name, and nothing is appended twice."""
    cluster.publish(cluster.nodes[0], "a")
    seen = cluster.nodes[0].cursor
    cluster.redis.restart()
    while cluster.redis.data[STATE][b"run"].decode() != cluster.redis.whole_run:
        cluster.clock.advance(0.05)
        for _ in range(50):
            links = list(cluster.redis.links)
            for link in links if first == 0 else reversed(links):
                link.execute_next()
            for link in links:
                link.deliver()
    cluster.advance(2.0)
    assert epoch_of(cluster) == cluster.redis.data[STATE][b"epoch"].decode()
    assert len(cluster.nodes[0].state.past_epochs.all) == 1
    assert cluster.nodes[0].state.cursor.sequence == 2
    assert told(cluster, seen) == ["nothing"] * 2


def test_a_node_that_has_not_read_the_new_name_yet(cluster: Cluster) -> None:
    """It is not disturbed, refuses what it cannot place, and goes on when it reads the entry; its polls stay."""
    cluster.publish(cluster.nodes[0], "a")
    late = cluster.nodes[1]
    seen = late.state.cursor
    held = late.hold(poll("a", cursor=str(seen), timeout=60.0))
    blind(cluster, late)
    new = next_epoch(seen.epoch, cluster.clock.seconds(), lambda: 0.0, "")
    cluster.redis.run_script(
        "switch",
        (STATE, b"{pushup}:5:log", b"{pushup}:5:vouchers"),
        (b"node0.1", b"s", b'{"type":"continue","epoch":"%s"}' % new.encode(), b"epoch", new.encode()),
    )
    cluster.advance(1.0)
    assert (cluster.nodes[0].state.cursor, late.state.cursor) == (Cursor(new, 2), seen)
    refused = late.append(publish("a"))
    cluster.settle()
    assert "new epoch" in str(refused[0])
    cluster.advance(8.0)
    assert epoch_of(cluster) == new
    assert held.answers == []
    cluster.publish(cluster.nodes[0], "a")
    assert [ids(answer) for answer in held.answers] == [[3]]


# What a node reads, what it begins with, and what it logs.


def test_a_node_that_reconnects_reads_on(cluster: Cluster) -> None:
    cluster.publish(cluster.nodes[0], "a")
    cluster.redis.executed.clear()
    cluster.redis.cut()
    cluster.advance(2.0)
    epoch_of(cluster)
    assert b"HSCAN" not in cluster.redis.executed


def test_a_log_that_is_lost_while_a_node_is_about_to_load_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to load then, so an epoch begins."""
    before = cluster.nodes[0].state.cursor.epoch
    cluster.end()
    load = SCRIPTS[3].sha.encode()
    carry_out, times = cluster.redis.scripts[load], itertools.count()

    def lose_first(*arguments: Any) -> Any:
        if next(times) == 0:
            cluster.redis.data.clear()
        return carry_out(*arguments)

    monkeypatch.setitem(cluster.redis.scripts, load, lose_first)
    with logged_at("critical") as lines:
        cluster.start()
        cluster.advance(1.0)
    assert lines == []
    assert epoch_of(cluster) != before


@pytest.mark.parametrize("how", ["cannot be read", "fails"])
def test_a_new_epoch_begins_with_the_channels_before_an_entry_that_is_no_good(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nobody can vouch for the log after a restart. What follows that entry is not known."""
    node = cluster.nodes[0]
    for name in ("a", "b", "c"):
        cluster.do(node, Create(name, 5000.0))
    cluster.end()
    if how == "cannot be read":
        cluster.redis.data[b"{pushup}:5:log"].rows[1][1][7] = b'{"type":'
    else:
        apply = ReplicatedState.apply

        def failing(state: ReplicatedState, entry: Entry) -> Outcome:
            if entry.sequence == 2:
                raise RuntimeError("this entry is no good")
            return apply(state, entry)

        monkeypatch.setattr(ReplicatedState, "apply", failing)
    cluster.redis.restart()
    new = cluster.start()
    cluster.advance(VOUCH_SECONDS + 2.0)
    assert epoch_of(cluster) != node.state.cursor.epoch
    assert [channel.name for channel in new.node.channels(0, 9)] == ["a"]


def test_a_new_epoch_goes_on_with_the_time_and_the_ids_of_channels(cluster: Cluster) -> None:
    """Messages are never older than the ones before, although Redis was set back, and no id is given twice."""
    node = cluster.nodes[0]
    named = cluster.do(node, Create("a", 5000.0))
    assert isinstance(named, ChannelState)
    before = cluster.publish(node, "a").time
    cluster.redis.skew = -3600.0
    cluster.redis.data.clear()
    cluster.advance(3.0)
    epoch_of(cluster)
    another = cluster.do(node, Create("b", 5000.0))
    assert isinstance(another, ChannelState)
    assert (node.node.channel("a").id, another.id > named.id) == (named.id, True)
    assert cluster.publish(node, "a").time >= before


def test_what_becomes_of_an_epoch_is_logged(cluster: Cluster) -> None:
    """That it goes on under another name, and that another begins, by the node that sees to it; with the reason."""
    names = [cluster.nodes[0].state.cursor.epoch]
    with logged_at("info") as lines:
        cluster.redis.restart()
        cluster.advance(3.0)
    names.append(epoch_of(cluster))
    (line,) = [line for line in lines if "continues as" in line]
    assert line.endswith(f"; epoch {names[0]} continues as {names[1]} (cursors stay valid)")
    with logged_at("warn") as lines:
        cluster.redis.data.clear()
        cluster.advance(3.0)
    (line,) = [line for line in lines if "begins" in line]
    assert line.endswith(f"; epoch {epoch_of(cluster)} begins, and gaps are reported to subscribers")


def test_following_the_log_is_logged_at_first(cluster: Cluster) -> None:
    """Later it is the end of an outage."""
    with logged_at("info") as lines:
        node = cluster.start()
    assert lines == [f"following the log in Redis from {node.cursor}; the master is Redis"]
    with logged_at("info") as lines:
        cluster.redis.cut()
        cluster.advance(2.0)
    assert [line.partition(";")[0] for line in lines] == ["publishing works again"] * 3


def test_another_redis_is_logged_once(cluster: Cluster) -> None:
    """Each node says which it follows after a restart or a failover; no more when it only reconnects."""
    with logged_at("info") as lines:
        cluster.redis.restart()
        cluster.advance(3.0)
        cluster.redis.cut()
        cluster.advance(3.0)
    assert [line.partition("; ")[2] for line in lines if line.startswith("following")] == ["the master is Redis"] * 2


# Idempotency keys.


def test_a_node_that_dies_with_redis_costs_no_key(cluster: Cluster) -> None:
    """Redis has lost nothing, and nobody can prove it: an epoch begins, and nothing is published a second time."""
    first = cluster.publish(cluster.nodes[0], "a", key="k")
    seen = cluster.nodes[0].cursor
    cluster.crash(cluster.nodes[1])
    cluster.redis.restart()
    cluster.advance(VOUCH_SECONDS + 4.0)
    assert told(cluster, seen) == ["lost"]
    assert cluster.publish(cluster.nodes[0], "a", key="k") == first
    new = cluster.start()
    assert cluster.publish(new, "a", key="k") == first
    assert new.state.message_count == 0


def test_the_keys_of_a_node_and_of_the_log_are_kept(cluster: Cluster) -> None:
    """Also if they have the same sequences, because Redis has lost the end of the log and got another one."""
    node = cluster.nodes[0]
    cluster.publish(node, "a", key="before")
    cluster.advance(2.0)
    dump = cluster.redis.dump()
    lost = [cluster.publish(node, "a", key=f"lost{n}") for n in range(3)]
    for each in cluster.nodes:
        each.connector.is_cut_off = True
    cluster.redis.restart(dump)
    state = cluster.redis.data[STATE]
    for n in range(2):
        cluster.redis.append(state[b"epoch"], b"s%d" % n, publish("a", key=f"other{n}"))
    for each in cluster.nodes:
        each.connector.is_cut_off = False
    cluster.advance(10.0)
    epoch = epoch_of(cluster)
    new = cluster.start()
    for each in (node, new):
        names = [f"lost{n}" for n in range(3)] + [f"other{n}" for n in range(2)]
        found = {name: each.state.keys.row(name) for name in ["before", *names]}
        assert all(found.values())
        assert found["other0"].sequence == found["lost0"].sequence  # type: ignore[union-attr]
        assert cluster.publish(each, "a", key="lost2") == lost[2]
    assert cluster.publish(new, "a").sequence > lost[2].sequence
    cluster.advance(3.0)
    assert epoch_of(cluster) == epoch


def test_many_keys_are_kept_in_pieces(cluster: Cluster) -> None:
    """Each is sent in its turn, and all are there before the epoch begins."""
    node = cluster.nodes[0]
    outcomes = [node.append(publish("a", key=f"k{n}")) for n in range(3 * PIECE_OF_EPOCH // 2)]
    cluster.advance(2.0)
    cluster.redis.data.clear()
    cluster.advance(5.0)
    epoch_of(cluster)
    new = cluster.start()
    assert new.state.keys.names() == node.state.keys.names() == [f"k{n}" for n in range(3 * PIECE_OF_EPOCH // 2)]
    assert cluster.publish(new, "a", key="k700") == outcomes[700][0]


def test_a_refused_publication_does_not_succeed_later(log: list[str]) -> None:
    """A part of the checkpoint is missing, and with a channel less there would have been room for it."""
    with cluster_of(1, channels_limit=1) as cluster:
        node = cluster.nodes[0]
        cluster.publish(node, "a", key="saved")
        cluster.advance(2.5)
        assert isinstance(cluster.do(node, publish("b", key="refused")), Overloaded)
        cluster.crash(node)
        del cluster.redis.data[b"{pushup}:5:rows"]
        new = cluster.start()
        cluster.advance(2.0)
        assert cluster.publish(new, "b", key="refused").epoch == epoch_of(cluster) != node.state.cursor.epoch


# The mark.


def start_on(cluster: Cluster, disk: Disk) -> FollowingNode:
    """Start a node on a machine with this disk."""
    return cluster.start(progress_mark=ProgressMark(disk, AtOnce(), cluster.clock))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def durable(log: list[str]) -> Iterator[Cluster]:
    """A Redis that syncs each write, and no node yet."""
    cluster = Cluster()
    cluster.redis.info["aof_enabled"] = "1"
    cluster.redis.appendfsync = b"always"
    yield cluster
    cluster.end()


@pytest.mark.parametrize("ends", ["stop", "crash"])
def test_redis_was_put_back_while_no_node_was_running(durable: Cluster, disk: Disk, ends: str) -> None:
    """It says that it is durable, but the mark is ahead: everybody is told, and no id is used twice."""
    node = start_on(durable, disk)
    durable.publish(node, "a")
    durable.advance(MARK_SECONDS + 0.1)
    dump = durable.redis.dump()
    cursor = str(Cursor(durable.publish(node, "a").epoch, 2))
    durable.advance(MARK_SECONDS + 0.1)
    if ends == "crash":
        durable.crash(node)
    else:
        durable.leave(node)
    assert str(msgspec.json.decode(disk.data or b"", type=Mark)) == str(node.state.cursor)
    durable.redis.restart(dump)
    again = start_on(durable, disk)
    assert order_of(epoch_of(durable)) > order_of(node.state.cursor.epoch)
    assert told(durable, cursor) == ["lost"]
    assert durable.publish(again, "a").epoch != node.state.cursor.epoch


def test_a_node_that_has_only_loaded_the_log_has_a_mark(durable: Cluster, disk: Disk) -> None:
    """Its clients may have read everything, although it has applied no entry since it started."""
    first = durable.start()
    dump = durable.redis.dump()
    durable.publish(first, "a")
    durable.advance(2.0)  # the checkpoint has the entry
    node = start_on(durable, disk)
    durable.advance(MARK_SECONDS + 0.1)
    seen = node.cursor
    assert str(msgspec.json.decode(disk.data or b"", type=Mark)) == str(node.state.cursor)
    for each in (first, node):
        durable.crash(each)
    durable.redis.restart(dump)
    start_on(durable, disk)
    assert told(durable, seen) == ["lost"]


def test_a_node_that_stops_writes_its_mark(durable: Cluster, disk: Disk) -> None:
    """It does not wait until that is due."""
    node = start_on(durable, disk)
    durable.advance(MARK_SECONDS + 0.1)
    for _ in range(2):  # the first one is written at once
        durable.publish(node, "a")
    durable.leave(node)
    assert str(msgspec.json.decode(disk.data or b"", type=Mark)) == str(node.state.cursor)


def test_a_node_that_crashes_writes_nothing_more(durable: Cluster, disk: Disk) -> None:
    node = start_on(durable, disk)
    durable.advance(MARK_SECONDS + 0.1)
    for _ in range(2):  # the first one is written at once
        durable.publish(node, "a")
    written = disk.data
    durable.crash(node)
    durable.advance(2 * MARK_SECONDS)
    assert disk.data == written


def test_a_node_that_does_not_know_its_state_goes_by_its_mark(durable: Cluster, disk: Disk, log: list[str]) -> None:
    """It has failed within an entry. Nothing says that the log has lost that: the order goes on."""
    before = start_on(durable, disk)
    durable.publish(before, "a")
    durable.leave(before)
    node = start_on(durable, disk)
    epoch = epoch_of(durable)
    node.fail_once()
    node.append(publish("a"))
    durable.advance(3.0)
    assert epoch_of(durable) == epoch


@pytest.mark.parametrize("digits", [10, 14])
def test_a_new_epoch_is_later_than_the_mark(durable: Cluster, disk: Disk, digits: int) -> None:
    """Whose name was given by a clock that was far ahead, or is one of a release before, which were shorter."""
    disk.data = mark("1" + digits * "0" + "00", 7)
    node = start_on(durable, disk)
    assert order_of(node.state.cursor.epoch) > order_of("1" + digits * "0" + "00")


def test_without_a_mark_nobody_can_know(durable: Cluster) -> None:
    """The same without a mark, or if it was put back as well. A later entry is told from an earlier one by its name."""
    node = durable.start()
    durable.publish(node, "a")
    dump = durable.redis.dump()
    durable.publish(node, "a")
    seen = node.cursor
    durable.crash(node)
    durable.redis.restart(dump)
    again = durable.start()
    durable.advance(VOUCH_SECONDS + 3.0)
    durable.publish(again, "a")
    assert told(durable, seen) == ["lost"]
    assert told(durable, seen.replace("-2", "-1")) == ["nothing"]


def mark(epoch: str, sequence: int) -> bytes:
    return msgspec.json.encode(Cursor(epoch, sequence))


@pytest.mark.parametrize(
    ("place", "expected"),
    [("at the end", "nothing"), ("past its former name", "lost"), ("at its former name", "nothing"), ("later", "lost")],
)
def test_what_a_mark_tells_a_new_node(durable: Cluster, disk: Disk, place: str, expected: str) -> None:
    """Redis was restarted twice: the log has a former name, which ended at 1."""
    node = durable.start()
    first = durable.publish(node, "a").epoch
    durable.redis.restart()
    durable.advance(2.0)
    end = node.state.cursor
    durable.crash(node)
    durable.redis.restart()
    disk.data = {
        "at the end": mark(end.epoch, end.sequence),
        "past its former name": mark(first, 2),
        "at its former name": mark(first, 1),
        "later": mark("f" * 18, 1),
    }[place]
    start_on(durable, disk)
    durable.advance(VOUCH_SECONDS + 3.0)
    assert told(durable, str(end)) == [expected]
    assert order_of(epoch_of(durable)) > order_of("f" * 18 if place == "later" else end.epoch)


def test_an_unreadable_mark_is_reported_and_ignored(durable: Cluster, disk: Disk, logged_failures: list[str]) -> None:
    node = durable.start()
    durable.publish(node, "a")
    seen = node.cursor
    durable.crash(node)
    disk.data = b"{"
    start_on(durable, disk)
    assert told(durable, seen) == ["nothing"]
    assert ["cannot read the mark" in line for line in logged_failures] == [True]


def test_a_node_whose_mark_is_older_waits_for_the_others(durable: Cluster) -> None:
    """It starts first and finds nothing missing. Nobody reads past the hole there before the other one starts."""
    disks = Disk(), Disk()
    for each in disks:
        start_on(durable, each)
    durable.publish(durable.nodes[0], "a")
    durable.advance(0.5)  # both have reported
    dump, before = durable.redis.dump(), durable.nodes[0].cursor
    durable.advance(MARK_SECONDS + 0.1)
    older = disks[0].data
    durable.publish(durable.nodes[0], "a")
    durable.advance(MARK_SECONDS + 0.1)
    durable.end()
    disks[0].data = older
    durable.redis.restart(dump)
    start_on(durable, disks[0])
    durable.advance(3.0)
    assert not durable.nodes[0].follows
    start_on(durable, disks[1])
    durable.advance(3.0)
    assert told(durable, before) == ["lost"] * 2


def test_one_machine_with_a_mark_is_enough(durable: Cluster, disk: Disk) -> None:
    """Whichever node starts first, the one with the mark ends the epoch, and the other follows."""
    for order in itertools.permutations([disk, Disk()]):
        first = start_on(durable, disk)
        durable.publish(first, "a")
        dump = durable.redis.dump()
        durable.publish(first, "a")
        seen = first.cursor
        durable.advance(MARK_SECONDS + 0.1)
        durable.end()
        durable.redis.restart(dump)
        for each in order:
            start_on(durable, each)
        durable.advance(3.0)
        epoch_of(durable)
        assert told(durable, seen) == ["lost"] * 2
        durable.end()
        for each in order:
            each.data = None
        durable.redis.data.clear()
        durable.clock.advance(1.0)
