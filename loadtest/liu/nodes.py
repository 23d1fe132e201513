"""PushUp Figures 12 and 13: one to four nodes behind HAProxy, which distributes connections in turn (§4.4).

Measures trip time and received share by number of connections, and the cost of a delivery to the nodes, HAProxy and
Redis. On one machine the nodes share processors, so more nodes are not faster: this shows the overhead of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from deploy.cluster import Cluster
from loadtest.load.servers import LOAD_CORE, SERVER_CORE, pin
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

NODES = (1, 2, 3, 4)
CONNECTIONS = (500, 1000, 2000, 4000, 8000)
QUICK_CONNECTIONS = (500, 2000, 8000)
"""HAProxy may open 20,000 files, and needs two per connection."""

DELIVERIES_A_SECOND = 8000
"""A load that every configuration can carry, so that costs are comparable. The publish interval follows from it."""

ROUNDS = 2


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(NODES, QUICK_CONNECTIONS, seconds=4.0, rounds=1)
    return measure(NODES, CONNECTIONS, seconds=5.0, rounds=ROUNDS)


def measure(
    nodes: Sequence[int], connections: Sequence[int], *, seconds: float, rounds: int
) -> tuple[list[Table], list[Figure]]:
    """Each number of nodes, and a node without a cluster, with each number of connections; medians of all rounds."""
    progress = Progress(rounds * (len(nodes) + 1) * len(connections))
    results: dict[tuple[int, int], list[Measured]] = {}
    for _ in range(rounds):
        for count in (0, *nodes):
            with _cluster(count) as cluster:
                for number in connections:
                    progress.step(f"{_named(count)}, {number} connections")
                    results.setdefault((count, number), []).append(_measure(cluster, number, seconds))
    progress.end()
    rows: list[tuple[Value, ...]] = []
    trips: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for (count, number), measured in results.items():
        m = sorted(measured, key=lambda one: one.cpu["nodes"] / one.delivered)[len(measured) // 2]
        alone = sorted(one.cpu["nodes"] / one.delivered for one in results[0, number])[len(measured) // 2]
        cost = m.cpu["nodes"] / m.delivered
        trips.setdefault(_named(count), []).append((number, m.mean_trip))
        shares.setdefault(_named(count), []).append((number, 100 * m.received_share))
        rows.append(
            (
                _named(count), number, m.mean_trip, m.trip(0.5), m.trip(0.99), 100 * m.received_share, 1e6 * cost,
                cost / alone, *(1e6 * m.cpu[name] / m.delivered for name in ("haproxy", "redis")),
                m.repeated + m.out_of_order + m.gaps, m.own_cpu,
            )
        )  # fmt: skip
    columns = (
        "nodes", "connections", "mean trip s", "p50 s", "p99 s", "received %", "nodes us per delivery",
        "ratio to 1 node alone", "haproxy us", "redis us", "faults", "swarm's share of its processor",
    )  # fmt: skip
    return [Table("nodes", "Nodes behind HAProxy (PushUp Figures 12 and 13)", columns, rows)], [
        Figure(
            "nodes-trip-time",
            "Mean publish trip time behind HAProxy (PushUp Figure 12)",
            "connections",
            "seconds",
            trips,
        ),
        Figure(
            "nodes-received",
            "Received message percentage behind HAProxy (PushUp Figure 13)",
            "connections",
            "%",
            shares,
        ),
    ]


def _named(count: int) -> str:
    return {0: "1 node, alone", 1: "1 node"}.get(count, f"{count} nodes")


def _cluster(count: int) -> Cluster:
    """A cluster of `count` nodes with Redis and HAProxy; 0: one node with neither."""
    if count == 0:
        return Cluster(nodes=1, broadcast="memory:", without=("example", "haproxy"))
    return Cluster(nodes=count, front="tcp", without=("example",))


def _measure(cluster: Cluster, connections: int, seconds: float) -> Measured:
    front = "haproxy" if "haproxy" in cluster.parts else "node1"
    host, _, port = cluster.address("tcp" if front == "haproxy" else front).partition(":")
    watched: dict[str, list[int]] = {"nodes": [], "haproxy": [], "redis": []}
    for name, pid in cluster.pids.items():
        assert pid is not None
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        group = "nodes" if name.startswith("node") else name
        watched[group] += [process.pid for process in processes]
        for process in processes:
            pin(process.pid, SERVER_CORE if group == "nodes" else LOAD_CORE)
    swarm = Swarm(
        [(host, int(port))],
        [(host, int(port))],
        subscribers=connections,
        publish_headers=f"Authorization: Bearer {cluster.publish_key}\r\n",
        watched=watched,
    )
    try:
        swarm.begin()
        swarm.measure(interval=connections / DELIVERIES_A_SECOND, seconds=1.0)
        return swarm.measure(interval=connections / DELIVERIES_A_SECOND, seconds=seconds)
    finally:
        swarm.close()
