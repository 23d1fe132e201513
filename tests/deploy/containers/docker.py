"""Docker with its own daemon, in namespaces and with all its files in one folder, which is deleted at the end.

The daemon has its own processes, mounts and network. It does not see any other Docker of this machine, and its ports
are not this machine's. When its first process ends, the kernel ends all others, including containers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

HERE = Path(__file__).parent

START_SECONDS = 60.0
"""How long the daemon may take to start; it takes 2 s on an idle machine."""

COMMAND_SECONDS = 700.0
"""How long a command may take; a build that downloads packages takes the longest."""

FILES_LIMIT = 8192
"""Maximum open files of a container: as on a small machine, where nobody may raise the limit."""

INSTALL_SECONDS = 1500
"""How long install.sh may take on a fresh machine, on which other tests run."""

_CLONE_NEWNET = 0x40000000

Network = Literal["own", "host"]


def install() -> Path:
    """Have install.sh get what is missing; returns its folder."""
    done = subprocess.run(
        ["sh", HERE / "install.sh"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


class DockerError(Exception):
    """A command failed, or the daemon did not start; the text includes its output."""


class Docker:
    """A daemon and its commands. `compose` is the program docker-compose; everything else is kept in `folder`."""

    def __init__(self, folder: Path, *, compose: Path) -> None:
        self.folder = folder
        self._compose = compose
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("DOCKER_", "COMPOSE_"))
        }
        self._environment |= {
            "DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_CONFIG": str(folder / "client"),
            "DOCKER_BUILDKIT": "0",
        }  # fmt: skip

    def start(self, network: Network) -> None:
        """Start the daemon, with its own network or this machine's. Raises: DockerError."""
        assert self._process is None
        log = self.folder / "dockerd.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource",
                    "prlimit", f"--nofile={FILES_LIMIT}",
                    "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *_NAMESPACES[network],
                    "sh", HERE / "isolate.sh", self.folder, network,
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(["docker", "version"], env=self._environment, capture_output=True, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = "\n".join(log.read_text().splitlines()[-15:])
                raise DockerError(f"the Docker daemon did not start. Its last output was:\n{last}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the daemon; its images stay in the folder for the next one."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.Error):
            for first in psutil.Process(self._process.pid).children():
                first.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        _remove_groups(self.folder.name)

    def run(self, *command: str | Path) -> str:
        """Run `docker ...`; returns its output. Raises: DockerError."""
        return self._run("docker", *command)

    def compose(self, files: Sequence[Path], *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Run `docker compose -f FILE ...`; returns its output. Raises: DockerError."""
        given = [part for file in files for part in ("--file", file)]
        return self._run(self._compose, *given, "--progress", "plain", *command, environment=environment)

    def shell(self, line: str, folder: Path) -> subprocess.Popen[str]:
        """Start a shell's line in this folder, as a user would type it; `docker` in it is this daemon's."""
        return subprocess.Popen(
            ["sh", "-ec", f"exec {line}"], cwd=folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """Open a connection to an address in the daemon's network."""
        assert self._process is not None
        [first] = psutil.Process(self._process.pid).children()
        result: list[socket.socket | OSError] = []
        thread = threading.Thread(target=_connect, args=(first.pid, address, timeout, result))
        thread.start()
        thread.join()
        [connection] = result
        if isinstance(connection, OSError):
            raise connection
        return connection

    def kill_process(self, container: str) -> None:
        """Kill a container's first process from outside, like the kernel when it runs out of memory.

        `docker kill` counts as the operator's wish, and is no reason to start it again.
        """
        assert self._process is not None
        [first] = psutil.Process(self._process.pid).children()
        process = self.run("inspect", "--format", "{{.State.Pid}}", container).strip()
        command = ["nsenter", "--target", str(first.pid), "--pid", "--mount", "kill", "-KILL", process]
        subprocess.run(command, check=True, timeout=COMMAND_SECONDS)

    def _run(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> str:
        try:
            done = subprocess.run(
                command, env=self._environment | dict(environment or {}), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise DockerError(f"{_shown(command)} took longer than {COMMAND_SECONDS:.0f} s") from error
        if done.returncode:
            raise DockerError(f"{_shown(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout + done.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self.folder)


_NAMESPACES: dict[Network, Sequence[str]] = {"own": ["--net"], "host": []}


def _connect(process: int, address: tuple[str, int], timeout: float, result: list[socket.socket | OSError]) -> None:
    """Connect from the network namespace of a process. Only this thread enters it; the socket stays in it."""
    try:
        with open(f"/proc/{process}/ns/net", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        result.append(socket.create_connection(address, timeout))
    except OSError as error:
        result.append(error)


def _remove_groups(name: str) -> None:
    """Remove the empty control groups that killed containers leave."""
    for top in (*Path("/sys/fs/cgroup").glob(name), *Path("/sys/fs/cgroup").glob(f"*/{name}")):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _shown(command: Sequence[str | Path]) -> str:
    return " ".join(map(str, command))
