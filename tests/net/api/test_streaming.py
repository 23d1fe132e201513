"""Event streams on a complete node without a network."""

from __future__ import annotations

import json
from random import Random

import pytest

from pushup.core.commands import Continue, Entry
from pushup.core.held_polls import SLICE
from pushup.core.limits import Limits
from pushup.net.api.event_encoding import MEDIA_RANGES_LIMIT
from pushup.net.api.schemas import PollLimits, StreamLimits
from pushup.net.api.streaming import AGE_JITTER
from pushup.net.requests_and_responses import Request
from tests.net.event_reader import Event, cursor_of, data_of, read_chunks, read_events, read_lines
from tests.net.in_memory_node import InMemoryNode, RecordingExchange, take

HEARTBEAT = StreamLimits().stream_heartbeat_seconds


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(limits=Limits(retention_messages=20))


def open_stream(node: InMemoryNode, query: str, **headers: str) -> RecordingExchange:
    exchange = node.begin("GET", f"/v1/events?{query}", **headers)
    (head,) = exchange.responses
    assert head.status == 200, head
    return exchange


def has_ended(exchange: RecordingExchange) -> bool:
    return exchange.streamed is not None and exchange.held is None


def test_a_stream_begins_with_what_is_cached_and_goes_on(node: InMemoryNode) -> None:
    """Each message has its cursor, so that the client can go on from any of them."""
    node.publish("a", data=1)
    node.publish("b", data="no")
    node.publish("a", data=2)
    stream = open_stream(node, "channel=a")
    assert stream.written.partition(b"\r\n")[2].startswith(b":\nretry: 1000\n\n")
    events = take(stream)
    assert [(e.id, e.data["id"], e.data["channels"]) for e in events] == [
        ("e-1", "e-1", ["a"]), ("e-3", "e-3", ["a"]),
    ]  # fmt: skip
    node.publish("b")
    assert take(stream) == []
    node.publish("a", data=3)
    assert take(stream) == [Event("", "e-5", {"id": "e-5", "time": node.clock.seconds(), "channels": ["a"], "data": 3})]
    assert node.poll("channel=a&cursor=e-3").messages[0].id == "e-5"
    node.check()


@pytest.mark.parametrize(
    ("query", "cursor"), [("", "e-1"), ("&cursor=now", "e-1"), ("&cursor=e-0", ""), ("&cursor=", "e-1")]
)
def test_a_client_without_a_cursor_gets_one_at_once(node: InMemoryNode, query: str, cursor: str) -> None:
    """An interrupted start loses nothing: whatever comes next comes after this cursor."""
    node.publish("other")
    stream = open_stream(node, f"channel=a{query}")
    assert cursor_of(take(stream)) == cursor
    node.publish("a", data=1)
    assert data_of(take(stream)) == [1]


def test_what_was_dropped_before_a_stream_began_is_no_loss(node: InMemoryNode) -> None:
    """Not even if it came after a message that another channel still has: the client gets a cursor after both."""
    node.publish("a", data=1)
    node.publish("b", data=2)
    node.call("DELETE", "/v1/channels/b")
    node.run()
    events = take(open_stream(node, "channel=a&channel=b"))
    assert [event.id for event in events] == ["e-1", "e-3"]
    assert data_of(events) == [1]
    assert node.poll(f"channel=a&channel=b&timeout=0&cursor={cursor_of(events)}").gaps == ()
    resumed = take(open_stream(node, "channel=a&channel=b&cursor=e-1"))
    assert [event.event for event in resumed] == ["gap", "closed", "", ""]


def test_an_id_is_a_cursor_of_the_present_epoch(node: InMemoryNode) -> None:
    """Messages keep the ids that they got before the epoch was renamed; a client never goes back to that name."""
    node.publish("a", data=1)
    state = node.node.state
    node.node.apply(Entry("e", state.cursor.sequence + 1, state.time, Continue("f")))
    event, end = take(open_stream(node, "channel=a"))
    assert (event.id, event.data["id"], end) == ("f-1", "e-1", Event("", "f-2", None))
    assert node.poll("channel=a&timeout=0&cursor=f-1").messages == ()


