"""`pushup doctor`: what this machine, Redis or a proxy lacks for a server with these settings.

`check-config` says what would keep a server from starting; this also says what would make it fail later.
"""

from __future__ import annotations

import ctypes
import json
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import click
import psutil

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.records import info_of
from pushup.cli.ask_redis import ask_redis
from pushup.client.driver import in_thread
from pushup.host.preflight import troubles, warnings
from pushup.host.process_limits import RESERVED_FILES, memory_limit, worker_count
from pushup.net.listener import BACKLOG, parse_address
from pushup.parts import other_connections
from pushup.settings.settings import Settings

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")

CLOCK_SECONDS = 1.0
"""How far the clocks of this machine and of Redis may be apart."""

MARGIN_SECONDS = 5.0
"""A proxy has so long to pass on what it got."""

_CHANNEL = "pushup-doctor"
_MIB = 1024 * 1024


class Finding(NamedTuple):
    """`problem`: mend it before you serve anybody. `warning`: know it."""

    level: Literal["ok", "warning", "problem"]
    text: str


def examine(settings: Settings, public_url: str = "", token: str = "") -> Iterator[Finding]:
    """All findings, one by one. `public_url`: of a running server, through its proxy; this takes as long as a poll."""
    yield from (Finding("problem", text) for text in troubles(settings))
    yield from (Finding("warning", text) for text in warnings(settings))
    yield from _addresses("listen", settings.server.listen)
    yield from _addresses("operator_listen", settings.server.operator_listen)
    yield from _files(settings)
    yield from _memory(settings)
    yield from _kernel()
    yield from _clock()
    if settings.server.broadcast.startswith("journal:"):
        yield from _disk(settings)
    if settings.server.broadcast.startswith("redis"):
        try:
            yield from ask_redis(settings, lambda connector: _redis(connector, settings))
        except click.ClickException as error:
            yield Finding("problem", error.message)
    if public_url:
        yield from _proxy(settings, public_url, token)


def _addresses(name: str, addresses: tuple[str, ...]) -> Iterator[Finding]:
    for address in addresses:
        if address.startswith("unix:"):
            continue
        host, port = parse_address(address)
        try:
            socket.create_connection((host, port), 2.0).close()
        except OSError:
            yield Finding("ok", f"{name}: {address} is free")
            continue
        try:
            is_pushup = _get(f"http://{address}", "", "/healthz", 2.0) == (200, b'{"status":"alive"}')
        except (OSError, HTTPException):
            is_pushup = False
        if is_pushup:
            yield Finding("ok", f"{name}: a PushUp server runs at {address}")
        else:
            yield Finding("problem", f"{name}: another program listens on {address}; stop it, or change {name}")


def _files(settings: Settings) -> Iterator[Finding]:
    wanted = settings.edge.connections_limit
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = RESERVED_FILES + sum(other_connections(settings))
    if hard < wanted + reserved:
        yield Finding(
            "warning",
            f"connections_limit: it is {wanted}, but a process started like this one may have {hard} files open, so"
            f" some {hard - reserved} clients; raise LimitNOFILE (systemd) or ulimit -n, or lower it",
        )
    else:
        yield Finding("ok", f"connections_limit: {wanted}, with {hard} files")


def _memory(settings: Settings) -> Iterator[Finding]:
    processes = worker_count(settings.server.workers)
    if processes > 1 and not settings.server.broadcast.startswith("redis"):
        processes += 1  # the parent, which has the messages, too
    kept = processes * (settings.queue.retention_bytes + settings.queue.ephemeral_bytes + 50 * _MIB) // _MIB
    there = int(min(psutil.virtual_memory().total, memory_limit())) // _MIB
    text = f"retention_bytes: {processes} processes with full caches need {kept} MiB, and there are {there} MiB"
    yield Finding("warning", f"{text}; lower it, or workers") if kept > there * 0.8 else Finding("ok", text)


def _kernel() -> Iterator[Finding]:
    try:
        backlog = int(SOMAXCONN.read_text())
    except (OSError, ValueError):
        return  # not Linux
    if backlog < BACKLOG:
        text = f"net.core.somaxconn is {backlog}: clients that come together are refused; sysctl -w"
        yield Finding("warning", f"{text} net.core.somaxconn={BACKLOG}")


