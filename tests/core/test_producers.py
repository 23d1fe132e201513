"""Producers who count their messages: each number is published once, in order, or the producer is told."""

from __future__ import annotations

import pytest

from pushup.core.commands import Command, Continue, Duplicate, Outcome, Producer, Publish, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import ProducerConflict, ProducerFenced, PushUpError, UnknownChannel
from pushup.core.producers import PRODUCERS_LIMIT
from pushup.core.snapshot import Tables
from pushup.core.state_transfer import restore, rows_of_new_epoch
from tests.core.builders import EPOCH, Feed, draft, publish
from tests.core.saved_checkpoint import new_epoch


def numbered(first: int, *data: str, epoch: int = 1, name: str = "p", owner: str = "") -> Publish:
    """Messages on `a`, of which the first has this number."""
    return Publish(tuple([draft("a", data=each) for each in data]), None, owner, Producer(name, epoch, first))


def outcomes(feed: Feed, *commands: Command) -> list[Outcome]:
    return [feed.apply(command, 1.0) for command in commands]


def test_numbers_that_follow_each_other_are_published(feed: Feed) -> None:
    assert outcomes(feed, numbered(0, "1", "2"), numbered(2, "3")) == [
        Published(EPOCH, 1, 2, 1.0),
        Published(EPOCH, 3, 1, 1.0),
    ]
    assert feed.state.message_count == 3


def test_the_last_publication_has_its_outcome_again() -> None:
    """However much later: producers do not expire."""
    feed = Feed(retention_seconds=10.0)
    first = feed.apply(numbered(0, "1", "2"), 1.0)
    assert feed.apply(numbered(0, "1", "2"), 1e6) == first
    assert feed.state.message_count == 0


def test_what_came_before_it_is_a_duplicate(feed: Feed) -> None:
    outcomes(feed, numbered(0, "1", "2"), numbered(2, "3"))
    assert outcomes(feed, numbered(0, "1", "2"), numbered(1, "2")) == [Duplicate(), Duplicate()]
    assert feed.state.message_count == 3


@pytest.mark.parametrize(
    "command",
    [
        numbered(4, "5"),  # a hole
        numbered(1, "2", "3"),  # a part of it was published before
        numbered(2, "3", "4"),  # a part of it was published last
        numbered(2, "other"),
        numbered(0, "1", "2", "3"),
    ],
)
def test_other_numbers_are_refused(feed: Feed, command: Publish) -> None:
    outcomes(feed, numbered(0, "1", "2"), numbered(2, "3"))
    error = feed.apply(command, 1.0)
    assert isinstance(error, ProducerConflict)
    assert (error.more, error.field) == ({"next": 3}, "producer.sequence")
    assert feed.state.message_count == 3
    assert isinstance(feed.apply(numbered(3, "4"), 1.0), Published)


def test_a_later_epoch_goes_on_with_the_numbers_and_ends_the_earlier_one(feed: Feed) -> None:
    outcomes(feed, numbered(0, "1"), numbered(1, "2", epoch=3))
    fenced = feed.apply(numbered(2, "3"), 1.0)
    assert isinstance(fenced, ProducerFenced)
    assert fenced.more == {"epoch": 3}
    assert isinstance(feed.apply(numbered(1, "2", epoch=2), 1.0), ProducerFenced)  # even what it has published


def test_an_epoch_that_repeats_the_last_publication_ends_the_earlier_one(feed: Feed) -> None:
    first = feed.apply(numbered(0, "1"), 1.0)
    assert feed.apply(numbered(0, "1", epoch=2), 2.0) == first
    assert isinstance(feed.apply(numbered(1, "2"), 3.0), ProducerFenced)
    assert restore(feed.state.snapshot()).snapshot() == feed.state.snapshot()


def test_an_unknown_producer_may_begin_anywhere(feed: Feed) -> None:
    """It is told that the numbers before are not known; also if it asks again."""
    begun = Published(EPOCH, 1, 1, 1.0, after_loss=True)
    assert outcomes(feed, numbered(7, "1"), numbered(7, "1")) == [begun, begun]
    assert feed.apply(numbered(8, "2"), 1.0) == Published(EPOCH, 3, 1, 1.0)


