"""What /metrics says of requests: by route and status, how long publications took, how late messages came."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushup.core.commands import Confirmation
from pushup.metrics import Metric, MetricsPage, gauge
from pushup.net.api.quotas import QuotaSettings, QuotaTable
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer
from tests.net.scripted_application import get


@pytest.mark.parametrize(
    ("sent", "route", "status"),
    [
        (get(b"/v1/channels/a"), "/v1/channels/{channel}", 404),
        (get(b"/v1/channels/%FF"), "(none)", 400),
        (get(b"/healthz", method=b"HEAD"), "/healthz", 200),
        (get(b"/v1/poll?channel=a&cursor=1&timeout=0"), "/v1/poll", 400),
        (get(b"/v1/poll?channel=a&timeout=0"), "/v1/poll", 200),
        (get(b"/v1/events?channel=a"), "/v1/events", 200),
        (get(b"/nowhere/at/all"), "(none)", 404),
        (get(b"/healthz", method=b"DELETE"), "(none)", 405),
        (get(b"/healthz", b"Host: other.example\r\n"), "(none)", 400),
        (b"nonsense\r\n\r\n", "(none)", 400),
    ],
)
def test_requests_are_counted_by_route_and_status(sent: bytes, route: str, status: int) -> None:
    """Each once, whatever its path is; the second one on a connection, too."""
    node = InMemoryNode()
    server = InMemoryServer(node.api)
    client = server.connect()
    client.send(get(b"/readyz"))
    client.take()
    client.send(sent)
    client.take()
    assert server.metrics.requests | node.metrics.requests == {("/readyz", 200): 1, (route, status): 1}


def test_a_poll_that_waits_is_counted_once() -> None:
    """When it begins to wait, and not when it is answered: that is no work per delivery."""
    node = InMemoryNode()
    node.begin(
        "GET",
        "/v1/poll?channel=a",
    )
    assert node.metric("requests_total", route="/v1/poll", status="200") == 1
    node.publish("a")
    assert node.metric("requests_total", route="/v1/poll", status="200") == 1


def test_a_poll_with_a_quota_is_counted_when_it_is_answered() -> None:
    """As it then turns out with which status."""
    node = InMemoryNode(quotas=QuotaSettings(quotas=(QuotaTable(per="address", held_polls=3),)))
    node.begin("GET", "/v1/poll?channel=a")
    assert not node.metrics.requests
    node.publish("a")
    node.poll("channel=a&timeout=0")
    assert node.metric("requests_total", route="/v1/poll", status="200") == 2


def test_how_long_publications_take() -> None:
    """By the acknowledgement that they have reached."""
    node = InMemoryNode()
    confirmations = []
    node.node.confirm = lambda ack, cursor, seconds, on_confirmation: confirmations.append(on_confirmation)  # type: ignore[method-assign]
    node.publish("a")
    for _ in range(2):
        node.begin("POST", "/v1/messages", {"channels": ["a"], "data": 1, "ack": "stable"})
    node.clock.advance(0.2)
    confirmations[0](Confirmation("stable"))
    node.clock.advance(0.3)
    confirmations[1](Confirmation("accepted"))
    assert node.metric("publication_seconds_count", ack="accepted") == 2
    assert node.metric("publication_seconds_sum", ack="accepted") == pytest.approx(0.5)
    assert node.metric("publication_seconds_count", ack="stable") == 1
    assert node.metric("publication_seconds_sum", ack="stable") == pytest.approx(0.2)
    assert node.metric("publication_seconds_bucket", ack="stable", le="0.1") == 0
    assert node.metric("publication_seconds_bucket", ack="stable", le="0.25") == 1


def test_the_delay_of_polls_that_waited_and_of_late_ones() -> None:
    """The first message counts for a poll that waited: the server has made it wait. A late one has come late itself."""
    node = InMemoryNode()
    waiting = [node.begin("GET", "/v1/poll?channel=a") for _ in range(3)]
    for _ in range(2):
        node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1})
        node.clock.advance(0.5)
    node.run()
    assert all(exchange.answers for exchange in waiting)
    assert node.metric("answer_delay_seconds_count", poll="held") == 3
    assert node.metric("answer_delay_seconds_sum", poll="held") == pytest.approx(3.0)
    node.clock.advance(1.0)
    node.poll("channel=a&timeout=0")
    assert node.metric("answer_delay_seconds_count", poll="held") == 3
    assert node.metric("answer_delay_seconds_count", poll="late") == 1
    assert node.metric("answer_delay_seconds_sum", poll="late") == pytest.approx(1.5)


def test_a_part_that_fails(logged_failures: list[str]) -> None:
    """It is missing on the page, and nothing else is; a bug that is logged."""

    def fails() -> Iterator[Metric]:
        yield gauge("first", "", 1)
        raise ZeroDivisionError("what nobody expected")

    text = MetricsPage("here", fails, lambda: [gauge("second", "", 2)]).text()
    assert b"pushup_second 2.0\n" in text
    assert b'pushup_build_info{build="here"' in text
    assert b"pushup_first" not in text
    (failure,) = logged_failures
    assert "what nobody expected" in failure
    logged_failures.clear()