def test_now_leaves_out_what_is_cached(node: InMemoryNode) -> None:
    node.publish("a", data=1)
    stream = open_stream(node, "channel=a&cursor=now")
    assert take(stream) == [Event("", "e-1", None)]


def test_lines_of_json(node: InMemoryNode) -> None:
    """The same events, one JSON object on each line, whatever the data contains."""
    node.call("POST", "/v1/messages", b'{"channels": ["a"], "data": {\n "x":\r\n "\\n"}}')
    text = open_stream(node, "channel=a")
    lines = open_stream(node, "channel=a", accept="application/x-ndjson")
    assert lines.responses[0].content_type == b"application/x-ndjson"
    node.publish("a", data="\u2028")
    node.call("DELETE", "/v1/channels/a")
    node.run()
    written, _ = read_chunks(lines.written)
    assert read_lines(written) == take(text) == [
        Event("", "e-1", {"id": "e-1", "time": node.clock.seconds(), "channels": ["a"], "data": {"x": "\n"}}),
        Event("", "e-2", {"id": "e-2", "time": node.clock.seconds(), "channels": ["a"], "data": "\u2028"}),
        Event("closed", "", {"channel": "a"}),
        Event("", "e-3", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", b"text/event-stream"),
        ("*/*", b"text/event-stream"),
        ("text/*;q=0.3, application/x-ndjson;q=0.2", b"text/event-stream"),
        ("text/event-stream", b"text/event-stream"),
        ("application/x-ndjson", b"application/x-ndjson"),
        ("Application/X-NDJSON; charset=utf-8, text/html", b"application/x-ndjson"),
        ("text/event-stream;q=0.1, application/*;q=0.2", b"application/x-ndjson"),
        ("text/event-stream;q=0, */*", b"application/x-ndjson"),
        ("text/event-stream;q=x", b"text/event-stream"),
        ("text/html", None),
        ("application/json, text/event-stream;q=0", None),
        (",;,=", None),
        ("," * (MEDIA_RANGES_LIMIT - 1) + "text/event-stream", b"text/event-stream"),
        ("," * MEDIA_RANGES_LIMIT + "text/event-stream", None),  # else 14 KB of commas take 10 ms
        ("text/event-stream" + ";" * 1000, b"text/event-stream"),
    ],
)  # fmt: skip
def test_accept(node: InMemoryNode, accept: str, content_type: bytes | None) -> None:
    (response,) = node.begin("GET", "/v1/events?channel=a", accept=accept).responses
    if content_type is None:
        assert (response.status, json.loads(response.body)["field"]) == (406, "Accept")
    else:
        assert (response.status, response.content_type) == (200, content_type)


@pytest.mark.parametrize(
    ("query", "headers", "status", "field"),
    [
        ("", {}, 400, "channel"),
        ("chanel=a", {}, 400, "chanel"),
        ("channel=a&timeout=5", {}, 400, "timeout"),
        ("channel=a&limit=5", {}, 400, "limit"),
        ("channel=a&cursor=x", {}, 400, "cursor"),
        ("channel=a", {"last_event_id": "x y"}, 400, "Last-Event-ID"),
        ("channel=a", {"last_event_id": "e-1, e-1"}, 400, "Last-Event-ID"),
        ("channel=7", {}, 404, "channel"),
        ("&".join(f"channel={n}x" for n in range(101)), {}, 400, "channel"),
    ],
)
def test_what_is_wrong_is_said_before_the_stream_begins(
    node: InMemoryNode, query: str, headers: dict[str, str], status: int, field: str | None
) -> None:
    """As for a poll, and nothing stays behind."""
    result = node.call("GET", f"/v1/events?{query}", **headers)
    assert (result.status, result.json.get("field")) == (status, field)
    assert (node.streaming.count, node.polls.count) == (0, 0)


