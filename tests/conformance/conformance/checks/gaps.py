"""Gaps and closings."""

from __future__ import annotations

from conformance.registry import must
from conformance.trial import Client, Trial

GAPS = ("gaps", "native")


def _fill(t: Trial, client: Client, name: str) -> None:
    """Publish as many messages as a channel keeps."""
    most = t.limits["retention_messages"]
    for at in range(0, most, 100):
        client.publish_list((name, n) for n in range(at, min(at + 100, most)))


def _follow_to_end(
    t: Trial, client: Client, names: tuple[str, ...], cursor: str
) -> tuple[list[object], set[tuple[str, str]], str]:
    """Everything after a cursor: the data, the gaps, the last cursor."""
    data: list[object] = []
    gaps: set[tuple[str, str]] = set()
    more = True
    while more:
        answer = client.poll(names, cursor)
        data, gaps, cursor, more = [*data, *answer.data], gaps | set(answer.gaps), answer.cursor, answer.more
    return data, gaps, cursor


@must("GAP-1", *GAPS)
def tell_of_evicted_messages(t: Trial) -> None:
    """A subscriber that was away while more was published than is kept is told of a gap, and gets the rest."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "first").cursor
    client.publish(name, "second")
    _fill(t, client, name)
    answer = client.poll(name, cursor)
    t.same("the gaps", answer.gaps, ((name, "evicted"),))
    data, _, _ = _follow_to_end(t, client, (name,), cursor)
    t.same("the messages kept", data, list(range(t.limits["retention_messages"])))


@must("GAP-1", *GAPS, "quick expiry")
def tell_of_expired_messages(t: Trial) -> None:
    """A subscriber that was away for longer than messages are kept is told of a gap, and can go on."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "before").cursor
    client.publish(name, "missed")
    t.sleep(t.limits["retention_seconds"] + 1.5)
    for _ in range(int(t.patience)):
        answer = client.poll(name, cursor)
        if answer.gaps:
            break
        t.sleep(1.0)
    t.same("the gaps", answer.gaps, ((name, "expired"),))
    client.publish(name, "after")
    t.same("the messages", client.poll(name, answer.cursor).data, ["after"])


@must("GAP-3", *GAPS, "quick expiry")
def are_not_reported_to_those_who_saw_all(t: Trial) -> None:
    """A subscriber that has seen everything gets no gap when it expires."""
    client, name = t.client(), t.channel()
    client.publish(name, "seen")
    cursor = client.poll(name).cursor
    t.sleep(t.limits["retention_seconds"] + 2.5)
    answer = client.poll(name, cursor)
    t.same("the gaps and messages", (answer.gaps, answer.data), ((), []))


@must("GAP-2", *GAPS)
def have_a_reason(t: Trial) -> None:
    """A gap has a channel that was asked for, a reason, and its end."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, 1).cursor
    client.publish(name, 2)
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    (gap,) = client.poll(name, cursor).value["gaps"]
    t.same("the gap", gap, {"channel": name, "reason": "closed", "until": gap.get("until")})
    t.true(isinstance(gap["until"], str), f"expected a cursor as until, and {gap} came")


@must("GAP-3", *GAPS)
def are_true(t: Trial) -> None:
    """A cursor after which nothing was dropped gets no gap, though much before it was."""
    client, name = t.client(), t.channel()
    client.publish_list((name, f"old {n}") for n in range(50))
    cursor = client.publish(name, "last seen").cursor
    _fill(t, client, name)
    t.same("the gaps", client.poll(name, cursor).gaps, ())


@must("GAP-4", *GAPS)
def are_not_for_newcomers(t: Trial) -> None:
    """A poll without a cursor gets no gap, and no closing."""
    client, name = t.client(), t.channel()
    client.publish(name, "dropped")
    _fill(t, client, name)
    t.same("the gaps", client.poll(name).gaps, ())
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    answer = client.poll(name)
    t.same("the gaps and closings", (answer.gaps, answer.closed), ((), ()))


@must("GAP-5", *GAPS)
def are_not_reported_again(t: Trial) -> None:
    """Once more is false, the cursor does not get the same gap again."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "first").cursor
    client.publish(name, "second")
    _fill(t, client, name)
    _, gaps, cursor = _follow_to_end(t, client, (name,), cursor)
    t.same("the gaps", gaps, {(name, "evicted")})
    t.same("the gaps after that", client.poll(name, cursor).gaps, ())
    client.publish(name, "later")
    answer = client.poll(name, cursor)
    t.same("the gaps and messages later", (answer.gaps, answer.data), ((), ["later"]))


