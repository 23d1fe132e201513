"""A Redis of which the data is put back, and commands to it."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import hiredis
import psutil

from deploy.cluster import installed
from deploy.part import Part
from loadtest.beyond.append_only import FOLDER

HOST = "127.0.0.1"
WAIT_SECONDS = 10.0
"""How long to wait for a reply."""

COPY_SECONDS = 60.0
"""How long it may take to start, and as a replica, to have everything."""

AT_ONCE = 65536
"""Bytes that are read at a time."""

ALWAYS = {"appendonly": "yes", "appendfsync": "always", "save": ""}
"""Each write is synced before it is answered."""

SNAPSHOTS = {"appendonly": "no", "save": ""}
"""Nothing is kept but what SAVE writes."""


class Redis:
    """A Redis whose port and folder stay the same."""

    def __init__(
        self, name: str, folder: Path, port: int, flags: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.port = port
        self.data = folder / name
        self.data.mkdir(exist_ok=True)
        # A file that may not grow gives an error then, as a full disk does, and does not kill it.
        self._command = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", installed("redis-server")]
        self._command += ["--bind", HOST, "--port", str(port), "--dir", str(self.data)]
        self._command += ["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"]
        self.flags = flags
        """For the next start."""
        environment = {**os.environ, **(environment or {})}
        self.part = Part(
            name,
            self._command,
            environment=environment,
            folder=folder,
            is_ready=self._answers,
            start_seconds=COPY_SECONDS,
        )

    def start(self) -> None:
        """Raises: PartFailed."""
        words = [word for key, value in self.flags.items() for word in (f"--{key}", value)]
        self.part.command = [*self._command, *words]
        self.part.start()

    def kill(self) -> None:
        self.part.kill()

    @property
    def process(self) -> psutil.Process:
        assert self.part.pid is not None
        return psutil.Process(self.part.pid)

    def fill(self, base: Path) -> None:
        """Put the data in this folder in the place of what there is. It must not run."""
        shutil.rmtree(self.data)
        shutil.copytree(base, self.data)

    def clear(self) -> None:
        """Remove all data. It must not run."""
        for path in (self.data / FOLDER, self.data / "dump.rdb"):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                path.unlink()

    def ask(self, *words: str | bytes | float) -> Any:
        """The reply to a command. Raises: OSError, hiredis.ReplyError."""
        reader = hiredis.Reader()
        with closing(socket.create_connection((HOST, self.port), WAIT_SECONDS)) as sock:
            sock.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stubs allow only one word
            while (reply := reader.gets()) is False:
                data = sock.recv(AT_ONCE)
                if not data:
                    raise ConnectionError("Redis closed the connection")
                reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def state(self) -> tuple[str, int, int]:
        """The epoch, the last sequence, and the checkpoint's."""
        epoch, sequence, saved = self.ask("HMGET", "{pushup}:5:state", "epoch", "sequence", "saved")
        return epoch.decode(), int(sequence), int(saved)

    def replicate(self, other: Redis) -> None:
        """Become a replica of another, and wait until it has everything."""
        self.ask("REPLICAOF", HOST, other.port)
        deadline = time.monotonic() + COPY_SECONDS
        while b"master_link_status:up" not in self.ask("INFO", "replication"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not replicate {other.name}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with suppress(hiredis.ReplyError):
            return bool(self.ask("PING") == b"PONG")
        return False
