"""Publications."""

from __future__ import annotations

import json
import time
from typing import Any

from conformance.registry import must, should
from conformance.trial import Trial

DATA: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1.5,
    1e300,
    "",
    "text",
    "\u00e9\u2028\U0001f600",
    [],
    {},
    [1, [2, {"a": None}]],
)


@must("PUB-1")
def returns_id_time_and_cursor(t: Trial) -> None:
    """A publication gets 201 with id, time and cursor, and nothing else."""
    response = t.client().call("POST", "/v1/messages", {"channels": [t.channel()], "data": "hello"})
    value = t.status(response, 201).json
    t.same("the fields", sorted(value), ["cursor", "id", "time"])
    t.true(isinstance(value["id"], str) and isinstance(value["cursor"], str), f"expected text, and {response} came")


@must("PUB-1")
def returns_ids_of_a_list_in_order(t: Trial) -> None:
    """A list gets an id for each message, in its order."""
    client, name = t.client(), t.channel()
    ids = client.publish_list((name, n) for n in range(5)).ids
    messages = client.poll(name).messages
    t.same("the ids", ids, tuple(message.id for message in messages))
    t.same("the messages", [message.data for message in messages], [0, 1, 2, 3, 4])


@must("PUB-1")
def returns_a_list_for_a_list(t: Trial) -> None:
    """A list of one message gets ids, not an id."""
    body = {"messages": [{"channels": [t.channel()], "data": 1}]}
    value = t.status(t.client().call("POST", "/v1/messages", body), 201).json
    t.same("the fields", sorted(value), ["cursor", "ids", "time"])


@must("PUB-2")
def keeps_the_text_of_data(t: Trial) -> None:
    """Data is delivered as it was written: digits, escapes, the order of names, repeated names, white space."""
    client, name = t.client(), t.channel()
    for text in (
        "12345678901234567890.10",
        "1E400",
        "-0.0",
        '{"b": 1, "a": 2, "a": 3}',
        '"\\u00e9\\/\\ud83d\\ude00"',
        "[ 1,\t2 ]",
    ):
        body = b'{"channels": ["%b"], "data": %b}' % (name.encode(), text.encode())
        place = client.call("POST", "/v1/messages", body)
        t.status(place, 201)
        answer = client.call("GET", f"/v1/poll?channel={name}&timeout=0")
        t.true(text.encode() in answer.body, f"expected the data {text}, and {answer} came")
        t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
        name = t.channel()


@must("PUB-2", "resume")
def takes_any_json(t: Trial) -> None:
    """Any JSON value can be published, and comes back equal."""
    client = t.client()
    for data in DATA:
        name = t.channel()
        client.publish(name, data)
        t.same("the data", client.poll(name).data, [data])


@must("PUB-3")
def publishes_all_or_nothing(t: Trial) -> None:
    """If one message of a list is refused, none is published."""
    client, name = t.client(), t.channel()
    cursor = client.call("GET", "/v1/cursor").json["cursor"]
    for bad in ({"channels": [], "data": 1}, {"channels": ["4711"], "data": 1}, {"channels": [name]}):
        body = {"messages": [{"channels": [name], "data": "should not be"}, bad]}
        t.status(client.call("POST", "/v1/messages", body), 400, 404)
    t.same("the messages", client.poll(name, cursor).data, [])


@must("PUB-3")
def keeps_a_list_together(t: Trial) -> None:
    """The messages of a list are next to each other in the order, whoever else publishes."""
    name = t.channel()

    def publisher(letter: str) -> None:
        client = t.client()
        for n in range(20):
            client.publish_list((name, f"{letter}{n}.{k}") for k in range(5))

    t.together(*(lambda letter=letter: publisher(letter) for letter in "abcd"))
    client, came = t.client(), list[Any]()
    cursor, more = "", True
    while more:
        answer = client.poll(name, cursor)
        came, cursor, more = [*came, *answer.data], answer.cursor, answer.more
    t.same("how many messages came", len(came), 400)
    for at in range(0, 400, 5):
        batch = came[at].partition(".")[0]
        t.same("five messages of a list", came[at : at + 5], [f"{batch}.{k}" for k in range(5)])