def test_a_refused_publication_uses_no_numbers(feed: Feed) -> None:
    outcomes(feed, numbered(0, "1"))
    unknown = Publish((draft("17"),), None, "", Producer("p", 1, 1))
    assert isinstance(feed.apply(unknown, 1.0), UnknownChannel)
    assert isinstance(feed.apply(numbered(1, "2"), 1.0), Published)


def test_producers_of_two_keys_and_names_have_nothing_to_do_with_each_other(feed: Feed) -> None:
    outcomes(feed, numbered(0, "1", owner="x"), numbered(0, "2", owner="y"), numbered(0, "3", name="q"))
    assert feed.state.message_count == 3


def test_the_order_under_a_new_name_knows_the_numbers(feed: Feed) -> None:
    feed.apply(numbered(0, "1"), 1.0)
    feed.apply(Continue("e2"), 1.0)
    assert isinstance(feed.apply(numbered(2, "3"), 1.0), ProducerConflict)
    assert feed.apply(numbered(0, "1"), 1.0) == Published(EPOCH, 1, 1, 1.0)


def test_the_producer_that_has_published_nothing_for_longest_is_forgotten_first(feed: Feed) -> None:
    for number in range(PRODUCERS_LIMIT + 1):
        feed.apply(numbered(0, "1", name=f"p{number}"), 1.0)
    assert feed.apply(numbered(0, "1", name="p1"), 1.0) == Published(EPOCH, 2, 1, 1.0)
    assert feed.apply(numbered(1, "2", name="p0"), 1.0) == Published(EPOCH, PRODUCERS_LIMIT + 3, 1, 1.0, True)


# Orders that are lost.


def test_a_new_epoch_knows_the_last_publication_and_takes_any_later_number() -> None:
    """What the lost order had after it is lost with it, and its subscribers are told of that."""
    lost = Feed()
    first = lost.apply(numbered(0, "1", "2"), 1.0)
    feed = Feed()
    feed.use(new_epoch("e9", lost.state))
    assert feed.apply(numbered(0, "1", "2"), 2.0) == first
    assert isinstance(feed.apply(numbered(1, "2", "3"), 2.0), ProducerConflict)
    gone_on = feed.apply(numbered(7, "8"), 2.0)
    assert isinstance(gone_on, Published)
    assert gone_on.after_loss
    assert isinstance(feed.apply(numbered(9, "10"), 2.0), ProducerConflict)


@pytest.mark.parametrize("further_first", [True, False])
def test_a_new_epoch_of_two_states_goes_on_from_the_further_one(further_first: bool) -> None:
    behind, further = Feed(), Feed()
    for feed in (behind, further):
        feed.apply(numbered(0, "1"), 1.0)
    last = further.apply(numbered(1, "2"), 1.0)
    feed = Feed()
    feed.use(new_epoch("e9", *((further.state, behind.state) if further_first else (behind.state, further.state))))
    assert feed.apply(numbered(1, "2"), 2.0) == last


def test_copies_of_a_state_decide_alike(feed: Feed) -> None:
    outcomes(feed, numbered(0, "1"), numbered(5, "1", name="q"), numbered(1, "2", epoch=2))
    copy = restore(feed.state.snapshot())
    assert copy.snapshot() == feed.state.snapshot()
    assert copy.cursor == Cursor(EPOCH, 3)
    assert not isinstance(feed.apply(numbered(2, "3", epoch=2), 2.0), PushUpError)


def test_a_producer_that_publishes_while_an_epoch_begins_is_kept(feed: Feed) -> None:
    """As it was when the epoch began: what it publishes since is no part of that."""
    feed.apply(publish("a"), 1.0)
    feed.apply(numbered(0, "1", epoch=2), 1.0)
    rows = rows_of_new_epoch(feed.state)
    keys = [next(rows).key]
    feed.apply(numbered(1, "2", epoch=2), 1.0)
    tables = Tables()
    for row in rows:
        keys.append(row.key)
        tables.take([row])
    assert keys == ["channels/a", "producers/ p"]
    assert [(row.epoch, row.next) for row in tables["producers"].in_order()] == [(2, 1)]
