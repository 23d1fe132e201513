"""Runs `load.c`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from loadtest.beyond.headline.servers import Target
from loadtest.load.programs import program

SOURCE = Path(__file__).with_name("load.c")

DRAIN_SECONDS = 5.0
"""How long a load waits at the end without receiving anything, before what is missing counts as lost."""

GRACE_SECONDS = 60.0
"""How much longer than it publishes a load may take."""


class Work(NamedTuple):
    """What a load does: `rate` messages a second, or a closed loop with `window` messages under way.

    `stalled`: so many of the subscribers send 64 polls at once, and never read.
    """

    name: str
    subscribers: int
    channels: int = 1
    rate: float = 0.0
    window: int = 0
    publishers: int = 1
    is_browser: bool = False
    size: int = 128
    stalled: int = 0

    @property
    def unit(self) -> str:
        if not self.subscribers:
            return "us per publication"
        return "us per delivery" if self.channels == 1 else "us per message"


class Measured(NamedTuple):
    """What `load.c` prints. Times of the server in seconds, trips in milliseconds.

    All but the faults and `published` and `delivered` is of the measured time alone. `own`: the load's share of its
    processor. `repeated`: received again, or after a later message.
    """

    seconds: float
    deliveries: int
    acknowledgements: int
    user: float
    system: float
    own: float
    published: int
    delivered: int
    lost: int
    repeated: int
    trip_p50: float
    trip_p99: float
    last_p50: float
    acknowledged_p50: float


class Load:
    """Subscribers whose first polls are held, and who wait for the publishers to begin."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self._process = process
        self._seconds = seconds

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None

    def end(self) -> Measured:
        """Wait until it is done. Raises: RuntimeError if it failed."""
        said, _ = self._process.communicate(timeout=self._seconds + GRACE_SECONDS)
        if self._process.returncode:
            raise RuntimeError(f"the load failed with {self._process.returncode}")
        return Measured(**json.loads(said))


@contextmanager
def loading(
    target: Target, work: Work, *, seconds: float, warm: float = 1.0, drain: float = DRAIN_SECONDS, prefix: str = "c"
) -> Iterator[Load]:
    """Connect the subscribers of a work, and enter once the server holds their polls.

    `prefix`: of the channels' names, which are a number of six digits otherwise. Raises: RuntimeError.
    """
    requests = target.requests
    publish = requests.publish(len(f"{prefix}000000"), work.size)
    options = {
        "port": target.port, "pids": ",".join(map(str, target.pids)), "prefix": prefix,
        "cursor": requests.cursor(target.port),
        "subscribers": work.subscribers, "channels": work.channels, "publishers": work.publishers,
        "rate": work.rate, "window": max(1, work.window), "size": work.size, "stalled": work.stalled,
        "warm": warm, "seconds": seconds, "drain": drain, "publish": publish,
        "first_poll": requests.poll(is_first=True, is_browser=work.is_browser),
        "poll": requests.poll(is_first=False, is_browser=work.is_browser),
        "part_1": requests.parts[0], "part_2": requests.parts[1], "part_end": requests.part_end,
    }  # fmt: skip
    command = [program(SOURCE), *(f"{name}={value}" for name, value in options.items())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the load could not connect")
        yield Load(process, warm + seconds)
    finally:
        process.kill()
        process.communicate()


def run(target: Target, work: Work, *, seconds: float, warm: float = 1.0, drain: float = DRAIN_SECONDS) -> Measured:
    """Put a work on a server. Raises: RuntimeError."""
    with loading(target, work, seconds=seconds, warm=warm, drain=drain) as load:
        load.start()
        return load.end()
