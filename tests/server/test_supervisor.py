"""A real server and a supervisor's socket, with a name in the file system or an abstract one."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from threading import Thread
from uuid import uuid4

import pytest

from tests.server.conftest import Serve
from tests.server.raw_client import WAIT_SECONDS
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, wait_until

WATCHDOG_SECONDS = 0.5


class Supervisor:
    """Receives a server's notifications, always at once: a socket nobody reads from refuses the eleventh."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(name.replace("@", "\0"))
        self._lines: Queue[str] = Queue()
        self._thread = Thread(target=self._receive)
        self._thread.start()
        self.environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": f"{WATCHDOG_SECONDS * 1e6:.0f}"}

    def hears(self, line: str) -> list[str]:
        """Wait for a line that matches this regular expression; returns the lines before it."""
        before: list[str] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while re.fullmatch(line, heard := self._lines.get(timeout=WAIT_SECONDS)) is None:
            before.append(heard)
            assert time.monotonic() < deadline, f"timed out waiting for {line}, and heard {before}"
        return before

    def hears_nothing(self, seconds: float) -> bool:
        """Whether nothing is sent for this long; ignores what was sent before."""
        self._drain()
        time.sleep(seconds)
        return self._drain() == []

    def _drain(self) -> list[str]:
        """The lines that were sent until now, whether they have been received or not."""
        mark = uuid4().hex
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(mark.encode(), self._socket.getsockname())
        return self.hears(mark)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while line := self._socket.recv(4096):
            self._lines.put(line.decode())


@pytest.fixture(params=["file", "abstract"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(f"@pushup-{uuid4()}" if request.param == "abstract" else str(tmp_path / "notify"))
    yield supervisor
    supervisor.close()


def test_from_start_to_end(serve: Serve, supervisor: Supervisor) -> None:
    """READY once it listens, then watchdog messages, none from a hung process, and STOPPING when it stops."""
    with serve(environment=supervisor.environment) as server:
        assert supervisor.hears("READY=1") == []
        assert supervisor.hears("STATUS=Ready") == ["WATCHDOG=1"]
        for _ in range(3):
            assert supervisor.hears("WATCHDOG=1") == []
        server.signal(signal.SIGSTOP)
        _wait_until_stopped(server)
        assert supervisor.hears_nothing(2 * WATCHDOG_SECONDS)
        server.signal(signal.SIGCONT)
        assert supervisor.hears("WATCHDOG=1") == []
        server.signal(signal.SIGTERM)
        assert set(supervisor.hears("STOPPING=1")) <= {"WATCHDOG=1"}
        assert "READY=1" not in supervisor.hears("STATUS=Stopping: answering held polls")
        assert server.wait() == 0


def test_ready_once_the_log_is_read(serve: Serve, supervisor: Supervisor, stack: ExitStack, tmp_path: Path) -> None:
    """A node that listens but has not reached Redis reports that it is starting; once it has, it is ready."""
    redis = RedisServer(tmp_path)
    with serve("--broadcast", redis.url, environment=supervisor.environment) as server:
        server.expect_log("Redis: |there is no message log in Redis")
        assert len(supervisor.hears("STATUS=Starting: Redis .*")) == 1
        stack.enter_context(redis)
        assert "READY=1" not in supervisor.hears("READY=1")
        with server.caller() as caller:
            assert caller.call("GET", "/readyz").status == 200


def test_several_workers(serve: Serve, supervisor: Supervisor) -> None:
    """The parent speaks for all: READY when all serve clients, the watchdog from its own event loop, and STOPPING."""
    with serve("--workers", "2", environment=supervisor.environment) as server:
        before = supervisor.hears("READY=1")
        assert any(re.match(r"STATUS=Starting: worker \d: ", line) for line in before)
        assert supervisor.hears("STATUS=Ready") == ["WATCHDOG=1"]
        assert supervisor.hears("WATCHDOG=1") == []
        server.signal(signal.SIGTERM)
        supervisor.hears("STOPPING=1")
        assert server.wait() == 0


def test_a_stuck_server_logs_where(serve: Serve) -> None:
    """SIGABRT, as from a watchdog, ends it, and the log shows the line of code that was running."""
    with serve() as server:
        server.expect_log("")
        with server.caller() as caller:  # so its event loop is running
            assert caller.call("GET", "/healthz").status == 200
        server.signal(signal.SIGABRT)
        assert server.wait() == -signal.SIGABRT
        assert any("demultiplexer.py" in line or "epollreactor.py" in line for line in server.log_lines())


def test_a_supervisor_that_is_gone(serve: Serve, tmp_path: Path) -> None:
    """The server works anyway, and logs one line about it."""
    with serve(environment={"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "100000"}) as server:
        server.expect_log("cannot notify the supervisor")
        wait_until(lambda: any("cannot notify" in line for line in server.log_lines()), "it to be logged")
        with server.caller() as caller:
            assert caller.call("GET", "/readyz").status == 200
        assert sum("cannot notify the supervisor" in line for line in server.log_lines()) == 1


def _wait_until_stopped(server: Server) -> None:
    wait_until(lambda: server.process.status() == "stopped", "it to be stopped")
