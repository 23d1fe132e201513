"""What /metrics says of Redis and its log, and that it asks Redis rarely and never waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.error import ConnectionDone

from pushup.broadcast.redis.redis_metrics import INFO_SECONDS
from tests.broadcast.redis.following_nodes import Cluster, FollowingNode, cluster_of
from tests.metric_values import value_of


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as cluster:
        yield cluster


def value(node: FollowingNode, name: str, **labels: str) -> float:
    return value_of(node.broadcast.metrics(), name, **labels)


def test_a_node_that_follows(cluster: Cluster) -> None:
    """It lags behind by nothing, and has measured round trips."""
    node = cluster.nodes[0]
    cluster.advance(2.0)
    assert value(node, "redis_up") == 1
    assert value(node, "log_lag_entries") == value(node, "log_lag_seconds") == 0
    assert value(node, "redis_round_trip_seconds_count") >= 6
    assert value(node, "redis_reconnects_total") == 0


def test_a_node_whose_reading_stops(cluster: Cluster) -> None:
    """It sees by its reports how far it lags behind, and since when; and when it has caught up."""
    one, other = cluster.nodes
    cluster.advance(1.0)
    for link in cluster.links_of(other):
        link.blind = True
    for _ in range(3):
        cluster.publish(one, "a")
    cluster.advance(1.0)
    assert value(one, "log_lag_entries") == value(one, "log_lag_seconds") == 0
    assert value(other, "log_lag_entries") == 3
    assert value(other, "log_lag_seconds") == pytest.approx(0.75, abs=0.3)
    for link in cluster.links_of(other):
        link.blind = False
    cluster.settle()
    assert value(other, "log_lag_entries") == value(other, "log_lag_seconds") == 0


def test_a_node_without_redis(cluster: Cluster, log: list[str]) -> None:
    """It is down, until it has connected again, to whatever Redis is by now."""
    node = cluster.nodes[0]
    cluster.advance(1.0)
    cluster.redis.refuses = "it is down"
    for link in list(cluster.redis.links):
        link.end(ConnectionDone())
    cluster.advance(1.0)
    assert value(node, "redis_up") == 0
    cluster.redis.refuses = ""
    cluster.advance(5.0)
    assert value(node, "redis_up") == 1
    assert value(node, "redis_reconnects_total") == 1
    assert all("it is down" in line or "closed the connection" in line for line in log)


def test_the_memory_and_the_role(cluster: Cluster) -> None:
    """They are asked for every INFO_SECONDS by each node, however often somebody asks for metrics."""
    node = cluster.nodes[0]
    with pytest.raises(KeyError):
        value(node, "redis_maxmemory_bytes")
    cluster.redis.info |= {"used_memory": "5000", "maxmemory": "8000", "redis_version": "7.0.15", "role": "slave"}
    asked = cluster.redis.executed.count(b"INFO")
    cluster.advance(INFO_SECONDS + 0.5)
    for _ in range(10):
        assert value(node, "redis_used_memory_bytes") == 5000
    assert value(node, "redis_maxmemory_bytes") == 8000
    assert value(node, "redis_info", address="Redis", role="slave", version="7.0.15") == 1
    assert cluster.redis.executed.count(b"INFO") == asked + 2
