"""Held polls that are moved to another state in slices."""

from __future__ import annotations

import pytest

from pushup.core.commands import Close, Continue, Expire
from pushup.core.snapshot import Tables
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore, rows_of_new_epoch, take_apart
from pushup.core.subscription import Subscription

from .builders import Feed, gaps, ids, poll, publish

POLLS = 200


def feed_with_polls() -> tuple[Feed, list[Subscription[str]]]:
    """200 polls on 201 names."""
    feed = Feed()
    for n in range(POLLS):
        feed.apply(publish(f"c{n}"), 1.0)
    polls = [feed.hold(poll(f"c{n}", "all", cursor=f"e1-{POLLS}", timeout=30.0), 1.0, f"p{n}") for n in range(POLLS)]
    return feed, polls


def moved(polls: list[Subscription[str]]) -> tuple[int, int]:
    """How many of these polls, and of their names, refer to the state after the first."""
    names = {waiters for each in polls for waiters in each.waiters}
    return sum(each.generation == 1 for each in polls), sum(waiters.generation == 1 for waiters in names)


def test_a_slice_moves_no_more_names_and_looks_at_no_more_polls_than_it_may() -> None:
    """The names first, then the polls on them; in the end all have been moved, and wait as before."""
    feed, polls = feed_with_polls()
    polls += [feed.hold(poll(f"c{n}", "all", cursor=f"e1-{POLLS}", timeout=30.0), 1.0) for n in range(POLLS)]
    feed.use(restore(feed.state.snapshot()))
    slices = 0
    while feed.polls.has_deliveries:
        polls_before, names_before = moved(polls)
        assert feed.deliver(10) == []
        polls_now, names_now = moved(polls)
        assert polls_now <= polls_before + 10
        assert names_now <= names_before + 10 + 1  # `all` is moved with the first poll
        slices += 1
    assert moved(polls) == (2 * POLLS, POLLS + 1)
    assert slices >= 2 * POLLS / 10
    assert feed.polls.count == 2 * POLLS
    feed.apply(publish("all"), 2.0)
    assert len(feed.deliver(1000)) == 2 * POLLS


def test_what_happens_between_two_slices_reaches_polls_that_were_not_moved_yet() -> None:
    """A message, a closing, and a deadline; each poll is answered once."""
    feed, _ = feed_with_polls()
    feed.use(restore(feed.state.snapshot()))
    feed.deliver(1)
    for n in range(0, POLLS, 2):
        feed.apply(publish(f"c{n}"), 2.0)
    for n in range(1, POLLS, 4):
        feed.apply(Close(f"c{n}"), 2.0)
    answers = []
    while feed.polls.has_deliveries:
        answers += feed.deliver(7)
    holders = [holder for holder, _ in answers]
    assert sorted(holders) == sorted({f"p{n}" for n in (*range(0, POLLS, 2), *range(1, POLLS, 4))})
    assert all(len(answer.messages) == 1 or answer.closed for _, answer in answers)
    feed.use(restore(feed.state.snapshot()))
    assert [ids(answer) for _, answer in feed.expire(31.0, 1000)] == [[]] * (POLLS - len(answers))


def test_slices_of_one_come_to_an_end(feed: Feed) -> None:
    """However little time a turn has left, each moves something."""
    for n in range(5):
        feed.hold(poll(f"c{n}", timeout=30.0), 1.0)
    feed.use(restore(feed.state.snapshot()))
    slices = 0
    while feed.polls.has_deliveries and slices < 20:
        assert feed.deliver(1) == []
        slices += 1
    assert slices == 5 + 1


def test_a_slice_of_nothing_moves_nothing() -> None:
    """When a turn has no time left."""
    feed, polls = feed_with_polls()
    feed.use(restore(feed.state.snapshot()))
    assert feed.deliver(0) == []
    assert moved(polls) == (0, 0)
    assert feed.polls.has_deliveries


def test_what_is_forgotten_between_two_slices_is_no_gap_for_polls_that_have_seen_it() -> None:
    """Neither for a poll that arrives while others are moved, nor for one on a channel that is forgotten then."""
    feed = Feed(retention_seconds=5.0)
    for name in ("other", "closed"):
        feed.apply(publish(name), 1.0)
    feed.apply(Close("closed"), 1.0)
    feed.hold(poll("awaited", cursor="e1-0", timeout=99.0), 1.0, "before")
    feed.hold(poll("closed", cursor="e1-3", timeout=99.0), 1.0, "on the closed one")
    feed.use(restore(feed.state.snapshot()))
    feed.hold(poll("awaited", cursor="e1-3", timeout=99.0), 1.0, "meanwhile")
    feed.check()
    feed.apply(Close("other"), 1.0)
    feed.apply(Expire(), 6.0)
    assert feed.state.channels.floor == 4
    assert feed.deliver() == []
    for name in ("awaited", "closed"):
        feed.apply(publish(name), 7.0)
    told = {holder: (ids(answer), gaps(answer)) for holder, answer in feed.deliver()}
    assert told == {"before": ([6], []), "meanwhile": ([6], []), "on the closed one": ([7], [])}


