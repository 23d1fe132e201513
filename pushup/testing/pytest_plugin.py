"""The fixtures for pytest. Everything else is imported by the first test that uses one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pushup.testing.recorder import Recorder
    from pushup.testing.server_process import ServerProcess


@pytest.fixture(scope="session")
def pushup_settings() -> dict[str, object]:
    """The server's settings, by their names. Define a fixture of this name to have others."""
    return {}


@pytest.fixture(scope="session")
def _pushup_server(pushup_settings: dict[str, object]) -> Iterator[ServerProcess]:
    from pushup.testing.server_process import running
    from pushup.testing.versions import check_versions

    check_versions()
    with running(pushup_settings) as server:
        yield server


@pytest.fixture(scope="session")
def pushup_url(_pushup_server: ServerProcess) -> str:
    """Where the server is: one for each run, or for each worker of pytest-xdist."""
    return _pushup_server.url


@pytest.fixture
def pushup(_pushup_server: ServerProcess, pushup_settings: dict[str, object]) -> Iterator[Recorder]:
    """What this test publishes. The server is started anew before it, so nothing of other tests is there."""
    from pushup.client import Client
    from pushup.frameworks.publisher import flush_all
    from pushup.testing.recorder import FLUSH_SECONDS, Recorder

    flush_all(FLUSH_SECONDS)  # what the test before publishes in the background
    _pushup_server.restart(pushup_settings)  # those of this module
    with Client(_pushup_server.url) as client:
        yield Recorder(client, _pushup_server.url)
