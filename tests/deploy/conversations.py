"""What several tests of this folder say to a cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

from deploy.cluster import Cluster
from tests.server.caller import Caller, Reply

WAIT_SECONDS = 15.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true; fails when it does not come true. Not reaching somebody is not true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def caller(url: str, stack: ExitStack) -> Caller:
    """A client of an http:// URL."""
    return stack.enter_context(Caller(urlsplit(url).netloc))


def hold(cluster: Cluster, count: int, stack: ExitStack, channel: str, method: str = "GET") -> list[Caller]:
    """So many polls, from outside and from here on, held by the nodes when this returns."""
    before = sum(held(cluster).values())
    cursor = caller(cluster.urls["plain"], stack).cursor()
    clients = [caller(cluster.urls["plain"], stack) for _ in range(count)]
    for client in clients:
        if method == "GET":
            client.begin_poll(channel, cursor=cursor, timeout=50)
        else:
            client.begin("POST", "/v1/poll", {"channels": [channel], "cursor": cursor, "timeout": 50})
    wait_until(lambda: sum(held(cluster).values()) == before + count, f"{count} held polls")
    return clients


def held(cluster: Cluster) -> dict[str, int]:
    """How many polls each node holds that runs."""
    return {name: int(_metric(cluster.address(name), "held_polls")) for name in cluster.nodes if cluster.pids[name]}


def publish(cluster: Cluster, channels: Sequence[str], data: object) -> Reply:
    """Publish from the inside, with the key."""
    with ExitStack() as stack:
        return caller(cluster.urls["inside"], stack).call(
            "POST", "/v1/messages", {"channels": list(channels), "data": data},
            {"Authorization": f"Bearer {cluster.publish_key}"},
        )  # fmt: skip


def _metric(address: str, name: str) -> float:
    with Caller(address) as client:
        found = re.search(rf"^pushup_{name} (\S+)$", client.call("GET", "/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])
