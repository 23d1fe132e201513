"""Starts servers in their own processes, pins them to a processor, measures them, and stops them."""

from __future__ import annotations

import os
import re
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

START_SECONDS = 30.0

SERVER_CORE = 0
LOAD_CORE = 1


class Usage(NamedTuple):
    """The resources a server uses, including those of its running child processes."""

    pid: int

    def cpu_seconds(self) -> float:
        """Processor time, user and system."""
        return float(sum(times.user + times.system for times in (process.cpu_times() for process in self._processes())))

    def memory_bytes(self) -> int:
        """PSS: shared memory counts in proportion. Excludes kernel memory, such as socket buffers."""
        return sum(process.memory_full_info().pss for process in self._processes())

    def thread_count(self) -> int:
        return sum(process.num_threads() for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        process = psutil.Process(self.pid)
        return [process, *process.children(recursive=True)]


class Server(NamedTuple):
    """A running server."""

    pid: int
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def usage(self) -> Usage:
        return Usage(self.pid)

    def cpu_seconds(self) -> float:
        """The processor time it has used, user and system."""
        return self.usage.cpu_seconds()

    def file_count(self) -> int:
        """The number of its open files."""
        return psutil.Process(self.pid).num_fds()


@contextmanager
def running(
    *flags: str,
    module: str = "pushup",
    program: str = "",
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    core: int | None = SERVER_CORE,
    folder: Path | None = None,
) -> Iterator[Server]:
    """Run `python -m MODULE serve FLAGS`; enters once it listens, and kills it at the end. Port 0 picks a free port.

    `program`: a path to run instead of Python and the module. `core`: the processor that it and all its processes have;
    None: all of them. `folder`: of another checkout.
    """
    listen = f"127.0.0.1:{port}"
    start = [program] if program else [sys.executable, "-m", module]
    command = [*start, "serve", "--listen", listen, "--log-level", "error", *flags]
    variables = {**os.environ, **(environment or {})}
    if folder is not None:
        variables["PYTHONPATH"] = str(folder)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=variables, cwd=folder)  # noqa: S603
    try:
        pin(process.pid, core)
        host, port = _address(process)
        yield Server(process.pid, host, port)
    finally:
        process.kill()  # a graceful stop would take seconds, and nothing needs it
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def pin(pid: int, core: int | None) -> None:
    """Pin a process (0: this one) to one processor, if there are several and the system supports it; None: to all."""
    if hasattr(os, "sched_setaffinity") and (count := os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, range(count) if core is None else {core})


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as they are allowed to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    """A free port, for a server that is restarted on the same port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _address(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    """Read the server's address from its output. Raises: RuntimeError if it does not start."""
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + START_SECONDS
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    while not (found := re.search(rb"listens on http://([0-9.]+):([0-9]+)\n", said)):
        ready = poll.poll(max(0.0, 1000 * (deadline - time.monotonic())))
        data = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not data:
            raise RuntimeError(f"the server did not start within {START_SECONDS:g} s, or ended at once")
        said += data
    return found[1].decode(), int(found[2])
