"""The same work on PushUp and on Nchan (an nginx module in C), alternating in one run: only the ratios are meaningful.

Needs Debian's packages `nginx` and `libnginx-mod-nchan`. Without them only PushUp is measured, and the table says so.
It also says whether PushUp is compiled: to measure that, `make compiled`, and run this in `.venv/compiled`.

| work | details |
|---|---|
| fan-out | all subscribers on one channel |
| spread | a channel per subscriber, and messages to one channel after another |
| publish only | nobody subscribes |
| memory | polls or streams are held, and nothing is published |
| ..., browser | each poll has the header fields that a browser sends |
| ..., events | a stream of server-sent events for each subscriber |

In a closed loop the next message is published as soon as one has reached all its subscribers: 4 are under way in a
fan-out to 1,000, one in a fan-out to 10,000, and 64 in a spread.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from loadtest.beyond import nchan
from loadtest.kit.values import form
from loadtest.load.servers import Usage, running
from loadtest.load.swarm import (
    Answer,
    Interface,
    Measured,
    PushUpInterface,
    PushUpStreams,
    StreamInterface,
    Swarm,
)
from loadtest.reports.results import Figure, Progress, Table, Value

EVENTS, BROWSER = ", events", ", browser"
"""What the names of works with streams, and with a browser's polls, end with."""

BROWSER_FIELDS = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
    "Accept: */*",
    "Accept-Language: en-US,en;q=0.9",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Cache-Control: no-cache",
    "Pragma: no-cache",
    "Referer: http://127.0.0.1:5000/questions/17",
    'Sec-Ch-Ua: "Chromium";v="156", "Not(A:Brand";v="24"',
    "Sec-Ch-Ua-Mobile: ?0",
    'Sec-Ch-Ua-Platform: "Linux"',
    "Sec-Fetch-Dest: empty",
    "Sec-Fetch-Mode: cors",
    "Sec-Fetch-Site: same-origin",
    "Connection: keep-alive",
    "Cookie: session=eyJ1c2VyIjoiSm9obiJ9.aBcDeF.0123456789abcdefghijklmnopq",
)
"""What Chrome sends with a poll; about 700 bytes."""

ROUNDS = 5


class NchanInterface:
    """Nchan's interface: one message per response; the cursor is the response's Last-Modified and Etag."""

    def first_cursor(self, ask: object) -> str:
        return ""

    def poll(self, channel: str, cursor: str) -> tuple[str, str]:
        return f"/sub/{channel}", cursor

    def read(self, head: bytes, body: bytes) -> Answer:
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        since, tag = fields[b"Last-Modified"].decode(), fields[b"Etag"].decode()
        message = json.loads(body)
        return Answer(f"If-Modified-Since: {since}\r\nIf-None-Match: {tag}\r\n", ((message[0], message[1]),), 0)

    def publish(self, channel: str, message: str) -> tuple[str, str]:
        return f"/pub/{channel}", message


class NchanStreams(NchanInterface):
    """Nchan's EventSource subscribers."""

    def stream(self, channel: str, cursor: str) -> tuple[str, str]:
        return f"/sub/{channel}", ""

    def read_event(self, event: bytes) -> Answer:
        data = event.partition(b"data: ")[2].partition(b"\n")[0]
        if not data:
            return Answer("", (), 0)
        message = json.loads(data)
        return Answer("", ((message[0], message[1]),), 0)


class _Peer(NamedTuple):
    """A running server: its address, its processes, and its HTTP interface."""

    address: tuple[str, int]
    pids: list[int]
    interface: Interface
    streams: StreamInterface


class Work(NamedTuple):
    """What each server does: a message per `interval` seconds, or in a closed loop with `window` messages under way.

    Without subscribers it takes publications. `client`: `BROWSER`, `EVENTS`, or empty.
    """

    name: str
    subscribers: int
    channels: int
    interval: float = 0.0
    window: int = 0
    client: str = ""

    @property
    def unit(self) -> str:
        if not self.subscribers:
            return "us per publication"
        return "us per delivery" if self.channels == 1 else "us per message"


def table_works(most: int = 10_000) -> list[Work]:
    """The works of docs/lab/performance.md, with at most this many subscribers."""
    few = min(1000, most)
    works = [
        Work(f"fan-out to {few:,}, closed loop", few, 1, window=4),
        Work(f"fan-out to {few:,}, 10 a second", few, 1, interval=0.1),
        Work(f"spread over {few:,} channels, closed loop", few, few, window=64),
        Work(f"spread over {most:,} channels, 5,000 a second", most, most, interval=1 / 5000),
        Work("publish only, 8 connections", 0, 8, window=8),
    ]
    if most > few:
        works += [
            Work(f"fan-out to {most:,}, closed loop", most, 1, window=1),
            Work(f"spread over {most:,} channels, closed loop", most, most, window=64),
        ]
    browsers = [work._replace(client=BROWSER) for work in works if work.subscribers == few and work.window]
    return works + browsers


