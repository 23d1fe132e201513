"""compose.yaml unchanged and running: clients for its services, their state, and readers that must miss nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.deploy.containers.docker import Docker, DockerError
from tests.server.caller import Caller, Reply, data_of, poll_path

WAIT_SECONDS = 60.0
"""Maximum time to wait for anything here."""

PAUSE_SECONDS = 0.05
"""Delay between publications, so that those of a minute stay below retention_messages."""

NODES = ["node1", "node2", "node3", "node4"]


class ComposeCluster:
    """The services of a compose file; `key` is the publish key."""

    def __init__(self, docker: Docker, file: Path, *, key: str, environment: Mapping[str, str]) -> None:
        self._docker = docker
        self._file = file
        self._key = key
        self._environment = dict(environment)
        self._trusted: ssl.SSLContext | None = None

    def compose(self, *command: str) -> str:
        """Run `docker compose ...`; returns its output."""
        return self._docker.compose([self._file], *command, environment=self._environment)

    def up(self) -> None:
        """Start all services and wait until they are healthy; the images must have been built.

        Raises: DockerError, with the output of the containers and their health checks.
        """
        try:
            self.compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", "120")
        except DockerError as error:
            checks = {
                name: state["State"].get("Health", {}).get("Log", [])[-1:] for name, state in self.states().items()
            }
            raise DockerError(
                f"{error}\n{self.compose('logs', '--tail', '15')}\n{json.dumps(checks, indent=1)}"
            ) from None

    # --- the services' state ---

    def states(self) -> dict[str, dict[str, Any]]:
        """What Docker reports about each service's container."""
        ids = self._docker.run("ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project").split()
        containers = json.loads(self._docker.run("inspect", *ids)) if ids else []
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in containers}

    def ill(self) -> dict[str, str]:
        """The services that are not running or not healthy; `certificate` must have exited with 0."""
        found = {name: health(state["State"]) for name, state in self.states().items()}
        return {name: how for name, how in found.items() if how != ("exited 0" if name == "certificate" else "healthy")}

    def wait_until_well(self) -> None:
        """Wait until all services are running and healthy."""
        wait_until(lambda: not self.ill(), lambda: f"all services to be healthy: {self.ill()}")

    def kill(self, name: str) -> None:
        """Kill a service's process from outside, and wait until Docker has restarted it and it is healthy."""
        before = self.states()[name]["RestartCount"]
        self._docker.kill_process(self.states()[name]["Id"])
        wait_until(lambda: self.states()[name]["RestartCount"] > before, lambda: f"{name} to be restarted")
        self.wait_until_well()

    def execute(self, name: str, *command: str) -> str:
        """Run a command inside a service's container; returns its output."""
        return self._docker.run("exec", self.states()[name]["Id"], *command)

    # --- clients ---

    @contextlib.contextmanager
    def outside(self) -> Iterator[Caller]:
        """Act as a browser: over TLS, at the port that HAProxy publishes, verifying the certificate."""
        if self._trusted is None:
            pem = self.execute("haproxy", "cat", "/certificate/localhost.pem")
            self._trusted = ssl.create_default_context(cadata=pem[pem.index("-----BEGIN CERTIFICATE") :])
        with Caller(Connection(self._docker, ("127.0.0.1", 8443), self._trusted)) as caller:
            yield caller

    @contextlib.contextmanager
    def at(self, name: str, port: int) -> Iterator[Caller]:
        """Act as another container: over plain HTTP, at a service's own address."""
        with Caller(self.connection(name, port)) as caller:
            yield caller

    def connection(self, name: str, port: int) -> http.client.HTTPConnection:
        """A connection like that of another container."""
        return Connection(self._docker, (self._address(name), port))

    @contextlib.contextmanager
    def published(self, port: int) -> Iterator[Caller]:
        """Act as a program on this machine: over plain HTTP, at a port published on loopback."""
        with Caller(Connection(self._docker, ("127.0.0.1", port))) as caller:
            yield caller

    def publish(self, channel: str, data: object, *, to: str) -> Reply:
        """Publish at a node, using the publish key."""
        with self.at(to, 8080) as caller:
            return publish(caller, self._key, channel, data)

    def publish_while(self, channel: str, happens: Callable[[], None]) -> list[int]:
        """Publish numbers through HAProxy, some before, many during, and some after `happens`; returns them."""
        with self.at("haproxy", 8100) as caller:
            return publish_while(caller, self._key, channel, happens)

    def _address(self, name: str) -> str:
        networks = self.states()[name]["NetworkSettings"]["Networks"]
        address: str = networks["pushup_inside"]["IPAddress"]
        if not address:
            raise ConnectionError(f"{name} has no address")
        return address


