"""A network that loses packets, and pulling and long polling in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.liu import packet_loss
from loadtest.load import lossy_network
from loadtest.load.lossy_network import Packets, inside, why_not
from loadtest.reports.results import Figure, Table
from tests.loadtest.readable import assert_readable

ATTEMPTS = 4
"""On a busy machine clients may still be starting when messages are published, so that nothing is sent meanwhile."""

TRANSFER = """
import json, socket, sys, threading
from loadtest.load import lossy_network
lossy_network.begin()
lossy_network.lose(0.1)
before = lossy_network.packets()
with socket.create_server(("127.0.0.1", 0)) as server:
    def answer():
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)
    threading.Thread(target=answer, daemon=True).start()
    with socket.create_connection(server.getsockname(), source_address=(sys.argv[1], 0)) as client:
        for number in range(60):
            client.sendall(b"%03d" % number)
            assert client.recv(100) == b"%03d" % number
print(json.dumps(lossy_network.packets().since(before)))
"""


def transfer(source: str) -> Packets:
    done = subprocess.run(inside([sys.executable, "-c", TRANSFER, source]), capture_output=True, text=True, check=True)
    return Packets(*json.loads(done.stdout))


def test_what_is_lost_is_counted_and_sent_again() -> None:
    """A tenth of the packets is dropped, and everything arrives; nothing is dropped of the address that is safe."""
    if reason := why_not():
        assert "Install nftables" in reason
        return
    lossy, safe = transfer("127.0.0.3"), transfer(lossy_network.SAFE_ADDRESS)
    assert 0.02 < lossy.dropped / lossy.sent < 0.3
    assert lossy.resent > 0
    assert (safe.dropped, safe.resent, safe.timeouts) == (0, 0, 0)
    assert safe.sent >= 120


def measure(scale: packet_loss.Scale) -> tuple[list[Table], list[Figure]]:
    sent = packet_loss.COLUMNS.index("packets a message")
    for _ in range(ATTEMPTS):
        tables, figures = packet_loss.measure(scale)
        if all(float(row[sent]) > 0 for row in tables[0].rows):
            return tables, figures
    pytest.fail(f"nothing was sent in {ATTEMPTS} attempts")


def test_what_lost_packets_do(tmp_path: Path) -> None:
    """Each case has its own network; packets are lost there, the more the more requests there are."""
    if why_not():
        return
    scale = packet_loss.QUICK._replace(losses=(0.05,), connections=10, intervals=(2.0,), seconds=2.0)
    tables, (figure,) = measure(scale)
    assert_readable("packet-loss", tables, tmp_path)
    found = {}
    for row in tables[0].rows:
        seen = dict(zip(tables[0].columns, row, strict=True))
        found[row[:3]] = {name: float(value) for name, value in seen.items() if isinstance(value, int | float)}
    assert len(found) == 4
    for counts in found.values():
        assert counts["mean trip s"] > 0
        assert 0 < counts["received %"] <= 100
    for kept in ("kept", "closed"):
        pull, push = (found[kept, method, 5.0] for method in ("CP", "ELP"))
        assert 0.02 < pull["dropped a message"] / pull["packets a message"] < 0.1
        assert pull["sent again a message"] > 0
        assert pull["dropped a message"] > push["dropped a message"]
    assert len(figure.lines) == 4


def test_why_packets_cannot_be_lost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is missing, or the system refuses."""
    monkeypatch.setenv("PATH", "")
    assert why_not().startswith("packets cannot be dropped here: there is no unshare and no nft. Install nftables")


def test_a_case_that_fails_is_an_error() -> None:
    """The error of its process is told."""
    command = [sys.executable, "-c", "raise SystemExit('no such network')"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        pytest.raises(RuntimeError, match="a case has failed: no such network"),
    ):
        packet_loss._outcome(process, "")
