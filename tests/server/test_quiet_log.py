"""What is not logged: single requests, and Twisted's internals."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.blocking_backend import Verdict, WebBackend
from tests.server.caller import poll_path
from tests.server.conftest import Serve
from tests.server.redis_cluster import RedisCluster
from tests.server.redis_server import RedisServer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("keep_alive", [True, False])
def test_questions_are_not_logged(serve: Serve, backend: WebBackend, host: str, keep_alive: bool) -> None:
    """20 questions to the application are not logged, whether its URL has a name or an address, and whether the
    connection to it is reused or not."""
    backend.answer = lambda question: Verdict(headers=() if keep_alive else (("Connection", "close"),))
    with serve(authorize_url=backend.url.replace("127.0.0.1", host)) as server, server.caller() as caller:
        before = len(server.log_lines())
        for number in range(20):
            assert caller.call("GET", poll_path(f"c{number}", timeout=0)).status == 200
        assert backend.count == 20
        assert server.log_lines()[before:] == []


def test_connections_to_redis_are_not_logged(tmp_path: Path, stack: ExitStack) -> None:
    """A node logs what happens to the order of messages, not how it connects to Redis."""
    redis = stack.enter_context(RedisServer(tmp_path / "redis"))
    cluster = RedisCluster(redis, tmp_path, stack)
    cluster.start(redis.url.replace("127.0.0.1", "localhost"))
    lines = cluster.nodes[0].log_lines()
    (followed,) = [line for line in lines if "following the log in Redis" in line]
    assert followed.endswith(f"; the master is localhost:{redis.port} (127.0.0.1)")
    assert [line for line in lines if "actory" in line or "twisted" in line.lower()] == []
