"""How long does one turn of the reactor take when a node has much to do at once, and do polls on other channels wait?

| situation | details |
|---|---|
| start | a node starts from a checkpoint with messages on 100,000 channels, within the default limits |
| start, more | the same with four times as many messages |
| new epoch | Redis loses everything while the node lives, with 100,000 channels |
| backlog | a node that was frozen reads 128 publications at once; each has 10 messages on the same 100 channels |
| expiry | one `Expire` closes 250 channels of 1,000 messages each |
| opening | publications of 10 messages, each on 100 new channels, one right after the other open 10,000 channels |

10 messages on 100 channels each are as many as the default of `publication_channels_limit` allows.

A turn is what the reactor does between two waits for events (`stalls_probe`); nobody else is served meanwhile. Its
processor time tells whether the machine was busy with something else. From outside, a poll on another channel with
`timeout=0` and a GET /healthz are sent every 10 ms. While a node starts, they are answered from when it listens; with a
journal it does so after it has loaded everything, and nothing of that is a turn.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deploy.cluster import free_ports, installed
from deploy.part import Part
from loadtest.beyond.stalls_client import (
    SETTLE_SECONDS,
    IsDone,
    Seen,
    Waits,
    close_together,
    fill,
    get,
    publication,
    send_all,
    watch,
)
from loadtest.beyond.stalls_probe import LongestTurn
from loadtest.beyond.stalls_server import TURNS_FILE
from loadtest.kit.values import PublicationLimits
from loadtest.load.servers import LOAD_CORE, START_SECONDS, Server, pin, running
from loadtest.reports.results import Figure, Progress, Table, Value

PUBLICATION_BYTES = 98 * 1024
"""Size of each publication of the backlog."""

TTL_SECONDS = 4.0
"""Until the channels expire; renewing all of them has to take less."""

MORE = {"retention_bytes": "4GiB", "retention_seconds": "1h"}
"""Settings for more messages than the default limits allow."""


PATIENT = {"redis_timeout_seconds": "60"}
"""A node that was frozen for long finds its connection to Redis intact, and reads on at once."""


class Sizes(NamedTuple):
    """How much there is of everything. `batch`: channels of each message."""

    channels: int
    messages: int
    more_messages: int
    publications: int
    batch: int
    closing: int
    closing_messages: int


FULL = Sizes(
    channels=100_000, messages=250_000, more_messages=1_000_000, publications=128, batch=100,
    closing=250, closing_messages=1000,
)  # fmt: skip
QUICK = Sizes(
    channels=5000, messages=12_500, more_messages=50_000, publications=32, batch=50,
    closing=25, closing_messages=500,
)  # fmt: skip

COLUMNS = (
    "situation", "broadcast", "longest turn ms", "its processor ms", "longest poll ms", "longest /healthz ms",
    "answers", "done after s", "peak MB",
)  # fmt: skip


class Store(NamedTuple):
    """Where the messages are: `kind` is redis or journal, `url` the setting `broadcast`, `port` that of Redis."""

    kind: str
    url: str
    folder: Path
    port: int


class Node(NamedTuple):
    """A node whose turns are timed, since `began_at` (by `time.perf_counter`)."""

    server: Server
    store: Store
    longest: LongestTurn
    began_at: float


Row = tuple[Value, ...]
Situation = Callable[[Sizes, Store], Iterator[Row]]


def run(*, quick: bool) -> tuple[list[Table], list[Figure]]:
    """`--quick`: every other situation, as each takes some seconds whatever its size."""
    return measure(QUICK, every=2) if quick else measure(FULL)


def measure(sizes: Sizes, *, every: int = 1) -> tuple[list[Table], list[Figure]]:
    """The rows of each situation, or of every second, third ... one.

    `done after`: since the process was started, or since what caused it. `peak`: VmHWM of the process, also since then.
    """
    situations: tuple[tuple[Callable[[], AbstractContextManager[Store]], Situation], ...] = (
        (_redis, _start_and_new_epoch),
        (_redis, _start_with_more),
        (_redis, _backlog),
        (_redis, _expiry),
        (_redis, _opening),
        (_journal, _start),
        (_journal, _expiry),
        (_journal, _opening),
    )
    progress = Progress(len(situations[::every]))
    rows: list[Row] = []
    for open_store, situation in situations[::every]:
        with open_store() as store:
            progress.step(f"{situation.__name__.strip('_').replace('_', ' ')}, {store.kind}")
            rows.extend(situation(sizes, store))
    progress.end()
    return [Table("stalls", "The longest turn of the reactor, and the longest wait for an answer", COLUMNS, rows)], []


# The situations.


def _start_and_new_epoch(sizes: Sizes, store: Store) -> Iterator[Row]:
    _fill_and_stop(store, sizes, sizes.messages)
    with _node(store) as node:
        yield _until_ready(node, f"start, {sizes.messages:,} messages")
        _expect_messages(node.server, sizes.messages)
        before = json.loads(get(node.server, "/v1/cursor").body)["cursor"].partition("-")[0]

        def has_changed(seen: Seen) -> bool:
            return seen.status == 200 and json.loads(seen.body)["cursor"].partition("-")[0] != before

        flush = partial(_tell_redis, store, b"FLUSHALL ASYNC\r\n")
        yield _watch(node, f"new epoch, {sizes.channels:,} channels", flush, "/v1/cursor", has_changed)


def _start_with_more(sizes: Sizes, store: Store) -> Iterator[Row]:
    _fill_and_stop(store, sizes, sizes.more_messages, MORE)
    with _node(store, MORE) as node:
        yield _until_ready(node, f"start, {sizes.more_messages:,} messages")
        _expect_messages(node.server, sizes.more_messages)


def _start(sizes: Sizes, store: Store) -> Iterator[Row]:
    _fill_and_stop(store, sizes, sizes.messages)
    with _node(store) as node:
        yield _until_ready(node, f"start, {sizes.messages:,} messages")
        _expect_messages(node.server, sizes.messages)


def _backlog(sizes: Sizes, store: Store) -> Iterator[Row]:
    names = [f"all-{number}" for number in range(sizes.batch)]
    body = _of_size([names] * _messages(sizes))
    with _node(store, PATIENT) as node, running("--broadcast", store.url) as other:
        pin(other.pid, LOAD_CORE)  # it has something to save meanwhile
        _wait_until_ready(node.server, other)
        os.kill(node.server.pid, signal.SIGSTOP)
        # The frozen node is waiting for one entry. It gets this one, and all others when it asks again.
        fill(other, names, 1)
        send_all(other, (("/v1/messages", body) for _ in range(sizes.publications)))
        end = json.loads(get(other, "/v1/cursor").body)["cursor"]
        time.sleep(SETTLE_SECONDS)
        resume = partial(os.kill, node.server.pid, signal.SIGCONT)
        name = f"backlog, {sizes.publications} x {_messages(sizes)} messages on {sizes.batch} channels"

        def has_caught_up(seen: Seen) -> bool:  # until then it may answer 503 (ACK-2)
            return seen.status == 200 and json.loads(seen.body)["cursor"] == end

        yield _watch(node, name, resume, "/v1/cursor", has_caught_up)


def _expiry(sizes: Sizes, store: Store) -> Iterator[Row]:
    names = [f"closing-{number}" for number in range(sizes.closing)]
    with _node(store) as node:
        _wait_until_ready(node.server)
        fill(node.server, names, sizes.closing * sizes.closing_messages)
        _expect_messages(node.server, sizes.closing * sizes.closing_messages)
        close_together(node.server, names, TTL_SECONDS)
        name = f"expiry, {sizes.closing} channels of {sizes.closing_messages:,} messages"
        yield _watch(node, name, None, f"/v1/channels/{names[-1]}", lambda seen: seen.status == 404)


def _opening(sizes: Sizes, store: Store) -> Iterator[Row]:
    channels = [[f"{number}-{other}" for other in range(sizes.batch)] for number in range(sizes.batch)]
    with _node(store) as node:
        _wait_until_ready(node.server)
        publisher = socket.create_connection(node.server.address)
        most = _messages(sizes)
        bodies = [publication(channels[first : first + most]) for first in range(0, len(channels), most)]
        head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n".format
        with publisher:
            publish = partial(publisher.sendall, b"".join([head(len(body)).encode() + body for body in bodies]))
            last = f"/v1/channels/{channels[-1][-1]}"
            yield _watch(node, f"opening, {sizes.batch**2:,} channels", publish, last, lambda seen: seen.status == 200)


def _messages(sizes: Sizes) -> int:
    """How many messages with that many channels a publication may have."""
    return max(1, min(sizes.batch, PublicationLimits().publication_channels_limit // sizes.batch))


def _of_size(groups: Sequence[Sequence[str]]) -> bytes:
    """A publication of PUBLICATION_BYTES to these groups of channels, or a little less."""
    spare = PUBLICATION_BYTES - len(publication(groups, ""))
    return publication(groups, "x" * (max(0, spare) // len(groups)))


# The processes.


@contextmanager
def _redis() -> Iterator[Store]:
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [installed("redis-server"), "--bind", "127.0.0.1", "--port", str(port), "--save", "",
                   "--client-output-buffer-limit", "normal", "0", "0", "0"]  # fmt: skip
        redis = Part("redis", command, environment=os.environ, folder=folder, is_ready=partial(_answers, port))
        redis.start()
        try:
            pin(redis.pid or 0, LOAD_CORE)
            yield Store("redis", f"redis://127.0.0.1:{port}", folder, port)
        finally:
            redis.kill()


@contextmanager
def _journal() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        yield Store("journal", f"journal:{folder / 'journal.db'}", folder, 0)


@contextmanager
def _node(store: Store, settings: Mapping[str, str] = {}) -> Iterator[Node]:
    turns = store.folder / "turns"
    longest = LongestTurn(turns)
    began_at = time.perf_counter()
    flags = ["--broadcast", store.url, *_set(settings)]
    with running(*flags, module="loadtest.beyond.stalls_server", environment={TURNS_FILE: str(turns)}) as server:
        yield Node(server, store, longest, began_at)
    longest.close()


def _fill_and_stop(store: Store, sizes: Sizes, messages: int, settings: Mapping[str, str] = {}) -> None:
    """Have a node publish these messages and save them, and end it."""
    with running("--broadcast", store.url, *_set(settings)) as server:
        _wait_until_ready(server)
        fill(server, [f"channel-{number}" for number in range(sizes.channels)], messages)
        time.sleep(SETTLE_SECONDS)


def _set(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def _wait_until_ready(*servers: Server) -> None:
    """Raises: RuntimeError."""
    deadline = time.monotonic() + START_SECONDS
    for server in servers:
        while get(server, "/readyz").status != 200:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server was not ready within {START_SECONDS:g} s")
            time.sleep(0.05)


def _expect_messages(server: Server, count: int) -> None:
    """Raises: RuntimeError if the limits have dropped any, for then something else would be measured."""
    (found,) = re.findall(r"^pushup_cached_messages (\S+)$", get(server, "/metrics").body.decode(), re.MULTILINE)
    if float(found) != count:  # as text, a million may be 1e+06
        raise RuntimeError(f"the server has {found} messages instead of {count}")


def _answers(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), timeout=2).close()
    return True


def _tell_redis(store: Store, command: bytes) -> None:
    with socket.create_connection(("127.0.0.1", store.port)) as redis:
        redis.sendall(command)
        redis.recv(64)


# What is measured.


def _until_ready(node: Node, situation: str) -> Row:
    waits = watch(node.server, target="/readyz", is_done=lambda seen: seen.status == 200)
    return _row(node, situation, waits, node.began_at)


def _watch(node: Node, situation: str, act: Callable[[], None] | None, target: str, is_done: IsDone) -> Row:
    """Measure what `act` causes, until the answer to `target` shows that it has happened, and a little longer."""
    node.longest.reset()
    Path(f"/proc/{node.server.pid}/clear_refs").write_text("5")  # resets VmHWM
    began_at = time.perf_counter()
    waits = watch(node.server, target=target, is_done=is_done, act=act)
    return _row(node, situation, waits, began_at)


def _row(node: Node, situation: str, waits: Waits, began_at: float) -> Row:
    turn = node.longest.read()
    return (
        situation, node.store.kind, 1e3 * turn.wall, 1e3 * turn.processor, 1e3 * waits.poll, 1e3 * waits.health,
        waits.answers, waits.done_at - began_at, _peak_bytes(node.server.pid) / 1e6,
    )  # fmt: skip


def _peak_bytes(pid: int) -> int:
    """The most memory that a process has used (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(kilobytes)
