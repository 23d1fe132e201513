"""Polls."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

from conformance.follower import Follower
from conformance.pushup import ANSWER_FIELDS
from conformance.registry import must
from conformance.trial import LONG, Trial


@must("POLL-1")
def have_answers_of_five_fields(t: Trial) -> None:
    """An answer has cursor, messages, more, gaps and closed, also when it is empty."""
    client, name = t.client(), t.channel()
    for _ in range(2):
        value = client.poll(name).value
        t.true(set(value) >= ANSWER_FIELDS, f"expected {sorted(ANSWER_FIELDS)}, and {sorted(value)} came")
        t.same("the types", [type(value[f]) for f in ("cursor", "messages", "more", "gaps", "closed")],
               [str, list, bool, list, list])  # fmt: skip
        client.publish(name, 1)


@must("POLL-2")
def get_messages_of_four_fields(t: Trial) -> None:
    """A message has id, time, channels and data as they were published."""
    client, name = t.client(), t.channel()
    published = client.publish(name, "hello")
    (message,) = client.poll(name).value["messages"]
    wanted = {"id": published.ids[0], "time": published.time, "channels": [name], "data": "hello"}
    t.same("the message", message, wanted)


@must("POLL-2")
def see_only_their_channels(t: Trial) -> None:
    """A message names those of its channels that were asked for, and no others."""
    client, names = t.client(), [t.channel() for _ in range(3)]
    client.publish(tuple(names), 1)
    t.same("the channels", client.poll(names[1]).messages[0].channels, (names[1],))
    t.same("the channels", set(client.poll((names[2], names[0])).messages[0].channels), {names[0], names[2]})


@must("POLL-3", "many channels")
def merge_channels_in_order(t: Trial) -> None:
    """Messages of several channels come in the order in which they were published."""
    client, names = t.client(), [t.channel() for _ in range(3)]
    for n in range(12):
        client.publish(names[(0, 0, 1, 0, 2, 2, 1, 1, 2, 0, 1, 0)[n]], n)
    follower = Follower(t, tuple(names))
    for _ in range(13):
        follower.poll(client)
    t.same("the messages", follower.data, list(range(12)))


@must("POLL-3", "one message")
def get_a_message_once(t: Trial) -> None:
    """A message on several of the channels comes once."""
    client, names = t.client(), (t.channel(), t.channel())
    client.publish(names, "both")
    client.publish(names[0], "one")
    follower = Follower(t, names)
    for _ in range(4):
        follower.poll(client)
    t.same("the messages", follower.data, ["both", "one"])


@must("POLL-4", "resume")
def are_answered_at_once(t: Trial) -> None:
    """A poll that may wait is answered at once if there is a message."""
    client, name = t.client(), t.channel()
    client.publish(name, "here")
    client.begin_poll(name, timeout=LONG)
    t.same("the messages", client.answer().data, ["here"])


@must("POLL-5", "resume")
def are_woken_by_a_publication(t: Trial) -> None:
    """A held poll is answered at once when a message is published."""
    client, publisher = t.client(), t.client()
    for n in range(5):
        name = t.channel()
        client.begin_poll(name)
        t.sleep(0.05)
        publisher.publish(name, n)
        t.same("the messages", client.answer().data, [n])


@must("POLL-5", "many channels")
def are_woken_on_each_channel(t: Trial) -> None:
    """A held poll is answered by a message on any one of its channels."""
    client, publisher = t.client(), t.client()
    for n in range(4):
        names = tuple(t.channel() for _ in range(4))
        client.begin_poll(names)
        t.sleep(0.05)
        publisher.publish(names[n], n)
        t.same("the messages", client.answer().data, [n])


@must("POLL-4", "resume")
def are_not_woken_by_others(t: Trial) -> None:
    """A held poll is not answered by messages on other channels."""
    client, publisher, name = t.client(), t.client(), t.channel()
    client.begin_poll(name)
    other = t.channel()
    for n in range(20):
        publisher.publish(other, n)
    t.true(client.wire.silent(0.3), "expected no answer yet, and one came")
    publisher.publish(name, "mine")
    t.same("the messages", client.answer().data, ["mine"])


@must("POLL-5")
def are_woken_by_closing(t: Trial) -> None:
    """A held poll is answered at once when its channel is closed."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, 1).cursor
    client.begin_poll(name, cursor)
    t.sleep(0.05)
    t.status(t.client().call("DELETE", f"/v1/channels/{name}"), 204)
    t.same("the channels closed", client.answer().closed, (name,))


