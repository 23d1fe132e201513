"""A replica that starts from a checkpoint, in whatever form that is kept, stays equal to one that never did."""

from __future__ import annotations

import pytest

from pushup.core import state as state_module
from pushup.core.commands import Close, Create, Expire
from pushup.core.state import EXPIRE_AT_MOST
from pushup.core.state_transfer import restore

from .builders import Feed, batch, draft
from .restored_replicas import RestoredReplicas

BATCHES = 3
SEQUENCES = 20
"""Short random sequences for each batch; decision 13 says how many more were run once."""


@pytest.mark.parametrize("at_most", [5, 12, 40, EXPIRE_AT_MOST])
@pytest.mark.parametrize("channels", [6, 30, 120])
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_restored_replica_stays_equal(
    at_most: int, channels: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With limits that cut the list of what is due anywhere, the next entries have the same outcome and effect."""
    monkeypatch.setattr(state_module, "EXPIRE_AT_MOST", at_most)
    restored = 0
    for seed in range(batch * SEQUENCES, (batch + 1) * SEQUENCES):
        replicas = RestoredReplicas(f"{at_most} {channels} {seed}", channels=channels)
        replicas.run(40)
        restored += replicas.restored
    assert restored > SEQUENCES


@pytest.mark.parametrize("seed", range(2))
def test_a_restored_replica_stays_equal_with_thousands_of_channels(seed: int) -> None:
    """Several thousand channels are due in the same second, more than one entry expires."""
    replicas = RestoredReplicas(f"thousands {seed}", channels=3 * EXPIRE_AT_MOST)
    replicas.run(80)
    assert replicas.restored


def names(feed: Feed) -> list[str]:
    return [channel.name for channel in feed.state.channels]


def test_channels_due_in_the_same_second_close_by_id(feed: Feed) -> None:
    """Not in the order in which they were given that time: a checkpoint does not keep it."""
    at_once = EXPIRE_AT_MOST // 2  # for each has a message
    feed.apply(batch(*[draft(f"c{n}") for n in range(at_once + 10)]), 1.0)
    for channel in reversed(feed.state.channels.page()):
        feed.state.channels.renew(channel, 5.0, 2.0)
    feed.apply(Expire(), 7.0)
    assert names(feed) == [f"c{n}" for n in range(at_once, at_once + 10)]
    feed.check()


def test_closings_of_one_second_are_forgotten_in_their_order() -> None:
    """By the sequence of the closing, then by name, however they were closed."""
    feed = Feed(channels_limit=3, retention_seconds=30.0, channel_ttl_seconds=3.0)
    for name in "cba":
        feed.apply(Create(name, 9.0), 1.0)
    feed.apply(Expire(), 10.0)  # closes a, b and c with one entry
    feed.apply(Create("d"), 10.0)
    feed.apply(Close("d"), 10.0)
    snapshot = feed.state.snapshot()
    assert [(c.name, c.closed_sequence) for c in snapshot.channels] == [("b", 4), ("c", 4), ("d", 6)]
    assert snapshot.head.floor == 4


def test_messages_of_closed_channels_count() -> None:
    """One entry closes channels until their messages reach the limit; the next ones close the others."""
    feed = Feed(channel_ttl_seconds=5.0)
    for name in "abc":
        feed.apply(batch(*[draft(name)] * (EXPIRE_AT_MOST // 2)), 1.0)
    feed.apply(Expire(), 6.0)
    assert names(feed) == ["c"]
    feed.apply(Expire(), 6.0)
    assert names(feed) == []
    feed.check()


def test_messages_count_once_for_each_of_their_channels() -> None:
    """A message on a hundred channels is as much work as a hundred messages."""
    feed = Feed(retention_seconds=5.0)
    many = [f"c{n}" for n in range(EXPIRE_AT_MOST // 2)]
    feed.apply(batch(draft(*many), draft(*many), draft(*many)), 1.0)
    feed.apply(Expire(), 6.0)
    assert feed.state.message_count == 1


def test_what_an_entry_has_closed_is_not_forgotten_by_it() -> None:
    """With a retention too short to change the time, a new channel would take the entry's message for dropped."""
    feed = Feed(retention_seconds=1e-9, channel_ttl_seconds=1.0)
    feed.apply(batch(draft("a")), 1000.0)
    feed.apply(batch(draft("a")), 1001.0)
    feed.check()
    assert restore(feed.state.snapshot()).message_count == feed.state.message_count == 1
