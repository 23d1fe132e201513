"""`pushup drain`: a server out of rotation sends its clients away, and can be taken back."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from tests.server.command_line import error_of, run
from tests.server.conftest import Serve
from tests.server.raw_client import RawClient, get
from tests.server.server_process import Server, wait_until

KEYS = "operator operators-key-of-25-letters operate, chat publishers-key-26-letters publish"
OPERATOR, PUBLISHER = "operators-key-of-25-letters", "publishers-key-26-letters"
POLL = get("/v1/poll?channel=a&cursor=now&timeout=60")


def ready(server: Server) -> set[int]:
    """The statuses of some workers, or of the only process."""
    statuses = set()
    for _ in range(12):
        with server.connect() as client:
            client.send(get("/readyz"))
            statuses.add(client.read_response().status)
    return statuses


@pytest.mark.parametrize("workers", [1, 2])
def test_out_of_rotation_and_back(serve: Serve, stack: ExitStack, workers: int) -> None:
    """Held polls are answered, each as the last response of its connection; the next ones are held as usual."""
    with serve(workers=workers, drain_seconds=1, environment={"PUSHUP_PUBLISH_KEYS": KEYS}) as server:

        def drain(*flags: str) -> str:
            return run("drain", *flags, "--url", server.url, PUSHUP_KEY=OPERATOR).stdout

        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in clients:
            client.send(POLL)
        assert ready(server) == {200}
        assert drain() == f"{server.url} is out of rotation\n"
        assert ready(server) == {503}
        for client in clients:
            assert client.read_response().headers["connection"] == "close"
        time.sleep(1)  # until the drain window is over
        with server.connect() as late:
            late.send(POLL)
            assert late.silent(1.5)
            status = run("status", "--url", server.url, PUSHUP_KEY=OPERATOR)
            assert (status.returncode, status.stdout.splitlines()[0]) == (1, "not ready: this node is draining")
            assert status.stdout.count(" (draining)  ") == workers
            assert drain("--undo") == f"{server.url} is back in rotation\n"
            assert ready(server) == {200}
            run("publish", "a", "-d", "1", "--url", server.url, PUSHUP_KEY=PUBLISHER)
            assert late.read_response().headers.get("connection") != "close"
        assert any("taken out of rotation" in line and "key operator" in line for line in server.log_lines())


def test_who_may(serve: Serve) -> None:
    """Keys with the right to operate; without keys everybody here, but no page of another site."""
    with serve(environment={"PUSHUP_PUBLISH_KEYS": KEYS}) as server:
        assert "send a publish key" in error_of("drain", "--url", server.url)
        assert "has no right to 'drain'" in error_of("drain", "--url", server.url, PUSHUP_KEY=PUBLISHER)
        assert ready(server) == {200}
    with serve() as server:
        with RawClient(server.address) as page:
            page.send(
                b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
                b"Content-Length: 0\r\n\r\n"
            )
            assert page.read_response().status == 403
        assert ready(server) == {200}
        run("drain", "--url", server.url)
        wait_until(lambda: ready(server) == {503}, "the drain")