@must("POLL-6")
def end_in_time(t: Trial) -> None:
    """A poll for which nothing comes gets an empty answer after 85 to 100 % of its timeout."""
    client = t.client()
    name = t.channel()
    for timeout in (1.0, 2.0):
        began = time.monotonic()
        answer = client.poll(name, timeout=timeout)
        took = time.monotonic() - began
        t.same("the messages, gaps and closings", (answer.messages, answer.gaps, answer.closed), ((), (), ()))
        t.true(
            took >= 0.85 * timeout - 0.05, f"expected a wait of {0.85 * timeout:g} s at least, and it was {took:.2f}"
        )
        t.true(took <= timeout + t.patience / 5, f"expected a wait of {timeout:g} s at most, and it was {took:.2f}")


@must("POLL-6", "timeout")
def end_without_messages(t: Trial) -> None:
    """A poll for which nothing comes is answered, neither at once nor much later than its timeout."""
    client = t.client()
    began = time.monotonic()
    answer = client.poll(t.channel(), timeout=1.0)
    took = time.monotonic() - began
    t.same("the messages", answer.data, [])
    t.true(0.5 <= took <= 2 + t.patience / 5, f"expected a wait of about 1 s, and it was {took:.2f}")


@must("POLL-7", "resume")
def need_not_wait(t: Trial) -> None:
    """A poll with timeout 0 is answered at once, empty or not."""
    client, name = t.client(), t.channel()
    began = time.monotonic()
    for _ in range(10):
        t.same("the messages", client.poll(name).data, [])
    took = time.monotonic() - began
    t.true(took < t.patience, f"expected ten answers at once, and they took {took:.1f} s")


@must("POLL-7")
def may_wait_for_fractions(t: Trial) -> None:
    """A timeout may have a fraction."""
    client, name = t.client(), t.channel()
    began = time.monotonic()
    t.status(client.call("GET", f"/v1/poll?channel={name}&timeout=0.5"), 200)
    took = time.monotonic() - began
    t.true(0.3 <= took <= 0.5 + t.patience / 5, f"expected a wait of about 0.5 s, and it was {took:.2f}")


@must("POLL-7")
def may_ask_for_too_much_time(t: Trial) -> None:
    """A timeout above the limit is no error."""
    client, name = t.client(), t.channel()
    client.begin_poll(name, timeout=1e6)
    t.true(client.wire.silent(0.2), "expected the poll to be held, and an answer came")
    t.client().publish(name, 1)
    t.same("the messages", client.answer().data, [1])


@must("POLL-7")
def wait_without_a_timeout(t: Trial) -> None:
    """Without a timeout, and with an empty one, a poll is held."""
    client, name = t.client(), t.channel()
    for query in ("", "&timeout="):
        cursor = t.client().call("GET", "/v1/cursor").json["cursor"]
        client.begin(t.native.call("GET", f"/v1/poll?channel={name}&cursor={cursor}{query}"))
        t.true(client.wire.silent(0.2), "expected the poll to be held, and an answer came")
        t.client().publish(name, 1)
        t.same("the messages", client.answer().data, [1])


@must("POLL-7")
def need_a_good_timeout(t: Trial) -> None:
    """A timeout that is negative or no number gets 400."""
    client, name = t.client(), t.channel()
    for text in ("-1", "soon", "nan", "1s", "0x1", "1,5"):
        t.problem(client.call("GET", f"/v1/poll?channel={name}&timeout={text}"), 400, "bad-request", "timeout")
    response = client.call("POST", "/v1/poll", {"channels": [name], "timeout": "1"})
    t.problem(response, 400, "bad-request", "timeout")


@must("POLL-8")
def limit_their_messages(t: Trial) -> None:
    """At most limit messages come."""
    client, name = t.client(), t.channel()
    client.publish_list((name, n) for n in range(10))
    for limit in (1, 3, 10):
        response = client.call("GET", f"/v1/poll?channel={name}&limit={limit}")
        t.same("the messages", t.native.read_answer(response, "").data, list(range(limit)))


@must("POLL-8")
def may_ask_for_too_many(t: Trial) -> None:
    """A limit above that of the server is no error, and counts as that."""
    client, name, most = t.client(), t.channel(), t.limits["poll_limit"]
    for at in range(0, most + 20, 50):
        client.publish_list((name, n) for n in range(at, min(at + 50, most + 20)))
    for query in ("", "&limit=1000000", "&limit="):
        answer = t.native.read_answer(client.call("GET", f"/v1/poll?channel={name}{query}"), "")
        t.same("the number of messages", len(answer.messages), most)
        t.same("more", answer.more, True)


@must("POLL-8")
def need_a_good_limit(t: Trial) -> None:
    """A limit below 1, or that is no whole number, gets 400."""
    client, name = t.client(), t.channel()
    for text in ("0", "-1", "1.5", "many"):
        t.problem(client.call("GET", f"/v1/poll?channel={name}&limit={text}"), 400, "bad-request", "limit")


