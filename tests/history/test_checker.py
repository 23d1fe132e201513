"""For each promise: a history that breaks it is found, and the nearest one that keeps it passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import get_args

import pytest

from loadtest.history.assumed import Assumed
from loadtest.history.checker import Checker
from loadtest.history.clients import Follower, Publication
from loadtest.history.events import (
    Acknowledged,
    Answered,
    Begun,
    BrokenPromise,
    Delivered,
    Draft,
    End,
    Fault,
    Fork,
    Gap,
    Left,
    Poll,
    Publish,
    PutBack,
    Refused,
)  # fmt: skip
from pushup.core.channel import GapReason
from pushup.core.limits import Limits

REASONS = get_args(GapReason)


class History:
    """What publishers and subscribers of a cluster were told; written down in the order of a test's lines."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.checker.forgets = lambda follower, channel: False
        self.now = 0.0
        self._names = count(1)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def publish(self, name: str, *groups: str, ids: tuple[str, ...] = (), key: str | None = None) -> None:
        """A message for each group of channels, `a b`; `a b!` is ephemeral. Acknowledged with these ids, if any."""
        messages = tuple(
            Draft(tuple(group.removesuffix("!").split()), f"{name}/{number}", group.endswith("!"))
            for number, group in enumerate(groups)
        )
        self.checker.take(Publish(at=self.now, publication=name, messages=messages, key=key))
        if ids:
            self.acknowledge(name, *ids)

    def acknowledge(self, name: str, *ids: str, ack: str = "accepted") -> None:
        self.checker.take(Acknowledged(at=self.now, publication=name, ids=ids, ack=ack))

    def follow(self, *channels: str, cursor: str = "e1-0") -> Follower:
        """A subscriber that polls for the first time."""
        name = f"s{next(self._names)}"
        self.checker.take(Poll(at=self.now, subscriber=name, channels=channels, cursor=cursor))
        return self.checker.followers[name]

    def answer(self, follower: Follower, cursor: str, *messages: tuple[str, str, str], **gaps: str) -> None:
        """It polls, if it does not yet, and is answered. `messages`: id, data and channels; `gaps`: the reason, by
        channel."""
        name = follower.name
        if not follower.polls:
            self.checker.take(Poll(at=self.now, subscriber=name, channels=follower.channels, cursor=follower.cursor))
        self.checker.take(
            Answered(
                at=self.now,
                subscriber=name,
                cursor=cursor,
                messages=tuple(Delivered(id_, tuple(on.split()), data) for id_, data, on in messages),
                gaps=tuple(Gap(channel, reason) for channel, reason in gaps.items()),
            )
        )

    def fault(self, *, may_lose: bool = False, moves_clock: bool = False) -> None:
        self.checker.take(Fault(at=self.now, what="a fault", may_lose=may_lose, moves_clock=moves_clock))

    def end(self, cursor: str = "") -> None:
        """Every subscriber has everything that was acknowledged."""
        followers = [follower for follower in self.checker.followers.values() if not follower.starts]
        last = min((f.cursor for f in followers), key=self.checker.order.place, default="")
        self.checker.take(End(at=self.now, cursor=cursor or last))


def lossy() -> History:
    """A history in which something may have been lost."""
    history = History()
    history.fault(may_lose=True)
    return history


def broken(what: str) -> AbstractContextManager[object]:
    return pytest.raises(BrokenPromise, match=what)


# Delivered, or covered by a gap.


def test_an_acknowledged_message_that_was_delivered() -> None:
    """It is what the subscriber waits for, and the end is quiet."""
    history = History()
    follower = history.follow("a")
    history.answer(follower, "e1-0")
    history.publish("p", "a", ids=("e1-1",))
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    history.end()


@pytest.mark.parametrize("reason", REASONS)
def test_an_acknowledged_message_is_delivered_or_covered(reason: str) -> None:
    """A gap on its channel, of any reason, in the step that passes it, is enough; without it the promise is broken."""
    for gaps in ({"a": reason}, {}):
        history = lossy()
        follower = history.follow("a", "b")
        history.answer(follower, "e1-0")
        history.publish("p", "a", ids=("e1-1",))
        history.wait(1000)
        history.answer(follower, "e1-1", **gaps)
        if gaps:
            history.end()
        else:
            with broken("delivered or covered by a gap: s1 neither received p/0 .e1-1, acknowledged at 0"):
                history.end()


def test_a_gap_on_another_channel_covers_nothing() -> None:
    """The gap has to name a channel of the message."""
    history = lossy()
    follower = history.follow("a", "b")
    history.answer(follower, "e1-0")
    history.publish("p", "a", ids=("e1-1",))
    history.answer(follower, "e1-1", b="lost")
    with broken("delivered or covered"):
        history.end()


