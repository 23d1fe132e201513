"""`python -m loadtest capacity`: what some loads cost, and what the formula of docs/operate/capacity.md says of them.

Costs and formula are read from that page. Machines differ: the ratio of a processor time compares this one with that
where the costs were measured. The server and its clients share one processor, so that it does not matter what the
others are busy with.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.kit.values import form
from loadtest.load.servers import Server, pin, running
from loadtest.load.swarm import PushUpStreams, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "capacity.md"

PART_SECONDS, USED_SECONDS, PATIENCE_SECONDS, WARM_SECONDS = 0.1, 0.04, 30.0, 0.4
"""Work is done in parts until the server has used so much processor time."""

UNDER_WAY = 64
"""A server that is busy does much at a time; one that is not wakes up for each message, which costs more."""

OVERHEAD = 30
"""The size of a message of the swarm, but for its padding."""

HEAD = 118
"""Bytes of the swarm's requests without data."""


class Load(NamedTuple):
    """`polls` and `streams`: clients, spread over `channels`. `size`: of a message, in bytes."""

    name: str
    polls: int = 0
    streams: int = 0
    channels: int = 1
    size: int = 128
    flags: tuple[str, ...] = ()

    @property
    def window(self) -> float:
        """Of a swarm that keeps so many deliveries under way, or publications if nobody receives them."""
        return UNDER_WAY * self.channels / (self.polls + self.streams or self.channels)


FEW_KEPT = ("--set", "retention_messages=10")
"""So that memory is used again, as in a server that has run for a while."""

JOURNAL = ("--broadcast", "journal:{folder}/journal.db")
TWO_WORKERS = ("--workers", "2")

PROCESSOR = "processor, us of each message"

LOADS = (
    Load("1 kB to 4,000 polls", polls=4000, size=1000),
    Load("each message to one of 5,000 polls", polls=5000, channels=5000),
    Load("10 kB to 50 streams", streams=50, size=10_000),
    Load("publications", channels=64, flags=FEW_KEPT),
    Load("publications of 10 kB", channels=64, size=10_000, flags=FEW_KEPT),
    Load("publications, with a journal", channels=64, flags=(*FEW_KEPT, *JOURNAL)),
    Load("publications of 10 kB, with a journal", channels=64, size=10_000, flags=(*FEW_KEPT, *JOURNAL)),
    Load("publications, 2 workers", channels=64, flags=(*FEW_KEPT, *TWO_WORKERS)),
    Load("to 1,000 polls, 2 workers", polls=1000, flags=TWO_WORKERS),
    Load("to 1,000 streams", streams=1000),
    Load("each message to one of 1,000 streams", streams=1000, channels=1000),
    Load("each message to one of 1,000 polls", polls=1000, channels=1000, flags=FEW_KEPT),
    Load("each 10 kB to one of 500 polls", polls=500, channels=500, size=10_000, flags=FEW_KEPT),
)
"""A test compares the first three with the formula. The costs of the page are such that all of them agree with it."""


def unit_costs(column: str | None = None) -> dict[str, float]:
    """The costs of the page, by default in the form that runs here."""
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \| ([\d,.]+) \| ([\d,.]+) \|", PAGE.read_text(), re.MULTILINE)
    place = 1 if (column or form()) == "compiled" else 2
    return {row[0]: _number(row[place]) for row in rows}


def example() -> dict[str, float]:
    """The numbers of the page's example, and what it says of them."""
    rows = re.findall(r"^\| (`\w+`(?:; `\w+`)*) \|[^|]*\| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {
        name: _number(text)
        for names, texts in rows
        for name, text in zip(re.findall(r"\w+", names), texts.split("; "), strict=True)
    }


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def calculated(numbers: Mapping[str, float], costs: Mapping[str, float]) -> dict[str, float]:
    """What the page's formula makes of an operator's numbers."""
    names = {**costs, **numbers}
    for name, expression in re.findall(r"^    (\w+) += (.*)$", PAGE.read_text(), re.MULTILINE):
        names[name] = eval(expression, {"__builtins__": {}, "min": min}, names)  # noqa: S307  # our own page
    return names


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    rounds = 1 if quick else 5
    progress = Progress(len(LOADS))
    rows: list[Sequence[Value]] = []
    for load in LOADS:
        progress.step(load.name)
        rows += ((load.name, *row) for row in compare(load, unit_costs(), rounds))
    progress.end()
    columns = ("load", "what", "measured", "calculated", "ratio")
    return [Table("capacity", f"Loads, and the formula; {form()}, the least of {rounds} rounds", columns, rows)], []


