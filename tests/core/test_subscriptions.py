"""Held polls of a message queue: answered at once, woken, timed out, abandoned."""

from __future__ import annotations

import msgspec
import pytest

from pushup.core.answer import Answer
from pushup.core.commands import Close, Create, Expire
from pushup.core.errors import Overloaded, UnknownChannel
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import CHANNEL_OVERHEAD_BYTES, Poll, Selection
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Subscription

from .builders import EPOCH, Feed, gaps, ids, poll, publish


def empty(sequence: int) -> Answer:
    return Answer(f"{EPOCH}-{sequence}", (), False, (), ())


def test_what_is_cached_is_answered_at_once() -> None:
    """A poll that there is something for is not held, however long it would wait."""
    feed = Feed()
    feed.apply(publish("a"), 1.0)
    assert ids(feed.ask(poll("a", timeout=10.0), 1.0)) == [1]
    assert feed.polls.count == 0
    assert feed.polls.next_deadline is None


def test_a_poll_that_would_not_wait_is_answered_with_a_fresh_cursor() -> None:
    """Client pull: nothing new is an answer, too."""
    feed = Feed()
    feed.apply(publish("b"), 1.0)
    assert feed.ask(poll("a"), 1.0) == empty(1)
    assert feed.ask(poll("a", cursor="e1-0"), 1.0) == empty(1)
    assert feed.ask(poll("b", cursor="e1-1"), 1.0) == empty(1)
    feed.check()


@pytest.mark.parametrize("cursor", ["", "now", "e1-1"])
def test_a_held_poll_gets_the_next_message(cursor: str) -> None:
    """It is woken by the publication, and answered once."""
    feed = Feed()
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


def test_a_message_wakes_those_of_each_of_its_channels() -> None:
    """Each gets it with the channels it asked for; one that asked for both gets it once."""
    feed = Feed()
    for holder, names in (("x", "a"), ("y", "b"), ("z", "ba"), ("w", "c")):
        feed.hold(poll(*names, timeout=10.0), 1.0, holder)
    feed.apply(publish("a", "b"), 2.0)
    told = {holder: [m.channels for m in answer.messages] for holder, answer in feed.deliver()}
    assert told == {"x": [("a",)], "y": [("b",)], "z": [("b", "a")]}


def test_what_is_forgotten_meanwhile_is_no_gap_for_who_waits_for_a_new_channel() -> None:
    """A subscription that has seen all up to its beginning is not warned of what was before."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("old"), 1.0)
    feed.apply(Close("old"), 1.0)
    feed.hold(poll("new", timeout=100.0), 2.0)
    feed.apply(Expire(), 6.0)
    assert feed.state.snapshot().floor == 2
    feed.apply(publish("new"), 7.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([4], [])


def test_what_is_forgotten_while_somebody_waits_is_no_gap_for_him() -> None:
    """Whoever waits for a new channel is not warned of what was forgotten meanwhile; who comes later has to be."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("old"), 1.0)
    feed.hold(poll("new", cursor="e1-1", timeout=100.0), 1.0, "waits")
    feed.hold(poll("new", cursor="e1-1", timeout=8.0), 1.0, "waits less long")
    feed.apply(Close("old"), 2.0)
    feed.apply(Expire(), 7.0)
    assert gaps(feed.ask(poll("new", cursor="e1-1"), 8.0)) == [("new", "expired")]
    assert [(holder, gaps(answer)) for holder, answer in feed.expire(9.0)] == [("waits less long", [])]
    feed.apply(publish("new"), 10.0)
    assert [(holder, ids(answer), gaps(answer)) for holder, answer in feed.deliver()] == [("waits", [4], [])]
    assert gaps(feed.ask(poll("new", cursor="e1-1"), 10.0)) == [("new", "expired")]


def test_a_channel_that_does_not_exist_yet_can_be_waited_for() -> None:
    """Whoever was there first gets its first message, whether it is created before or not."""
    for first in (Create("a"), Expire()):
        feed = Feed()
        feed.hold(poll("a", "b", timeout=10.0), 1.0)
        feed.apply(first, 2.0)
        feed.apply(publish("a"), 2.0)
        [(_, answer)] = feed.deliver()
        assert (ids(answer), answer.gaps, answer.closed) == ([2], (), ())
        assert len(feed.state.channels) == 1


def test_an_id_that_does_not_live_cannot_be_waited_for() -> None:
    """It is unknown, and the names beside it are not left behind as awaited."""
    feed = Feed()
    with pytest.raises(UnknownChannel):
        feed.subscribe(poll("a", "4711", timeout=10.0), 1.0)
    feed.check()
    assert feed.polls.count == 0