def test_a_gap_before_or_after_does_not_cover() -> None:
    """It is the step over the message that has to tell the gap."""
    history = lossy()
    follower = history.follow("a")
    history.answer(follower, "e1-1")
    history.wait(1)
    history.publish("p", "a", ids=("e1-3",))
    history.publish("q", "a", ids=("e1-5",))
    history.answer(follower, "e1-2", a="lost")  # before both
    history.answer(follower, "e1-4")
    history.answer(follower, "e1-5", a="evicted")  # covers the second only
    with broken("neither received p/0"):
        history.end()


@pytest.mark.parametrize("missing", [0, 1])
def test_each_message_of_a_publication_counts(missing: int) -> None:
    """One of two that does not arrive breaks the promise."""
    history = History()
    follower = history.follow("a", "b")
    history.answer(follower, "e1-0")
    history.publish("p", "a", "b", ids=("e1-1", "e1-2"))
    messages = [("e1-1", "p/0", "a"), ("e1-2", "p/1", "b")]
    del messages[missing]
    history.answer(follower, "e1-2", *messages)
    with broken(f"neither received p/{missing}"):
        history.end()


def test_what_was_not_acknowledged_or_not_asked_for_need_not_be_delivered() -> None:
    """Nor does a subscriber that never got an answer count."""
    history = History()
    follower = history.follow("a")
    history.follow("a")
    history.answer(follower, "e1-0")
    history.publish("refused", "a")
    history.publish("elsewhere", "b", ids=("e1-1",))
    history.answer(follower, "e1-1")
    history.end()


@pytest.mark.parametrize("start", ["", "now"])
def test_what_was_published_before_a_subscriber_came_need_not_be_delivered(start: str) -> None:
    """What came after its first answer has to be."""
    history = History()
    history.publish("old", "a", ids=("e1-1",))
    follower = history.follow("a", cursor=start)
    history.wait(1)
    history.answer(follower, "e1-1")
    history.end()
    history.publish("new", "a", ids=("e1-2",))
    history.answer(follower, "e1-2")
    with broken("neither received new/0"):
        history.end()


def test_a_subscriber_that_never_got_an_answer() -> None:
    """Nothing can be said of it."""
    history = History()
    history.follow("a")
    history.publish("p", "a", ids=("e1-1",))
    history.end()


@pytest.mark.parametrize(
    ("published_first", "place"),
    [(True, "e1-9"), (False, "e1-5")],
    ids=["published before, but it comes after the first answer", "published later, though its place was passed"],
)
def test_only_what_is_from_before_in_both_ways_may_be_missing(published_first: bool, place: str) -> None:
    """By the time of the publication, and by its place."""
    history = History()
    follower = history.follow("a", cursor="now")
    if published_first:
        history.publish("p", "a", ids=(place,))
    history.wait(1)
    history.answer(follower, "e1-7")
    history.wait(1)
    if not published_first:
        history.publish("p", "a", ids=(place,))
    history.answer(follower, "e1-9")
    with broken("neither received p/0"):
        history.end()


@pytest.mark.parametrize(
    ("after", "reason", "covers"), [("e1-7", "lost", True), ("e1-9", "lost", False), ("e1-9", "evicted", False)]
)
def test_a_cursor_beyond_the_end(after: str, reason: str, covers: bool) -> None:
    """A message may get a place that a subscriber has passed in an order that is gone.

    The gap then has to be `lost`, and the subscriber has to be set back.
    """
    history = lossy()
    history.checker.forgets = lambda follower, channel: True
    follower = history.follow("a")
    history.answer(follower, "e1-0")
    history.answer(follower, "e1-9")
    history.wait(1)
    history.publish("p", "a", ids=("e1-5",))
    history.answer(follower, after, a=reason)
    if covers:
        history.end()
    else:
        with broken("delivered or covered"):
            history.end()


@pytest.mark.parametrize("told", [True, False])
def test_a_new_epoch_without_what_the_old_one_had(told: bool) -> None:
    """Cursors of the old epoch get a gap, `lost`, with the first answer of the new one."""
    history = lossy()
    follower = history.follow("a")
    history.answer(follower, "e1-3")
    history.publish("p", "a", ids=("e1-5",))
    history.answer(follower, "e2-6", **({"a": "lost"} if told else {}))
    if told:
        history.end()
    else:
        with broken("delivered or covered"):
            history.end()


@pytest.mark.parametrize(("second", "ok"), [("a!", True), ("a", False)])
def test_an_ephemeral_message_need_not_be_delivered(second: str, ok: bool) -> None:
    """Nor covered by a gap; another message of its publication has to be."""
    history = History()
    follower = history.follow("a")
    history.answer(follower, "e1-0")
    history.publish("p", "a!", second, ids=("e1-1", "e1-2"))
    history.answer(follower, "e1-2")
    if ok:
        history.end()
    else:
        with broken("neither received p/1"):
            history.end()


