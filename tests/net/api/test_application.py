"""The HTTP API (docs/guide/): every call and every status, on a complete node."""

from __future__ import annotations

import gc
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pushup.core.answer import Answer
from pushup.core.commands import Draft, Publish, Published
from pushup.core.limits import Limits
from pushup.net.api.bodies import write
from pushup.net.api.channel_routes import PAGE_LIMIT
from pushup.net.api.publishing import Publication
from pushup.net.api.schemas import PollLimits, PublicationLimits
from pushup.net.edge_limits import EdgeLimits
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import START

ROUTES = {
    "/v1/poll": {"GET", "HEAD", "POST"},
    "/v1/messages": {"POST", "DELETE"},
    "/v1/channels": {"GET", "HEAD", "POST"},
    "/v1/cursor": {"GET", "HEAD"},
    "/healthz": {"GET", "HEAD"},
    "/readyz": {"GET", "HEAD"},
    "/metrics": {"GET", "HEAD"},
    "/v1/channels/a": {"GET", "HEAD", "DELETE"},
    "/v1/channels/a/renew": {"POST"},
}


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(
        limits=Limits(channel_ttl_seconds=100.0, channels_limit=5),
        publication_limits=PublicationLimits(message_limit_bytes=20, batch_limit=3, message_channels_limit=2),
    )


def test_poll_that_is_answered(node: InMemoryNode) -> None:
    """A poll for cached messages is answered at once, by query and by JSON alike."""
    node.publish("a", "b", data={"n": 1})
    answer = node.poll("channel=a&channel=c")
    assert (answer.cursor, answer.more, answer.gaps, answer.closed) == ("e-1", False, (), ())
    assert [(m.id, m.time, m.channels, bytes(m.data)) for m in answer.messages] == [("e-1", START, ("a",), b'{"n": 1}')]
    assert node.begin("POST", "/v1/poll", {"channels": ["a", "c"]}).answers == [answer]
    assert node.poll("channel=a&cursor=e-1&timeout=0") == Answer("e-1", (), False, (), ())


def test_poll_that_is_held(node: InMemoryNode) -> None:
    exchange = node.begin("GET", "/v1/poll?channel=a&cursor=now")
    assert exchange.held is not None
    assert node.polls.count == 1
    node.publish("a", data=5)
    (answer,) = exchange.answers
    assert [bytes(message.data) for message in answer.messages] == [b"5"]
    assert node.polls.count == 0


def test_publish_several(node: InMemoryNode) -> None:
    messages = [{"channels": ["a"], "data": n} for n in range(3)]
    result = node.call("POST", "/v1/messages", {"messages": messages})
    assert (result.status, result.json) == (201, {"ids": ["e-1", "e-2", "e-3"], "time": START, "cursor": "e-3"})
    assert [bytes(message.data) for message in node.poll("channel=a").messages] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "channels"),
        ({"messages": [{"channels": ["a"], "data": 1}, {"channels": ["a"]}]}, 400, "messages[1].data"),
        ({"channels": ["a"], "data": "x" * 19}, 413, "data"),
        ({"channels": ["12345"], "data": 1}, 404, "channels"),
        (b'{"channels": ["a"], "data": ' + b"[" * 50_000, 400, None),
    ],
)
def test_bad_publications(node: InMemoryNode, body: object, status: int, field: str | None) -> None:
    result = node.call("POST", "/v1/messages", body)
    assert (result.status, result.json["status"], result.json.get("field")) == (status, status, field)
    assert (node.state.message_count, len(node.state.channels)) == (0, 0)


def test_too_many_channels(node: InMemoryNode) -> None:
    """At channels_limit a publication that needs another channel is refused completely, with a time to retry."""
    for n in range(4):
        node.publish(f"c{n}")
    result = node.call("POST", "/v1/messages", {"channels": ["x", "y"], "data": 1})
    assert (result.status, result.headers[b"Retry-After"].isdigit()) == (503, True)
    assert len(node.state.channels) == 4
    assert node.call("POST", "/v1/messages", {"channels": ["x"], "data": 1}).status == 201
    assert node.call("POST", "/v1/channels", {"name": "y"}).status == 503


