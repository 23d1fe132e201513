"""PushUp Figures 12 and 13: one to four nodes behind HAProxy, which distributes connections in turn (§4.4).

Measures trip time and received share by number of connections, and the cost of a delivery to the nodes, HAProxy and
Redis. On one machine the nodes share processors, so more nodes are not faster: this shows the overhead of a cluster.

What nodes with a core each would deliver is derived from that: as much as would keep the busiest of them busy. A node
alone shows whether that is so: it has a whole core, and gets from half to twice what was derived for it.

Then each node gets a small share of a processor, as if it had a slow machine to itself. So more nodes can do more: this
shows whether a cluster grows with its nodes, as the paper says.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from statistics import median

import click
import psutil

from deploy.cluster import HOST, Cluster
from loadtest.load.servers import LOAD_CORE, SERVER_CORE, pin
from loadtest.load.shares import Shares, why_not
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

NODES = (1, 2, 3, 4)
CONNECTIONS = (500, 1000, 2000, 4000, 8000, 16_000)
HAPROXIES = 2
"""A connection takes two of HAProxy's files, so one that may open 20,000 cannot have 16,000 connections."""

SHARED_CONNECTIONS = (500, 1000, 2000, 4000, 8000, 16_000)
"""When nodes have shares: the paper's, and with the most of them even four nodes lose messages."""

QUICK_NODES = (1, 4)
QUICK_CONNECTIONS = (4000,)
QUICK_SHARED_CONNECTIONS = (8000,)

DELIVERIES_A_SECOND = 8000
"""A load that every configuration can carry, so that costs are comparable. The publish interval follows from it."""

FULL_CORE_CONNECTIONS = (1000, 4000, 16_000)
FULL_CORE_LOADS = (0.5, 0.8, 1.0, 1.25, 2.0)
QUICK_LOADS = (0.5, 1.5)
"""Of a node alone, as shares of what was derived for it."""

ROUNDS = 3

SETTINGS = {"drain_seconds": 0.1}
"""A node that stops need not wait for a balancer."""

SHARE = 0.04
"""Of a processor, for each node: little enough that HAProxy and the swarm on the other one keep up with four nodes."""

WITH_A_CORE_EACH = "deliveries a second with a core each"

INTERVAL_SECONDS = 0.8
"""Between two messages to all, when nodes have shares. 8,000 connections are about what four nodes can serve then."""


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        tables, figures = measure(QUICK_NODES, QUICK_CONNECTIONS, seconds=3.0, rounds=1)
        tables.append(measure_full_core(tables[1], QUICK_CONNECTIONS, QUICK_LOADS, seconds=3.0, rounds=1))
    else:
        tables, figures = measure(NODES, CONNECTIONS, seconds=5.0, rounds=ROUNDS)
        tables.append(measure_full_core(tables[1], FULL_CORE_CONNECTIONS, FULL_CORE_LOADS, seconds=5.0, rounds=ROUNDS))
    if reason := why_not():
        click.echo(reason, err=True)
        return tables, figures
    if quick:
        more_tables, more_figures = measure_shares(QUICK_NODES, QUICK_SHARED_CONNECTIONS, seconds=6.0, rounds=1)
    else:
        more_tables, more_figures = measure_shares(NODES, SHARED_CONNECTIONS, seconds=8.0, rounds=ROUNDS)
    return tables + more_tables, figures + more_figures


