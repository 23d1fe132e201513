"""Cursors."""

from __future__ import annotations

import re
from typing import Any

from conformance.follower import Follower
from conformance.pushup import FOREIGN_CURSOR
from conformance.registry import must, should
from conformance.trial import Trial


@must("CUR-1")
def are_short_and_plain(t: Trial) -> None:
    """Cursors are 1 to 64 characters that need no encoding, wherever they come from."""
    client, name = t.client(), t.channel()
    for cursor in (
        client.publish(name, 1).cursor,
        client.poll(name).cursor,
        client.call("GET", "/v1/cursor").json["cursor"],
    ):
        t.true(
            re.fullmatch(r"[A-Za-z0-9._~-]{1,64}", cursor), f"expected 1 to 64 plain characters, and {cursor!r} came"
        )


@must("CUR-1")
def do_not_grow_with_channels(t: Trial) -> None:
    """The cursor of a poll on fifty channels is as short as that of one."""
    client, names = t.client(), [t.channel() for _ in range(50)]
    client.publish(names[0], 1)
    long = client.call("POST", "/v1/poll", {"channels": names, "timeout": 0}).json["cursor"]
    short = client.poll(names[0]).cursor
    t.true(len(long) <= len(short) + 2, f"expected {len(short)} characters, and {len(long)} came")


@must("CUR-2")
def may_be_left_out(t: Trial) -> None:
    """No cursor, an empty one and earliest get everything that is kept."""
    client, name = t.client(), t.channel()
    client.publish_list((name, n) for n in range(3))
    for query in ("", "&cursor=", "&cursor=earliest"):
        answer = client.call("GET", f"/v1/poll?channel={name}&timeout=0{query}")
        t.same(f"the messages with {query!r}", t.native.read_answer(answer, "").data, [0, 1, 2])


@must("CUR-2")
def may_be_now(t: Trial) -> None:
    """With now a poll gets what is published after it arrived, and nothing older."""
    client, name = t.client(), t.channel()
    client.publish(name, "old")
    t.same("the messages at first", client.poll(name, "now").data, [])
    client.begin_poll(name, "now")
    for _ in range(int(t.patience * 4)):
        t.client().publish(name, "new")  # again: the poll may arrive after it
        if not client.wire.silent(0.25):
            break
    t.same("the messages then", client.answer().data, ["new"])


@must("CUR-3", "resume")
def include_what_came(t: Trial) -> None:
    """After an answer with messages, its cursor gets none of them again."""
    client, name = t.client(), t.channel()
    client.publish(name, 1)
    answer = client.poll(name)
    t.same("the messages", answer.data, [1])
    t.same("the messages after them", client.poll(name, answer.cursor).data, [])


@must("CUR-3")
def include_no_more_than_came(t: Trial) -> None:
    """The cursor of an answer that was cut short goes on with the next message, on several channels too."""
    client, names = t.client(), [t.channel() for _ in range(3)]
    for n in range(9):
        client.publish(names[n % 3], n)
    came: list[Any] = []
    cursor = ""
    for _ in range(9):
        body = {"channels": names, "cursor": cursor, "limit": 1, "timeout": 0}
        answer = t.native.read_answer(client.call("POST", "/v1/poll", body), cursor)
        came, cursor = [*came, *answer.data], answer.cursor
    t.same("the messages", came, list(range(9)))


@must("CUR-4", "timeout", "one node")
def of_empty_answers_go_on(t: Trial) -> None:
    """The cursor of a poll that ended without messages gets what was published before and after it ended."""
    client, publisher = t.client(), t.client()
    for timeout in (0.0, 1.0):
        name = t.channel()
        publisher.publish(name, "before")
        first = client.poll(name)
        empty = client.poll(name, first.cursor, timeout)
        t.same("the messages", (first.data, empty.data), (["before"], []))
        publisher.publish(name, "after")
        t.same("the messages later", client.poll(name, empty.cursor).data, ["after"])