def stream_works(subscribers: int = 5000) -> list[Work]:
    """Streams beside polls."""
    works = (
        Work(f"fan-out to {subscribers:,}, 5 a second", subscribers, 1, interval=0.2),
        Work(f"spread over {subscribers:,} channels, 1,000 a second", subscribers, subscribers, interval=0.001),
    )
    return [work._replace(client=client) for work in works for client in ("", EVENTS)]


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        works = [work for work in table_works(1000) if work.window and not work.client]
        return measure(works, memory=("",), subscribers=1000, seconds=1.0, rounds=1)
    return measure([*table_works(), *stream_works()], memory=("", EVENTS), subscribers=5000, seconds=3.0, rounds=ROUNDS)


def measure(
    works: Sequence[Work], *, memory: Sequence[str], subscribers: int, seconds: float, rounds: int
) -> tuple[list[Table], list[Figure]]:
    """Medians of `rounds` rounds, and the ratios of each round. `memory`: of `subscribers` clients of each kind."""
    servers = {"PushUp": _pushup, "Nchan": _nchan} if nchan.is_installed() else {"PushUp": _pushup}
    progress = Progress((len(works) + len(memory)) * rounds * len(servers))
    costs: dict[tuple[str, str], dict[str, list[float]]] = {}
    rest: dict[tuple[str, str], list[Measured]] = {}
    for _ in range(rounds):
        for name, start in servers.items():
            for work in works:
                key = work.name + work.client, work.unit
                progress.step(f"{key[0]}, {name}")
                with start() as peer:
                    m = _work(peer, work, seconds)
                costs.setdefault(key, {}).setdefault(name, []).append(1e6 * m.cpu["server"] / _done(m))
                rest.setdefault((key[0], name), []).append(m)
            for client in memory:
                key = "memory" + client, "bytes per subscriber"
                progress.step(f"{key[0]}, {name}")
                with start() as peer:
                    used = _memory(peer, Work(key[0], subscribers, 1, client=client))
                costs.setdefault(key, {}).setdefault(name, []).append(used)
    progress.end()
    rows: list[tuple[Value, ...]] = []
    for (work_name, unit), by_name in costs.items():
        for name, values in by_name.items():
            others = by_name.get("Nchan", values)
            ratios = [value / other for value, other in zip(values, others, strict=True) if other]
            rows.append(
                (
                    work_name, name, unit, statistics.median(values), f"{min(values):.1f}-{max(values):.1f}",
                    f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "",
                    *_details(rest.get((work_name, name), [])),
                )
            )  # fmt: skip
    columns = (
        "work", "server", "unit", "cost", "range", "ratio to Nchan", "of it system", "trip p50 ms", "trip p99 ms",
        "received %", "faults", "swarm's share of its processor",
    )  # fmt: skip
    missing = "" if "Nchan" in servers else "; Nchan is not installed, so it was not measured"
    title = f"The same work; memory of {subscribers} subscribers; PushUp {form()}, Python {platform.python_version()}"
    return [Table("peers", title + missing, columns, rows)], []


def _done(m: Measured) -> int:
    """What the cost is divided by: deliveries, or publications where nobody subscribes."""
    return max(1, m.delivered if m.subscribers else m.published)


def _details(ms: Sequence[Measured]) -> tuple[Value, ...]:
    """The rest of a row; empty for memory."""
    if not ms:
        return "", "", "", "", "", ""
    return (
        1e6 * statistics.median(m.system_cpu["server"] / _done(m) for m in ms),
        1e3 * statistics.median(m.trip(0.5) for m in ms) if ms[0].subscribers else "",
        1e3 * statistics.median(m.trip(0.99) for m in ms) if ms[0].subscribers else "",
        100 * min(m.received_share for m in ms) if ms[0].subscribers else "",
        sum(m.repeated + m.out_of_order + m.refused for m in ms),
        max(m.own_cpu for m in ms),
    )


def _work(peer: _Peer, work: Work, seconds: float) -> Measured:
    swarm = _swarm(peer, work)
    try:
        swarm.begin()
        swarm.measure(interval=work.interval, window=work.window, seconds=min(2.0, seconds))
        return swarm.measure(interval=work.interval, window=work.window, seconds=seconds)
    finally:
        swarm.close()


def _memory(peer: _Peer, work: Work) -> float:
    """Bytes per held poll or stream, from the growth of the server's PSS."""
    usage = Usage(peer.pids[0])
    before = usage.memory_bytes()
    swarm = _swarm(peer, work)
    try:
        swarm.begin()
        time.sleep(1.0)
        return (usage.memory_bytes() - before) / work.subscribers
    finally:
        swarm.close()


def _swarm(peer: _Peer, work: Work) -> Swarm:
    return Swarm(
        [peer.address], [peer.address],
        subscribers=work.subscribers, channels=work.channels, publishers=min(8, work.channels),
        watched={"server": peer.pids}, interface=peer.interface,
        streams=peer.streams if work.client == EVENTS else None,
        poll_headers="".join(f"{field}\r\n" for field in BROWSER_FIELDS) if work.client == BROWSER else "",
    )  # fmt: skip


@contextmanager
def _pushup() -> Iterator[_Peer]:
    with running() as server:
        yield _Peer(server.address, [server.pid], PushUpInterface(), PushUpStreams())


@contextmanager
def _nchan() -> Iterator[_Peer]:
    with nchan.running() as (port, pids):
        yield _Peer(("127.0.0.1", port), pids, NchanInterface(), NchanStreams())
