"""How many slots are probed: Theorems 1 to 3 of Roussev & Wu, tested on the structures they describe.

They are tested in two ways. In isolation: an operation repeated at a known load, with random keys, as the theorems
assume. And in service: threads pass clients on as the servers do, with real keys and a load that varies.
"""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event
from typing import NamedTuple

from loadtest.roussev.baselines.hash_table import CAPACITY, KEY_BITS
from loadtest.roussev.baselines.service import start_workers
from loadtest.roussev.structures.free_workers import FreeWorkers
from loadtest.roussev.structures.hash_table import HashTable
from loadtest.roussev.structures.pipe import Pipe

SEED = 2003
WORKERS = 150
"""From the `pipes` row of the paper's Table 1; Theorem 3 is about the flags of these workers."""


class Theorem(NamedTuple):
    """A theorem about n of m slots. `bound`: its upper bound; `exact`: the mean under uniform hashing."""

    name: str
    operation: str
    bound: Callable[[int, int], float]
    exact: Callable[[int, int], float]


def _first_taken(n: int, m: int) -> float:
    """Expected probes of m slots in random order to find one of n: each other slot precedes them all with 1/(n + 1)."""
    return (m + 1) / (n + 1)


THEOREM_1 = Theorem("1", "insert", lambda n, m: 1 / (1 - n / m), lambda n, m: _first_taken(m - n, m))
THEOREM_2 = Theorem("2", "search", lambda n, m: m / n, _first_taken)
THEOREM_3 = Theorem("3", "find a free worker", lambda n, m: m / n, _first_taken)


class Count(NamedTuple):
    """Probes at a load of n of m slots: the theorem's numbers, and the measured mean with its standard error."""

    theorem: Theorem
    n: int
    m: int
    mean: float
    error: float
    samples: int

    @property
    def bound(self) -> float:
        return self.theorem.bound(self.n, self.m)

    @property
    def exact(self) -> float:
        return self.theorem.exact(self.n, self.m)


class InService(NamedTuple):
    """Probes while clients are served; `bound` and `exact` are means over the loads at the time of each operation."""

    theorem: Theorem
    how: str
    m: int
    load: float
    bound: float
    exact: float
    mean: float
    error: float
    samples: int


def count_probes(
    loads: Sequence[float], *, rounds: int, capacity: int = CAPACITY, workers: int = WORKERS
) -> list[Count]:
    """Measure each theorem at each load (between 0 and 1), with `rounds` samples each."""
    rng = random.Random(SEED)  # noqa: S311  # the same counts each time
    inserts: dict[int, list[int]] = {round(load * capacity): [] for load in loads}
    takes: dict[int, list[int]] = {n: [] for n in inserts}
    finds: dict[int, list[int]] = {round(load * workers): [] for load in loads}
    for _ in range(rounds):
        table: HashTable[int] = HashTable(capacity)
        for n in range(capacity):
            probes = table.insert(n, rng.getrandbits(KEY_BITS))
            if n in inserts:
                inserts[n].append(probes)
        for n in range(capacity, 0, -1):
            _, probes = table.take(rng.getrandbits(KEY_BITS))
            if n in takes:
                takes[n].append(probes)
        for n, found in finds.items():
            flags = FreeWorkers(workers)
            for worker in rng.sample(range(workers), n):
                flags.free(worker)
            found.append(flags.take(rng.randrange(workers))[1])
    return [
        Count(theorem, n, m, *_mean(probes), len(probes))
        for theorem, m, counts in (
            (THEOREM_1, capacity, inserts),
            (THEOREM_2, capacity, takes),
            (THEOREM_3, workers, finds),
        )
        for n, probes in counts.items()
    ]


def table_in_service(
    *, clients: int, workers: int, delay: float, seconds: float, capacity: int = CAPACITY
) -> Iterator[InService]:
    """Measure the hash table between one inserting thread and several workers, with `clients` clients that return.

    A client is a new socket each time, and its key is its hash, as in the server.
    """
    table: HashTable[socket.socket] = HashTable(capacity)
    again: SimpleQueue[bool] = SimpleQueue()
    ended = Event()
    inserted: list[tuple[int, int]] = []
    taken: list[list[tuple[int, int]]] = [[] for _ in range(workers)]

    def load() -> int:
        """Items in the table before the current operation; approximate, as other threads work concurrently."""
        return len(inserted) - sum(map(len, taken))

    def work(number: int) -> None:
        rng = random.Random(number)  # noqa: S311  # any order will do
        while not ended.is_set():
            client, probes = table.take(rng.getrandbits(KEY_BITS))
            with client:
                taken[number].append((max(1, min(capacity, load())), probes))
                time.sleep(delay)
            again.put(True)

    def insert() -> None:
        client = socket.socket()
        probes = table.insert(client, hash(client))
        inserted.append((max(0, min(capacity - 1, load())), probes))

    for _ in range(clients):
        again.put(True)
    threads = start_workers(workers, work)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        again.get()
        insert()
    yield _in_service(THEOREM_1, "key: the socket's hash", capacity, inserted)
    yield _in_service(THEOREM_2, "key: random", capacity, [pair for pairs in taken for pair in list(pairs)])
    ended.set()
    for thread in threads:
        while thread.is_alive():
            if not load():  # the worker may be waiting for one more item
                insert()
            thread.join(0.02)
    for _ in range(load()):
        table.take(0)[0].close()


def workers_in_service(*, busy: int, delay: float, seconds: float, workers: int = WORKERS) -> Iterator[InService]:
    """Measure the workers' flags while `busy` of them work, for three choices of where the search starts."""
    for how in ("from the first on", "from the last one on", "from anywhere on"):
        rng = random.Random(SEED)  # noqa: S311  # the same starts each time
        again: SimpleQueue[bool] = SimpleQueue()
        flags = FreeWorkers(workers)
        pipes: list[Pipe[bool]] = [Pipe() for _ in range(workers)]

        def work(number: int, flags: FreeWorkers = flags, pipes: list[Pipe[bool]] = pipes,
                 again: SimpleQueue[bool] = again) -> None:  # fmt: skip
            flags.free(number)
            while pipes[number].read():
                time.sleep(delay)
                flags.free(number)
                again.put(True)

        threads = start_workers(workers, work)
        for _ in range(busy):
            again.put(True)
        found: list[tuple[int, int]] = []
        last = -1
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            again.get()
            free = max(1, flags.count())
            start = {"from the first on": 0, "from the last one on": last + 1}.get(how, rng.randrange(workers))
            last, probes = flags.take(start % workers)
            found.append((free, probes))
            pipes[last].write(True)
        for pipe in pipes:
            pipe.write(False)
        for thread in threads:
            thread.join()
        yield _in_service(THEOREM_3, how, workers, found)


def _in_service(theorem: Theorem, how: str, m: int, pairs: Sequence[tuple[int, int]]) -> InService:
    """Summarize pairs of n and the number of probes, one for each operation."""
    settled = pairs[len(pairs) // 5 :]  # the first operations meet an empty table, or only free workers
    mean, error = _mean([probes for _, probes in settled])
    count = len(settled)
    return InService(
        theorem, how, m, sum(n for n, _ in settled) / count / m,
        sum(theorem.bound(n, m) for n, _ in settled) / count, sum(theorem.exact(n, m) for n, _ in settled) / count,
        mean, error, count,
    )  # fmt: skip


def _mean(values: Sequence[int]) -> tuple[float, float]:
    """The mean and its standard error."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(variance / len(values))
