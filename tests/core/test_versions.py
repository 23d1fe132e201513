"""Entries that broadcasts append themselves: a new epoch name, another version, other limits."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import (
    Close,
    Configure,
    Continue,
    Create,
    Done,
    Entry,
    Expire,
    Published,
    Upgrade,
)
from pushup.core.cursor import REMEMBERED, Cursor, PastEpoch, PastEpochs
from pushup.core.errors import BadRequest, OutOfOrder, Overloaded, VersionTooNew
from pushup.core.limits import Limits
from pushup.core.machine_rules import LATEST_VERSION
from pushup.core.snapshot import Head, Snapshot, Tables, encode
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from tests.next_version import NEXT_VERSION, next_version

from .builders import EPOCH, Feed, batch, draft, gaps, ids, poll, publish

# Continue.


def test_an_order_goes_on_under_a_new_name(feed: Feed) -> None:
    """Sequences, messages, channels and keys stay; the entry itself takes one place."""
    first = feed.apply(publish("a", key="k"), 1.0)
    assert feed.apply(Continue("e2"), 2.0) == Done()
    assert feed.state.cursor == Cursor("e2", 2)
    assert feed.apply(publish("a", key="k"), 3.0) == first == Published(EPOCH, 1, 1, 1.0)
    assert feed.apply(publish("a"), 4.0) == Published("e2", 4, 1, 4.0)
    with pytest.raises(OutOfOrder):
        feed.state.apply(Entry(EPOCH, 5, 5.0, Expire()))
    assert len(feed.state.channels) == 1
    feed.check()


def test_messages_keep_their_ids() -> None:
    """A publisher was told `e1-1`; subscribers get that id in any later epoch, also from a restored state."""
    feed = three_epochs()
    for _ in range(2):
        answer = feed.ask(poll("a"))
        assert [message.id for message in answer.messages] == ["e1-1", "e1-2", "e2-4", "e3-6"]
        assert answer.cursor == "e3-6"
        assert feed.ask(poll("a", limit=1)).cursor == "e3-1"
        feed.use(restore(feed.state.snapshot()))


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ("e1-0", [1, 2, 4, 6]), ("e1-1", [2, 4, 6]), ("e1-2", [4, 6]), ("e2-2", [4, 6]), ("e2-3", [4, 6]),
        ("e2-4", [6]), ("e3-1", [2, 4, 6]), ("e3-6", []),
    ],
)  # fmt: skip
def test_cursors_of_past_epochs_are_valid_up_to_where_the_next_one_began(cursor: str, expected: list[int]) -> None:
    """They are the same place in the order, without a gap."""
    feed = three_epochs()
    answer = feed.ask(poll("a", cursor=cursor))
    assert (ids(answer), gaps(answer), answer.cursor) == (expected, [], "e3-6")


@pytest.mark.parametrize("cursor", ["e1-3", "e1-4", "e1-100", "e2-5", "e2-6", "e4-1", "e0-0"])
def test_a_cursor_beyond_a_past_epoch_is_lost(cursor: str) -> None:
    """It has seen entries that the order does not contain, however far the order has come since."""
    feed = three_epochs()
    for _ in range(3):
        answer = feed.ask(poll("a", "b", cursor=cursor))
        assert gaps(answer) == [("a", "lost"), ("b", "lost")]
        feed.apply(Create(None), 2.0)


@pytest.mark.parametrize(
    ("cursor", "expected"), [("e1-3", [4, 6]), ("e1-100", [4, 6]), ("e2-5", [6]), ("e4-1", [1, 2, 4, 6])]
)
def test_a_lost_cursor_gets_no_message_twice(cursor: str, expected: list[int]) -> None:
    """Its client has seen what the order had under that name; of an unknown name nothing is known."""
    answer = three_epochs().ask(poll("a", cursor=cursor))
    assert (ids(answer), gaps(answer)) == (expected, [("a", "lost")])


def three_epochs() -> Feed:
    feed = Feed()
    feed.apply(batch(draft("a"), draft("a")), 1.0)
    feed.apply(Continue("e2"), 1.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Continue("e3"), 1.0)
    feed.apply(publish("a"), 1.0)
    return feed


def test_held_polls_stay_when_the_order_goes_on(feed: Feed) -> None:
    """Their clients know everything up to there, and are answered with the next message."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-1", timeout=10.0), 1.0)
    feed.apply(Continue("e2"), 2.0)
    assert feed.deliver() == []
    feed.apply(publish("a"), 2.0)
    [(_, answer)] = feed.deliver()
    assert ([m.id for m in answer.messages], gaps(answer), answer.cursor) == (["e2-3"], [], "e2-3")


def test_a_poll_held_ahead_is_lost_when_the_order_goes_on_before_it(feed: Feed) -> None:
    """A cursor that is exactly where the new name begins is beyond it, too."""
    feed.apply(publish("a"), 1.0)
    feed.hold(poll("a", cursor="e1-2", timeout=10.0), 1.0, "ahead")
    feed.hold(poll("a", cursor="e1-1", timeout=10.0), 1.0, "not ahead")
    feed.apply(Continue("e2"), 2.0)
    [(holder, answer)] = feed.deliver()
    assert (holder, gaps(answer), ids(answer), answer.cursor) == ("ahead", [("a", "lost")], [1], "e2-2")
    assert feed.polls.count == 1
    assert not feed.polls.has_ahead


