"""Fixtures: real servers, once with each wait strategy, that must log nothing above info."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from tests.server.caller import Caller
from tests.server.server_process import Server, running


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


@pytest.fixture(scope="session", params=["epoll", "reactor"])
def wait_strategy(request: pytest.FixtureRequest) -> str:
    """Every wait strategy must pass the same tests."""
    strategy: str = request.param
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
        with running(log, (*flags, *_set(settings)), environment, files) as server:
            started.append(server)
            yield server

    yield start
    _assert_quiet(started)


@pytest.fixture(scope="module")
def _shared_server(wait_strategy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    with running(log, _set({"wait_strategy": wait_strategy})) as server:
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
def channel(request: pytest.FixtureRequest) -> str:
    """The name of a channel that only this test uses."""
    name: str = request.node.name
    return name.replace(",", "")


def _set(settings: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))


def _assert_quiet(servers: list[Server]) -> None:
    trouble = [line for server in servers for line in server.trouble()]
    assert not trouble, "the server logged:\n" + "\n".join(trouble)