def _clock() -> Iterator[Finding]:
    """adjtimex(2) says 5 (TIME_ERROR) if nothing corrects the clock."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (AttributeError, OSError):
        return  # not Linux
    if state == 5:
        yield Finding("warning", "clock: nothing keeps it right; run NTP (chrony or systemd-timesyncd)")


def _disk(settings: Settings) -> Iterator[Finding]:
    directory = Path(settings.server.broadcast.removeprefix("journal:")).parent
    if not directory.is_dir():
        return  # it is a problem already
    free, needed = shutil.disk_usage(directory).free // _MIB, 2 * settings.queue.retention_bytes // _MIB
    text = f"broadcast: the journal needs up to {needed} MiB, and {directory} has {free} MiB free"
    yield Finding("warning" if free < needed else "ok", text)


async def _redis(connector: Connector, settings: Settings) -> list[Finding]:
    connection = await connector.connect()
    began = time.monotonic()
    seconds, micros = await connection.ask("TIME")
    trip = time.monotonic() - began
    ahead = int(seconds) + int(micros) / 1e6 - time.time()
    info = info_of(await connection.ask("INFO"))
    connection.abort("done")
    found = [Finding("ok", f"Redis {info['redis_version']} answers in {1000 * trip:.1f} ms")]

    def add(level: Literal["warning", "problem"], text: str) -> None:
        found.append(Finding(level, f"Redis: {text}"))

    if tuple(map(int, info["redis_version"].split(".")[:2])) < (6, 2):
        add("problem", "it must be version 6.2 or later")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        add("problem", f"maxmemory-policy is {policy}: it would drop parts of the log; set noeviction")
    most, needed = int(info.get("maxmemory", 0)) // _MIB, 2 * settings.queue.retention_bytes // _MIB
    if 0 < most < needed:
        add("problem", f"maxmemory is {most} MiB; retention_bytes needs up to {needed} MiB, then publishing is refused")
    if settings.redis.redis_durable and info.get("aof_enabled") != "1":
        add("problem", "redis_durable is set, but appendonly is no: a restart of Redis loses everything")
    if settings.redis.redis_durable and info.get("connected_slaves", "0") != "0":
        add("warning", "redis_durable counts only without replicas, and it has one")
    if abs(ahead) > CLOCK_SECONDS:
        add("warning", f"its clock is {ahead:+.0f} s from that of this machine; tickets and tokens end early or late")
    return found


def _proxy(settings: Settings, public_url: str, token: str) -> Iterator[Finding]:
    """Hold the longest poll and a silent stream, as clients do."""
    try:
        status, body = _get(public_url, token, "/v1/cursor", 10.0)
        cursor = json.loads(body)["cursor"] if status == 200 else ""
    except (OSError, HTTPException, ValueError, KeyError) as error:
        yield Finding("problem", f"{public_url}: no server of PushUp answers ({type(error).__name__}: {error})")
        return
    if status != 200:
        yield Finding("problem", f"{public_url}/v1/cursor gets status {status}; does the proxy pass on /v1/ unchanged?")
        return
    seconds, heartbeat = settings.poll.poll_timeout_limit_seconds, settings.stream.stream_heartbeat_seconds
    poll = in_thread(lambda: _long_poll(seconds, public_url, token, cursor))
    stream = in_thread(lambda: _silent_stream(heartbeat, public_url, token))
    yield stream.result()
    yield poll.result()


def _long_poll(seconds: float, url: str, token: str, cursor: str) -> Finding:
    began = time.monotonic()
    path = f"/v1/poll?channel={_CHANNEL}&cursor={cursor}&timeout={seconds:g}"
    try:
        status, _ = _get(url, token, path, seconds + MARGIN_SECONDS)
        what = f"status {status}"
    except (OSError, HTTPException) as error:
        status, what = 0, f"{type(error).__name__}: {error}"
    took = time.monotonic() - began
    if status == 200:
        return Finding("ok", f"{url}: a poll of {seconds:g} s was answered after {took:.0f} s")
    if status in (401, 403):
        return Finding(
            "warning", f"{url}: no poll could be tried ({what}); give --token a token that may poll {_CHANNEL}"
        )
    advice = f"its timeouts for a response must be longer than poll_timeout_limit_seconds ({seconds:g})"
    return Finding("problem", f"{url}: a poll ended after {took:.0f} s ({what}); {advice}")


def _silent_stream(heartbeat: float, url: str, token: str) -> Finding:
    began = time.monotonic()
    try:
        path = f"/v1/events?channel={_CHANNEL}"
        with _response(url, token, path, heartbeat + MARGIN_SECONDS, "gzip") as response:
            if response.status in (401, 403):
                return Finding("warning", f"{url}: no stream could be tried (status {response.status}); give --token")
            what = f"status {response.status}, {response.headers.get('Content-Encoding', 'not compressed')}"
            is_open = response.status == 200 and "Content-Encoding" not in response.headers
            while is_open and time.monotonic() - began < heartbeat / 2:
                is_open = bool(response.read1())  # the head of the stream comes at once, a heartbeat later
    except (OSError, HTTPException) as error:
        is_open, what = False, f"{type(error).__name__}: {error}"
    took = time.monotonic() - began
    if is_open:
        return Finding("ok", f"{url}: a stream got its heartbeat after {took:.0f} s")
    return Finding(
        "problem",
        f"{url}: a stream had no heartbeat within {took:.0f} s ({what}); the proxy must not buffer or compress it, nor"
        f" end it within stream_heartbeat_seconds ({heartbeat:g})",
    )


@contextmanager
def _response(url: str, token: str, path: str, seconds: float, encoding: str = "identity") -> Iterator[HTTPResponse]:
    """The response to a GET request."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    headers = {"Accept-Encoding": encoding} | ({"Authorization": f"Bearer {token}"} if token else {})
    with closing(kind(parts.netloc, timeout=seconds)) as connection:
        connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
        yield connection.getresponse()


def _get(url: str, token: str, path: str, seconds: float) -> tuple[int, bytes]:
    with _response(url, token, path, seconds) as response:
        return response.status, response.read()
