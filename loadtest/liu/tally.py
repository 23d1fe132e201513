"""The paper's metrics (PushUp §4.1.1), for each publish interval in turn.

NT (network traffic): bytes sent and received by subscribers per published message. MPT (mean publish trip time): from a
message's creation to its reception. RMP (received message percentage): the share of expected messages that arrived. SMU
(server memory usage): the PSS of all processes of the server.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from msgspec import Struct, structs

from loadtest.load.servers import Usage
from loadtest.reports.results import percentile


class Tally(Struct):
    """Counts for one publish interval. Times in seconds, sizes in bytes.

    `polls`: requests of subscribers; `own_cpu`, `server_cpu`: shares of a processor used by locust and the server.
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
        """NT: kilobytes per message."""
        return (self.sent + self.received) / 1000 / self.published if self.published else 0.0

    @property
    def mean_trip(self) -> float:
        """MPT: seconds."""
        return sum(self.trips) / len(self.trips) if self.trips else 0.0

    @property
    def received_share(self) -> float:
        """RMP, as a share from 0 to 1."""
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
    """The current tally, and those of earlier publish intervals; shared by all users of a locust."""

    def __init__(self, server_pid: int | None) -> None:
        """`server_pid`: the process whose memory and processor time are measured; None or 0 measures neither."""
        self._usage = Usage(server_pid) if server_pid else None
        self.done: list[Tally] = []
        self.listening: dict[str, int] = {}
        """How many subscribers each channel has."""
        self.clear()

    def clear(self) -> None:
        """Discard all tallies, and forget all listeners."""
        self.done.clear()
        self.listening.clear()
        self.begin(0.0)

    def begin(self, interval: float) -> None:
        """Start a new tally for this publish interval; discards one that was not ended."""
        self.now = Tally(interval)
        self._began = time.time()
        self._own_cpu = time.process_time()
        self._server_cpu = self._usage.cpu_seconds() if self._usage else 0.0

    def end(self) -> None:
        """Keep the counts since `begin` as a result."""
        self.refresh()
        self.done.append(self.now)
        self.begin(self.now.interval)

    def tally_for(self, created: float) -> Tally:
        """The tally for a message created at this time; the last message of an interval may arrive during the next."""
        return self.done[-1] if created < self._began and self.done else self.now

    def refresh(self) -> Tally:
        """Update the current tally's times and resource usage, and return it."""
        now = self.now
        now.seconds = time.time() - self._began
        now.own_cpu = (time.process_time() - self._own_cpu) / now.seconds
        if self._usage:
            now.server_cpu = (self._usage.cpu_seconds() - self._server_cpu) / now.seconds
            now.server_memory = self._usage.memory_bytes()
        return now

    def all(self) -> list[Tally]:
        """The results, or the counts so far if no interval has ended yet."""
        return self.done or [self.refresh()]

    def write(self, file: Path) -> None:
        file.write_text(json.dumps([structs.asdict(tally) for tally in self.all()]))


def read_tallies(file: Path) -> list[Tally]:
    """Read a file written by `Tallies.write`."""
    return [Tally(**values) for values in json.loads(file.read_text())]