class Compared(NamedTuple):
    what: str
    measured: float
    calculated: float
    ratio: float


def compare(load: Load, costs: Mapping[str, float], rounds: int) -> list[Compared]:
    """What was measured of a load, and what the formula says."""
    measured = measure(load, rounds)
    numbers = calculated(measured.numbers, costs)
    messages, processes = measured.numbers["publications"], measured.numbers["others"] + 1
    pairs = {
        PROCESSOR: (measured.processor / messages, numbers["processor"] / messages),
        "memory of a process, MB": (measured.process / processes / 1e6, costs["process"] / 1e6),
        "memory of the load, MB": (measured.memory / 1e6, (numbers["memory"] - costs["process"]) / 1e6),
        "bytes sent for each message": (measured.sent / messages, numbers["sent"] / messages),
        "bytes received": (measured.received / messages, numbers["received"] / messages),
    }
    return [Compared(what, one, other, one / other) for what, (one, other) in pairs.items()]


class Measured(NamedTuple):
    """`processor`, `sent` and `received` are those of a second. `numbers`: an operator's, of this load."""

    numbers: Mapping[str, float]
    processor: float
    process: float
    memory: float
    sent: float
    received: float


def measure(load: Load, rounds: int) -> Measured:
    """The least of some rounds: what else the machine does can only add to it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _one_after_the_other() as core,
        running(*(flag.format(folder=folder) for flag in load.flags), core=core) as server,
    ):
        with _working(Load("", polls=1), server):  # what is made only once is there afterwards
            process, empty = _memory(server), _metrics(server)
        with _working(load, server) as work:
            before = _metrics(server)
            cost = min(work.cost() for _ in range(rounds))
            after = _metrics(server)
            memory = _memory(server)
    rate = work.published / work.seconds
    sent, received = (
        (after[name] - before[name]) / work.seconds for name in ("sent_bytes_total", "received_bytes_total")
    )
    numbers = {
        "publications": rate, "size": load.size, "others": len(work.pids) - 1, "journal": "journal" in str(load.flags),
        "head": HEAD, "polls": load.polls, "streams": load.streams, "channels": 1, "empty": 0,
        "to_polls": load.polls / load.channels, "to_streams": load.streams / load.channels,
        "kept": after["cached_messages"] - empty["cached_messages"], "open_channels": load.channels,
    }  # fmt: skip
    return Measured(numbers, cost * rate, process, memory - process, sent, received)


@contextmanager
def _working(load: Load, server: Server) -> Iterator[Work]:
    swarm = Swarm(
        [server.address], [server.address], subscribers=load.polls + load.streams, channels=load.channels,
        publishers=min(load.channels, UNDER_WAY), payload_bytes=load.size - OVERHEAD,
        streams=PushUpStreams() if load.streams else None,
    )  # fmt: skip
    with closing(swarm):
        swarm.begin()
        swarm.measure(window=load.window, seconds=WARM_SECONDS)
        yield Work(swarm, load.window, _pids(server))


def _pids(server: Server) -> list[int]:
    """With workers, the parent is first."""
    return [server.pid, *(child.pid for child in psutil.Process(server.pid).children())]


def _memory(server: Server) -> int:
    """The resident memory of all its processes."""
    return sum(int(psutil.Process(pid).memory_info().rss) for pid in _pids(server))


class Work:
    """A swarm, and what its server has done for it."""

    def __init__(self, swarm: Swarm, window: float, pids: Sequence[int]) -> None:
        self.swarm = swarm
        self.window = window
        self.pids = pids
        self.published = 0
        self.seconds = 0.0

    def cost(self) -> float:
        """The processor time of the server for each message, in microseconds."""
        used, published = 0.0, 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        while used < USED_SECONDS:
            if time.monotonic() > deadline:
                raise RuntimeError("the machine is too busy")
            used -= self._used()
            m = self.swarm.measure(window=self.window, seconds=PART_SECONDS)
            used += self._used()
            published += m.published
            self.seconds += m.seconds
        self.published += published
        return 1e6 * used / published

    def _used(self) -> float:
        """By clock_getcpuclockid(3): psutil counts in ticks of 10 ms."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.pids)


@contextmanager
def _one_after_the_other() -> Iterator[int]:
    """This process and those that it starts run on this one processor, and none interrupts another in its turn."""
    before, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    core = max(before)
    pin(0, core)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield core
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, before)


def _metrics(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{server.host}:{server.port}/metrics") as response:
        text = response.read().decode()
    found = re.findall(r'^pushup_(\w+)(?:\{worker="1"\})? (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}