def test_more_channels_than_can_ever_be_open(node: InMemoryNode) -> None:
    """Trying again cannot help, so it is a bad request, even if there is no room now either."""
    for n in range(3):
        node.publish(f"c{n}")
    bad = node.call(
        "POST", "/v1/messages", {"messages": [{"channels": [*pair], "data": 1} for pair in ("ab", "cd", "ef")]}
    )
    assert (bad.status, bad.json["field"]) == (400, "channels")
    assert bad.json["detail"] == "channels_limit is 5, and these are 6 channels"
    assert len(node.state.channels) == 3


def test_idempotency_key(node: InMemoryNode) -> None:
    body = {"channels": ["a"], "data": 1}
    first = node.call("POST", "/v1/messages", body, Idempotency_Key="k1")
    node.publish("a")
    node.clock.advance(1.0)
    assert node.call("POST", "/v1/messages", body, Idempotency_Key="k1").json == first.json
    assert node.state.message_count == 2
    assert node.call("POST", "/v1/messages", body, Idempotency_Key="k2").json != first.json
    assert node.state.message_count == 3


def test_a_key_is_for_messages_that_are_ephemeral_or_not(node: InMemoryNode) -> None:
    """The same messages are others if one is ephemeral now; a key of ephemeral messages alone is not remembered."""
    lasting, ephemeral = ({"channels": ["a"], "data": 1, "ephemeral": flag} for flag in (False, True))

    def publish(body: object, key: str) -> int:
        return node.call("POST", "/v1/messages", body, Idempotency_Key=key).status

    assert [publish(lasting, "k1"), publish(ephemeral, "k1"), publish(lasting, "k1")] == [201, 422, 201]
    both, twice = {"messages": [lasting, ephemeral]}, {"messages": [lasting, lasting]}
    assert [publish(both, "k2"), publish(twice, "k2"), publish(both, "k2")] == [201, 422, 201]
    assert node.state.message_count == 3
    assert [publish(ephemeral, "k3"), publish(ephemeral, "k3"), publish(lasting, "k3")] == [201, 201, 201]
    assert [publish(lasting, "k3"), publish(ephemeral, "k3")] == [201, 422]
    assert node.state.message_count == 6


def test_the_length_of_an_idempotency_key_is_limited(node: InMemoryNode) -> None:
    body = {"channels": ["a"], "data": 1}
    assert node.call("POST", "/v1/messages", body, Idempotency_Key="k" * 255).status == 201
    result = node.call("POST", "/v1/messages", body, Idempotency_Key="k" * 256)
    assert (result.status, result.json["field"]) == (400, "Idempotency-Key")


def test_create(node: InMemoryNode) -> None:
    result = node.call("POST", "/v1/channels", {"name": "news", "ttl": 50})
    number = result.json["id"]
    assert (result.status, result.json) == (201, {"id": number, "name": "news", "expires": START + 50})
    assert node.call("POST", "/v1/channels", {"name": "news"}).status == 409
    nameless = node.call("POST", "/v1/channels")
    assert (nameless.status, nameless.json["name"]) == (201, str(nameless.json["id"]))
    assert nameless.json["id"] != number
    assert nameless.json["expires"] == START + 100
    for body in ({"name": "123"}, {"name": ""}, {"name": "x" * 256}, {"ttl": 0}, {"ttl": -1}, {"ttl": 1e12}, {"x": 1}):
        result = node.call("POST", "/v1/channels", body)
        assert result.status == 400
        assert result.json.get("field", "x") in body


