"""Held polls: answered at once, woken, timed out, abandoned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from pushup.core.answer import Answer
from pushup.core.commands import Close, Create, Expire
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded, UnknownChannel
from pushup.core.held_polls import AHEAD_SECONDS, ANSWERS_KEPT
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import CHANNEL_OVERHEAD_BYTES, Poll, Selection
from pushup.core.reading import read
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore

from .builders import EPOCH, Feed, gaps, ids, poll, publish


def empty(sequence: int) -> Answer:
    return Answer(f"{EPOCH}-{sequence}", (), False, (), ())


def test_cached_messages_are_answered_at_once(feed: Feed) -> None:
    feed.apply(publish("a"), 1.0)
    assert ids(feed.ask(poll("a", timeout=10.0), 1.0)) == [1]
    assert feed.polls.count == 0
    assert feed.polls.next_deadline is None


def test_a_poll_without_timeout_gets_a_new_cursor(feed: Feed) -> None:
    """With client pull, an empty answer is an answer."""
    feed.apply(publish("b"), 1.0)
    assert feed.ask(poll("a"), 1.0) == empty(1)
    assert feed.ask(poll("a", cursor="e1-0"), 1.0) == empty(1)
    assert feed.ask(poll("b", cursor="e1-1"), 1.0) == empty(1)
    feed.check()


@pytest.mark.parametrize("cursor", ["", "now", "e1-1"])
def test_a_held_poll_gets_the_next_message(feed: Feed, cursor: str) -> None:
    feed.apply(publish("b"), 1.0)
    feed.hold(poll("a", cursor=cursor, timeout=10.0), 1.0)
    assert (feed.polls.count, feed.polls.next_deadline, feed.polls.has_deliveries) == (1, 11.0, False)
    feed.apply(publish("b"), 2.0)
    assert (feed.polls.count, feed.polls.has_deliveries) == (1, False)
    feed.apply(publish("a", "b"), 2.0)
    assert feed.polls.has_deliveries
    [(holder, answer)] = feed.deliver()
    assert (holder, ids(answer), answer.cursor) == ("client", [3], "e1-3")
    assert answer.messages[0].channels == ("a",)
    assert feed.deliver() == []
    assert (feed.polls.count, feed.polls.has_deliveries) == (0, False)


def test_a_poll_of_several_channels_gets_what_any_of_them_has(feed: Feed) -> None:
    """At once, although its cursor is past everything on the others."""
    for name in ("quiet", "b", "busy"):
        feed.apply(publish(name), 1.0)
    answer = feed.ask(poll("quiet", "busy", cursor="e1-2", timeout=10.0), 1.0)
    assert (ids(answer), answer.cursor) == ([3], "e1-3")


def test_a_poll_whose_time_is_over_is_answered_at_once(feed: Feed) -> None:
    """As when the client's permission ended while its poll was on the way."""
    assert feed.polls.subscribe(poll("a"), "client", 5.0, 4.0) == empty(0)
    assert feed.polls.count == 0


def test_a_message_wakes_the_polls_of_each_of_its_channels(feed: Feed) -> None:
    """Each answer has the channels that were asked for; a poll that asked for both is answered once."""
    for holder, names in (("x", "a"), ("y", "b"), ("z", "ba"), ("w", "c")):
        feed.hold(poll(*names, timeout=10.0), 1.0, holder)
    feed.apply(publish("a", "b"), 2.0)
    told = {holder: [m.channels for m in answer.messages] for holder, answer in feed.deliver()}
    assert told == {"x": [("a",)], "y": [("b",)], "z": [("b", "a")]}


