"""The processor time of a delivery and of a publication, summed over all processes; and how connections are shared.

All processes of the server share one processor, and the clients have another: what is compared is the time that the
work takes, not how fast it is done. `capacity` is the opposite: the server may use all processors, and is asked for
more than it can do.
"""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import time
from collections.abc import Sequence
from contextlib import closing

import psutil

from loadtest.load.counted_client import CountedClient
from loadtest.load.servers import SERVER_CORE, Server, running
from loadtest.load.swarm import Measured, Swarm
from loadtest.reports.results import Progress, Table, Value

WORKERS = (1, 2, 4)
ROUNDS = 3

FAN_OUT = {1000: 0.1, 10_000: 0.4}
"""Subscribers of one channel, and seconds between two messages."""

PUBLICATIONS_PER_SECOND = 1000
TOGETHER = (8, 64)
"""Publications under way in a closed loop, each on a connection of its own."""

SECONDS = 5.0
CONNECTIONS = 16_000
CAPACITY_SUBSCRIBERS = 4000
CAPACITY_INTERVAL = 0.02
"""200,000 deliveries a second are asked for."""
PATIENCE_SECONDS = 30.0
"""How long to wait for the last deliveries, and for workers to accept all connections. On a busy machine that takes
long. What is left of the warm-up would be delivered in place of what is counted."""


def run(*, quick: bool) -> list[Table]:
    if quick:
        return measure((1, 2), 1, {1000: 0.1}, seconds=1.5, connections=2000, together=TOGETHER[-1:])
    return measure(WORKERS, ROUNDS, FAN_OUT, seconds=SECONDS, connections=CONNECTIONS)


def measure(
    workers: Sequence[int],
    rounds: int,
    fan_out: dict[int, float],
    *,
    seconds: float,
    connections: int,
    together: Sequence[int] = TOGETHER,
    capacity_subscribers: int = CAPACITY_SUBSCRIBERS,
) -> list[Table]:
    """Medians of the rounds, in each of which all numbers of workers take their turn."""
    costs: dict[tuple[str, int], list[float]] = {}
    shares: dict[tuple[str, int], list[float]] = {}
    rates: dict[tuple[str, int], list[tuple[float, float]]] = {}
    progress = Progress(rounds * len(workers) * (len(fan_out) + len(together) + 3))
    for _ in range(rounds):
        for number in workers:
            for subscribers, interval in fan_out.items():
                progress.step(f"fan-out to {subscribers}, {number} workers")
                m = _work(number, subscribers, interval, seconds)
                work = f"delivery, fan-out to {subscribers:,}"
                costs.setdefault((work, number), []).append(1e6 * m.cpu["server"] / max(1, m.delivered))
                shares.setdefault((work, number), []).append(m.received_share)
            progress.step(f"publications, {number} workers")
            m = _work(number, 0, 1 / PUBLICATIONS_PER_SECOND, seconds)
            costs.setdefault(("publication", number), []).append(1e6 * m.cpu["server"] / max(1, m.published))
            for window in together:
                progress.step(f"publications, {window} at a time, {number} workers")
                m = _work(number, 0, 0.0, seconds, window=window)
                work = f"publication, {window} at a time"
                costs.setdefault((work, number), []).append(1e6 * m.cpu["server"] / max(1, m.published))
            progress.step(f"capacity, {number} workers")
            m = _work(number, capacity_subscribers, CAPACITY_INTERVAL, seconds, core=None)
            rates.setdefault(("deliveries", number), []).append((m.delivered / m.seconds, m.own_cpu))
            m = _work(number, 0, 1 / 20_000, seconds, core=None)
            rates.setdefault(("publications", number), []).append((len(m.acknowledgements) / m.seconds, m.own_cpu))
    balance = []
    for number in workers[1:]:
        progress.step(f"balance, {number} workers")
        balance.append(_balance(number, connections))
    progress.end()
    return [_costs(costs, shares), _capacity(rates), _balances(balance)]


def _work(
    workers: int,
    subscribers: int,
    interval: float,
    seconds: float,
    core: int | None = SERVER_CORE,
    window: int = 0,
) -> Measured:
    # On all cores, the server gets more than it can do; a connection carries out one publication after the other.
    publishers = window or (64 if core is None else 8)
    with running("--workers", str(workers), core=core) as server:
        swarm = Swarm(
            [server.address], [server.address], subscribers=subscribers, publishers=publishers,
            channels=1 if subscribers else publishers, watched={"server": pids(server)},
        )  # fmt: skip
        with closing(swarm):
            swarm.begin()
            swarm.measure(interval=interval, window=window, seconds=1.0, drain=PATIENCE_SECONDS)
            measured = swarm.measure(interval=interval, window=window, seconds=seconds, drain=PATIENCE_SECONDS)
    if measured.refused:
        raise RuntimeError(f"{measured.refused} publications were refused, which costs less than to publish them")
    return measured


def pids(server: Server) -> list[int]:
    """The server's process, which is the parent if it has workers, and then those."""
    return [server.pid, *(child.pid for child in psutil.Process(server.pid).children(recursive=True))]


def _balance(workers: int, connections: int) -> tuple[Value, ...]:
    """How many connections each worker has."""
    with running("--workers", str(workers), core=None) as server:
        sockets: list[socket.socket] = []
        try:
            sockets.extend(socket.create_connection(server.address) for _ in range(connections))
            deadline = time.monotonic() + PATIENCE_SECONDS
            # The connection that asks is counted as well.
            while sum(counts := [int(value) for value in gauges(server, "connections")]) <= connections:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the workers have {counts} of {connections} connections")
                time.sleep(0.1)
        finally:
            for sock in sockets:
                sock.close()
    return workers, connections, json.dumps(counts), max(counts) / max(1, min(counts))


def gauges(server: Server, name: str) -> list[float]:
    """This gauge of every worker. Raises: OSError."""
    client = CountedClient(f"http://{server.host}:{server.port}")
    with closing(client):
        _, body = client.get("/metrics")
    return [float(v) for v in re.findall(rf"^pushup_{name}(?:\{{.*\}})? (\S+)$", body.decode(), re.MULTILINE)]


def _costs(costs: dict[tuple[str, int], list[float]], shares: dict[tuple[str, int], list[float]]) -> Table:
    rows: list[tuple[Value, ...]] = []
    first = min(number for _, number in costs)
    for (work, number), values in sorted(costs.items()):
        ratios = [value / one for value, one in zip(values, costs[work, first], strict=True)]
        rows.append(
            (
                work, number, statistics.median(values), f"{min(values):.1f}-{max(values):.1f}",
                statistics.median(ratios), 100 * min(shares.get((work, number), [1.0])),
            )
        )  # fmt: skip
    columns = ("work", "workers", "us, all processes", "spread", "ratio to one worker", "received %")
    return Table("workers-cost", "Processor time of all processes together", columns, rows)


def _capacity(rates: dict[tuple[str, int], list[tuple[float, float]]]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for (work, number), values in sorted(rates.items()):
        per_second = [rate for rate, _ in values]
        rows.append(
            (
                work, number, statistics.median(per_second), f"{min(per_second):,.0f}-{max(per_second):,.0f}",
                max(share for _, share in values),
            )
        )  # fmt: skip
    columns = ("of what", "workers", "per second", "spread", "clients' share of a processor")
    return Table("workers-capacity", f"More than can be done, on {os.cpu_count()} processors", columns, rows)


def _balances(rows: list[tuple[Value, ...]]) -> Table:
    columns = ("workers", "connections", "of each worker", "largest / smallest")
    return Table("workers-balance", "How connections are shared", columns, rows)
