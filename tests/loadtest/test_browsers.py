"""pushup.js in Chromium, Firefox and WebKitGTK while something fails; and that what goes wrong would be noticed."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from deploy.cluster import HOST, free_ports
from loadtest.beyond.browsers import experiment
from loadtest.beyond.browsers.drivers import BROWSERS
from loadtest.beyond.browsers.experiment import QUICK, QUICK_DURING, QUICK_MESSAGES, Case, Played
from loadtest.beyond.browsers.processes import busiest
from loadtest.beyond.browsers.proxies import Gateway, Relay
from loadtest.beyond.browsers.scenarios import SCENARIOS
from loadtest.beyond.browsers.scene import PUSHUP
from loadtest.beyond.browsers.verdict import Verdict, judge

pytestmark = pytest.mark.xdist_group("browsers")  # one after the other: each needs much of the machine

SECONDS = 10.0

LEFT_OUT = {"cutting", "silent", "eight-channels"}
"""They take long, and are like others: `cutting-often`, `cutting-often` and `eight-tabs`."""


@pytest.mark.parametrize("browser", BROWSERS)
def test_nothing_is_lost_or_shown_twice(browser: str) -> None:
    """Over streams and polls, HTTP/1.1 and HTTP/2; and all tabs share a request, at the beginning and at the end."""
    chosen = [(browser, scenario) for scenario in QUICK[browser]]
    done = experiment.played(chosen, messages=QUICK_MESSAGES, during=QUICK_DURING, clients=PUSHUP)
    assert done.failed == []
    kinds = {(case.scenario, case.front, case.client) for case in done.cases}
    assert len(kinds) == 4 * len(chosen)
    assert all(case.verdict.late for case in done.cases)


def test_each_fault_is_played_in_a_browser_that_can() -> None:
    """Together the browsers have all scenarios, except for those that take long."""
    assert set().union(*QUICK.values()) == SCENARIOS.keys() - LEFT_OUT
    for browser, scenarios in QUICK.items():
        assert all(SCENARIOS[scenario].fits(BROWSERS[browser]) for scenario in scenarios)


def test_what_is_wrong_is_counted() -> None:
    """Message 1 is lost, 0 comes twice, 2 comes after 3, and a gap was told."""
    told = [("message", 0, 1e3), ("message", 0, 2e3), ("gap", "lost", 2e3), ("message", 3, 3e3), ("message", 2, 4e3)]
    verdict = judge([1.0, 1.0, 1.0, 1.0], told, [])
    assert verdict == Verdict(lost=1, repeated=1, out_of_order=1, gaps=1, late=())


def test_how_late_a_page_is() -> None:
    """What was acknowledged before a moment counts from then, what comes later from its acknowledgement."""
    acknowledged = [1.0, 2.0, 12.0, 21.0]
    told = [("message", number, 1e3 * at) for number, at in enumerate([1.5, 13.0, 13.5, 21.25])]
    assert judge(acknowledged, told, [20.0, 10.0]).late == (3.0, 0.25)
    assert judge([1.0], [], [2.0]).late == (), "it never was"


def test_broken_promises_are_in_the_table() -> None:
    """So that the command fails; the summary has the mean loss of a tab, and how late it was."""
    cases = [
        Case("reload", "firefox", "tls", client, Verdict(lost, 0, 0, 0, (late,)))
        for client, lost, late in (("loop", 4, 1.0), ("loop", 1, 3.0), ("auto", 0, 0.5))
    ]
    each, summary = experiment.tables(Played(cases, ["firefox, reload: broken"]))
    assert each.failed == "firefox, reload: broken"
    assert each.rows[0] == ("reload", "firefox", "tls", "loop", 2, 2.5, 0, 0, 0, 3.0, 3.0)
    assert summary.rows == [("reloaded three times", 0.0, "0.50 / 0.50", "-", "-", 2.5, "3.00 / 3.00")]


WORKING = """
import sys, time
print("started", flush=True)
while True:
    if sys.argv[2] == "rests":
        time.sleep(1)
