"""How connections begin and end: many, too many, half-closed, reset; none of them leaves anything behind."""

from __future__ import annotations

import random
import resource
import time
from contextlib import ExitStack

import pytest

from tests.server.caller import poll_path
from tests.server.conftest import Serve
from tests.server.raw_client import get, post
from tests.server.server_process import hold_polls, wait_until


@pytest.mark.parametrize("way", ["close", "half_close", "reset"])
def test_disconnected_client_is_dropped_at_once(serve: Serve, stack: ExitStack, way: str) -> None:
    """A held poll is dropped when its client closes, closes its sending side, or resets the connection."""
    with serve() as server:
        clients = hold_polls(server, stack, 20)
        fds = server.process.num_fds()
        for client in clients[:15]:
            getattr(client, way)()
        wait_until(lambda: server.metric("held_polls") == 5, "the polls to be forgotten")
        wait_until(lambda: server.process.num_fds() <= fds - 15, "the descriptors to be closed")
        assert server.metric("connections") == 6
        with server.caller() as caller:
            caller.publish(["a"], "to the rest")
        assert [client.read_response().status for client in clients[15:]] == [200] * 5


def test_reset_is_noticed_behind_a_full_pipeline(serve: Serve) -> None:
    """A client whose connection is not read, because too many of its requests wait, is dropped when it resets."""
    with serve() as server, server.connect() as client:
        client.send(get(poll_path("a", timeout=60)) * 100)
        server.wait_for_held(1)
        time.sleep(0.2)  # everything sent has been read by now, so that nothing delays the reset
        client.reset()
        wait_until(lambda: server.metric("held_polls") == 0, "the poll to be forgotten")


def test_thousands_of_connections_leave_nothing_behind(serve: Serve, stack: ExitStack) -> None:
    """Clients that do a little of everything before they disconnect leave no descriptor and no held poll."""
    draw = random.Random(5)
    with serve() as server:
        wait_until(lambda: server.metric("connections") == 1, "the first clients to go")
        fds = server.process.num_fds()
        after_many = 0
        for round_number in range(3):
            for _ in range(1000):
                with server.connect() as client:
                    match draw.randrange(7):
                        case 0:
                            client.send(get(poll_path("a", timeout=60)))
                        case 1:
                            client.send(get(poll_path("a", "b", timeout=60)) * 3)
                        case 2:
                            client.send(b"GET /v1/po")
                        case 3:
                            client.send(b"nonsense\r\n\r\n")
                        case 4:
                            client.send(get("/healthz"))
                            assert client.read_response().status == 200
                        case 5:
                            client.send(get(poll_path("a", timeout=60)))
                            client.reset()
            wait_until(lambda: server.process.num_fds() <= fds, "the descriptors to be closed")
            server.wait_for_held(0)
            if round_number == 0:
                after_many = server.memory_bytes
        assert server.memory_bytes - after_many < 4 * 1024 * 1024
        with server.caller() as caller:
            assert caller.call("GET", "/v1/channels").value == {"channels": [], "more": False}


def test_half_closed_client_that_reads_late_gets_its_answers(serve: Serve) -> None:
    """The same, with more responses than the kernel buffers."""
    with serve() as server, server.caller() as caller, server.connect(receive_buffer_bytes=4096) as client:
        for _ in range(4):
            caller.publish(["large"], "x" * 60_000)
        client.send(get(poll_path("large", timeout=0)) * 40 + get("/healthz"))
        client.half_close()
        time.sleep(0.3)  # the server has as much to send as it will take in
        assert [client.read_response().status for _ in range(41)] == [200] * 41
        client.socket.settimeout(5)
        assert client.ends()


def test_connections_beyond_the_limit_get_503(serve: Serve, stack: ExitStack) -> None:
    """Beyond connections_limit, a client reads a 503 with Retry-After, whatever it sends; operators are answered."""
    with serve(connections_limit=20) as server:
        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in clients:
            client.send(get("/healthz"))
            assert client.read_response().status == 200
        for data in (get("/v1/cursor"), post("/v1/messages", {"channels": ["a"], "data": "x" * 50_000})) * 3:
            with server.connect() as refused:
                refused.send(data)
                response = refused.read_response()
                assert (response.status, response.is_problem) == (503, True)
                assert int(response.headers["retry-after"]) > 0
                assert refused.read_to_end() == b""
        assert server.metric("connections_refused_total") == 6
        for target in ("/healthz", "/readyz", "/metrics"):
            with server.connect() as operator:
                operator.send(get(target))
                assert operator.read_response().status == 200
                assert operator.read_to_end() == b""
        server.expect_log("refused 1 connections")
        assert len([line for line in server.log_lines() if "because connections_limit (20) is reached" in line]) == 1
        clients.pop().close()

        def served() -> bool:
            with server.connect() as client:
                client.send(get("/v1/cursor"))
                return client.read_response().status == 200

        wait_until(served, "a place")


def test_without_file_descriptors_it_neither_spins_nor_dies(serve: Serve, stack: ExitStack) -> None:
    """Out of descriptors, the server waits without spinning, serves existing clients, and later those that waited."""
    with serve() as server:
        server.expect_log("cannot accept on .*: Too many open files")
        hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (60, hard))
        clients = [stack.enter_context(server.connect()) for _ in range(100)]
        for client in clients:
            client.send(get("/healthz"))
        served = [client for client in clients[:40] if client.read_response().status == 200]
        assert len(served) == 40
        assert clients[-1].silent(0.5)
        assert server.busy_share() < 0.3
        served[0].send(get("/healthz"))
        assert served[0].read_response().status == 200
        for client in served:
            client.close()
        assert clients[90].read_response().status == 200
        assert any("Too many open files" in line for line in server.log_lines())
        assert len(server.log_lines()) < 30


def test_connecting_and_leaving_while_the_server_sleeps(serve: Serve) -> None:
    """Clients that disconnect before they are accepted do no harm."""
    with serve() as server:
        fds = server.process.num_fds()
        server.process.suspend()
        for number in range(300):
            client = server.connect()
            client.send(get(poll_path("a", timeout=60)))
            if number % 2:
                client.reset()
            else:
                client.close()
        server.process.resume()
        wait_until(lambda: server.process.num_fds() <= fds, "the descriptors to be closed")
        server.wait_for_held(0)


def test_idle_server_does_not_spin(serve: Serve, stack: ExitStack) -> None:
    """Held polls, stuck clients and half-closed connections take no processor time."""
    with serve() as server, server.caller() as caller:
        for _ in range(10):
            caller.publish(["large"], "x" * 60_000)
        hold_polls(server, stack, 50)
        for _ in range(5):
            stuck = stack.enter_context(server.connect(receive_buffer_bytes=4096))
            stuck.send_what_fits(get(poll_path("large", timeout=0)) * 100, quiet_seconds=0.1)
            stuck.half_close()
        full = stack.enter_context(server.connect())
        full.send(get(poll_path("a", timeout=60)) * 100)
        full.half_close()
        time.sleep(0.3)
        assert server.busy_share() < 0.3
