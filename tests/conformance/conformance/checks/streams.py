"""Event streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from conformance.events import EVENTS, LINES, RAW, Event, EventStream, media_type
from conformance.follower import Follower
from conformance.pushup import FOREIGN_CURSOR
from conformance.registry import Failed, NotApplicable, must
from conformance.trial import LONG, Trial
from conformance.wire import Response

BOTH = ("native", "second node")

GAPS = ("native", "gaps")

KINDS = (EVENTS, LINES)

METHODS = ("GET", "POST")

PATHS = ("/v1/poll", "/v1/events")

LIMIT_SECONDS = 30.0
"""The longest time without anything, by STREAM-3."""

VALUES: tuple[Any, ...] = (
    None, True, 0, -1.5e-9, "", "a\nb\r\nc\rd", "data: x\n\nid: 7\n\n", ":", " ", "\u2028\u2029\u0085\ufeff",
    "é日🎈", [], {}, {"event": "x", "id": "y", "data": [None]},
)  # fmt: skip
"""What could be taken for the lines of a stream, among others."""


@must("STREAM-1")
def are_server_sent_events(t: Trial) -> None:
    """A stream is 200 with text/event-stream unless another format is asked for, whichever way its parameters come."""
    client, name = t.client(), t.channel()
    client.publish(name, 1)
    for headers in ({}, {"Accept": "*/*"}, {"Accept": EVENTS}):
        for method in METHODS:
            reader = t.client()
            stream = reader.stream(name, method=method, **headers)
            t.same("the type", media_type(stream.head), EVENTS)
            t.same("the message", stream.message(), 1)
            reader.close()


@must("STREAM-1")
def may_be_lines_of_json(t: Trial) -> None:
    """As application/x-ndjson the same events come, with the same fields, a line each."""
    client, name = t.client(), t.channel()
    streams = [t.client().stream(name, Accept=kind) for kind in KINDS]
    t.same("the types", [media_type(stream.head) for stream in streams], list(KINDS))
    client.publish(name, {"a": "b\nc"})
    client.publish(name, None)
    messages = [[stream.named("") for _ in range(2)] for stream in streams]  # before they are dropped
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    texts, lines = ([*events, stream.named("closed")] for events, stream in zip(messages, streams, strict=True))
    t.same("the lines", lines, texts)


@must("STREAM-1")
def come_as_clients_prefer(t: Trial) -> None:
    """Where Accept allows both formats, the one with the higher quality comes."""
    name = t.channel()
    for accept, kind in (
        (f"{EVENTS};q=0.4, {LINES};q=0.5", LINES),
        (f"{EVENTS};q=0.5, {LINES};q=0.4", EVENTS),
        (f"{EVENTS};q=0, */*", LINES),
        (f"text/html, {LINES}", LINES),
    ):
        t.same(f"the type for {accept}", media_type(t.client().stream(name, Accept=accept).head), kind)


@must("STREAM-1")
def have_no_other_format(t: Trial) -> None:
    """Where Accept allows neither format, the answer is 406."""
    client, name = t.client(), t.channel()
    for accept in ("text/html", "application/json", f"{EVENTS};q=0, {LINES};q=0"):
        t.problem(client.call("GET", f"/v1/events?channel={name}", Accept=accept), 406, "not-acceptable")


@must("STREAM-2")
def fail_as_polls_do(t: Trial) -> None:
    """What is wrong with a poll is wrong with a stream: the same status, type and field, before anything is sent."""
    client, name = t.client(), t.channel()
    for query in (
        "", f"channel={name}&chanel=x", f"channel={name}&cursor=not+a+cursor", f"channel={name}&from=yesterday",
        f"channel={name}&cursor=now&cursor=now", "channel=%00", "channel=999999999999999",
        "&".join(f"channel={name}.{n}" for n in range(t.limits["poll_channels_limit"] + 1)),
    ):  # fmt: skip
        _fails_as_a_poll(t, *(client.call("GET", f"{path}?{query}") for path in PATHS))
    bodies: tuple[Any, ...] = (
        b"", b"{", b"[]", {}, {"channels": []}, {"channels": [name], "more": 1}, {"channels": [name], "cursor": 1},
        {"channels": ["x" * 256]}, {"channels": ["x" * t.limits["poll_body_limit_bytes"]]},
    )  # fmt: skip
    for body in bodies:
        _fails_as_a_poll(t, *(client.call("POST", path, body) for path in PATHS))


def _fails_as_a_poll(t: Trial, poll: Response, stream: Response) -> None:
    t.true(poll.status >= 400, f"expected the poll to fail, and {poll} came")
    wanted = poll.json
    t.problem(stream, poll.status, wanted["type"].rpartition(":")[2], wanted.get("field", ""))


@must("STREAM-2", "credentials")
def keep_strangers_out(t: Trial) -> None:
    """A stream without credentials gets 401 or 403, and nothing of the channel."""
    client, name = t.client(), t.channel()
    client.publish(name, "private")
    for ticket in ("", "nonsense"):
        target = f"/v1/events?channel={name}"
        response = t.status(client.call("GET", target, PushUp_Ticket=ticket, **t.without_credentials()), 401, 403)
        t.true(b"private" not in response.body, f"expected nothing of the channel, and {response} came")


@must("STREAM-2")
def have_neither_timeout_nor_limit(t: Trial) -> None:
    """The timeout and the limit of a poll get 400."""
    client, name = t.client(), t.channel()
    for field in ("timeout", "limit"):
        t.problem(client.call("GET", f"/v1/events?channel={name}&{field}=5"), 400, "bad-request", field)
        t.problem(client.call("POST", "/v1/events", {"channels": [name], field: 5}), 400, "bad-request", field)


@must("STREAM-3")
def begin_at_once(t: Trial) -> None:
    """The first bytes of the body come at once, whether there is anything to tell or not."""
    name = t.channel()
    cursor = t.client().call("GET", "/v1/cursor").json["cursor"]
    for kind in KINDS:
        for start in ("", "now", cursor):
            stream = t.client().stream(name, start, Accept=kind)
            try:
                came = stream.piece()
            except Failed:
                came = b""
            t.true(came, f"expected the first bytes at once, and none came as {kind} with the cursor {start!r}")


@must("STREAM-3")
def have_heartbeats(t: Trial) -> None:
    """While there is nothing to tell, something comes every now and then, and what follows is not harmed."""
    name = t.channel()
    seconds = min(t.limits["stream_heartbeat_seconds"] + t.patience, LIMIT_SECONDS)
    streams = [t.client().stream(name, "now", Accept=kind) for kind in KINDS]
    for stream in streams:
        stream.piece()
    for stream in streams:
        t.true(stream.piece(seconds), f"expected a heartbeat after {seconds:g} s, and the stream ended")
    t.client().publish(name, "after")
    t.same("the messages", [stream.message() for stream in streams], ["after", "after"])


@must("STREAM-4")
def have_messages_as_in_answers(t: Trial) -> None:
    """A message is an event without a name, with an id; its data is the message as in an answer."""
    client, names = t.client(), (t.channel(), t.channel())
    client.publish(names, "on both")
    client.publish(names[1], "on one")
    polled = client.poll(names).value["messages"]
    for kind in KINDS:
        stream = t.client().stream(names, Accept=kind)
        events = [stream.named("") for _ in polled]
        t.same("the messages", [event.data for event in events], polled)
        t.true(all(event.id for event in events), f"expected an id with each message, and {events} came")


@must("STREAM-4")
def carry_any_json(t: Trial) -> None:
    """Any JSON value comes back equal in both formats, whatever its text looks like."""
    client, name = t.client(), t.channel()
    streams = [t.client().stream(name, Accept=kind) for kind in KINDS]
    for value in VALUES:
        client.publish(name, value)
    spaced = b'{"channels": ["%b"], "data": {\r\n"a"\r:\n\n[\t1 ]}}' % name.encode()
    t.status(client.call("POST", "/v1/messages", spaced), 201)
    for stream in streams:
        for value in (*VALUES, {"a": [1]}):
            t.same("the data", stream.message(), value)


@must("STREAM-4")
def have_the_cursor_after_each_message(t: Trial) -> None:
    """A poll from the id of a message gets what came after that message, and nothing else."""
    client, name = t.client(), t.channel()
    client.publish_list((name, n) for n in range(3))
    for n in range(3, 6):
        client.publish(name, n)
    stream = t.client().stream(name)
    for n in range(6):
        answer = stream.answer()
        t.same("the messages", answer.data, [n])
        t.same(f"those after message {n}", client.poll(name, answer.cursor).data, list(range(n + 1, 6)))


@must("STREAM-5")
def tell_of_gaps(t: Trial) -> None:
    """A gap is an event of its own without an id, before the messages that are left."""
    client, name, most = t.client(), t.channel(), t.limits["retention_messages"]
    cursor = client.publish(name, "first").cursor
    client.publish(name, "dropped")
    for at in range(0, most, 100):
        client.publish_list((name, n) for n in range(at, min(at + 100, most)))
    for kind in KINDS:
        stream = t.client().stream(name, cursor, Accept=kind)
        gap = stream.named("gap")
        t.true(isinstance(gap.data, dict) and gap.data.get("until"), f"expected a gap with its end, and {gap} came")
        told = {"channel": name, "reason": "evicted", "until": gap.data["until"]}
        t.same("the gap", gap, Event("gap", "", told))
        t.same("the messages left", [stream.message() for _ in range(most)], list(range(most)))


@must("STREAM-5", *GAPS)
def end_gaps_at_an_id(t: Trial) -> None:
    """A gap ends with the event whose id is its end: from an earlier id a client gets it again, from that one not."""
    client, lossy, other, most = t.client(), t.channel(), t.channel(), t.limits["retention_messages"]
    cursor = client.publish(lossy, "seen").cursor
    client.publish((lossy, other), "on both")
    client.publish(lossy, "dropped")
    client.publish(other, "between")
    for at in range(0, most, 100):
        client.publish_list((lossy, n) for n in range(at, min(at + 100, most)))
    for kind in KINDS:
        stream = t.client().stream((lossy, other), cursor, Accept=kind)
        until = stream.named("gap").data["until"]
        while stream.cursor != until:
            event = stream.next()
            named = event.data["channels"] if event.is_message else []
            t.true(lossy not in named, f"expected nothing of the channel before {until}, and {event} came")
            gaps = client.poll((lossy, other), event.id or cursor).gaps
            t.same(f"the gaps behind {event}", gaps, () if event.id == until else ((lossy, "evicted"),))
        t.same("the messages left", [stream.message() for _ in range(most + 1)], ["between", *range(most)])


@must("STREAM-5")
def tell_of_closings_before_what_follows(t: Trial) -> None:
    """A client that leaves the stream at a message, and goes on from there, has got each closing before, or gets it."""
    client, names = t.client(), (t.channel(), t.channel())
    cursor = client.publish(names, 1).cursor
    client.publish(names[1], 2)
    t.status(client.call("DELETE", f"/v1/channels/{names[0]}"), 204)
    client.publish(names[1], 3)
    for kind in KINDS:
        stream, told = t.client().stream(names, cursor, Accept=kind), 0
        for number in (2, 3):
            while not (event := stream.next()).is_message:
                told += event.name == "closed"
            t.same("the message", event.data["data"], number)
            again = client.poll(names, stream.cursor).closed
            t.true(told or again == names[:1], f"expected the closing of {names[0]}, and it never came")


@must("STREAM-5")
def tell_of_closings(t: Trial) -> None:
    """When a channel is closed, its streams get an event without an id at once, and go on."""
    client, names = t.client(), (t.channel(), t.channel())
    cursor = client.publish(names, 1).cursor
    streams = [t.client().stream(names, cursor, Accept=kind) for kind in KINDS]
    t.status(client.call("DELETE", f"/v1/channels/{names[0]}"), 204)
    late = t.client().stream(names, cursor)
    for stream in (*streams, late):
        t.same("the closing", stream.named("closed"), Event("closed", "", {"channel": names[0]}))
    client.publish(names[1], 2)
    for stream in streams:
        t.same("the message after it", stream.message(), 2)


@must("STREAM-5", "credentials")
def hand_out_tickets(t: Trial) -> None:
    """A stream begins with a ticket, which has no id, and opens other streams without credentials."""
    client, name = t.client(), t.channel()
    client.publish(name, "private")
    for kind in KINDS:
        stream = t.client().stream(name, Accept=kind)
        t.same("the message", stream.message(), "private")
        event = stream.ticket
        t.true(event is not None, "expected a ticket before the first message, and none came")
        assert event is not None
        t.true(set(event.data) == {"ticket"} and not event.id, f"expected a ticket without an id, and {event} came")
        ticket = event.data["ticket"]
        t.same("the message by the ticket", _by_ticket(t, name, ticket).message(), "private")
        response = client.call(
            "GET", f"/v1/poll?channel={name}&timeout=0", PushUp_Ticket=ticket, **t.without_credentials()
        )
        t.same("the messages of a poll", t.native.read_answer(response, "").data, ["private"])


def _by_ticket(t: Trial, name: str, ticket: str) -> EventStream:
    return t.client().stream(name, PushUp_Ticket=ticket, **t.without_credentials())


@must("STREAM-6")
def begin_with_a_cursor(t: Trial) -> None:
    """A client without a cursor for which there is nothing gets one, and loses nothing if the stream breaks then."""
    client = t.client()
    for kind in KINDS:
        for start in ("", "now"):
            name, reader = t.channel(), t.client()
            if start:
                reader.publish(name, "old")  # at its node, so that this has it
            event = reader.stream(name, start, Accept=kind).next()
            t.true(event.id and event == Event(id=event.id), f"expected nothing but a cursor, and {event} came")
            reader.close()
            client.publish(name, "new")
            t.same("the messages since", client.poll(name, event.id).data, ["new"])


@must("STREAM-6")
def move_the_cursor_past_gaps_and_closings(t: Trial) -> None:
    """With the first message after a gap or a closing, a client that continues is not told of it again."""
    client = t.client()
    for event in ("gap", "closed"):
        names = (t.channel(), t.channel())
        cursor = client.publish(names[0], 1).cursor if event == "closed" else FOREIGN_CURSOR
        stream = t.client().stream(names, cursor)
        if event == "closed":
            t.status(client.call("DELETE", f"/v1/channels/{names[0]}"), 204)
        stream.named(event)
        if event == "gap":
            stream.named(event)  # one for each channel
        client.publish(names[1], 2)
        t.same("the message", stream.message(), 2)
        answer = client.poll(names, stream.cursor)
        t.same("what a poll is told", (answer.gaps, answer.closed, answer.data), ((), (), []))
        again = t.client().stream(names, stream.cursor)
        client.publish(names[1], 3)
        t.same("the next message", again.message(), 3)


@must("STREAM-7")
def follow_the_header_of_browsers(t: Trial) -> None:
    """Last-Event-ID takes precedence over the cursor, in both forms of a stream, unless it is empty."""
    client, name = t.client(), t.channel()
    cursors = [client.publish(name, n).cursor for n in range(4)]
    for method in METHODS:
        for cursor, last, expected in (
            (cursors[0], cursors[2], 3),
            (cursors[2], cursors[0], 1),
            ("", cursors[1], 2),
            ("now", cursors[1], 2),
            (cursors[1], "", 2),
        ):
            stream = t.client().stream(name, cursor, method=method, Last_Event_ID=last)
            t.same(f"the message with {last!r} and the cursor {cursor!r}", stream.message(), expected)


@must("STREAM-7")
def check_the_header_of_browsers(t: Trial) -> None:
    """A Last-Event-ID that is no cursor gets 400, whatever the cursor is."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, 1).cursor
    for last in ("not a cursor", f"{cursor}, {cursor}", "-", "x" * 300):
        response = client.call("GET", f"/v1/events?channel={name}&cursor={cursor}", Last_Event_ID=last)
        t.problem(response, 400, "bad-request")


