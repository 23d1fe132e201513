from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from loadtest.liu import push_or_pull
from loadtest.liu.push_or_pull import Pace
from loadtest.liu.tally import Tallies, Tally, read_tallies
from loadtest.load.counted_client import CountedClient
from loadtest.load.servers import free_port, running
from loadtest.reports.results import Table
from tests.loadtest.readable import assert_readable

LOCUST = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> tuple[Table, Table, Table]:
    """Results for two publish intervals: two pulls per message, and ten."""
    traffic, trip, everything = push_or_pull.measure((30,), Pace((0.6, 3.0), 0.3, 5.0, 2))[0]
    return traffic, trip, everything


def test_pulling_costs_many_times_the_bytes(tables: tuple[Table, Table, Table]) -> None:
    """With ten pulls per message, pulling costs over 5 times the bytes of long polling; more if messages are rarer."""
    rows = {row[1]: [float(value) for value in row[2:]] for row in tables[0].rows}
    assert rows.keys() == {"CP", "MLP", "ELP"}
    for method in ("MLP", "ELP"):
        assert rows["CP"][1] > 5 * rows[method][1]
        assert rows[method][1] == pytest.approx(rows[method][0], rel=0.2)
    assert rows["CP"][1] > 2 * rows["CP"][0], "five times the interval: four times the pulls, not the same"
    assert rows["MLP"][1] == pytest.approx(rows["ELP"][1], rel=0.1), "the same answers have the same size"


def test_a_pulled_message_takes_half_a_pull_interval(tables: tuple[Table, Table, Table]) -> None:
    """The mean trip time of pulling is about half the pull interval; that of long polling is less."""
    rows = {row[1]: [float(value) for value in row[2:]] for row in tables[1].rows}
    assert rows["CP"][1] > 0.08
    assert rows["ELP"][1] < rows["CP"][1]
    assert rows["MLP"][1] < rows["CP"][1]


def test_everything_is_received_and_measured(tables: tuple[Table, Table, Table], tmp_path: Path) -> None:
    """Every published message was received, and each server's memory and processor time was measured."""
    assert_readable("traffic", tables, tmp_path, but=("table_1", "table_2"))  # the paper has no 30 connections
    everything = tables[2]
    assert len(everything.rows) == 6
    for row in everything.rows:
        seen = dict(zip(everything.columns, row, strict=True))
        assert seen["published"] == 2
        assert seen["subscribers"] == 30
        assert (seen["received %"], seen["repeated"], seen["failed polls"]) == (100, 0, 0)
        assert float(seen["server memory MB"]) > 5
        assert float(seen["locust's share of its processor"]) > 0


