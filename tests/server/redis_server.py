"""A real Redis in its own process: started, stopped, killed, frozen, and reset to an earlier state."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis

from deploy.cluster import free_ports
from tests.server.raw_client import WAIT_SECONDS
from tests.server.server_process import wait_until

PROGRAM = shutil.which("redis-server") or "redis-server"


_chosen: deque[int] = deque(maxlen=100)
"""Ports that were chosen lately. Some are free because their server has yet to start, or is to start again."""


def free_port() -> int:
    """A free port below the kernel's ephemeral ports, so that a server can be restarted on it: another each time."""
    port = next(port for port in free_ports(len(_chosen) + 1) if port not in _chosen)
    _chosen.append(port)
    return port


class RedisClient:
    """Sends commands to a Redis, and waits for each reply."""

    def __init__(self, port: int, password: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        self._reader = hiredis.Reader()
        if password:
            self.ask("AUTH", password)

    def ask(self, *words: str | bytes | float) -> Any:
        """The reply to a command. Raises: hiredis.ReplyError."""
        reply = self.reply(*words)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def reply(self, *words: str | bytes | float) -> Any:
        """The reply to a command, even if it is an error."""
        self._socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stubs allow only one word
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("Redis closed the connection")
            self._reader.feed(data)
        return reply

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class RedisServer:
    """A Redis whose port stays the same; all its data is in its directory."""

    def __init__(self, directory: Path, *, password: str = "", flags: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.password = password
        self.flags = {
            "save": "",
            "repl-diskless-sync-delay": 0,
            "appendonly": "no",
            "bind": "127.0.0.1",
            "daemonize": "no",
            **(flags or {}),
        }
        if password:
            self.flags["requirepass"] = password
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        """Start it, and wait until it responds."""
        flags = [word for name, value in self.flags.items() for word in (f"--{name}", str(value))]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "--port", str(self.port), *flags, *more], cwd=self.directory, stdout=log, stderr=log
            )
        wait_until(self._answers, "Redis to answer")

    def start_as_sentinel(self, configuration: Path) -> None:
        """Start it as a Sentinel with this configuration file, which it rewrites."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, str(configuration), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"],
                cwd=self.directory, stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(self._answers, "the Sentinel to answer")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        try:
            return bool(self.ask("PING") == b"PONG")
        except (OSError, hiredis.ReplyError):
            return False

    def client(self) -> RedisClient:
        return RedisClient(self.port, self.password)

    def ask(self, *words: str | bytes | float) -> Any:
        with self.client() as client:
            return client.ask(*words)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, so that it writes nothing more; does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop it gracefully, so that it writes its data to disk."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        self._process = None

    def dump(self) -> Path:
        """Dump all current data to a file."""
        self.ask("SAVE")
        copy = self.directory / f"dump-{time.monotonic_ns()}"
        shutil.copy(self.directory / "dump.rdb", copy)
        return copy

    def roll_back(self, dump: Path) -> None:
        """Kill it, and start it again with the data of the dump."""
        self.kill()
        os.replace(dump, self.directory / "dump.rdb")
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
