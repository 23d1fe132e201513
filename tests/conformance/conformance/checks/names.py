"""Names and ids of channels."""

from __future__ import annotations

from urllib.parse import quote

from conformance.registry import must
from conformance.trial import Trial


@must("NAME-1")
def of_255_bytes_work(t: Trial) -> None:
    """A name of 255 bytes can be published to and polled, in ASCII and in UTF-8."""
    client = t.client()
    for name in (t.name().ljust(255, "x"), t.name()[:15] + "\u00e9" * 120):
        if t.options.strict:
            t.status(client.call("POST", "/v1/channels", {"name": name}), 201)
        client.publish(name, 1)
        t.same("the messages", client.poll(name).data, [1])


@must("NAME-1")
def of_256_bytes_are_refused(t: Trial) -> None:
    """A name of 256 bytes gets 400, counted in bytes and not in characters."""
    client = t.client()
    for name in ("x" * 256, "\u00e9" * 128):
        t.problem(client.call("POST", "/v1/messages", {"channels": [name], "data": 1}), 400, "bad-request", "channels")
        t.problem(client.call("GET", f"/v1/poll?channel={quote(name)}&timeout=0"), 400, "bad-request", "channel")


@must("NAME-1")
def must_not_be_empty(t: Trial) -> None:
    """An empty name gets 400."""
    client = t.client()
    t.problem(client.call("POST", "/v1/messages", {"channels": [""], "data": 1}), 400, "bad-request")
    t.problem(client.call("GET", "/v1/poll?channel=&timeout=0"), 400, "bad-request")
    t.problem(client.call("POST", "/v1/channels", {"name": ""}), 400, "bad-request")


@must("NAME-1")
def must_not_have_control_characters(t: Trial) -> None:
    """A name with a control character gets 400."""
    client = t.client()
    for character in ("\x00", "\n", "\x1f", "\x7f"):
        name = f"a{character}b"
        t.problem(client.call("POST", "/v1/messages", {"channels": [name], "data": 1}), 400, "bad-request")
        t.problem(client.call("GET", f"/v1/poll?channel={quote(name)}&timeout=0"), 400, "bad-request")


@must("NAME-1")
def must_not_have_commas_or_asterisks(t: Trial) -> None:
    """A name with a comma or an asterisk gets 400 wherever there can be a name: a list or a pattern follows nothing."""
    client = t.client()
    for name in ("a,b", "user:*", "*"):
        t.problem(client.call("POST", "/v1/messages", {"channels": [name], "data": 1}), 400, "bad-request", "channels")
        t.problem(client.call("POST", "/v1/channels", {"name": name}), 400, "bad-request", "name")
        for target in (f"poll?channel={quote(name)}&timeout=0", f"poll?channel={name}&timeout=0", f"channels/{name}"):
            t.problem(client.call("GET", f"/v1/{target}"), 400, "bad-request", "channel")


@must("NAME-2")
def are_compared_by_bytes(t: Trial) -> None:
    """Upper and lower case are different names, and so are two ways to compose a character."""
    client, base = t.client(), t.name()
    names = [base + text for text in ("k", "K", "\u00e9", "e\u0301", "\ufb01", "fi")]
    for name in names:
        if t.options.strict:
            t.status(client.call("POST", "/v1/channels", {"name": name}), 201)
        client.publish(name, name)
    for name in names:
        t.same(f"the messages of {name!r}", client.poll(name).data, [name])


@must("NAME-3")
def must_not_be_digits(t: Trial) -> None:
    """A channel cannot be created with a name of digits only."""
    t.problem(t.client().call("POST", "/v1/channels", {"name": "4711"}), 400, "bad-request", "name")


@must("NAME-3")
def of_digits_are_ids(t: Trial) -> None:
    """An id that no channel has gets 404, in a publication and in a poll."""
    client = t.client()
    t.problem(client.call("POST", "/v1/messages", {"channels": ["4711"], "data": 1}), 404, "unknown-channel")
    t.problem(client.call("GET", "/v1/poll?channel=4711&timeout=0"), 404, "unknown-channel")


@must("NAME-4")
def may_be_replaced_by_ids(t: Trial) -> None:
    """An id works in every call, and answers show the name."""
    client, name = t.client(), t.name()
    number = str(t.status(client.call("POST", "/v1/channels", {"name": name}), 201).json["id"])
    client.publish(number, "by id")
    if not t.options.credentials:  # an application allows names
        t.same("the channels of the message", client.poll(number).messages[0].channels, (name,))
    t.same("the messages of the name", client.poll(name).data, ["by id"])
    t.same("the name shown", client.call("GET", f"/v1/channels/{number}").json["name"], name)
    t.same("the name renewed", client.call("POST", f"/v1/channels/{number}/renew").json["name"], name)
    t.status(client.call("DELETE", f"/v1/channels/{number}"), 204)


@must("NAME-5")
def in_queries_are_percent_encoded(t: Trial) -> None:
    """In a query, percent-encoded UTF-8 works, + is a space, and %2B is a plus."""
    client = t.client()
    plus, space, letters = t.channel("+c"), t.channel(" c"), t.channel("\u00e9\U0001f600&=#")
    for name in (plus, space, letters):
        client.publish(name, name)
    for text, name in ((plus.replace("+", "%2B"), plus), (space.replace(" ", "+"), space), (quote(letters), letters)):
        answer = client.call("GET", f"/v1/poll?channel={text}&timeout=0")
        t.same(f"the message of channel={text}", t.native.read_answer(answer, "").data, [name])


@must("NAME-5")
def in_paths_are_one_segment(t: Trial) -> None:
    """In a path, a percent-encoded slash is part of the name."""
    client, name = t.client(), t.channel("/a b\u00e9")
    client.publish(name, 1)
    shown = t.status(client.call("GET", f"/v1/channels/{quote(name, safe='')}"), 200).json
    t.same("the name", shown["name"], name)


@must("NAME-5")
def must_be_utf_8(t: Trial) -> None:
    """What is not UTF-8 after decoding gets 400, in a query and in a path."""
    client = t.client()
    t.problem(client.call("GET", "/v1/poll?channel=%ff%fe&timeout=0"), 400, "bad-request")
    t.problem(client.call("GET", "/v1/channels/%ff%fe"), 400, "bad-request")
