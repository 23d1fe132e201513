"""Fixtures: real servers, if it matters once with each wait strategy, that must log nothing above info."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from tests.server.blocking_backend import WebBackend, web_backend
from tests.server.caller import Caller
from tests.server.redis_server import RedisServer
from tests.server.server_process import Server, running, set_flags

STRATEGIES = ("epoll", "reactor")

ON_EACH_STRATEGY = frozenset({
    "test_authorize_tls", "test_channels", "test_connections", "test_conversation", "test_descriptors",
    "test_documented_examples", "test_fairness", "test_hostile", "test_promises", "test_stopping", "test_supervisor",
})  # fmt: skip
"""Modules whose tests run with each wait strategy. For the others one is enough, since nothing depends on it."""


class Serve(Protocol):
    """Starts a server for a `with` block: `with serve(retention_seconds="1s") as server`."""

    def __call__(
        self, *flags: str, environment: Mapping[str, str] | None = None, files: int | None = None, **settings: object
    ) -> AbstractContextManager[Server]: ...


@pytest.fixture(scope="session", autouse=True)
def file_limit() -> int:
    """Raise this process's file limit, since it holds thousands of clients. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    if name in ON_EACH_STRATEGY and "wait_strategy" in metafunc.fixturenames:
        metafunc.parametrize("wait_strategy", STRATEGIES, indirect=True, scope="session")


@pytest.fixture(scope="session")
def wait_strategy(request: pytest.FixtureRequest) -> str:
    """The one that a test is parametrized with, or the default."""
    strategy: str = getattr(request, "param", STRATEGIES[0])
    return strategy


@pytest.fixture
def serve(wait_strategy: str, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers for one test, which fails if any of them logs anything above info."""
    started: list[Server] = []
    numbers = count()

    @contextmanager
    def start(
        *flags: str, environment: Mapping[str, str] | None = None, files: int | None = None, **settings: object
    ) -> Iterator[Server]:
        settings.setdefault("wait_strategy", wait_strategy)
        log = tmp_path / f"server-{next(numbers)}.log"
        with running(log, (*flags, *set_flags(settings)), environment, files) as server:
            started.append(server)
            yield server

    yield start
    _assert_quiet(started)


@pytest.fixture(scope="module")
def _shared_server(wait_strategy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    with running(log, set_flags({"wait_strategy": wait_strategy})) as server:
        yield server


@pytest.fixture
def server(_shared_server: Server) -> Iterator[Server]:
    """A server with default settings, shared by the tests of a module; each uses its own channels."""
    yield _shared_server
    _assert_quiet([_shared_server])


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    """A client of the shared server."""
    with server.caller() as caller:
        yield caller


@pytest.fixture
def other(server: Server) -> Iterator[Caller]:
    """Another client of the shared server."""
    with server.caller() as caller:
        yield caller


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes everything entered in it, mostly clients, at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for one test, not started yet."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def backend() -> Iterator[WebBackend]:
    """A web application that allows everybody to poll, unless the test says otherwise."""
    with web_backend() as backend:
        yield backend


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """The name of a channel that only this test uses."""
    name: str = request.node.name
    return name.replace(",", "")


def _assert_quiet(servers: list[Server]) -> None:
    trouble = [line for server in servers for line in server.trouble()]
    assert not trouble, "the server logged:\n" + "\n".join(trouble)