@must("STREAM-8")
def lose_nothing_of_many(t: Trial) -> None:
    """Six hundred messages, half of them from before the stream, all come on it, once and in order."""
    publisher, name = t.client(), t.channel()
    for at in range(0, 300, 50):
        publisher.publish_list((name, n) for n in range(at, at + 50))
    follower = Follower(t, name)
    stream = t.client().stream(name)

    def publish() -> None:
        for n in range(300, 600):
            publisher.publish(name, n)

    def follow() -> None:
        for _ in range(600):
            follower.take(stream.answer())

    t.together(publish, follow)
    follower.expect(range(600))


@must("STREAM-8")
def continue_where_they_broke(t: Trial) -> None:
    """A client whose stream breaks after each event gets everything once and in order."""
    name = t.channel()
    _change_over(t, name, lambda turn: (0, "stream"))


@must("STREAM-8")
def take_turns_with_polls(t: Trial) -> None:
    """A client that changes between a stream and a long poll at each event gets everything once and in order."""
    _change_over(t, (t.channel(), t.channel(), t.channel()), lambda turn: (0, ("stream", "poll")[turn % 2]))


@must("STREAM-8", *BOTH)
def take_turns_with_polls_on_other_nodes(t: Trial) -> None:
    """So does one that also changes the node each time, while there are publishers at both."""
    _change_over(t, (t.channel(), t.channel()), lambda turn: (turn // 2 % 2, ("stream", "poll")[turn % 2]), nodes=2)
    _change_over(t, (t.channel(), t.channel()), lambda turn: (turn % 2, "stream"), nodes=2)


def _change_over(
    t: Trial, channels: str | tuple[str, ...], way: Callable[[int], tuple[int, str]], *, nodes: int = 1, count: int = 60
) -> None:
    """Follow channels while a publisher at each node publishes; each message comes by `way`: a node, stream or poll."""
    follower = Follower(t, channels)

    def publish(node: int) -> None:
        client = t.client(node)
        for n in range(node, count, nodes):
            client.publish(follower.channels[n % len(follower.channels)], n)
            t.sleep(0.003)

    def follow() -> None:
        turn = 0
        while len(follower.data) < count:
            node, kind = way(turn)
            client = t.client(node)
            if kind == "poll":
                client.begin_poll(follower.channels, follower.cursor, LONG)
                follower.take(client.answer())
            else:
                in_header = bool(follower.cursor) and turn % 3 == 0
                stream = client.stream(
                    follower.channels, "" if in_header else follower.cursor, method=METHODS[turn // 5 % 2],
                    Accept=KINDS[turn // 2 % 2], **({"Last_Event_ID": follower.cursor} if in_header else {}),
                )  # fmt: skip
                follower.take(stream.answer())
            (client.wire.reset if turn % 2 else client.close)()
            turn += 1

    t.together(follow, *(lambda node=node: publish(node) for node in range(nodes)))
    if nodes == 1:
        follower.expect(range(count))
    else:
        t.same("the messages", sorted(follower.data), list(range(count)))
        t.same("those of each publisher", [[d for d in follower.data if d % nodes == n] for n in range(nodes)],
               [list(range(n, count, nodes)) for n in range(nodes)])  # fmt: skip


@must("STREAM-8")
def have_the_order_of_polls(t: Trial) -> None:
    """Streams and polls of four channels get the messages of three publishers in the same order."""
    names = tuple(t.channel() for _ in range(4))
    polled, streamed = Follower(t, names), Follower(t, names)
    stream = t.client().stream(names)

    def publish(letter: str) -> None:
        client = t.client()
        for n in range(40):
            client.publish(names[n % 4], f"{letter}{n}")

    def follow() -> None:
        for _ in range(120):
            streamed.take(stream.answer())

    t.together(*(lambda x=x: publish(x) for x in "abc"), follow, lambda: polled.read(t.client(), 120))
    t.same("the order on the stream", streamed.data, polled.data)


@must("STREAM-8", *GAPS)
def leave_nothing_out_for_slow_readers(t: Trial) -> None:
    """A client that does not read while messages are dropped gets each message in order, or a gap before the next."""
    client, name, most = t.client(), t.channel(), t.limits["retention_messages"]
    text = "x" * min(t.limits["message_limit_bytes"] // 4, 16000)
    batch = min(t.limits["batch_limit"], t.limits["body_limit_bytes"] // len(text) // 2)

    def publish(start: int, end: int) -> None:
        for at in range(start, end, batch):
            client.publish_list((name, [n, text]) for n in range(at, min(at + batch, end)))

    publish(0, most)
    wire = t.wire(receive_buffer_bytes=4096)
    wire.send(t.encode(t.native.stream((name,), "")))
    stream = t.opened(wire)
    publish(most, 3 * most)
    seen, is_told = -1, False
    while seen < 3 * most - 1:
        t.check_time()
        try:
            event = stream.next()
        except Failed:  # it was given up, because too much had accumulated
            stream = t.client().stream(name, stream.cursor)
            continue
        if event.name == "gap":
            is_told = True
        elif event.is_message:
            number = event.data["data"][0]
            t.true(number > seen, f"expected each message once and in order, and {number} came after {seen}")
            t.true(number == seen + 1 or is_told, f"expected message {seen + 1} or a gap, and {number} came")
            seen, is_told = number, False


@must("STREAM-9")
def carry_messages_at_once(t: Trial) -> None:
    """Each message comes as soon as it is published, without another one behind it, on every stream."""
    client, name = t.client(), t.channel()
    streams = [t.client().stream(name, "now", Accept=kind) for kind in (*KINDS, *KINDS)]
    for n in range(10):
        began = time.monotonic()
        client.publish(name, n)
        for stream in streams:
            t.same("the message", stream.message(), n)
        took = time.monotonic() - began
        t.true(took < t.patience, f"expected message {n} on four streams at once, and it took {took:.1f} s")


@must("STREAM-9", *BOTH)
def carry_messages_of_other_nodes_at_once(t: Trial) -> None:
    """A message that is published at one node comes at once on the streams of the other."""
    name = t.channel()
    clients = (t.client(0), t.client(1))
    streams = [t.client(node).stream(name, "now") for node in (0, 1)]
    for stream in streams:
        stream.next()  # its cursor: it has begun
    for n in range(10):
        clients[n % 2].publish(name, n)
        t.same("the messages", [stream.message() for stream in streams], [n, n])


@must("STREAM-10")
def end_as_their_framing_says(t: Trial) -> None:
    """A stream whose time range is over ends, and its connection takes the next request."""
    client, name = t.client(), t.channel()
    for kind in KINDS:
        now = client.publish(name, "in it").time
        reader = t.client()
        reader.begin(
            t.native.call("GET", f"/v1/events?channel={name}&from={now!r}&to={now + 1!r}", headers=(("Accept", kind),))
        )
        stream = t.opened(reader.wire)
        events = stream.rest(within=1 + t.patience)
        t.same("the messages", [event.data["data"] for event in events if event.is_message], ["in it"])
        t.same("the events with a name", [event for event in events if event.name], [])
        if not stream.head.closes:
            t.status(reader.call("GET", "/v1/cursor"), 200)


@must("STREAM-10")
def end_with_the_connection_in_http_1_0(t: Trial) -> None:
    """A stream for HTTP/1.0 has no chunks, and ends with its connection."""
    client, name = t.client(), t.channel()
    now = client.publish(name, "old").time
    wire = t.wire()
    wire.send(t.fill(f"GET /v1/events?channel={name}&to={now + 1!r} HTTP/1.0\r\n@HEAD@\r\n".encode()))
    stream = t.opened(wire)
    t.same("Transfer-Encoding", stream.head.headers.get("transfer-encoding"), None)
    t.same("the message", stream.message(), "old")
    stream.rest(within=1 + t.patience)


@must("STREAM-10", "native", "one node")
def say_why_they_end(t: Trial) -> None:
    """When its channel, asked for by its id, does not exist any more, a stream ends with an error that says so."""
    if t.options.credentials:
        raise NotApplicable("where an application decides who polls what, there are no polls by id")
    client = t.client()
    for kind in KINDS:
        created = t.status(client.call("POST", "/v1/channels", {"name": t.name()}), 201).json
        reader = t.client()
        stream = reader.stream(str(created["id"]), Accept=kind)
        stream.next()
        t.status(client.call("DELETE", f"/v1/channels/{created['name']}"), 204)
        events = stream.rest()
        t.same("the names of the events", [event.name for event in events if event.name], ["closed", "error"])
        last = events[-1]
        t.same("the last one and its id", (last.name, last.id), ("error", ""))
        t.same("the type of the problem", last.data.get("type"), "urn:pushup:unknown-channel")
        t.same("the status in the problem", last.data.get("status"), 404)
        if not stream.head.closes:
            t.status(reader.call("GET", "/v1/cursor"), 200)


@must("HTTP-5")
def answer_head(t: Trial) -> None:
    """HEAD gets the head of the stream that GET would open, or its error, at once, and the connection goes on."""
    client, name = t.client(), t.channel()
    for kind in KINDS:
        wanted = t.client().stream(name, Accept=kind).head
        came = client.call("HEAD", f"/v1/events?channel={name}", Accept=kind)
        fields = ("content-type", "content-length", "transfer-encoding")
        t.same("the status, the type and the framing",
               (came.status, *map(came.headers.get, fields)), (200, *map(wanted.headers.get, fields)))  # fmt: skip
    for query in ("cursor=not+a+cursor", f"channel={name}&limit=5", "channel=999999999999999"):
        statuses = [client.call(method, f"/v1/events?{query}").status for method in ("HEAD", "GET")]
        t.same(f"the status of HEAD with {query}", statuses[0], statuses[1])
    response = client.call("HEAD", f"/v1/events?channel={name}", Last_Event_ID="not a cursor")
    t.same("the status of HEAD with a bad Last-Event-ID", response.status, 400)


@must("HTTP-8")
def let_requests_behind_them_wait(t: Trial) -> None:
    """A request that was sent behind that for a stream is answered when the stream has ended."""
    client, name = t.client(), t.channel()
    wire = t.wire()
    target = f"/v1/events?channel={name}&to={client.publish(name, 1).time + 1!r}"
    wire.send(t.encode(t.native.call("GET", target)) + t.encode(t.native.call("GET", "/v1/cursor")))
    stream = t.opened(wire)
    t.same("the message", stream.message(), 1)
    stream.rest(within=1 + t.patience)
    t.true("cursor" in t.status(wire.response(), 200).json, "expected a cursor after the stream, and none came")


@must("HTTP-3")
def forbid_caching(t: Trial) -> None:
    """A stream has Cache-Control: no-store and a date."""
    for form in ("", RAW):
        headers = t.client().stream(t.channel(), form=form).head.headers
        found = headers.get("cache-control", "")
        t.true("no-store" in found, f"expected no-store, and {found!r} came")
        t.true(headers.get("date"), "expected a date, and none came")


@must("CORS-1", "origin")
def let_allowed_pages_read(t: Trial) -> None:
    """A stream says to an allowed origin that its page may read it."""
    for form in ("", RAW):
        head = t.client().stream(t.channel(), form=form, Origin=t.options.origin).head
        allowed = head.headers.get("access-control-allow-origin")
        t.true(allowed in (t.options.origin, "*"), f"expected {t.options.origin} to be allowed, and {allowed} came")


@must("HTTP-20")
def are_not_delayed_by_slow_readers(t: Trial) -> None:
    """Ten streams that nobody reads delay neither polls nor other streams."""
    client, name = t.client(), t.channel()
    for _ in range(10):
        wire = t.wire(receive_buffer_bytes=4096)
        wire.send(t.encode(t.native.stream((name,), "")))
    stream = t.client().stream(name)
    text = "x" * (t.limits["message_limit_bytes"] - 100)
    for n in range(40):
        began = time.monotonic()
        client.publish(name, f"{n} {text}")
        t.same("the message", str(stream.message()).partition(" ")[0], str(n))
        took = time.monotonic() - began
        t.true(took < t.patience, f"expected message {n} at once, and it took {took:.1f} s")
