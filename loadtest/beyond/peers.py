"""The same work on PushUp and on Nchan (an nginx module in C), alternating in one run: only the ratios are meaningful.

Needs Debian's packages `nginx` and `libnginx-mod-nchan`. Without them only PushUp is measured, and the table says so.

| work | details |
|---|---|
| fan-out | all subscribers on one channel, a few messages per second |
| spread | a channel per subscriber, many messages per second, to one channel after another |
| memory | polls are held, and nothing is published |
| browser | fan-out and spread, each poll with the header fields that a browser sends |
| events | the first three with a stream of server-sent events for each subscriber |
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.load.servers import SERVER_CORE, Usage, free_port, pin, running
from loadtest.load.swarm import (
    POLL_SECONDS,
    Answer,
    Interface,
    Measured,
    PushUpInterface,
    PushUpStreams,
    StreamInterface,
    Swarm,
)
from loadtest.reports.results import Figure, Progress, Table, Value

MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
EVENTS, BROWSER = ", events", ", browser"
"""What the names of works with streams, and with a browser's polls, end with."""

CLIENTS = ("", BROWSER, EVENTS)

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

ROUNDS = 3

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
worker_processes 1;
worker_rlimit_nofile 20000;
load_module {module};
events {{ worker_connections 20000; }}
http {{
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    nchan_message_buffer_length 1000;
    nchan_message_timeout 5m;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location ~ ^/sub/(.+)$ {{
            nchan_channel_id $1;
            nchan_subscriber longpoll eventsource;
            nchan_subscriber_timeout {seconds}s;
        }}
        location ~ ^/pub/(.+)$ {{
            nchan_channel_id $1;
            nchan_publisher http;
        }}
    }}
}}
"""


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


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    if quick:
        return measure(subscribers=1000, deliveries=20_000, spread=1000, seconds=1.5, rounds=1, clients=("",))
    return measure(subscribers=5000, deliveries=25_000, spread=1000, seconds=5.0, rounds=ROUNDS)


def measure(
    *,
    subscribers: int,
    deliveries: int,
    spread: int,
    seconds: float,
    rounds: int,
    clients: Sequence[str] = CLIENTS,
) -> tuple[list[Table], list[Figure]]:
    """Medians of `rounds` rounds, and the ratios of each round.

    `deliveries`: deliveries per second of the fan-out; `spread`: messages per second of the spread. `clients`: those of
    `CLIENTS` that take part.
    """
    servers = {"PushUp": _pushup, "Nchan": _nchan} if nchan_is_installed() else {"PushUp": _pushup}
    works = [
        (work + client, channels, interval)
        for work, channels, interval in (
            ("fan-out", 1, subscribers / deliveries),
            ("spread", subscribers, 1 / spread),
        )
        for client in clients
    ]
    memory = [f"memory{client}" for client in clients if client != BROWSER]
    progress = Progress((len(works) + len(memory)) * rounds * len(servers))
    costs: dict[str, dict[str, list[float]]] = {}
    rest: dict[str, dict[str, list[Measured]]] = {}
    for _ in range(rounds):
        for name, start in servers.items():
            for work, channels, interval in works:
                progress.step(f"{work}, {name}")
                with start() as peer:
                    m = _work(peer, subscribers, channels, interval, seconds, work)
                costs.setdefault(work, {}).setdefault(name, []).append(1e6 * m.cpu["server"] / max(1, m.delivered))
                rest.setdefault(work, {}).setdefault(name, []).append(m)
            for work in memory:
                progress.step(f"{work}, {name}")
                with start() as peer:
                    used = _memory(peer, subscribers, work)
                costs.setdefault(work, {}).setdefault(name, []).append(used)
    progress.end()
    units = {"fan-out": "us per delivery", "spread": "us per message", "memory": "bytes per subscriber"}
    rows: list[tuple[Value, ...]] = []
    for work, by_name in costs.items():
        for name, values in by_name.items():
            others = by_name.get("Nchan", values)
            ratios = [value / other for value, other in zip(values, others, strict=True) if other]
            ms = rest.get(work, {}).get(name, [])
            rows.append(
                (
                    work, name, units[work.partition(",")[0]], statistics.median(values),
                    f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "",
                    1e3 * statistics.median(m.trip(0.5) for m in ms) if ms else "",
                    1e3 * statistics.median(m.trip(0.99) for m in ms) if ms else "",
                    100 * min(m.received_share for m in ms) if ms else "",
                    sum(m.repeated + m.out_of_order for m in ms),
                    max(m.own_cpu for m in ms) if ms else "",
                )
            )  # fmt: skip
    columns = (
        "work", "server", "unit", "cost", "ratio to Nchan", "trip p50 ms", "trip p99 ms", "received %", "faults",
        "swarm's share of its processor",
    )  # fmt: skip
    missing = "" if "Nchan" in servers else "; Nchan is not installed, so it was not measured"
    return [Table("peers", f"The same work, {subscribers} subscribers{missing}", columns, rows)], []


def nchan_is_installed() -> bool:
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") is not None and MODULE.exists()


def _work(peer: _Peer, subscribers: int, channels: int, interval: float, seconds: float, work: str) -> Measured:
    swarm = _swarm(peer, subscribers, channels, work)
    try:
        swarm.begin()
        swarm.measure(interval=interval, seconds=2.0)
        return swarm.measure(interval=interval, seconds=seconds)
    finally:
        swarm.close()


def _memory(peer: _Peer, subscribers: int, work: str) -> float:
    """Bytes per held poll or stream, from the growth of the server's PSS."""
    usage = Usage(peer.pids[0])
    before = usage.memory_bytes()
    swarm = _swarm(peer, subscribers, 1, work)
    try:
        swarm.begin()
        time.sleep(1.0)
        return (usage.memory_bytes() - before) / subscribers
    finally:
        swarm.close()


def _swarm(peer: _Peer, subscribers: int, channels: int, work: str) -> Swarm:
    return Swarm(
        [peer.address], [peer.address], subscribers=subscribers, channels=channels, publishers=min(8, channels),
        watched={"server": peer.pids}, interface=peer.interface,
        streams=peer.streams if work.endswith(EVENTS) else None,
        poll_headers="".join(f"{field}\r\n" for field in BROWSER_FIELDS) if work.endswith(BROWSER) else "",
    )  # fmt: skip


@contextmanager
def _pushup() -> Iterator[_Peer]:
    with running() as server:
        yield _Peer(server.address, [server.pid], PushUpInterface(), PushUpStreams())


@contextmanager
def _nchan() -> Iterator[_Peer]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, module=MODULE, port=port, seconds=POLL_SECONDS))
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
        assert program is not None
        process = subprocess.Popen([program, "-e", f"{folder}/error.log", "-c", str(configuration)])  # noqa: S603
        try:
            yield _Peer(("127.0.0.1", port), _started(process, Path(folder)), NchanInterface(), NchanStreams())
        finally:
            process.terminate()
            process.wait()


def _started(process: subprocess.Popen[bytes], folder: Path) -> list[int]:
    """Wait until nginx has workers, pin all its processes to the server's processor, and return their ids.

    Raises: RuntimeError if it does not start.
    """
    deadline = time.monotonic() + 10
    while not (workers := psutil.Process(process.pid).children()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"nginx did not start: {(folder / 'error.log').read_text()}")
        time.sleep(0.02)
    pids = [process.pid, *(worker.pid for worker in workers)]
    for pid in pids:
        pin(pid, SERVER_CORE)
    time.sleep(0.2)
    return pids
