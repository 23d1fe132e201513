"""Requests to a cluster that several tests of this folder make."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

from deploy.cluster import Cluster
from tests.server.caller import Caller, Reply

WAIT_SECONDS = 45.0
"""Only ends a hang. Less than a held poll lasts; on a busy machine, to start six clients alone takes ten seconds."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true; fails after a timeout. A connection error counts as not true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.02)


def caller(url: str, stack: ExitStack) -> Caller:
    """A client of an http:// URL."""
    return stack.enter_context(Caller(urlsplit(url).netloc))


def hold(cluster: Cluster, count: int, stack: ExitStack, channel: str, method: str = "GET") -> list[Caller]:
    """Open this many polls from outside, from the current cursor; returns once the nodes hold them."""
    return hold_at(cluster, cluster.nodes, count, stack, channel, method)


def hold_at(
    cluster: Cluster, nodes: Sequence[str], count: int, stack: ExitStack, channel: str, method: str = "GET"
) -> list[Caller]:
    """Like `hold`, where only these nodes accept polls."""
    before = sum(held(cluster, nodes).values())
    cursor = caller(cluster.urls["plain"], stack).cursor()
    clients = [caller(cluster.urls["plain"], stack) for _ in range(count)]
    for client in clients:
        if method == "GET":
            client.begin_poll(channel, cursor=cursor, timeout=50)
        else:
            client.begin("POST", "/v1/poll", {"channels": [channel], "cursor": cursor, "timeout": 50})
    wait_until(lambda: sum(held(cluster, nodes).values()) == before + count, f"{count} held polls")
    return clients


def held(cluster: Cluster, nodes: Sequence[str] = ()) -> dict[str, int]:
    """How many polls each of these nodes holds, by default all; nodes that are not running are left out."""
    return {
        name: int(_metric(cluster.address(name), "held_polls")) for name in nodes or cluster.nodes if cluster.pids[name]
    }


def all_ready(cluster: Cluster) -> bool:
    """Whether HAProxy sends requests to every node."""
    states = cluster.server_states()
    return all(states[f"ready/{name}"] == "UP" for name in cluster.nodes)


def publish(
    cluster: Cluster, channels: Sequence[str], data: object, idempotency_key: str = "", *, at: str = "inside"
) -> Reply:
    """Publish with the publish key: from inside, or at the node with this name."""
    headers = {"Authorization": f"Bearer {cluster.publish_key}"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    with ExitStack() as stack:
        return caller(cluster.urls[at], stack).call(
            "POST", "/v1/messages", {"channels": list(channels), "data": data}, headers
        )


def wait_for_message(cluster: Cluster, channel: str) -> None:
    """Wait until each node has a message on a channel, and so everything that was published before it.

    A message is published when one node has it; the others may have it a moment later.
    """
    with ExitStack() as stack:
        for name in cluster.nodes:
            answer = caller(cluster.urls[name], stack).poll(channel, timeout=10)
            assert answer["messages"], f"{name} has no message on {channel}"


def _metric(address: str, name: str) -> float:
    with Caller(address) as client:
        found = re.search(rf"^pushup_{name} (\S+)$", client.call("GET", "/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])
