"""Producers, who count their messages."""

from __future__ import annotations

from typing import Any

from conformance.registry import must
from conformance.trial import Client, Trial
from conformance.wire import Response

NATIVE = ("native",)


def _publish(client: Client, channel: str, name: str, sequence: int, *data: object, epoch: int = 1) -> Response:
    body: dict[str, Any] = {
        "messages": [{"channels": [channel], "data": each} for each in data],
        "producer": {"name": name, "epoch": epoch, "sequence": sequence},
    }
    return client.call("POST", "/v1/messages", body)


@must("PROD-1", *NATIVE)
def go_on(t: Trial) -> None:
    """Publications whose numbers follow each other are published, with the ids of any other."""
    client, channel, name = t.client(), t.channel(), t.name()
    t.same("the number of ids", len(t.status(_publish(client, channel, name, 0, "a", "b"), 201).json["ids"]), 2)
    answer = t.status(_publish(client, channel, name, 2, "c"), 201).json
    t.same("the fields", sorted(answer), ["cursor", "ids", "time"])
    t.same("the messages", client.poll(channel).data, ["a", "b", "c"])


@must("PROD-2", *NATIVE)
def repeat_the_last(t: Trial) -> None:
    """The last publication again gets the same answer, and is published once."""
    client, channel, name = t.client(), t.channel(), t.name()
    first = t.status(_publish(client, channel, name, 0, "a", "b"), 201).json
    for _ in range(3):
        t.same("the answer", t.status(_publish(t.client(), channel, name, 0, "a", "b"), 201).json, first)
    t.same("the messages", client.poll(channel).data, ["a", "b"])


@must("PROD-3", *NATIVE)
def know_duplicates(t: Trial) -> None:
    """What came before the last publication is a duplicate, and is not published."""
    client, channel, name = t.client(), t.channel(), t.name()
    for sequence in range(3):
        t.status(_publish(client, channel, name, sequence, sequence), 201)
    for sequence in range(2):
        t.same("the answer", t.status(_publish(client, channel, name, sequence, 9), 200).json, {"duplicate": True})
    t.same("the messages", client.poll(channel).data, [0, 1, 2])


@must("PROD-4", *NATIVE)
def refuse_other_numbers(t: Trial) -> None:
    """A hole, an overlap, and other messages get 409 with the next number; nothing is published."""
    client, channel, name = t.client(), t.channel(), t.name()
    t.status(_publish(client, channel, name, 0, "a"), 201)
    t.status(_publish(client, channel, name, 1, "b", "c"), 201)
    for sequence, data in ((4, ["e"]), (2, ["c", "d"]), (1, ["b", "x"]), (1, ["b"]), (0, ["a", "b"])):
        refused = _publish(client, channel, name, sequence, *data)
        t.problem(refused, 409, "producer-sequence", "producer.sequence")
        t.same("`next`", refused.json.get("next"), 3)
    t.same("the messages", client.poll(channel).data, ["a", "b", "c"])


@must("PROD-5", *NATIVE)
def fence_earlier_epochs(t: Trial) -> None:
    """A later epoch that publishes, or repeats, ends the earlier ones."""
    client, channel, name = t.client(), t.channel(), t.name()
    first = t.status(_publish(client, channel, name, 0, "a"), 201).json
    t.same("the repeated answer", t.status(_publish(client, channel, name, 0, "a", epoch=5), 201).json, first)
    t.status(_publish(client, channel, name, 1, "b", epoch=7), 201)
    for epoch, sequence, data in ((5, 1, "b"), (6, 2, "c"), (1, 0, "a")):
        fenced = _publish(client, channel, name, sequence, data, epoch=epoch)
        t.problem(fenced, 409, "producer-fenced", "producer.epoch")
        t.same("`epoch`", fenced.json.get("epoch"), 7)
    t.same("the messages", client.poll(channel).data, ["a", "b"])


@must("PROD-6", *NATIVE)
def may_begin_anywhere(t: Trial) -> None:
    """An unknown producer's first number is accepted; unless it is 0, the answer says `after_loss`, each time."""
    client, channel, name = t.client(), t.channel(), t.name()
    for _ in range(2):
        t.same("`after_loss`", t.status(_publish(client, channel, name, 7, "a"), 201).json.get("after_loss"), True)
    t.true("after_loss" not in t.status(_publish(client, channel, name, 8, "b"), 201).json, "expected no `after_loss`")
    t.same("the messages", client.poll(channel).data, ["a", "b"])


@must("PROD-8", *NATIVE)
def lose_no_numbers(t: Trial) -> None:
    """A publication that was refused does not use up its numbers."""
    client, channel, name = t.client(), t.channel(), t.name()
    t.status(_publish(client, channel, name, 0, "a"), 201)
    t.problem(_publish(client, "4711", name, 1, "b"), 404, "unknown-channel")
    t.status(_publish(client, channel, name, 1, "b"), 201)
    t.same("the messages", client.poll(channel).data, ["a", "b"])


@must("PROD-9", *NATIVE)
def are_checked(t: Trial) -> None:
    """Names and numbers that are none get 400, and so does a producer with an idempotency key."""
    client, channel, good = t.client(), t.channel(), t.name()
    for name in ("", "n" * 129, "a b", "é"):
        t.problem(_publish(client, channel, name, 0, 1), 400, "bad-request", "producer.name")
    for number in (-1, 2**53):
        t.problem(_publish(client, channel, good, number, 1), 400, "bad-request", "producer.sequence")
        t.problem(_publish(client, channel, good, 0, 1, epoch=number), 400, "bad-request", "producer.epoch")
    producer = {"name": good, "epoch": 0, "sequence": 0}
    body = {"channels": [channel], "data": 1, "producer": producer}
    both = client.call("POST", "/v1/messages", body, Idempotency_Key=good)
    t.problem(both, 400, "bad-request", "Idempotency-Key")
    for wrong in (7, {}, {**producer, "epoch": "1"}, {**producer, "number": 1}):
        t.problem(client.call("POST", "/v1/messages", {**body, "producer": wrong}), 400, "bad-request")
    t.status(client.call("POST", "/v1/messages", body), 201)
