"""A large fan-out delays no other request (docs/internals/architecture.md, "A publication"). Tests order, not speed."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack

from tests.server.caller import poll_path
from tests.server.conftest import Serve
from tests.server.raw_client import RawClient, get, post
from tests.server.server_process import Server

POLLS = 2000
ROUNDS = 6
"""The client may be descheduled at the critical moment, so it tries several times and must succeed once."""

Ask = Callable[[Server, RawClient, RawClient, int], None]
"""Publishes message `number` on `many` from one client, and waits for something that must not wait for all answers."""


def hold_polls(server: Server, clients: list[RawClient]) -> None:
    """Make all clients wait on the channel `many`."""
    for client in clients:
        client.send(get(poll_path("many", cursor="now", timeout=60)))
    server.wait_for_held(len(clients))


def answered(clients: list[RawClient]) -> int:
    """How many of the clients have been sent something."""
    watch = select.poll()
    for client in clients:
        watch.register(client.socket, select.POLLIN)
    return len(watch.poll(0))


def seen_before_all_were_answered(serve: Serve, ask: Ask) -> bool:
    """Whether, at least once, what `ask` waits for happened while some polls were still unanswered."""
    with serve() as server, ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(POLLS)]
        publisher, other = (stack.enter_context(server.connect()) for _ in range(2))
        for number in range(ROUNDS):
            hold_polls(server, clients)
            ask(server, publisher, other, number)
            count = answered(clients)
            for client in clients:
                assert [m["data"][0] for m in client.read_response().value["messages"]] == [number]
            if count < POLLS:
                return True
    return False


def publication(number: int) -> bytes:
    return post("/v1/messages", {"channels": ["many"], "data": [number, "x" * 500]})


def test_publisher_is_answered_before_the_subscribers(serve: Serve) -> None:
    """A publication to 2,000 held polls is acknowledged before all of them are answered."""

    def ask(server: Server, publisher: RawClient, other: RawClient, number: int) -> None:
        publisher.send(publication(number))
        assert publisher.read_response().status == 201

    assert seen_before_all_were_answered(serve, ask)


def test_others_are_served_during_a_fan_out(serve: Serve) -> None:
    """A poll on another channel, sent after the publication, is answered before all 2,000 are."""

    def ask(server: Server, publisher: RawClient, other: RawClient, number: int) -> None:
        publisher.send(publication(number))
        other.send(get(poll_path("else", timeout=0)))
        assert other.read_response().status == 200
        assert publisher.read_response().status == 201

    assert seen_before_all_were_answered(serve, ask)


def test_others_are_published_to_during_a_fan_out(serve: Serve) -> None:
    """A message published later on another channel reaches its subscriber before all 2,000 have theirs."""

    def ask(server: Server, publisher: RawClient, other: RawClient, number: int) -> None:
        other.send(get(poll_path("else", cursor="now", timeout=60)))
        server.wait_for_held(POLLS + 1)
        publisher.send(publication(number) + post("/v1/messages", {"channels": ["else"], "data": number}))
        assert [m["data"] for m in other.read_response().value["messages"]] == [number]
        assert [publisher.read_response().status for _ in range(2)] == [201, 201]

    assert seen_before_all_were_answered(serve, ask)
