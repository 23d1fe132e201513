"""Mercure: positions that the hub does not find, because it has never seen them or does not look far enough."""

from __future__ import annotations

import pytest

from pushup.core.limits import Limits
from tests.museum.following import Follower
from tests.net.in_memory_node import InMemoryNode

LONG = 10_500


@pytest.mark.parametrize("cursor", ["never-4", "d-3", "zz-0", "e-99"])
def test_a_position_that_the_server_does_not_know(cursor: str) -> None:
    """Whoever comes with it is told that messages may be missing, and is not passed over any that are there."""
    node = InMemoryNode()
    for number in range(5):
        node.publish("a", data=number)
    follower = Follower(node, "a", cursor=cursor, timeout=2)
    if follower.poll(limit=2) is None:
        node.advance(2.0)
        assert follower.waited() is not None
    assert follower.gaps == [("a", "lost")]
    while follower.answers[-1].more:
        follower.poll(limit=2)
    node.publish("a", data=5)
    follower.poll()
    assert follower.received == [0, 1, 2, 3, 4, 5]


def test_a_recent_position_in_a_long_history() -> None:
    """With more than 10,000 messages after the oldest one, clients that have read most of them get the rest."""
    node = InMemoryNode(limits=Limits(retention_messages=2 * LONG))
    for first in range(0, LONG, 100):
        messages = [{"channels": ["a"], "data": first + n} for n in range(min(100, LONG - first))]
        assert node.call("POST", "/v1/messages", {"messages": messages}).status == 201
    for before in (LONG - 1, LONG - 2, LONG - 50, 1):
        follower = Follower(node, "a", cursor=f"e-{before}", timeout=0)
        follower.poll()
        assert follower.received == list(range(before, min(LONG, before + 100)))
        assert follower.gaps == []
