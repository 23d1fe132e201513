"""A node that may lack the newest messages: what asks what there is now is refused, what waits is not (ACK-2)."""

from __future__ import annotations

import pytest

from pushup.core.subscription import Subscription
from tests.net.in_memory_node import AroundMemory, InMemoryNode


class _Outdated(AroundMemory):
    """Current until a test says that it is not."""

    is_current = True


@pytest.fixture
def node() -> InMemoryNode:
    """A node with two messages on `a`, e-1 and e-2, that may lack others."""
    node = InMemoryNode(broadcast=_Outdated)
    node.publish("a")
    node.publish("a")
    set_outdated(node)
    return node


def set_outdated(node: InMemoryNode) -> None:
    assert isinstance(node.broadcast, _Outdated)
    node.broadcast.is_current = False


NOW = (
    "/v1/poll?channel=a",
    "/v1/poll?channel=a&timeout=30",
    "/v1/poll?channel=a&cursor=now",
    "/v1/poll?channel=a&cursor=earliest&timeout=30",
    "/v1/poll?channel=a&cursor=e-2&timeout=0",
    "/v1/poll?channel=a&cursor=e-1&timeout=0",
    "/v1/poll?channel=a&cursor=e-9&timeout=0",
    "/v1/poll?channel=a&cursor=e-2&timeout=30&to=5",
    "/v1/cursor",
    "/v1/events?channel=a",
    "/v1/events?channel=a&cursor=now",
)
LATER = ("/v1/poll?channel=a&cursor=e-2&timeout=30", "/v1/poll?channel=a&cursor=e-2", "/v1/events?channel=a&cursor=e-2")


@pytest.mark.parametrize("target", NOW)
def test_what_asks_what_there_is_now_is_refused(node: InMemoryNode, target: str) -> None:
    """With the time after which to try again; a HEAD as well."""
    for method in ("GET", "HEAD"):
        if method == "GET" or target.startswith("/v1/events"):
            refused = node.call(method, target)
            assert (refused.status, refused.headers[b"Retry-After"]) == (503, b"1")
    assert b"caught up" in node.call("GET", target).body
    assert node.streaming.count == node.polls.count == 0
    assert isinstance(node.broadcast, _Outdated)
    node.broadcast.is_current = True
    assert not any(response.status == 503 for response in node.begin("GET", target).responses)


@pytest.mark.parametrize("target", LATER)
def test_what_waits_is_held(node: InMemoryNode, target: str) -> None:
    """And gets what comes; so does a poll that was held before."""
    exchange = node.begin("GET", target)
    assert node.polls.count == 1
    assert node.publish("a").status == 201
    assert exchange.written.count(b"e-3") or exchange.answers[0].messages[0].id == "e-3"


def test_a_cursor_gets_what_is_known(node: InMemoryNode) -> None:
    assert [message.id for message in node.poll("channel=a&cursor=e-1&timeout=30").messages] == ["e-2"]


def test_a_held_poll_ends_in_time(node: InMemoryNode) -> None:
    """Its answer goes no further than what this node knows, and its client continues there."""
    exchange = node.begin("GET", "/v1/poll?channel=a&cursor=e-2&timeout=10")
    assert isinstance(exchange.held, Subscription)
    node.advance(10.0)
    assert [(answer.cursor, answer.messages) for answer in exchange.answers] == [("e-2", ())]


def test_a_head_of_a_stream_with_a_cursor_is_answered(node: InMemoryNode) -> None:
    """As its GET is."""
    assert node.begin("HEAD", "/v1/events?channel=a&cursor=e-2").responses[0].status == 200
    assert node.polls.count == 0


def test_a_stream_that_reaches_its_age_ends(node: InMemoryNode) -> None:
    """Its client comes back with the cursor that it has, here or elsewhere."""
    exchange = node.begin("GET", "/v1/events?channel=a&cursor=e-2")
    node.advance(3601.0)
    assert exchange.held is None
    assert node.streaming.count == node.polls.count == 0