@must("PUB-3")
def wakes_polls_with_a_whole_list(t: Trial) -> None:
    """A held poll gets all messages of a list at once."""
    client, name = t.client(), t.channel()
    client.begin_poll(name, t.client().publish(name, "before").cursor)
    t.sleep(0.1)
    t.client().publish_list((name, n) for n in range(10))
    t.same("the messages", client.answer().data, list(range(10)))


@must("PUB-4", "not strict")
def creates_channels(t: Trial) -> None:
    """Publishing to a channel that does not exist creates it."""
    client, name = t.client(), t.name()
    client.publish(name, 1)
    t.same("the name", t.status(client.call("GET", f"/v1/channels/{name}"), 200).json["name"], name)


@must("PUB-4", "strict")
def needs_channels_when_strict(t: Trial) -> None:
    """A strict server answers 404 for a channel that does not exist."""
    client, name = t.client(), t.name()
    response = client.call("POST", "/v1/messages", {"channels": [name], "data": 1})
    t.problem(response, 404, "unknown-channel")
    t.problem(client.call("GET", f"/v1/poll?channel={name}&timeout=0"), 404, "unknown-channel")


@must("PUB-5")
def counts_a_channel_once(t: Trial) -> None:
    """A channel that is named twice in a message gets it once, and has one message."""
    client, name = t.client(), t.channel()
    client.publish((name, name), 1)
    answer = client.poll(name)
    t.same("the messages", answer.data, [1])
    t.same("their channels", answer.messages[0].channels, (name,))
    t.same("the messages kept", client.call("GET", f"/v1/channels/{name}").json["messages"], 1)


@must("PUB-6")
def makes_ids_unique(t: Trial) -> None:
    """No two messages have the same id, whoever publishes them."""
    ids: list[str] = []

    def publisher() -> None:
        client, name = t.client(), t.channel()
        for n in range(20):
            ids.extend(client.publish_list([(name, n), (name, -n)]).ids)

    t.together(*[publisher] * 4)
    t.same("the number of ids", len(set(ids)), 160)


@must("PUB-7")
def never_turns_time_back(t: Trial) -> None:
    """Times are seconds since the epoch, and do not decrease along the order."""
    client, name = t.client(), t.channel()
    times = [client.publish(name, n).time for n in range(20)]
    t.same("the times", times, sorted(times))
    t.true(abs(times[0] - time.time()) < 86400, f"expected seconds since the epoch, and {times[0]} came")
    t.same("the times delivered", [message.time for message in client.poll(name).messages], times)