def test_a_channel_can_be_polled_by_its_id() -> None:
    """The answer names it by its name."""
    feed = Feed()
    feed.apply(Create("a"), 1.0)
    feed.hold(poll("1000", timeout=10.0), 1.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert answer.messages[0].channels == ("a",)


def test_a_poll_that_times_out_gets_a_cursor_that_moved_on() -> None:
    """Deadlines come in their order, not before their time, and at most as many as asked for."""
    feed = Feed()
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


def test_those_with_the_latest_deadlines_are_ended_first() -> None:
    """Whatever their deadlines; each once, and at most as many as asked for."""
    feed = Feed()
    for holder, timeout in (("early", 5.0), ("late", 9.0), ("late too", 9.0), ("middle", 7.0)):
        feed.hold(poll("a", timeout=timeout), 1.0, holder)
    assert [holder for holder, _ in feed.polls.end_all(3)] == ["late too", "late", "middle"]
    feed.check()
    assert [holder for holder, _ in feed.polls.end_all(3)] == ["early"]
    assert feed.polls.end_all(3) == []
    feed.check()


def with_hold_limits(**limits: int) -> Feed:
    return Feed(hold_limits=HoldLimits(**limits))


def test_channels_that_are_only_waited_for_are_limited() -> None:
    """A poll that would add one too many is refused and leaves nothing; others are held, and there is room again."""
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
    assert feed.ask(poll("x", "y", "z", "living"), 1.0).messages, "what can be answered is"
    assert feed.polls.awaited_count == 3
    feed.check()
    feed.polls.abandon(held)
    assert feed.polls.awaited_count == 3, "others wait for these still"
    feed.apply(publish("c"), 2.0)
    assert feed.polls.awaited_count == 2, "it lives now"
    feed.deliver()
    assert feed.polls.awaited_count == 1
    feed.hold(poll("d", "e", timeout=9.0), 2.0)


def test_past_the_limit_of_awaited_channels_only_further_ones_are_refused() -> None:
    """A closed channel that is forgotten while polls wait for it goes past the limit; all other polls are held on."""
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


def test_what_held_polls_take_is_limited() -> None:
    """By what the names take, and a share for each channel; however the polls end, their bytes are free again."""
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


def test_a_held_poll_ends_at_the_end_of_its_time_range() -> None:
    """Nothing that comes later can be for it, so it is not held on."""
    feed = Feed()
    subscription = feed.hold(poll("a", end=4.0, timeout=100.0), 1.0)
    assert subscription.deadline == feed.polls.next_deadline == 4.0
    feed.apply(publish("a"), 4.0)
    assert feed.deliver() == []
    assert feed.expire(4.0) == [("client", empty(1))]
    assert feed.ask(poll("a", end=4.0, timeout=100.0), 4.0) == empty(1)


def test_what_lies_outside_of_its_time_range_does_not_answer_a_poll() -> None:
    """It is looked at, waits on, and gets what lies inside, once."""
    feed = Feed()
    feed.hold(poll("a", "b", start=3.0, timeout=100.0), 1.0)
    feed.apply(publish("a", "b"), 2.0)
    assert feed.polls.has_deliveries
    assert feed.deliver() == []
    assert (feed.polls.count, feed.polls.has_deliveries) == (1, False)
    feed.apply(publish("a", "b"), 3.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), answer.cursor) == ([2], "e1-2")


