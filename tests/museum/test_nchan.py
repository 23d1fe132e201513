"""Nchan: polls that sleep, or are counted after their end, and positions that depend on headers and clocks."""

from __future__ import annotations

import json

import pytest

from tests.museum.following import Follower
from tests.museum.simulated import acknowledged, carry_out, publish, received_at, subscribe
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer
from tests.simulation.steps import Step

CHANNELS = 5_000
ROUNDS = 2


def test_polls_on_many_channels() -> None:
    """With a held poll on each of 5,000 channels, each message wakes its poll, round after round."""
    node = InMemoryNode()
    followers = [Follower(node, f"c{number}", cursor="now") for number in range(CHANNELS)]
    for follower in followers:
        assert follower.poll() is None
    for turn in range(ROUNDS):
        for first in range(0, CHANNELS, 100):
            messages = [{"channels": [f"c{first + n}"], "data": [first + n, turn]} for n in range(100)]
            assert node.call("POST", "/v1/messages", {"messages": messages}).status == 201
        node.run()
        for number, follower in enumerate(followers):
            assert follower.waited(), f"the poll on c{number} sleeps in round {turn}"
            assert follower.poll() is None
    assert all(follower.received == [[n, turn] for turn in range(ROUNDS)] for n, follower in enumerate(followers))
    node.check()


@pytest.mark.parametrize("how", ["times out", "is answered", "is abandoned"])
def test_a_poll_on_two_channels_that_has_ended(how: str) -> None:
    """It counts for neither of them any more, however often that happens, and nothing of it is left."""
    node = InMemoryNode()
    server = InMemoryServer(node.api, clock=node.clock)
    node.publish("a", "b")

    def counted() -> list[int]:
        return [node.call("GET", f"/v1/channels/{name}").json["subscribers"] for name in "ab"]

    for _ in range(3):
        client = server.connect()
        client.send(b"GET /v1/poll?channel=a&channel=b&cursor=now&timeout=10 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert counted() == [1, 1]
        if how == "is abandoned":
            client.reset()
        elif how == "is answered":
            node.publish("b")
        else:
            node.advance(10.0)
        assert (counted(), node.polls.count) == ([0, 0], 0)
        node.check()


def test_messages_of_the_same_moment() -> None:
    """A client that sees nothing but the bodies, as behind a proxy that drops headers, gets one after the other."""
    node = InMemoryNode()
    server = InMemoryServer(node.api, clock=node.clock)
    assert len({node.publish("a", data=n).json["time"] for n in (1, 2, 3)}) == 1
    client, cursor, received = server.connect(), "", []
    for _ in range(4):
        target = f"/v1/poll?channel=a&limit=1&timeout=0&cursor={cursor}"
        client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        answer = json.loads(client.reply().body)
        cursor = answer["cursor"]
        received += [message["data"] for message in answer["messages"]]
    assert received == [1, 2, 3]


@pytest.mark.usefixtures("faults_may_be_logged")
@pytest.mark.parametrize("kind", ["memory", "journal", "redis"])
def test_a_clock_that_is_set_back(kind: str) -> None:
    """Half an hour back, on every machine: what is published then wakes held polls, and comes after what was before."""
    nodes = 2 if kind == "redis" else 1
    jumps = [Step(8.0, "jump", {"node": node, "by": -1800.0}) for node in range(nodes)]
    if kind == "redis":
        jumps.append(Step(8.0, "redis_jump", {"node": 0, "by": -1800.0}))
    times = [4.0, 6.0, 9.0, 11.0, 15.0]
    result = carry_out(subscribe(1.0, 0, "a"), *jumps, *(publish(at, "a") for at in times), kind=kind, nodes=nodes)
    published = [acknowledged(result)[f"p0.{number}"] for number in range(1, len(times) + 1)]
    received = received_at(result, "s0")
    assert list(received)[: len(times)] == [event.ids[0] for event in published]
    assert all(received[event.ids[0]] < event.at + 1.0 for event in published)
