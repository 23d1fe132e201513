"""Faults of a cluster under load: is anything lost that was acknowledged, without a gap being told?

| fault | what is done |
|---|---|
| node killed | kill -9 of one of four nodes, which comes back |
| Redis killed | kill -9 of Redis, which syncs each write to its file, and comes back |
| HAProxy reloaded | its configuration is read again |
| node frozen | SIGSTOP of one of four nodes, and SIGCONT 1 to 28 s later |
| node cut off | the link between a node and Redis is down for 30 s (`loadtest.cut_off`; needs root) |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from deploy.cluster import Cluster
from loadtest import cut_off
from loadtest.results import Figure, Progress, Table, Value
from loadtest.witnesses import COLUMNS, LONGEST_COLUMNS, Found, Longest, Witnesses

FAULTS = 100
QUICK_FAULTS = 5
LONGEST_SECONDS = 1.0
"""Between two faults there is no time, or so much."""

FREEZES = 20
QUICK_FREEZES = 2
FREEZE_SECONDS = 28.0
QUICK_FREEZE_SECONDS = 8.0
"""A node is frozen for 1 s to so long."""

THAWED_SECONDS = 4.0
"""After it, clients have been served by nodes that work; without it two nodes would hang at once, as clients see it."""

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


class Fault(NamedTuple):
    """What is done to a cluster, and to which clients.

    is_met_at_nodes: half of the load goes to the nodes themselves, which moves on when a node is gone. From a frozen
    node nobody can move on but those who came by HAProxy: then all others stay where they are.
    """

    name: str
    do: Callable[[Cluster, random.Random], None]
    is_met_at_nodes: bool = True


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(
            QUICK_FAULTS, freezes=QUICK_FREEZES, freeze_seconds=QUICK_FREEZE_SECONDS, cut_seconds=QUICK_CUT_SECONDS
        )
    return measure(FAULTS, freezes=FREEZES, freeze_seconds=FREEZE_SECONDS, cut_seconds=CUT_SECONDS)


def measure(
    faults: int, *, freezes: int, freeze_seconds: float, cut_seconds: float
) -> tuple[list[Table], list[Figure]]:
    """So many faults of each kind, and so many freezes of 1 s to so long."""
    progress = Progress(3 * faults + freezes + (faults if cut_off.is_possible() else 0))
    freeze = Fault("node frozen", lambda cluster, chance: freeze_a_node(cluster, chance, freeze_seconds), False)
    rows = [
        (fault.name, times, *_flat(harm(times, fault, progress)))
        for fault, times in (
            (Fault("node killed", _kill_a_node), faults),
            (Fault("Redis killed", _kill_redis), faults),
            (Fault("HAProxy reloaded", _reload_haproxy), faults),
            (freeze, freezes),
        )
    ]
    if cut_off.is_possible():
        rows.append(("node cut off", faults, *_flat(cut_off.measure(faults, cut_seconds, SETTINGS, progress))))
    progress.end()
    columns = ("fault", "times", *COLUMNS, *LONGEST_COLUMNS)
    return [Table("cluster-kills", "Faults of four nodes with one Redis, under load", columns, rows)], []


def harm(times: int, fault: Fault, progress: Progress) -> tuple[Found, Longest]:
    """A cluster under load, harmed so many times."""
    chance = random.Random(SEED)  # noqa: S311  # the same faults each time
    with Cluster(nodes=4, without=("example",), settings=SETTINGS) as cluster:
        inside, nodes = cluster.urls["inside"], [cluster.urls[node] for node in cluster.nodes]
        if fault.is_met_at_nodes:
            witnesses = Witnesses([inside, *nodes], key=cluster.publish_key, pause=0.002)
        else:
            witnesses = Witnesses([inside], key=cluster.publish_key, pause=0.002, stay_at=nodes)
        witnesses.begin()
        for number in range(times):
            progress.step(f"{fault.name}, {number + 1}")
            time.sleep(LONGEST_SECONDS * chance.random())
            fault.do(cluster, chance)
        time.sleep(2.0)
        witnesses.end()
        return witnesses.compare(), witnesses.longest()


def freeze_a_node(cluster: Cluster, chance: random.Random, longest: float) -> None:
    """Stop a node for 1 s to so long, and let it go on."""
    name = chance.choice(cluster.nodes)
    cluster.freeze_part(name)
    time.sleep(chance.uniform(1.0, longest))
    cluster.thaw_part(name)
    time.sleep(THAWED_SECONDS)


def _flat(measured: tuple[Found, Longest]) -> tuple[Value, ...]:
    found, longest = measured
    return (*found, *longest)


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