# A gap is true.


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason != "lost"])
@pytest.mark.parametrize(
    ("place", "delivered", "true"),
    [("e1-5", False, True), ("e1-5", True, False), ("e1-2", False, False)],
    ids=["missing after the cursor", "delivered", "missing, but before the cursor"],
)
def test_a_gap_is_true(reason: str, place: str, delivered: bool, true: bool) -> None:
    """Something on the channel, after the cursor, was not delivered."""
    history = History()
    history.publish("p", "a", ids=(place,))
    follower = history.follow("a", cursor="e1-3")
    if delivered:
        history.answer(follower, "e1-5", (place, "p/0", "a"))
        follower.cursor = "e1-3"
    history.wait(1000)
    if true:
        history.answer(follower, "e1-6", a=reason)
        assert not history.checker.without_loss
    else:
        with broken(f"a gap is true: s1 at e1-3 was told of a gap on a .{reason}."):
            history.answer(follower, "e1-6", a=reason)


@pytest.mark.parametrize("also", [(), ("a",)])
def test_a_gap_is_not_about_ephemeral_messages(also: tuple[str, ...]) -> None:
    """Something else on the channel has to be missing, and old enough if that has expired."""
    history = History()
    history.publish("p", "a!", *also, ids=("e1-1", "e1-2")[: 1 + len(also)])
    history.wait(1000)
    for reason in ("evicted", "expired"):
        follower = history.follow("a")
        if also:
            history.answer(follower, "e1-2", a=reason)
            assert not history.checker.without_loss
        else:
            with broken("expires early" if reason == "expired" else "a gap is true"):
                history.answer(follower, "e1-2", a=reason)


def test_an_old_ephemeral_message_lets_nothing_expire() -> None:
    """What is missing besides is younger than messages are kept."""
    history = History()
    history.publish("old", "a!", ids=("e1-1",))
    history.wait(1000)
    history.publish("new", "a", ids=("e1-2",))
    with broken("nothing expires early"):
        history.answer(history.follow("a"), "e1-2", a="expired")


@pytest.mark.parametrize(("first", "ok"), [("a b", True), ("a b!", False)])
def test_an_ephemeral_message_of_two_channels_leaves_no_gap_on_one(first: str, ok: bool) -> None:
    """Any other one may be dropped from one of them, and delivered through the other."""
    history = History()
    follower = history.follow("a", "b")
    history.publish("p", first, ids=("e1-1",))
    message = ("e1-1", "p/0", "b" if ok else "a b")
    if ok:
        history.answer(follower, "e1-1", ("e1-1", "p/0", "a b"), a="evicted")
        assert history.checker.without_loss == {"dropped from one channel, delivered through another": 1}
    else:
        with broken("a gap is true"):
            history.answer(follower, "e1-1", message, a="evicted")


def test_a_publication_without_an_answer_may_be_what_a_gap_is_about() -> None:
    """Nobody knows whether it has a place. If another subscriber received it, that is known."""
    history = History()
    history.publish("p", "a")
    history.answer(history.follow("a", cursor="e1-3"), "e1-6", a="evicted")
    history.answer(history.follow("a", cursor="e1-0"), "e1-2", ("e1-2", "p/0", "a"))
    with broken("a gap is true"):
        history.answer(history.follow("a", cursor="e1-3"), "e1-6", a="evicted")


@pytest.mark.parametrize("start", ["", "earliest", "now"])
def test_a_first_poll_may_be_told_of_what_came_before_it(start: str) -> None:
    """Without a cursor of a server, everything undelivered counts, but something must be."""
    history = History()
    with broken("a gap is true"):
        history.answer(history.follow("a", cursor=start), "e1-6", a="evicted")
    history.publish("p", "a", ids=("e1-2",))
    history.answer(history.follow("a", cursor=start), "e1-6", a="evicted")


def test_a_forgotten_channel_may_have_had_something() -> None:
    """The one false alarm of PushUp's own, which is counted."""
    history = History()
    history.checker.forgets = lambda follower, channel: channel == "b"
    follower = history.follow("a", "b")
    history.answer(follower, "e1-1", b="evicted")
    history.answer(follower, "e1-1", b="expired")
    assert history.checker.without_loss == {"a channel was forgotten": 2}
    with broken("a gap is true"):
        history.answer(follower, "e1-1", a="evicted")


