"""Event streams through HAProxy: passed on at once, and continued at another node when theirs dies or hangs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from deploy.cluster import Cluster
from tests.deploy.conversations import all_ready, caller, held, publish, wait_until
from tests.server.command_line import Running, started

STREAMS = 6


@pytest.fixture
def streams(cluster: Cluster, stack: ExitStack, channel: str) -> list[Running]:
    """Clients of the command line, from the current cursor; some at each node.

    HAProxy leaves a node out that was too busy to answer its checks, so all have to be ready.
    """
    wait_until(lambda: all_ready(cluster), "all nodes to be ready")
    url = cluster.urls["plain"]
    cursor = caller(url, stack).cursor()
    running = [
        stack.enter_context(started(url, "poll", "--stream", channel, "--cursor", cursor)) for _ in range(STREAMS)
    ]
    wait_until(lambda: sum(held(cluster).values()) == STREAMS, "the streams")
    assert all(held(cluster).values())
    return running


def test_events_are_passed_on_at_once(cluster: Cluster, streams: list[Running], channel: str) -> None:
    """One message after another, none of which waits for the next."""
    delays = []
    for number in range(20):
        began = time.monotonic()
        assert publish(cluster, [channel], number).status == 201
        assert [stream.line()["data"] for stream in streams] == [number] * STREAMS
        delays.append(time.monotonic() - began)
    assert statistics.median(delays) < 0.15, delays


@pytest.mark.parametrize(
    ("fail", "repair"), [(Cluster.kill_part, Cluster.start_part), (Cluster.freeze_part, Cluster.thaw_part)]
)
def test_streams_of_a_node_that_fails_go_on_elsewhere(
    cluster: Cluster,
    streams: list[Running],
    channel: str,
    fail: Callable[[Cluster, str], None],
    repair: Callable[[Cluster, str], None],
) -> None:
    """Each message comes once and in order, whatever was published when."""
    for number in range(10):
        assert publish(cluster, [channel], number).status == 201
    fail(cluster, "node2")
    try:
        for number in range(10, 30):
            assert publish(cluster, [channel], number, f"{channel}-{number}").status == 201
        for stream in streams:
            assert [stream.line()["data"] for _ in range(30)] == list(range(30))
    finally:
        repair(cluster, "node2")