def test_no_parameter_of_a_poll_is_suggested(node: InMemoryNode) -> None:
    """A stream would refuse it as well."""
    for name in ("timeot", "limits", "xyz"):
        detail = node.call("GET", f"/v1/events?channel=a&{name}=1").json["detail"]
        assert "timeout" not in detail
        assert "'limit'" not in detail


def test_a_body_has_the_same_parameters(node: InMemoryNode) -> None:
    """But neither a timeout nor a limit."""
    node.publish("a", data=1)
    exchange = node.begin("POST", "/v1/events", {"channels": ["a"], "cursor": "e-0"})
    assert data_of(take(exchange)) == [1]
    for field in ("timeout", "limit"):
        result = node.call("POST", "/v1/events", {"channels": ["a"], field: 1})
        assert (result.status, result.json["field"]) == (400, field)


def test_head(node: InMemoryNode) -> None:
    """A HEAD request is answered at once with the head of the stream, or with the error, and opens no stream."""
    node.publish("a")
    for query in ("channel=a", "channel=a&cursor=e-1", "channel=a&cursor=e-9"):
        exchange = node.begin("HEAD", f"/v1/events?{query}")
        assert [(r.status, r.content_type) for r in exchange.responses] == [(200, b"text/event-stream")]
        assert (exchange.written, has_ended(exchange)) == (b"", True)
    assert node.call("HEAD", "/v1/events?channel=7").status == 404
    assert node.call("HEAD", "/v1/events?channel=a", last_event_id="x y").status == 400
    assert (node.streaming.count, node.polls.count) == (0, 0)


def test_gaps_come_before_what_follows_and_move_no_cursor(node: InMemoryNode) -> None:
    """If the connection breaks right after one, the client is told again; once it has the next cursor, it is not."""
    for n in range(25):
        node.publish("a", data=n)
    stream = open_stream(node, "channel=a&cursor=e-2")
    events = take(stream)
    assert events[0] == Event("gap", "", {"channel": "a", "reason": "evicted", "until": "e-5"})
    assert data_of(events) == list(range(5, 25))
    assert [e.event for e in take(open_stream(node, f"channel=a&cursor={cursor_of(events)}"))] == []
    lost = take(open_stream(node, "channel=b&cursor=z-2"))
    assert lost == [
        Event("gap", "", {"channel": "b", "reason": "lost", "until": "e-0"}),
        Event("", "e-0", None),
        Event("", "e-25", None),
    ]


def test_a_closed_channel_is_told_and_the_cursor_passes_it(node: InMemoryNode) -> None:
    """A client that continues from there is not told again."""
    node.publish("a", data=1)
    stream = open_stream(node, "channel=a")
    take(stream)
    node.call("DELETE", "/v1/channels/a")
    node.run()
    events = take(stream)
    assert events == [Event("closed", "", {"channel": "a"}), Event("", "e-2", None)]
    assert take(open_stream(node, "channel=a&cursor=e-2")) == []


def test_heartbeats(node: InMemoryNode) -> None:
    """Without events, a comment and the cursor come, which keeps the client's cursor from growing old."""
    stream = open_stream(node, "channel=a")
    take(stream)
    node.publish("other")
    node.advance(HEARTBEAT - 1)
    assert stream.written == b""
    node.advance(2)
    assert read_chunks(stream.written) == (b":\nid: e-1\n\n", False)
    take(stream)
    node.publish("a", data=1)
    assert data_of(take(stream)) == [1]


def test_heartbeats_of_lines_of_json(node: InMemoryNode) -> None:
    stream = open_stream(node, "channel=a", accept="application/x-ndjson")
    stream.written = b""
    node.advance(HEARTBEAT + 1)
    assert read_chunks(stream.written) == (b'{"id":"e-0"}\n', False)


