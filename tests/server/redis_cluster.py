"""Several real servers that share a real Redis, and clients that use them in turn with their cursors."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.server.caller import Caller, Reply, poll_path
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, running, set_flags, wait_until

TIMEOUT_SECONDS = 2.0
"""`redis_timeout_seconds` of all nodes here: longer than a publication takes on a busy machine."""

EXPECTED = (
    r"Redis: .*; publishing is refused until it is back",
    r"; epoch \w+ begins, and gaps are reported to subscribers",
    r"redis_durable is ignored: Redis has a replica",
    r"has other settings than this node",
)
"""What nodes log when Redis is gone, has lost something, or has a replica; or when their settings differ."""


class RedisCluster:
    """Running nodes, each called by one client."""

    def __init__(self, redis: RedisServer, directory: Path, stack: ExitStack) -> None:
        self.redis = redis
        self.nodes: list[Server] = []
        self.callers: list[Caller] = []
        self.directory = directory
        self._stack = stack
        self._turn = 0

    def start(
        self, url: str = "", *, environment: Mapping[str, str] | None = None, ready: bool = True, **settings: object
    ) -> Server:
        """Start another node."""
        log = self.directory / f"node{len(self.nodes)}.log"
        values = {
            "redis_timeout_seconds": TIMEOUT_SECONDS,
            "node_name": f"node{len(self.nodes)}",
            "drain_seconds": 0.1,
            "redis_durable": "true",  # it counts only where it is so
            **settings,
        }
        flags = set_flags(values)
        context = running(log, ("--broadcast", url or self.redis.url, *flags), environment)
        server = self._stack.enter_context(context)
        for pattern in EXPECTED:
            server.expect_log(pattern)
        self.nodes.append(server)
        self.callers.append(self._stack.enter_context(server.caller()))
        if ready:
            self.wait_until_ready(len(self.nodes) - 1)
        return server

    def stop(self, number: int, seconds: float = WAIT_SECONDS) -> None:
        """Stop a node gracefully."""
        self.callers[number].close()
        self.nodes[number].signal(signal.SIGTERM)
        assert self.nodes[number].wait(seconds) == 0

    def ready(self, number: int) -> bool:
        return self.callers[number].call("GET", "/readyz").status == 200

    def wait_until_ready(self, *numbers: int) -> None:
        for number in numbers or range(len(self.nodes)):
            wait_until(lambda n=number: self.ready(n), f"node {number} to be ready")  # type: ignore[misc]

    def cursors(self) -> list[str]:
        """The nodes' cursors. A node that has just connected again says 503 until it has caught up."""
        return [_in_the_end(caller, "/v1/cursor")["cursor"] for caller in self.callers]

    def wait_until_one(self) -> str:
        """Wait until all nodes have applied the same entries; returns their cursor."""
        wait_until(lambda: len(set(self.cursors())) == 1, "all nodes to be at the same entry")
        return self.cursors()[0]

    def wait_until_publishing(self) -> None:
        """Wait until a publication to any node reaches all nodes."""
        for caller in self.callers:
            wait_until(lambda c=caller: try_to_publish(c, ["any"], 0).status == 201, "publishing")  # type: ignore[misc]
        self.wait_until_one()

    def wait_until_saved(self) -> None:
        """Wait until the checkpoint contains all that was published, and every node has seen that."""
        last = int(self.wait_until_one().rpartition("-")[2])
        wait_until(lambda: int(self.redis.ask("HGET", "{pushup}:5:state", "saved")) >= last, "a save")
        for _ in range(2):  # a report that began after the save; and another, for the reply to the first has come then
            before = self.leases()
            wait_until(lambda b=before: not b.items() & self.leases().items(), "every node to report")  # type: ignore[misc]

    def leases(self) -> dict[bytes, bytes]:
        """When the lease of each node ends; a node renews it with every report."""
        words = self.redis.ask("ZRANGE", "{pushup}:5:leases", 0, -1, "WITHSCORES")
        return dict(zip(words[::2], words[1::2], strict=True))

    def next(self) -> Caller:
        """The client of the next node in turn."""
        self._turn += 1
        return self.callers[self._turn % len(self.callers)]

    def publish(self, channels: list[str], data: object) -> dict[str, Any]:
        """Publish at the next node in turn, which must succeed."""
        return self.next().publish(channels, data)

    def trouble(self) -> list[str]:
        """Unexpected lines in the nodes' logs."""
        return [line for node in self.nodes for line in node.trouble()]


