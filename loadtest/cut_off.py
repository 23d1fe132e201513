"""Nodes in network namespaces, each with its own link to Redis that can be taken down (needs Linux, root, iproute2).

A link that is down drops packets silently, like a failed switch. The node's other link, to its clients, stays up.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from deploy.cluster import free_ports, installed
from loadtest.results import Progress
from loadtest.witnesses import Found, Longest, Witnesses
from pushup.client import Client, ClientError

NODES = 8
CUT_AT_A_TIME = 5
"""Nodes cut off together, to save time: each cut takes half a minute."""

NODE_PORT = 8080
SETTLE_SECONDS = 12.0
"""How long nodes may take to be ready again after they lost Redis: they must notice the loss, then reconnect."""


def is_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


def measure(cuts: int, seconds: float, settings: Mapping[str, object], progress: Progress) -> tuple[Found, Longest]:
    """Cut nodes off from Redis under load, `cuts` times in total, for `seconds` each."""
    rng = random.Random(7)  # noqa: S311  # the same cuts each time
    key = secrets.token_urlsafe(24)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        links = [stack.enter_context(_link(number)) for number in range(NODES)]
        (port,) = free_ports(1)
        stack.enter_context(_redis(port, [link.redis_host for link in links], folder))
        for link in links:
            stack.enter_context(_node(link, port, key, settings))
        urls = [f"http://{link.node}:{NODE_PORT}" for link in links]
        _wait_until_ready(urls)
        witnesses = Witnesses(urls, key=key, pause=0.02)
        witnesses.begin()
        left = cuts
        while left > 0:
            cut = rng.sample(links, min(CUT_AT_A_TIME, left))
            left -= len(cut)
            for link in cut:
                progress.step(f"node cut off, {link.node}")
                link.take_down()
            time.sleep(seconds)
            for link in cut:
                link.bring_up()
            _wait_until_ready(urls)
        time.sleep(2.0)
        witnesses.end()
        return witnesses.compare(), witnesses.longest()


class _Link:
    """A node's network namespace, and its two links to the host."""

    def __init__(self, number: int) -> None:
        own = os.getpid() % 100  # a concurrent run needs different names and addresses
        self.namespace = f"pushup-{own}-{number}"
        self.to_redis = f"pushup{own}r{number}"
        self.to_clients = f"pushup{own}c{number}"
        self.redis_host, self.redis_end = f"10.{100 + own}.{number}.1", f"10.{100 + own}.{number}.2"
        self.client_host, self.node = f"10.{100 + own}.{100 + number}.1", f"10.{100 + own}.{100 + number}.2"

    def take_down(self) -> None:
        _ip("link", "set", self.to_redis, "down")

    def bring_up(self) -> None:
        _ip("link", "set", self.to_redis, "up")


def _ip(*words: str) -> None:
    subprocess.run([_ip_program(), *words], check=True, capture_output=True)  # noqa: S603


def _ip_program() -> str:
    found = shutil.which("ip")
    assert found is not None
    return found


@contextmanager
def _link(number: int) -> Iterator[_Link]:
    link = _Link(number)
    _ip("netns", "add", link.namespace)
    try:
        for outside, inside, host, end in (
            (link.to_redis, "redis", link.redis_host, link.redis_end),
            (link.to_clients, "clients", link.client_host, link.node),
        ):
            _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", link.namespace)
            _ip("address", "add", f"{host}/30", "dev", outside)
            _ip("link", "set", outside, "up")
            _ip("-n", link.namespace, "address", "add", f"{end}/30", "dev", inside)
            _ip("-n", link.namespace, "link", "set", inside, "up")
        _ip("-n", link.namespace, "link", "set", "lo", "up")
        yield link
    finally:
        _ip("netns", "delete", link.namespace)  # also deletes both ends of its links


@contextmanager
def _redis(port: int, hosts: list[str], folder: str) -> Iterator[None]:
    command = [installed("redis-server"), "--port", str(port), "--bind", "127.0.0.1", *hosts, "--dir", folder]
    command += ["--protected-mode", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    with _process(command):
        yield


@contextmanager
def _node(link: _Link, port: int, key: str, settings: Mapping[str, object]) -> Iterator[None]:
    command = [_ip_program(), "netns", "exec", link.namespace, sys.executable, "-m", "pushup", "serve"]
    command += ["--listen", f"{link.node}:{NODE_PORT}", "--broadcast", f"redis://{link.redis_host}:{port}"]
    command += ["--log-level", "error"]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with _process(command, {"PUSHUP_PUBLISH_KEYS": key}):
        yield


@contextmanager
def _process(command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a process, and kill it at the end."""
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(urls: list[str]) -> None:
    """Raises: RuntimeError when a node takes longer than `SETTLE_SECONDS`."""
    deadline = time.monotonic() + SETTLE_SECONDS
    for url in urls:
        while True:
            try:
                with closing(Client(url)) as client:
                    client.call("GET", "/readyz")
                break
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{url} is not ready: {error}") from None
                time.sleep(0.1)
