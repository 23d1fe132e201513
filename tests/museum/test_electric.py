"""Electric: clients that poll in a tight loop, because a position does not move on or an answer is cached."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.museum.following import Follower
from tests.museum.simulated import answers, carry_out, publish, subscribe
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer
from tests.simulation.steps import FAULT_SECONDS

SECONDS = 100
TIMEOUT_SECONDS = 10.0


@pytest.mark.parametrize("cursor", ["", "earliest", "now", "e-2", "e-99", "zz-7"])
@pytest.mark.parametrize("history", ["nothing", "messages", "a closed channel", "dropped messages"])
def test_a_client_that_has_everything_waits(cursor: str, history: str) -> None:
    """From whatever position it starts: at most two answers come at once, then each takes as long as it may."""
    node = InMemoryNode()
    if history != "nothing":
        for number in range(4):
            node.publish("a", data=number)
    if history == "a closed channel":
        node.call("DELETE", "/v1/channels/a")
    if history == "dropped messages":
        node.advance(301)
        node.publish("b")
    follower = Follower(node, "a", cursor=cursor, timeout=TIMEOUT_SECONDS)
    began, count = node.clock.seconds(), 0
    while node.clock.seconds() < began + SECONDS:
        count += 1
        assert count <= 2 + SECONDS / TIMEOUT_SECONDS + 1, "it polls in a loop"
        if follower.poll() is None:
            while follower.waited() is None:
                node.advance(0.5)
    seen = [answer.cursor for answer in follower.answers]
    assert seen[2:] == [seen[-1]] * len(seen[2:])


def test_answers_are_not_cached() -> None:
    """Neither one with messages, nor an empty one, nor an error."""
    node = InMemoryNode()
    server = InMemoryServer(node.api, clock=node.clock)
    client = server.connect()
    for query in ("channel=a", "channel=a&cursor=e-0", "channel=a&cursor=bad", "channel=1"):
        node.publish("a")
        client.send(f"GET /v1/poll?{query}&timeout=0 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert client.reply().headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("faults_may_be_logged")
def test_two_nodes_of_which_one_is_behind() -> None:
    """A client that goes from one to the other and back is not sent back and forth between two positions."""
    steps = [publish(2.0 + 0.5 * number, "a", node=1) for number in range(60)]
    result = carry_out(subscribe(1.0, 0, "a", direct=True), *steps, slow_node=0.02)
    assert result.reached["a poll's cursor was ahead of its node"] > 10
    told = [answer for answer in answers(result, "s0") if answer.at < FAULT_SECONDS]
    assert len({message.id for answer in told for message in answer.messages}) == 60
    empty = [answer for answer in told if not answer.messages]
    assert all(later.at - earlier.at > 0.8 for earlier, later in pairwise(empty)), "empty answers, one after the other"
