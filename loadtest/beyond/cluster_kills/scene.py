"""What faults happen to: a running cluster under load, and whether it is live again (`stage` starts it)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from deploy.cluster import Cluster
from deploy.part import Part
from loadtest.beyond.cluster_kills.clients import Load, Record
from loadtest.beyond.cluster_kills.clocks import Clocks
from loadtest.beyond.cluster_kills.links import Links
from loadtest.beyond.cluster_kills.redis import Redis
from loadtest.beyond.cluster_kills.requests import Http
from loadtest.history import events

LIMITS: dict[str, Any] = {
    "retention_messages": 1_000_000,
    "retention_seconds": 5400.0,
    "retention_bytes": 4 * 1024**3,
    "channel_ttl_seconds": 5400.0,
}
"""Nothing is dropped unless a clock jumps by two hours, so that everything can be compared."""

SETTINGS = {**LIMITS, "drain_seconds": 0.5}

LINKED = "redis://links"
"""Stands for the address of each node's own link to Redis."""

LIVE_SECONDS = 60.0
"""A node that is not live again by then breaks a promise."""

MESSAGES = "pushup_cached_messages "
"""How the line in /metrics begins that says how many messages a node has."""


class NotLive(Exception):
    """A node does not work, long after a fault has ended."""


class Nodes(Cluster):
    """Nodes with their own addresses of Redis, marks and environments."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        broadcast: str = LINKED,
        links: Mapping[str, str] | None = None,
        environments: Mapping[str, dict[str, str]] | None = None,
        is_durable: bool = False,
    ) -> None:
        """`is_durable`: as an operator would, declare that Redis syncs each write, and has no replica."""
        without = ("example",) if nodes > 1 else ("example", "haproxy")
        settings = {**SETTINGS, "redis_durable": "true"} if is_durable else SETTINGS
        super().__init__(nodes=nodes, broadcast=broadcast, settings=settings, without=without, folder=folder)
        self._links = links or {}
        self._environments = environments or {}

    def _part(self, name: str, command: list[str], is_ready: Any) -> Part:
        words = [self._links.get(name, word) if word == LINKED else word for word in command]
        if name in self._links:
            words += ["--set", f"state_directory={self.folder / 'marks' / name}", "--log-level", "info"]
        environment = {**self._environment(name), **self._environments.get(name, {})}
        return Part(
            name, words, environment=environment, folder=self.folder, is_ready=is_ready, start_seconds=LIVE_SECONDS
        )


class Scene:
    """A running cluster under load. The faults are in `faults` and `redis_faults`."""

    def __init__(self, cluster: Nodes, load: Load, record: Record, rng: random.Random) -> None:
        self.cluster = cluster
        self.load = load
        self.record = record
        self.rng = rng
        self.redis: Redis | None = None
        self.spare: Redis | None = None
        """The other Redis, which takes over in a failover."""
        self.links: Links | None = None
        self.clocks: Clocks | None = None
        self.kind: dict[str, Any] = {}
        """What `loadtest.history.events.Fault` says of the faults of this round."""
        self._probes = 0
        self._lock = Lock()
        self._in_use: set[str] = set()

    @property
    def nodes(self) -> list[str]:
        return self.cluster.nodes

    def begins(self, on: str = "", seconds: float | None = None) -> None:
        """Write down that the next fault begins now: what it happens to, and for how long."""
        self.record.write(events.Fault, on=on, seconds=seconds, **self.kind)

    @contextmanager
    def a_node(self) -> Iterator[str]:
        """A node to which nothing else happens meanwhile."""
        with self._lock:
            name = self.rng.choice([name for name in self.nodes if name not in self._in_use])
            self._in_use.add(name)
        try:
            yield name
        finally:
            with self._lock:
                self._in_use.discard(name)

    def marks(self) -> list[tuple[str, int]]:
        """The marks of all nodes: epochs and sequences."""
        found = []
        for path in sorted((self.cluster.folder / "marks").glob("*/*")):
            with suppress(ValueError, KeyError, OSError):
                mark = json.loads(path.read_bytes())
                found.append((str(mark["epoch"]), int(mark["sequence"])))
        return found

    def live_again(self, nodes: list[str]) -> float:
        """Wait until each of these nodes is ready, takes a publication, and all of them deliver it.

        Returns the seconds that it took. Raises: NotLive.
        """
        began = time.monotonic()
        deadline = began + LIVE_SECONDS
        for name in nodes:
            with closing(self._http(name)) as http:
                _until(lambda h=http: h.ask("GET", "/readyz", timeout=2.0)[0] == 200, f"{name} to be ready", deadline)
        for name in nodes:
            self._probe(name, nodes, deadline)
        if "haproxy" in self.cluster.parts:
            with closing(Http([self.cluster.address("inside")], "")) as http:
                _until(lambda: http.ask("GET", "/v1/cursor", timeout=2.0)[0] == 200, "HAProxy to find a node", deadline)
        return time.monotonic() - began

    def _probe(self, name: str, nodes: list[str], deadline: float) -> None:
        with self._lock:
            self._probes += 1
            channel = f"probe-{self._probes}"
        body = {"channels": [channel], "data": channel}
        target = f"/v1/poll?channel={channel}&cursor=earliest&timeout=2"

        def is_delivered() -> bool:
            with closing(self._http(name)) as http:
                if http.ask("POST", "/v1/messages", body, {"Idempotency-Key": channel}, timeout=3.0)[0] != 201:
                    return False
            for other in nodes:
                with closing(self._http(other)) as http:
                    status, value, _ = http.ask("GET", target, timeout=4.0)
                    if status != 200 or not value["messages"]:
                        return False
            return True

        _until(is_delivered, f"a message from {name} to be delivered", deadline)

    def differences(self) -> str:
        """How the nodes' channels and messages differ, some time after everything has ended; empty if they do not."""
        deadline = time.monotonic() + LIVE_SECONDS / 4
        while True:
            seen = {name: self._contents(name) for name in self.nodes}
            first = seen[self.nodes[0]]
            if all(contents == first for contents in seen.values()):
                return ""
            if time.monotonic() > deadline:
                different = {name: _difference(first, contents) for name, contents in seen.items()}
                return f"replicas are equal: beside {self.nodes[0]} they have {different}"
            time.sleep(0.5)

    def _contents(self, name: str) -> dict[str, Any]:
        """All channels with their ids, and how many messages there are."""
        found: dict[str, Any] = {}
        after, more = 0, True
        with closing(self._http(name)) as http:
            while more:
                status, page, why = http.ask("GET", f"/v1/channels?after={after}&limit=1000", timeout=10.0)
                if status != 200:
                    return {"": why}
                found |= {channel["name"]: channel["id"] for channel in page["channels"]}
                more = page["more"]
                after = page["channels"][-1]["id"] if more else after
            metrics = http.text("GET", "/metrics", timeout=10.0)[1].splitlines()
        found[""] = [line for line in metrics if line.startswith(MESSAGES)]
        return found

    def _http(self, name: str) -> Http:
        return Http([self.cluster.address(name)], self.cluster.publish_key)


def _difference(first: dict[str, Any], other: dict[str, Any]) -> str:
    names = [name for name in sorted(first.keys() | other.keys()) if first.get(name) != other.get(name)]
    return f"{len(names)} different: {[(name, first.get(name), other.get(name)) for name in names[:3]]}"


def _until(condition: Any, what: str, deadline: float) -> None:
    while not condition():
        if time.monotonic() > deadline:
            raise NotLive(f"live again: waited {LIVE_SECONDS:.0f} s for {what}")
        time.sleep(0.05)
