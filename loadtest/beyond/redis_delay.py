"""The cost of keeping the order in Redis: a publication's delay, and the rate that four nodes can follow."""

from __future__ import annotations

import os
from collections.abc import Sequence

import psutil

from deploy.cluster import Cluster
from loadtest.load.servers import LOAD_CORE, SERVER_CORE, pin
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Figure, Progress, Table

RATES = (100, 1000)
"""Publications per second, on one node."""

FOLLOWED = (1000, 2000, 3000, 4000, 5000, 6000)
QUICK_FOLLOWED = (1000, 3000, 5000)
"""Publications per second that four nodes have to follow."""

NODES = 4
CHANNELS = 64
PUBLISHERS = 64
"""Publishing connections, each with its own channels; a connection waits for one acknowledgement at a time."""

KEEPING_UP_SECONDS = 0.25
"""The nodes keep up if 99 of 100 messages pass through within this time."""

ROUNDS = 3


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(RATES[-1:], QUICK_FOLLOWED, seconds=2.0, rounds=1)
    return measure(RATES, FOLLOWED, seconds=10.0, rounds=ROUNDS)


def measure(
    rates: Sequence[int], followed: Sequence[int], *, seconds: float, rounds: int
) -> tuple[list[Table], list[Figure]]:
    progress = Progress(rounds * 2 * len(rates) + len(followed))
    delays: dict[tuple[int, str], list[Measured]] = {}
    for _ in range(rounds):
        for broadcast in ("memory:", "redis"):
            with Cluster(nodes=1, broadcast=broadcast, without=("example", "haproxy")) as cluster:
                for rate in rates:
                    progress.step(f"{broadcast}, {rate} per second")
                    delays.setdefault((rate, broadcast), []).append(
                        _measure(cluster, rate, seconds, subscribers=CHANNELS)
                    )
    rows = []
    for (rate, broadcast), measured in delays.items():
        m = sorted(measured, key=lambda one: one.trip(0.5))[len(measured) // 2]
        acks = sorted(m.acknowledgements)
        ack = acks[len(acks) // 2] if acks else 0.0
        rows.append(
            (rate, broadcast.rstrip(":"), 1e3 * m.trip(0.5), 1e3 * m.trip(0.99), 1e3 * ack, 100 * m.received_share)
        )
    columns = ("per second", "broadcast", "trip p50 ms", "trip p99 ms", "ack p50 ms", "received %")
    tables = [Table("redis-delay", "From publication to response, one node", columns, rows)]
    tables.append(_follow(followed, seconds, progress))
    progress.end()
    return tables, []


def _follow(rates: Sequence[int], seconds: float, progress: Progress) -> Table:
    """The rate up to which four nodes keep up; one subscriber per node measures it."""
    rows = []
    with Cluster(nodes=NODES, without=("example", "haproxy")) as cluster:
        for rate in rates:
            progress.step(f"{NODES} nodes, {rate} per second")
            m = _measure(cluster, rate, seconds, subscribers=NODES)  # one per node; most channels have none
            keeps_up = m.received_share == 1 and m.trip(0.99) < KEEPING_UP_SECONDS
            rows.append(
                (rate, m.published / seconds, 1e3 * m.trip(0.5), 1e3 * m.trip(0.99), 100 * m.received_share,
                 "yes" if keeps_up else "no", m.cpu["nodes"] / m.seconds / NODES, m.cpu["redis"] / m.seconds, m.own_cpu)
            )  # fmt: skip
            if not keeps_up:
                break
    columns = (
        "target per second", "published per second", "trip p50 ms", "trip p99 ms", "received %", "keeps up",
        "a node's share of a processor", "redis' share", "swarm's share",
    )  # fmt: skip
    return Table(
        "redis-rate",
        f"{NODES} nodes follow one log; they share a processor, and Redis shares the load generator's",
        columns,
        rows,
    )


def _measure(cluster: Cluster, rate: int, seconds: float, *, subscribers: int) -> Measured:
    addresses, watched = addresses_of(cluster), pinned(cluster)
    for pid in watched["redis"]:
        if os.geteuid() == 0:
            psutil.Process(pid).nice(-20)  # or it waits for the swarm, which does not sleep at high rates
    swarm = Swarm(
        addresses,
        addresses,
        subscribers=subscribers,
        channels=CHANNELS,
        publishers=PUBLISHERS,
        publish_headers=f"Authorization: Bearer {cluster.publish_key}\r\n",
        watched=watched,
    )
    try:
        swarm.begin()
        swarm.measure(interval=1 / rate, seconds=1.0)
        return swarm.measure(interval=1 / rate, seconds=seconds)
    finally:
        swarm.close()


def pinned(cluster: Cluster) -> dict[str, list[int]]:
    """The processes of the nodes and of Redis, each on its processor."""
    groups: dict[str, list[int]] = {"nodes": [], "redis": []}
    for name, pid in cluster.pids.items():
        if pid is not None:
            group, core = ("nodes", SERVER_CORE) if name in cluster.nodes else ("redis", LOAD_CORE)
            groups[group].append(pid)
            pin(pid, core)
    return groups


def addresses_of(cluster: Cluster) -> list[tuple[str, int]]:
    """Those of the nodes."""
    pairs = [cluster.address(name).split(":") for name in cluster.nodes]
    return [(host, int(port)) for host, port in pairs]
