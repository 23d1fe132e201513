"""Several servers with one Redis act as one; and what happens when Redis or servers stop, hang, or lose data."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.caller import Caller, data_of, gaps_of, poll_path
from tests.server.certificates import write_certificate
from tests.server.command_line import run
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_cluster import (
    Chain,
    RedisCluster,
    cluster_at,
    place,
    poll_in_the_end,
    publish_in_the_end,
    try_to_publish,
)
from tests.server.redis_server import RedisServer, free_port
from tests.server.server_process import Server, wait_until
from tests.server.slow_proxy import SlowProxy

STRANGER = {"X-Forwarded-For": "192.0.2.7"}
"""The header that a proxy adds to the request of a remote client."""

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}

KEYS = ("state", "log", "rows", "leases", "members")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three nodes with one Redis; a test that breaks it repairs it."""
    directory = tmp_path_factory.mktemp("cluster")
    with RedisServer(directory / "redis") as redis, cluster_at(redis, directory, 3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RedisCluster) -> RedisCluster:
    """The shared cluster, in working order."""
    for caller in shared.callers:
        caller.close()  # it is opened again; a node may have closed it while tests had clusters of their own
    shared.wait_until_ready()
    shared.wait_until_publishing()
    return shared


def epoch_of(cursor: str) -> str:
    return cursor.rpartition("-")[0]


UNKNOWN = "may or may not have been published"
"""The error of a publication that waited for Redis until the timeout, rather than being refused at once."""


def refused(caller: Caller, channel: str) -> str:
    """Publish, which must fail; the reply says when to retry, but not to remote clients where Redis is. Returns why."""
    reply = caller.call("POST", "/v1/messages", {"channels": [channel], "data": "refused"}, STRANGER)
    assert reply.status == 503, reply
    assert int(reply.headers["Retry-After"]) >= 1
    assert "127.0.0.1" not in reply.text
    detail: str = reply.value["detail"]
    return detail


# Everything works.


def test_every_cursor_is_valid_at_every_node(cluster: RedisCluster, channel: str) -> None:
    """Nodes are called in turn; a cursor gets the same answer everywhere, and a chain gets all messages in order."""
    chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
    published = [cluster.publish([channel, f"{channel}-{n % 3}"], n) for n in range(30)]
    chain.poll_until(29)
    assert chain.data == list(range(30))
    assert chain.gaps == []
    cluster.wait_until_one()
    for message in published[::3]:
        answers = [caller.poll(channel, cursor=message["cursor"], timeout=0) for caller in cluster.callers]
        assert answers[0] == answers[1] == answers[2]
    assert [place(message["id"]) for message in published] == sorted(place(message["id"]) for message in published)


def test_a_publication_reaches_polls_held_at_any_node(cluster: RedisCluster, channel: str) -> None:
    """At each node; a node asked with a cursor that it has not reached yet waits for it."""
    start = cluster.wait_until_one()
    for n in range(10):
        for caller in cluster.callers:
            caller.begin_poll(channel, cursor=start, timeout=10)
        with cluster.nodes[n % 3].caller() as publisher:
            start = publisher.publish([channel], n)["cursor"]
        for caller in cluster.callers:
            answer = caller.answer()
            assert data_of(answer) == [n]
            assert answer["cursor"] == start


def test_one_key_publishes_once_in_the_whole_cluster(cluster: RedisCluster, channel: str) -> None:
    """All requests with one key, at any node and concurrently, get the same response, and there is one message."""
    body = {"channels": [channel], "data": 1}
    for n in range(5):
        for caller in cluster.callers:
            caller.begin("POST", "/v1/messages", body, {"Idempotency-Key": f"{channel}-{n}"})
        replies = [caller.finish() for caller in cluster.callers]
        assert [reply.status for reply in replies] == [201, 201, 201]
        assert replies[0].value == replies[1].value == replies[2].value
    assert data_of(cluster.next().poll(channel, timeout=0)) == [1] * 5


def test_channels_are_shared_by_all_nodes(cluster: RedisCluster, channel: str) -> None:
    """Created at one node, it is open at all with one id; closed at another, its subscribers at the third are told."""
    first, second, third = cluster.callers
    made = first.call("POST", "/v1/channels", {"name": channel, "ttl": 100}).value
    cluster.wait_until_one()
    assert second.call("POST", "/v1/channels", {"name": channel}).status == 409
    assert third.call("GET", f"/v1/channels/{made['id']}").value["name"] == channel
    third.begin_poll(channel, cursor=third.cursor(), timeout=10)
    assert second.call("DELETE", f"/v1/channels/{channel}").status == 204
    assert third.answer()["closed"] == [channel]


def test_the_nodes_are_listed(cluster: RedisCluster) -> None:
    """Each node lists all of them: names, addresses, how far they have applied the log, and held polls."""
    cursor = cluster.wait_until_one()
    with cluster.nodes[1].caller() as other:
        other.begin_poll("nobody publishes here", cursor="now", timeout=20)
        cluster.nodes[1].wait_for_held(1)

        def listed() -> bool:
            lists = [caller.call("GET", "/v1/nodes").value["nodes"] for caller in cluster.callers]
            shown = [
                sorted((n["name"], n["addresses"], n["cursor"], n["held_polls"]) for n in nodes) for nodes in lists
            ]
            wanted = [(f"node{n}", [node.address], cursor, int(n == 1)) for n, node in enumerate(cluster.nodes)]
            return shown == [wanted] * 3

        wait_until(listed, "the nodes to be listed")


