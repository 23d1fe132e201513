"""A node that starts from a checkpoint has the same channels and messages as one that has lived through all of it.

With real servers, a real Redis and a real journal: thousands of channels that are due in one second, more than an entry
expires; and a Redis that comes back with every entry, but without the last save of the checkpoint.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.beyond.append_only import last_increment, saved_sequence, without_last_save
from tests.server.caller import Caller
from tests.server.raw_client import WAIT_SECONDS, RawClient, post
from tests.server.redis_cluster import Chain, cluster_at
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, running, wait_until

NAMES = [f"c{number:04}" for number in range(2500)]

TTL_SECONDS = 15.0
"""Long enough for another node to start."""

AT_ONCE = 100
"""Channels of a message or of a poll."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that syncs each write, not started yet."""
    server = RedisServer(tmp_path / "redis", flags={"appendonly": "yes", "appendfsync": "always"})
    yield server
    server.kill()


def publish(caller: Caller, names: list[str], data: object) -> dict[str, Any]:
    """Publish one message for every hundred channels, in one publication."""
    groups = [names[n : n + AT_ONCE] for n in range(0, len(names), AT_ONCE)]
    body = {"messages": [{"channels": group, "data": data} for group in groups]}
    reply = caller.call("POST", "/v1/messages", body)
    assert reply.status == 201, reply
    value: dict[str, Any] = reply.value
    return value


def ids(caller: Caller) -> dict[str, int]:
    """All open channels: their ids by name."""
    found: dict[str, int] = {}
    after, more = 0, True
    while more:
        page = caller.call("GET", f"/v1/channels?after={after}").value
        found |= {channel["name"]: channel["id"] for channel in page["channels"]}
        after, more = page["channels"][-1]["id"], page["more"]
    return found


def open_channels(caller: Caller) -> int:
    """Open all channels, and publish on them in one second, so that they are due in one; returns which."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        time.sleep(1.05 - time.time() % 1)
        times: list[float] = [
            publish(caller, NAMES[n : n + 1000], "opened")["time"] for n in range(0, len(NAMES), 1000)
        ]
        due = {math.ceil(at + TTL_SECONDS) for at in times}
        if len(due) == 1:
            return due.pop()
        assert time.monotonic() < deadline, "publishing takes too long"


def renew_the_oldest(client: RawClient, due: int) -> None:
    """Renew the 100 with the lowest ids, to the same second: they come after the others then, unless ids decide."""
    for begin in range(0, 100, 20):
        names = NAMES[begin : begin + 20]
        while names:  # again, if the server took so long that they would expire in the next second
            ttl = due - 0.9 - time.time()
            client.send(b"".join(post(f"/v1/channels/{name}/renew", {"ttl": ttl}) for name in names))
            replies = [client.read_response() for _ in names]
            assert {reply.status for reply in replies} == {200}
            expires = [math.ceil(reply.value["expires"]) for reply in replies]
            assert min(expires) >= due
            names = [name for name, at in zip(names, expires, strict=True) if at > due]


def publish_when_due(caller: Caller, due: int) -> None:
    """Publish on 1,000 of the channels with the first entry of that second, which closes 500; and on a new one."""
    assert time.time() < due, "preparing took longer than the channels live"
    time.sleep(due + 0.01 - time.time())
    publish(caller, NAMES[:1000], "due")
    publish(caller, ["new"], "due")


def wait_for_1001(*servers: Server) -> None:
    """Wait until all that is due has expired."""
    for server in servers:
        wait_until(lambda s=server: s.metric("channels") == 1001, "all others to be closed")  # type: ignore[misc]


def test_channels_due_in_one_second_are_the_same_on_a_node_that_joins_later(redis: RedisServer, tmp_path: Path) -> None:
    """It starts from a checkpoint before they expire; what is published by id at one node is delivered at the other."""
    redis.start()
    with cluster_at(redis, tmp_path, 1, channel_ttl_seconds=TTL_SECONDS) as cluster:
        first = cluster.callers[0]
        due = open_channels(first)
        with cluster.nodes[0].connect() as client:
            renew_the_oldest(client, due)
        last = int(first.cursor().rpartition("-")[2])
        wait_until(lambda: int(redis.ask("HGET", "{pushup}:5:state", "saved")) >= last, "a save")
        cluster.start(channel_ttl_seconds=TTL_SECONDS)
        second = cluster.callers[1]
        assert len(ids(second)) == len(NAMES)

        publish_when_due(first, due)
        wait_for_1001(*cluster.nodes)
        start = cluster.wait_until_one()
        open_ = ids(first)
        numbers = [str(id_) for id_ in open_.values()]
        for begin in range(0, len(numbers), 1000):
            publish(first, numbers[begin : begin + 1000], "by id")
        cluster.wait_until_one()
        names, arrived = sorted(open_), []
        for begin in range(0, len(names), AT_ONCE):
            answer = second.poll(*names[begin : begin + AT_ONCE], cursor=start, timeout=0, limit=1000)
            assert (answer["gaps"], answer["more"]) == ([], False)
            arrived += [name for message in answer["messages"] for name in message["channels"]]
        assert sorted(arrived) == names
        assert ids(second) == open_


def test_channels_due_in_one_second_are_the_same_after_a_journal_was_replayed(tmp_path: Path) -> None:
    """The checkpoint is from before they expire, and the entries after it are applied again: 1,001 are alive."""
    flags = ("--broadcast", f"journal:{tmp_path / 'journal'}", "--set", f"channel_ttl_seconds={TTL_SECONDS}")
    with running(tmp_path / "log", flags) as server, server.caller() as caller:
        due = open_channels(caller)
        with server.connect() as client:
            renew_the_oldest(client, due)
        time.sleep(max(0.0, due - 2.0 - time.time()))
        publish(caller, ["new"], "saves what came before it")
        publish_when_due(caller, due)
        before = ids(caller)
        messages = caller.poll("new", *NAMES[:99], timeout=0)["messages"]
        server.end(signal.SIGKILL)
    with running(tmp_path / "log", flags) as server, server.caller() as caller:
        wait_for_1001(server)
        after = ids(caller)
        assert after == {name: before[name] for name in after}
        assert caller.poll("new", *NAMES[:99], timeout=0)["messages"] == messages != []


def test_redis_comes_back_without_the_last_save(redis: RedisServer, tmp_path: Path, channel: str) -> None:
    """The nodes load what they no longer remember, and save it: a node that starts later answers as they do."""
    redis.start()
    with cluster_at(redis, tmp_path, 2) as cluster:
        both = channel, f"{channel} new"
        chain = Chain(cluster, *both, cursor=cluster.wait_until_one())

        def saved() -> int:
            return int(redis.ask("HGET", "{pushup}:5:state", "saved"))

        cluster.publish([both[0]], "saved")
        cluster.wait_until_saved()
        cluster.publish([both[1]], "only in the last save, as is its channel")
        cluster.wait_until_saved()
        redis.kill()
        file = last_increment(redis.directory)
        older = without_last_save(file.read_bytes())
        assert older is not None
        file.write_bytes(older)
        before = saved_sequence(older)
        redis.start()
        cluster.wait_until_ready()
        cluster.wait_until_publishing()
        cluster.publish([channel], "after")
        cluster.wait_until_saved()
        assert saved() > before

        cluster.start()
        cluster.wait_until_one()
        answers = [caller.poll(*both, cursor=chain.cursor, timeout=0) for caller in cluster.callers]
        assert answers[2] == answers[0] == answers[1]
        chain.poll(cluster.callers[2])
        assert (chain.data, chain.gaps) == (["saved", "only in the last save, as is its channel", "after"], [])