def test_a_poll_of_many_channels_is_looked_at_once_for_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its channels a message came on that is not for it, it is put back once, and to all of them."""
    feed = Feed()
    feed.hold(poll("a", "b", "c", cursor="e1-2", start=5.0, timeout=100.0), 1.0, "ahead")
    feed.hold(poll("a", "b", "c", start=5.0, timeout=100.0), 1.0)
    waits_again: list[str | None] = []
    waiting = feed.polls._waiting
    wait_again = waiting.wait_again

    def recording(subscription: Subscription[str]) -> None:
        waits_again.append(subscription.holder)
        wait_again(subscription)

    monkeypatch.setattr(waiting, "wait_again", recording)
    for _ in range(2):
        feed.apply(publish("a", "b", "c"), 2.0)
    assert feed.deliver() == []
    assert waits_again == ["ahead", "client"]
    feed.apply(publish("b", "c"), 2.0)
    assert feed.deliver(1) == []
    feed.apply(publish("b", "c"), 5.0)
    assert {holder: ids(answer) for holder, answer in feed.deliver()} == {"ahead": [4], "client": [4]}
    assert (feed.polls.count, feed.polls.has_deliveries) == (0, False)


def test_equal_polls_share_one_answer() -> None:
    """Those who ask the same and wait for the same next message get the very same object, at any cursor before."""
    feed = Feed()
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


def test_a_cursor_ahead_of_the_node_waits_and_never_gets_the_past() -> None:
    """A node that is behind holds the poll until what is new to the client has come."""
    feed = Feed()
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
    assert feed.ask(poll("a", cursor="e1-9"), 2.0) == empty(9)
    feed.hold(poll("a", cursor="e1-9", timeout=1.0), 2.0)
    assert feed.expire(3.0) == [("client", empty(9))]


def test_a_closing_is_told_at_once() -> None:
    """Those who wait are answered, and those who ask later with a cursor from before."""
    feed = Feed()
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


def test_a_cursor_of_another_epoch_is_told_at_once() -> None:
    """Even on a channel that does not exist: something may have been lost there."""
    feed = Feed()
    answer = feed.ask(poll("a", cursor="e0-7", timeout=10.0), 1.0)
    assert (gaps(answer), answer.cursor) == ([("a", "lost")], "e1-0")
    feed.hold(poll("a", cursor=answer.cursor, timeout=10.0), 1.0)


def test_who_is_gone_gets_nothing() -> None:
    """An abandoned subscription is forgotten, woken or not; abandoning it again changes nothing."""
    feed = Feed()
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


def test_a_channel_counts_its_subscribers() -> None:
    """Those woken and not answered yet count, those answered, timed out or gone do not."""
    feed = Feed()
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


def test_an_awaited_channel_is_no_channel() -> None:
    """Who waits for a name does not open it, and nothing is left when nobody waits any more."""
    feed = Feed(channels_limit=1)
    subscriptions = [feed.hold(poll(f"never{n}", timeout=10.0), 1.0) for n in range(3)]
    assert (len(feed.state.channels), feed.state.snapshot().channels) == (0, ())
    for subscription in subscriptions:
        feed.polls.abandon(subscription)
    feed.check()
    feed.apply(publish("a"), 1.0)
    assert len(feed.state.channels) == 1


def test_an_answer_is_json() -> None:
    """Nothing new, as it goes over the wire."""
    assert msgspec.json.encode(empty(97)) == b'{"cursor":"e1-97","messages":[],"more":false,"gaps":[],"closed":[]}'


def test_held_polls_stay_when_an_equal_state_takes_over() -> None:
    """A node that loads the checkpoint of the same order ends no poll; the next message reaches whoever waits."""
    feed = Feed()
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", "never", cursor="e1-1", timeout=10.0), 1.0)
    feed.use(ReplicatedState.restore(feed.limits, feed.state.snapshot()))
    assert feed.deliver() == []
    assert (feed.polls.count, feed.polls.awaited_count, feed.polls.next_deadline) == (1, 1, 11.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer), answer.cursor) == ([2], [], "e1-2")


def test_held_polls_get_what_another_state_has_for_them() -> None:
    """Messages that this node has not applied itself, and gaps where it cannot know what was dropped between."""
    feed, ahead = Feed(), Feed(retention_messages=1)
    feed.hold(poll("a", cursor="e1-0", timeout=10.0), 1.0, "one message")
    feed.hold(poll("b", cursor="e1-0", timeout=10.0), 1.0, "a gap")
    feed.hold(poll("c", cursor="e1-0", timeout=10.0), 1.0, "nothing")
    for name in ("a", "b", "b"):
        ahead.apply(publish(name), 2.0)
    feed.use(ReplicatedState.restore(ahead.limits, ahead.state.snapshot()))
    told = {holder: (ids(answer), gaps(answer)) for holder, answer in feed.deliver()}
    assert told == {"one message": ([1], []), "a gap": ([3], [("b", "evicted")])}
    assert feed.polls.count == 1
    feed.check()


def test_held_polls_are_told_that_their_epoch_is_over() -> None:
    """Every poll is answered with a gap for each of its channels and a cursor of the new epoch, once."""
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


def test_a_poll_that_was_looked_at_in_vain_is_looked_at_in_another_epoch() -> None:
    """Sequences of two epochs cannot be compared: the new one may be at a lower sequence."""
    feed = Feed()
    feed.hold(poll("a", start=5.0, timeout=100.0), 1.0)
    for _ in range(3):
        feed.apply(publish("a"), 2.0)
        assert feed.deliver() == []
    feed.use(ReplicatedState(Limits(), epoch="e2"))
    [(_, answer)] = feed.deliver()
    assert (gaps(answer), answer.cursor) == ([("a", "lost")], "e2-0")
