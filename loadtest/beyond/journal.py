"""The cost of writing a message to disk before it is acknowledged.

Publishers publish as fast as they are acknowledged, to three servers in turn: `memory:`, the journal, and a journal
that commits each publication separately.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table, percentile

PUBLISHERS = (1, 8, 64, 256)
QUICK_PUBLISHERS = (1, 64)
ROUNDS = 3
CHANNELS = 100
PAYLOAD_BYTES = 200
WARM_SECONDS = 1.0

KINDS = {
    "memory": ("pushup", "memory:"),
    "journal": ("pushup", "journal:{file}"),
    "one commit each": ("loadtest.beyond.journal_one_each", "journal:{file}"),
}


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(QUICK_PUBLISHERS, seconds=2.0, rounds=1)
    return measure(PUBLISHERS, seconds=10.0, rounds=ROUNDS)


def measure(publishers: Sequence[int], *, seconds: float, rounds: int) -> tuple[list[Table], list[Figure]]:
    """Publications per second and time to acknowledgement, by number of publishers; from the median round."""
    progress = Progress(rounds * len(publishers) * len(KINDS))
    measured: dict[tuple[int, str], list[tuple[float, list[float]]]] = {}
    for round_number in range(rounds):
        for count in publishers:
            for kind, (module, url) in KINDS.items():
                progress.step(f"round {round_number + 1}, {count} publishers, {kind}")
                with tempfile.TemporaryDirectory(dir=".") as folder:
                    broadcast = url.format(file=Path(folder) / "journal.db")
                    with running("--broadcast", broadcast, module=module) as server:
                        measured.setdefault((count, kind), []).append(_publish(server, count, seconds))
    progress.end()
    rows: list[tuple[int, str, float, float, float, float, float]] = []
    for (count, kind), results in measured.items():
        results.sort(key=lambda result: result[0])
        rate, delays = results[len(results) // 2]
        slowest, fastest = results[0][0], results[-1][0]
        rows.append(
            (count, kind, rate, slowest, fastest, 1e3 * percentile(delays, 0.5), 1e3 * percentile(delays, 0.99))
        )
    title = f"Acknowledged publications of {PAYLOAD_BYTES} bytes; median of {rounds} rounds"
    columns = ("publishers", "broadcast", "per second", "slowest", "fastest", "ack p50 ms", "ack p99 ms")
    lines = {kind: [(row[0], row[2]) for row in rows if row[1] == kind] for kind in KINDS}
    figure = Figure("journal", "Acknowledged publications per second", "publishers", "per second", lines)
    return [Table("journal", title, columns, rows)], [figure]


def _publish(server: Server, count: int, seconds: float) -> tuple[float, list[float]]:
    """Publications per second, and the seconds from each to its acknowledgement."""
    loop = Loop()
    sent: dict[Connection, float] = {}
    delays: list[float] = []
    published = 0

    def publish(publisher: Connection) -> None:
        nonlocal published
        published += 1
        sent[publisher] = time.perf_counter()
        publisher.post("/v1/messages", bodies[published % CHANNELS])

    def acknowledged(publisher: Connection, status: int, body: bytes) -> None:
        if status != 201:
            raise RuntimeError(f"the server answered a publication with {status}")
        delays.append(time.perf_counter() - sent[publisher])
        publish(publisher)

    payload = b"x" * PAYLOAD_BYTES
    bodies = [b'{"channels":["channel-%d"],"data":"%b"}' % (number, payload) for number in range(CHANNELS)]
    for publisher in [Connection(loop, server.address, acknowledged) for _ in range(count)]:
        publish(publisher)
    loop.run_until(time.time() + WARM_SECONDS)
    delays.clear()
    began = time.time()
    loop.run_until(began + seconds)
    took = time.time() - began
    loop.close()
    return len(delays) / took, delays
