"""Faults of a cluster under load: is anything lost that was acknowledged, without a gap being told?

| fault | what is done |
|---|---|
| node killed | kill -9 of one of four nodes, which comes back |
| Redis killed | kill -9 of Redis, which syncs each write to its file, and comes back |
| HAProxy reloaded | its configuration is read again |
| node cut off | the link between a node and Redis is down for 30 s (`loadtest.cut_off`; needs root) |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from deploy.cluster import Cluster
from loadtest import cut_off
from loadtest.results import Figure, Progress, Table
from loadtest.witnesses import COLUMNS, Found, Witnesses

FAULTS = 100
QUICK_FAULTS = 5
LONGEST_SECONDS = 1.0
"""Between two faults there is no time, or so much."""

CUT_SECONDS = 30.0
QUICK_CUT_SECONDS = 8.0
SEED = 13

SETTINGS = {
    "retention_messages": 10_000_000,
    "retention_seconds": 7200,
    "retention_bytes": 4 * 1024**3,
    "drain_seconds": 0.5,
}
"""Everything is kept, so that it can be compared in the end."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(QUICK_FAULTS, cut_seconds=QUICK_CUT_SECONDS)
    return measure(FAULTS, cut_seconds=CUT_SECONDS)


def measure(faults: int, *, cut_seconds: float) -> tuple[list[Table], list[Figure]]:
    """So many faults of each kind."""
    progress = Progress(3 * faults + (faults if cut_off.is_possible() else 0))
    rows = [
        (name, faults, *_harm(faults, fault, progress, name))
        for name, fault in (
            ("node killed", _kill_a_node),
            ("Redis killed", _kill_redis),
            ("HAProxy reloaded", _reload_haproxy),
        )
    ]
    if cut_off.is_possible():
        rows.append(("node cut off", faults, *cut_off.measure(faults, cut_seconds, SETTINGS, progress)))
    progress.end()
    return [
        Table("cluster-kills", "Faults of four nodes with one Redis, under load", ("fault", "times", *COLUMNS), rows)
    ], []


def _harm(faults: int, fault: Callable[[Cluster, random.Random], None], progress: Progress, name: str) -> Found:
    """A cluster under load, harmed so many times."""
    chance = random.Random(SEED)  # noqa: S311  # the same faults each time
    with Cluster(nodes=4, without=("example",), settings=SETTINGS) as cluster:
        # Half go by HAProxy, as clients do; half to the nodes themselves, where they meet each one's state.
        urls = [cluster.urls["inside"], *(cluster.urls[node] for node in cluster.nodes)]
        witnesses = Witnesses(urls, key=cluster.publish_key, pause=0.002)
        witnesses.begin()
        for number in range(faults):
            progress.step(f"{name}, {number + 1}")
            time.sleep(LONGEST_SECONDS * chance.random())
            fault(cluster, chance)
        time.sleep(2.0)
        witnesses.end()
        return witnesses.compare()


def _kill_a_node(cluster: Cluster, chance: random.Random) -> None:
    name = chance.choice(cluster.nodes)
    cluster.kill_part(name)
    time.sleep(0.5 * chance.random())
    cluster.start_part(name)


def _kill_redis(cluster: Cluster, chance: random.Random) -> None:
    cluster.kill_part("redis")
    time.sleep(0.5 * chance.random())
    cluster.start_part("redis")


def _reload_haproxy(cluster: Cluster, chance: random.Random) -> None:
    cluster.reload_haproxy()
