"""Promise 7 of docs/internals/architecture.md: on SIGTERM a server answers its clients and loses nothing."""

from __future__ import annotations

import select
import signal
import time
from contextlib import ExitStack

import pytest

from pushup.node.drain import REFUSALS
from tests.server.caller import poll_path
from tests.server.conftest import Serve
from tests.server.raw_client import WAIT_SECONDS, RawClient, get
from tests.server.server_process import hold_polls, wait_until

ENOUGH = 700
"""More polls than the server answers in one reactor iteration, which is 256."""


def first_answered(clients: list[RawClient]) -> RawClient:
    """One of the clients that the drain has answered while others still wait."""
    readable, _, _ = select.select([client.socket for client in clients], [], [], WAIT_SECONDS)
    return next(client for client in clients if client.socket is readable[0])


def test_sigterm_answers_held_polls_over_the_drain_window(serve: Serve, stack: ExitStack) -> None:
    """Held polls are answered gradually, with Connection: close and a valid cursor; the exit code is 0."""
    with serve(drain_seconds="1.5s") as server:
        clients = hold_polls(server, stack, ENOUGH)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        times = []
        for client in clients:
            response = client.read_response()
            times.append(time.monotonic() - began)
            assert response.status == 200
            assert response.headers["connection"] == "close"
            assert response.value["messages"] == []
            assert response.value["cursor"]
            assert client.ends()
            client.close()
        assert max(times) > 0.5
        assert server.wait() == 0


def test_few_polls_use_the_drain_window_too(serve: Serve, stack: ExitStack) -> None:
    """Even with one held poll, the server is not ready for the whole drain time, and ends after it."""
    with serve(drain_seconds="1.5s") as server:
        (held,) = hold_polls(server, stack, 1)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert held.read_response().headers["connection"] == "close"
        held.close()
        answered = 0
        while server.runs:
            try:
                with server.connect() as client:
                    client.send(get("/readyz"))
                    assert client.read_response().status == 503
            except OSError:
                break  # it has just ended
            answered += 1
            time.sleep(0.1)
        assert answered > 0
        assert server.wait() == 0
        assert time.monotonic() - began > 1.4


def test_sigterm_makes_the_node_not_ready(serve: Serve, stack: ExitStack) -> None:
    """While draining, /readyz returns 503 over old and new connections, and /healthz still succeeds."""
    with serve(drain_seconds="3s") as server:
        before = stack.enter_context(server.connect())
        before.send(get("/readyz"))
        assert before.read_response().status == 200
        before.send(b"GET /readyz HTTP/1.1\r\n")
        held = hold_polls(server, stack, ENOUGH)
        server.signal(signal.SIGTERM)

        def not_ready() -> bool:
            with server.connect() as client:
                client.send(get("/readyz"))
                try:
                    return client.read_response().status == 503
                except ConnectionError:
                    return False  # this connection was open and idle when the drain began

        wait_until(not_ready, "the node to be not ready")
        before.send(b"Host: localhost\r\n\r\n")
        response = before.read_response()
        assert response.status == 503
        assert response.headers["connection"] == "close"
        with server.connect() as client:
            client.send(get("/healthz"))
            assert client.read_response().status == 200
        with server.connect() as client:  # a poll is answered, not held
            client.send(get(poll_path("b", timeout=60)))
            assert client.read_response().value["messages"] == []
        for held_client in held:
            held_client.close()
        assert server.wait() == 0


def test_sigterm_loses_nothing_acknowledged(serve: Serve, stack: ExitStack) -> None:
    """A publication acknowledged right before the signal reaches all its subscribers."""
    with serve(drain_seconds="1s") as server, server.caller() as caller:
        clients = hold_polls(server, stack, ENOUGH)
        published = caller.publish(["a"], "the last")
        server.signal(signal.SIGTERM)
        for client in clients:
            answer = client.read_response().value
            assert [m["id"] for m in answer["messages"]] == [published["id"]]
            assert answer["cursor"] == published["cursor"]
            client.close()
        caller.close()
        assert server.wait() == 0


