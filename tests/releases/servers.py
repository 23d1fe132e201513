"""A cluster with Redis, and a machine with a journal: their servers are replaced by those of another release."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.releases.clients import LIMITS, PATIENCE_SECONDS, Load, loaded
from tests.releases.landmarks import Landmarks
from tests.releases.release import Release
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, clean_environment, running, wait_until

DRAIN_SECONDS = 0.2


class Servers:
    """The servers that run, and their clients."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.running: list[Server] = []

    def begin(self) -> None:
        """Have the clients begin, when the first servers run."""
        self.landmarks = Landmarks(self.running[0].address)
        self.load.begin()

    def check(self, server: Server) -> None:
        """It has everything, and serves clients."""
        self.landmarks.check(server.address)
        self.load.check_everything_at(server.address)
        self.load.go_on()

    def _uses(self, server: Server) -> None:
        self.running.append(server)
        self._tell_clients()

    def _leaves(self, server: Server) -> None:
        self.running.remove(server)
        self._tell_clients()

    def _tell_clients(self) -> None:
        self.load.addresses = tuple(server.address for server in self.running)


class Cluster(Servers):
    """Nodes with one Redis. The nodes that are at one place, one after another, have its name and state directory."""

    def __init__(self, redis: RedisServer, directory: Path, load: Load, stack: ExitStack) -> None:
        super().__init__(load)
        self.redis = redis
        self._directory = directory
        self._cluster = RedisCluster(redis, directory, stack)
        self._places: list[Server] = []

    def start(self, release: Release, place: int) -> Server:
        """Start a node, and wait until it is ready."""
        server = self._start(release, node_name=f"place{place}", state_directory=self._directory / f"place{place}")
        self._places[place : place + 1] = [server]
        try:
            wait_until(lambda: self._readiness(server)[0] == 200, "the node to be ready", PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; {release.name} says: {self._readiness(server)[1]}") from None
        self._uses(server)
        return server

    def _start(self, release: Release, **settings: Any) -> Server:
        settings |= {"drain_seconds": DRAIN_SECONDS, **LIMITS}
        return self._cluster.start(environment=release.environment, ready=False, **settings)

    def stop(self, server: Server) -> None:
        """Stop a node in good order; clients use the others from now on."""
        if server in self.running:
            self._leaves(server)
        self._cluster.stop(self._cluster.nodes.index(server), PATIENCE_SECONDS)

    def stop_all(self) -> None:
        for server in self.running.copy():
            self.stop(server)

    def replace(self, place: int, release: Release) -> None:
        """Replace a node by one of a release, and check that one."""
        self.stop(self._places[place])
        self.check(self.start(release, place))

    def start_refused(self, release: Release, reason: list[str]) -> Server:
        """Start a node that cannot follow, and wait until it says why."""
        server = self._start(release, node_name="refused")
        for part in reason:
            wait_until(lambda p=part: p in self._readiness(server)[1], part, PATIENCE_SECONDS)  # type: ignore[misc]
            assert any(part in line for line in server.log_lines())
        server.expect_log(reason[0])
        return server

    def check_that_it_is_not_ready(self, server: Server) -> None:
        """It takes no client."""
        assert self._readiness(server)[0] == 503
        with server.caller() as caller:
            assert caller.call("POST", "/v1/messages", {"channels": ["refused"], "data": 1}).status == 503

    @staticmethod
    def _readiness(server: Server) -> tuple[int, str]:
        with server.caller() as caller:
            reply = caller.call("GET", "/readyz")
        return reply.status, reply.text

    def keys(self) -> set[bytes]:
        return set(self.redis.ask("KEYS", "*"))

    def contents(self) -> dict[bytes, bytes]:
        """All keys of Redis, with what they contain."""
        return {key: self.redis.ask("DUMP", key) for key in self.keys()}

    def wait_for_attempts(self, count: int) -> None:
        """Wait until nodes have connected to Redis so many times."""
        with self.redis.client() as client:

            def connections() -> int:
                found = re.search(rb"total_connections_received:(\d+)", client.ask("INFO", "stats"))
                assert found is not None
                return int(found[1])

            goal = connections() + count
            wait_until(lambda: connections() >= goal, "another attempt", PATIENCE_SECONDS)

    def version(self, release: Release) -> int:
        """The version of the state machine in Redis."""
        return int(self.redis.ask("HGET", f"{{pushup}}:{release.format}:state", "version"))

    def trouble(self) -> list[str]:
        return self._cluster.trouble()


@contextmanager
def cluster_of(release: Release, nodes: int, directory: Path) -> Iterator[Cluster]:
    """A cluster of so many nodes of this release, in use."""
    with RedisServer(directory / "redis") as redis, ExitStack() as stack:
        with loaded(directory) as load:
            cluster = Cluster(redis, directory, load, stack)
            for place in range(nodes):
                cluster.start(release, place)
            cluster.begin()
            yield cluster
        cluster.stop_all()
        assert not (trouble := cluster.trouble()), trouble


class Machine(Servers):
    """A machine with a journal, and one server at a time."""

    def __init__(self, directory: Path, workers: int, load: Load, stack: ExitStack) -> None:
        super().__init__(load)
        self._data = directory / "data"
        self._data.mkdir()
        self._directory = directory
        self._stack = stack
        self._started: list[Server] = []
        settings = {"drain_seconds": DRAIN_SECONDS, **LIMITS}
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self._flags = ("--broadcast", f"journal:{self._data / 'journal'}", "--workers", str(workers), *flags)

    def start(self, release: Release) -> Server:
        log = self._directory / f"server{len(self._started)}.log"
        server = self._stack.enter_context(running(log, self._flags, release.environment))
        self._started.append(server)
        self._uses(server)
        return server

    def stop(self) -> None:
        """Stop the server in good order."""
        (server,) = self.running
        self._leaves(server)
        server.signal(signal.SIGTERM)
        assert server.wait(PATIENCE_SECONDS) == 0

    def replace(self, release: Release) -> None:
        """Replace the server by one of a release, and check that one."""
        self.stop()
        self.check(self.start(release))

    def error_of(self, release: Release) -> str:
        """What a server of this release says that cannot start; it must exit with 1."""
        command = [sys.executable, "-m", "pushup", "serve", "--listen", "127.0.0.1:0", *self._flags]
        try:
            done = subprocess.run(
                command, cwd=self._directory, env=clean_environment(release.environment), capture_output=True,
                text=True, timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{release.name} serves: {error.stdout!r}") from None
        assert done.returncode == 1, done
        assert "Traceback" not in done.stderr
        return done.stderr

    def contents(self) -> dict[str, bytes]:
        """The bytes of all files beside the journal."""
        return {path.name: path.read_bytes() for path in self._data.iterdir()}

    def trouble(self) -> list[str]:
        return [line for server in self._started for line in server.trouble()]


@contextmanager
def machine_of(release: Release, directory: Path, workers: int) -> Iterator[Machine]:
    """A machine with a server of this release, in use."""
    with ExitStack() as stack:
        with loaded(directory) as load:
            machine = Machine(directory, workers, load, stack)
            machine.start(release)
            machine.begin()
            yield machine
        machine.stop()
        assert not (trouble := machine.trouble()), trouble


def check_that_it_is(release: Release, directory: Path) -> None:
    """A process that is started in this directory, with the release's environment, imports that release."""
    program = (
        "import pushup; from pushup.broadcast.formats import FORMAT; "
        "from pushup.core.machine_rules import LATEST_VERSION; "
        "print(pushup.__file__, FORMAT, LATEST_VERSION, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env=clean_environment(release.environment), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    wanted: list[Any] = [release.directory / "pushup" / "__init__.py", release.format, release.version]
    assert done.stdout.strip() == "|".join(map(str, wanted))
