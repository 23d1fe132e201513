"""Plausible mistakes of first-time users, and what the errors must say."""

from __future__ import annotations

import gzip
import json
from typing import Any, NamedTuple

import pytest

from pushup.net.api.router import PATH_LIMIT, Call, Router
from pushup.net.api.suggestions import NAME_LIMIT, suggestion
from pushup.net.http_errors import UnknownResource
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.in_memory_server import InMemoryServer

KEY = "a-key-of-sixteen-characters"
MESSAGES, POLL, CHANNELS = "POST /v1/messages", "GET /v1/poll", "POST /v1/channels"
ONE = {"channels": ["news"], "data": 1}


class Mistake(NamedTuple):
    """A request (bytes in the body are sent as they are), its status, and parts of the error's detail."""

    request: str
    body: Any
    status: int
    said: tuple[str, ...]


def mistake(request: str, body: Any, status: int, *said: str) -> Mistake:
    return Mistake(request, body, status, said)


MISTAKES = [
    # Paths.
    mistake("GET /", b"", 404, "POST /v1/messages", "GET /v1/poll?channel=news"),
    mistake("POST /publish", ONE, 404, "did you mean POST or DELETE /v1/messages?"),
    mistake("POST /messages", ONE, 404, "did you mean POST or DELETE /v1/messages?"),
    mistake("POST /v1/message", ONE, 404, "did you mean POST or DELETE /v1/messages?"),
    mistake("POST /v1/messages/", ONE, 404, "did you mean POST or DELETE /v1/messages?"),
    mistake("POST /pushup/v1/messages", ONE, 404, "did you mean POST or DELETE /v1/messages?"),
    mistake("GET /poll?channel=news", b"", 404, "did you mean GET or POST /v1/poll?"),
    mistake("GET /v2/poll?channel=news", b"", 404, "did you mean GET or POST /v1/poll?"),
    mistake("GET /v1/subscribe?channel=news", b"", 404, "did you mean GET or POST /v1/poll?"),
    mistake("GET /V1/Poll?channel=news", b"", 404, "did you mean GET or POST /v1/poll?"),
    mistake("GET /v1/channel", b"", 404, "did you mean GET or POST /v1/channels?"),
    mistake("GET /v1/channel/news", b"", 404, "did you mean GET or DELETE /v1/channels/{channel}?"),
    mistake("GET /v1/channels/a/b", b"", 404, "/v1/channels/{channel}", "write / as %2F"),
    mistake("GET /v1/channels/news/renew/", b"", 404, "did you mean POST /v1/channels/{channel}/renew?"),
    mistake(f"GET /v1/channels/{'x' * 200}/renews", b"", 404, "did you mean POST /v1/channels/{channel}/renew?"),
    mistake("GET /health", b"", 404, "did you mean GET /healthz?"),
    mistake("GET /metric", b"", 404, "did you mean GET /metrics?"),
    mistake("GET v1/poll", b"", 400, "must begin with /"),
    mistake(f"GET /{'x' * 5000}", b"", 404, "...", "POST /v1/messages"),
    # Methods.
    mistake("GET /v1/messages", b"", 405, "/v1/messages takes POST or DELETE, not GET"),
    mistake("PUT /v1/channels/news", {}, 405, "/v1/channels/{channel} takes GET or DELETE, not PUT"),
    mistake("GET /v1/channels/news/renew", b"", 405, "takes POST, not GET"),
    # Query strings.
    mistake(POLL, b"", 400, "at least one channel", "?channel=news"),
    mistake(f"{POLL}?chanel=news", b"", 400, "unknown parameter 'chanel'; did you mean 'channel'?"),
    mistake(f"{POLL}?Channel=news", b"", 400, "did you mean 'channel'?"),
    mistake(f"{POLL}?topic=news", b"", 400, "did you mean 'channel'?"),
    mistake(f"{POLL}?channel[]=a&channel[]=b", b"", 400, "did you mean 'channel'?"),
    mistake(f"{POLL}?channels=a,b", b"", 400, "repeat `channel`", "channel=a&channel=b"),
    mistake(f"{POLL}?channel=a,b", b"", 400, "must not contain a comma", "channel=a&channel=b"),
    mistake(f"{POLL}?channel=user:*", b"", 400, "must not contain *", "patterns are not supported"),
    mistake("GET /v1/events?channel=a,b", b"", 400, "must not contain a comma", "channel=a&channel=b"),
    mistake("GET /v1/channels/a,b", b"", 400, "must not contain a comma"),
    mistake("DELETE /v1/channels/*", b"", 400, "patterns are not supported"),
    mistake(f"{POLL}?channel=a&since=e-5", b"", 400, "did you mean 'cursor'?"),
    mistake(f"{POLL}?channel=a&wait=5", b"", 400, "did you mean 'timeout'?"),
    mistake(f"{POLL}?channel=a&ticket=x", b"", 400, "header field PushUp-Ticket"),
    mistake(f"{POLL}?channel=a&foo=1", b"", 400, "the parameters are channel, cursor, timeout, limit, from, to"),
    mistake(f"{POLL}?channel=a&{'x' * 5000}=1", b"", 400, "the parameters are channel"),
    mistake(f"{POLL}?channel=a&timeout=25s", b"", 400, "number of seconds", "timeout=25"),
    mistake(f"{POLL}?channel=a&timeout=1&timeout=2", b"", 400, "duplicate parameter 'timeout'"),
    mistake(f"{POLL}?channel=a&limit=all", b"", 400, "whole number"),
    mistake(f"{POLL}?channel=a&limit=0", b"", 400, "at least 1"),
    mistake(f"{POLL}?channel=a&cursor=latest", b"", 400, "not a cursor", "earlier answer", "'earliest' or 'now'"),
    mistake(f"{POLL}?channel=a&from=yesterday", b"", 400, "seconds since the epoch", "2027-01-15T08:00:00Z"),
    mistake(f"{POLL}?channel=a&from=2027-01-15T08:00:00+01:00", b"", 400, "write + as %2B"),
    mistake(f"{POLL}?channel=caf%E9", b"", 400, "UTF-8", "caf%C3%A9"),
    mistake(f"{POLL}?channel=42", b"", 404, "must not be digits only", "user:42"),
    mistake("GET /v1/channels?page=2", b"", 400, "`after`"),
    mistake("GET /v1/channels?after=news", b"", 400, "channel's id"),
    # Bodies that are not JSON.
    mistake(MESSAGES, b"", 400, "the body is empty", '{"channels": ["news"], "data": "hello"}'),
    mistake(MESSAGES, b" \r\n", 400, "the body is empty"),
    mistake("POST /v1/poll", b"", 400, "the body is empty", '{"channels": ["news"]}'),
    mistake(MESSAGES, b"channels=news&data=hello", 400, "form data", "Content-Type: application/json", '"channels"'),
    mistake(MESSAGES, b"channels[]=news&data=caf%C3%A9", 400, "form data"),
    mistake(MESSAGES, b'--x\r\nContent-Disposition: form-data; name="data"\r\n\r\n1\r\n--x--', 400, "form data"),
    mistake(MESSAGES, b"hello", 400, "not valid JSON", "byte 0"),
    mistake(MESSAGES, b'{"channels": ["news"], "data": ', 400, "ends too early", "missing"),
    mistake(MESSAGES, b'{"channels":["a"],"data":"\\ud800', 400, "ends too early", "half of a pair"),
    mistake(MESSAGES, b"{'channels': ['news'], 'data': 1}", 400, "double quotation marks"),
    mistake(MESSAGES, b'{"channels": ["news"], "data": 1,}', 400, "trailing comma"),
    mistake(MESSAGES, b'{"channels": ["news"], "data": None}', 400, "true, false and null"),
    mistake(MESSAGES, b"\xef\xbb\xbf{}", 400, "byte order mark"),
    mistake(MESSAGES, b'{"channels": ["caf\xe9"], "data": 1}', 400, "invalid UTF-8 at byte 18"),
    mistake(MESSAGES, gzip.compress(b"{}", mtime=0), 400, "invalid UTF-8", "without compression"),
    # Bodies with another structure.
    mistake(MESSAGES, [ONE], 400, "the body must be an object, not a list; send", 'such as {"channels"'),
    mistake(MESSAGES, "hello", 400, "must be an object, not a string", 'such as {"channels"'),
    mistake(MESSAGES, {}, 400, "the field `channels` is missing"),
    mistake(MESSAGES, {"channel": "news", "data": 1}, 400, "did you mean `channels`, a list?"),
    mistake(MESSAGES, {"messages": [{"channel": "news", "data": 1}]}, 400, "did you mean `channels`, a list?"),
    mistake("POST /v1/poll", {"channel": "news"}, 400, "did you mean `channels`, a list?"),
    mistake(MESSAGES, {"channels": "news", "data": 1}, 400, "channels must be a list, not a string"),
    mistake(
        MESSAGES, {"messages": [ONE, {**ONE, "channels": [7]}]}, 400, "messages[1].channels[0] must be a string, not"
    ),
    mistake(MESSAGES, {**ONE, "ack_timeout": "5"}, 400, "ack_timeout must be a number, not a string"),
    mistake(MESSAGES, b'{"channels": ["news"], "ack_timeout": 1e999}', 400, "ack_timeout is out of range"),
    mistake(
        "POST /v1/poll", {"channels": ["news"], "limit": 1.5}, 400, "a whole number or null, not a number with a frac"
    ),
    mistake(
        "POST /v1/poll", {"channels": ["news"], "from": []}, 400, "from must be a number or a string or null, not a l"
    ),
    mistake(CHANNELS, {"ttl": True}, 400, "ttl must be a number or null, not true or false"),
    mistake("POST /v1/poll", {"x" * 200: 1}, 400, "unknown field `" + "x" * 100 + "...`; the fields are channels"),
    mistake("POST /v1/poll", {"` - at `$.channels": 1}, 400, "unknown field"),
    mistake(MESSAGES, {"channels": ["news"], "message": "hi"}, 400, "did you mean `data`?"),
    mistake(MESSAGES, {"channels": ["news"], "payload": "hi"}, 400, "did you mean `data`?"),
    mistake(MESSAGES, {"channels": ["news"]}, 400, "the field `data` is missing"),
    mistake(MESSAGES, {"messages": [{"channels": ["news"]}]}, 400, "the field `data` is missing"),
    mistake(MESSAGES, {**ONE, "ttl": 60}, 400, "unknown field `ttl`; the fields are ack, ack_timeout, channels, data"),
    mistake(MESSAGES, {"messages": [{**ONE, "ttl": 60}]}, 400, "unknown field `ttl`; the fields are channels, data"),
    mistake(MESSAGES, {**ONE, "idempotency_key": "k"}, 400, "header field Idempotency-Key"),
    mistake(MESSAGES, {**ONE, "ack": "sure"}, 400, "ack must be one of accepted, replicated, stable"),
    mistake(MESSAGES, {**ONE, "ack_timeout": 300}, 400, "at most 60 seconds"),
    mistake(MESSAGES, {**ONE, "messages": []}, 400, "either `messages`, or `channels` and `data`"),
    mistake(MESSAGES, {"channels": ["42"], "data": 1}, 404, "must not be digits only", "user:42"),
    mistake(MESSAGES, {"channels": [""], "data": 1}, 400, "1 to 255 bytes"),
    mistake(MESSAGES, {"channels": ["a,b"], "data": 1}, 400, "must not contain a comma", '["a", "b"]'),
    mistake(MESSAGES, {"messages": [{"channels": ["*"], "data": 1}]}, 400, "patterns are not supported"),
    mistake("POST /v1/poll", {"channels": ["a", "user:*"]}, 400, "patterns are not supported"),
    mistake(CHANNELS, {"name": "a,b"}, 400, "must not contain a comma"),
    mistake(MESSAGES, {"channels": ["a\nb"], "data": 1}, 400, "control characters"),
    mistake(MESSAGES, {"channels": ["news"], "data": "x" * 70_000}, 413, "at most 65536 bytes"),
    mistake("POST /v1/poll", {"channels": ["news"], "wait": 5}, 400, "did you mean `timeout`?"),
    mistake(CHANNELS, {"name": "42"}, 400, "digits only", "user:42"),
    mistake(CHANNELS, {"channel": "news"}, 400, "did you mean `name`?"),
    mistake(CHANNELS, {"name": "news", "expires": 60}, 400, "did you mean `ttl`?"),
    mistake(CHANNELS, {"name": "news", "ttl": 0}, 400, "ttl must be above 0", "seconds"),
    mistake("POST /v1/channels/news/renew", {"timeout": 60}, 400, "did you mean `ttl`?"),
    mistake("GET /v1/channels/news", b"", 404, "channel 'news' does not exist"),
    mistake("DELETE /v1/channels/42", b"", 404, "must not be digits only"),
]


