"""Fixtures: a cluster of four nodes, with HAProxy, Redis and the example, that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from deploy.cluster import Cluster
from tests.deploy.conversations import all_ready, held, wait_until

SETTINGS = {
    "redis_timeout_seconds": 1,  # how soon nodes notice that Redis is gone
    "drain_seconds": 1,
}


@pytest.fixture(scope="session")
def _shared_cluster() -> Iterator[Cluster]:
    with Cluster(nodes=4, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(_shared_cluster: Cluster) -> Iterator[Cluster]:
    """All parts are running and ready, and no poll is held. A test that stops a part starts it again."""
    yield _shared_cluster
    assert _shared_cluster.failed() is None, "a test left a part that is not running"
    wait_until(lambda: all_ready(_shared_cluster), "all nodes to be ready")
    wait_until(lambda: sum(held(_shared_cluster).values()) == 0, "the polls of this test to end")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes everything entered in it at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """The name of a channel that only this test uses."""
    name: str = request.node.name
    return name