"""


@pytest.fixture
def working() -> Iterator[Callable[[str, str], int]]:
    """Start a process of a kind that works or rests until the test ends; returns its id."""
    processes = []

    def start(kind: str, how: str) -> int:
        command = [sys.executable, "-c", WORKING, f"--type={kind}", how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def in_page(_: str) -> None:
    time.sleep(0.4)


def test_the_process_of_a_page(working: Callable[[str, str], int]) -> None:
    """It is found even if the browser itself is as busy."""
    working("browser", "works")
    page = working("page", "works")
    working("page", "rests")
    assert busiest(os.getpid(), "--type=page", in_page) == page


def test_a_process_that_might_not_be_the_page_is_not_taken(working: Callable[[str, str], int]) -> None:
    """A wrong one would be killed."""
    working("browser", "works")
    working("page", "rests")
    working("page", "rests")
    with pytest.raises(AssertionError, match="no process stands out"):
        busiest(os.getpid(), "--type=page", in_page)


class Echo(StreamRequestHandler):
    """Sends back each line."""

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


class Pieces(BaseHTTPRequestHandler):
    """Answers in two pieces, the second when the test says so."""

    release = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"first ")
        self.release.wait(SECONDS)
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class EchoServer(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def serving(server: ThreadingTCPServer | ThreadingHTTPServer) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.fixture
def relay() -> Iterator[Relay]:
    (port,) = free_ports(1)
    with serving(EchoServer((HOST, port), Echo)) as echo, Relay(echo) as relay:
        yield relay


def connected(relay: Relay) -> socket.socket:
    return socket.create_connection((HOST, relay.port), SECONDS)


def echoed(client: socket.socket, wait: float = SECONDS) -> bytes:
    client.sendall(b"hello\n")
    client.settimeout(wait)
    try:
        return client.recv(100)
    except (TimeoutError, ConnectionResetError) as error:
        return type(error).__name__.encode()


def test_a_relay_delays(relay: Relay) -> None:
    """Both ways, each byte."""
    relay.delay = 0.2
    with closing(connected(relay)) as client:
        began = time.monotonic()
        assert echoed(client) == b"hello\n"
        assert time.monotonic() - began >= 0.4


def test_a_relay_cuts(relay: Relay) -> None:
    """Each connection after its time; no other."""
    relay.cut_after = 0.3
    with closing(connected(relay)) as client:
        assert echoed(client) == b"hello\n"
        assert client.recv(1) == b""
    relay.cut_after = 0.0
    with closing(connected(relay)) as client:
        assert echoed(client) == b"hello\n"


def test_a_relay_goes_away_and_comes_back(relay: Relay) -> None:
    """What is connected is cut, what connects is closed, until it is back."""
    with closing(connected(relay)) as client:
        assert echoed(client) == b"hello\n"
        relay.go_away()
        assert client.recv(1) == b""
    with closing(connected(relay)) as client:
        assert echoed(client) in (b"", b"ConnectionResetError")
    relay.come_back()
    with closing(connected(relay)) as client:
        assert echoed(client) == b"hello\n"


def test_a_relay_falls_silent(relay: Relay) -> None:
    """What is connected stays so, and hears nothing; what connects later works."""
    with closing(connected(relay)) as client, closing(connected(relay)) as later:
        assert echoed(client) == b"hello\n"
        relay.fall_silent()
        assert echoed(client, wait=0.5) == b"TimeoutError"
        later.close()
        with closing(connected(relay)) as new:
            assert echoed(new) == b"hello\n"


def test_a_gateway_holds_a_response_back_until_it_is_complete() -> None:
    """Its head as well; and it answers 502 as long as it is told to."""
    Pieces.release.clear()
    (port,) = free_ports(1)
    with serving(ThreadingHTTPServer((HOST, port), Pieces)) as server, Gateway(server) as gateway:
        client = http.client.HTTPConnection(HOST, gateway.port, timeout=0.5)
        client.request("POST", "/", b"second")
        with pytest.raises(TimeoutError):
            client.getresponse()
        client.close()
        Pieces.release.set()
        assert answer(gateway) == (200, b"first second")
        gateway.refuses = True
        assert answer(gateway)[0] == 502


def answer(gateway: Gateway) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(HOST, gateway.port, timeout=SECONDS)) as client:
        client.request("POST", "/", b"second")
        response = client.getresponse()
        return response.status, response.read()