def test_a_killed_node_is_listed_until_its_lease_ends_and_a_stopped_one_is_not(cluster: RedisCluster) -> None:
    """After `kill -9`, it is gone when its lease ends; after SIGTERM, when the process ends."""
    with ExitStack() as stack:
        killed, stopped = (
            RedisCluster(cluster.redis, cluster.directory / name, stack) for name in ("killed", "stopped")
        )
        for one in (killed, stopped):
            one.directory.mkdir()
            one.start(node_name=one.directory.name)

        def names() -> list[str]:
            return sorted(node["name"] for node in cluster.callers[0].call("GET", "/v1/nodes").value["nodes"])

        everybody = ["killed", "node0", "node1", "node2", "stopped"]
        wait_until(lambda: names() == everybody, "all to be listed")
        stopped.stop(0)
        assert cluster.redis.ask("ZCARD", "{pushup}:5:leases") == 4
        wait_until(lambda: names() == ["killed", "node0", "node1", "node2"], "who stopped to be gone")
        leases = cluster.redis.ask("ZRANGE", "{pushup}:5:leases", 0, -1, "WITHSCORES")
        killed.nodes[0].signal(signal.SIGKILL)
        wait_until(lambda: names() == ["node0", "node1", "node2"], "who was killed to be gone")
        now = int(cluster.redis.ask("TIME")[0]) + 1
        assert now >= min(float(end) for end in leases[1::2])
        assert stopped.trouble() == []


# Acknowledgements.


def test_stable_is_when_all_nodes_have_it(cluster: RedisCluster, channel: str) -> None:
    """The response says how many nodes; by then, each of them has the message."""
    wait_until(lambda: len(cluster.callers[0].call("GET", "/v1/nodes").value["nodes"]) == 3, "three nodes")
    reply = try_to_publish(cluster.callers[0], [channel], 1, ack="stable")
    assert (reply.status, reply.value["ack"], reply.value["nodes"]) == (201, "stable", 3)
    assert [data_of(caller.poll(channel, timeout=0)) for caller in cluster.callers] == [[1]] * 3


def test_stable_is_not_claimed_while_a_node_is_suspended(cluster: RedisCluster, channel: str) -> None:
    """After the timeout given by the publisher, it is "accepted"; later, without that node, it is stable."""
    cluster.nodes[2].signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        reply = try_to_publish(cluster.callers[0], [channel], 1, ack="stable", ack_timeout=0.7)
        assert time.monotonic() - began > 0.6
        assert (reply.status, reply.value["ack"]) == (201, "accepted")
        reply = try_to_publish(cluster.callers[1], [channel], 2, ack="stable", ack_timeout=10)
        assert (reply.value["ack"], reply.value["nodes"]) == ("stable", 2)
    finally:
        cluster.nodes[2].signal(signal.SIGCONT)
    cluster.wait_until_publishing()
    assert data_of(cluster.callers[2].poll(channel, timeout=0)) == [1, 2]


def test_stable_does_not_count_a_node_suspended_in_the_previous_epoch(cluster: RedisCluster, channel: str) -> None:
    """However far it was in the old epoch, it has not applied the messages of the new one; `stable` never counts it."""
    for n in range(20):
        cluster.publish([channel], n)
    epoch = epoch_of(cluster.wait_until_one())
    cluster.nodes[2].signal(signal.SIGSTOP)
    try:
        cluster.redis.ask("DEL", "{pushup}:5:state")
        told: list[Any] = []
        now = cluster.callers[0]
        wait_until(lambda: epoch not in now.call("GET", "/v1/cursor").value.get("cursor", epoch), "a new epoch")
        while not told or told[-1]["ack"] != "stable":
            reply = try_to_publish(cluster.callers[0], [channel], len(told), ack="stable", ack_timeout=1)
            if reply.status == 201:
                told.append(reply.value)
        assert told[-1]["nodes"] == 2
    finally:
        cluster.nodes[2].signal(signal.SIGCONT)
    cluster.wait_until_publishing()


def test_replicated_is_not_claimed_without_a_replica(cluster: RedisCluster, channel: str) -> None:
    """After the timeout given by the publisher, it is "accepted", and the message is published."""
    began = time.monotonic()
    reply = try_to_publish(cluster.callers[0], [channel], 1, ack="replicated", ack_timeout=0.5)
    assert time.monotonic() - began > 0.4
    assert (reply.status, reply.value["ack"]) == (201, "accepted")
    assert data_of(cluster.callers[0].poll(channel, timeout=0)) == [1]


