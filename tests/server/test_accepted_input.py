"""Input that one node of a cluster accepts can be read by all other nodes, even one that starts later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.redis_cluster import RedisCluster, cluster_at
from tests.server.redis_server import RedisServer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    with RedisServer(directory / "redis") as redis, cluster_at(redis, directory, 2) as cluster:
        cluster.wait_until_ready()
        cluster.wait_until_publishing()
        yield cluster


def test_nesting(cluster: RedisCluster) -> None:
    """Bodies nested too deeply are refused however much stack is left; every node can read the deepest accepted."""
    accepted = []
    for levels in (3, 63, 64, 65, 500, 960, 965, 967, 968, 969, 970, 971, 972, 975, 985, 50_000):
        data = "[" * (levels - 1) + "]" * (levels - 1)
        reply = cluster.callers[0].call("POST", "/v1/messages", f'{{"channels":["deep"],"data":{data}}}'.encode())
        assert reply.status == (201 if levels <= 64 else 400), levels
        if reply.status == 201:
            accepted.append(json.loads(data))
    cluster.wait_until_one()
    for caller in cluster.callers:
        answer = caller.poll("deep")
        assert [message["data"] for message in answer["messages"]] == accepted
    cluster.start()
    assert len(cluster.callers[-1].poll("deep")["messages"]) == len(accepted), "a node that starts later"
