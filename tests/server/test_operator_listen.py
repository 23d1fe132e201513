"""`operator_listen`: addresses of operators, on which metrics, health and their calls are always answered."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.caller import Caller
from tests.server.conftest import Serve
from tests.server.raw_client import get
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

KEY = "a-publish-key-of-27-letters"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}

OPERATORS_ALONE = [("/metrics", 404, 200)]
EVERYBODY_ALONE = [("/v1/poll?channel=a&timeout=0", 200, 401), ("/v1/cursor", 200, 404)]
BOTH = [("/healthz", 200, 200), ("/readyz", 200, 200), ("/v1/nodes", 401, 401), ("/dashboard", 200, 200)]


@pytest.mark.parametrize("workers", [1, 2])
def test_who_is_answered_where(serve: Serve, tmp_path: Path, workers: int) -> None:
    """Metrics only on the operators' addresses, where polls need a right; at log level debug each request is logged."""
    theirs = [f"127.0.0.1:{free_port()}", f"unix:{tmp_path}/operators.sock"]
    with serve(
        workers=workers,
        operator_listen=",".join(theirs),
        log_level="debug",
        environment={"PUSHUP_PUBLISH_KEYS": KEY},
    ) as server:
        for address in theirs:
            with Caller(server.address) as client, Caller(address) as operator:
                for path, everybody, operators in (*OPERATORS_ALONE, *EVERYBODY_ALONE, *BOTH):
                    assert client.call("GET", path).status == everybody, path
                    assert operator.call("GET", path).status == operators, path
                assert "operator_listen" in client.call("GET", "/metrics").value["detail"]
                assert operator.call("GET", "/v1/nodes", headers=AUTHORIZED).status == 200
                assert operator.call("DELETE", "/v1/messages?owner=a", headers=AUTHORIZED).status == 405
                assert "pushup_held_polls" in operator.call("GET", "/metrics").text
        assert not {*theirs} & {*server.addresses}
        assert any("GET /metrics 200" in line for line in server.log_lines())
        server.end()
        assert not (tmp_path / "operators.sock").exists()


def test_operators_are_answered_when_clients_have_all_connections(serve: Serve, stack: ExitStack) -> None:
    """At `connections_limit`, and while others occupy the reserve; also while the server drains."""
    theirs = f"127.0.0.1:{free_port()}"
    with serve(connections_limit=2, operator_listen=theirs, drain_seconds=1) as server:
        server.expect_log("connections_limit")
        clients = [stack.enter_context(server.connect()) for _ in range(60)]
        for client in clients[:2]:
            client.send(get("/v1/poll?channel=a&timeout=60"))
        with Caller(theirs) as operator:
            wait_until(lambda: "pushup_held_polls 2" in operator.call("GET", "/metrics").text, "the polls")
            server.signal(signal.SIGTERM)
            wait_until(lambda: operator.call("GET", "/readyz").status == 503, "the drain")
            assert "pushup_ready 0" in operator.call("GET", "/metrics").text


def test_an_address_that_is_taken(serve: Serve) -> None:
    """The server does not start, and says which address it cannot have."""
    with serve() as other, pytest.raises(AssertionError) as refused, serve(operator_listen=other.address):
        pass
    assert f"cannot listen on {other.address}" in str(refused.value)
