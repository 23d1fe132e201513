"""Event streams with `format=raw`, read as browsers do."""

from __future__ import annotations

import json

import pytest

from pushup.core.commands import Continue, Entry
from pushup.core.limits import Limits
from pushup.net.api.schemas import StreamLimits
from tests.net.event_reader import Event, data_of, read_chunks, read_events, read_raw
from tests.net.in_memory_node import InMemoryNode, RecordingExchange

HEARTBEAT = StreamLimits().stream_heartbeat_seconds


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(limits=Limits(retention_messages=20))


def open_stream(node: InMemoryNode, query: str = "channel=a&format=raw", **headers: str) -> RecordingExchange:
    exchange = node.begin("GET", f"/v1/events?{query}", **headers)
    assert [(head.status, head.content_type) for head in exchange.responses] == [(200, b"text/event-stream")]
    return exchange


def take(exchange: RecordingExchange) -> list[Event]:
    """The events since the last call."""
    written, exchange.written = exchange.written, b""
    return read_raw(read_chunks(written)[0])


def publish(node: InMemoryNode, data: object, event: str = "", channel: str = "a") -> None:
    body = {"channels": [channel], "data": data, "event": event}
    assert node.call("POST", "/v1/messages", body).status == 201
    node.run()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("hello", "hello"),
        ("", ""),
        (" ", " "),
        ("\n", "\n"),
        ("a\n", "a\n"),
        ("a\nb\rc\r\nd", "a\nb\nc\nd"),
        ("\n\nid: 7\nevent: gap\ndata: x", "\n\nid: 7\nevent: gap\ndata: x"),
        ('<p title="é">🎈</p>', '<p title="é">🎈</p>'),
        ("\0\ufeff\u2028\x85", "\0\ufeff\u2028\x85"),
        (None, "null"),
        (1.5, "1.5"),
        (["a\nb"], '["a\\nb"]'),
        ({"a": "b"}, '{"a": "b"}'),
    ],
)
def test_data(node: InMemoryNode, data: object, text: str) -> None:
    """A string comes as it is, but for its line ends, which are all the same in a stream; anything else as JSON."""
    stream = open_stream(node)
    take(stream)
    publish(node, data)
    assert take(stream) == [Event("", "e-1", text)]


def test_json_in_lines(node: InMemoryNode) -> None:
    """White space between the tokens of JSON stays."""
    node.call("POST", "/v1/messages", b'{"channels": ["a"], "data": {\n "x":\r\n 1.00}}')
    assert take(open_stream(node)) == [Event("", "e-1", '{\n "x":\n 1.00}')]


def test_an_event_has_the_name_of_its_message(node: InMemoryNode) -> None:
    """So that one publication serves both formats."""
    publish(node, "<li>", "datastar-patch-elements")
    publish(node, "<li>")
    assert take(open_stream(node)) == [Event("datastar-patch-elements", "e-1", "<li>"), Event("", "e-2", "<li>")]
    envelopes = read_events(read_chunks(open_stream(node, "channel=a").written)[0])
    assert data_of(envelopes) == ["<li>", "<li>"]


def test_every_event_has_data(node: InMemoryNode) -> None:
    """A library may ignore the id of an event without data, and show the data of one without a name."""
    stream = open_stream(node)
    assert stream.written.partition(b"\r\n")[2].startswith(b":\nretry: 1000\n\n")
    assert take(stream) == [Event("cursor", "e-0", "{}")]
    node.advance(HEARTBEAT + 1)
    assert read_chunks(stream.written) == (b":\nevent: cursor\nid: e-0\ndata: {}\n\n", False)
    take(stream)
    node.call("POST", "/v1/channels", {"name": "a"})
    node.call("DELETE", "/v1/channels/a")
    node.run()
    assert take(stream) == [Event("closed", "", '{"channel":"a"}'), Event("cursor", "e-2", "{}")]