@pytest.mark.parametrize(("request_line", "body", "status", "said"), MISTAKES)
def test_a_mistake_is_explained(request_line: str, body: Any, status: int, said: tuple[str, ...]) -> None:
    """The detail says what is wrong and what to do; nothing is published or created."""
    node = InMemoryNode()
    method, target = request_line.split(" ", 1)
    result = node.call(method, target, body)
    assert result.status == status
    for part in said:
        assert part in result.json["detail"]
    assert (node.state.message_count, len(node.state.channels)) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({}, 401, "send a publish key: Authorization: Bearer <key>"),
        ({"Authorization": KEY}, 401, "Authorization: Bearer <key>"),
        ({"Authorization": "Basic eDp5"}, 401, "Authorization: Bearer <key>"),
        ({"X-Api-Key": KEY}, 401, "Authorization: Bearer <key>"),
        ({"Authorization": f"Bearer {KEY}x"}, 403, "this publish key is unknown"),
    ],
)
def test_a_mistake_with_a_key_is_explained(headers: dict[str, str], status: int, said: str) -> None:
    """A key that is missing, in the wrong place, or wrong."""
    result = InMemoryNode(publish_keys=(KEY,)).call("POST", "/v1/messages", ONE, **headers)
    assert (result.status, said in result.json["detail"]) == (status, True), result


