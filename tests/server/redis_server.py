"""A real Redis in a process of its own: started, stopped, killed, frozen, and set back to what it was."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis

from deploy.cluster import free_ports
from tests.server.raw_client import WAIT_SECONDS

PROGRAM = shutil.which("redis-server") or "redis-server"


def free_port() -> int:
    """A port that nobody listens on, and that the kernel gives to no client: a server can come back to it."""
    (port,) = free_ports(1)
    return port


class RedisClient:
    """Asks a Redis, and waits for each reply."""

    def __init__(self, port: int, password: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        self._reader = hiredis.Reader()
        if password:
            self.ask("AUTH", password)

    def ask(self, *words: str | bytes | float) -> Any:
        """A command's reply. Raises: hiredis.ReplyError."""
        reply = self.reply(*words)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def reply(self, *words: str | bytes | float) -> Any:
        """A command's reply, if it is an error, too."""
        self._socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stubs know one word only
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
    """A Redis at a port that stays the same; all that it has is in its directory."""

    def __init__(self, directory: Path, *, password: str = "", flags: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.password = password
        self._flags = {
            "save": "",
            "repl-diskless-sync-delay": 0,
            "appendonly": "no",
            "bind": "127.0.0.1",
            "daemonize": "no",
            **(flags or {}),
        }
        if password:
            self._flags["requirepass"] = password
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        """Start it, and wait until it answers."""
        flags = [word for name, value in self._flags.items() for word in (f"--{name}", str(value))]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "--port", str(self.port), *flags, *more], cwd=self.directory, stdout=log, stderr=log
            )
        until(self._answers, "Redis to answer")

    def start_as_sentinel(self, configuration: Path) -> None:
        """Start it as a Sentinel by this file, which it will write to."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, str(configuration), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"],
                cwd=self.directory, stdout=log, stderr=log,
            )  # fmt: skip
        until(self._answers, "the Sentinel to answer")

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
        """Be gone at once, and nothing is written any more; does nothing where it is gone already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End in good order, which writes what is to be written."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        self._process = None

    def dump(self) -> Path:
        """All that it has now, as a file."""
        self.ask("SAVE")
        copy = self.directory / f"dump-{time.monotonic_ns()}"
        shutil.copy(self.directory / "dump.rdb", copy)
        return copy

    def roll_back(self, dump: Path) -> None:
        """Die, and come up with what there was when the dump was made."""
        self.kill()
        os.replace(dump, self.directory / "dump.rdb")
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