def test_gaps(node: InMemoryNode) -> None:
    """A gap moves no cursor, and ends with an event that has its end as id: a message, or a cursor."""
    for n in range(25):
        publish(node, str(n))
    gap, *messages, end = take(open_stream(node, "channel=a&cursor=e-2&format=raw"))
    assert (gap.event, gap.id, json.loads(gap.data)["until"]) == ("gap", "", "e-5")
    assert [(event.event, event.id, event.data) for event in messages] == [
        ("cursor", "e-5", "{}"), *(("", f"e-{n + 1}", str(n)) for n in range(5, 25)),
    ]  # fmt: skip
    assert end == Event("cursor", "e-25", "{}")


def test_ids_of_an_epoch_with_a_new_name(node: InMemoryNode) -> None:
    """A client never goes back to the old one."""
    publish(node, "x")
    state = node.node.state
    node.node.apply(Entry("e", state.cursor.sequence + 1, state.time, Continue("f")))
    assert take(open_stream(node)) == [Event("", "f-1", "x"), Event("cursor", "f-2", "{}")]


def test_why_a_stream_ends(node: InMemoryNode) -> None:
    """The problem is the data of the last event."""
    created = node.call("POST", "/v1/channels", {"name": "a"}).json
    stream = open_stream(node, f"channel={created['id']}&format=raw")
    node.call("DELETE", "/v1/channels/a")
    node.advance(HEARTBEAT + 1)
    *_, last = take(stream)
    assert (last.event, last.id != "", json.loads(last.data)["status"]) == ("error", True, 404)
    assert stream.held is None


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("format=json", 200, None),
        ("format=", 200, None),
        ("x=1&format=raw", 400, "x"),
        ("format=xml", 400, "format"),
        ("format=Raw", 400, "format"),
        ("format", 200, None),
        ("format=raw&format=raw", 400, "format"),
        ("f%6frmat=raw", 200, None),
        ("formt=raw", 400, "formt"),
    ],
)
def test_formats(node: InMemoryNode, query: str, status: int, field: str | None) -> None:
    """There are two; a mistake is named, wherever in the query it is."""
    for target in (f"{query}&channel=a", f"channel=a&{query}"):
        (response,) = node.begin("GET", f"/v1/events?{target}").responses
        assert response.status == status
        assert field is None or json.loads(response.body)["field"] == field


def test_both_formats_are_named(node: InMemoryNode) -> None:
    """The error says what can be given instead; a poll takes neither."""
    by_query = node.call("GET", "/v1/events?channel=a&format=xml").json["detail"]
    by_body = node.call("POST", "/v1/events", {"channels": ["a"], "format": "xml"}).json["detail"]
    assert by_query == by_body == "format must be one of json, raw"
    assert "'format'" in node.call("GET", "/v1/events?channel=a&formt=raw").json["detail"]
    for poll in (
        node.call("GET", "/v1/poll?channel=a&format=raw"),
        node.call("POST", "/v1/poll", {"channels": ["a"], "format": "raw"}),
    ):
        assert (poll.status, poll.json["field"]) == (400, "format")
        assert "/v1/events" in poll.json["detail"]


def test_a_body_has_a_format(node: InMemoryNode) -> None:
    publish(node, "x")
    assert take(node.begin("POST", "/v1/events", {"channels": ["a"], "format": "raw"})) == [Event("", "e-1", "x")]


@pytest.mark.parametrize(("accept", "status"), [
    ("application/x-ndjson", 406), ("text/html", 406), ("text/event-stream;q=0, */*", 406),
    ("application/x-ndjson, text/event-stream;q=0.1", 200), ("text/html, text/event-stream", 200), ("*/*", 200),
])  # fmt: skip
def test_accept(node: InMemoryNode, accept: str, status: int) -> None:
    """Raw events are server-sent events."""
    (response,) = node.begin("GET", "/v1/events?channel=a&format=raw", accept=accept).responses
    assert response.status == status
    if status == 406:
        assert json.loads(response.body)["field"] == "Accept"
        assert "text/event-stream" in json.loads(response.body)["detail"]
