"""The clock of a machine is set while a real server runs, by up to two hours in either direction.

The machine's own clock must stay as it is, so the server's Python is given another: a `sitecustomize` module, which
Python imports before anything else, replaces `time.time`. Nothing in PushUp knows of it.
"""

from __future__ import annotations

import email.utils
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.caller import data_of, gaps_of
from tests.server.conftest import Serve
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, wait_until

SETTABLE_CLOCK = """
import pathlib, signal, time
file = pathlib.Path({path!r})
real, ahead = time.time, float(file.read_text())
def set_clock(number, frame):
    global ahead
    ahead = float(file.read_text())
time.time = lambda: real() + ahead
signal.signal(signal.SIGUSR1, set_clock)
"""

JUMPS = (7200.0, -3600.0)

BEHIND = r"the clock is 3[56]\d\d s behind the last entry of the journal"

JUMPED = "the system clock jumped by "


class Machine:
    """Starts servers on a clock that can be set."""

    def __init__(self, serve: Serve, directory: Path) -> None:
        self._serve = serve
        self._ahead = directory / "ahead"
        modules = directory / "modules"
        modules.mkdir()
        (modules / "sitecustomize.py").write_text(SETTABLE_CLOCK.format(path=str(self._ahead)))
        self._path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))

    @contextmanager
    def server(self, broadcast: str, *, ahead: float = 0.0, retention_seconds: float = 300.0) -> Iterator[Server]:
        """A server on a clock that is ahead of the right one by this much at the start."""
        self._ahead.write_text(str(ahead))
        with self._serve(
            environment={"PYTHONPATH": self._path}, broadcast=broadcast, retention_seconds=retention_seconds
        ) as server:
            server.expect_log(JUMPED)
            yield server

    def set_clock(self, server: Server, ahead: float) -> None:
        """Set the server's clock, and wait until it has taken effect."""
        self._ahead.write_text(str(ahead))
        server.signal(signal.SIGUSR1)
        wait_until(lambda: abs(date_of(server) - time.time() - ahead) < 60, "the server's Date to follow the clock")


def date_of(server: Server) -> float:
    """The time in the Date header, seconds since the epoch."""
    with server.caller() as caller:
        date = caller.call("GET", "/healthz").headers["Date"]
    return email.utils.parsedate_to_datetime(date).timestamp()


@pytest.fixture
def machine(serve: Serve, tmp_path: Path) -> Machine:
    return Machine(serve, tmp_path)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("kind", ["memory", "journal"])
def test_a_jump_expires_nothing_and_moves_no_hold(machine: Machine, tmp_path: Path, kind: str, jump: float) -> None:
    """Messages and channels stay, times do not decrease, a held poll ends after its timeout, and one line says why."""
    broadcast = "memory:" if kind == "memory" else f"journal:{tmp_path / 'journal'}"
    with machine.server(broadcast) as server, server.caller() as publisher, server.caller() as waiting:
        publisher.publish(["a"], 1)
        began = time.monotonic()
        waiting.begin_poll("b", timeout=4)
        server.wait_for_held(1)
        machine.set_clock(server, jump)
        publisher.publish(["a"], 2)
        assert waiting.answer()["messages"] == []
        held = time.monotonic() - began
        assert 0.85 * 4 - 0.1 <= held < 60, "less than its timeout, or the jump was followed"
        answer = publisher.poll("a", timeout=0)
        assert data_of(answer) == [1, 2]
        assert answer["gaps"] == []
        first, second = (message["time"] for message in answer["messages"])
        assert first <= second < first + 60
        wait_until(lambda: any(JUMPED in line for line in server.log_lines()), "the jump to be logged")
        (line,) = [line for line in server.log_lines() if JUMPED in line]
        assert f"{JUMPED}{jump:+.0f}" in line


@pytest.mark.parametrize("jump", JUMPS)
def test_what_is_due_still_expires_after_a_jump(machine: Machine, jump: float) -> None:
    """Within seconds, as before."""
    with machine.server("memory:", retention_seconds=2) as server, server.caller() as caller:
        machine.set_clock(server, jump)
        caller.publish(["a"], 1)
        assert server.metric("cached_messages") == 1
        wait_until(lambda: server.metric("cached_messages") == 0, "the message to expire")


def test_a_journal_whose_clock_was_ahead(machine: Machine, tmp_path: Path) -> None:
    """After a restart on a clock that is behind, its messages are there, time stands still, and one line says so."""
    broadcast = f"journal:{tmp_path / 'journal'}"
    with machine.server(broadcast, ahead=3600.0) as server, server.caller() as caller:
        caller.publish(["a"], 1)
        server.end()
    with machine.server(broadcast) as server, server.caller() as caller:
        server.expect_log(BEHIND)
        caller.publish(["a"], 2)
        first, second = caller.poll("a", timeout=0)["messages"]
        assert first["time"] == second["time"] > time.time() + 3000
        assert len([line for line in server.log_lines() if re.search(BEHIND, line)]) == 1


def test_a_journal_whose_clock_goes_on_while_no_server_runs(machine: Machine, tmp_path: Path) -> None:
    """Messages that are too old by then are gone soon after the restart, and a cursor from before gets a gap."""
    broadcast = f"journal:{tmp_path / 'journal'}"
    with machine.server(broadcast) as server, server.caller() as caller:
        caller.publish(["a"], 0)
        cursor = caller.cursor()
        caller.publish(["a"], 1)
        server.end()
    with machine.server(broadcast, ahead=1000.0) as server, server.caller() as caller:
        wait_until(lambda: server.metric("cached_messages") == 0, "the messages to expire")
        answer = caller.poll("a", cursor=cursor, timeout=0)
        assert (answer["messages"], gaps_of(answer)) == ([], [("a", "expired")])


@pytest.mark.parametrize("jump", JUMPS)
def test_with_redis_a_nodes_clock_expires_nothing(machine: Machine, tmp_path: Path, jump: float) -> None:
    """Neither if it is wrong from the start nor if it jumps: messages have the time of Redis, and no entry is added."""
    with (
        RedisServer(tmp_path) as redis,
        machine.server(f"redis://127.0.0.1:{redis.port}", ahead=-jump) as server,
        server.caller() as caller,
    ):
        server.expect_log("there is no message log in Redis")
        wait_until(lambda: server.metric("ready") == 1, "the node to be ready")
        caller.publish(["a"], 1)
        cursor = caller.cursor()
        machine.set_clock(server, jump)
        assert caller.poll("b", cursor=cursor, timeout=3)["messages"] == []
        assert caller.cursor() == cursor
        (message,) = caller.poll("a", timeout=0)["messages"]
        assert abs(message["time"] - time.time()) < 600
        assert server.metric("cached_messages") == 1
