"""`pushup bench`: what a server on this machine can do, and settings to start from."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from statistics import median
from threading import Timer
from urllib.request import ProxyHandler, build_opener

import click
import psutil

from pushup.cli.bench_load import HeldPolls, LoadError, publish
from pushup.core.limits import Limits
from pushup.host.process_limits import RESERVED_FILES, memory_limit, raise_file_limit, usable_cores
from pushup.net.edge_limits import EdgeLimits
from pushup.parts import other_connections
from pushup.settings.settings import Settings
from pushup.workers.worker_process import path_flags

SPARE_FILES = 300
"""Descriptors of this process, and of the server, that no poll gets."""

CONNECTIONS = 32
"""Connections of publishers."""

_MIB = 1024 * 1024

_open = build_opener(ProxyHandler({})).open  # the server is on this machine, whatever `http_proxy` says


def run(polls: int, workers: str, seconds: float) -> None:
    """Measure, and print what was found. Exits if the server fails."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: sys.exit(1))  # so that the server ends, too
    files = raise_file_limit()
    most = min(polls, files - SPARE_FILES)
    cores, memory = usable_cores(), int(min(psutil.virtual_memory().total, memory_limit()))
    print(f"This machine: {cores} cores, {memory // _MIB} MiB of memory, {files} files for a process.")
    print("The clients are on it, too, and take their share of the cores, which is shown in cores.\n")
    if (load := os.getloadavg()[0]) > cores / 4:
        print(f"Other programs are busy (load {load:.1f}): the figures are better without them.\n")
    try:
        with _server(workers, most + SPARE_FILES, seconds) as (server, address):
            bytes_of_poll = _measure(server, address, most, polls, seconds)
    except LoadError as error:
        raise click.ClickException(f"the server failed: {error}") from None
    print("\nSettings to start from; docs/operate/capacity.md says what else takes memory:\n")
    for line in _suggested(cores, memory, files, bytes_of_poll):
        print(line)


def _measure(server: psutil.Process, address: tuple[str, int], most: int, wanted: int, seconds: float) -> float:
    """Print what there is to say; returns the memory that a held poll takes. Raises: LoadError."""
    publish(address, seconds / 20, CONNECTIONS)  # what is made only once is there afterwards
    before = _memory(server)
    with closing(HeldPolls(address)) as polls:
        count = polls.open(most, time.monotonic() + seconds * 0.3)
        _wait_for_held(address, count)
        bytes_of_poll = max(0, _memory(server) - before) / count
        why = polls.stopped_by or (f"this process may open {most + SPARE_FILES} files" if count < wanted else "")
        _show("held polls", f"{count}, {bytes_of_poll:.0f} bytes of memory for each{why and f'; no more: {why}'}")

        times: list[float] = []
        used, end = 0.0, time.monotonic() + seconds * 0.25
        while not times or (time.monotonic() < end and len(times) < 100):
            used -= time.process_time()
            times.append(polls.fan_out())
            used += time.process_time()
            polls.poll_again()
            _wait_for_held(address, count)
        _show("fan-out", f"{count * len(times) / sum(times):.0f} deliveries a second", used / sum(times))
        _show("", f"a message reaches all {count} polls in {1000 * median(times):.0f} ms")

        full = publish(address, seconds * 0.2, CONNECTIONS)
        _show("publications", f"{full.per_second:.0f} a second, {CONNECTIONS} at a time", full.cores)
        half = publish(address, seconds * 0.2, CONNECTIONS, full.per_second / 2)
        p50, p99 = (1000 * half.percentile(share) for share in (0.5, 0.99))
        _show("", f"{half.per_second:.0f} a second: half of them take {p50:.1f} ms, 99 of 100 {p99:.1f} ms", half.cores)
    return bytes_of_poll


def _show(name: str, text: str, cores: float | None = None) -> None:
    """`cores`: how many this process has used."""
    note = ""
    if cores is not None:
        limit = ", which limits this" if cores > 0.9 else ""
        note = f" (clients: {cores:.1f} cores{limit})"
    print(f"{name:<14}{text}{note}", flush=True)


@contextmanager
def _server(workers: str, connections: int, seconds: float) -> Iterator[tuple[psutil.Process, tuple[str, int]]]:
    """A server of its own, and where it listens; it ends with the block."""
    command = [
        sys.executable, *path_flags(), "-m", "pushup", "serve", "--listen", "127.0.0.1:0", "--workers", workers,
        "--log-level", "warn", "--set", f"connections_limit={connections}", "--set", "poll_timeout_limit_seconds=300",
    ]  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PUSHUP_")}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(  # noqa: S603  # ourselves
            command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        ) as process,
    ):
        too_long = Timer(3 * seconds + 30, process.kill)
        too_long.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.fullmatch(r"PushUp listens on http://(.+):(\d+)\n", line):
                    yield psutil.Process(process.pid), (found[1], int(found[2]))
                    return
            log.seek(0)
            raise click.ClickException(f"the server did not start: {log.read().strip()}")
        finally:
            too_long.cancel()
            children = psutil.Process(process.pid).children()
            process.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):  # it has noticed that its parent is gone
                    child.kill()


def _memory(server: psutil.Process) -> int:
    """The resident memory of all processes of the server."""
    return sum(int(process.memory_info().rss) for process in (server, *server.children()))


def _wait_for_held(address: tuple[str, int], count: int) -> None:
    """Until so many polls are held. Raises: LoadError."""
    for _ in range(400):
        try:
            with _open(f"http://{address[0]}:{address[1]}/metrics", timeout=10) as page:
                text = page.read().decode()
        except OSError as error:
            raise LoadError(str(error)) from None
        held = sum(map(float, re.findall(r"^pushup_held_polls(?:{.*})? (\S+)$", text, re.MULTILINE)))
        if held == count:
            return
        time.sleep(0.05)
    raise LoadError(f"of {count} polls the server holds {held:.0f}")


def _suggested(cores: int, memory: int, files: int, bytes_of_poll: float) -> Iterator[str]:
    """Lines of a settings file: half of the memory is for polls, a quarter for messages."""
    by_files = files - RESERVED_FILES - sum(other_connections(Settings()))
    by_memory = int(memory / 2 / cores / max(bytes_of_poll, 1000))
    connections = min(EdgeLimits().connections_limit, by_files, by_memory)
    processes = cores + 1 if cores > 1 else 1
    retention = min(Limits().retention_bytes, memory // 4 // processes)
    yield f"workers = {cores}"
    yield f"connections_limit = {connections}  # of each worker; {by_files} by files, {by_memory} by memory"
    yield f'retention_bytes = "{max(retention // _MIB, 1)}MiB"  # once in each of {processes} processes'