def measure(
    nodes: Sequence[int], connections: Sequence[int], *, seconds: float, rounds: int
) -> tuple[list[Table], list[Figure]]:
    """Each number of nodes, and a node without a cluster, with each number of connections.

    Medians of all rounds, but the least that was received, and the most faults.
    """
    progress = Progress(rounds * (len(nodes) + 1) * len(connections))
    results: dict[tuple[int, int], list[Measured]] = {}
    for _ in range(rounds):
        for count in (0, *nodes):
            with _cluster(count) as cluster:
                for number in connections:
                    progress.step(f"{_named(count)}, {number} connections")
                    interval = number / DELIVERIES_A_SECOND
                    measured = _measure(cluster, number, max(seconds, 4 * interval), interval)
                    results.setdefault((count, number), []).append(measured)
    progress.end()
    rows: list[tuple[Value, ...]] = []
    trips: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for (count, number), of_rounds in results.items():
        m = sorted(of_rounds, key=_cost)[len(of_rounds) // 2]
        alone = median(map(_cost, results[0, number]))
        cost = _cost(m)
        trip = median(one.mean_trip for one in of_rounds)
        trips.setdefault(_named(count), []).append((number, trip))
        share = min(one.received_share for one in of_rounds)
        shares.setdefault(_named(count), []).append((number, 100 * share))
        rows.append(
            (
                _named(count), number, trip, m.trip(0.5), m.trip(0.99), 100 * share, 1e6 * cost,
                cost / alone, *(1e6 * m.cpu[name] / m.delivered for name in ("haproxy", "redis")),
                max(map(_faults, of_rounds)), m.own_cpu,
            )
        )  # fmt: skip
    columns = (
        "nodes", "connections", "mean trip s", "p50 s", "p99 s", "received %", "nodes us per delivery",
        "ratio to 1 node alone", "haproxy us", "redis us", "faults", "swarm's share of its processor",
    )  # fmt: skip
    derived, figure = _derived(results)
    return [Table("nodes", "Nodes behind HAProxy (PushUp Figures 12 and 13)", columns, rows), derived], [
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
        figure,
    ]


def _faults(m: Measured) -> int:
    """What should not have happened. Lost messages are not counted here: `received_share` tells of them."""
    return m.repeated + m.out_of_order + m.gaps + m.reconnected + m.refused


def _of_nodes(m: Measured) -> list[float]:
    """The processor time of each node, s."""
    return [cpu for name, cpu in m.cpu.items() if name.startswith("node")]


def _cost(m: Measured) -> float:
    """Of a delivery, to all nodes together, s."""
    return sum(_of_nodes(m)) / m.delivered


def _with_a_core_each(m: Measured) -> float:
    """Deliveries a second that would keep the busiest node busy, if each had a core."""
    return m.delivered / max(_of_nodes(m))


def _derived(results: Mapping[tuple[int, int], Sequence[Measured]]) -> tuple[Table, Figure]:
    """What nodes with a core each would deliver, and what HAProxy and Redis would need for it; medians."""
    rows: list[tuple[Value, ...]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for (count, number), measured in results.items():
        rates = [_with_a_core_each(m) for m in measured]
        rate = median(rates)
        one = median(map(_with_a_core_each, results[min(count, 1), number]))
        others = (rate * median(m.cpu[name] / m.delivered for m in measured) for name in ("haproxy", "redis"))
        if count:
            lines.setdefault(f"{number:,} connections", []).append((count, rate))
        rows.append(
            (
                _named(count), number, 1e6 * median(map(_cost, measured)),
                1e6 * median(sum(_of_nodes(m)) / m.polls for m in measured),
                median(m.delivered / m.polls for m in measured),
                median(100 * sum(m.system_cpu[name] for name in m.cpu if name.startswith("node")) / sum(_of_nodes(m))
                       for m in measured),
                median(max(_of_nodes(m)) * len(_of_nodes(m)) / sum(_of_nodes(m)) for m in measured),
                rate, rate / one, *others, f"{min(rates):.3g} {max(rates):.3g}",
            )
        )  # fmt: skip
    columns = (
        "nodes", "connections", "us a delivery", "us a poll", "deliveries a poll", "of it in the kernel %",
        "busiest node / mean", WITH_A_CORE_EACH, "times one node's", "HAProxy's cores for that",
        "Redis's cores for that", f"{WITH_A_CORE_EACH}, from to",
    )  # fmt: skip
    title = "What nodes with a core each would deliver, derived from processor time (PushUp §4.4)"
    return Table("nodes-a-core-each", title, columns, rows), Figure(
        "nodes-a-core-each", title, "nodes", "deliveries a second", lines
    )


def measure_full_core(
    derived: Table, connections: Sequence[int], loads: Sequence[float], *, seconds: float, rounds: int
) -> Table:
    """A node alone, with a core of its own: what it delivers of so many times the load derived for it; medians."""
    rates = {number: float(rate) for name, number, rate in (
        (row[0], row[1], row[derived.columns.index(WITH_A_CORE_EACH)]) for row in derived.rows
    ) if name == _named(0)}  # fmt: skip
    progress = Progress(rounds * len(connections) * len(loads))
    found: dict[tuple[int, float], list[tuple[float, ...]]] = {}
    for _ in range(rounds):
        for number in connections:
            for load in loads:
                due = load * rates[number]
                progress.step(f"{_named(0)}, {number} connections, {due:,.0f} deliveries a second")
                with _cluster(0) as cluster:
                    m = _measure(cluster, number, seconds, number / due)
                delivered, used = m.delivered / m.seconds, sum(_of_nodes(m)) / m.seconds
                found.setdefault((number, load), []).append(
                    (due, delivered, delivered / rates[number], 100 * m.received_share, m.mean_trip, m.trip(0.99), used,
                     m.delivered / m.polls, _faults(m), m.own_cpu)
                )  # fmt: skip
    progress.end()
    columns = (
        "connections", "due / derived", "due a second", "deliveries a second", "deliveries / derived", "received %",
        "mean trip s", "p99 s", "node's share of a processor", "deliveries a poll", "faults",
        "swarm's share of its processor",
    )  # fmt: skip
    rows = [(*case, *(median(values) for values in zip(*several, strict=True))) for case, several in found.items()]
    return Table("nodes-full-core", "A node alone with a whole core (PushUp §4.4)", columns, rows)


def measure_shares(
    nodes: Sequence[int], connections: Sequence[int], *, seconds: float, rounds: int, share: float = SHARE
) -> tuple[list[Table], list[Figure]]:
    """Each number of nodes with each number of connections, if a node can use this share of a processor.

    Medians of all rounds, but the most faults.

    Each measurement has nodes of its own, because one that was overloaded has a backlog.
    """
    progress = Progress(rounds * len(nodes) * len(connections))
    results: dict[tuple[int, int], list[Measured]] = {}
    for _ in range(rounds):
        for count in nodes:
            for number in connections:
                progress.step(f"{_named(count)} with {share:.0%} of a processor each, {number} connections")
                with _cluster(count) as cluster:
                    measured = _measure(cluster, number, seconds, INTERVAL_SECONDS, share)
                results.setdefault((count, number), []).append(measured)
    progress.end()
    rows: list[tuple[Value, ...]] = []
    trips: dict[str, list[tuple[float, float]]] = {}
    received: dict[str, list[tuple[float, float]]] = {}
    for (count, number), of_rounds in results.items():
        m = sorted(of_rounds, key=lambda one: one.received_share)[len(of_rounds) // 2]
        trip = median(one.mean_trip for one in of_rounds)
        trips.setdefault(_named(count), []).append((number, trip))
        received.setdefault(_named(count), []).append((number, 100 * m.received_share))
        rows.append(
            (
                _named(count), number, trip, m.trip(0.99), 100 * m.received_share, m.delivered / m.seconds,
                sum(_of_nodes(m)) / m.seconds, max(map(_faults, of_rounds)), m.own_cpu,
                1e6 * _cost(m), 1e6 * sum(_of_nodes(m)) / m.polls, m.delivered / m.polls,
            )
        )  # fmt: skip
    columns = (
        "nodes", "connections", "mean trip s", "p99 s", "received %", "deliveries a second",
        "nodes' share of a processor", "faults", "swarm's share of its processor", "us a delivery", "us a poll",
        "deliveries a poll",
    )  # fmt: skip
    title = f"Nodes with {share:.0%} of a processor each (PushUp Figures 12 and 13)"
    return [Table("nodes-with-shares", title, columns, rows)], [
        Figure(
            "nodes-with-shares-trip-time",
            f"Mean trip time, each node with {share:.0%} of a processor (PushUp Figure 12)",
            "connections",
            "seconds",
            trips,
        ),
        Figure(
            "nodes-with-shares-received",
            f"Received messages, each node with {share:.0%} of a processor (PushUp Figure 13)",
            "connections",
            "%",
            received,
        ),
    ]


def _named(count: int) -> str:
    return {0: "1 node, alone", 1: "1 node"}.get(count, f"{count} nodes")


def _cluster(count: int) -> Cluster:
    """A cluster of `count` nodes with Redis and HAProxy; 0: one node with neither."""
    if count == 0:
        return Cluster(nodes=1, broadcast="memory:", settings=SETTINGS, without=("example", "haproxy"))
    return Cluster(nodes=count, front="tcp", haproxies=HAPROXIES, settings=SETTINGS, without=("example",))


def _keep_slow_nodes(cluster: Cluster) -> None:
    """Have HAProxy not ask whether nodes answer: with a small share of a processor they would seem to hang."""
    for name in cluster.fronts:
        for node in cluster.nodes:
            with socket.socket(socket.AF_UNIX) as admin:
                admin.connect(str(cluster.folder / f"{name}.sock"))
                admin.sendall(f"disable health pushup/{node}\n".encode())
                if answer := admin.recv(1024).strip():
                    raise RuntimeError(f"HAProxy goes on asking {node}: {answer.decode()}")


def _measure(
    cluster: Cluster, connections: int, seconds: float, interval: float, share: float | None = None
) -> Measured:
    """`share`: of a processor, for each node, from when all clients are connected; None: all of it."""
    fronts = cluster.fronts.values() if "haproxy" in cluster.parts else cluster.nodes
    addresses = [(HOST, cluster.ports[name]) for name in fronts]
    watched: dict[str, list[int]] = {"haproxy": [], "redis": []}
    for name, pid in cluster.pids.items():
        assert pid is not None
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        is_node = name.startswith("node")
        watched.setdefault(name if is_node else name.rstrip("0123456789"), []).extend(one.pid for one in processes)
        for process in processes:
            pin(process.pid, SERVER_CORE if is_node else LOAD_CORE)
    swarm = Swarm(
        addresses,
        addresses,
        subscribers=connections,
        publish_headers=f"Authorization: Bearer {cluster.publish_key}\r\n",
        watched=watched,
    )
    try:
        swarm.begin()
        swarm.measure(interval=interval, seconds=max(1.0, interval))
        with Shares() as shares:
            if share is not None:
                _keep_slow_nodes(cluster)
                for name in cluster.nodes:
                    shares.give(watched[name], share)
            return swarm.measure(interval=interval, seconds=seconds)
    finally:
        swarm.close()