def test_publication_while_draining_is_delivered(serve: Serve, stack: ExitStack) -> None:
    """A publication acknowledged during the drain reaches the polls that are still held."""
    with serve(drain_seconds="3s") as server:
        clients = hold_polls(server, stack, ENOUGH)
        server.signal(signal.SIGTERM)
        first = first_answered(clients)
        assert first.read_response().headers["connection"] == "close"
        with server.caller() as caller:
            published = caller.publish(["a"], "late")
        answers = [client.read_response().value for client in clients if client is not first]
        got = [answer for answer in answers if answer["messages"]]
        assert len(got) > ENOUGH // 4
        assert all(answer["cursor"] == published["cursor"] for answer in got)
        for client in clients:
            client.close()
        assert server.wait() == 0


def test_cursors_of_the_drain_are_valid(serve: Serve) -> None:
    """A cursor from a drained poll resumes after what its client has seen, including messages published meanwhile."""
    with serve(drain_seconds="3s") as server, ExitStack() as stack:
        clients = hold_polls(server, stack, ENOUGH)
        server.signal(signal.SIGTERM)
        cursor = first_answered(clients).read_response().value["cursor"]
        with server.caller() as caller, server.caller() as reader:
            published = caller.publish(["a"], "late")
            answer = reader.poll("a", cursor=cursor)
            assert [m["id"] for m in answer["messages"]] == [published["id"]]
            assert answer["gaps"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_stops_at_once(serve: Serve, number: signal.Signals) -> None:
    """Without held polls there is nothing to wait for: idle clients are disconnected and the process exits with 0."""
    with serve(drain_seconds="60s") as server, server.connect() as client:
        client.send(get("/healthz"))
        assert client.read_response().status == 200
        server.signal(number)
        assert client.ends()
        client.close()
        assert server.wait() == 0


def test_a_balancer_has_to_notice_first(serve: Serve) -> None:
    """An idle node that a balancer asks keeps its connections and publishes until it has refused a few times."""
    with serve(drain_seconds="60s") as server, server.connect() as idle, server.connect() as publisher:

        def readiness() -> int:
            with server.connect() as balancer:
                balancer.send(get("/readyz"))
                return balancer.read_response().status

        for client in (idle, publisher):
            client.send(get("/healthz"))
            assert client.read_response().status == 200
        assert readiness() == 200
        server.signal(signal.SIGTERM)
        wait_until(lambda: any("draining" in line for line in server.log_lines()), "the drain")
        body = b'{"channels": ["a"], "data": 1}'
        for _ in range(REFUSALS - 1):
            assert readiness() == 503
        publisher.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        publisher.send(body)
        response = publisher.read_response()
        assert (response.status, response.headers["connection"]) == (201, "close")
        publisher.close()
        assert readiness() == 503
        assert idle.ends()
        idle.close()
        assert server.wait() == 0


def test_request_in_transit_is_still_answered(serve: Serve) -> None:
    """A publication whose bytes were in transit at the signal is answered before the end."""
    with serve() as server, server.connect() as client:
        body = b'{"channels": ["a"], "data": 1}'
        client.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        wait_until(lambda: server.metric("waiting_requests_bytes") > 0, "the head of the request")
        server.signal(signal.SIGTERM)
        wait_until(lambda: any("draining" in line for line in server.log_lines()), "the drain")
        client.send(body)
        response = client.read_response()
        assert (response.status, response.headers["connection"]) == (201, "close")
        client.close()
        assert server.wait() == 0


def test_clients_that_just_came_are_answered(serve: Serve) -> None:
    """Their connections were not accepted when the signal came, or accepted and not read."""
    with serve() as server:
        server.signal(signal.SIGSTOP)
        wait_until(lambda: server.process.status() == "stopped", "it to be stopped")
        with ExitStack() as stack:
            clients = [stack.enter_context(server.connect()) for _ in range(300)]
            for client in clients:
                client.send(get("/healthz"))
            server.signal(signal.SIGTERM)
            server.signal(signal.SIGCONT)
            for client in clients:
                assert client.read_response().status == 200
        assert server.wait() == 0


def test_second_signal_ends_at_once(serve: Serve, stack: ExitStack) -> None:
    """An operator who cannot wait for the drain sends the signal again."""
    with serve(drain_seconds="60s") as server:
        hold_polls(server, stack, ENOUGH)
        server.signal(signal.SIGTERM)
        wait_until(lambda: any("draining" in line for line in server.log_lines()), "the drain")
        assert server.runs
        server.signal(signal.SIGTERM)
        assert server.wait() != 0