@must("GAP-6", *GAPS)
def tell_of_closed_channels(t: Trial) -> None:
    """A poll with a cursor from before a closing gets the channel in closed."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, 1).cursor
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    answer = client.poll(name, cursor)
    t.same("the channels closed", answer.closed, (name,))
    t.same("those closed after that", client.poll(name, answer.cursor).closed, ())


@must("GAP-3", *GAPS)
def are_not_reported_for_what_was_seen(t: Trial) -> None:
    """Closing a channel of which everything was seen is a closing, and no gap."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "seen").cursor
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    answer = client.poll(name, cursor)
    t.same("the closings and gaps", (answer.closed, answer.gaps), ((name,), ()))


@must("GAP-6", *GAPS)
def end_held_polls_on_closed_channels(t: Trial) -> None:
    """A held poll learns of a closing at once, one on several channels too."""
    client, names = t.client(), (t.channel(), t.channel())
    cursor = client.publish(names, 1).cursor
    client.begin_poll(names, cursor)
    t.sleep(0.1)
    t.status(t.client().call("DELETE", f"/v1/channels/{names[1]}"), 204)
    t.same("the channels closed", client.answer().closed, (names[1],))


@must("GAP-6", *GAPS)
def survive_a_new_channel_of_the_name(t: Trial) -> None:
    """When a channel is closed and its name is used again, a subscriber gets the closing and the new messages."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "old").cursor
    t.status(client.call("DELETE", f"/v1/channels/{name}"), 204)
    if t.options.strict:
        t.status(client.call("POST", "/v1/channels", {"name": name}), 201)
    client.publish(name, "new")
    answer = client.poll(name, cursor)
    t.same("the closings and messages", (answer.closed, answer.data), ((name,), ["new"]))


@must("GAP-7", *GAPS)
def keep_nothing_back(t: Trial) -> None:
    """A gap on one channel does not keep the messages of another back."""
    client, lossy, other = t.client(), t.channel(), t.channel()
    cursor = client.publish(lossy, "first").cursor
    client.publish(lossy, "second")
    client.publish(other, "here")
    _fill(t, client, lossy)
    data, gaps, _ = _follow_to_end(t, client, (lossy, other), cursor)
    t.same("the gaps", gaps, {(lossy, "evicted")})
    t.true("here" in data, "expected the message of the other channel, and it did not come")


@must("GAP-8", *GAPS)
def end_where_they_say(t: Trial) -> None:
    """A message that one channel has dropped may come on another; the gap ends at a cursor behind it."""
    client, lossy, other = t.client(), t.channel(), t.channel()
    cursor = client.publish(lossy, "seen").cursor
    both = client.publish((lossy, other), "on both").cursor
    client.publish(lossy, "dropped")
    _fill(t, client, lossy)
    answer = client.poll((lossy, other), cursor)
    first = answer.value["messages"][0]
    t.same("the message on both, and its channels", (first["data"], first["channels"]), ("on both", [other]))
    (gap,) = answer.value["gaps"]
    t.same("the gaps behind that message", client.poll((lossy, other), both).gaps, ((lossy, "evicted"),))
    t.same("the gaps behind the end", client.poll((lossy, other), gap["until"]).gaps, ())
    data, _, _ = _follow_to_end(t, client, (lossy,), gap["until"])
    t.same("the messages behind the end", data, list(range(t.limits["retention_messages"])))


@must("CUR-9", *GAPS)
def leave_cursors_usable(t: Trial) -> None:
    """A cursor from before what is kept gets everything that is kept, on each try."""
    client, name = t.client(), t.channel()
    cursor = client.publish(name, "first").cursor
    client.publish(name, "second")
    _fill(t, client, name)
    for _ in range(2):
        data, gaps, _ = _follow_to_end(t, client, (name,), cursor)
        t.same("the gaps", gaps, {(name, "evicted")})
        t.same("the number of messages", len(data), t.limits["retention_messages"])