def test_a_channel_forgotten_meanwhile_is_no_gap_for_a_poll_from_now() -> None:
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("old"), 1.0)
    feed.apply(Close("old"), 1.0)
    feed.hold(poll("new", timeout=100.0), 2.0)
    feed.apply(Expire(), 6.0)
    assert feed.state.head.floor == 2
    feed.apply(publish("new"), 7.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([4], [])


def test_a_channel_forgotten_meanwhile_is_no_gap_for_a_held_poll() -> None:
    """A poll held since before gets no gap; one that arrives later with the same cursor does."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("old"), 1.0)
    feed.hold(poll("new", cursor="e1-1", timeout=100.0), 1.0, "waits")
    feed.hold(poll("new", cursor="e1-1", timeout=8.0), 1.0, "short timeout")
    feed.apply(Close("old"), 2.0)
    feed.apply(Expire(), 7.0)
    assert gaps(feed.ask(poll("new", cursor="e1-1"), 8.0)) == [("new", "expired")]
    assert [(holder, gaps(answer)) for holder, answer in feed.expire(9.0)] == [("short timeout", [])]
    feed.apply(publish("new"), 10.0)
    assert [(holder, ids(answer), gaps(answer)) for holder, answer in feed.deliver()] == [("waits", [4], [])]
    assert gaps(feed.ask(poll("new", cursor="e1-1"), 10.0)) == [("new", "expired")]


def test_a_poll_can_wait_for_a_channel_that_does_not_exist() -> None:
    """It gets the first message, whether or not the channel is created before."""
    for first in (Create("a"), Expire()):
        feed = Feed()
        feed.hold(poll("a", "b", timeout=10.0), 1.0)
        feed.apply(first, 2.0)
        feed.apply(publish("a"), 2.0)
        [(_, answer)] = feed.deliver()
        assert (ids(answer), answer.gaps, answer.closed) == ([2], (), ())
        assert len(feed.state.channels) == 1


def test_a_poll_cannot_wait_for_an_unknown_id(feed: Feed) -> None:
    """The poll is refused, and its other names are not left behind as awaited."""
    with pytest.raises(UnknownChannel):
        feed.subscribe(poll("a", "4711", timeout=10.0), 1.0)
    feed.check()
    assert feed.polls.count == 0


def test_a_channel_can_be_polled_by_its_id(feed: Feed) -> None:
    """The answer names the channel by its name."""
    feed.apply(Create("a"), 1.0)
    feed.hold(poll("1000", timeout=10.0), 1.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert answer.messages[0].channels == ("a",)


def test_a_poll_that_times_out_gets_a_newer_cursor(feed: Feed) -> None:
    """Polls time out in the order of their deadlines, never early, and at most as many as asked for."""
    for holder, timeout in (("late", 9.0), ("early", 5.0), ("early too", 5.0)):
        feed.hold(poll("a", timeout=timeout), 1.0, holder)
    feed.apply(publish("b"), 2.0)
    assert feed.expire(5.999) == []
    assert feed.expire(6.0, most=1) == [("early", empty(1))]
    assert feed.expire(6.0) == [("early too", empty(1))]
    assert (feed.polls.count, feed.polls.next_deadline) == (1, 10.0)
    assert feed.polls.end_all(100) == [("late", empty(1))]
    assert (feed.polls.count, feed.polls.next_deadline) == (0, None)
    feed.check()


def test_the_polls_with_the_latest_deadlines_are_ended_first(feed: Feed) -> None:
    """Ending does not wait for the deadlines; each poll ends once, and at most as many as asked for."""
    for holder, timeout in (("early", 5.0), ("late", 9.0), ("late too", 9.0), ("middle", 7.0)):
        feed.hold(poll("a", timeout=timeout), 1.0, holder)
    assert [holder for holder, _ in feed.polls.end_all(3)] == ["late too", "late", "middle"]
    feed.check()
    assert [holder for holder, _ in feed.polls.end_all(3)] == ["early"]
    assert feed.polls.end_all(3) == []
    feed.check()


def with_hold_limits(**limits: int) -> Feed:
    return Feed(hold_limits=HoldLimits(**limits))


def test_awaited_channels_are_limited() -> None:
    """A poll that would exceed the limit is refused and leaves nothing behind; others are held, and room is freed."""
    feed = with_hold_limits(awaited_channels_limit=3)
    feed.apply(publish("living"), 1.0)
    feed.apply(publish("closed"), 1.0)
    feed.apply(Close("closed"), 1.0)
    held = feed.hold(poll("a", "b", timeout=9.0), 1.0)
    with pytest.raises(Overloaded, match="awaited_channels_limit") as refused:
        feed.hold(poll("c", "d", timeout=9.0), 1.0)
    assert refused.value.retry_after
    assert feed.polls.awaited_count == 2
    feed.hold(poll("b", "c", "living", "closed", cursor="now", timeout=9.0), 1.0)
    feed.hold(poll("a", timeout=9.0), 1.0)
    assert feed.ask(poll("x", "y", "z", "living"), 1.0).messages, "a poll that can be answered at once is never refused"
    assert feed.polls.awaited_count == 3
    feed.check()
    feed.polls.abandon(held)
    assert feed.polls.awaited_count == 3, "other polls still wait for these"
    feed.apply(publish("c"), 2.0)
    assert feed.polls.awaited_count == 2, "the channel is open now"
    feed.deliver()
    assert feed.polls.awaited_count == 1
    feed.hold(poll("d", "e", timeout=9.0), 2.0)


def test_the_limit_of_awaited_channels_counts_polls_of_one_name() -> None:
    feed = with_hold_limits(awaited_channels_limit=1)
    feed.hold(poll("a", timeout=9.0), 1.0)
    feed.hold(poll("a", timeout=9.0), 1.0)
    with pytest.raises(Overloaded, match="awaited_channels_limit"):
        feed.hold(poll("b", timeout=9.0), 1.0)
    feed.check()


def test_past_the_limit_of_awaited_channels_only_new_ones_are_refused() -> None:
    """A closed channel that is forgotten while polls wait for it may exceed the limit; held polls stay."""
    feed = with_hold_limits(awaited_channels_limit=1)
    feed.apply(publish("living"), 1.0)
    feed.apply(publish("closed"), 1.0)
    feed.apply(Close("closed"), 2.0)
    feed.hold(poll("awaited", cursor="now", timeout=9999.0), 2.0)
    feed.hold(poll("closed", cursor="now", timeout=9999.0), 2.0)
    feed.apply(Expire(), 2000.0)
    feed.apply(publish("living"), 2000.0)
    assert feed.polls.awaited_count == 2
    feed.hold(poll("living", cursor="now", timeout=9.0), 2000.0)
    feed.hold(poll("living", "closed", "awaited", cursor="now", timeout=9.0), 2000.0)
    with pytest.raises(Overloaded, match="awaited_channels_limit"):
        feed.hold(poll("living", "further", cursor="now", timeout=9.0), 2000.0)
    feed.check()


def test_the_memory_of_held_polls_is_limited() -> None:
    """Names and a share for each channel count; however a poll ends, its bytes are freed."""
    size = 12 + CHANNEL_OVERHEAD_BYTES
    feed = with_hold_limits(held_limit_bytes=4 * size)
    abandoned = feed.hold(poll("é" * 3, "b" * 12, timeout=9.0), 1.0)
    assert feed.polls.bytes == 2 * size
    with pytest.raises(Overloaded, match="held_limit_bytes"):
        feed.hold(poll("c" * 12, "d" * 12, "e" * 12, timeout=9.0), 1.0)
    assert (feed.polls.bytes, feed.polls.awaited_count) == (2 * size, 2)
    feed.hold(poll("a" * 12, timeout=2.0), 1.0)
    feed.hold(poll("b" * 12, timeout=9.0), 1.0)
    feed.polls.abandon(abandoned)
    feed.expire(3.0)
    feed.apply(publish("b" * 12), 3.0)
    feed.deliver()
    assert (feed.polls.bytes, feed.polls.awaited_count) == (0, 0)


def test_the_memory_of_polls_on_open_channels_is_limited() -> None:
    """Exactly the limit fits; beyond it a poll is refused, and room is freed by one that leaves."""
    feed = with_hold_limits(held_limit_bytes=2 * (1 + CHANNEL_OVERHEAD_BYTES))
    feed.apply(publish("a"), 1.0)
    first = feed.hold(poll("a", cursor="now", timeout=9.0), 1.0)
    feed.hold(poll("a", cursor="now", timeout=9.0), 1.0)
    with pytest.raises(Overloaded, match="held_limit_bytes"):
        feed.hold(poll("a", cursor="now", timeout=9.0), 1.0)
    feed.polls.abandon(first)
    feed.hold(poll("a", cursor="now", timeout=9.0), 1.0)
    feed.check()


def test_the_deadline_is_not_of_the_clock_of_the_messages(feed: Feed) -> None:
    """The end of the time range is compared with messages only, the deadline with the time passed to `expire`."""
    subscription = feed.hold(poll("a", end=4.0, timeout=100.0), 1.0)
    assert subscription.deadline == feed.polls.next_deadline == 101.0
    feed.apply(publish("a"), 4.0)
    assert feed.deliver() == []
    assert feed.expire(4.0) == []
    assert feed.expire(101.0) == [("client", empty(1))]


def test_a_message_outside_of_the_time_range_does_not_answer_a_poll(feed: Feed) -> None:
    """The poll is checked, keeps waiting, and gets the messages inside its range once."""
    feed.hold(poll("a", "b", start=3.0, timeout=100.0), 1.0)
    feed.apply(publish("a", "b"), 2.0)
    assert feed.polls.has_deliveries
    assert feed.deliver() == []
    assert (feed.polls.count, feed.polls.has_deliveries) == (1, False)
    feed.apply(publish("a", "b"), 3.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), answer.cursor) == ([2], "e1-2")


def test_a_message_outside_of_the_time_range_is_no_gap_when_it_is_dropped() -> None:
    """A poll that was held has been past it, although it was not told of it."""
    feed = Feed(retention_messages=1)
    feed.hold(poll("a", start=3.0, timeout=100.0), 1.0)
    feed.apply(publish("a"), 2.0)
    assert feed.deliver() == []
    feed.apply(publish("a"), 3.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([2], [])


def calls_of(function: Callable[..., object], run: Callable[[], object]) -> int:
    """How often the function is called while something runs."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is function.__code__

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.interpreted
def test_a_poll_of_many_channels_is_checked_once_per_message(feed: Feed) -> None:
    feed.hold(poll("a", "b", "c", cursor="e1-2", start=5.0, timeout=100.0), 1.0, "ahead")
    feed.hold(poll("a", "b", "c", start=5.0, timeout=100.0), 1.0)
    for _ in range(2):
        feed.apply(publish("a", "b", "c"), 2.0)
    assert calls_of(read, feed.deliver) == 1
    assert (feed.polls.count, feed.polls.has_deliveries) == (2, False)
    feed.apply(publish("b", "c"), 2.0)
    assert feed.deliver(1) == []
    feed.apply(publish("b", "c"), 5.0)
    assert {holder: ids(answer) for holder, answer in feed.deliver()} == {"ahead": [4], "client": [4]}
    assert (feed.polls.count, feed.polls.has_deliveries) == (0, False)


def test_no_poll_stays_when_a_channel_was_closed(feed: Feed) -> None:
    """What has its name later is another channel, of which a poll by id must get nothing."""
    feed.apply(Create("a"), 1.0)
    feed.apply(Create("b"), 1.0)
    for holder, names in (("by id", ("1000", "b")), ("by name", ("a",)), ("other", ("b",))):
        feed.hold(Poll(Selection(names), Cursor(EPOCH, 2), 10.0, stays=True), 1.0, holder)
    feed.apply(publish("b"), 2.0)
    assert [holder for holder, _ in feed.deliver()] == ["by id", "other"]
    feed.apply(Close("a"), 2.0)
    assert {holder: answer.closed for holder, answer in feed.deliver()} == {"by id": ("a",), "by name": ("a",)}
    feed.apply(publish("a", "b"), 3.0)
    assert [holder for holder, _ in feed.deliver()] == ["other"]


def test_no_poll_stays_when_a_channel_was_lost() -> None:
    """As when it was closed: in an order that begins anew, another channel may have its name at once, or soon."""
    feed, lost = Feed(), [("a", "lost")]
    feed.apply(Create("a"), 1.0)
    feed.hold(Poll(Selection(("1000",)), Cursor(EPOCH, 1), 10.0, stays=True), 1.0, "by id")
    feed.hold(Poll(Selection(("a",)), Cursor(EPOCH, 1), 10.0), 1.0, "by name")
    other = Feed()
    other.state = ReplicatedState(feed.limits, epoch="e2")
    other.apply(publish("a"), 2.0)
    feed.use(other.state)
    told = {holder: (gaps(answer), ids(answer)) for holder, answer in feed.deliver()}
    assert told == {"by id": (lost, []), "by name": (lost, [1])}
    assert feed.polls.count == 0
    feed.apply(publish("a"), 3.0)
    assert feed.deliver() == []
    with pytest.raises(UnknownChannel):
        feed.ask(poll("1000", cursor="e2-1"))


def test_equal_polls_share_one_answer(feed: Feed) -> None:
    """Polls with the same selection that wait for the same next message get the same object, whatever their cursors."""
    feed.apply(publish("a"), 1.0)
    feed.apply(publish("b"), 1.0)
    selection = Selection(("a",))
    for holder, cursor in (("x", "e1-1"), ("y", "e1-2"), ("z", "now")):
        feed.hold(Poll(selection, poll("a", cursor=cursor).cursor, 10.0), 1.0, holder)
    feed.apply(publish("a"), 2.0)
    answers = [answer for _, answer in feed.deliver()]
    assert len(answers) == 3
    assert all(answer is answers[0] for answer in answers)
    feed.apply(publish("a"), 2.0)
    again = feed.ask(Poll(selection, poll("a", cursor="e1-1").cursor), 2.0)
    assert ids(again) == [3, 4]


def test_different_polls_do_not_keep_each_other_from_sharing(feed: Feed) -> None:
    selections = [Selection(("a",)), Selection(("a",))]
    for n in range(6):
        feed.hold(Poll(selections[n % 2], poll("a").cursor, 10.0 + n), 1.0, str(n % 2))
    feed.apply(publish("a"), 2.0)
    answers: dict[str, set[int]] = {"0": set(), "1": set()}
    told = feed.deliver()
    for holder, answer in told:
        answers[holder].add(id(answer))
    assert (len(told), [len(shared) for shared in answers.values()]) == (6, [1, 1])


def test_a_limited_number_of_answers_is_kept_for_sharing(feed: Feed) -> None:
    """However many different polls one message answers, each gets its own; with the first ones nobody shares then."""
    polls = [poll("a", f"b{n}", timeout=10.0) for n in range(ANSWERS_KEPT + 1)]
    polls += polls[-1], polls[0]
    for n, each in enumerate(polls):
        feed.hold(each, 1.0, str(n))
    feed.apply(publish("a"), 2.0)
    answers: list[Answer] = []
    while feed.polls.has_deliveries:
        answers += [answer for _, answer in feed.polls.deliver(256)]
    assert [ids(answer) for answer in answers] == [[1]] * len(polls)
    assert answers[-2] is answers[-3]
    assert answers[-1] is not answers[0]


def test_a_cursor_ahead_of_the_node_waits_and_gets_no_old_message(feed: Feed) -> None:
    """A node that is behind holds the poll until it has messages that the client has not seen."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", "b", cursor="e1-3", timeout=10.0), 1.0)
    feed.apply(publish("a"), 2.0)
    assert feed.deliver() == []
    feed.apply(publish("b"), 2.0)
    assert feed.deliver() == []
    assert feed.polls.count == 1
    feed.apply(publish("b"), 2.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), answer.cursor) == ([4], "e1-4")
    feed.hold(poll("a", cursor="e1-9", timeout=1.0), 2.0)
    assert feed.expire(3.0) == [("client", empty(9))]


@pytest.mark.parametrize("epoch", ["e0", "e2"])
@pytest.mark.parametrize("sequence", [0, 1, 9])
def test_a_cursor_of_another_epoch_is_lost_at_once(feed: Feed, epoch: str, sequence: int) -> None:
    """Whichever name or sequence is higher, for they cannot be compared; also on a channel that does not exist."""
    feed.apply(publish("a"), 1.0)
    for name, found in (("a", [1]), ("never", [])):
        answer = feed.ask(poll(name, cursor=f"{epoch}-{sequence}", timeout=10.0), 1.0)
        assert (gaps(answer), ids(answer), answer.cursor) == ([(name, "lost")], found, "e1-1")
        feed.hold(poll(name, cursor=answer.cursor, timeout=10.0), 1.0)


def test_a_poll_ahead_of_the_node_keeps_a_longer_timeout(feed: Feed) -> None:
    feed.hold(poll("a", cursor="e1-9", timeout=10.0), 1.0)
    assert feed.polls.next_deadline == 11.0


def test_a_poll_ahead_of_the_node_is_held_even_without_a_timeout(feed: Feed) -> None:
    """There must be time to find out whether the order has lost what its client has seen."""
    feed.apply(publish("a"), 1.0)
    assert feed.polls.ahead() == []
    for asked in (poll("a", cursor="e1-9"), poll("a", cursor="e1-9", timeout=0.3)):
        feed.hold(asked, 2.0)
        assert feed.polls.next_deadline == 2.0 + AHEAD_SECONDS
        assert len(feed.polls.ahead()) == 1
        assert feed.expire(2.0 + AHEAD_SECONDS) == [("client", empty(9))]
        assert feed.polls.ahead() == []
    subscription = feed.hold(poll("a", cursor="e1-9"), 2.0)
    assert feed.polls.has_ahead
    feed.polls.abandon(subscription)
    assert feed.polls.ahead() == []


def test_a_poll_ahead_of_the_end_of_the_order_is_lost(feed: Feed) -> None:
    """One that is ahead of this node only is still held, and so is one that came after the end was asked for."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-5", timeout=9.0), 2.0, "beyond the end")
    feed.hold(poll("a", cursor="e1-4", timeout=9.0), 2.0, "ahead of the node")
    feed.hold(poll("a", cursor="e1-1", timeout=9.0), 2.0, "not ahead")
    ahead = feed.polls.ahead()
    feed.hold(poll("a", cursor="e1-5", timeout=9.0), 2.0, "later")
    for epoch in ("e0", "e2"):
        feed.polls.end_is(Cursor(epoch, 0), ahead)
        assert not feed.polls.has_deliveries
    feed.polls.end_is(Cursor("e1", 4), ahead)
    [(holder, answer)] = feed.deliver()
    assert (holder, gaps(answer), ids(answer), answer.cursor) == ("beyond the end", [("a", "lost")], [1], "e1-1")
    assert (feed.polls.count, len(feed.polls.ahead())) == (3, 2)