def test_a_wrong_host_or_origin_is_explained() -> None:
    """The detail names the setting to change."""
    result = InMemoryNode(hosts=()).call("GET", "/v1/poll?channel=a", Host="push.example:8080")
    assert result.status == 421
    assert "'push.example:8080'" in result.json["detail"]
    assert "the setting hosts" in result.json["detail"]
    result = InMemoryNode().call("POST", "/v1/messages", ONE, Origin="https://app.example", Host="localhost")
    assert result.status == 403
    assert "the setting cors_origins" in result.json["detail"]


def test_a_target_that_is_too_long_is_explained() -> None:
    """With what to send instead."""
    node = InMemoryNode()
    client = InMemoryServer(node.api, clock=node.clock).connect()
    client.send(b"GET /v1/poll?channel=a" + b"&channel=b" * 1000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    reply = client.reply()
    assert reply.status == 414
    assert "exceeds 8192 bytes; a POST takes many channels in its body" in json.loads(reply.body)["detail"]


def test_an_unknown_path_is_shown_as_text() -> None:
    """Whatever bytes the path has, the response is JSON in UTF-8."""
    node = InMemoryNode()
    exchange = RecordingExchange()
    node.api(Request(b"GET", b'/caf\xc3\xa9/\xff"\\', {}, keep_alive=True), exchange)
    (response,) = exchange.responses
    detail = json.loads(response.body.decode())["detail"]
    assert detail.startswith('there is nothing at /café/\N{REPLACEMENT CHARACTER}"\\;')


def test_long_names_are_not_compared() -> None:
    """Comparing names takes quadratic time, so long ones get no suggestion."""
    assert suggestion("chanel", ("channel",)) == "channel"
    assert suggestion("channel" * (NAME_LIMIT // 7 + 1), ("channel" * (NAME_LIMIT // 7) + "x",)) is None
    near = "/v1/" + "x" * PATH_LIMIT
    known = Call("GET", near + "y", lambda *arguments: None)
    router = Router([known])
    for path, suggested in ((near[:PATH_LIMIT], True), (near, False)):
        with pytest.raises(UnknownResource) as raised:
            router.find(Request(b"GET", path.encode(), {}, keep_alive=True))
        assert ("did you mean" in raised.value.detail) == suggested