@pytest.mark.parametrize("epoch", ["e0", "e2"])
def test_polls_of_an_epoch_that_is_over_are_lost_in_whatever_slice_they_are_moved(epoch: str) -> None:
    """Whichever name comes first in the alphabet."""
    feed, _ = feed_with_polls()
    feed.use(ReplicatedState(feed.limits, epoch=epoch))
    answers = feed.expire(31.0, 5)
    assert len(answers) == 5
    for n in range(POLLS * 2):
        feed.apply(publish("another"), 2.0 + n)
    while feed.polls.has_deliveries:
        answers += feed.deliver(9)
    assert len(answers) == POLLS
    assert all([reason for _, reason in gaps(answer)] == ["lost", "lost"] for _, answer in answers)


def test_polls_that_arrive_while_others_are_moved_are_of_the_new_epoch() -> None:
    """They end with their deadline, and without a gap."""
    feed, _ = feed_with_polls()
    feed.use(ReplicatedState(feed.limits, epoch="e2", sequence=7))
    feed.hold(poll("new", cursor="e2-7", timeout=10.0), 1.0, "new")
    [(holder, answer)] = feed.expire(11.0)
    assert (holder, gaps(answer), answer.cursor) == ("new", [], "e2-7")


def test_what_is_good_of_an_epoch_stays_so_when_the_order_is_renamed_again() -> None:
    """Polls moved only after that have seen what the order lost when it was renamed before."""
    (feed, _), order = feed_with_polls(), Feed()
    order.apply(publish("c0"), 1.0)
    order.apply(Continue("e2"), 1.0)
    for _ in range(2 * POLLS):
        order.apply(publish("c0"), 1.0)
    feed.use(restore(order.state.snapshot()))
    feed.apply(Continue("e3"), 2.0)
    answers = []
    while feed.polls.has_deliveries:
        answers += feed.deliver(50)
    assert len(answers) == POLLS
    assert {reason for _, answer in answers for _, reason in gaps(answer)} == {"lost"}


def test_a_poll_ahead_of_the_new_state_is_lost_if_the_order_continues_without_what_it_has_seen() -> None:
    """Also if it is moved only after that."""
    behind = Feed()
    behind.apply(publish("c0"), 1.0)
    feed, _ = feed_with_polls()
    feed.use(behind.state)
    feed.deliver(50)
    feed.apply(Continue("e2"), 2.0)
    answers = []
    while feed.polls.has_deliveries:
        answers += feed.deliver(50)
    assert len(answers) == POLLS
    assert {reason for _, answer in answers for _, reason in gaps(answer)} == {"lost"}


def test_another_state_while_polls_are_being_moved() -> None:
    feed, _ = feed_with_polls()
    feed.use(ReplicatedState(feed.limits, epoch="e2"))
    feed.deliver(3)
    feed.use(ReplicatedState(feed.limits, epoch="e2", sequence=1000))
    answers = []
    while feed.polls.has_deliveries:
        answers += feed.deliver(50)
    assert len(answers) >= POLLS - 3
    assert feed.polls.count == 0 or feed.deliver() == []


def test_a_new_epoch_begins_with_the_channels_that_were_open_and_still_are(feed: Feed) -> None:
    """Neither with one that was opened since, nor with one that was closed, whether or not it was opened again."""
    for name in ("a", "b", "c", "closed"):
        feed.apply(publish(name), 1.0)
    rows, tables = rows_of_new_epoch(feed.state), Tables()
    first = next(rows)
    tables.add(first.key, first.body)
    (a,) = tables["channels"]
    assert (a.name, a.dropped_sequence) == ("a", 0)
    for command in (Close("b"), publish("b"), publish("d"), Close("closed")):
        feed.apply(command, 2.0)
    assert [row.key for row in rows] == ["channels/c"]


def test_a_state_is_taken_apart_little_by_little(feed: Feed) -> None:
    """Each step frees one thing; then nothing is left."""
    for n in range(50):
        feed.apply(publish(f"c{n}", key=f"k{n}"), 1.0)
    for n in range(10):
        feed.apply(Close(f"c{n}"), 1.0)
    steps = sum(1 for _ in take_apart(feed.state))
    assert steps == 50 + 40 + 50 + 40 + 50  # by name, by id, as due; messages; keys
    assert (feed.state.message_count, len(feed.state.channels)) == (0, 0)
