"""Event streams with `format=raw`."""

from __future__ import annotations

import json
import re
from typing import Any

from conformance.events import EVENTS, LINES, RAW, Event, EventStream, media_type
from conformance.registry import must
from conformance.trial import Trial

STRINGS = (
    "plain", "", " ", "\n", "a\nb\r\nc\rd\n", "data: x\n\nid: 7\n\n: y", '<p class="a">é🎈</p>', "null",
    "\\u0041\t\0\ufeff", "\u2028\u2029\u0085\v\f",
)  # fmt: skip

VALUES: tuple[Any, ...] = (None, True, -1.5e-9, [], {"a": ["b\nc"]})

NAMES = ("", "chat", "datastar-patch-elements", "a/b:c.d_e")


def _published(t: Trial, name: str, data: Any, event: str = "") -> str:
    """Publish a message; returns its id."""
    body = {"channels": [name], "data": data, **({"event": event} if event else {})}
    return str(t.status(t.client().call("POST", "/v1/messages", body), 201).json["id"])


def _message(stream: EventStream) -> Event:
    """The next event that is none of the server's own."""
    while (event := stream.next()).name in ("cursor", "expiry", "ticket"):
        pass
    return event


@must("STREAM-11")
def send_strings_as_they_are(t: Trial) -> None:
    """The data of an event is the string that was published, line by line; each kind of line end becomes an LF."""
    name = t.channel()
    streams = [t.client().stream(name, method=method, form=RAW) for method in ("GET", "POST")]
    for text in STRINGS:
        _published(t, name, text)
    for stream in streams:
        t.same("the type", media_type(stream.head), EVENTS)
        for text in STRINGS:
            t.same("the data", _message(stream).data, re.sub("\r\n?", "\n", text))


@must("STREAM-11")
def send_other_values_as_json(t: Trial) -> None:
    """What is no string is the JSON that was published."""
    name = t.channel()
    stream = t.client().stream(name, form=RAW)
    for value in VALUES:
        _published(t, name, value)
    spaced = b'{"channels": ["%b"], "data": {\r\n"a"\r:\n\n[\t1.00 ]}}' % name.encode()
    t.status(t.client().call("POST", "/v1/messages", spaced), 201)
    for value in VALUES:
        text = _message(stream).data
        t.same("the data", json.loads(text), value)
    t.same("the data without white space", "".join(_message(stream).data.split()), '{"a":[1.00]}')


@must("STREAM-11")
def name_events_as_published(t: Trial) -> None:
    """An event has the name that its message was published with, or none."""
    name = t.channel()
    stream = t.client().stream(name, form=RAW)
    for event in NAMES:
        _published(t, name, event, event)
    for event in NAMES:
        came = _message(stream)
        t.same("the name and the data", (came.name, came.data), (event, event))


@must("STREAM-11")
def resume_at_each_message(t: Trial) -> None:
    """From the id of any event, a stream of other channels as well goes on with exactly the next message."""
    names = (t.channel(), t.channel())
    for n in range(6):
        _published(t, names[n % 2], f"{n}", "even" if n % 2 == 0 else "")
    stream = t.client().stream(names, form=RAW)
    for n in range(6):
        event = _message(stream)
        t.same("the data", event.data, f"{n}")
        for channels, left in ((names, range(n + 1, 6)), (names[:1], range(n + 2 - n % 2, 6, 2))):
            t.same(f"those after message {n}", t.client().poll(channels, event.id).data, [str(m) for m in left])
            again = t.client().stream(channels, "earliest", form=RAW, Last_Event_ID=event.id)
            t.same(f"those of a stream after message {n}", [_message(again).data for _ in left], [str(m) for m in left])


@must("STREAM-12")
def send_every_event_with_data(t: Trial) -> None:
    """Gaps, closings and cursors are events with a name and data, so that a page's library takes their ids."""
    names, most = (t.channel(), t.channel()), t.limits["retention_messages"]
    client = t.client()
    cursor = client.publish(names[0], "first").cursor
    fresh = t.client().stream(t.channel(), form=RAW).next()
    t.true(fresh.name == "cursor" and fresh.id, f"expected a cursor at the beginning, and {fresh} came")
    t.same("its data", fresh.data, "{}")
    client.publish(names[0], "dropped")
    for at in range(0, most, 100):
        client.publish_list((names[0], str(n)) for n in range(at, min(at + 100, most)))
    t.status(client.call("DELETE", f"/v1/channels/{names[0]}"), 204)
    _published(t, names[1], "last")
    stream, told = t.client().stream(names, cursor, form=RAW), {}
    while (event := stream.next()).data != "last":
        t.true(event.name and event.data, f"expected a name and data, and {event} came")
        told[event.name] = event
    for kind in ("gap", "closed"):
        if kind in told:
            t.same(
                f"the channel and the id of {kind}",
                (json.loads(told[kind].data)["channel"], told[kind].id),
                (names[0], ""),
            )
    t.true(told, "expected a gap or a closing before the last message, and none came")
    end = stream.next()
    t.same("the cursor after them", (end.name, end.data, bool(end.id)), ("cursor", "{}", True))
    t.same("what is left", t.client().poll(names, end.id).value["messages"], [])


@must("STREAM-13")
def have_two_formats(t: Trial) -> None:
    """`json` is the default. Another format, or one twice, gets 400; so does one of a poll."""
    client, name = t.client(), t.channel()
    _published(t, name, "x")
    for form in ("", "json"):
        for method in ("GET", "POST"):
            t.same(f"the data with the format {form!r}", t.client().stream(name, "", method, form).message(), "x")
    for query in ("format=xml", "format=RAW", "format=raw&format=raw", "format=json&format=raw"):
        t.problem(client.call("GET", f"/v1/events?channel={name}&{query}"), 400, "bad-request", "format")
    for wrong in ("xml", 1, ["raw"]):
        response = client.call("POST", "/v1/events", {"channels": [name], "format": wrong})
        t.problem(response, 400, "bad-request", "format")
    t.problem(client.call("GET", f"/v1/poll?channel={name}&format=raw"), 400, "bad-request", "format")
    response = client.call("POST", "/v1/poll", {"channels": [name], "format": "raw"})
    t.problem(response, 400, "bad-request", "format")


@must("STREAM-13")
def are_server_sent_events_only(t: Trial) -> None:
    """Where `Accept` does not allow text/event-stream, raw events get 406."""
    client, name = t.client(), t.channel()
    _published(t, name, "x")
    target = f"/v1/events?channel={name}&format=raw"
    for accept in (LINES, "text/html", f"{EVENTS};q=0, {LINES}"):
        t.problem(client.call("GET", target, Accept=accept), 406, "not-acceptable", "Accept")
    stream = t.client().stream(name, form=RAW, Accept=f"{LINES}, {EVENTS};q=0.1")
    t.same("the data", _message(stream).data, "x")
