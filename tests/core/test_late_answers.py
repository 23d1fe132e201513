"""Polls that are woken now and answered later: whatever happens in between is neither lost nor repeated."""

from __future__ import annotations

from pushup.core.commands import Close, Expire

from .builders import Feed, batch, draft, gaps, ids, poll, publish


def test_a_woken_poll_that_times_out_still_gets_its_message(feed: Feed) -> None:
    feed.hold(poll("a", timeout=5.0), 1.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.expire(6.0)
    assert ids(answer) == [1]
    assert feed.deliver() == []


def test_deliveries_come_in_slices(feed: Feed) -> None:
    """Each call handles a limited number of polls, each once, nearest deadline first."""
    for number in range(5):
        feed.hold(poll("a", timeout=10.0 - number), 1.0, str(number))
    feed.apply(publish("a"), 2.0)
    assert feed.deliver(0) == []
    assert [holder for holder, _ in feed.deliver(2)] == ["4", "3"]
    assert feed.polls.has_deliveries
    feed.apply(publish("a"), 2.0)
    slices = feed.deliver(2)
    assert [(holder, ids(answer)) for holder, answer in slices] == [("2", [1, 2]), ("1", [1, 2])]
    assert [holder for holder, _ in feed.deliver(2)] == ["0"]
    assert (feed.deliver(2), feed.polls.has_deliveries) == ([], False)


def test_a_new_subscription_does_not_get_earlier_messages(feed: Feed) -> None:
    """A poll from now that arrives between a publication and its delivery waits for the next message."""
    feed.hold(poll("a", timeout=10.0), 1.0, "first")
    feed.apply(publish("a"), 2.0)
    feed.hold(poll("a", cursor="now", timeout=10.0), 2.0, "second")
    assert [holder for holder, _ in feed.deliver()] == ["first"]
    feed.apply(batch(draft("a"), draft("a")), 2.0)
    assert [(holder, ids(answer)) for holder, answer in feed.deliver()] == [("second", [2, 3])]


def test_a_closing_that_expires_before_delivery_reaches_the_polls_it_woke() -> None:
    """A node that applies many entries in one turn answers later; the polls get the closing all the same."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(Expire(), 7.0)
    told = feed.deliver()
    assert [answer.tells_something for _, answer in told] == [True], "the closing was forgotten before it was delivered"


def test_a_message_forgotten_with_its_channel_leaves_a_gap_for_the_polls_it_woke() -> None:
    """Too many closed channels push out the oldest one early; a poll that misses its message gets a gap."""
    feed = Feed(channels_limit=1)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    for command in (publish("a"), Close("a"), publish("b"), Close("b")):
        feed.apply(command, 1.0)
    feed.hold(poll("a", cursor="now", timeout=100.0), 1.0, "another")
    told = {holder: answer for holder, answer in feed.deliver() if answer.tells_something}
    assert "client" in told, "message 2 was lost without a gap"
    assert told["client"].gaps or told["client"].closed


def test_a_poll_answered_late_gets_the_messages_of_the_reopened_channel() -> None:
    """A poll woken by a closing that is forgotten by now gets the channel's new messages, and a gap."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(publish("a"), 8.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([3], [("a", "expired")])


def test_abandoning_a_poll_does_not_affect_the_reopened_channel() -> None:
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    subscription = feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(publish("a"), 8.0)
    feed.polls.abandon(subscription)
    feed.check()
    assert feed.state.channels.get("a").latest_sequence == 3
    assert ids(feed.ask(poll("a"))) == [3]
