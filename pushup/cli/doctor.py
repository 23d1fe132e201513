"""`pushup doctor`: what this machine, Redis or a proxy lacks for a server with these settings.

`check-config` says what would keep a server from starting; this also says what would make it fail later.
"""

from __future__ import annotations

import ctypes
import json
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import click
import psutil

from pushup.broadcast.redis.connector import Connector
from pushup.broadcast.redis.log import open_log
from pushup.cli.ask_redis import ask_redis
from pushup.client.driver import in_thread
from pushup.host.preflight import address_trouble, troubles, warnings
from pushup.host.process_limits import RESERVED_FILES, memory_limit, worker_count
from pushup.net.listener import BACKLOG, bind_socket
from pushup.parts import other_connections
from pushup.settings.settings import Settings

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")

CLOCK_SECONDS = 1.0
"""How far the clocks of this machine and of Redis may be apart."""

MARGIN_SECONDS = 5.0
"""A proxy has so long to pass on what it got."""

POLLS = 8
"""Held together: the server ends each early, at random (`hold_jitter`), and a proxy may cut only the longest."""

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
        if address.startswith("unix:") or address_trouble(address):
            continue  # what is wrong with it is a problem already
        try:
            is_pushup = _get(f"http://{address}", "", "/healthz", 2.0) == (200, b'{"status":"alive"}')
        except ConnectionRefusedError:
            try:
                bind_socket(address).close()
            except OSError as error:
                yield Finding("problem", f"{name}: another program has {address} or a part of it: {error.strerror}")
            else:
                yield Finding("ok", f"{name}: {address} is free")
            continue
        except TimeoutError:
            yield Finding("problem", f"{name}: what listens on {address} does not answer; if it is PushUp, it is stuck")
            continue
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
    path = Path(settings.server.broadcast.removeprefix("journal:"))
    if not path.parent.is_dir():
        return  # it is a problem already
    has = 0
    for file in (path, path.with_name(path.name + "-wal")):
        with suppress(OSError):  # there is none yet
            has += file.stat().st_size // _MIB
    # A rewrite after deletions makes two copies, beside the file: what is free inside it does not help.
    free, kept = shutil.disk_usage(path.parent).free // _MIB, settings.queue.retention_bytes // _MIB
    needs = f"needs up to {kept} MiB, and {2 * kept} beside it to be rewritten"
    text = f"broadcast: the journal {needs}; it has {has}, and {path.parent} has {free} MiB free"
    yield Finding("warning" if min(has, kept) + free < 3 * kept else "ok", text)


async def _redis(connector: Connector, settings: Settings) -> list[Finding]:
    log = await open_log(connector, settings.redis.redis_prefix)
    info, is_durable = log.info, settings.redis.redis_durable
    began = time.monotonic()
    seconds, micros = await log.connection.ask("TIME")
    trip = time.monotonic() - began
    ahead = int(seconds) + int(micros) / 1e6 - time.time()
    trouble = await log.trouble()
    replica = log.replica_seen
    if not (trouble or replica) and (await log.tail()).was_replicated:
        replica = "a node has seen a replica before"
    log.connection.abort("done")
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
    if trouble:
        add("problem", trouble)
    if is_durable and info.get("aof_enabled") != "1":
        add("problem", "redis_durable is set, but appendonly is no: a restart of Redis loses everything")
    elif is_durable and not log.syncs_each_write:
        add("problem", "redis_durable is ignored: appendfsync is not always, so a restart of Redis may lose messages")
    if is_durable and replica:
        add("warning", f"redis_durable is ignored: {replica}")
    if abs(ahead) > CLOCK_SECONDS:
        add("warning", f"its clock is {ahead:+.0f} s from that of this machine; tickets and tokens end early or late")
    return found


