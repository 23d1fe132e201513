"""`pushup bench`: figures of a server of its own, settings that can be used, and nothing left behind."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from pushup.cli.bench_load import HeldPolls, LoadError, publish
from tests.server.command_line import error_of, run
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_short_one(tmp_path: Path, workers: str) -> None:
    """All figures are there and not zero, the settings are accepted, and no process is left. It uses no proxy."""
    environment = {"PUSHUP_LISTEN": "nowhere", "http_proxy": "http://127.0.0.1:9", "OF_TEST": str(tmp_path)}
    ended = run("bench", "--seconds", "2", "--polls", "60", "--workers", workers, **environment)
    assert ended.returncode == 0, ended.stderr
    for name, unit in (
        ("held polls    60, ", " bytes of memory for each"),
        ("fan-out       ", " deliveries a second"),
        ("reaches all 60 polls in ", " ms"),
        ("publications  ", " a second, 32 at a time"),
        ("half of them take ", " ms"),
        ("99 of 100 ", " ms"),
    ):
        found = re.search(rf"{re.escape(name)}([0-9.]+){re.escape(unit)}", ended.stdout)
        assert found is not None, ended.stdout
        assert float(found[1]) > 0 or unit.startswith(" bytes")
    settings = tmp_path / "pushup.toml"
    settings.write_text(ended.stdout[ended.stdout.index("workers = ") :])
    assert run("check-config", "--config", str(settings)).returncode == 0
    assert len(settings.read_text().splitlines()) == 3
    environments = [process.info["environ"] or {} for process in psutil.process_iter(["environ"])]
    assert str(tmp_path) not in [environment.get("OF_TEST") for environment in environments]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_its_server_too(number: signal.Signals) -> None:
    """No process is left, whichever signal ends it."""
    command = [sys.executable, "-m", "pushup", "bench", "--seconds", "20", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        mine = psutil.Process(bench.pid)
        wait_until(lambda: len(mine.children(recursive=True)) == 3, "the server and its workers")
        children = mine.children(recursive=True)
        bench.send_signal(number)
        assert bench.wait(10) == 1
    assert psutil.wait_procs(children, 5)[1] == []


def test_a_server_that_does_not_start() -> None:
    """It says why not."""
    assert "the server did not start: Error: command line: workers" in error_of("bench", "--workers", "many")


@contextmanager
def answering(respond: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A server that does this for each request, on each connection; its address."""

    def serve(client: socket.socket) -> None:
        with client:
            try:
                while client.recv(65536):
                    respond(client)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)


def test_a_publication_that_is_late_counts_from_when_it_was_due() -> None:
    """A server that does 50 a second is asked for 200: what waits for a connection gets ever later."""

    def slowly(client: socket.socket) -> None:
        time.sleep(0.02)
        for part in (CREATED[:10], CREATED[10:50], CREATED[50:]):
            client.send(part)

    with answering(slowly) as address:
        alone = publish(address, 0.5, 1)
        asked = publish(address, 0.5, 1, rate=200)
    assert alone.percentile(0.99) < 0.2
    assert asked.percentile(0.99) > 0.25
    assert asked.per_second < 60


def test_a_server_that_is_gone() -> None:
    """There are no polls and no figures, and it is said why."""
    address = ("127.0.0.1", free_port())
    with closing(HeldPolls(address)) as polls:
        assert (polls.open(3, time.monotonic() + 5), polls.stopped_by) == (0, "connection refused")
        with pytest.raises(LoadError, match="connection refused"):
            polls.fan_out()
    with pytest.raises(LoadError, match="connection refused"):
        publish(address, 0.5, 2)


@pytest.mark.parametrize(("answer", "text"), [(FULL, "status 503"), (b"", "closed a connection")])
def test_a_server_that_fails(answer: bytes, text: str) -> None:
    """That is an error, and no figure."""

    def fail(client: socket.socket) -> None:
        client.send(answer)
        client.shutdown(socket.SHUT_RDWR)

    with answering(fail) as address, closing(HeldPolls(address)) as polls:
        with pytest.raises(LoadError, match=text):
            publish(address, 0.5, 2)
        assert polls.open(3, time.monotonic() + 5) == 3
        with pytest.raises(LoadError, match=text):
            polls.fan_out()