def test_connections_can_be_closed_after_each_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request has its own connection, the cases are measured one by one, and everything arrives nevertheless."""
    with running() as server:
        client = CountedClient(f"http://{server.host}:{server.port}", closing=True)
        for _ in range(3):
            assert client.get("/healthz")[0] == 200
        assert b"\npushup_connections_accepted_total 4.0\n" in client.get("/metrics")[1]
    monkeypatch.setattr(push_or_pull, "METHODS", push_or_pull.METHODS[1:])
    tables, _ = push_or_pull.measure((5,), Pace((1.0,), 0.2, 5.0, 2), closing=True)
    assert_readable("traffic-closing", tables, tmp_path, but=("table_1_closing", "table_2_closing"))
    for row in tables[2].rows:
        seen = dict(zip(tables[2].columns, row, strict=True))
        assert (seen["published"], seen["received %"], seen["failed polls"]) == (2, 100, 0)
        assert float(seen["polls a message"]) >= 5


def test_the_client_counts_bytes_on_the_wire() -> None:
    """It counts the heads and bodies of several requests and responses on one connection."""
    with running() as server:
        host, port = server.address
        client = CountedClient(f"http://{host}:{port}")
        status, body = client.get("/healthz")
        assert (status, json.loads(body)) == (200, {"status": "alive"})
        request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        assert client.sent == len(request)
        once = client.received
        with urlopen(f"http://{host}:{port}/healthz") as response:  # sends Connection: close
            head = sum(len(name) + len(value) + 4 for name, value in response.headers.items() if name != "Connection")
        assert once == len("HTTP/1.1 200 OK\r\n\r\n") + head + len(body)
        client.get("/healthz")
        assert (client.sent, client.received) == (2 * len(request), 2 * once)
        status, _ = client.post("/v1/messages", b'{"channels": ["a"], "data": 1}')
        assert status == 201
        client.close()


def test_the_locustfile_runs_by_itself(tmp_path: Path) -> None:
    """locust finds users of each kind, and shows the measurements in its own statistics and at the end."""
    file = tmp_path / "measured.json"
    with running() as server:
        host, port = server.address
        command = [*LOCUST, "--headless", "-u", "5", "-r", "5", "-t", "8s", "--host", f"http://{host}:{port}"]
        command += ["--pull-interval", "0.2", "--publish-intervals", "0.3", "--channels", "2", "--channels-each", "2"]
        command += ["--measured-file", str(file), "--server-pid", str(server.pid)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    (tally,) = read_tallies(file)
    assert tally.published >= 3
    assert tally.subscribers == 4  # of three kinds
    assert tally.delivered >= 4 * (tally.published - 2)
    assert (tally.failed, tally.refused, tally.repeated) == (0, 0, 0)
    assert tally.server_memory > 5e6
    statistics = done.stdout + done.stderr
    for name in (
        "ClientPull +poll",
        "LongPoll +poll",
        "LongPoll +message trip",
        "EventStream +message trip",
        "Publisher +publish",
    ):
        assert re.search(rf"^{name} .* [1-9]", statistics, re.MULTILINE), name
    assert re.search(r"traffic KB a message +[0-9]", statistics)


def test_refusals_are_failures(tmp_path: Path) -> None:
    """Against a server that wants a key nothing is published, and locust says so."""
    file = tmp_path / "measured.json"
    with running(environment={"PUSHUP_PUBLISH_KEYS": "0123456789abcdef"}) as server:
        host, port = server.address
        command = [*LOCUST, "Publisher", "LongPoll", "--headless", "-u", "2", "-r", "2", "--messages", "2"]
        command += ["--publish-intervals", "0.2", "--measured-file", str(file), "--host", f"http://{host}:{port}"]
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        (tally,) = read_tallies(file)
        assert (refused.returncode, tally.refused, tally.published) == (1, 2, 0)
        command += ["--publish-key", "0123456789abcdef"]
        taken = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        (tally,) = read_tallies(file)
        assert (taken.returncode, tally.refused, tally.published, tally.delivered) == (0, 0, 2, 2)


def test_ctrl_c_ends_servers_and_locusts() -> None:
    """No process that the experiment has started outlives it."""
    program = "from loadtest.liu import push_or_pull as p; p.measure((2,), p.PAPER)"
    experiment = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    started: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    try:
        while sum("locust" in " ".join(process.cmdline()) for process in started) < 3:
            assert time.monotonic() < deadline, started
            time.sleep(0.1)
            started = [process for process in psutil.Process(experiment.pid).children() if process.is_running()]
        os.kill(experiment.pid, signal.SIGINT)
        assert experiment.wait(30) != 0
    finally:
        experiment.kill()
        experiment.wait()
    gone, alive = psutil.wait_procs(started, timeout=1)
    assert len(gone) == 6
    assert not alive


def _measured(port: int, enough: Callable[[int], bool]) -> str:
    """The page, once enough messages have been published."""
    deadline = time.monotonic() + 15
    while True:
        seen = ""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/measured") as response:
            seen = response.read().decode()
        found = re.search(r"published +([0-9]+)", seen)
        if found and enough(int(found[1])):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def test_a_locust_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised at once, without waiting for the end of the run."""
    monkeypatch.setattr(push_or_pull, "METHODS", (push_or_pull.Method("XP", "pushup", "NobodyWeKnow"),))
    began = time.monotonic()
    pace = Pace((600.0,), 1.0, 5.0, 1)
    with pytest.raises(RuntimeError, match="XP with 2 connections has failed"):
        push_or_pull.measure((2,), pace)
    assert time.monotonic() - began < pace.seconds


def test_the_metrics_are_the_papers() -> None:
    """Bytes in both directions per message, the mean of the trips, and the share of expected messages."""
    tally = Tally(10.0, published=4, expected=40, delivered=30, sent=2000, received=6000, trips=[0.1, 0.2, 0.6])
    summary = tally.summary()
    assert summary["traffic KB a message"] == 2.0
    assert summary["mean trip s"] == pytest.approx(0.3)
    assert summary["trip max s"] == 0.6
    assert summary["received %"] == 75.0


def test_a_late_message_counts_for_its_own_interval() -> None:
    """A message created during one publish interval and received during the next belongs to the first."""
    tallies = Tallies(None)
    tallies.begin(1.0)
    created = time.time()
    tallies.end()
    tallies.begin(2.0)
    assert tallies.tally_for(created).interval == 1.0
    assert tallies.tally_for(time.time()).interval == 2.0


def test_the_web_page_shows_the_measurements() -> None:
    """`/measured` works beside locust's own page while users are running; a new test starts from zero."""
    port = free_port()
    with running() as server:
        command = [*LOCUST, "--autostart", "-u", "3", "-r", "3", "--web-host", "127.0.0.1", "--web-port", str(port)]
        command += ["--host", f"http://127.0.0.1:{server.port}", "--publish-intervals", "0.2", "--messages", "10"]
        locust = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            seen = _measured(port, lambda published: published >= 10)
            assert re.search(r"mean trip s +[0-9.]", seen)
            with urlopen(f"http://127.0.0.1:{port}/") as response:
                assert b"<title>Locust" in response.read()
            time.sleep(0.5)  # the last message is followed by the rest of its interval
            urlopen(f"http://127.0.0.1:{port}/stop", b"").close()
            urlopen(f"http://127.0.0.1:{port}/swarm", b"user_count=3&spawn_rate=3").close()
            seen = _measured(port, lambda published: 1 <= published < 10)
            assert re.search(r"received % +(100|[5-9][0-9])", seen)
        finally:
            locust.kill()
            locust.wait()
