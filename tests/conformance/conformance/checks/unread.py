"""Messages of which an application is told who has not read them."""

from __future__ import annotations

import time
from typing import Any

from conformance.checks.tokens import signed
from conformance.events import EVENTS, LINES, RAW, EventStream
from conformance.registry import must
from conformance.trial import Trial
from conformance.wire import Response

NEEDS = ("publish key", "token", "webhooks")

LATER_SECONDS = 3600
"""No check waits until the application is called."""


def _publish(t: Trial, channels: list[str], data: Any, subjects: list[str]) -> Response:
    body = {"channels": channels, "data": data, "unread_after": LATER_SECONDS, "for": subjects}
    return t.status(t.client().call("POST", "/v1/messages", body), 201)


def _stream(t: Trial, channel: str, subject: str, *, form: str = "", accept: str = EVENTS) -> EventStream:
    token = signed(t, poll=[channel], sub=subject)
    fields = {"Authorization": f"Bearer {token}", "Accept": accept}
    return t.client().stream(channel, form=form, **t.without_credentials(), **fields)


def _poll(t: Trial, channel: str, subject: str, cursor: str) -> None:
    """A poll whose answer does not matter."""
    token = signed(t, poll=[channel], sub=subject)
    fields = {**t.without_credentials(), "Authorization": f"Bearer {token}"}
    target = f"/v1/poll?channel={channel}&timeout=0&limit=1&cursor={cursor}"
    t.status(t.client().call("GET", target, **fields), 200)


def _asked(t: Trial, stream: EventStream, channel: str) -> bool:
    """Whether `unread` comes between the next message, published now, and one that is published after that."""
    t.client().publish(channel, "next")
    _names(stream, "next")
    t.client().publish(channel, "mark")
    return "unread" in _names(stream, "mark")


def _names(stream: EventStream, data: str) -> list[str]:
    """The names of the events before this message."""
    names: list[str] = []
    while not (event := stream.next()).is_message or event.data["data"] != data:
        names.append(event.name)
    return names


@must("UNREAD-1", *NEEDS)
def refuses_other_values(t: Trial) -> None:
    """Other values, one field without the other, and both for an ephemeral message get 400."""
    client, name = t.client(), t.channel()
    cases: list[tuple[str, dict[str, Any]]] = [
        *(("unread_after", {"unread_after": bad, "for": ["ann"]}) for bad in (0, -1, 86401, "60", True)),
        *(("for", {"unread_after": 60, "for": bad}) for bad in (
            [], [""], ["x" * 256], ["é" * 128], ["a\nb"], [f"{n}" for n in range(101)])),
        ("for", {"unread_after": 60}),
        ("unread_after", {"for": ["ann"]}),
        ("", {"unread_after": 60, "for": ["ann"], "ephemeral": True}),
    ]  # fmt: skip
    for field, given in cases:
        body = {"channels": [name], "data": 1, **given}
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", field)
        response = client.call("POST", "/v1/messages", {"messages": [body]})
        t.problem(response, 400, "bad-request", field and f"messages[0].{field}")
    beside = {"messages": [{"channels": [name], "data": 1}], "unread_after": 60, "for": ["ann"]}
    t.problem(client.call("POST", "/v1/messages", beside), 400, "bad-request")
    t.same("the messages", client.poll(name).data, [])


@must("UNREAD-1", *NEEDS)
def takes_values_within_the_limits(t: Trial) -> None:
    """The longest time, a hundred subjects, long ones, and the same one twice; the message itself does not show it."""
    name = t.channel()
    for seconds, subjects in (
        (3600.5, ["ann", "ann"]), (86400, [f"{t.name()}-{n}" for n in range(100)]), (60, ["é" * 127]),
    ):  # fmt: skip
        body = {"channels": [name], "data": 1, "unread_after": seconds, "for": subjects}
        t.status(t.client().call("POST", "/v1/messages", {"messages": [body]}), 201)
    messages = t.client().poll(name).value["messages"]
    t.same("the fields", [sorted(message) for message in messages], [["channels", "data", "id", "time"]] * 3)


@must("UNREAD-1", "no webhooks")
def needs_an_application(t: Trial) -> None:
    """A server that calls no application answers 400, and publishes nothing."""
    name = t.channel()
    body = {"channels": [name], "data": 1, "unread_after": 60, "for": ["ann"]}
    t.problem(t.client().call("POST", "/v1/messages", body), 400, "bad-request", "unread_after")
    t.same("the messages", t.client().poll(name).data, [])


@must("UNREAD-2", *NEEDS)
def needs_more_than_a_token(t: Trial) -> None:
    """A token that allows the same publication without the fields gets 403."""
    name = t.channel()
    token = signed(t, poll=[name], pushup={"poll": [name], "publish": [name]})
    fields = {**t.without_credentials(), "Authorization": f"Bearer {token}"}
    body = {"channels": [name], "data": 1}
    t.status(t.client().call("POST", "/v1/messages", body, **fields), 201)
    body |= {"unread_after": 60, "for": ["ann"]}
    t.problem(t.client().call("POST", "/v1/messages", body, **fields), 403, "forbidden")


@must("STREAM-14", *NEEDS)
def asks_streams(t: Trial) -> None:
    """After a message that its subject has not read, a stream gets the event `unread`, in each format."""
    name, subject = t.channel(), t.name()
    streams = [
        _stream(t, name, subject),
        _stream(t, name, subject, accept=LINES),
        _stream(t, name, subject, form=RAW),
    ]
    _publish(t, [name], "waits", [subject])
    for stream in streams:
        while not stream.next().is_message:
            pass
        event = stream.next()
        t.same("the event after the message, and its id", (event.name, event.id), ("unread", ""))
        t.true(event.data in ({}, "{}"), f"expected an empty object as the data of `unread`, and {event} came")


@must("STREAM-14", *NEEDS)
def asks_nobody_else(t: Trial) -> None:
    """Streams of other subjects do not get `unread`; nor do those of that subject on other channels."""
    name, other, subject = t.channel(), t.channel(), t.name()
    asked, stranger, elsewhere = (
        _stream(t, name, subject), _stream(t, name, t.name()), _stream(t, other, subject),
    )  # fmt: skip
    _publish(t, [name], "waits", [subject])
    t.true(_asked(t, asked, name), "expected `unread`, and it did not come")
    t.true("unread" not in _names(stranger, "mark"), "expected no `unread` for another subject, and it came")
    t.true(not _asked(t, elsewhere, other), "expected no `unread` for another channel, and it came")


@must("POLL-18", *NEEDS)
def takes_a_cursor_for_a_reading(t: Trial) -> None:
    """A poll from the message on ends the asking, whichever its channel; one from before it, or of others, does not."""
    names, subject = [t.channel(), t.channel()], t.name()
    before = t.client().publish(names[0], "before").cursor
    stream = _stream(t, names[0], subject)
    cursor = _publish(t, names, "waits", [subject]).json["cursor"]
    _names(stream, "waits")
    t.true(_asked(t, stream, names[0]), "expected `unread` before any poll, and it did not come")
    for what, who, where in (
        ("a poll from before the message", subject, before),
        ("the poll of another subject", t.name(), cursor),
        ("a poll without a cursor", subject, ""),
    ):
        _poll(t, names[0], who, where)
        t.true(_asked(t, stream, names[0]), f"expected `unread` after {what}, and it did not come")
    _poll(t, names[1], subject, cursor)
    deadline = time.monotonic() + t.patience
    while _asked(t, stream, names[0]):  # until the reading has its place in the order
        in_time = time.monotonic() < deadline
        t.true(in_time, "expected no `unread` after a poll from the message on, and it came")
