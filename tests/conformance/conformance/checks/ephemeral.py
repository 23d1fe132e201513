"""Ephemeral messages: delivered as any other, kept for a moment, and dropped without a gap."""

from __future__ import annotations

from typing import Any

from conformance.adapter import Answer, Published
from conformance.events import EVENTS, LINES
from conformance.follower import Follower
from conformance.registry import must
from conformance.trial import LONG, Client, Trial

KEPT_SECONDS = 5.0
"""How long PushUp keeps an ephemeral message."""

GONE_SECONDS = KEPT_SECONDS + 1.5
"""After this time it is dropped, or very soon."""

LISTS = 11
"""A hundred messages each, together more than a channel keeps by default."""


def _publish(t: Trial, client: Client, *drafts: dict[str, Any]) -> Published:
    return t.native.read_published(client.call("POST", "/v1/messages", {"messages": drafts}))


def _draft(channel: str, data: object, *, ephemeral: bool = True) -> dict[str, Any]:
    return {"channels": [channel], "data": data, **({"ephemeral": True} if ephemeral else {})}


def _is_marked(t: Trial, answer: Answer, data: object) -> None:
    t.same("the messages", answer.data, [data])
    t.same("`ephemeral`", answer.messages[0].ephemeral, True)


@must("EPH-1")
def are_true_or_false(t: Trial) -> None:
    """Another value gets 400, and so does one for several messages."""
    client, name = t.client(), t.channel()
    values: tuple[Any, ...] = (1, 0, "true", "", None, [], {})
    for value in values:
        body = {"channels": [name], "data": 1, "ephemeral": value}
        t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "ephemeral")
        t.problem(
            client.call("POST", "/v1/messages", {"messages": [body]}), 400, "bad-request", "messages[0].ephemeral"
        )
    body = {"messages": [{"channels": [name], "data": 1}], "ephemeral": True}
    t.problem(client.call("POST", "/v1/messages", body), 400, "bad-request", "ephemeral")
    t.same("the messages", client.poll(name).data, [])


@must("EPH-1")
def are_marked_one_by_one(t: Trial) -> None:
    """Of a list each message says for itself; false is the same as nothing, and does not come back."""
    client, name = t.client(), t.channel()
    more: tuple[dict[str, Any], ...] = (
        {},
        {"ephemeral": True},
        {"ephemeral": False},
        {"ephemeral": True, "event": "e"},
    )
    _publish(t, client, *({"channels": [name], "data": n, **fields} for n, fields in enumerate(more)))
    messages = client.poll(name).value["messages"]
    t.same("`ephemeral` of each", [message.get("ephemeral") for message in messages], [None, True, None, True])
    t.same("the last event", messages[-1].get("event"), "e")


@must("EPH-2")
def reach_held_polls(t: Trial) -> None:
    """Held polls are answered at once, one on several channels too; a poll that comes just after that finds it."""
    publisher, names = t.client(), (t.channel(), t.channel())
    cursor = publisher.publish(names[1], "before").cursor
    held = [t.client(), t.client()]
    held[0].begin_poll(names[0])
    held[1].begin_poll(names, cursor)
    t.sleep(0.1)
    _publish(t, publisher, _draft(names[0], "now"))
    for client in held:
        _is_marked(t, client.answer(), "now")
    _is_marked(t, t.client().poll(names, cursor, LONG), "now")


@must("EPH-2")
def reach_streams(t: Trial) -> None:
    """Open streams get it at once, in both formats."""
    publisher, name = t.client(), t.channel()
    streams = [t.client().stream(name, Accept=kind) for kind in (EVENTS, LINES)]
    _publish(t, publisher, _draft(name, "now"))
    for stream in streams:
        _is_marked(t, stream.answer(), "now")


@must("EPH-3")
def are_dropped_without_a_gap(t: Trial) -> None:
    """Some seconds later a cursor from before gets neither the message nor a gap, and everything else."""
    client, name = t.client(), t.channel()
    start = client.publish(name, "seen").cursor
    _publish(t, client, _draft(name, "stays", ephemeral=False), _draft(name, "gone"), _draft(name, "gone too"))
    t.outlast(GONE_SECONDS)
    for _ in range(int(t.patience)):
        answer = client.poll(name, start)
        if answer.data == ["stays"]:
            break
        t.outlast(1.0)
    t.same("the gaps and messages", (answer.gaps, answer.data), ((), ["stays"]))
    client.begin_poll(name, answer.cursor)
    t.sleep(0.1)
    t.client().publish(name, "after")
    later = client.answer()
    t.same("the gaps and messages later", (later.gaps, later.data), ((), ["after"]))


@must("EPH-3")
def leave_no_gap_with_their_channel(t: Trial) -> None:
    """When a channel with nothing else is closed, that is a closing, and no gap."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "seen").cursor
    _publish(t, client, _draft(name, "dropped"))
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    answer = client.poll(name, cursor)
    t.same("the closings, gaps and messages", (answer.closed, answer.gaps, answer.data), ((name,), (), []))


@must("EPH-4")
def come_once_in_order(t: Trial) -> None:
    """Among others, and along a chain."""
    client, name = t.client(), t.channel()
    follower = Follower(t, name)
    for n in range(0, 30, 3):
        _publish(t, client, *(_draft(name, m, ephemeral=m % 2 == 0) for m in range(n, n + 3)))
        follower.read(client, n + 3)
    follower.poll(client)
    follower.expect(range(30))


@must("EPH-5", "keys", "native")
def share_the_key_of_others(t: Trial) -> None:
    """A list with at least one other message is published once, all of it."""
    client, name, key = t.client(), t.channel(), t.name()
    body = {"messages": [_draft(name, 1), _draft(name, 2, ephemeral=False)]}
    first, second = (t.status(client.call("POST", "/v1/messages", body, Idempotency_Key=key), 201) for _ in range(2))
    t.same("the second answer", second.json, first.json)
    t.same("the messages", client.poll(name).data, [1, 2])


@must("EPH-6")
def drive_nothing_out(t: Trial) -> None:
    """However many there are, a message from before them stays, and there is no gap."""
    client, name = t.client(), t.channel()
    start = client.publish(name, "seen").cursor
    client.publish(name, "stays")
    for n in range(max(LISTS, t.limits["retention_messages"] // 100 + 1)):
        _publish(t, client, *(_draft(name, 100 * n + m) for m in range(100)))
    answer = client.poll(name, start)
    t.same("the gaps and the first message", (answer.gaps, answer.data[:1]), ((), ["stays"]))
