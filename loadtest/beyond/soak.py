"""Does a server stay as it is for an hour, while everything around it comes and goes?

Messages come at a constant rate, of random sizes, on channels of random lives: some 40,000 are open at a time. Clients
follow some of them for a random while, by polls and by streams; then one leaves in the middle of its poll or stream,
and another goes on to other channels. Once the caches are full, memory should be flat: the slope of a line through it
is given with its 95 % confidence interval. The line goes through the means of parts that are long enough to be
independent of each other.
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.beyond.stalls_client import get
from loadtest.load.epoll_client import Connection, Loop
from loadtest.load.servers import Server, running
from loadtest.reports.results import Figure, Progress, Table

SETTINGS = {
    "retention_bytes": "16MiB",  # full after a minute
    "channel_ttl_seconds": "300",
}

RATE = 200
"""Messages a second, each on two of the channels."""

LIVING = 20_000
"""Channels that messages may come on. Nearly as many are still open that none come on any more."""

LIFE_SECONDS = 300.0
"""Mean life of a channel."""

FOLLOWING_SECONDS = 60.0
"""For how long a client follows the same channels, on average."""

DATA_BYTES = 200
"""Mean size of a message's data."""

POPULAR = 10
"""Channels that live for ever and are followed by every client, each by a tenth of them."""

POPULAR_SHARE = 0.05
"""Messages that are on one of these as well."""

MEANS = 12
"""The line goes through so many means of equal length."""

T_QUANTILE = 2.228
"""Of Student's t with `MEANS` - 2 degrees of freedom, for 95 %."""


class Sizes(NamedTuple):
    """`fills` and `lasts`: seconds before and after memory should be flat; `every`: seconds between two samples."""

    fills: float
    lasts: float
    every: float
    polls: int
    streams: int


FULL = Sizes(fills=1500.0, lasts=3600.0, every=10.0, polls=1000, streams=100)
QUICK = Sizes(fills=3.0, lasts=9.0, every=0.25, polls=100, streams=10)


class Sample(NamedTuple):
    """What the server was like, so many seconds after the beginning."""

    seconds: float
    memory_bytes: int
    heap_bytes: int
    files: int
    channels: float


class Slope(NamedTuple):
    """Bytes an hour, and the half width of its 95 % confidence interval."""

    value: float
    error: float