@must("PUB-8")
def returns_the_place_behind(t: Trial) -> None:
    """The cursor of a publication is a place just after it: a poll with it gets what is published later."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "before").cursor
    t.same("the messages at first", client.poll(name, cursor).data, [])
    client.publish(name, "after")
    t.same("the messages later", client.poll(name, cursor).data, ["after"])
    cursor = client.publish_list([(name, 1), (name, 2)]).cursor
    t.same("the messages after a list", client.poll(name, cursor).data, [])


@must("PUB-9")
def needs_json(t: Trial) -> None:
    """A body that is not JSON gets 400."""
    client, name = t.client(), t.channel()
    good = json.dumps({"channels": [name], "data": 1}).encode()
    for body in (
        b"",
        b"hello",
        good[:-1],
        good + b"}",
        good.replace(b'"', b"'"),
        b"\xef\xbb\xbf" + good,
        b"channels=a",
    ):
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request")
    t.same("the messages", client.poll(name).data, [])


@must("PUB-9")
def needs_utf_8(t: Trial) -> None:
    """A body that is not UTF-8 gets 400, even inside of the data."""
    name = t.channel()
    body = b'{"channels": ["%b"], "data": "\xff"}' % name.encode()
    t.problem(t.client().call("POST", "/v1/messages", body), 400, "bad-request")


@must("PUB-9")
def needs_its_fields(t: Trial) -> None:
    """A publication without channels or without data gets 400 with the field."""
    client, name = t.client(), t.channel()
    t.problem(client.call("POST", "/v1/messages", {"data": 1}), 400, "bad-request", "channels")
    t.problem(client.call("POST", "/v1/messages", {"channels": [name]}), 400, "bad-request", "data")
    body = {"messages": [{"channels": [name]}]}
    t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "messages[0].data")


@must("PUB-9")
def takes_one_form(t: Trial) -> None:
    """Messages together with channels or data get 400."""
    client, name = t.client(), t.channel()
    messages = [{"channels": [name], "data": 1}]
    for more in ({"channels": [name]}, {"data": 1}, {"data": None}):
        t.problem(client.call("POST", "/v1/messages", {"messages": messages, **more}), 400, "bad-request")


@must("PUB-9")
def needs_something_in_lists(t: Trial) -> None:
    """An empty list of channels or of messages gets 400."""
    client = t.client()
    t.problem(client.call("POST", "/v1/messages", {"channels": [], "data": 1}), 400, "bad-request", "channels")
    t.problem(client.call("POST", "/v1/messages", {"messages": []}), 400, "bad-request", "messages")


@must("PUB-9")
def checks_types(t: Trial) -> None:
    """A field of the wrong type gets 400."""
    client, name = t.client(), t.channel()
    bodies: tuple[Any, ...] = (
        [],
        "text",
        1,
        {"channels": name, "data": 1},
        {"channels": [1], "data": 1},
        {"messages": {}},
    )
    for body in bodies:
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request")


@must("PUB-10")
def takes_64_levels(t: Trial) -> None:
    """Arrays may nest 64 levels, the object around them included."""
    client, name = t.client(), t.channel()
    text = "[" * 63 + "]" * 63
    body = b'{"channels": ["%b"], "data": %b}' % (name.encode(), text.encode())
    t.status(client.call("POST", "/v1/messages", body), 201)
    t.true(
        text.encode() in client.call("GET", f"/v1/poll?channel={name}").body, "expected the data, and other data came"
    )


@should("PUB-10")
def refuses_more_levels(t: Trial) -> None:
    """Arrays and objects that nest deeper get 400, brackets in text do not count."""
    client, name = t.client(), t.channel()
    for text in ("[" * 64 + "]" * 64, '{"a":' * 64 + "1" + "}" * 64, "[" * 20000 + "]" * 20000):
        body = b'{"channels": ["%b"], "data": %b}' % (name.encode(), text.encode())
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request")
    client.publish(name, '\\"' + "[" * 100)


@must("PUB-11", "resume", "one node")
def is_found_at_once(t: Trial) -> None:
    """Whoever polls after the 201, over another connection, finds the message."""
    publisher, reader = t.client(), t.client()
    for n in range(50):
        name = t.channel()
        publisher.publish(name, n)
        t.same("the messages", reader.poll(name).data, [n])


@must("PUB-12", "POLL-2")
def delivers_events_of_messages(t: Trial) -> None:
    """Each message comes with its own `event`; one without has no such field."""
    client, name = t.client(), t.channel()
    client.call("POST", "/v1/messages", {"channels": [name], "data": 0, "event": "chat/said_1.0:x-y"})
    drafts = [
        {"channels": [name], "data": n, **event} for n, event in ((1, {}), (2, {"event": "b"}), (3, {"event": ""}))
    ]
    t.status(client.call("POST", "/v1/messages", {"messages": drafts}), 201)
    t.same("the events", [m.event for m in client.poll(name).messages], ["chat/said_1.0:x-y", "", "b", ""])
    raw = client.call("GET", f"/v1/poll?channel={name}").json["messages"]
    t.same("the messages with an `event`", ["event" in message for message in raw], [True, False, True, False])


@must("PUB-12")
def refuses_other_events(t: Trial) -> None:
    """Of other characters, too long, a name that is taken, or one for several messages."""
    client, name = t.client(), t.channel()
    for event in (
        "two words",
        "a\nb",
        "é",
        "x" * 65,
        "closed",
        "cursor",
        "error",
        "gap",
        "message",
        "open",
        "ticket",
        "unread",
        1,
    ):
        body = {"channels": [name], "data": 1, "event": event}
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "event")
        t.problem(client.call("POST", "/v1/messages", {"messages": [body]}), 400, "bad-request", "messages[0].event")
    body = {"messages": [{"channels": [name], "data": 1}], "event": "a"}
    t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "event")
