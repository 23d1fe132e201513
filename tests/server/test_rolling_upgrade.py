"""A cluster is upgraded node by node to a release with a newer state machine, and back, while it is in use."""

from __future__ import annotations

import http.client
import itertools
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pushup.core.machine_rules import LATEST_VERSION
from tests.next_version import NEXT_VERSION, SOURCE_CHANGES
from tests.server.caller import Caller, Reply, poll_path
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the next release is installed."""
    directory = tmp_path_factory.mktemp("next")
    shutil.copytree(ROOT / "pushup", directory / "pushup", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in SOURCE_CHANGES.items():
        path = directory / "pushup" / name
        text = path.read_text()
        assert text.count(before) == 1, name
        path.write_text(text.replace(before, after))
    return directory


class Client(threading.Thread):
    """Calls one node after the other until it is stopped; a failure outside of the calls is kept."""

    def __init__(self, nodes: list[Server]) -> None:
        super().__init__(daemon=True)
        self.nodes = nodes
        self.is_over = threading.Event()
        self.failure: Exception | None = None
        self._turn = itertools.count()
        self.start()

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self.step()
        except Exception as error:
            self.failure = error

    def step(self) -> None:
        raise NotImplementedError

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Reply | None:
        """A call to the next node; None if it did not answer, as it stops, or if it sends its clients elsewhere."""
        nodes = self.nodes.copy()  # the test takes some away meanwhile
        try:
            with Caller(nodes[next(self._turn) % len(nodes)].address) as caller:
                reply = caller.call(method, path, body, headers)
        except (OSError, http.client.HTTPException):
            return None
        assert reply.status in (200, 201, 503), reply
        return None if reply.status == 503 else reply

    def finish(self) -> None:
        self.is_over.set()
        self.join(30.0)
        assert not self.is_alive()
        assert self.failure is None, repr(self.failure)


class Publisher(Client):
    """Publishes numbers, and tries each until it is acknowledged."""

    count = 0

    def step(self) -> None:
        body = {"channels": ["a"], "data": self.count}
        if self.call("POST", "/v1/messages", body, {"Idempotency-Key": f"n{self.count}"}) is not None:
            self.count += 1


class Subscriber(Client):
    """Follows the channel with its cursor, at any node."""

    def __init__(self, nodes: list[Server]) -> None:
        self.cursor = "earliest"
        self.data: list[Any] = []
        self.gaps: list[Any] = []
        super().__init__(nodes)

    def step(self) -> None:
        reply = self.call("GET", poll_path("a", cursor=self.cursor, timeout=1))
        if reply is not None:
            self.data += [message["data"] for message in reply.value["messages"]]
            self.gaps += reply.value["gaps"]
            self.cursor = reply.value["cursor"]


class Upgrade:
    """A cluster with nodes of two releases, a publisher and two subscribers."""

    def __init__(self, cluster: RedisCluster, next_release: Path) -> None:
        self.cluster = cluster
        self._next = {"PYTHONPATH": str(next_release)}
        self.nodes: list[Server] = []
        """Those in use."""
        self.clients: list[Client] = []

    def start(self, *, new: bool) -> Server:
        server = self.cluster.start(environment=self._next if new else None)
        self.nodes.append(server)
        return server

    def stop(self, server: Server) -> None:
        """Stop a node in good order, after the clients' next calls go to others."""
        self.nodes.remove(server)
        self.cluster.stop(self.cluster.nodes.index(server))

    def begin(self) -> None:
        self.publisher = Publisher(self.nodes)
        self.subscribers = [Subscriber(self.nodes), Subscriber(self.nodes)]

    def go_on(self) -> None:
        """Wait until the clients have used the present nodes for a while."""
        goal = self.publisher.count + 20
        wait_until(lambda: self.publisher.count >= goal or not self.publisher.is_alive(), "publications")

    def end(self) -> None:
        """Nothing was lost, nothing came twice, and there was no gap."""
        self.publisher.finish()
        count = self.publisher.count
        for subscriber in self.subscribers:
            wait_until(lambda s=subscriber: len(s.data) >= count or not s.is_alive(), "the last message")  # type: ignore[misc]
            subscriber.finish()
            assert subscriber.data == list(range(count))
            assert subscriber.gaps == []

    def version(self) -> int:
        with self.cluster.redis.client() as client:
            return int(client.ask("HGET", "{pushup}:5:state", "version"))

    def lifetime(self, server: Server, name: str) -> float:
        """How long a new channel lives, seconds."""
        with server.caller() as caller:
            made = caller.call("POST", "/v1/channels", {"name": name}).value
            sent = caller.publish(["clock"], 0)
        return 60.0 * round(float(made["expires"] - sent["time"]) / 60)


@pytest.fixture
def upgrade(tmp_path: Path, next_release: Path) -> Iterator[Upgrade]:
    """Two nodes of this release, in use."""
    with RedisServer(tmp_path / "redis") as redis, ExitStack() as stack:
        upgrade = Upgrade(RedisCluster(redis, tmp_path, stack), next_release)
        for _ in range(2):
            upgrade.start(new=False)
        upgrade.begin()
        upgrade.go_on()
        yield upgrade


def test_nodes_are_replaced_one_after_the_other(upgrade: Upgrade) -> None:
    """To the next release, back before all nodes have it, and to it again: clients notice nothing.

    The state machine changes when the last node of this release is gone. A node of this release that is started then is
    not ready, says once which version it needs, and changes nothing.
    """
    one, two = upgrade.nodes
    three = upgrade.start(new=True)
    upgrade.stop(one)
    upgrade.go_on()
    assert upgrade.lifetime(three, "c3") == 3600.0
    four = upgrade.start(new=False)
    upgrade.stop(three)  # back
    upgrade.go_on()
    assert upgrade.version() == LATEST_VERSION

    new = [upgrade.start(new=True), upgrade.start(new=True)]
    upgrade.stop(two)
    upgrade.go_on()
    assert upgrade.version() == LATEST_VERSION
    upgrade.stop(four)
    wait_until(lambda: upgrade.version() == NEXT_VERSION, "the state machine to change")
    upgrade.go_on()
    assert [upgrade.lifetime(node, f"new{n}") for n, node in enumerate(new)] == [7200.0] * 2
    upgrade.end()
    assert upgrade.cluster.trouble() == []

    check_that_it_touches_nothing(upgrade)
    for node in new:
        with node.caller() as caller:
            assert caller.call("GET", "/readyz").status == 200


def check_that_it_touches_nothing(upgrade: Upgrade) -> None:
    """A node of this release at a log of the next one."""
    with upgrade.cluster.redis.client() as client:

        def contents() -> list[Any]:
            state = client.ask("HGETALL", "{pushup}:5:state")
            return [state, client.ask("XLEN", "{pushup}:5:log"), client.ask("HLEN", "{pushup}:5:members")]

        fields = "saved", "sequence"
        wait_until(lambda: len(set(client.ask("HMGET", "{pushup}:5:state", *fields))) == 1, "the last save")
        before = contents()
        old = upgrade.cluster.start(ready=False)
        needed = f"version {NEXT_VERSION} of the state machine"
        wait_until(lambda: any(needed in line for line in old.log_lines()), "the reason")
        with old.caller() as caller:
            for _ in range(3):
                reply = caller.call("GET", "/readyz")
                assert reply.status == 503
                assert needed in reply.text
                threading.Event().wait(1.0)  # it tries again meanwhile
            assert caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 503
        assert [needed in line for line in old.trouble()] == []
        assert sum(needed in line for line in old.log_lines()) == 1
        assert contents() == before
