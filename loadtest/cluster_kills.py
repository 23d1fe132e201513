"""Faults of a cluster under load: is any acknowledged message lost without a reported gap?

| fault | details |
|---|---|
| node killed | kill -9 of one of four nodes, which is then restarted |
| Redis killed | kill -9 of Redis, which syncs each write to its file, and is then restarted |
| HAProxy reloaded | it rereads its configuration |
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
MAX_PAUSE_SECONDS = 1.0
"""Longest pause between two faults; the pauses are random."""

FREEZES = 20
QUICK_FREEZES = 2
FREEZE_SECONDS = 28.0
QUICK_FREEZE_SECONDS = 8.0
"""Longest freeze; each takes a random time from 1 s to this."""

RECOVERY_SECONDS = 4.0
"""Wait after a freeze until working nodes have served all clients, or clients might face two hung nodes at once."""

CUT_SECONDS = 30.0
QUICK_CUT_SECONDS = 8.0
SEED = 13

SETTINGS = {
    "retention_messages": 10_000_000,
    "retention_seconds": 7200,
    "retention_bytes": 4 * 1024**3,
    "drain_seconds": 0.5,
}
"""Nothing is dropped, so that everything can be compared at the end."""


class Fault(NamedTuple):
    """A fault to inject into a cluster.

    loads_nodes_directly: part of the load goes to the nodes without HAProxy, and moves to another node when one fails.
    Where this is False, clients without HAProxy stay at one node each: a client cannot notice that its node is frozen.
    """

    name: str
    inject: Callable[[Cluster, random.Random], None]
    loads_nodes_directly: bool = True


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(
            QUICK_FAULTS, freezes=QUICK_FREEZES, freeze_seconds=QUICK_FREEZE_SECONDS, cut_seconds=QUICK_CUT_SECONDS
        )
    return measure(FAULTS, freezes=FREEZES, freeze_seconds=FREEZE_SECONDS, cut_seconds=CUT_SECONDS)


def measure(
    faults: int, *, freezes: int, freeze_seconds: float, cut_seconds: float
) -> tuple[list[Table], list[Figure]]:
    """Inject `faults` faults of each kind, but `freezes` freezes of 1 s to `freeze_seconds`."""
    progress = Progress(3 * faults + freezes + (faults if cut_off.is_possible() else 0))
    freeze = Fault("node frozen", lambda cluster, rng: freeze_a_node(cluster, rng, freeze_seconds), False)
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
    """Run a cluster under load, and inject the fault `times` times."""
    rng = random.Random(SEED)  # noqa: S311  # the same faults each time
    with Cluster(nodes=4, without=("example",), settings=SETTINGS) as cluster:
        inside, nodes = cluster.urls["inside"], [cluster.urls[node] for node in cluster.nodes]
        if fault.loads_nodes_directly:
            witnesses = Witnesses([inside, *nodes], key=cluster.publish_key, pause=0.002)
        else:
            witnesses = Witnesses([inside], key=cluster.publish_key, pause=0.002, stay_at=nodes)
        witnesses.begin()
        for number in range(times):
            progress.step(f"{fault.name}, {number + 1}")
            time.sleep(MAX_PAUSE_SECONDS * rng.random())
            fault.inject(cluster, rng)
        time.sleep(2.0)
        witnesses.end()
        return witnesses.compare(), witnesses.longest()


def freeze_a_node(cluster: Cluster, rng: random.Random, longest: float) -> None:
    """Freeze a random node for 1 s to `longest` seconds, then let it recover."""
    name = rng.choice(cluster.nodes)
    cluster.freeze_part(name)
    time.sleep(rng.uniform(1.0, longest))
    cluster.thaw_part(name)
    time.sleep(RECOVERY_SECONDS)


def _flat(measured: tuple[Found, Longest]) -> tuple[Value, ...]:
    found, longest = measured
    return (*found, *longest)


def _kill_a_node(cluster: Cluster, rng: random.Random) -> None:
    name = rng.choice(cluster.nodes)
    cluster.kill_part(name)
    time.sleep(0.5 * rng.random())
    cluster.start_part(name)


def _kill_redis(cluster: Cluster, rng: random.Random) -> None:
    cluster.kill_part("redis")
    time.sleep(0.5 * rng.random())
    cluster.start_part("redis")


def _reload_haproxy(cluster: Cluster, rng: random.Random) -> None:
    cluster.reload_haproxy()