class Channels:
    """The channels that live: each is replaced by a new one at the end of its life."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._born = 0
        self._names = [self._new() for _ in range(LIVING)]

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * LIVING / LIFE_SECONDS)):
            self._names[self._chance.randrange(LIVING)] = self._new()

    def some(self) -> list[str]:
        return self._chance.sample(self._names, 2)

    def _new(self) -> str:
        self._born += 1
        return f"c{self._born}"


class Follower:
    """A client that follows two channels and a popular one for a while, and then two others."""

    def __init__(self, load: Load, *, streams: bool) -> None:
        self._load = load
        self._streams = streams
        self._connection: Connection | None = None
        self._popular = f"popular-{load.chance.randrange(POPULAR)}"
        self._target = ""
        self.begin()

    def begin(self) -> None:
        """Follow other channels: half of the clients hang up first, with their poll or stream open."""
        load, connection = self._load, self._connection
        channels = "".join(f"&channel={name}" for name in (*load.channels.some(), self._popular))
        self._target = ("/v1/events?" if self._streams else "/v1/poll?timeout=25") + channels
        load.loop.at(time.time() + load.chance.expovariate(1 / FOLLOWING_SECONDS), self.begin)
        if connection is None or connection.closed or self._streams or load.chance.random() < 0.5:
            if connection is not None:
                connection.close()
            self._ask()

    def _ask(self, cursor: str = "") -> None:
        load = self._load
        if self._connection is None or self._connection.closed:
            self._connection = Connection(load.loop, load.server.address, self._answered, ended=self._ended)
        if self._streams:
            self._connection.stream(self._target, self._event)
        else:
            self._connection.get(self._target + cursor)

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        if status == 200:
            answer = json.loads(body)
            self._load.deliveries += len(answer["messages"])
            self._ask(f"&cursor={answer['cursor']}")
        else:
            self._load.refused += 1
            connection.close()
            self._load.loop.at(time.time() + 1.0, self._ask)

    def _event(self, _: Connection, event: bytes) -> None:
        self._load.deliveries += b"data:" in event

    def _ended(self, _: Connection) -> None:
        self._ask()


class Load:
    """The clients and the publisher."""

    def __init__(self, server: Server, sizes: Sizes) -> None:
        self.server = server
        self.loop = Loop()
        self.chance = random.Random(2026)  # noqa: S311
        self.channels = Channels(self.chance)
        self.published = self.acknowledged = self.deliveries = self.refused = 0
        self.followers = [
            Follower(self, streams=number < sizes.streams) for number in range(sizes.streams + sizes.polls)
        ]
        self._publisher = Connection(self.loop, server.address, self._accepted)
        self._next = time.time()
        self._publish()

    def _publish(self) -> None:
        names = self.channels.some()
        if self.chance.random() < POPULAR_SHARE:
            names.append(f"popular-{self.chance.randrange(POPULAR)}")
        data = "x" * round(self.chance.expovariate(1 / DATA_BYTES))
        self._publisher.post("/v1/messages", json.dumps({"channels": names, "data": data}).encode())
        self.published += 1
        if self.published % RATE == 0:
            self.channels.pass_time(1.0)
        self._next += 1 / RATE
        self.loop.at(self._next, self._publish)

    def _accepted(self, _: Connection, status: int, body: bytes) -> None:
        if status == 201:
            self.acknowledged += 1
        else:
            raise RuntimeError(f"a publication was refused with {status}: {body.decode()}")


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    """25 minutes to fill the caches, and an hour; `--quick`: seconds, which say nothing about a slope.

    A channel is remembered for ten minutes after its last message. The dict of all of them is enlarged for the last
    time after 21 minutes, when its free places are used up.
    """
    return measure(QUICK if quick else FULL)


def measure(sizes: Sizes) -> tuple[list[Table], list[Figure]]:
    """One row; memory, descriptors and channels over time."""
    settings = {f"PUSHUP_{name.upper()}": value for name, value in SETTINGS.items()}
    samples: list[Sample] = []
    with running(environment=settings) as server:
        load = Load(server, sizes)
        began = time.time()
        progress = Progress(round((sizes.fills + sizes.lasts) / sizes.every))
        lags: list[list[tuple[float, float]]] = []
        while (passed := time.time() - began) < sizes.fills + sizes.lasts:
            load.loop.run_until(began + passed + sizes.every)
            if not lags and passed >= sizes.fills:
                lags.append(_lags(_metrics(server)))
            samples.append(_sample(server, time.time() - began))
            progress.step(f"{samples[-1].memory_bytes / 1e6:.1f} MB")
        progress.end()
        text = _metrics(server)
        load.loop.close()
    flat = [sample for sample in samples if sample.seconds >= sizes.fills]
    slope = slope_of([(sample.seconds, sample.memory_bytes) for sample in flat])
    memory = [sample.memory_bytes / 1e6 for sample in flat]
    heap = [sample.heap_bytes / 1e6 for sample in flat]
    files = [sample.files for sample in flat]
    row = (
        f"{sizes.lasts / 60:g}", len(load.followers), load.published, load.published - load.acknowledged,
        load.deliveries, load.refused, round(statistics.mean(sample.channels for sample in flat)),
        f"{memory[0]:.1f} to {memory[-1]:.1f}", f"{slope.value / 1e6:+.2f} +- {slope.error / 1e6:.2f}",
        f"{heap[0]:.1f} to {heap[-1]:.1f}", f"{min(files)} to {max(files)}", _p99_ms(lags[0], _lags(text)),
        1e3 * _value(text, "reactor_longest_turn_seconds"),
    )  # fmt: skip
    columns = (
        "minutes", "clients", "messages", "unanswered", "deliveries", "polls refused", "open channels", "memory MB",
        "slope MB an hour", "heap MB", "descriptors", "p99 of reactor lag ms",
        "longest turn of the last two minutes ms",
    )  # fmt: skip
    lines = {
        "all": [(sample.seconds / 60, sample.memory_bytes / 1e6) for sample in samples],
        "heap": [(sample.seconds / 60, sample.heap_bytes / 1e6) for sample in samples],
    }
    figure = Figure("soak-memory", "Memory of a server whose clients and channels come and go", "minutes", "MB", lines)
    return [Table("soak", "A soak at a constant rate", columns, [row])], [figure]


def slope_of(points: Sequence[tuple[float, float]]) -> Slope:
    """The slope of a line through the means of `MEANS` parts of these (seconds, bytes), per hour."""
    size = len(points) // MEANS
    parts = [points[i * size : (i + 1) * size] for i in range(MEANS)]
    xs = [statistics.mean(x for x, _ in part) / 3600 for part in parts]
    ys = [statistics.mean(y for _, y in part) for part in parts]
    line = statistics.linear_regression(xs, ys)
    left = sum((y - line.intercept - line.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = sum((x - statistics.mean(xs)) ** 2 for x in xs)
    return Slope(line.slope, T_QUANTILE * math.sqrt(left / (MEANS - 2) / spread))


def _sample(server: Server, seconds: float) -> Sample:
    channels = _value(_metrics(server), "channels")
    return Sample(seconds, _anonymous(server.pid), _heap(server.pid), server.file_count(), channels)


def _anonymous(pid: int) -> int:
    """The memory of a process without mapped files, which count less the more processes have them. Linux only."""
    found = re.search(r"^Anonymous: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def _heap(pid: int) -> int:
    """The size of malloc's heap, which has what is larger than 512 bytes; but large tables are outside. Linux only."""
    found = re.search(r"^(\w+)-(\w+) .*\[heap\]$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[2], 16) - int(found[1], 16)


def _metrics(server: Server) -> str:
    return get(server, "/metrics").body.decode()


def _value(text: str, name: str) -> float:
    found = re.search(rf"^pushup_{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def _lags(text: str) -> list[tuple[float, float]]:
    """The buckets of reactor lag: (bound, how many were at most this)."""
    found = re.findall(r'^pushup_reactor_lag_seconds_bucket{le="(\S+)"} (\S+)$', text, re.MULTILINE)
    return [(float(bound), float(count)) for bound, count in found]


def _p99_ms(before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]) -> str:
    """The bound of the bucket that the 99th percentile is in."""
    counts = [(bound, late - early) for (bound, early), (_, late) in zip(before, after, strict=True)]
    total = counts[-1][1]
    return f"at most {1e3 * next(bound for bound, count in counts if count >= 0.99 * total):g}"