def test_a_poll_held_ahead_under_the_new_name_stays_held(feed: Feed) -> None:
    """What ends the cursors of the old name is the one entry that changes the name, not those after it."""
    feed.apply(Continue("e2"), 1.0)
    feed.hold(poll("a", cursor="e2-9", timeout=10.0), 1.0)
    feed.apply(publish("b"), 1.0)
    assert feed.deliver() == []
    assert feed.polls.count == 1


def test_a_message_delivered_after_a_change_of_name_keeps_its_id(feed: Feed) -> None:
    """It was published under the old name, and its publisher was told that id."""
    feed.hold(poll("a", timeout=10.0), 1.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Continue("e2"), 1.0)
    [(_, answer)] = feed.deliver()
    assert ([message.id for message in answer.messages], answer.cursor) == (["e1-1"], "e2-2")


def test_a_sequence_belongs_to_one_epoch() -> None:
    """Each name has those up to where the next one began; the present one has the others."""
    past = PastEpochs((PastEpoch("e1", 2), PastEpoch("e2", 4)))
    assert [past.at(sequence, "e3") for sequence in (1, 2, 3, 4, 5, 9)] == ["e1", "e1", "e2", "e2", "e3", "e3"]
    assert PastEpochs().at(1, "e1") == "e1"


def test_a_name_is_used_once() -> None:
    """A node that appends a name that the order has or had changes nothing."""
    feed = three_epochs()
    before = feed.state.snapshot()
    for name in ("e1", "e3"):
        error = feed.apply(Continue(name), 1.0)
        assert isinstance(error, BadRequest)
        assert error.field == "epoch"
    assert feed.state.snapshot() == replace(before, head=replace(before.head, sequence=before.head.sequence + 2))


@pytest.mark.parametrize(("version", "lost"), [(1, "e1-1"), (2, "n0-2")])
def test_a_limited_number_of_names_is_remembered(feed: Feed, version: int, lost: str) -> None:
    """The first and the last ones; in version 1 only these. Cursors of one that is forgotten are lost."""
    feed.state.rules.version = version
    feed.apply(publish("a"), 1.0)
    for number in range(REMEMBERED + 1):
        feed.apply(Continue(f"n{number}"), 1.0)
    assert len(feed.state.head.past_epochs) == REMEMBERED
    for cursor in ("e1-1", "n0-2", "n1-3", "n63-65"):
        assert gaps(feed.ask(poll("a", cursor=cursor))) == [("a", "lost")] * (cursor == lost)
    assert feed.ask(poll("a")).messages[0].id == ("n0-1" if version == 1 else "e1-1")


def test_another_state_may_be_a_continuation() -> None:
    """Held polls know whether the state that takes over goes on with their epoch, and up to where."""
    behind, feed = Feed(), Feed()
    for each in (behind, feed):
        each.apply(batch(draft("a"), draft("b")), 1.0)
    feed.apply(Continue("e2"), 1.0)
    behind.apply(publish("a"), 1.0)  # an entry that was lost
    behind.hold(poll("b", cursor="e1-3", timeout=9.0), 1.0, "knows what is not lost")
    behind.hold(poll("a", cursor="e1-3", timeout=9.0), 1.0, "knows what was lost")
    behind.hold(poll("b", cursor="e1-7", timeout=9.0), 1.0, "ahead")
    behind.use(restore(feed.state.snapshot()))
    assert {holder: gaps(answer) for holder, answer in behind.deliver()} == {
        "knows what was lost": [("a", "lost")],
        "ahead": [("b", "lost")],
    }
    assert behind.polls.count == 1


# Upgrade.


def test_an_entry_switches_the_version() -> None:
    """For all entries after it; a version that is not higher changes nothing."""
    state = ReplicatedState(Limits(), epoch=EPOCH)
    assert state.version == LATEST_VERSION
    with next_version():
        assert state.apply(Entry(EPOCH, 1, 1.0, Upgrade(NEXT_VERSION))) == Done()
        assert state.version == state.snapshot().head.version == state.changes().head.version == NEXT_VERSION
        assert state.apply(Entry(EPOCH, 2, 1.0, Upgrade(LATEST_VERSION))) == Done()
    assert state.version == NEXT_VERSION


@pytest.mark.interpreted
def test_replicas_that_change_the_version_at_different_entries_differ() -> None:
    """So the next version of the tests shows a mistake in the mechanism."""
    before, after = (ReplicatedState(Limits(), epoch=EPOCH) for _ in range(2))
    with next_version():
        before.apply(Entry(EPOCH, 1, 1.0, Upgrade(NEXT_VERSION)))
        before.apply(Entry(EPOCH, 2, 1.0, publish("a")))
        after.apply(Entry(EPOCH, 1, 1.0, publish("a")))
        after.apply(Entry(EPOCH, 2, 1.0, Upgrade(NEXT_VERSION)))
    lifetimes = [state.channels.get("a").expires - 1.0 for state in (before, after)]
    assert lifetimes == [2 * Limits().channel_ttl_seconds, Limits().channel_ttl_seconds]