def test_replicated_is_when_a_replica_has_it(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """The response says how many replicas have it, and they do; a replica that is suspended does not count."""
    redis.start()
    replica = RedisServer(tmp_path / "replica", flags={"replicaof": f"127.0.0.1 {redis.port}"})
    with replica, cluster_at(redis, tmp_path, 1) as cluster:
        wait_until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"), "the replica")
        reply = try_to_publish(cluster.callers[0], [channel], 1, ack="replicated")
        assert (reply.value["ack"], reply.value["replicas"]) == ("replicated", 1)
        assert replica.ask("XLEN", "{pushup}:5:log") == 1
        replica.signal(signal.SIGSTOP)
        reply = try_to_publish(cluster.callers[0], [channel], 2, ack="replicated", ack_timeout=0.5)
        assert (reply.status, reply.value["ack"]) == (201, "accepted")
        replica.signal(signal.SIGCONT)


def test_a_first_replica_costs_no_gap(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """Redis takes another replication id when it connects. Nodes that publish nothing notice that as well."""
    redis.start()
    replica = RedisServer(tmp_path / "replica", flags={"replicaof": f"127.0.0.1 {redis.port}"})
    with cluster_at(redis, tmp_path, 3) as cluster:
        chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
        cluster.publish([channel], "before")
        with replica:
            wait_until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"), "the replica")
            publisher = cluster.callers[0]
            wait_until(lambda: try_to_publish(publisher, [channel], "after", key="k").status == 201, "publishing")
            chain.poll_until("after")
        assert (chain.data, chain.gaps) == (["before", "after"], [])


# Redis is gone for a while, and returns with all its data.


def test_while_redis_is_gone_polls_wait_and_publishing_is_refused(cluster: RedisCluster, channel: str) -> None:
    """503 at once with a reason, cached messages are served, held polls wait; then all resume in the same epoch."""
    start = cluster.wait_until_one()
    chain = Chain(cluster, channel, cursor=start)
    cluster.publish([channel], "before")
    dump = cluster.redis.dump()
    cluster.wait_until_one()
    held = [node.caller() for node in cluster.nodes]
    for caller in held:
        caller.begin_poll(channel, cursor=cluster.cursors()[0], timeout=20)
    cluster.redis.kill()
    for caller in cluster.callers:
        wait_until(lambda c=caller: try_to_publish(c, [channel], "refused").status == 503, "refusal")  # type: ignore[misc]
        assert UNKNOWN not in refused(caller, channel)
        assert data_of(caller.poll(channel, cursor=start, timeout=5)) == ["before"]
        assert caller.call("GET", "/healthz").status == 200
    cluster.redis.roll_back(dump)
    publish_in_the_end(cluster.callers[0], [channel], "after")
    for caller in held:
        answer = caller.answer()
        assert "after" in data_of(answer)
        assert answer["gaps"] == []
        caller.close()
    chain.poll_until("after")
    assert chain.data == ["before", "after"]
    assert chain.gaps == []
    cluster.wait_until_publishing()
    for node in cluster.nodes:
        assert any("publishing works again; it was refused for " in line for line in node.log_lines())


def test_a_redis_that_hangs_is_seen_by_readyz_and_publishers(cluster: RedisCluster, channel: str) -> None:
    """After the timeout, publishers are told that the outcome is unknown; then nodes are not ready; held polls wait."""
    start = cluster.wait_until_one()
    with cluster.nodes[1].caller() as held:
        held.begin_poll(channel, cursor=start, timeout=20)
        cluster.redis.signal(signal.SIGSTOP)
        try:
            assert cluster.ready(0)
            assert UNKNOWN in refused(cluster.callers[0], channel)
            wait_until(lambda: not any(cluster.ready(n) for n in range(3)), "all to be not ready")
            assert data_of(cluster.callers[2].poll(channel, cursor=start, timeout=0.5)) == []
            refused(cluster.callers[2], channel)
        finally:
            cluster.redis.signal(signal.SIGCONT)
        cluster.wait_until_ready()
        cluster.wait_until_publishing()
        cluster.publish([channel], "after")
        answer = held.answer()
        assert answer["gaps"] == []
        assert data_of(answer)[0] in ("refused", "after")
    assert epoch_of(cluster.wait_until_one()) == epoch_of(start)


def test_publications_waiting_for_a_hung_redis_are_bounded(
    redis: RedisServer, tmp_path: Path, channel: str, stack: ExitStack
) -> None:
    """The limit counts bytes: beyond it, publishers get 503 at once; when Redis resumes, those that waited succeed."""
    limit = 16 * 1024 * 1024
    redis.start()
    body = {"messages": [{"channels": [channel], "data": "x" * 62_000} for _ in range(16)]}
    settings = {"redis_timeout_seconds": 60.0, "waiting_limit_bytes": limit}
    with cluster_at(redis, tmp_path, 1, **settings) as cluster:
        server = cluster.nodes[0]
        before = server.memory_bytes
        redis.signal(signal.SIGSTOP)
        waiting = [stack.enter_context(server.caller()) for _ in range(16)]
        for caller in waiting:
            caller.begin("POST", "/v1/messages", body)
        wait_until(lambda: server.metric("waiting_bytes") > limit - 1_000_000, "all to wait")
        for _ in range(60):
            with server.caller() as caller:
                reply = caller.call("POST", "/v1/messages", body)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert "waiting_limit_bytes" in reply.value["detail"]
        assert server.metric("waiting_bytes") <= limit
        assert server.memory_bytes - before < 2 * limit
        redis.signal(signal.SIGCONT)
        assert [caller.finish().status for caller in waiting] == [201] * 16
        # Publishers are answered when entries are read back, which may be before the replies to the appends come.
        wait_until(lambda: server.metric("waiting_bytes") == 0, "nothing to wait")
        cluster.wait_until_ready()


def test_closed_connections_are_reopened(cluster: RedisCluster, channel: str) -> None:
    """All connections are closed repeatedly during publications: none is lost, none arrives twice."""
    chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
    accepted: list[int] = []
    for n in range(60):
        if n >= 12 and accepted:
            break
        if n % 3 == 0 and n < 12:  # on a busy machine, nodes may take longer than this to connect again
            cluster.redis.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        if try_to_publish(cluster.next(), [channel], n).status == 201:
            accepted.append(n)
        else:
            time.sleep(0.1)
    cluster.wait_until_publishing()
    cluster.publish([channel], "last")
    chain.poll_until("last")
    assert accepted
    assert set(accepted) <= set(chain.data)
    assert chain.gaps == []


def test_a_full_redis_refuses_publications_and_polls_continue(cluster: RedisCluster, channel: str) -> None:
    """503 with the reason, until there is memory again; nodes that refuse are not ready; nothing is lost."""
    chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
    cluster.publish([channel], "before")
    cluster.redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        assert "the message log refused this" in refused(cluster.callers[0], channel)
        time.sleep(1.0)  # nodes report, and one of them saves
        assert "the message log refused this" in refused(cluster.callers[1], channel)
        chain.poll_until("before")
        assert not any(cluster.ready(n) for n in range(2))  # the third one has refused nothing
        assert len(cluster.callers[0].call("GET", "/v1/nodes").value["nodes"]) == 3
        full = [line for node in cluster.nodes[:2] for line in node.log_lines() if "Redis: OOM" in line]
        assert len(full) == 2  # once at each that was published to
    finally:
        cluster.redis.ask("CONFIG", "SET", "maxmemory", "0")
    cluster.wait_until_ready()  # without a publication
    for caller in cluster.callers:
        caller.publish([f"{channel} other"], "again")
    for node in cluster.nodes[:2]:
        # Perhaps not there yet: a publisher is told when its entry is read back, and that may be before the reply to
        # the append comes, on another connection.
        wait_until(lambda n=node: any(map(_tells_the_end, n.log_lines())), "the end to be logged")  # type: ignore[misc]
    cluster.publish([channel], "after")
    chain.poll_until("after")
    assert (chain.data, chain.gaps) == (["before", "after"], [])


def _tells_the_end(line: str) -> bool:
    """Whether a node logs here that a full Redis has room again."""
    return "it was refused for" in line and "OOM" in line


def test_a_node_behind_a_slow_link_loads_for_longer_than_the_timeout(
    redis: RedisServer, tmp_path: Path, channel: str
) -> None:
    """16 MB at 4 MB per second, with a timeout of one second; then it follows, and publishes as much over that link."""
    redis.start()
    with cluster_at(redis, tmp_path, 1) as cluster, SlowProxy(redis.port, 4_000_000) as link:
        body = {"messages": [{"channels": [channel], "data": "x" * 65_000} for _ in range(16)]}
        for _ in range(16):
            assert cluster.callers[0].call("POST", "/v1/messages", body).status == 201
        cluster.start(f"redis://127.0.0.1:{link.port}", ready=False, redis_timeout_seconds=1.0)
        wait_until(lambda: cluster.ready(1), "the node to have loaded all", 30.0)
        cluster.wait_until_one()
        assert cluster.nodes[1].metric("cached_messages") == 256
        with ExitStack() as stack:
            callers = [stack.enter_context(cluster.nodes[1].caller()) for _ in range(3)]
            for caller in callers:
                caller.begin("POST", "/v1/messages", body)
            assert {caller.finish().status for caller in callers} <= {201, 503}
        cluster.wait_until_publishing()
        assert not any("no reply" in line or "given up" in line for line in cluster.nodes[1].log_lines())


# Redis comes back, and has lost something.


@pytest.mark.parametrize("how", ["older dump", "flush", "state", "log", "rows"])
def test_every_node_reports_what_redis_has_lost_as_a_gap(cluster: RedisCluster, channel: str, how: str) -> None:
    """In a new epoch, the loss is reported once, whichever node is asked; new messages arrive, none repeats."""
    before = cluster.next().publish([channel], "before", key=channel)
    dump = cluster.redis.dump() if how == "older dump" else None
    chains = [Chain(cluster, channel, cursor=before["cursor"]) for _ in range(3)]
    lost = cluster.next().publish([channel], "lost", key=f"{channel} 2")
    for chain, caller in zip(chains, cluster.callers, strict=True):
        assert chain.poll(caller, timeout=5)
        assert chain.data == ["lost"]
    cluster.wait_until_saved()
    if dump is not None:
        cluster.redis.roll_back(dump)
    elif how == "flush":
        cluster.redis.ask("FLUSHALL")
    else:
        cluster.redis.ask("DEL", "{pushup}:5:" + how)
    if how == "log":  # that what is in it is in the checkpoint, too, and all nodes know it: nothing is lost
        cluster.publish([channel], "new")
        for chain in chains:
            chain.poll_until("new")
            assert (chain.data, chain.gaps) == (["lost", "new"], [])
        return
    deadline = time.monotonic() + WAIT_SECONDS
    while epoch_of(cluster.cursors()[0]) == epoch_of(lost["cursor"]):
        assert time.monotonic() < deadline, "no new epoch begins"
        try_to_publish(cluster.next(), [f"{channel} other"], 0)
    for chain, caller in zip(chains, cluster.callers, strict=True):
        chain.poll(caller)
    for chain in chains:
        chain.poll_until_lost()
    cluster.wait_until_publishing()
    cluster.publish([channel], "new")
    for chain in chains:
        chain.poll_until("new")
        assert chain.data == ["lost", "new"]
        assert chain.gaps == [(channel, "lost")]


def test_promises_hold_when_redis_keys_are_deleted(cluster: RedisCluster, channel: str) -> None:
    """Each key is deleted during publications: acknowledged messages arrive or a gap is reported; none repeats."""
    chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
    accepted: list[Any] = []
    for key in random.Random(1).sample(KEYS * 2, len(KEYS) * 2):
        cluster.redis.ask("DEL", "{pushup}:5:" + key)
        for n in range(3):
            data = f"{key} {len(accepted)} {n}"
            if try_to_publish(cluster.next(), [channel], data).status == 201:
                accepted.append(data)
            chain.poll()
    cluster.wait_until_publishing()
    cluster.publish([channel], "last")
    chain.poll_until("last")
    assert accepted
    assert set(accepted) <= set(chain.data) or chain.gaps


def test_a_replica_that_lacks_messages_takes_over(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """The replica lacks the last acknowledged messages: every node reports a gap, and nothing is repeated."""
    redis.start()
    replica = RedisServer(tmp_path / "replica", flags={"replicaof": f"127.0.0.1 {redis.port}"})
    with replica, cluster_at(redis, tmp_path, 3) as cluster:
        start = cluster.wait_until_one()
        cluster.publish([channel], "had")
        wait_until(lambda: replica.ask("XLEN", "{pushup}:5:log") == 1, "the replica to have it")
        replica.ask("REPLICAOF", "NO", "ONE")
        lost = cluster.publish([channel], "had not")
        chains = [Chain(cluster, channel, cursor=start) for _ in range(3)]
        chains[0].poll_until("had not")
        redis.kill()
        replica.ask("SAVE")
        replica.kill()
        replica.port = redis.port  # the nodes expect it there
        replica.flags.pop("replicaof")
        replica.start()
        wait_until(lambda: {epoch_of(c) for c in cluster.cursors()} - {epoch_of(lost["id"])} != set(), "a new epoch")
        cluster.wait_until_publishing()
        for chain in chains:
            chain.poll_until_lost()
        cluster.publish([channel], "new")
        for chain in chains:
            chain.poll_until("new")
        assert chains[0].data == ["had", "had not", "new"]


# Everything is restarted.


@pytest.mark.parametrize("durable", [True, False])
def test_all_are_restarted_and_so_is_redis(tmp_path: Path, channel: str, durable: bool) -> None:
    """With each write synced, cursors, messages, keys and channels stay valid under a new name of the epoch.

    Without, a new epoch begins.
    """
    server = RedisServer(tmp_path / "redis", flags=ALWAYS if durable else {"save": "3600 1"})
    with server:
        with cluster_at(server, tmp_path, 2) as cluster:
            start = cluster.wait_until_one()
            named = cluster.next().call("POST", "/v1/channels", {"name": f"{channel} named"}).value
            published = cluster.next().publish([channel], "kept", key="k")
            last = cluster.wait_until_one()
            for node in cluster.nodes:
                node.end(signal.SIGKILL)
        if durable:
            server.kill()
        else:
            server.stop()
        server.start()
        with cluster_at(server, tmp_path, 2) as cluster:
            answers = [poll_in_the_end(caller, channel, cursor=start, timeout=0) for caller in cluster.callers]
            assert cluster.next().call("GET", f"/v1/channels/{named['id']}").value["name"] == f"{channel} named"
            if durable:
                assert [data_of(answer) for answer in answers] == [["kept"]] * 2
                assert [answer["gaps"] for answer in answers] == [[]] * 2
                assert cluster.next().publish([channel], "kept", key="k") == published
            else:
                assert [data_of(answer) for answer in answers] == [[]] * 2
                assert [gaps_of(answer) for answer in answers] == [[(channel, "lost")]] * 2
            assert place(cluster.wait_until_one()) > place(last)


@pytest.mark.parametrize("has_marks", [True, False])
def test_redis_is_put_back_while_all_nodes_are_stopped(tmp_path: Path, channel: str, has_marks: bool) -> None:
    """An older file, though each write is synced: with marks everybody is told, without only those who saw more."""
    server = RedisServer(tmp_path / "redis", flags=ALWAYS)

    def start(stack: ExitStack) -> RedisCluster:
        cluster = RedisCluster(server, tmp_path, stack)
        for n in range(2):
            settings: dict[str, Any] = {"state_directory": tmp_path / f"state{n}"} if has_marks else {}
            cluster.start(**settings)
        return cluster

    with server:
        with ExitStack() as stack:
            cluster = start(stack)
            for n in range(3):
                cluster.publish([channel], n)
            before = cluster.wait_until_one()
            shutil.copytree(server.directory / "appendonlydir", tmp_path / "older")
            for n in range(3, 6):
                cluster.publish([channel], n)
            after = cluster.wait_until_one()
            for n in range(2):
                cluster.stop(n)
        server.kill()
        shutil.rmtree(server.directory / "appendonlydir")
        shutil.copytree(tmp_path / "older", server.directory / "appendonlydir")
        server.start()
        with ExitStack() as stack:
            cluster = start(stack)
            issued = [cluster.publish([channel], n)["id"] for n in range(6, 9)]
            cluster.wait_until_one()
            lost = [(channel, "lost")]
            for caller in cluster.callers:
                assert gaps_of(poll_in_the_end(caller, channel, cursor=after, timeout=0)) == lost
                gaps = gaps_of(poll_in_the_end(caller, channel, cursor=before, timeout=0))
                assert gaps == (lost if has_marks else [])
            assert epoch_of(before) not in {epoch_of(id_) for id_ in issued}


def test_all_nodes_are_restarted_and_redis_is_not(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """A new node loads everything from Redis: cursors stay valid, though none of the nodes that issued them is left."""
    redis.start()
    with cluster_at(redis, tmp_path, 1) as cluster:
        start = cluster.cursors()[0]
        for n in range(5):
            cluster.publish([channel], n)
        time.sleep(1.2)  # so that part of it is in the checkpoint, part in the log
        for n in range(5, 8):
            cluster.publish([channel], n)
        cluster.nodes[0].signal(signal.SIGKILL)
    with cluster_at(redis, tmp_path, 1) as cluster:
        chain = Chain(cluster, channel, cursor=start)
        chain.poll_until(7)
        assert (chain.data, chain.gaps) == (list(range(8)), [])


def test_a_node_that_starts_without_redis_waits_for_it(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """It is alive but not ready; polls, cursors and publications get 503 and a reason until Redis is there."""
    with ExitStack() as stack:
        cluster = RedisCluster(redis, tmp_path, stack)
        cluster.start(ready=False)
        caller = cluster.callers[0]
        assert caller.call("GET", "/healthz").status == 200
        reply = caller.call("GET", "/readyz", headers=STRANGER)
        assert reply.status == 503
        assert reply.value["reason"] == "the message log cannot be reached"
        for path in (poll_path(channel, timeout=1), poll_path(channel, cursor="now", timeout=1), "/v1/cursor"):
            reply = caller.call("GET", path)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert "still loading the message log" in reply.value["detail"]
        wait_until(lambda: any("refused by" in line for line in cluster.nodes[0].log_lines()), "the reason")
        assert "the message log cannot be reached" in refused(caller, channel)
        redis.start()
        cluster.wait_until_ready()
        caller.publish([channel], 1)
        assert data_of(caller.poll(channel, timeout=0)) == [1]
        assert cluster.trouble() == []
        cluster.stop(0)


def test_a_node_stops_gracefully_without_redis(redis: RedisServer, tmp_path: Path) -> None:
    """It does not wait for Redis, and logs nothing unexpected."""
    redis.start()
    with cluster_at(redis, tmp_path, 2) as cluster:
        redis.kill()
        wait_until(lambda: try_to_publish(cluster.callers[0], ["a"], 0).status == 503, "refusal")
        cluster.stop(0)
        redis.start()
        wait_until(lambda: try_to_publish(cluster.callers[1], ["a"], 0).status == 201, "node 1 to find Redis again")
        redis.signal(signal.SIGSTOP)
        cluster.stop(1)


# Limits, passwords, Sentinels, TLS.


def test_a_node_with_other_limits_takes_part_under_those_of_the_cluster(
    cluster: RedisCluster, tmp_path: Path, channel: str
) -> None:
    """Its own take effect only when every node has them."""
    with ExitStack() as stack:
        odd = RedisCluster(cluster.redis, tmp_path, stack)
        odd.start(retention_messages=7, channels_limit=9)
        for n in range(10):
            odd.callers[0].publish([channel], n)
        wait_until(lambda: len(data_of(cluster.callers[0].poll(channel, timeout=0))) == 10, "all messages")
        assert data_of(odd.callers[0].poll(channel, timeout=0)) == list(range(10))

        def is_listed() -> bool:
            return len(cluster.callers[0].call("GET", "/v1/nodes").value["nodes"]) == 4

        wait_until(is_listed, "the node to be listed")


def test_other_limits_take_effect_when_all_nodes_have_them(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """Cursors stay valid; what exceeds the new limits is dropped with the next messages, and reported."""
    redis.start()
    with cluster_at(redis, tmp_path, 1) as cluster:
        start = cluster.cursors()[0]
        for n in range(6):
            cluster.publish([channel], n)
        cluster.stop(0)
    with cluster_at(redis, tmp_path, 2, retention_messages=3) as cluster:
        assert epoch_of(cluster.cursors()[0]) == epoch_of(start)
        agreed = "all nodes are ready: from here on the log uses the limits"
        wait_until(lambda: any(agreed in line for node in cluster.nodes for line in node.log_lines()), "the new limits")
        for n in range(6, 12):
            cluster.publish([channel], n)
        cluster.wait_until_one()
        for caller in cluster.callers:
            answer = caller.poll(channel, cursor=start, timeout=0)
            assert data_of(answer) == [9, 10, 11]
            assert gaps_of(answer) == [(channel, "evicted")]


def test_password_user_and_database(tmp_path: Path, channel: str) -> None:
    """With the right password it works; a wrong one is reported clearly, and neither is in any log."""
    password = "s3cret/@ä:"
    encoded = "s3cret%2F%40%C3%A4%3A"
    with RedisServer(tmp_path / "redis", password=password) as server, ExitStack() as stack:
        server.ask("ACL", "SETUSER", "me", "on", f">{password}", "~{pushup}:*", "+@all")
        cluster = RedisCluster(server, tmp_path, stack)
        place = f"127.0.0.1:{server.port}"
        cluster.start(f"redis://:{encoded}@{place}/3")
        cluster.start(f"redis://me:{encoded}@{place}/3")
        cluster.publish([channel], 1)
        cluster.wait_until_one()
        assert [data_of(caller.poll(channel, timeout=0)) for caller in cluster.callers] == [[1]] * 2
        with server.client() as client:
            client.ask("SELECT", "3")
            assert client.ask("EXISTS", "{pushup}:5:state") == 1
            client.ask("SELECT", "0")
            assert client.ask("EXISTS", "{pushup}:5:state") == 0
        cluster.start(f"redis://:wr0ng@{place}/3", ready=False)
        wait_until(lambda: any("WRONGPASS" in line for line in cluster.nodes[2].log_lines()), "the error")
        assert "the message log cannot be reached" in refused(cluster.callers[2], channel)
        cluster.start(f"redis://{place}", ready=False)
        wait_until(lambda: any("NOAUTH" in line for line in cluster.nodes[3].log_lines()), "the error")
        logged = "\n".join(line for node in cluster.nodes for line in node.log_lines())
        assert "s3cret" not in logged
        assert "wr0ng" not in logged
        assert cluster.trouble() == []


def test_clusters_with_different_prefixes_are_separate(cluster: RedisCluster, tmp_path: Path, channel: str) -> None:
    """On the same Redis, each has its own messages, nodes and epoch."""
    with ExitStack() as stack:
        other = RedisCluster(cluster.redis, tmp_path, stack)
        other.start(redis_prefix="other")
        cluster.publish([channel], "ours")
        other.publish([channel], "theirs")
        assert data_of(other.callers[0].poll(channel, timeout=0)) == ["theirs"]
        assert data_of(cluster.next().poll(channel, timeout=5)) == ["ours"]
        wait_until(lambda: len(other.callers[0].call("GET", "/v1/nodes").value["nodes"]) == 1, "itself")
        assert other.trouble() == []


def test_sentinels_name_the_current_master(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """When the master dies and a replica takes over, nodes find it, continue, and keep their promises."""
    redis.start()
    replica = RedisServer(tmp_path / "replica", flags={"replicaof": f"127.0.0.1 {redis.port}"})
    sentinel = RedisServer(tmp_path / "sentinel")
    configuration = sentinel.directory / "sentinel.conf"
    configuration.write_text(
        f"sentinel monitor mymaster 127.0.0.1 {redis.port} 1\n"
        "sentinel down-after-milliseconds mymaster 2000\n"  # a busy machine is no failure
        "sentinel failover-timeout mymaster 3000\n"
    )
    with replica, ExitStack() as stack:
        wait_until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"), "the replica")
        sentinel.start_as_sentinel(configuration)
        stack.callback(sentinel.kill)
        wait_until(lambda: b"slaves=1" in sentinel.ask("INFO", "sentinel"), "the Sentinel to know the replica")
        cluster = RedisCluster(redis, tmp_path, stack)
        url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/mymaster"
        for _ in range(2):
            cluster.start(url)
        chain = Chain(cluster, channel, cursor=cluster.wait_until_one())
        assert try_to_publish(cluster.next(), [channel], "before", ack="replicated").value["ack"] == "replicated"
        chain.poll_until("before")
        masters = [f"127.0.0.1:{redis.port}"]
        assert [masters_followed(server) for server in cluster.nodes] == [masters, masters]
        redis.kill()
        publish_in_the_end(cluster.callers[0], [channel], "after")
        chain.poll_until("after")
        assert (chain.data, chain.gaps) == (["before", "after"], [])
        cluster.wait_until_publishing()
        assert cluster.trouble() == []
        masters.append(f"127.0.0.1:{replica.port}")
        assert [masters_followed(server) for server in cluster.nodes] == [masters, masters]


def masters_followed(server: Server) -> list[str]:
    """Where Redis was each time that the log says it."""
    lines = [line for line in server.log_lines() if "following the log in Redis" in line]
    return [line.partition("; the master is ")[2] for line in lines]


def start_with_tls(redis: RedisServer, directory: Path) -> tuple[int, dict[str, str]]:
    """Start it with a certificate; returns its TLS port, and the file to trust."""
    certificate, key = write_certificate(directory, "127.0.0.1")
    port = free_port()
    redis.start(
        "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-auth-clients", "no",
    )  # fmt: skip
    return port, {"SSL_CERT_FILE": str(certificate)}


def told_once(server: Server, part: str) -> None:
    """Wait until the log has this line, and make sure that further attempts do not log it again."""
    wait_until(lambda: any(part in line for line in server.log_lines()), part)
    time.sleep(1.5)
    (line,) = [line for line in server.log_lines() if " error " in line or " critical " in line]
    assert part in line
    assert not any("Traceback" in line for line in server.log_lines())


def test_tls(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """A certificate that the system trusts is accepted; another is refused, and the log says why, once."""
    port, trust = start_with_tls(redis, tmp_path)
    with ExitStack() as stack:
        cluster = RedisCluster(redis, tmp_path, stack)
        cluster.start(f"rediss://127.0.0.1:{port}", environment=trust)
        cluster.publish([channel], 1)
        assert data_of(cluster.callers[0].poll(channel, timeout=0)) == [1]
        untrusting = cluster.start(f"rediss://127.0.0.1:{port}", ready=False)
        told_once(untrusting, "is not signed by an authority that this machine trusts; set SSL_CERT_FILE")
        assert "the message log cannot be reached" in refused(cluster.callers[1], channel)
        assert not cluster.ready(1)
        assert cluster.trouble() == []


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_the_error_for_a_wrong_scheme_says_what_to_change(redis: RedisServer, tmp_path: Path, scheme: str) -> None:
    """A Redis without TLS behind rediss://, and one with TLS behind redis://: logged once, however often it retries."""
    port, trust = start_with_tls(redis, tmp_path)
    with ExitStack() as stack:
        cluster = RedisCluster(redis, tmp_path, stack)
        url = f"redis://127.0.0.1:{port}" if scheme == "redis" else f"rediss://127.0.0.1:{redis.port}"
        other = "redis" if scheme == "rediss" else "rediss"
        node = cluster.start(url, environment=trust, ready=False)
        told_once(node, f"use {other}:// instead of {scheme}://")
        assert cluster.trouble() == []


# Everything at once.


class RoundRobin(threading.Thread):
    """A client with one chain of cursors, which polls the nodes in turn until it has the last message."""

    def __init__(self, addresses: list[str], channel: str, cursor: str) -> None:
        super().__init__(daemon=True)
        self.data: list[Any] = []
        self.gaps: list[Any] = []
        self.errors: list[BaseException] = []
        self._addresses = addresses
        self._channel = channel
        self._cursor = cursor

    def run(self) -> None:
        try:
            give_up = time.monotonic() + 8 * WAIT_SECONDS
            for address in itertools.cycle(self._addresses):
                if "last" in self.data or time.monotonic() > give_up:
                    return
                try:
                    with Caller(address) as caller:
                        reply = caller.call("GET", poll_path(self._channel, cursor=self._cursor, timeout=1, limit=5))
                except OSError:
                    time.sleep(0.02)  # this node is gone for now
                    continue
                if reply.status == 503:
                    time.sleep(0.05)
                    continue
                assert reply.status == 200, reply
                assert place(reply.value["cursor"]) >= place(self._cursor)
                self._cursor = reply.value["cursor"]
                self.data += [message["data"] for message in reply.value["messages"]]
                self.gaps += reply.value["gaps"]
        except BaseException as error:  # the test raises it
            self.errors.append(error)


def test_nodes_and_redis_are_killed_while_messages_go_round(tmp_path: Path, channel: str) -> None:
    """With each write synced, no acknowledged message is missing or reported as a gap, and none arrives twice."""
    with (
        RedisServer(tmp_path / "redis", flags=ALWAYS) as server,
        cluster_at(server, tmp_path, 4) as cluster,
    ):
        start = cluster.wait_until_one()
        addresses = [node.address for node in cluster.nodes]
        clients = [RoundRobin(addresses[n:] + addresses[:n], channel, start) for n in range(4)]
        for client in clients:
            client.start()
        accepted: list[int] = []
        ends: list[tuple[int, Any]] = [
            (20, lambda: cluster.nodes[3].end(signal.SIGKILL)),
            (40, server.kill),
            (45, server.start),
            (70, lambda: cluster.redis.ask("CLIENT", "KILL", "TYPE", "normal")),
            (90, lambda: cluster.nodes[2].end(signal.SIGKILL)),
        ]
        give_up = time.monotonic() + 4 * WAIT_SECONDS
        for n in itertools.count():
            if n >= 120 and len(accepted) > 60:  # on a busy machine, nodes may take long to connect again
                break
            assert time.monotonic() < give_up, f"{len(accepted)} of {n} publications were accepted"
            while ends and ends[0][0] == n:
                ends.pop(0)[1]()
            try:
                if try_to_publish(cluster.callers[n % 2], [channel], n).status == 201:
                    accepted.append(n)
                else:
                    time.sleep(0.05)
            except OSError:
                raise AssertionError("this node was not killed") from None
        publish_in_the_end(cluster.callers[0], [channel], "last")
        for client in clients:
            client.join(2 * WAIT_SECONDS)
            assert client.errors == []
            assert "last" in client.data
            assert client.gaps == []
            assert len(client.data) == len(set(map(str, client.data)))
            assert set(accepted) <= set(client.data)
            assert client.data == clients[0].data


def test_a_copy_of_a_log_becomes_a_cluster_of_its_own(tmp_path: Path, channel: str) -> None:
    """Not while a node is alive. The nodes of the original then refuse it, also by their marks."""
    state = tmp_path / "state"
    with RedisServer(tmp_path / "redis") as server:

        def rename() -> subprocess.CompletedProcess[str]:
            return run("new-cluster", "--broadcast", server.url)

        assert "there is no message log" in rename().stderr
        with cluster_at(server, tmp_path, 1) as cluster:
            cluster.publish([channel], 1)
            assert "a node is alive" in rename().stderr
        with ExitStack() as stack:
            original = RedisCluster(server, tmp_path, stack)
            original.start(state_directory=state)
            original.stop(0)  # or it is killed, perhaps before it has written its mark
        with server.client() as client:
            client.ask("SET", "{pushup}:state", "6")
            assert "has format 6, and this release uses format 5; nothing was changed" in rename().stderr
            client.ask("SET", "{pushup}:state", "5")
        (mark,) = state.glob("*.mark")
        name = json.loads(mark.read_bytes())["cluster"]
        said: list[str] = []

        def is_renamed() -> bool:
            said.append(rename().stdout)  # not before the lease of the last node has ended
            return bool(said[-1])

        wait_until(is_renamed, "the new name")
        assert f"The message log of cluster {name} is that of cluster " in said[-1]
        with ExitStack() as stack:
            node = RedisCluster(server, tmp_path, stack).start(state_directory=state, ready=False)
            node.expect_log("this node belongs to cluster")
            wait_until(lambda: any("belongs to cluster" in line for line in node.log_lines()), "the refusal")
            assert any(f"remove {mark}" in line for line in node.log_lines())