@pytest.mark.parametrize(("random", "age"), [(0.0, 100.0), (1.0, 100.0 * (1 - AGE_JITTER))])
def test_a_stream_ends_at_its_maximum_age(random: float, age: float) -> None:
    """Less a random part; the client continues with its cursor."""
    node = InMemoryNode(stream_limits=StreamLimits(stream_seconds=100.0), random=lambda: random)
    stream = open_stream(node, "channel=a")
    node.advance(age - 1)
    node.publish("a", data=1)
    assert not has_ended(stream)
    node.advance(1.25)
    assert has_ended(stream)
    assert read_chunks(stream.written)[1]
    assert (node.streaming.count, node.polls.count) == (0, 0)


def test_a_stream_ends_with_its_time_range(node: InMemoryNode) -> None:
    """What is published at its end is not in it; nothing can come later."""
    end = node.clock.seconds() + 10
    stream = open_stream(node, f"channel=a&to={end}")
    node.publish("a", data=1)
    node.advance(9)
    assert not has_ended(stream)
    node.advance(1.25)
    assert has_ended(stream)
    assert data_of(take(stream)) == [1]
    assert node.streaming.count == 0
    past = open_stream(node, f"channel=a&to={end}&cursor=e-0")
    node.run()
    assert has_ended(past)
    assert data_of(take(past)) == [1]


def test_a_client_that_leaves_leaves_nothing_behind(node: InMemoryNode) -> None:
    """Neither a held poll nor a count, at whatever moment."""
    stream = open_stream(node, "channel=a")
    node.leave(stream)
    assert (node.streaming.count, node.polls.count) == (0, 0)
    node.publish("a")
    for n in range(1, 20):
        node.publish("a", data=n)
    small = InMemoryNode(poll_limits=PollLimits(poll_limit=3))
    for n in range(9):
        small.publish("a", data=n)
    stream = open_stream(small, "channel=a")  # the next page is due in the next turn
    small.leave(stream)
    written = stream.written
    small.run()
    assert stream.written == written
    assert (small.streaming.count, small.polls.count) == (0, 0)


def test_a_long_backlog_comes_in_pages_a_turn_each() -> None:
    """Other connections have their turn in between."""
    node = InMemoryNode(poll_limits=PollLimits(poll_limit=3))
    for n in range(10):
        node.publish("a", data=n)
    stream = open_stream(node, "channel=a")
    pages = [data_of(take(stream))]
    while node.soon:
        node.turn()
        pages.append(data_of(take(stream)))
    assert pages == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    node.publish("a", data=10)
    assert data_of(take(stream)) == [10]


def test_a_client_that_does_not_read_gets_no_further_page() -> None:
    """The backlog waits in the cache. What is published once it has been sent accumulates."""
    node = InMemoryNode(poll_limits=PollLimits(poll_limit=3))
    for n in range(7):
        node.publish("a", data=n)
    stream = RecordingExchange()
    stream.blocks = True
    node.api(Request(b"GET", b"/v1/events?channel=a", {}, keep_alive=True), stream)
    node.run()
    assert data_of(take(stream)) == [0, 1, 2]
    for expected in ([3, 4, 5], [6]):
        assert stream.streamed is not None
        stream.streamed.drained()
        node.run()
        assert data_of(take(stream)) == expected
    node.publish("a", data=7)
    node.publish("a", data=8)
    assert data_of(take(stream)) == [7, 8]
    assert stream.streamed is not None
    stream.streamed.drained()
    assert node.polls.count == 1


def test_a_drain_ends_streams_with_their_cursors(node: InMemoryNode) -> None:
    """They are spread over the drain as polls are; a stream that begins meanwhile soon ends, too."""
    streams = [open_stream(node, "channel=a") for _ in range(3 * SLICE)]
    done = node.node.drain(4.0)
    for _ in range(20):
        node.clock.advance(0.1)
        node.run()
    ended = sum(map(has_ended, streams))
    assert SLICE < ended < 2.5 * SLICE
    late = open_stream(node, "channel=a")
    for _ in range(30):
        node.clock.advance(0.1)
        node.run()
    assert done.called
    assert all(map(has_ended, [*streams, late]))
    assert {cursor_of(take(stream)) for stream in streams} == {"e-0"}
    assert (node.streaming.count, node.polls.count) == (0, 0)