@must("POLL-9")
def say_whether_there_is_more(t: Trial) -> None:
    """More is true until the last message has come, and false then."""
    client, name = t.client(), t.channel()
    client.publish_list((name, n) for n in range(7))
    came: list[Any] = []
    cursor = ""
    for expected in (True, True, True, False):
        response = client.call("GET", f"/v1/poll?channel={name}&limit=2&cursor={cursor}&timeout=20")
        answer = t.native.read_answer(response, "")
        came, cursor = [*came, *answer.data], answer.cursor
        t.same(f"more after {len(came)} of 7 messages", answer.more, expected)
    t.same("the messages", came, list(range(7)))


@must("POLL-9")
def are_not_misled_when_all_came(t: Trial) -> None:
    """More is false when limit messages came and there are no others."""
    client, name = t.client(), t.channel()
    client.publish_list((name, n) for n in range(4))
    answer = t.native.read_answer(client.call("GET", f"/v1/poll?channel={name}&limit=4"), "")
    t.same("the messages and more", (answer.data, answer.more), ([0, 1, 2, 3], False))


@must("POLL-10")
def get_large_messages(t: Trial) -> None:
    """Messages that together exceed the size of an answer all come, one after the other if need be."""
    client, name = t.client(), t.channel()
    count = 3 + t.limits["answer_limit_bytes"] // t.limits["message_limit_bytes"]
    texts = [str(n) + "x" * (t.limits["message_limit_bytes"] - 10) for n in range(count)]
    for text in texts:
        client.publish(name, text)
    came: list[Any] = []
    cursor, more = "", True
    while more:
        answer = client.poll(name, cursor)
        t.true(answer.messages, "expected a message in each answer while there are more, and none came")
        came, cursor, more = [*came, *answer.data], answer.cursor, answer.more
    t.true(came == texts, f"expected {count} messages, and {len(came)} came, or others")


@must("POLL-11")
def select_by_time(t: Trial) -> None:
    """From is inclusive and to exclusive; both are seconds since the epoch."""
    client, name = t.client(), t.channel()
    times = []
    for n in range(3):
        times.append(client.publish(name, n).time)
        t.sleep(0.01)
    for query, expected in (
        (f"from={times[1]!r}", [1, 2]),
        (f"to={times[1]!r}", [0]),
        (f"from={times[0]!r}&to={times[2]!r}", [0, 1]),
        ("from=&to=", [0, 1, 2]),
    ):
        response = client.call("GET", f"/v1/poll?channel={name}&timeout=0&{query}")
        t.same(f"the messages with {query}", t.native.read_answer(response, "").data, expected)


