"""A whole cluster as processes on this machine: Redis, PushUp nodes behind HAProxy, and the example application.

    with Cluster(nodes=4) as cluster:
        requests.get(cluster.urls["plain"] + "/v1/poll?...")
        cluster.kill_part("node2")
        cluster.start_part("node2")

Parts are called `redis`, `node1` ..., `haproxy` (`haproxy2` ...) and `example`. They listen only on loopback, and write
only to one folder.
"""

from __future__ import annotations

import contextlib
import csv
import http.client
import math
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from deploy.front import HERE, front_configuration
from deploy.part import Part, PartFailed

OWN_REDIS = "redis"
"""The `broadcast` for which the cluster starts its own Redis."""

HOST = "127.0.0.1"
RELOAD_SECONDS = 10.0
REPEAT_SECONDS = 2.0
"""How long a reload of HAProxy may take; and to begin, before it is asked for again."""

PACKAGES = {"redis-server": "redis-server", "haproxy": "haproxy", "openssl": "openssl"}
"""The programs that must be installed, and the Debian package of each."""

_OFFSETS = {"plain": 0, "tls": 443, "inside": 100, "stats": 404, "tcp": 200, "application": 500, "redis": 379}
_FIRST_NODE_OFFSET = 81
"""Offsets of the ports from the first one."""

_FREE_PORTS = range(*map(int, os.environ.get("FREE_PORTS", "20000-32000").split("-")))
"""Below the kernel's ephemeral ports, so that no outgoing connection occupies a part's port while it restarts.

Processes that start clusters at the same time should each have ports of their own: FREE_PORTS=FIRST-END.
"""


class ClusterError(Exception):
    """The cluster cannot be set up as requested; the text says what to do."""