def test_an_order_of_a_later_version_is_not_followed() -> None:
    """Neither the entry that switches to it, nor any entry after that; nothing changes."""
    later = LATEST_VERSION + 1
    state = ReplicatedState(Limits(), epoch=EPOCH)
    before = state.snapshot()
    ahead = restore(replace(before, head=replace(before.head, version=later)))
    for follower, command in ((state, Upgrade(later)), (ahead, Expire()), (ahead, Upgrade(1))):
        with pytest.raises(VersionTooNew, match=rf"has version {later} .* knows {LATEST_VERSION}") as raised:
            follower.apply(Entry(EPOCH, 1, 1.0, command))
        assert (raised.value.needed, raised.value.version) == (later, LATEST_VERSION)
        assert replace(follower.head, version=LATEST_VERSION) == before.head
        assert follower.snapshot().tables == before.tables


# Configure.


def test_the_limits_become_others() -> None:
    """They apply from the next entry on, and new channels have the new time to live."""
    feed = Feed(channel_ttl_seconds=60.0)
    feed.apply(Create("a"), 1.0)
    limits = Limits(channel_ttl_seconds=5.0, channels_limit=3, strict_channels=True)
    assert feed.apply(Configure(limits), 1.0) == Done()
    assert feed.state.limits == limits
    feed.apply(Create("b"), 1.0)
    assert [channel.ttl for channel in feed.state.channels] == [60.0, 5.0]
    assert not isinstance(feed.apply(publish("never created"), 1.0), Published)
    feed.check()


def test_open_channels_stay_open_beyond_a_smaller_limit(feed: Feed) -> None:
    """They are published to as before; another one is refused."""
    feed.apply(publish("a", "b", "c"), 1.0)
    feed.apply(Configure(Limits(channels_limit=1)), 1.0)
    assert isinstance(feed.apply(publish("a", "b"), 1.0), Published)
    assert isinstance(feed.apply(publish("d"), 1.0), Overloaded)
    assert len(feed.state.channels) == 3


def test_what_exceeds_smaller_limits_goes_a_little_at_a_time(feed: Feed) -> None:
    """Two messages, keys and closings for each one that comes, until the limit is reached."""
    for number in range(8):
        feed.apply(publish("a", key=f"k{number}"), 1.0)
        feed.apply(Create(f"c{number}"), 1.0)
        feed.apply(Close(f"c{number}"), 1.0)
    feed.apply(Configure(Limits(retention_messages=2, keys_limit=2, channels_limit=2)), 1.0)
    counts = []
    for number in range(8, 15):
        feed.apply(publish("a", key=f"k{number}"), 1.0)
        feed.apply(Create(f"c{number}"), 1.0)
        feed.apply(Close(f"c{number}"), 1.0)
        feed.check()
        snapshot = feed.state.snapshot()
        counts.append((len(snapshot.messages), len(snapshot.tables["keys"]), len(snapshot.channels) - 1))
    assert counts == [(n, n, n) for n in (7, 6, 5, 4, 3, 2, 2)]


def test_bytes_that_exceed_a_smaller_limit_go_with_what_is_published(feed: Feed) -> None:
    """Twice as much as each publication adds."""
    feed.apply(batch(*[draft("a")] * 10), 1.0)
    feed.apply(Configure(Limits(retention_bytes=3 * MESSAGE_OVERHEAD_BYTES + 3)), 1.0)
    counts = []
    for _ in range(9):
        feed.apply(publish("b"), 1.0)
        counts.append(feed.state.message_count)
    assert counts == [9, 8, 7, 6, 5, 4, 3, 3, 3]
    feed.check()


def test_a_channel_closed_and_reopened_by_one_entry_keeps_its_message() -> None:
    """With a limit that has become smaller, a closing of this entry is not forgotten with it: a new channel would take
    the message of the same sequence for dropped."""
    feed = Feed(channel_ttl_seconds=2.0)
    feed.apply(batch(*[draft(name) for name in "abcdef"]), 1.0)
    feed.apply(Configure(Limits(channels_limit=1, channel_ttl_seconds=2.0)), 1.0)
    feed.apply(publish("new"), 3.0)
    feed.check()
    again = restore(feed.state.snapshot())
    assert again.message_count == feed.state.message_count == 1


# Checkpoints.


def test_a_head_contains_the_version_and_the_past_epochs() -> None:
    feed = three_epochs()
    feed.state.note_changes(0)
    head = msgspec.json.decode(encode(feed.state.changes().head), type=Head)
    assert (head.version, head.past_epochs) == (LATEST_VERSION, (PastEpoch("e1", 2), PastEpoch("e2", 4)))
    assert restore(Snapshot(head, Tables())).past_epochs.all == head.past_epochs