@must("CUR-4", "timeout")
def of_first_empty_answers_go_on(t: Trial) -> None:
    """The cursor of a first poll that found nothing gets the first message, on a channel that did not exist."""
    client, publisher = t.client(), t.client()
    name = t.channel()
    empty = client.poll(name, timeout=1.0)
    publisher.publish(name, "first")
    t.same("the messages", client.poll(name, empty.cursor).data, ["first"])


@should("CUR-4")
def of_empty_answers_advance(t: Trial) -> None:
    """The cursor of an empty answer advances with the order, so that it does not become old."""
    client, name, other = t.client(), t.channel(), t.channel()
    cursor = client.poll(name).cursor
    client.publish(other, 1)
    t.true(client.poll(name, cursor).cursor != cursor, f"expected another cursor, and {cursor} came again")


@must("CUR-5")
def of_the_end_are_to_be_had(t: Trial) -> None:
    """GET /v1/cursor returns a cursor with which a poll gets what is published later, and nothing older."""
    client, name = t.client(), t.channel()
    client.publish(name, "before")
    value = t.status(client.call("GET", "/v1/cursor"), 200).json
    t.same("the fields", sorted(value), ["cursor"])
    client.publish(name, "after")
    t.same("the messages", client.poll(name, value["cursor"]).data, ["after"])


@must("CUR-5")
def of_the_end_miss_nothing(t: Trial) -> None:
    """Nothing that is acknowledged after GET /v1/cursor was sent is missed, whoever publishes meanwhile."""
    name, other = t.channel(), t.channel()
    client, publisher = t.client(), t.client()
    for n in range(50):
        publisher.begin(t.adapter.publish((other,), n))
        cursor = client.call("GET", "/v1/cursor").json["cursor"]
        t.native.read_published(publisher.finish())
        client.publish(name, n)
        t.same("the messages", client.poll(name, cursor).data, [n])


@must("CUR-6")
def are_for_all_channels(t: Trial) -> None:
    """A cursor from one channel is a place in the order for any other."""
    client, one, other = t.client(), t.channel(), t.channel()
    client.publish(other, "before")
    cursor = client.publish(one, 1).cursor
    client.publish(other, "after")
    t.same("the messages", client.poll(other, cursor).data, ["after"])
    t.same("the messages of both", client.poll((one, other), cursor).data, ["after"])


@must("CUR-6", "resume")
def work_again(t: Trial) -> None:
    """An older cursor of a chain gets everything after it again, on another connection."""
    name, client, cursors = t.channel(), t.client(), []
    for n in range(5):
        client.publish(name, n)
    follower = Follower(t, name)
    while len(follower.data) < 5:
        follower.read(client, len(follower.data) + 1)
        cursors.append((len(follower.data), follower.cursor))
    for seen, cursor in cursors:
        again = Follower(t, name, cursor)
        again.read(t.client(), 5 - seen)
        t.same("the messages", again.data, list(range(seen, 5)))


@must("CUR-7")
def are_checked(t: Trial) -> None:
    """What is no cursor gets 400."""
    client, name = t.client(), t.channel()
    for text in ("!", "latest", "%20", "a" * 500, "1-2-3%00"):
        t.problem(client.call("GET", f"/v1/poll?channel={name}&cursor={text}"), 400, "bad-request", "cursor")


@must("CUR-8")
def of_others_get_a_gap(t: Trial) -> None:
    """A cursor that the service has not made gets what is kept, and a gap on each channel."""
    client, names = t.client(), (t.channel(), t.channel())
    client.publish(names[0], "kept")
    response = client.call("POST", "/v1/poll", {"channels": names, "cursor": FOREIGN_CURSOR, "timeout": 5})
    if response.status == 503:
        return
    answer = t.native.read_answer(response, FOREIGN_CURSOR)
    t.same("the gaps", sorted(answer.gaps), sorted((name, "lost") for name in names))
    t.same("the messages", answer.data, ["kept"])
    again = client.poll(names, answer.cursor)
    t.same("the gaps after that", again.gaps, ())