class Cluster:
    """A cluster that runs within a `with` block, or from `start` to `stop`.

    nodes: number of PushUp nodes
    broadcast: "redis" starts a Redis; redis://... uses a running one; `memory:` is for a single node
    front: "http" uses haproxy.cfg, "tcp" uses haproxy-tcp.cfg
    haproxies: with "tcp", HAProxy processes, each with a port of its own (`tcp`, `tcp2` ...): one can have only half as
        many connections as it may open files
    first_port: the other ports follow from it; 0 picks free ports
    settings: of the nodes, as in `--set name=value`
    config: a file with more of them, such as the policies of channels
    without: parts not to start, such as "example"
    folder: for logs and data, and kept; by default a temporary one, which `stop` deletes
    interrupted: called repeatedly during `start`, which stops all parts once it returns true
    """

    def __init__(
        self,
        *,
        nodes: int = 4,
        broadcast: str = OWN_REDIS,
        front: Literal["http", "tcp"] = "http",
        haproxies: int = 1,
        first_port: int = 0,
        settings: Mapping[str, object] | None = None,
        config: Path | None = None,
        without: Iterable[str] = (),
        folder: Path | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        if nodes < 1:
            raise ClusterError("a cluster needs at least one node")
        if nodes > 1 and broadcast.partition(":")[0] not in ("redis", "rediss"):
            raise ClusterError(f"{nodes} nodes need a shared broadcast, such as redis; {broadcast!r} is for one node")
        if haproxies > 1 and front != "tcp":
            raise ClusterError(f"{haproxies} HAProxies need front='tcp'")
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        further = range(2, haproxies + 1)
        self.fronts = {"haproxy": "inside" if front == "http" else "tcp"}
        self.fronts |= {f"haproxy{number}": f"tcp{number}" for number in further}
        self.publish_key = secrets.token_urlsafe(24)
        self.folder = Path()
        self.parts: dict[str, Part] = {}
        self._broadcast = broadcast
        self._front = front
        self._settings = dict(settings or {})
        self._config = ["--config", str(config)] if config else []
        self._without = frozenset(without)
        self._kept_folder = folder
        self._interrupted = interrupted
        offsets = _OFFSETS | {f"tcp{number}": _OFFSETS["tcp"] + number - 1 for number in further}
        offsets |= {name: _FIRST_NODE_OFFSET + number for number, name in enumerate(self.nodes)}
        self.ports = _ports(offsets, first_port)
        self.redis_url = broadcast if broadcast != OWN_REDIS else f"redis://{HOST}:{self.ports['redis']}/0"

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of `plain`, `tls`, `inside`, `stats`, `application`, and of each node by its name."""
        plain = ["inside", "stats", "application", *self.nodes]
        if self._front == "tcp":
            tcp = f"http://{self.address('tcp')}"
            return {"plain": tcp, "inside": tcp} | {name: f"http://{self.address(name)}" for name in plain[2:]}
        return {
            "plain": f"http://{self.address('plain')}",
            "tls": f"https://localhost:{self.ports['tls']}",
            **{name: f"http://{self.address(name)}" for name in plain},
        }

    @property
    def pids(self) -> dict[str, int | None]:
        """The process ids of all parts; None for parts that are not running."""
        return {name: part.pid for name, part in self.parts.items()}

    @property
    def admin_socket(self) -> Path:
        """The first HAProxy's socket for administrative commands."""
        return self.folder / "haproxy.sock"

    def address(self, name: str) -> str:
        """A part's address, as HOST:PORT."""
        return f"{HOST}:{self.ports[name]}"

    # --- the whole cluster ---

    def start(self) -> None:
        """Start all parts and wait until each is ready.

        Raises: ClusterError; PartFailed; Interrupted. In each case, all parts are stopped first.
        """
        try:
            self._prepare()
            for together in self._in_order():
                self.parts |= {part.name: part for part in together}
                for part in together:
                    part.begin()
                for part in together:
                    part.wait_until_ready(self._interrupted)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all parts, the last started first, and delete the temporary folder."""
        try:
            for name in reversed(self.parts):
                if name == self.nodes[-1]:  # stop the nodes concurrently, since each drains its clients for some time
                    for node in self.nodes:
                        self.parts[node].ask_to_stop()
                self.parts[name].stop()
            self.parts.clear()
        finally:
            if self._kept_folder is None and self.folder != Path():
                shutil.rmtree(self.folder)
                self.folder = Path()

    def failed(self) -> str | None:
        """If a part has ended by itself: its name, how it ended, and the end of its log."""
        return next((part.obituary() for part in self.parts.values() if not part.runs), None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # --- one part ---

    def kill_part(self, name: str) -> None:
        """Kill a part immediately, like a power cut."""
        self.parts[name].kill()

    def stop_part(self, name: str) -> None:
        """Stop a part gracefully: a node drains its clients first."""
        self.parts[name].stop()

    def start_part(self, name: str) -> None:
        """Start a killed or stopped part again, at the same address, with the data it has on disk."""
        self.parts[name].start()

    def freeze_part(self, name: str) -> None:
        """Suspend a part: its connections stay open, but it does not respond."""
        self.parts[name].signal(signal.SIGSTOP)

    def thaw_part(self, name: str) -> None:
        """Resume a frozen part."""
        self.parts[name].signal(signal.SIGCONT)

    def reload_haproxy(self, *, nodes: int | None = None, plain: str | None = None) -> None:
        """Make HAProxy reload its configuration without closing connections; from then on, new ones use it.

        nodes: send requests only to this many nodes, the first ones
        plain: addresses of the plain front, separated by commas
        Raises: subprocess.CalledProcessError if the configuration is invalid; PartFailed.
        """
        configuration = self._write_front(nodes or len(self.nodes), plain)
        part = self.parts["haproxy"]
        subprocess.run(
            [*part.command[:1], "-c", "-f", configuration],
            env=self._environment("haproxy"),
            check=True,
            capture_output=True,
        )
        # The old process and the new one have the same listening sockets until the old one says that it has stopped.
        stopped = f"Proxy {'stats' if self._front == 'http' else 'pushup'} stopped"
        said = ("Reloading HAProxy", "Loading success", stopped)
        before = [part.log.read_text().count(text) for text in said]
        deadline = time.monotonic() + RELOAD_SECONDS
        repeat_at = -math.inf
        while not all(done := [part.log.read_text().count(text) > n for text, n in zip(said, before, strict=True)]):
            now = time.monotonic()
            if now > deadline:
                raise PartFailed(f"haproxy has not reloaded after {RELOAD_SECONDS:.0f} s")
            if not done[0] and now >= repeat_at:  # HAProxy misses a signal that comes right after it has started
                part.signal(signal.SIGUSR2)
                repeat_at = now + REPEAT_SECONDS
            time.sleep(0.02)

    def server_states(self) -> dict[str, str]:
        """HAProxy's status of each server, such as `polls/node1`: "UP", "DOWN", or a transition like "DOWN 1/2"."""
        rows = csv.DictReader(_get(self.ports["stats"], "/;csv")[1].removeprefix("# ").splitlines())
        return {f"{row['pxname']}/{row['svname']}": row["status"] for row in rows}

    # --- internals ---

    def _prepare(self) -> None:
        missing = [program for program in PACKAGES if _needs(program, self) and _find(program) is None]
        if missing:
            packages = " ".join(PACKAGES[program] for program in missing)
            raise ClusterError(f"not installed: {', '.join(missing)}. On Debian: apt-get install {packages}")
        if "example" not in self._without and not (find_spec("flask") and find_spec("gunicorn")):
            raise ClusterError("not installed: flask, gunicorn. Run: pip install '.[example]'")
        self.folder = self._kept_folder or Path(tempfile.mkdtemp(prefix="pushup-cluster-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        if "haproxy" not in self._without and self._front == "http":
            subprocess.run(["sh", HERE / "certificate.sh", self.folder / "localhost.pem"], check=True)

    def _in_order(self) -> list[list[Part]]:
        """The parts in groups; each group starts concurrently, after the one before it is ready."""
        redis = [self._redis()] if self._broadcast == OWN_REDIS else []
        nodes = [self._node(name) for name in self.nodes]
        example = [] if "example" in self._without else [self._example()]
        haproxies = [] if "haproxy" in self._without else [self._haproxy(name) for name in self.fronts]
        return [redis, nodes, example, haproxies]  # HAProxy last: it retries unreachable servers only after a delay

    def _redis(self) -> Part:
        data = self.folder / "redis"
        data.mkdir(exist_ok=True)
        command = [
            installed("redis-server"), "--bind", HOST, "--port", str(self.ports["redis"]), "--dir", str(data),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction",
        ]  # fmt: skip
        return self._part("redis", command, lambda: _redis_answers(self.ports["redis"]))

    def _node(self, name: str) -> Part:
        is_own = self._broadcast == OWN_REDIS
        broadcast = self.redis_url if is_own else self._broadcast
        wanted = {"redis_durable": "true", **self._settings} if is_own else self._settings  # see `_redis`
        settings = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
        command = [
            sys.executable, "-m", "pushup", "serve", "--listen", self.address(name), "--broadcast", broadcast,
            *self._config, *settings,
        ]  # fmt: skip
        return self._part(name, command, lambda: _get(self.ports[name], "/readyz")[0] == 200)

    def _haproxy(self, name: str) -> Part:
        """Counts as ready once it reaches a node."""
        configuration = self._write_front(len(self.nodes))
        port = self.ports[self.fronts[name]]
        command = [installed("haproxy"), "-W", "-f", str(configuration)]
        return self._part(name, command, lambda: _get(port, "/v1/cursor")[0] == 200)

    def _example(self) -> Part:
        command = [
            sys.executable, "-m", "gunicorn", "--bind", self.address("application"), "--workers", "2",
            "--graceful-timeout", "3", "deploy.example.app:from_environment()",
        ]  # fmt: skip
        return self._part("example", command, lambda: _get(self.ports["application"], "/")[0] == 200)

    def _write_front(self, nodes: int, plain: str | None = None) -> Path:
        text = front_configuration("haproxy.cfg" if self._front == "http" else "haproxy-tcp.cfg", nodes)
        file = self.folder / "haproxy.cfg"
        file.write_text(text if plain is None else text.replace('"${FRONT_PLAIN}"', plain))
        return file

    def _part(self, name: str, command: list[str], is_ready: Callable[[], bool]) -> Part:
        return Part(name, command, environment=self._environment(name), folder=self.folder, is_ready=is_ready)

    def _environment(self, part: str) -> dict[str, str]:
        """Of the part with this name."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PUSHUP_")}
        return inherited | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])),
            "PUSHUP_PUBLISH_KEYS": self.publish_key,
            "PUSHUP_TICKET_KEY": self.publish_key,
            "PUSHUP_TRUSTED_PROXIES": "127.0.0.1" if self._front == "http" else "",
            "PUSHUP_URL": f"http://{self.address('inside' if self._front == 'http' else 'tcp')}",
            "PUSHUP_KEY": self.publish_key,
            "DATABASE": str(self.folder / "questions.db"),
            "FRONT_PLAIN": self.address("plain"),
            "FRONT_TLS": self.address("tls"),
            "FRONT_PUBLIC": f"https://localhost:{self.ports['tls']}",
            "FRONT_CERTIFICATE": str(self.folder / "localhost.pem"),
            "FRONT_HSTS": "max-age=0",  # a developer's other services on localhost may not use TLS
            "FRONT_INSIDE": self.address("inside"),
            "FRONT_STATS": self.address("stats"),
            "FRONT_TCP": self.address(self.fronts.get(part, "tcp")),
            "FRONT_ADMIN": str(self.folder / f"{part}.sock"),
            **({} if can_drop_privileges() else {"FRONT_UNPRIVILEGED": "1"}),
            "APPLICATION": self.address("application"),
            **{name.upper(): self.address(name) for name in self.nodes},
        }


def _needs(program: str, cluster: Cluster) -> bool:
    if program == "redis-server":
        return cluster.redis_url != cluster._broadcast
    return "haproxy" not in cluster._without


def _find(program: str) -> str | None:
    """The path of a program; also looks in the sbin folders, which are not on every user's PATH."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def installed(program: str) -> str:
    """The path of a program. Raises: ClusterError if it is not installed."""
    found = _find(program)
    if found is None:
        raise ClusterError(f"not installed: {program}. On Debian: apt-get install {PACKAGES[program]}")
    return found


def can_drop_privileges() -> bool:
    """Whether HAProxy can switch to the user named in its configuration: needs root and Debian's package."""
    with contextlib.suppress(KeyError):
        return os.geteuid() == 0 and pwd.getpwnam("haproxy").pw_uid != 0 and Path("/var/lib/haproxy").is_dir()
    return False


def free_ports(count: int) -> list[int]:
    """Random ports that are not in use."""
    free = (port for port in random.sample(_FREE_PORTS, len(_FREE_PORTS)) if _is_free(port))
    return list(islice(free, count))


def _ports(offsets: Mapping[str, int], first: int) -> dict[str, int]:
    """A port for each name. Raises: ClusterError if one is in use."""
    if first == 0:
        return dict(zip(offsets, free_ports(len(offsets)), strict=True))
    ports = {name: first + offset for name, offset in offsets.items()}
    for name, port in ports.items():
        if not _is_free(port):
            raise ClusterError(f"port {port}, for {name}, is in use; choose another first port, or 0 for free ports")
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            sock.bind((HOST, port))
            return True
    return False


def _get(port: int, path: str) -> tuple[int, str]:
    """Returns the status and the body. Raises: OSError."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()


def _redis_answers(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=2) as sock:
        sock.sendall(b"PING\r\n")
        return sock.recv(64).startswith(b"+PONG")