@pytest.mark.parametrize(("also_follows", "alarm"), [(("a", "b"), True), (("a",), False)])
def test_what_was_dropped_from_one_channel_may_arrive_on_another(also_follows: tuple[str, ...], alarm: bool) -> None:
    """That is a gap without a loss only for somebody who follows both."""
    history = History()
    follower = history.follow(*also_follows, cursor="e1-0")
    history.publish("p", "a b", ids=("e1-1",))
    message = ("e1-1", "p/0", " ".join(also_follows))
    if alarm:
        history.answer(follower, "e1-1", message, a="evicted")
        assert history.checker.without_loss == {"dropped from one channel, delivered through another": 1}
        with broken("a gap is true"):
            history.answer(follower, "e1-2", a="evicted")  # it is before this cursor
    else:
        with broken("a gap is true"):
            history.answer(follower, "e1-1", message, a="evicted")


def test_lost_only_where_something_can_have_been() -> None:
    """While nothing could lose messages, nobody is told `lost`, even if something is missing."""
    history = History()
    history.publish("p", "a", ids=("e1-1",))
    with broken("were lost; nothing can have been"):
        history.answer(history.follow("a"), "e1-1", a="lost")
    history.fault(may_lose=True)
    history.answer(history.follow("a"), "e1-1", a="lost")
    assert not history.checker.without_loss
    history.answer(history.follow("a", cursor="e1-1"), "e1-1", a="lost")
    assert history.checker.without_loss == {"completeness could not be proven": 1}


def test_a_gap_on_a_channel_that_was_not_asked_for() -> None:
    """A subscriber is told of its own channels only."""
    history = lossy()
    with broken("on channels it did not ask for"):
        history.answer(history.follow("a"), "e1-1", a="lost", b="lost")


@pytest.mark.parametrize(("age", "on", "kept"), [(302.0, "a", True), (298.0, "a", False), (302.0, "b", False)])
def test_nothing_expires_early(age: float, on: str, kept: bool) -> None:
    """Something on that channel must be older than messages are kept: 300 s here, and 1 s for the way."""
    history = History()
    history.checker.assumed = Assumed(Limits(retention_seconds=300.0))
    history.publish("p", on, ids=("e1-1",))
    history.wait(age)
    history.publish("q", "a")
    follower = history.follow("a")
    if kept:
        history.answer(follower, "e1-1", a="expired")
    else:
        with broken("nothing expires early: s1 was told that messages on a had expired"):
            history.answer(follower, "e1-1", a="expired")
        history.fault(moves_clock=True)  # Redis' clock has jumped
        history.publish("new", "a")
        history.answer(follower, "e1-1", a="expired")


# Nothing twice, one order.


@pytest.mark.parametrize("second", ["e1-2", "e1-1"])
def test_nothing_twice(second: str) -> None:
    """Neither with the same id, nor with another one."""
    history = History()
    follower = history.follow("a")
    history.publish("p", "a")
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    with broken("nothing twice: s1 received p/0 as e1-1 and as"):
        history.answer(follower, "e1-2", (second, "p/0", "a"))


def test_two_subscribers_may_receive_the_same() -> None:
    """One message reaches everybody, under one id."""
    history = History()
    history.publish("p", "a", ids=("e1-1",))
    for _ in range(2):
        history.answer(history.follow("a"), "e1-1", ("e1-1", "p/0", "a"))


def few_keys(history: History) -> None:
    history.checker.assumed = Assumed(Limits(keys_limit=4))


def short_retention(history: History) -> None:
    history.checker.assumed = Assumed(Limits(retention_seconds=8.0))


def jump(history: History) -> None:
    """The clock jumps, so it is not known how long a key was remembered."""
    history.fault(moves_clock=True)


def nothing(history: History) -> None:
    """Change nothing."""


@pytest.mark.parametrize(
    ("key", "change", "second", "ok"),
    [
        ("k", few_keys, "e1-9", True),
        ("k", short_retention, "e1-9", True),
        ("k", nothing, "e2-2", True),
        ("k", nothing, "e1-9", False),
        (None, few_keys, "e1-9", False),
        ("k", few_keys, "e1-1", False),
    ],
    ids=["few keys", "short retention", "another epoch", "the key is known", "no key", "the same id"],
)
def test_a_key_that_was_forgotten(key: str | None, change: Callable[[History], None], second: str, ok: bool) -> None:
    """A publisher that tries such a key again publishes another message."""
    history = History()
    change(history)
    follower = history.follow("a")
    history.publish("p", "a", key=key)
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    history.wait(9)
    if ok:
        history.answer(follower, second, (second, "p/0", "a"))
        assert history.checker.without_loss == {"not a gap: a key was forgotten, and its messages published again": 1}
    else:
        with broken("nothing twice"):
            history.answer(follower, "e1-9", (second, "p/0", "a"))