def _proxy(settings: Settings, public_url: str, token: str) -> Iterator[Finding]:
    """Hold the longest polls and a silent stream, as clients do."""
    try:
        status, body = _get(public_url, token, "/v1/cursor", 10.0)
        cursor = json.loads(body)["cursor"] if status == 200 else ""
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        yield Finding("problem", f"{public_url}: no server of PushUp answers ({type(error).__name__}: {error})")
        return
    if status != 200:
        yield Finding("problem", f"{public_url}/v1/cursor gets {_told(status, body)}; {_advice(status)}")
        return
    polls = [in_thread(lambda: _long_poll(settings, public_url, token, cursor)) for _ in range(POLLS)]
    stream = in_thread(lambda: _silent_stream(settings.stream.stream_heartbeat_seconds, public_url, token))
    yield stream.result()
    found = [poll.result() for poll in polls]
    # A warning says that it could not be tried, which does not matter if others could.
    yield max(found, key=lambda each: (("warning", "ok", "problem").index(each[0].level), each[1]))[0]


def _told(status: int, body: bytes) -> str:
    """The status, and what PushUp says about it."""
    try:
        return f"status {status}: {json.loads(body)['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


def _advice(status: int) -> str:
    if status < 400:
        return "that is a redirect; give the URL where it leads"
    return "is a server running behind the proxy?" if status >= 500 else "does the proxy pass on /v1/ unchanged?"


def _long_poll(settings: Settings, url: str, token: str, cursor: str) -> tuple[Finding, float]:
    """What it shows, and for how many seconds it was held."""
    seconds = settings.poll.poll_timeout_limit_seconds
    began = time.monotonic()
    path = f"/v1/poll?channel={_CHANNEL}&cursor={cursor}&timeout={seconds:g}"
    try:
        status, body = _get(url, token, path, seconds + MARGIN_SECONDS)
        what = _told(status, body)
    except (OSError, HTTPException) as error:
        status, what = 0, f"{type(error).__name__}: {error}"
    took = time.monotonic() - began
    if status != 200:
        advice = f"its timeouts for a response must be longer than poll_timeout_limit_seconds ({seconds:g})"
        cut_off = Finding("problem", f"{url}: a poll ended after {took:.0f} s ({what}); {advice}")
        return _refused(url, "poll", status, what, took) or cut_off, took
    text = f"{url}: a poll of {seconds:g} s was answered after {took:.0f} s"
    if took < 0.9 * seconds * (1 - settings.hold.hold_jitter):
        advice = "no longer one could be tried; has the server other settings, or does it drain?"
        return Finding("warning", f"{text}; {advice}"), took
    return Finding("ok", text), took


def _refused(url: str, which: str, status: int, what: str, took: float) -> Finding | None:
    """Why a poll or a stream could not even begin; None if it could, and was cut off."""
    if status in (401, 403, 429):
        advice = "a quota refuses it" if status == 429 else f"give --token a token that may poll {_CHANNEL}"
        return Finding("warning", f"{url}: no {which} could be tried ({what}); {advice}")
    if took < 1.0:
        text = f"a {which} was refused ({what}); does the proxy pass it on, and to a server that is ready?"
        return Finding("problem", f"{url}: {text}")
    return None


def _silent_stream(heartbeat: float, url: str, token: str) -> Finding:
    began = time.monotonic()
    status, is_open = 0, False
    try:
        path = f"/v1/events?channel={_CHANNEL}"
        with _response(url, token, path, heartbeat + MARGIN_SECONDS, "gzip") as response:
            status, encoding = response.status, response.headers.get("Content-Encoding", "not compressed")
            what = f"status 200, {encoding}" if status == 200 else _told(status, response.read())
            is_open = status == 200 and "Content-Encoding" not in response.headers
            while is_open and time.monotonic() - began < heartbeat / 2:
                is_open = bool(response.read1())  # the head of the stream comes at once, a heartbeat later
    except (OSError, HTTPException) as error:
        is_open, what = False, f"{type(error).__name__}: {error}"
    took = time.monotonic() - began
    if is_open:
        return Finding("ok", f"{url}: a stream got its heartbeat after {took:.0f} s")
    advice = f"the proxy must not buffer or compress it, nor end it within stream_heartbeat_seconds ({heartbeat:g})"
    silent = Finding("problem", f"{url}: a stream had no heartbeat within {took:.0f} s ({what}); {advice}")
    return silent if status == 200 else _refused(url, "stream", status, what, took) or silent


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
