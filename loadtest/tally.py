"""What the paper measures (PushUp §4.1.1), while messages are published at one interval, and after that at the next.

NT: bytes of the subscribers' connections, both ways, for each published message. MPT: from a message's creation to
its reception. RMP: of all that should have been received, how much was. SMU: the PSS of all processes of the server.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from msgspec import Struct, structs

from loadtest.results import percentile
from loadtest.servers import Usage


class Tally(Struct):
    """What has happened while one publish interval was in force. Times in seconds, sizes in bytes.

    `polls` are requests of subscribers; `own_cpu` and `server_cpu` are shares of a processor.
    """

    interval: float
    subscribers: int = 0
    published: int = 0
    refused: int = 0
    expected: int = 0
    delivered: int = 0
    repeated: int = 0
    failed: int = 0
    polls: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    own_cpu: float = 0.0
    server_cpu: float = 0.0
    server_memory: int = 0
    trips: list[float] = []

    @property
    def traffic(self) -> float:
        """NT: kilobytes a message."""
        return (self.sent + self.received) / 1000 / self.published if self.published else 0.0

    @property
    def mean_trip(self) -> float:
        """MPT: seconds."""
        return sum(self.trips) / len(self.trips) if self.trips else 0.0

    @property
    def received_share(self) -> float:
        """RMP, of 1."""
        return self.delivered / self.expected if self.expected else 0.0

    def summary(self) -> dict[str, float]:
        """The paper's metrics, by name."""
        shares = {f"trip p{round(100 * share)} s": percentile(self.trips, share) for share in (0.5, 0.99)}
        return {
            "publish interval s": self.interval,
            "subscribers": self.subscribers,
            "published": self.published,
            "traffic KB a message": self.traffic,
            "polls a message": self.polls / self.published if self.published else 0.0,
            "mean trip s": self.mean_trip,
            **shares,
            "trip max s": max(self.trips, default=0.0),
            "received %": 100 * self.received_share,
            "repeated": self.repeated,
            "failed polls": self.failed,
            "server memory MB": self.server_memory / 1e6,
            "server's share of a processor": self.server_cpu,
            "locust's share of its processor": self.own_cpu,
        }


class Tallies:
    """The tally of now, and those of the publish intervals before; one for all users of a locust."""

    def __init__(self, server_pid: int | None) -> None:
        """`server_pid`: whose memory and processor time are told, if they can be."""
        self._usage = Usage(server_pid) if server_pid else None
        self.done: list[Tally] = []
        self.listening: dict[str, int] = {}
        """How many subscribers each channel has."""
        self.clear()

    def clear(self) -> None:
        """Nothing was counted, and nobody listens."""
        self.done.clear()
        self.listening.clear()
        self.begin(0.0)

    def begin(self, interval: float) -> None:
        """Count from here on for this publish interval; what was before is left aside."""
        self.now = Tally(interval)
        self._began = time.time()
        self._own_cpu = time.process_time()
        self._server_cpu = self._usage.cpu_seconds() if self._usage else 0.0

    def end(self) -> None:
        """What was counted since `begin` is a result."""
        self.look()
        self.done.append(self.now)
        self.begin(self.now.interval)

    def of(self, created: float) -> Tally:
        """The tally that a message of this time belongs to: the last one of a publish interval comes in the next."""
        return self.done[-1] if created < self._began and self.done else self.now

    def look(self) -> Tally:
        """The tally of now, with what time and processors say until now."""
        now = self.now
        now.seconds = time.time() - self._began
        now.own_cpu = (time.process_time() - self._own_cpu) / now.seconds
        if self._usage:
            now.server_cpu = (self._usage.cpu_seconds() - self._server_cpu) / now.seconds
            now.server_memory = self._usage.memory_bytes()
        return now

    def all(self) -> list[Tally]:
        """The results; where there are none yet, what was counted until now."""
        return self.done or [self.look()]

    def write(self, file: Path) -> None:
        file.write_text(json.dumps([structs.asdict(tally) for tally in self.all()]))


def read_tallies(file: Path) -> list[Tally]:
    """What `Tallies.write` wrote."""
    return [Tally(**values) for values in json.loads(file.read_text())]
