from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest

from loadtest.load.servers import running
from loadtest.reports.results import Figure
from loadtest.roussev import designs
from loadtest.roussev.baselines import RESPONSE
from loadtest.roussev.crowd import Crowd
from loadtest.roussev.designs import ANY_NUMBER, DESIGNS, ONE_THREAD, PRE_THREADED, TABLE_1, TABLE_2, Load, Scale

DELAY = 1.0
CLIENTS = 6

TINY = Scale(
    clients=8, each=1, delays=(0.25,), one_by_one=2, table_2=(10, 30), others=(10,), others_each=1, most_clients=20,
    most_each=1, rounds=50, service_seconds=0.6,
)  # fmt: skip


@pytest.mark.parametrize("name", DESIGNS)
def test_all_designs_but_the_iterative_one_serve_clients_concurrently(name: str) -> None:
    """n clients take about one delay; with the iterative server, n delays."""
    run = designs.serve(name, CLIENTS, Load(CLIENTS, 1, DELAY))
    served = run.served
    assert (served.answered, served.refused, served.unanswered) == (CLIENTS, 0, 0)
    assert len(served.responses) == CLIENTS
    if name in ONE_THREAD:
        assert served.seconds >= CLIENTS * DELAY
    else:
        assert DELAY <= served.seconds < CLIENTS * DELAY
    assert run.peak_bytes > 2**20


@pytest.mark.parametrize("name", PRE_THREADED)
def test_at_most_as_many_clients_as_workers_are_served_concurrently(name: str) -> None:
    """With two workers, six clients take three delays; all are answered."""
    served = designs.serve(name, 2, Load(6, 1, 0.1)).served
    assert served.answered == 6
    assert served.seconds >= 0.3


@pytest.mark.parametrize("name", DESIGNS)
def test_the_response_is_complete_and_comes_after_the_delay(name: str) -> None:
    """One byte in, 4,000 bytes out, after the delay; clients that disconnect without a request disturb nobody."""
    with running("--delay", "0.1", "--threads", "2", module=f"loadtest.roussev.baselines.{name}") as server:
        for _ in range(5):
            socket.create_connection(server.address).close()
        with socket.create_connection(server.address, timeout=10) as client:
            began = time.monotonic()
            client.sendall(b"?")
            answer = b""
            while len(answer) < len(RESPONSE):
                answer += client.recv(8192)
            assert time.monotonic() - began >= 0.1
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):  # the client closes, not the server
                client.recv(1)
    assert answer == RESPONSE
    assert len(answer) == 4000


@contextmanager
def _listening(answer: bytes | None) -> Iterator[tuple[str, int]]:
    """A server that sends every client this answer and closes, or, for None, accepts no client."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:

        def accept() -> None:
            for _ in range(4):
                client, _ = listener.accept()
                with client:
                    client.recv(1)
                    client.sendall(answer or b"")

        if answer is not None:
            Thread(target=accept, daemon=True).start()
        yield listener.getsockname()


@pytest.mark.parametrize("answer", [None, b"short", RESPONSE + b"x"])
def test_a_wrong_response_counts_as_unanswered(answer: bytes | None) -> None:
    """Nothing within the client's patience, too few bytes, and too many."""
    with _listening(answer) as address:
        served = Crowd(address, clients=4, each=1, patience=0.3).run()
    assert (served.answered, served.refused, served.unanswered) == (0, 0, 4)


def test_refused_connections_are_counted() -> None:
    """When nobody listens, each request of each client counts as refused."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    served = Crowd(address, clients=3, each=5, patience=1.0).run()
    assert (served.answered, served.refused, served.unanswered) == (0, 15, 0)


def test_a_server_that_does_not_start_is_a_result() -> None:
    """All its requests count as refused, and the experiment continues."""
    run = designs.serve("missing", 1, Load(3, 2, 0.25))
    assert run.served.refused == 6
    assert run.row()[-3] == 6


def test_the_least_time_follows_from_the_number_of_workers() -> None:
    """The paper's 2,800 requests: 700 s one by one, 14 s with 50 workers, 5 s if all are served concurrently."""
    load = Load(140, 20, 0.25)
    assert load.least_seconds("iterative", 50) == 700.0
    assert load.least_seconds("shared_buffer", 50) == 14.0
    assert load.least_seconds("pipes", 150) == 5.0
    assert {load.least_seconds(name, 1) for name in ANY_NUMBER} == {5.0}
    assert all(took / 1000 > load.least_seconds("concurrent_queue", threads) for threads, took in TABLE_2.items())


def test_the_experiment_gives_all_tables() -> None:
    """Table 1 has every design and the paper's numbers; the others: numbers of threads, most clients, the theorems."""
    tables, figures = designs.measure(TINY)
    by_name = {table.name: table for table in tables}
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.name
    first = by_name["designs-table-1"]
    assert [row[0] for row in first.rows] == list(DESIGNS)
    assert [row[-1] for row in first.rows] == [paper.took[0] or "-" for paper in TABLE_1.values()]
    assert all(row[12] == row[13] == 0 for row in first.rows)
    second = by_name["designs-table-2"]
    assert [(row[0], row[1], row[-1]) for row in second.rows][:2] == [
        ("concurrent_queue", 10, 70_312), ("concurrent_queue", 30, 23_781),
    ]  # fmt: skip
    assert {row[0] for row in second.rows} == set(PRE_THREADED)
    assert len(by_name["designs-most-clients"].rows) == len(DESIGNS) - 1
    assert len(by_name["designs-theorems"].rows) == 21
    assert len(by_name["designs-probes-in-service"].rows) == 5
    assert [figure.name for figure in figures] == ["designs-threads", "designs-cost", "designs-theorems"]
    assert all(figure.lines for figure in figures)


def test_a_figure_has_all_its_lines(tmp_path: Path) -> None:
    """Even with more lines than markers, none is left out."""
    lines = {f"line {number}": [(0, 1), (1, 2)] for number in range(12)}
    Figure("f", "A title", "x", "y", lines).write(tmp_path, {"command": "c"})
    drawn = (tmp_path / "f.svg").read_text()
    assert all(f">line {number}</text>" in drawn for number in range(12))


def test_ctrl_c_ends_the_servers_too(tmp_path: Path) -> None:
    """An interrupted experiment leaves no server."""
    command = [sys.executable, "-m", "loadtest", "designs", "--quick", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as experiment:
        children: list[psutil.Process] = []
        end = time.monotonic() + 20
        while not children and time.monotonic() < end:
            time.sleep(0.05)
            children = psutil.Process(experiment.pid).children()
        time.sleep(0.5)
        os.kill(experiment.pid, signal.SIGINT)
        try:
            assert experiment.wait(10) != 0
        finally:
            experiment.kill()
    assert children
    assert not any(child.is_running() for child in children)