@pytest.mark.parametrize("entries", [0, 1])
def test_a_poll_that_was_just_woken_in_vain_is_lost_all_the_same(feed: Feed, entries: int) -> None:
    """Also on a node that has no entry at all."""
    feed.hold(poll("a", cursor="e1-5", timeout=9.0), 2.0)
    for _ in range(entries):
        feed.apply(publish("a"), 2.0)
        assert feed.deliver() == []
    feed.polls.end_is(Cursor(EPOCH, entries), feed.polls.ahead())
    assert [gaps(answer) for _, answer in feed.deliver()] == [[("a", "lost")]]


def test_an_end_that_concerns_nobody_leaves_nothing_to_deliver(feed: Feed) -> None:
    """Polls that have seen no more than that stay; one that was abandoned meanwhile is gone."""
    feed.hold(poll("a", cursor="e1-4", timeout=9.0), 1.0)
    gone = feed.hold(poll("a", cursor="e1-9", timeout=9.0), 1.0)
    ahead = feed.polls.ahead()
    feed.polls.abandon(gone)
    feed.polls.end_is(Cursor(EPOCH, 4), ahead)
    assert not feed.polls.has_deliveries
    assert feed.polls.count == 1


def test_the_end_may_become_known_when_the_node_is_past_it(feed: Feed) -> None:
    """What counts is what the poll's client had seen when it came, and whether it is still held."""
    feed.hold(poll("a", cursor="e1-3", timeout=9.0), 1.0, "valid")
    feed.hold(poll("a", cursor="e1-4", timeout=9.0), 1.0, "lost")
    gone = feed.hold(poll("a", cursor="e1-4", timeout=9.0), 1.0, "gone")
    ahead = feed.polls.ahead()
    feed.polls.abandon(gone)
    for _ in range(5):
        feed.apply(publish("b"), 1.0)
    assert feed.polls.ahead() == []
    feed.polls.end_is(Cursor("e1", 3), ahead)
    [(holder, answer)] = feed.deliver()
    assert (holder, gaps(answer)) == ("lost", [("a", "lost")])
    assert feed.polls.count == 1


