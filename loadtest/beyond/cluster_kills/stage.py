"""Starts clusters: nodes behind HAProxy with one Redis, or a node with a journal, and much in them already."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from deploy.cluster import Cluster, free_ports
from loadtest.beyond.cluster_kills.clients import Load, Record
from loadtest.beyond.cluster_kills.clocks import Clocks
from loadtest.beyond.cluster_kills.links import Links
from loadtest.beyond.cluster_kills.redis import ALWAYS, Redis
from loadtest.beyond.cluster_kills.requests import Http, Target
from loadtest.beyond.cluster_kills.scene import LIMITS, Nodes, Scene
from loadtest.kit.values import Limits

NODES = 4

STATE_CHANNELS = 20_000
STATE_AT_ONCE = 100
"""Channels of the messages that are there before the load begins; and how many are published together."""


class Base:
    """Data to begin with: tens of thousands of messages on many channels, published once and then copied."""

    def __init__(self, folder: Path, messages: int) -> None:
        self.redis = folder / "base-redis"
        self.journal = folder / "base-journal"
        self.messages = messages
        with ExitStack() as stack:
            work = folder / "base"
            work.mkdir()
            redis = Redis("redis", work, free_ports(1)[0], ALWAYS)
            redis.start()
            stack.callback(redis.kill)
            url = f"redis://127.0.0.1:{redis.port}"
            with Nodes(work, nodes=2, links=dict.fromkeys(("node1", "node2"), url)) as nodes:
                _fill(nodes, messages)
            redis.ask("SAVE")
            redis.kill()
            shutil.move(redis.data, self.redis)
        work = folder / "base-node"
        with Nodes(work, nodes=1, broadcast=f"journal:{work / 'journal'}") as node:
            _fill(node, messages)
        self.journal.mkdir()
        for path in work.glob("journal*"):
            shutil.copy(path, self.journal)


def _fill(cluster: Cluster, messages: int) -> None:
    """Publish them, in batches, by several clients."""

    def publish(number: int) -> None:
        names = [f"state-{(number + n) % STATE_CHANNELS}" for n in range(STATE_AT_ONCE)]
        body = {"messages": [{"channels": [name], "data": f"{number} {name} " + "x" * 60} for name in names]}
        with closing(Http([cluster.address(cluster.nodes[0])], cluster.publish_key)) as http:
            while http.ask("POST", "/v1/messages", body, {"Idempotency-Key": f"{number}"}, timeout=10.0)[0] != 201:
                time.sleep(0.1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, range(0, messages, STATE_AT_ONCE)))
    time.sleep(1.5)  # a checkpoint is saved once a second


@contextmanager
def staged(
    folder: Path,
    base: Base,
    record: Record,
    rng: random.Random,
    *,
    with_spare: bool = False,
    with_clocks: bool = False,
    with_journal: bool = False,
) -> Iterator[Scene]:
    """Start a cluster of NODES nodes (one with a journal) that has the base in it, and the load.

    `with_spare`: it has a replica. `with_clocks`: the clocks of Redis and of nodes can be set.
    """
    with ExitStack() as stack:
        clocks = Clocks(folder) if with_clocks else None
        names = [f"node{number}" for number in range(1, NODES + 1)]
        environments = {name: clocks.environment(name) for name in names} if clocks else {}
        redis = spare = links = None
        if with_journal:
            shutil.copytree(base.journal, folder / "journal")
            journal = next((folder / "journal").glob("journal"))
            cluster = Nodes(folder, nodes=1, broadcast=f"journal:{journal}")
        else:
            ports = free_ports(2 + NODES)
            redis = Redis("redis", folder, ports[0], ALWAYS, clocks.environment("redis") if clocks else None)
            redis.fill(base.redis)
            stack.callback(redis.kill)
            redis.start()
            if with_spare:
                spare = Redis("spare", folder, ports[1], ALWAYS)
                stack.callback(spare.kill)
                spare.start()
                spare.replicate(redis)
            links = stack.enter_context(closing(Links(redis.port, ports[2:])))
            urls = {name: f"redis://127.0.0.1:{port}" for name, port in zip(names, ports[2:], strict=True)}
            cluster = Nodes(folder, nodes=NODES, links=urls, environments=environments, is_durable=not with_spare)
        stack.enter_context(cluster)
        fronts = ["inside"] * len(cluster.nodes) if "haproxy" in cluster.parts else []
        target = Target([cluster.address(name) for name in (*fronts, *cluster.nodes)], cluster.publish_key)
        load = Load(target, record, str(rng.random()))
        scene = Scene(cluster, load, record, rng)
        scene.redis, scene.spare, scene.links, scene.clocks = redis, spare, links, clocks
        scene.live_again(scene.nodes)
        load.begin()
        yield scene


def limits() -> Limits:
    """Those of the clusters."""
    return Limits(**LIMITS)
