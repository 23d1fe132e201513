"""Acknowledgements."""

from __future__ import annotations

from conformance.registry import must
from conformance.trial import Trial

ACKNOWLEDGEMENTS = ("acknowledgements", "native")


@must("ACK-2", *ACKNOWLEDGEMENTS)
def may_be_stable(t: Trial) -> None:
    """A publication that asks for stable is told what was reached, by how many nodes."""
    name = t.channel()
    body = {"channels": [name], "data": 1, "ack": "stable", "ack_timeout": 4}
    value = t.status(t.client().call("POST", "/v1/messages", body), 201).json
    t.same("the fields", sorted(value), ["ack", "cursor", "id", "nodes", "replicas", "time"])
    t.true(value["ack"] in ("stable", "accepted"), f"expected stable or accepted, and {value['ack']} came")
    t.true(value["ack"] == "accepted" or value["nodes"] >= 1, f"expected at least one node, and {value} came")
    t.same("the messages", t.client().poll(name).data, [1])


@must("ACK-3", *ACKNOWLEDGEMENTS)
def may_be_replicated(t: Trial) -> None:
    """A publication that asks for replicated is told what was reached, by how many replicas."""
    body = {"channels": [t.channel()], "data": 1, "ack": "replicated", "ack_timeout": 0.2}
    value = t.status(t.client().call("POST", "/v1/messages", body), 201).json
    t.true(value.get("ack") in ("replicated", "accepted"), f"expected replicated or accepted, and {value} came")
    t.true(value["ack"] == "accepted" or value["replicas"] >= 1, f"expected at least one replica, and {value} came")


@must("ACK-4", *ACKNOWLEDGEMENTS)
def are_checked(t: Trial) -> None:
    """Another ack, or an ack_timeout out of range, gets 400."""
    client, name = t.client(), t.channel()
    for more, field in (
        ({"ack": "surely"}, "ack"),
        ({"ack": "stable", "ack_timeout": 0}, "ack_timeout"),
        ({"ack": "stable", "ack_timeout": 61}, "ack_timeout"),
        ({"ack": "stable", "ack_timeout": "5"}, "ack_timeout"),
    ):
        response = client.call("POST", "/v1/messages", {"channels": [name], "data": 1, **more})
        t.problem(response, 400, "bad-request", field)
    t.same("the messages", client.poll(name).data, [])


@must("ACK-4", *ACKNOWLEDGEMENTS)
def are_not_shown_unasked(t: Trial) -> None:
    """Without ack, and with accepted, the answer says nothing of it."""
    client, name = t.client(), t.channel()
    for more in ({}, {"ack": "accepted"}):
        value = t.status(client.call("POST", "/v1/messages", {"channels": [name], "data": 1, **more}), 201).json
        t.same("the fields", sorted(value), ["cursor", "id", "time"])