def test_an_error_ends_the_stream_with_an_event(node: InMemoryNode) -> None:
    """A channel is closed that was asked for by its id: the stream cannot go on, and says why.

    A new channel with the name is another one, and the stream gets nothing of it.
    """
    channel = node.call("POST", "/v1/channels", {"name": "a"}).json
    stream = open_stream(node, f"channel={channel['id']}&cursor=e-1")
    node.call("DELETE", "/v1/channels/a")
    node.run()
    *closed, error = take(stream)
    assert closed == [Event("closed", "", {"channel": "a"}), Event("", "e-2", None)]
    assert (error.event, error.data["type"]) == ("error", "urn:pushup:unknown-channel")
    assert has_ended(stream)
    node.publish("a", data=1)
    assert take(stream) == []
    assert (node.streaming.count, node.polls.count) == (0, 0)


@pytest.mark.parametrize("form", ["poll", "events"])
def test_a_channel_that_is_closed_and_opened_again_at_once(node: InMemoryNode, form: str) -> None:
    """Who asked for it by its id gets nothing of the new one, also if both entries come before it is answered."""
    channel = node.call("POST", "/v1/channels", {"name": "a"}).json
    waiting = node.begin("GET", f"/v1/{form}?channel={channel['id']}&cursor=e-1")
    node.call("DELETE", "/v1/channels/a")
    node.publish("a", data=1)
    if form == "poll":
        (answer,) = waiting.answers
        assert (answer.closed, answer.messages) == (("a",), ())
    else:
        assert [event.event for event in take(waiting)] == ["closed", "", "error"]


def test_equal_events_are_encoded_once(node: InMemoryNode) -> None:
    first, second = (open_stream(node, "channel=a&cursor=e-0") for _ in range(2))
    first.written = second.written = b""
    node.publish("a", data=1)
    assert first.written
    assert first.written is second.written  # `b"" + data` is that data


@pytest.mark.parametrize("seed", range(30))
def test_streams_and_polls_take_over_from_each_other(seed: int) -> None:
    """A client that changes between them at any cursor, whenever it likes, gets each message once and in order."""
    random = Random(seed)
    node = InMemoryNode(poll_limits=PollLimits(poll_limit=random.choice([1, 3, 100])))
    cursor, got, published = "e-0", [], 0
    stream: RecordingExchange | None = None
    for _ in range(200):
        match random.randrange(6):
            case 0 | 1 | 2:
                node.call("POST", "/v1/messages", {"channels": [random.choice("abc")], "data": published})
                published += 1
            case 3:
                node.turn()
            case 4 if stream is None:
                stream = open_stream(node, f"channel=a&channel=b&channel=c&cursor={cursor}")
            case 4 if stream is not None:
                if not has_ended(stream):
                    node.leave(stream)
                content = read_chunks(stream.written)[0].decode()
                cut = content[: random.randrange(len(content) + 1)]  # the connection broke somewhere
                events = read_events(cut[: cut.rfind("\n\n") + 2].encode() if "\n\n" in cut else b"")
                got += data_of(events)
                cursor = cursor_of(events, cursor)
                stream = None
            case 5 if stream is None:
                answer = node.poll(f"channel=a&channel=b&channel=c&timeout=0&cursor={cursor}")
                got += [json.loads(bytes(m.data)) for m in answer.messages]
                cursor = answer.cursor
            case _:
                node.advance(random.choice([0.25, 20.0]))
    node.run()
    if stream is not None:
        events = take(stream)
        got += data_of(events)
        cursor = cursor_of(events, cursor)
        node.leave(stream)
    while (answer := node.poll(f"channel=a&channel=b&channel=c&timeout=0&cursor={cursor}")).messages:
        got += [json.loads(bytes(m.data)) for m in answer.messages]
        cursor = answer.cursor
    assert got == list(range(published))
    assert (node.streaming.count, node.polls.count) == (0, 0)