class Chain:
    """A client that takes its cursor to the next node with each poll."""

    def __init__(self, cluster: RedisCluster, *channels: str, cursor: str = "earliest") -> None:
        self.cluster = cluster
        self.channels = channels
        self.cursor = cursor
        self.data: list[Any] = []
        self.gaps: list[tuple[str, str]] = []
        self.refused = 0

    def poll(self, caller: Caller | None = None, **parameters: object) -> bool:
        """Poll once; returns whether there was an answer rather than a 503."""
        path = poll_path(*self.channels, cursor=self.cursor, **{"timeout": 0, **parameters})
        reply = (caller or self.cluster.next()).call("GET", path)
        if reply.status == 503:
            assert int(reply.headers["Retry-After"]) >= 1
            self.refused += 1
            return False
        assert reply.status == 200, reply
        self.take(reply.value)
        return True

    def take(self, answer: dict[str, Any]) -> None:
        """Record an answer; no message may repeat, and the cursor must not go back."""
        new = [message["data"] for message in answer["messages"]]
        assert not [data for data in new if data in self.data], f"twice: {new}"
        before, after = place(self.cursor), place(answer["cursor"])
        assert before <= after, f"{self.cursor} went back to {answer['cursor']}"
        self.data += new
        self.gaps += [(gap["channel"], gap["reason"]) for gap in answer["gaps"]]
        self.cursor = answer["cursor"]

    def poll_until(self, data: object) -> None:
        """Poll until this message arrives."""
        deadline = time.monotonic() + WAIT_SECONDS
        while data not in self.data:
            assert time.monotonic() < deadline, f"timed out waiting for {data}; {self.data}"
            if not self.poll(timeout=1):
                time.sleep(0.05)

    def poll_until_lost(self) -> None:
        """Poll until all channels have been reported as lost."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.gaps:
            assert time.monotonic() < deadline, "timed out waiting for a gap"
            if not self.poll(timeout=1):
                time.sleep(0.05)
        assert sorted(self.gaps) == sorted((channel, "lost") for channel in self.channels)


def place(cursor: str) -> tuple[int, str, int]:
    """A sort key for cursors; epochs are ordered by when they began."""
    epoch, _, sequence = cursor.rpartition("-")
    return (len(epoch), epoch, int(sequence)) if epoch else (0, "", 0)


def try_to_publish(caller: Caller, channels: list[str], data: object, *, key: str = "", **more: object) -> Reply:
    """A publication and its reply, whether it succeeds or not."""
    headers = {"Idempotency-Key": key} if key else {}
    return caller.call("POST", "/v1/messages", {"channels": channels, "data": data, **more}, headers)


def poll_in_the_end(caller: Caller, *channels: str, **parameters: object) -> dict[str, Any]:
    """The answer to a poll with a cursor of another epoch. A node that has not reported lately, because it has just
    started or did not run, asks its client to come back: it cannot know yet that this epoch is over."""
    return _in_the_end(caller, poll_path(*channels, **parameters))


def _in_the_end(caller: Caller, path: str) -> dict[str, Any]:
    """What a node says, once it knows what there is now."""
    replies: list[Reply] = []

    def is_answered() -> bool:
        replies.append(caller.call("GET", path))
        return replies[-1].status != 503

    wait_until(is_answered, "an answer")
    assert replies[-1].status == 200, replies[-1]
    value: dict[str, Any] = replies[-1].value
    return value


def publish_in_the_end(caller: Caller, channels: list[str], data: str) -> None:
    """Publish once, and try until that is acknowledged: an attempt whose outcome is unknown may have succeeded."""
    key = f"{channels} {data}"
    wait_until(lambda: try_to_publish(caller, channels, data, key=key).status == 201, f"{data!r} to be published")


@contextmanager
def cluster_at(redis: RedisServer, directory: Path, nodes: int, **settings: Any) -> Iterator[RedisCluster]:
    """Run this many nodes on a running Redis; they must log nothing unexpected."""
    with ExitStack() as stack:
        cluster = RedisCluster(redis, directory, stack)
        for _ in range(nodes):
            cluster.start(ready=False, **settings)
        cluster.wait_until_ready()
        yield cluster
        assert cluster.trouble() == []