@pytest.mark.parametrize("name", ["news", "author:John", "tag:c++", "a/b", "a b", "é%2F", "?&#", ".."])
def test_a_channel_by_its_name_and_id(node: InMemoryNode, name: str) -> None:
    """Renewing, reading and closing accept the percent-encoded name or the id, and return the channel."""
    number = node.call("POST", "/v1/channels", {"name": name}).json["id"]
    path = "/v1/channels/" + quote(name, safe="")
    node.clock.advance(10.0)
    for channel in (path, f"/v1/channels/{number}"):
        renewed = node.call("POST", channel + "/renew", {"ttl": 30})
        assert (renewed.status, renewed.json) == (200, {"id": number, "name": name, "expires": START + 40})
    node.publish(name, data="xyz")
    exchange = node.begin("POST", "/v1/poll", {"channels": [name], "cursor": "now"})
    view = {"id": number, "name": name, "ttl": 30.0, "expires": START + 40, "messages": 1, "bytes": 5, "subscribers": 1}
    for channel in (path, f"/v1/channels/{number}"):
        shown = node.call("GET", channel)
        assert (shown.status, shown.json) == (200, view)
    assert node.call("GET", "/v1/channels").json == {"channels": [view], "more": False}
    closed = node.call("DELETE", path)
    assert (closed.status, closed.body) == (204, b"")
    node.run()
    assert exchange.answers[0].closed == (name,)
    for method, channel in (("GET", path), ("DELETE", path), ("POST", path + "/renew")):
        result = node.call(method, channel)
        assert (result.status, result.json["type"]) == (404, "urn:pushup:unknown-channel")


def test_a_waiting_publisher_keeps_no_message_alive(node: InMemoryNode) -> None:
    """A publisher may wait a minute for its `ack`; its messages are not kept in memory for that."""
    waiting: list[Any] = []
    node.node.submit = lambda command, on_outcome: waiting.append(on_outcome)  # type: ignore[method-assign]
    node.node.confirm = lambda ack, cursor, seconds, on_confirmation: waiting.append(on_confirmation)  # type: ignore[method-assign]
    node.begin("POST", "/v1/messages", {"channels": ["a"], "data": 1, "ack": "stable"})
    waiting[0](Published("e", 1, 1, START))
    node.begin("POST", "/v1/channels", {"name": "a"})
    node.begin("POST", "/v1/channels/a/renew", {})
    node.begin("DELETE", "/v1/channels/a")
    assert len(waiting) == 5
    for then in waiting:
        kept = [type(value) for value in _kept_by(then)]
        assert kept
        assert not {Publish, Publication, Request, Draft, bytes} & set(kept), kept


def _kept_by(function: Callable[..., object]) -> list[object]:
    """The variables of the function around it that it uses; a compiled one keeps them in an object of its own."""
    cells = getattr(function, "__closure__", None)
    if cells is not None:
        return [cell.cell_contents for cell in cells]
    return [value for kept in gc.get_referents(function) for value in gc.get_referents(kept)]


def test_what_one_request_may_do_is_not_lent_to_another() -> None:
    """A head that was admitted, and whose body has not come, is not the request that is answered next."""
    node = InMemoryNode(publish_keys=("secret-of-16-or-more",))
    key = {b"host": b"a", b"authorization": b"Bearer secret-of-16-or-more"}
    assert node.api.admit(Request(b"POST", b"/v1/messages", key, keep_alive=True)) > 0
    assert node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 401
    assert node.call("GET", "/v1/cursor").json == {"cursor": "e-0"}


def test_cursor(node: InMemoryNode) -> None:
    assert node.call("GET", "/v1/cursor").json == {"cursor": "e-0"}
    node.publish("a")
    assert node.call("GET", "/v1/cursor").json == {"cursor": "e-1"}


def test_health_and_readiness(node: InMemoryNode) -> None:
    """A node is always healthy, and ready until it drains: then 503 gives the reason."""
    assert node.call("GET", "/readyz").json == {"status": "ready"}
    node.node.drain(0.0)
    result = node.call("GET", "/readyz")
    assert (result.status, result.json["status"]) == (503, "not ready")
    assert result.json["reason"]
    assert node.call("GET", "/healthz").status == 200


