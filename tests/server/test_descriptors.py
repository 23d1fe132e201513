"""A server whose clients take all the connections there can be: what else it needs, it gets."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.server.conftest import Serve
from tests.server.raw_client import get
from tests.server.redis_server import RedisServer
from tests.server.server_process import wait_until

FILES = 128
"""What the server may open; half of it is kept for other things than clients, where there is so little. A quarter of
that half is for operators."""

CLIENTS = 200


def test_a_node_finds_redis_again_though_clients_want_every_descriptor(
    serve: Serve, stack: ExitStack, tmp_path: Path
) -> None:
    """Redis goes and comes back while more clients want to connect than there can be connections."""
    redis = stack.enter_context(RedisServer(tmp_path / "redis"))
    with serve("--broadcast", redis.url, files=FILES) as server:
        server.expect_log("Redis|message log|publishing|connections_limit")
        wait_until(lambda: server.metric("ready") == 1, "the node to be ready")
        clients = [stack.enter_context(server.connect()) for _ in range(CLIENTS)]
        for client in clients:
            client.send(get("/v1/poll?channel=a&timeout=60"))
        limit = int(FILES / 2)
        redis.kill()
        held = [client for client in clients if client.silent(0.05)]
        assert limit - 5 <= len(held) <= limit
        redis.start()
        held.pop().close()  # a place to ask by
        assert server.metric("connections_limit") == limit
        with server.caller() as caller:
            message = {"channels": ["a"], "data": "all is well"}
            wait_until(
                lambda: caller.call("POST", "/v1/messages", message).status == 201, "the node to find Redis again"
            )
        assert all(client.read_response().status == 200 for client in held)
        assert not [line for line in server.log_lines() if "cannot accept" in line]


def test_the_limit_is_logged_when_it_starts(serve: Serve) -> None:
    """How many connections there can be, and which limit it comes from."""
    with serve(files=1000, connections_limit=5000) as server:
        line = next(line for line in server.log_lines() if "connections_limit" in line)
        found = re.search(
            r"at most (\d+) connections \(connections_limit is 5000; of 1000 file descriptors, (\d+) are reserved", line
        )
        assert found is not None, line
        assert int(found[1]) + int(found[2]) == 1000
    with serve(connections_limit=50) as server:
        assert server.metric("connections_limit") == 50


def test_few_files(serve: Serve) -> None:
    """However few there are, it serves."""
    with serve(files=32) as server, server.caller() as caller:
        caller.publish(["a"], 1)
        assert server.metric("connections_limit") == 16


def test_metrics_need_no_descriptor(serve: Serve) -> None:
    """They tell how many there are when all are in use."""
    with serve() as server, server.caller() as caller:
        caller.call("GET", "/metrics")
        in_use = server.process.num_fds()
        server.process.rlimit(psutil.RLIMIT_NOFILE, (in_use, in_use))
        reply = caller.call("GET", "/metrics")
        assert reply.status == 200, reply.text
        assert f"pushup_descriptors_limit {in_use}" in reply.text
        assert "pushup_process_memory_bytes NaN" in reply.text