class Reader(threading.Thread):
    """A browser's page, or a client of one node: polls repeatedly with its cursor, and retries polls that fail.

    closed: how often its connection was closed without a response
    """

    def __init__(self, called: AbstractContextManager[Caller], channel: str, cursor: str) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.gaps: list[Any] = []
        self.failed: list[str] = []
        self.closed = 0
        self._called = called
        self._channel = channel
        self._cursor = cursor
        self._last: object = None
        self._deadline = time.monotonic() + 3 * WAIT_SECONDS

    def run(self) -> None:
        with self._called as caller:
            while time.monotonic() < self._deadline and (self._last is None or self._last not in self.seen):
                try:
                    reply = caller.call("GET", poll_path(self._channel, cursor=self._cursor, timeout=5))
                except http.client.RemoteDisconnected:
                    self.closed += 1
                    caller.close()
                    continue
                except (OSError, http.client.HTTPException) as error:
                    self._try_again(caller, repr(error))
                    continue
                if reply.status != 200:
                    self._try_again(caller, reply.text)
                    continue
                self.seen += data_of(reply.value)
                self.gaps += reply.value["gaps"]
                self._cursor = reply.value["cursor"]

    def read_until(self, last: object) -> None:
        """Wait until the reader has received this message, or has given up."""
        self._last = last
        self.join()

    def stop(self) -> None:
        """End after the poll that is under way."""
        self._deadline = 0.0
        self.join()

    def _try_again(self, caller: Caller, why: str) -> None:
        self.failed.append(why)
        caller.close()
        time.sleep(0.1)


def publish_while(caller: Caller, key: str, channel: str, happens: Callable[[], object]) -> list[int]:
    """Publish numbers, some before, many during, and some after `happens`; returns them.

    As a careful publisher does: with an Idempotency-Key, retrying until each is acknowledged.
    """
    numbers: list[int] = []

    def publish_next(count: int) -> None:
        for _ in range(count):
            numbers.append(len(numbers))
            wait_until(lambda: publish(caller, key, channel, numbers[-1]).status == 201, lambda: "a publication")

    with ThreadPoolExecutor() as pool:
        publish_next(10)
        happening = pool.submit(happens)
        while not happening.done():
            publish_next(1)
            time.sleep(PAUSE_SECONDS)
        happening.result()
        publish_next(10)
    return numbers


def publish(caller: Caller, key: str, channel: str, data: object) -> Reply:
    """Publish with the key; the same data on the same channel is published once. Raises: OSError, HTTPException."""
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"{channel}-{data}"}
    try:
        return caller.call("POST", "/v1/messages", {"channels": [channel], "data": data}, headers)
    except (OSError, http.client.HTTPException):
        caller.close()
        raise


@contextlib.contextmanager
def reading(call: Callable[[], AbstractContextManager[Caller]], channel: str, cursor: str) -> Iterator[list[Reader]]:
    """Six readers of the channel."""
    readers = [Reader(call(), channel, cursor) for _ in range(6)]
    try:
        for reader in readers:
            reader.start()
        yield readers
    finally:
        for reader in readers:
            reader.stop()


def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until the condition is true; fails after a timeout. A connection error counts as not true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        assert time.monotonic() < deadline, f"timed out waiting for {what()}"
        time.sleep(0.2)


class Connection(http.client.HTTPConnection):
    """A connection into the daemon's network, with TLS if a certificate is given."""

    def __init__(self, docker: Docker, address: tuple[str, int], trusted: ssl.SSLContext | None = None) -> None:
        super().__init__("localhost", timeout=WAIT_SECONDS)
        self._docker = docker
        self._address = address
        self._trusted = trusted

    def connect(self) -> None:
        self.sock = self._docker.connect(self._address, WAIT_SECONDS)
        if self._trusted is not None:
            self.sock = self._trusted.wrap_socket(self.sock, server_hostname="localhost")


def health(state: dict[str, Any]) -> str:
    if state["Status"] != "running":
        return f"{state['Status']} {state['ExitCode']}"
    health: str = state["Health"]["Status"] if "Health" in state else "without a health check"
    return health