@pytest.mark.parametrize(
    ("groups", "key", "second", "why"),
    [
        (("a!",), "k", "e1-9", ""),
        (("a!", "a!"), "k", "e1-9", ""),
        (("a!",), "k", "e1-1", "nothing twice"),
        (("a!",), None, "e1-9", "nothing twice"),
        (("a!", "a"), "k", "e1-9", "nothing twice"),
        (("a",), "k", "e1-9", "nothing twice"),
    ],
    ids=["one", "two", "the same id", "no key", "one of two", "not ephemeral"],
)
def test_ephemeral_messages_leave_no_key(groups: tuple[str, ...], key: str | None, second: str, why: str) -> None:
    """A publisher that tries again publishes others; a publication that is not all ephemeral is remembered."""
    history = History()
    follower = history.follow("a")
    history.publish("p", *groups, key=key)
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    if not why:
        history.answer(follower, second, (second, "p/0", "a"))
        counted = {"not a gap: ephemeral messages, which leave no key, published again": 1}
        assert history.checker.without_loss == counted
    else:
        with broken(why):
            history.answer(follower, "e1-9", (second, "p/0", "a"))


def test_ephemeral_messages_come_in_order() -> None:
    """Before and after any others."""
    history = History()
    follower = history.follow("a")
    history.publish("p", "a!", "a", "a!", ids=("e1-1", "e1-2", "e1-3"))
    history.answer(follower, "e1-2", ("e1-1", "p/0", "a"), ("e1-2", "p/1", "a"))
    with broken("one order: s2 received e1-1 after e1-3"):
        history.answer(history.follow("a"), "e1-3", ("e1-3", "p/2", "a"), ("e1-1", "p/0", "a"))
    history.publish("q", "a!")
    with broken("one order: q has the id e1-0, and began when e1-3 had been acknowledged"):
        history.acknowledge("q", "e1-0")


@pytest.mark.parametrize("is_published_again", [True, False])
def test_a_gap_for_what_was_published_again(is_published_again: bool) -> None:
    """It was received as it was published first, and not as it was published when its key had been forgotten."""
    history = History()
    few_keys(history)
    follower, other = history.follow("a"), history.follow("a")
    history.publish("p", "a", ids=("e1-1",), key="k")
    for each in (follower, other):
        history.answer(each, "e1-1", ("e1-1", "p/0", "a"))
    if is_published_again:
        history.answer(other, "e1-9", ("e1-9", "p/0", "a"))
        history.answer(follower, "e1-10", a="closed")
    with broken("a gap is true"):
        history.answer(other if is_published_again else follower, "e1-11", a="closed")


@pytest.mark.parametrize(
    ("key", "change", "cursor", "ok"),
    [
        ("k", few_keys, "e1-0", True),
        ("k", short_retention, "e1-0", True),
        ("k", jump, "e1-0", True),
        ("k", nothing, "e1-0", False),
        (None, few_keys, "e1-0", False),
        ("k", few_keys, "e1-9", False),
    ],
    ids=["few keys", "short retention", "a clock jumped", "the key is known", "no key", "before the cursor"],
)
def test_a_gap_for_a_try_that_nobody_saw(
    key: str | None, change: Callable[[History], None], cursor: str, ok: bool
) -> None:
    """It was published, its publisher was not told, and it expired with its key; the next try was received."""
    history = History()
    change(history)
    history.publish("p", "a", key=key)
    history.wait(9)
    history.acknowledge("p", "e1-9")
    history.answer(history.follow("a"), "e1-9", ("e1-9", "p/0", "a"))
    follower = history.follow("a", cursor=cursor)
    message = [("e1-9", "p/0", "a")] if cursor == "e1-0" else []
    if ok:
        history.answer(follower, "e1-9", *message, a="closed")
    else:
        with broken("a gap is true"):
            history.answer(follower, "e1-9", *message, a="closed")


@pytest.mark.parametrize("delivered", ["e1-1", "e1-2"])
def test_one_message_has_one_id(delivered: str) -> None:
    """What its publisher was told is what subscribers get."""
    history = History()
    follower = history.follow("a")
    history.publish("p", "a", ids=("e1-1",))
    if delivered == "e1-1":
        history.answer(follower, "e1-5", (delivered, "p/0", "a"))
    else:
        with broken("one order: 'p/0' has the id e1-1, and for s1 it has e1-2"):
            history.answer(follower, "e1-5", (delivered, "p/0", "a"))


@pytest.mark.parametrize("in_one_answer", [True, False])
def test_one_order(in_one_answer: bool) -> None:
    """Messages come by id, within an answer and from one answer to the next."""
    for first, second, ok in (("e1-1", "e1-2", True), ("e1-2", "e1-1", False)):
        history = History()
        history.publish("p", "a")
        history.publish("q", "a")
        messages = [(first, "p/0", "a"), (second, "q/0", "a")]
        follower = history.follow("a")
        steps = [messages] if in_one_answer else [messages[:1], messages[1:]]
        for step in steps[:-1]:
            history.answer(follower, "e1-2", *step)
        if ok:
            history.answer(follower, "e1-2", *steps[-1])
        else:
            with broken("one order: s1 received e1-1 after e1-2"):
                history.answer(follower, "e1-2", *steps[-1])


