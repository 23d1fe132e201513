"""Deleting messages."""

from __future__ import annotations

from conformance.registry import must
from conformance.trial import Client, Trial
from conformance.wire import Response


def _delete(client: Client, what: str) -> Response:
    return client.call("DELETE", f"/v1/messages{what}")


@must("ERASE-1", "native")
def deletes_a_message_from_all_of_its_channels(t: Trial) -> None:
    """Once; then there is no such message."""
    client, one, other = t.client(), t.channel(), t.channel()
    client.publish((one, other), "stays")
    id_ = client.publish((one, other), "goes").ids[0]
    response = t.status(_delete(client, f"/{id_}"), 200)
    t.same("the response", response.json, {"deleted": 1})
    for name in (one, other):
        t.same("the messages", client.poll(name).data, ["stays"])
    t.problem(_delete(client, f"/{id_}"), 404, "unknown-message")
    t.problem(_delete(client, "/none"), 400, "bad-request", "id")


@must("ERASE-2", "native")
def deletes_what_a_channel_has_up_to_a_cursor(t: Trial) -> None:
    """Without a cursor, everything; and nothing of another channel."""
    client, name, other = t.client(), t.channel(), t.channel()
    client.publish(name, "first")
    client.publish(other, "other")
    cursor = client.publish(name, "second").cursor
    client.publish(name, "third")
    response = t.status(_delete(client, f"?channel={name}&until={cursor}"), 200)
    t.same("the response", response.json, {"deleted": 2})
    t.same("the messages left", client.poll(name).data, ["third"])
    t.same("the response", t.status(_delete(client, f"?channel={name}"), 200).json, {"deleted": 1})
    t.same("the messages left", client.poll((name, other)).data, ["other"])
    t.problem(_delete(client, f"?channel={name}&until=now"), 400, "bad-request", "until")
    t.problem(_delete(client, ""), 400, "bad-request")


@must("ERASE-3", "gaps", "native")
def tells_who_has_not_seen_it(t: Trial) -> None:
    """By a gap, and the messages before it that are kept still come. Who has seen it gets no gap."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "seen").cursor
    client.publish(name, "before")
    deleted = client.publish(name, "deleted")
    client.publish(name, "after")
    t.status(_delete(client, f"/{deleted.ids[0]}"), 200)
    answer = client.poll(name, cursor)
    t.same("the gaps", answer.gaps, ((name, "deleted"),))
    t.same("the messages", answer.data, ["before", "after"])
    t.same("the channels of the first", answer.value["messages"][0]["channels"], [name])
    (gap,) = answer.value["gaps"]
    t.same("the gaps behind its end", client.poll(name, gap["until"]).gaps, ())
    t.same("the messages behind its end", client.poll(name, gap["until"]).data, ["after"])
    t.same("the gaps behind the message", client.poll(name, deleted.cursor).gaps, ())
    t.same("the gaps without a cursor", client.poll(name).gaps, ())