def test_metrics(node: InMemoryNode) -> None:
    exchange = node.begin("GET", "/v1/poll?channel=a&cursor=now")
    node.clock.advance(0.003)
    node.publish("a")
    assert exchange.answers
    node.begin("GET", "/v1/poll?channel=b")
    result = node.call("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(result.body.decode())}
    values = {
        sample.name: sample.value for family in families.values() for sample in family.samples if not sample.labels
    }
    assert values["pushup_messages_total"] == 1
    assert values["pushup_deliveries_total"] == 1
    assert values["pushup_answers_total"] == 1
    assert values["pushup_held_polls"] == 1
    assert values["pushup_process_memory_bytes"] > 1e6
    assert all(family.documentation for family in families.values())


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_methods(node: InMemoryNode, path: str, method: str) -> None:
    """Methods that a path does not support get 405 with those it does, and OPTIONS gets the same as 204."""
    node.publish("a")
    exchange = node.begin(method, path)
    allowed = ROUTES[path]
    if method in allowed:
        assert exchange.answers or exchange.responses[0].status not in (404, 405)
    else:
        (response,) = exchange.responses
        assert response.status == (204 if method == "OPTIONS" else 405)
        assert dict(response.headers)[b"Allow"].decode().split(", ") == [*(m for m in response_order(path)), "OPTIONS"]


def response_order(path: str) -> list[str]:
    return [method for method in ("GET", "HEAD", "POST", "DELETE") if method in ROUTES[path]]


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/v1", "/v1/", "/v2/poll", "/v1/poll/", "/V1/poll", "/healthz/", "/v1/messages/1/2", "/v1/channels/a/b",
     "/v1/channels/a/renew/", "/v1/channels/a/renew/b", "/healthz%20", "/favicon.ico", "/v1/../healthz"],
)  # fmt: skip
def test_unknown_paths(node: InMemoryNode, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        result = node.call(method, path)
        assert (result.status, result.json["type"]) == (404, "urn:pushup:unknown-resource")


@pytest.mark.parametrize("path", ["/v1/channels/%FF", "/v1/channels/" + "x" * 256, "/v1/channels//renew"])
def test_bad_names_in_paths(node: InMemoryNode, path: str) -> None:
    result = node.call("POST" if path.endswith("renew") else "GET", path)
    assert (result.status, result.json["field"]) == (400, "channel")


def test_an_unknown_path_is_compared_once(node: InMemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the known ones, for the hint; metrics need to know only that it is none."""
    compare = Mock(wraps=SequenceMatcher)
    monkeypatch.setattr("difflib.SequenceMatcher", compare)
    assert "did you mean GET or POST /v1/poll?" in node.call("GET", "/v1/pol").json["detail"]
    assert compare.call_count == 1


def test_targets_of_other_forms(node: InMemoryNode) -> None:
    """Anything but a path is 400, except the `*` of OPTIONS. (The parser makes a path of a target in absolute form.)"""
    for target in ("x.example:443", "*", "http://x/healthz", ""):
        assert node.call("GET", target).status == 400
    assert node.call("OPTIONS", "*").status == 204


def test_an_answer_fits_the_output_buffer() -> None:
    """Within the default limits no answer is larger than the output buffer.

    Otherwise a client could be disconnected for its first answer again and again.
    """
    node = InMemoryNode()
    names = [f"{n:03}" + "x" * 252 for n in range(PollLimits().poll_channels_limit)]
    for _ in range(100):
        node.publish(*names, data=1)
    (answer,) = node.begin("POST", "/v1/poll", {"channels": names}).answers
    assert len(write(answer)) <= EdgeLimits().output_limit_bytes


def test_channels_are_listed_in_pages() -> None:
    """A page has at most `PAGE_LIMIT` channels by id; `after` returns the next page, and a bad value is refused."""
    node = InMemoryNode()
    ids = [node.call("POST", "/v1/channels", {"name": f"c{n}"}).json["id"] for n in range(PAGE_LIMIT + 2)]
    first = node.call("GET", "/v1/channels").json
    assert ([c["id"] for c in first["channels"]], first["more"]) == (ids[:PAGE_LIMIT], True)
    rest = node.call("GET", f"/v1/channels?after={ids[PAGE_LIMIT - 1]}").json
    assert ([c["id"] for c in rest["channels"]], rest["more"]) == (ids[PAGE_LIMIT:], False)
    for query in ("after=x", "after=", "after=%C2%B2", "after=1&after=2", "page=2"):
        result = node.call("GET", f"/v1/channels?{query}")
        assert (result.status, result.json["field"]) == (400, query.partition("=")[0])