@pytest.mark.parametrize(("second", "ok"), [("e1-6", True), ("e2-1", True), ("e1-4", False), ("e1-5", False)])
@pytest.mark.parametrize("overlap", [True, False])
def test_publications_come_in_the_order_in_which_they_were_made(second: str, ok: bool, overlap: bool) -> None:
    """One that begins when another has been acknowledged comes after it; of two that overlap either may be first."""
    history = History()
    history.publish("p", "a", "a")
    if overlap:
        history.publish("q", "a")
    history.acknowledge("p", "e1-3", "e1-5")
    if not overlap:
        history.publish("q", "a")
    if ok or (overlap and second != "e1-5"):
        history.acknowledge("q", second)
    else:
        with broken("one order: "):
            history.acknowledge("q", second)


def test_an_id_is_one_message() -> None:
    """Whoever is told an id is told the same data: publishers, and subscribers."""
    history = History()
    history.publish("p", "a", ids=("e1-1",))
    with broken("one order: the id e1-1 is 'p/0', and for q it is 'q/0'"):
        history.publish("q", "a", ids=("e1-1",))
    with broken("one order: the id e1-1 is 'p/0', and for s1 it is 'q/0'"):
        history.answer(history.follow("a"), "e1-1", ("e1-1", "q/0", "a"))


def test_a_publisher_gets_as_many_ids_as_it_published_messages() -> None:
    """Neither fewer nor more."""
    history = History()
    history.publish("p", "a", "a")
    for ids in (("e1-1",), ("e1-1", "e1-2", "e1-3")):
        with broken(f"p got {len(ids)} ids for 2 messages"):
            history.acknowledge("p", *ids)
    history.acknowledge("p", "e1-1", "e1-2")


def test_a_message_that_nobody_published() -> None:
    """Messages are not made up."""
    history = History()
    with broken("received p/0, which nobody published"):
        history.answer(history.follow("a"), "e1-1", ("e1-1", "p/0", "a"))


@pytest.mark.parametrize(("told", "ok"), [("b a", True), ("a b", False), ("a", False), ("b a c", False), ("", False)])
def test_the_channels_of_a_message(told: str, ok: bool) -> None:
    """A subscriber is told those of its own channels that the message was published on, in its own order."""
    history = History()
    history.publish("p", "a b c")
    follower = history.follow("b", "x", "a")
    if ok:
        history.answer(follower, "e1-1", ("e1-1", "p/0", told))
    else:
        with broken("instead of .'b', 'a'."):
            history.answer(follower, "e1-1", ("e1-1", "p/0", told))


@pytest.mark.parametrize(
    ("told", "ok"), [("b a", True), ("a", True), ("b", True), ("a b", False), ("b c", False), ("", False)]
)
def test_the_channels_of_an_ephemeral_message(told: str, ok: bool) -> None:
    """One that was closed has dropped it without a gap, so it may be left out; not all of them."""
    history = History()
    history.publish("p", "a b c!")
    follower = history.follow("b", "x", "a")
    if ok:
        history.answer(follower, "e1-1", ("e1-1", "p/0", told))
    else:
        with broken("received p/0 on .* instead of"):
            history.answer(follower, "e1-1", ("e1-1", "p/0", told))


@pytest.mark.parametrize(("until", "ok"), [("e1-1", True), ("e1-2", False)])
def test_an_ephemeral_message_names_no_channel_in_whose_gap_it_is(until: str, ok: bool) -> None:
    """As any other."""
    history = History()
    follower = history.follow("a", "b")
    history.publish("p", "a", "a b!", ids=("e1-1", "e1-2"))
    event = Answered(
        at=0.0, subscriber=follower.name, cursor="e1-2",
        messages=(Delivered("e1-2", ("a", "b"), "p/1"),), gaps=(Gap("a", "evicted", until),),
    )  # fmt: skip
    if ok:
        history.checker.take(event)
    else:
        with broken("instead of .'b'."):
            history.checker.take(event)


def test_a_message_is_not_after_the_cursor_that_comes_with_it() -> None:
    """Or the next poll would get it again."""
    history = History()
    history.publish("p", "a")
    history.publish("q", "a")
    follower = history.follow("a")
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    with broken("received e1-3, which is after its new cursor e1-2"):
        history.answer(follower, "e1-2", ("e1-3", "q/0", "a"))


@pytest.mark.parametrize(
    ("after", "ok"),
    [("e2-5", True), ("e2-6", True), ("e10-6", True), ("e10-0", False), ("e2-4", False), ("e1-9", False)],
)
def test_a_cursor_never_goes_back(after: str, ok: bool) -> None:
    """Neither within an epoch, nor to an earlier one, nor to a later one that goes on with its order."""
    history = History()
    follower = history.follow("a", cursor="e2-5")
    if ok:
        history.answer(follower, after)
        assert follower.cursor == after
    else:
        with broken(f"one order: .*{after}"):
            history.answer(follower, after)


