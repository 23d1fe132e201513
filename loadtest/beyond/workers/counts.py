"""What the processes of a server do for one publication: wake-ups, system calls, switches and bytes.

The servers are one process, several workers, and four nodes that share a log in Redis. They have no subscribers. `perf`
(Debian: `linux-perf`) counts calls and bytes. It needs root and a mounted tracefs, and slows the server down, so times
come from another run. All processes share one processor, and Redis runs on the clients'.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from deploy.cluster import Cluster
from loadtest.beyond.redis_delay import CHANNELS, NODES, PUBLISHERS, addresses_of, pinned
from loadtest.beyond.workers.cost import WORKERS, pids
from loadtest.load.servers import running
from loadtest.load.swarm import Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

RATES = (100, 1000, 10_000)
"""Publications that are asked for per second."""

SECONDS = 5.0
ATTACH_SECONDS = 1.0
"""What perf needs to find all processes. Nothing is published in this time, but what they do in it is counted."""

READS = ("read", "recvfrom", "recvmsg")
WRITES = ("write", "sendto", "sendmsg", "writev")
WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2")
NAMED = (*READS, *WRITES, *WAITS)

Roles = Mapping[str, Sequence[int]]
"""Process ids by what they do."""


class Setup(NamedTuple):
    roles: Roles
    addresses: Sequence[tuple[str, int]]
    headers: str


class Counted(NamedTuple):
    """What processes have done in a time: numbers of calls; bytes read and written by system calls."""

    waits: int
    calls: int
    read: int
    written: int


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure((2,), RATES[1:2], nodes=2, seconds=1.0)
    return measure(WORKERS, RATES, nodes=NODES, seconds=SECONDS)


def measure(
    workers: Sequence[int], rates: Sequence[int], *, nodes: int, seconds: float
) -> tuple[list[Table], list[Figure]]:
    progress = Progress((len(workers) + 1) * len(rates))
    rows: list[tuple[Value, ...]] = []
    for number in (*workers, 0):
        name = f"{number} worker{'s' * (number > 1)}" if number else f"{nodes} nodes, Redis"
        for rate in rates:
            progress.step(f"{name}, {rate} a second")
            with _with_workers(number) if number else _with_redis(nodes) as setup:
                rows.extend((name, rate, *row) for row in _count(setup, rate, seconds))
    progress.end()
    columns = (
        "server", "asked per second", "acknowledged per second", "processes", "us", "wake-ups", "system calls",
        "switches", "bytes read", "bytes written",
    )  # fmt: skip
    return [Table("counts", "What processes do for one publication", columns, rows)], []


@contextmanager
def _with_workers(number: int) -> Iterator[Setup]:
    with running("--workers", str(number)) as server:
        parent, *workers = pids(server)
        yield Setup({"parent": [parent], "workers": workers} if workers else {"server": [parent]}, [server.address], "")


@contextmanager
def _with_redis(nodes: int) -> Iterator[Setup]:
    with Cluster(nodes=nodes, without=("example", "haproxy")) as cluster:
        headers = f"Authorization: Bearer {cluster.publish_key}\r\n"
        yield Setup(pinned(cluster), addresses_of(cluster), headers)


def _count(setup: Setup, rate: int, seconds: float) -> Iterator[tuple[Value, ...]]:
    swarm = Swarm(
        setup.addresses, setup.addresses, subscribers=0, channels=CHANNELS, publishers=PUBLISHERS,
        publish_headers=setup.headers, watched=setup.roles,
    )  # fmt: skip
    with closing(swarm), tempfile.TemporaryDirectory() as folder:
        swarm.begin()
        swarm.measure(interval=1 / rate, seconds=1.0)
        before = {role: _switches(group) for role, group in setup.roles.items()}
        timed = swarm.measure(interval=1 / rate, seconds=seconds)
        switches = {role: _switches(group) - before[role] for role, group in setup.roles.items()}
        with _perf(setup.roles, Path(folder) / "perf.data") as recorded:
            counted = swarm.measure(interval=1 / rate, seconds=seconds)
    if timed.refused or counted.refused:
        raise RuntimeError("publications were refused, which costs less than to publish them")
    acknowledged = len(timed.acknowledgements)  # of too many, not all are done when the time is over
    for role in setup.roles:
        done, count = recorded[role], len(counted.acknowledgements)
        yield (
            acknowledged / timed.seconds, role, 1e6 * timed.cpu[role] / acknowledged, done.waits / count,
            done.calls / count, switches[role] / acknowledged, done.read / count, done.written / count,
        )  # fmt: skip


def _switches(group: Sequence[int]) -> int:
    return sum(sum(psutil.Process(pid).num_ctx_switches()) for pid in group)


@contextmanager
def _perf(roles: Roles, file: Path) -> Iterator[dict[str, Counted]]:
    """What perf records while the caller's block runs; the dict is empty until then."""
    events = ["raw_syscalls:sys_exit", *(f"syscalls:sys_exit_{name}" for name in NAMED)]
    watched = ",".join(str(pid) for group in roles.values() for pid in group)
    command = ["perf", "record", "--mmap-pages", "16M", "-o", str(file), "-e", ",".join(events), "-p", watched]
    result: dict[str, Counted] = {}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as perf:  # noqa: S603
        time.sleep(ATTACH_SECONDS)
        try:
            yield result
        finally:
            perf.send_signal(signal.SIGINT)
            _, said = perf.communicate()
    if not file.exists() or "lost" in said.lower():
        raise RuntimeError(f"perf does not count here: {said}")
    command = ["perf", "script", "-i", str(file), "-F", "pid,event,trace"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    result.update(read_recorded(text, roles))


def read_recorded(text: str, roles: Roles) -> dict[str, Counted]:
    """Add up what `perf script` prints: a process id, an event, and what the call returned."""
    of = {pid: role for role, group in roles.items() for pid in group}
    calls: Counter[tuple[str, str]] = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for pid, event, returned in re.findall(r"^\s*(\d+)\s+\w+:sys_exit_?(\w*):.* (\S+)\s*$", text, re.MULTILINE):
        role = of[int(pid)]
        calls[role, event] += 1
        if event and (value := int(returned, 16)) < 1 << 63:  # not an error
            sums[role, event] += value
    return {
        role: Counted(
            sum(calls[role, name] for name in WAITS), calls[role, ""],
            sum(sums[role, name] for name in READS), sum(sums[role, name] for name in WRITES),
        )
        for role in roles
    }  # fmt: skip
