"""Idempotency keys."""

from __future__ import annotations

from conformance.registry import must
from conformance.trial import Client, Trial
from conformance.wire import Response

KEYS = ("keys", "native")


def _publish(client: Client, channel: str, data: object, key: str) -> Response:
    return client.call("POST", "/v1/messages", {"channels": [channel], "data": data}, Idempotency_Key=key)


@must("KEY-1", *KEYS)
def publish_once(t: Trial) -> None:
    """The same publication with the same key gets the same answer, and is published once."""
    client, name, key = t.client(), t.channel(), t.name()
    first = t.status(_publish(client, name, "once", key), 201)
    for _ in range(3):
        t.same("the answer", t.status(_publish(t.client(), name, "once", key), 201).json, first.json)
    t.same("the messages", client.poll(name).data, ["once"])


@must("KEY-1", *KEYS)
def publish_a_list_once(t: Trial) -> None:
    """The same list with the same key gets the same answer, and is published once."""
    client, name, key = t.client(), t.channel(), t.name()
    body = {"messages": [{"channels": [name], "data": n} for n in range(3)]}
    first, second = (t.status(client.call("POST", "/v1/messages", body, Idempotency_Key=key), 201) for _ in range(2))
    t.same("the second answer", second.json, first.json)
    t.same("the messages", client.poll(name).data, [0, 1, 2])


@must("KEY-1", *KEYS)
def hold_beside_others(t: Trial) -> None:
    """A key is remembered while others publish, with keys and without."""
    client, name, key = t.client(), t.channel(), t.name()
    first = t.status(_publish(client, name, "once", key), 201)
    for n in range(50):
        t.status(_publish(client, name, n, f"{key}-{n}"), 201)
    t.same("the answer", _publish(client, name, "once", key).json, first.json)


@must("KEY-2", *KEYS)
def are_for_one_publication(t: Trial) -> None:
    """A key that was used for other data or channels gets 422, and nothing is published."""
    client, name, other, key = t.client(), t.channel(), t.channel(), t.name()
    t.status(_publish(client, name, "first", key), 201)
    t.problem(_publish(client, name, "second", key), 422, "idempotency-key-reused")
    t.problem(_publish(client, other, "first", key), 422, "idempotency-key-reused")
    t.same("the messages", client.poll((name, other)).data, ["first"])


@must("KEY-2", *KEYS)
def compare_text(t: Trial) -> None:
    """Data is compared as text: 1 is not 1.0."""
    client, name, key = t.client(), t.channel(), t.name()
    for data, status in ((b"1", 201), (b"1.0", 422), (b"1", 201)):
        body = b'{"channels": ["%b"], "data": %b}' % (name.encode(), data)
        t.status(client.call("POST", "/v1/messages", body, Idempotency_Key=key), status)


@must("KEY-2", *KEYS)
def compare_events(t: Trial) -> None:
    """Another event is another publication."""
    client, name, key = t.client(), t.channel(), t.name()
    for event, status in (("a", 201), ("b", 422), ("", 422), ("a", 201)):
        body = {"channels": [name], "data": 1, "event": event}
        t.status(client.call("POST", "/v1/messages", body, Idempotency_Key=key), status)


@must("KEY-2", *KEYS)
def compare_whether_messages_are_ephemeral(t: Trial) -> None:
    """The same message, ephemeral now, is another publication; one that says that it is not is the same."""
    client, name, key = t.client(), t.channel(), t.name()
    for more, status in (({}, 201), ({"ephemeral": True}, 422), ({"ephemeral": False}, 201)):
        body = {"channels": [name], "data": 1, **more}
        t.status(client.call("POST", "/v1/messages", body, Idempotency_Key=key), status)
    t.same("the messages", client.poll(name).data, [1])


@must("KEY-4", *KEYS)
def publish_once_at_the_same_time(t: Trial) -> None:
    """Eight publishers with one key at the same moment publish once, and all get the same id."""
    for _ in range(10):
        name, key, ids = t.channel(), t.name(), []
        clients = [t.client() for _ in range(8)]
        for client in clients:
            client.begin(
                t.native.call(
                    "POST", "/v1/messages", {"channels": [name], "data": 1}, headers=(("Idempotency-Key", key),)
                )
            )
        ids = [t.status(client.finish(), 201).json["id"] for client in clients]
        t.same("the number of ids", len(set(ids)), 1)
        t.same("the messages", t.client().poll(name).data, [1])


@must("KEY-5", *KEYS)
def survive_a_refusal(t: Trial) -> None:
    """A publication that was refused does not use up its key."""
    client, name, key = t.client(), t.channel(), t.name()
    t.problem(_publish(client, "4711", "later", key), 404, "unknown-channel")
    t.status(_publish(client, name, "later", key), 201)
    t.same("the messages", client.poll(name).data, ["later"])


@must("KEY-6", *KEYS)
def have_255_characters(t: Trial) -> None:
    """A key of 255 characters works, one of 256 gets 400."""
    client, name = t.client(), t.channel()
    key = t.name().ljust(255, "k")
    t.status(_publish(client, name, 1, key), 201)
    t.problem(_publish(client, name, 1, key + "k"), 400, "bad-request", "Idempotency-Key")


@must("KEY-6", *KEYS)
def may_be_empty(t: Trial) -> None:
    """An empty key is no key: each publication counts."""
    client, name = t.client(), t.channel()
    for data in (1, 2):
        t.status(_publish(client, name, data, ""), 201)
    t.same("the messages", client.poll(name).data, [1, 2])
