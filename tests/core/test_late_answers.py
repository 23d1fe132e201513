"""Those who are woken and answered later: what happens in between is neither lost nor told twice."""

from __future__ import annotations

from pushup.core.commands import Close, Expire

from .builders import Feed, batch, draft, gaps, ids, poll, publish


def test_a_deadline_before_the_delivery_brings_the_message_all_the_same() -> None:
    """Who was woken and not looked at yet loses nothing when the deadline comes first."""
    feed = Feed()
    feed.hold(poll("a", timeout=5.0), 1.0)
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.expire(6.0)
    assert ids(answer) == [1]
    assert feed.deliver() == []


def test_deliveries_come_in_slices() -> None:
    """At most so many are looked at in one turn, each once, and the nearest deadline first."""
    feed = Feed()
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


def test_a_new_subscription_does_not_get_what_others_are_woken_for() -> None:
    """Between a publication and its delivery a poll from now on is held for the next message."""
    feed = Feed()
    feed.hold(poll("a", timeout=10.0), 1.0, "first")
    feed.apply(publish("a"), 2.0)
    feed.hold(poll("a", cursor="now", timeout=10.0), 2.0, "second")
    assert [holder for holder, _ in feed.deliver()] == ["first"]
    feed.apply(batch(draft("a"), draft("a")), 2.0)
    assert [(holder, ids(answer)) for holder, answer in feed.deliver()] == [("second", [2, 3])]


def test_a_closing_that_is_forgotten_for_age_is_told_to_those_woken_by_it() -> None:
    """A node that applies many entries in one turn answers later; who waited is told, and is not lost."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(Expire(), 7.0)
    told = feed.deliver()
    assert [answer.tells_something for _, answer in told] == [True], "the closing is forgotten and nobody is told"


def test_a_message_that_is_forgotten_with_its_channel_leaves_a_gap_for_those_woken_by_it() -> None:
    """With too many closed channels the first is forgotten early; what was on it is missed, and that is told."""
    feed = Feed(channels_limit=1)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    for command in (publish("a"), Close("a"), publish("b"), Close("b")):
        feed.apply(command, 1.0)
    feed.hold(poll("a", cursor="now", timeout=100.0), 1.0, "another")
    told = {holder: answer for holder, answer in feed.deliver() if answer.tells_something}
    assert "client" in told, "message 2 was lost in silence"
    assert told["client"].gaps or told["client"].closed


def test_who_is_answered_late_still_waits_on_the_channel_that_lives_again() -> None:
    """Whoever was woken by a closing that is forgotten since gets what is new on the channel, and a gap."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(publish("a"), 8.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([3], [("a", "expired")])


def test_who_is_answered_late_does_not_tear_down_a_channel_that_lives_again() -> None:
    """A subscription to a channel's former life, forgotten meanwhile, leaves without touching the new one."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    subscription = feed.hold(poll("a", cursor="e1-1", timeout=100.0), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(publish("a"), 8.0)
    feed.polls.abandon(subscription)
    feed.check()
    assert feed.state.channels.get("a").newest_sequence == 3
    assert ids(feed.ask(poll("a"))) == [3]