def test_a_fork_has_received_what_the_other_has() -> None:
    """A subscriber that continues elsewhere from the same cursor is checked as one chain with what came before."""
    history = History()
    follower = history.follow("a")
    history.publish("p", "a", ids=("e1-1",))
    history.answer(follower, "e1-1", ("e1-1", "p/0", "a"))
    history.checker.take(Fork(at=history.now, subscriber="fork", of=follower.name))
    fork = history.checker.followers["fork"]
    history.answer(follower, "e1-2")
    assert fork.cursor == "e1-1"
    with broken("nothing twice"):
        history.answer(fork, "e1-2", ("e1-2", "p/0", "a"))


def test_a_confirmation_is_passed_on() -> None:
    """Those who look inside get each confirmation, with what was reached."""
    history = History()
    seen: list[tuple[str, str, float]] = []

    def confirmed(publication: Publication, ack: str) -> None:
        seen.append((publication.name, ack, publication.acknowledged_at))

    history.checker.confirmed = confirmed
    history.publish("p", "a")
    history.wait(2.5)
    history.acknowledge("p", "e1-1", ack="stable")
    history.publish("q", "a", ids=("e1-2",))
    assert seen == [("p", "stable", 2.5), ("q", "accepted", 2.5)]


@pytest.mark.parametrize("group", ["a", "a!"])
def test_what_was_refused_is_never_delivered(group: str) -> None:
    """A 4xx says that nothing was published."""
    history = History()
    history.publish("p", group)
    history.checker.take(Refused(at=history.now, publication="p", why="400"))
    with broken("refused: s1 received p/0, whose publication was refused"):
        history.answer(history.follow("a"), "e1-1", ("e1-1", "p/0", "a"))


@pytest.mark.parametrize("cursor", ["e1", "e1-", "-1", "e1-x", ""])
def test_a_cursor_that_is_none(cursor: str) -> None:
    """Cursors and ids of a server are an epoch and a sequence."""
    history = History()
    with broken("a cursor or an id is"):
        history.answer(history.follow("a"), cursor)
    with broken("a cursor or an id is"):
        history.publish("p", "a")
        history.acknowledge("p", cursor)


# The end.


@pytest.mark.parametrize("cursor", ["e1-2", "e1-3"])
def test_everybody_reads_to_the_end(cursor: str) -> None:
    """Whoever has not left, and was answered at all."""
    history = History()
    history.answer(history.follow("a"), cursor)
    history.follow("a")
    left = history.follow("b")
    history.answer(left, "e1-0")
    history.checker.take(Left(at=history.now, subscriber=left.name))
    if cursor == "e1-3":
        history.end("e1-3")
    else:
        with broken("live again: s1 is at e1-2, and the end is e1-3"):
            history.end("e1-3")


@pytest.mark.parametrize(("until", "passes"), [("e1-4", False), ("e1-5", True)])
@pytest.mark.parametrize("how", ["left", "no end", "an end without a cursor"])
def test_what_nobody_waited_for(until: str, passes: bool, how: str) -> None:
    """Of a subscriber that has left, or if the history breaks off, no more is asked than what its cursor has passed."""
    history = History()
    follower = history.follow("a")
    history.answer(follower, "e1-3")
    history.publish("p", "a", ids=("e1-5",))
    history.answer(follower, until)

    def end() -> None:
        if how == "no end":
            history.checker.check_deliveries()
            return
        if how == "left":
            history.checker.take(Left(at=history.now, subscriber=follower.name))
        history.checker.take(End(at=history.now, cursor="e1-5" if how == "left" else ""))

    if passes or how == "an end without a cursor":
        with broken("neither received p/0"):
            end()
    else:
        end()


def test_a_log_that_was_put_back_may_have_lost_something() -> None:
    """A gap `lost` is in order then."""
    history = History()
    history.checker.take(PutBack(at=history.now, end="e1-3"))
    history.answer(history.follow("a"), "e1-6", a="lost")
    assert history.checker.without_loss == {"completeness could not be proven": 1}


@pytest.mark.parametrize(
    ("read_to", "end", "counted"),
    [("e1-3", "e1-3", True), ("e1-3", "e1-2", True), ("e1-4", "e1-3", False), ("e1-3", "e1-5", False)],
    ids=["at the end", "before it", "had read further", "the message is still there"],
)
def test_a_log_that_was_put_back_so_that_nobody_can_know(read_to: str, end: str, counted: bool) -> None:
    """Whoever had not read further than it goes is not told of what was lost. That is counted."""
    history = History()
    follower = history.follow("a")
    history.answer(follower, read_to if end != "e1-2" else "e1-2")
    history.publish("p", "a", ids=("e1-5",))
    history.wait(1)
    history.checker.take(PutBack(at=history.now, end=end))
    history.wait(1)
    history.answer(follower, "e1-6")
    if counted:
        history.end()
        assert history.checker.without_loss == {"not a gap: lost, and nobody can know": 1}
    else:
        with broken("neither received p/0"):
            history.end()


