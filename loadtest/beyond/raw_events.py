"""Does an event with `format=raw` cost the server as much as one with JSON? Both alternate, as does which is first.

| work | details |
|---|---|
| fan-out | 1,000 streams of one channel, 20 messages a second |
| spread | 1,000 streams, each of a channel of its own; 500 messages a second in all |

Each message is a string of HTML: JSON sends it as it was published, `raw` has to take the backslashes out.
"""

from __future__ import annotations

import json
import statistics

from loadtest.kit.values import form
from loadtest.load.servers import running
from loadtest.load.swarm import Answer, Measured, PushUpStreams, Swarm
from loadtest.reports.results import Figure, Progress, Table, Value

ITEM = "<li>"

WORKS = {"fan-out": (1, 1 / 20), "spread": (1000, 1 / 500)}
"""The number of channels, and the seconds from one message to the next."""

ROUNDS = 15


class Items(PushUpStreams):
    """Streams of messages that are strings."""

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        return "/v1/messages", json.dumps({"channels": [channel], "data": f'{ITEM}<p class="a">{message}'})

    def read_event(self, event: bytes) -> Answer:
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
        cursor = fields.get(b"id", b"").decode()
        if b"data" not in fields or b"event" in fields:
            return Answer(cursor, (), fields.get(b"event") == b"gap")
        number, due, _ = json.loads(self.text(fields[b"data"]).partition(">")[2].partition(">")[2])
        return Answer(cursor, ((number, due),), 0)

    def text(self, data: bytes) -> str:
        """The string in the data of an event."""
        return str(json.loads(data)["data"])


class RawItems(Items):
    """The same with `format=raw`."""

    def stream(self, channel: str, cursor: str) -> tuple[str, str]:
        return f"/v1/events?channel={channel}&cursor={cursor}&format=raw", ""

    def text(self, data: bytes) -> str:
        return data.decode()


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    return measure(subscribers=1000, seconds=1.0 if quick else 2.0, rounds=1 if quick else ROUNDS)


def measure(*, subscribers: int, seconds: float, rounds: int) -> tuple[list[Table], list[Figure]]:
    """Medians, and the ranges over the rounds."""
    progress = Progress(2 * len(WORKS) * rounds)
    rows: list[tuple[Value, ...]] = []
    for work, (channels, interval) in WORKS.items():
        costs: dict[str, list[float]] = {"json": [], "raw": []}
        faults = 0
        for number in range(rounds):
            pair = (("json", Items()), ("raw", RawItems()))
            for name, streams in pair if number % 2 else reversed(pair):
                progress.step(f"{work}, {name}")
                m = _measured(streams, subscribers, min(channels, subscribers), interval, seconds)
                costs[name].append(1e6 * m.cpu["server"] / max(1, m.delivered))
                faults += m.expected - m.delivered + m.repeated + m.out_of_order + m.gaps
        ratios = [raw / plain for plain, raw in zip(costs["json"], costs["raw"], strict=True)]
        rows.append((work, *map(_spread, (costs["json"], costs["raw"], ratios)), faults))
    progress.end()
    columns = ("work", "json, us per delivery", "raw, us per delivery", "raw to json", "faults")
    return [Table("raw-events", f"{subscribers} streams, {rounds} rounds; PushUp {form()}", columns, rows)], []


def _measured(streams: Items, subscribers: int, channels: int, interval: float, seconds: float) -> Measured:
    with running() as server:
        swarm = Swarm(
            [server.address], [server.address], subscribers=subscribers, channels=channels,
            publishers=min(8, channels), watched={"server": [server.pid]}, interface=streams, streams=streams,
        )  # fmt: skip
        try:
            swarm.begin()
            swarm.measure(interval=interval, seconds=min(1.0, seconds))
            return swarm.measure(interval=interval, seconds=seconds)
        finally:
            swarm.close()


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