def test_a_closing_is_reported_at_once(feed: Feed) -> None:
    """Held polls are answered, and so are later polls with a cursor from before."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", "b", cursor="e1-1", timeout=10.0), 1.0)
    feed.apply(Close("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert (answer.closed, gaps(answer), answer.cursor) == (("a",), [], "e1-2")
    assert feed.ask(poll("a", cursor="e1-1", timeout=10.0), 2.0).closed == ("a",)
    feed.hold(poll("a", cursor="e1-2", timeout=10.0), 2.0)
    feed.apply(publish("a"), 3.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), answer.closed) == ([3], ())


def test_an_abandoned_poll_gets_nothing(feed: Feed) -> None:
    """It is forgotten, woken or not; abandoning it again changes nothing."""
    first = feed.hold(poll("a", timeout=10.0), 1.0, "first")
    second = feed.hold(poll("a", "b", timeout=10.0), 1.0, "second")
    feed.polls.abandon(first)
    feed.polls.abandon(first)
    feed.check()
    assert feed.polls.count == 1
    feed.apply(publish("a"), 2.0)
    feed.polls.abandon(second)
    assert (feed.deliver(), feed.polls.count, feed.polls.next_deadline) == ([], 0, None)
    assert feed.expire(99.0) == []


def test_a_channel_counts_its_subscribers(feed: Feed) -> None:
    """Polls that are woken but not yet answered count; those answered, timed out or abandoned do not."""
    feed.apply(Create("a"), 1.0)
    gone = feed.hold(poll("a", timeout=10.0), 1.0, "gone")
    for holder in ("x", "y", "z"):
        feed.hold(poll("a", "b", timeout=10.0), 1.0, holder)
    feed.polls.abandon(gone)
    counts = [feed.polls.subscribers("a")]
    feed.apply(publish("a"), 2.0)
    counts.append(feed.polls.subscribers("a"))
    feed.deliver(1)
    counts.append(feed.polls.subscribers("a"))
    feed.expire(99.0)
    counts.append(feed.polls.subscribers("a"))
    assert counts == [3, 3, 2, 0]


def test_an_awaited_channel_is_not_open() -> None:
    feed = Feed(channels_limit=1)
    subscriptions = [feed.hold(poll(f"never{n}", timeout=10.0), 1.0) for n in range(3)]
    assert (len(feed.state.channels), feed.state.snapshot().channels) == (0, ())
    for subscription in subscriptions:
        feed.polls.abandon(subscription)
    feed.check()
    feed.apply(publish("a"), 1.0)
    assert len(feed.state.channels) == 1


def test_held_polls_stay_when_an_equal_state_takes_over(feed: Feed) -> None:
    """Loading a checkpoint of the same order ends no poll, and the next message reaches them."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", "never", cursor="e1-1", timeout=10.0), 1.0)
    feed.use(restore(feed.state.snapshot()))
    assert feed.deliver() == []
    assert (feed.polls.count, feed.polls.awaited_count, feed.polls.next_deadline) == (1, 1, 11.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer), answer.cursor) == ([2], [], "e1-2")