@pytest.mark.parametrize("was_put_back", [True, False])
def test_a_gap_for_what_was_received_before_the_log_was_put_back(was_put_back: bool) -> None:
    """Whoever was told of a loss then gets messages again, and is told of those that have expired meanwhile."""
    history = lossy()
    follower = history.follow("a")
    history.publish("p", "a", "a", ids=("e1-1", "e1-2"))
    history.answer(follower, "e1-2", ("e1-1", "p/0", "a"), ("e1-2", "p/1", "a"))
    history.wait(1)
    if was_put_back:
        history.checker.take(PutBack(at=history.now, end="e1-0"))
    history.wait(1)
    history.answer(follower, "e2-0", a="lost")
    if was_put_back:
        history.answer(follower, "e2-2", a="evicted")
        assert history.checker.without_loss["received before a log was put back, and nobody can know"] == 1
    else:
        with broken("a gap is true"):
            history.answer(follower, "e2-2", a="evicted")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_place_that_was_passed_before_the_log_was_put_back(is_told: bool) -> None:
    """The message with that sequence now is another one, of which a later answer must tell."""
    history = lossy()
    follower = history.follow("a", "b")
    history.publish("old", "a", ids=("e1-1",))
    history.answer(follower, "e2-1", ("e1-1", "old/0", "a"))
    history.wait(1)
    history.checker.take(PutBack(at=history.now, end="e1-1"))
    history.wait(1)
    history.publish("p", "a", ids=("e3-3",))
    history.answer(follower, "e2-5")  # it was sent before, and came late
    history.answer(follower, "e3-1", ("e1-1", "old/0", "a"), b="lost")
    history.answer(follower, "e3-4", **({"a": "evicted"} if is_told else {}))
    if is_told:
        history.end()
    else:
        with broken("neither received p/0"):
            history.end()


@pytest.mark.parametrize("was_put_back", [True, False])
def test_names_may_go_back_after_a_log_was_put_back(was_put_back: bool) -> None:
    """If nobody knows of the later name, and the clock that names epochs was set back."""
    history = lossy()
    follower = history.follow("a", cursor="e2-0")
    history.publish("p", "a", ids=("e2-1",))
    if was_put_back:
        history.checker.take(PutBack(at=history.now, end="e1-0"))
    history.wait(1)
    history.publish("q", "a")
    if was_put_back:
        history.acknowledge("q", "e1-1")
        history.answer(follower, "e1-0", a="lost")
        history.answer(follower, "e1-1", ("e1-1", "q/0", "a"))
        history.end("e1-1")
    else:
        with broken("one order"):
            history.acknowledge("q", "e1-1")


@pytest.mark.parametrize("is_told", [True, False])
def test_an_epoch_whose_name_is_earlier_than_that_of_the_one_before(is_told: bool) -> None:
    """If the history says that it comes after it, everything else is asked for as ever."""
    history = lossy()
    follower = history.follow("a", cursor="e2-0")
    history.publish("p", "a", ids=("e2-1",))
    history.answer(follower, "e2-1", ("e2-1", "p/0", "a"))
    if is_told:
        history.checker.take(Begun(at=history.now, epoch="e1", after="e2"))
    history.publish("q", "a")
    if not is_told:
        with broken("one order"):
            history.acknowledge("q", "e1-1")
        return
    history.acknowledge("q", "e1-1")
    history.answer(follower, "e1-1", ("e1-1", "q/0", "a"), a="lost")
    with broken("nothing twice"):
        history.answer(follower, "e2-1", ("e2-1", "p/0", "a"), a="lost")


@pytest.mark.parametrize("is_covered", [True, False])
def test_what_an_epoch_with_a_later_name_had_is_lost_with_it(is_covered: bool) -> None:
    """It was acknowledged before the epoch began that its subscriber is in: a gap has to say so."""
    history = lossy()
    follower = history.follow("a", cursor="e1-0")
    history.answer(follower, "e1-0")
    history.publish("p", "a", ids=("e5-1",))
    history.checker.take(Begun(at=history.now, epoch="e2", after="e5"))
    history.wait(1)
    if is_covered:
        history.answer(follower, "e2-0", a="lost")
        history.end("e2-0")
    else:
        history.answer(follower, "e2-0")
        with broken("delivered or covered"):
            history.end("e2-0")