@must("POLL-11")
def leave_what_they_exclude_behind(t: Trial) -> None:
    """A message that is excluded by its time counts as seen."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "before").cursor
    client.publish(name, "excluded")
    target = f"/v1/poll?channel={name}&cursor={cursor}&timeout=0&from=99999999999"
    answer = t.native.read_answer(client.call("GET", target), cursor)
    t.same("the messages", answer.data, [])
    client.publish(name, "after")
    t.same("the messages after that", client.poll(name, answer.cursor).data, ["after"])


@must("POLL-11")
def understand_rfc_3339(t: Trial) -> None:
    """Times may be RFC 3339, with Z or an offset."""
    client, name = t.client(), t.channel()
    moment = datetime.fromtimestamp(client.publish(name, 1).time, UTC)
    hour = timedelta(hours=1)
    for text, expected in (
        ((moment - hour).strftime("%Y-%m-%dT%H:%M:%SZ"), [1]),
        ((moment + hour).strftime("%Y-%m-%dT%H:%M:%SZ"), []),
        ((moment - hour).astimezone(timezone(9 * hour)).isoformat(), [1]),
    ):
        response = client.call("GET", f"/v1/poll?channel={name}&timeout=0&from={quote(text)}")
        t.same(f"the messages from {text}", t.native.read_answer(response, "").data, expected)


@must("POLL-11")
def need_good_times(t: Trial) -> None:
    """A time that is neither, or has no offset, gets 400."""
    client, name = t.client(), t.channel()
    for text in ("yesterday", "2027-01-15", "2027-01-15T08:00:00", "nan", "1e999"):
        for field in ("from", "to"):
            response = client.call("GET", f"/v1/poll?channel={name}&timeout=0&{field}={text}")
            t.problem(response, 400, "bad-request", field)


@must("POLL-12")
def need_a_channel(t: Trial) -> None:
    """A poll without a channel gets 400."""
    client = t.client()
    t.problem(client.call("GET", "/v1/poll?timeout=0"), 400, "bad-request", "channel")
    t.problem(client.call("POST", "/v1/poll", {"channels": []}), 400, "bad-request", "channels")
    t.problem(client.call("POST", "/v1/poll", {}), 400, "bad-request", "channels")


@must("POLL-12")
def count_a_channel_once(t: Trial) -> None:
    """A channel that is asked for twice counts once."""
    client, name = t.client(), t.channel()
    client.publish(name, 1)
    answer = client.poll((name, name))
    t.same("the messages", answer.data, [1])
    t.same("their channels", answer.messages[0].channels, (name,))


@must("POLL-12")
def take_many_channels(t: Trial) -> None:
    """As many channels as the limit may be asked for, and one more gets 400."""
    client, most = t.client(), t.limits["poll_channels_limit"]
    names = [t.channel() if t.options.strict else t.name() for _ in range(most)]
    client.publish(names[-1], "last")
    body = {"channels": names, "timeout": 0}
    t.same("the messages", t.native.read_answer(client.call("POST", "/v1/poll", body), "").data, ["last"])
    body = {"channels": [*names, t.name()], "timeout": 0}
    t.problem(client.call("POST", "/v1/poll", body), 400, "bad-request", "channels")


@must("POLL-13", "resume")
def may_wait_for_channels_to_come(t: Trial) -> None:
    """A poll for a channel that nobody has used is held, and gets the first message."""
    client, name = t.client(), t.channel()
    client.begin_poll(name)
    t.sleep(0.05)
    t.client().publish(name, "first")
    t.same("the messages", client.answer().data, ["first"])


@must("POLL-14")
def must_not_repeat_parameters(t: Trial) -> None:
    """A parameter that is given twice gets 400."""
    client, name = t.client(), t.channel()
    for field, value in (("timeout", "0"), ("limit", "1"), ("cursor", "now"), ("from", "0"), ("to", "9e9")):
        response = client.call("GET", f"/v1/poll?channel={name}&{field}={value}&{field}={value}")
        t.problem(response, 400, "bad-request", field)


@must("POLL-15")
def have_two_forms(t: Trial) -> None:
    """POST with a body gets the same answer as GET with a query."""
    client, names = t.client(), [t.channel() for _ in range(2)]
    cursor = client.publish(names[0], "before").cursor
    for n in range(6):
        client.publish(names[n % 2], n)
    query = "&".join(f"channel={name}" for name in names)
    one = client.call("GET", f"/v1/poll?{query}&cursor={cursor}&limit=3&timeout=0&from=1&to=9e9").json
    body = {"channels": names, "cursor": cursor, "limit": 3, "timeout": 0, "from": 1, "to": 9e9}
    other = client.call("POST", "/v1/poll", body).json
    for answer in (one, other):
        answer.pop("ticket", None)
    t.same("the answer to POST", other, one)
    t.same("the messages", [message["data"] for message in one["messages"]], [0, 1, 2])


@must("POLL-15")
def in_bodies_are_checked(t: Trial) -> None:
    """A body with a value of the wrong type gets 400 with its field."""
    client, name = t.client(), t.channel()
    for field, value in (("channels", name), ("cursor", 5), ("timeout", "5"), ("limit", 1.5), ("from", [])):
        response = client.call("POST", "/v1/poll", {"channels": [name], "timeout": 0, field: value})
        t.problem(response, 400, "bad-request", field)


@must("POLL-16", "resume")
def may_be_given_up(t: Trial) -> None:
    """A client that leaves while its poll is held finds everything when it comes back."""
    name, publisher = t.channel(), t.client()
    publisher.publish(name, 0)
    cursor = publisher.poll(name).cursor
    for leave in ("close", "reset", "half_close"):
        wire = t.wire()
        wire.send(t.encode(t.adapter.poll((name,), cursor, LONG)))
        t.sleep(0.05)
        getattr(wire, leave)()
    publisher.publish(name, "meanwhile")
    t.same("the messages", t.client().poll(name, cursor).data, ["meanwhile"])


@must("POLL-17", "resume")
def share_messages(t: Trial) -> None:
    """Fifty held polls on one channel all get its next message."""
    name = t.channel()
    clients = [t.client() for _ in range(50)]
    for client in clients:
        client.begin_poll(name)
    t.sleep(0.2)
    t.client().publish(name, "for all")
    for client in clients:
        t.same("the messages", client.answer().data, ["for all"])


@must("POLL-17", "resume")
def consume_nothing(t: Trial) -> None:
    """The same poll gets the same messages again and again."""
    client, name = t.client(), t.channel()
    client.publish(name, 0)
    cursor = client.poll(name).cursor
    client.publish(name, 1)
    for _ in range(3):
        t.same("the messages", client.poll(name, cursor).data, [1])