def test_held_polls_get_the_messages_of_another_state() -> None:
    """They get messages that this node has not applied itself, and gaps where messages may have been dropped."""
    feed, ahead = Feed(), Feed(retention_messages=1)
    feed.hold(poll("a", cursor="e1-0", timeout=10.0), 1.0, "one message")
    feed.hold(poll("b", cursor="e1-0", timeout=10.0), 1.0, "a gap")
    feed.hold(poll("c", cursor="e1-0", timeout=10.0), 1.0, "nothing")
    for name in ("a", "b", "b"):
        ahead.apply(publish(name), 2.0)
    feed.use(restore(ahead.state.snapshot()))
    told = {holder: (ids(answer), gaps(answer)) for holder, answer in feed.deliver()}
    assert told == {"one message": ([1], []), "a gap": ([3], [("b", "evicted")])}
    assert feed.polls.count == 1
    feed.check()


def test_held_polls_end_with_their_epoch() -> None:
    """Every poll is answered once, with a gap for each of its channels and a cursor of the new epoch."""
    feed, other = Feed(), ReplicatedState(Limits(), epoch="e2", sequence=7)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", "b", cursor="e1-1", timeout=10.0), 1.0)
    feed.use(other)
    feed.hold(poll("a", "b", cursor="e2-7", timeout=10.0), 1.0, "of the new epoch")
    [(holder, answer)] = feed.deliver()
    assert (holder, gaps(answer), answer.cursor) == ("client", [("a", "lost"), ("b", "lost")], "e2-7")
    assert feed.polls.count == 1
    feed.apply(publish("b"), 2.0)
    [(holder, answer)] = feed.deliver()
    assert (holder, ids(answer), gaps(answer)) == ("of the new epoch", [8], [])


def test_a_poll_that_stayed_held_is_checked_again_in_another_epoch(feed: Feed) -> None:
    """Sequences of different epochs cannot be compared: those of the new one may be lower."""
    feed.hold(poll("a", start=5.0, timeout=100.0), 1.0)
    for _ in range(3):
        feed.apply(publish("a"), 2.0)
        assert feed.deliver() == []
    feed.use(ReplicatedState(Limits(), epoch="e2"))
    [(_, answer)] = feed.deliver()
    assert (gaps(answer), answer.cursor) == ([("a", "lost")], "e2-0")
