"""Changes since an earlier entry: applied to the snapshot of that entry they give the current state."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from pushup.core.cache import Cache
from pushup.core.change_log import ChangeLog
from pushup.core.channel import Channel
from pushup.core.channels import Channels, Touched
from pushup.core.commands import Close, Create, Expire
from pushup.core.keys import Keys, Remembered
from pushup.core.limits import Limits
from pushup.core.message import MESSAGE_OVERHEAD_BYTES, Message
from pushup.core.restoration import restore
from pushup.core.rules import Rules
from pushup.core.snapshot import Changes, MessageSnapshot, Snapshot, empty_snapshot, new_epoch
from pushup.core.state import ReplicatedState

from .builders import EPOCH, Feed, batch, draft, poll, publish
from .random_entries import LIMITS, by_name, random_entries, sorted_snapshot


def apply_changes(old: Snapshot, changes: Changes) -> Snapshot:
    """The snapshot after the changes, as `Changes` specifies it; channels sorted by name."""
    channels = {c.name: c for c in (*old.channels, *changes.channels)}
    for name in changes.forgotten:
        channels.pop(name, None)

    def kept(name: str, sequence: int) -> bool:
        channel = channels.get(name)
        return channel is not None and channel.id > 0 and channel.dropped_sequence < sequence

    return Snapshot(
        epoch=changes.epoch,
        sequence=changes.sequence,
        time=changes.time,
        last_id=changes.last_id,
        floor=changes.floor,
        version=changes.version,
        past_epochs=changes.past_epochs,
        limits=changes.limits,
        channels=by_name(tuple(channels.values())),
        messages=tuple(
            m
            for m in (*old.messages, *changes.messages)
            if m.sequence >= changes.first_message and any(kept(name, m.sequence) for name in m.channels)
        ),
        keys=tuple(k for k in (*old.keys, *changes.keys) if k[1].sequence >= changes.first_key),
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", LIMITS)
def test_changes_turn_an_earlier_snapshot_into_the_current_one(limits: str, seed: int) -> None:
    """Changes between any two moments are complete, and a state restored from the result continues as the original."""
    random = Random(f"{limits} {seed}")
    live = ReplicatedState(LIMITS[limits], epoch=EPOCH)
    live.note_changes()
    state = sorted_snapshot(live)
    seen = {"forgotten": 0, "evicted": 0, "expired": 0, "closed": 0, "keys went": 0}
    for entry in random_entries(random, 600):
        live.apply(entry)
        if random.random() > random.choice((0.05, 0.5)):
            continue
        changes = live.changes()
        assert changes == live.changes()
        assert not {m.sequence for m in state.messages} & {m.sequence for m in changes.messages}
        assert not {c.name for c in changes.channels} & set(changes.forgotten)
        before, state = state, apply_changes(state, msgspec.json.decode(msgspec.json.encode(changes), type=Changes))
        assert state == sorted_snapshot(live)
        seen["forgotten"] += len(changes.forgotten)
        seen["keys went"] += len(before.keys) + len(changes.keys) - len(state.keys)
        for channel in state.channels:
            seen[channel.reason] += channel.dropped_sequence > 0
        if random.random() < 0.8:
            live.note_changes()
        else:
            state = before  # as if they were not applied; the next changes must cover both periods
        if random.random() < 0.1:
            live = restore(live.snapshot())
            live.check()
            live.note_changes()
            state = sorted_snapshot(live)
    assert seen["closed"]
    assert limits == "bytes" or seen["forgotten"]
    assert limits in ("age", "strict") or seen["evicted"]
    assert limits != "age" or seen["expired"]
    assert seen["keys went"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limits", LIMITS)
def test_a_state_is_restored_without_messages_dropped_since(limits: str, seed: int) -> None:
    """Messages that only the older snapshot still has are left out, and so is their size."""
    random = Random(f"{limits} {seed}")
    live = ReplicatedState(LIMITS[limits], epoch=EPOCH)
    everything: list[MessageSnapshot] = []
    for entry in random_entries(random, 200):
        live.note_changes()
        live.apply(entry)
        everything += live.changes().messages
        snapshot = live.snapshot()
        laden = replace(snapshot, messages=tuple(everything))
        again = restore(laden)
        again.check()
        assert again.snapshot() == snapshot
        assert (again.message_count, again.message_bytes) == (live.message_count, live.message_bytes)


def test_a_restored_state_lists_its_channels_by_id() -> None:
    """The order is that of the original state, so that no channel is missing from the pages."""
    feed = Feed()
    for number in range(6):
        feed.apply(Create(f"c{number}", 100.0 - number), 1.0)
    again = restore(feed.state.snapshot())
    assert [c.id for c in again.channels.page()] == [c.id for c in feed.state.channels.page()]
    assert [c.name for c in again.channels.page(again.channels.get("c2").id, 2)] == ["c3", "c4"]


def test_changes_contain_only_what_changed() -> None:
    """No older channel, message or key is included; compared literally."""
    feed = Feed(channel_ttl_seconds=60.0, retention_seconds=30.0)
    feed.apply(publish("old", key="k1"), 10.0)
    feed.apply(publish("closing"), 10.0)
    feed.state.note_changes()
    feed.apply(batch(draft("new"), draft("new"), key="k2"), 10.5)
    feed.apply(Close("closing"), 10.5)
    changes = feed.state.changes()
    assert [(c.name, c.newest_sequence, c.closed_sequence) for c in changes.channels] == [
        ("new", 4, 0),
        ("closing", 2, 5),
    ]
    assert changes.forgotten == ()
    assert [(m.sequence, m.channels, bytes(m.data)) for m in changes.messages] == [
        (3, ("new",), b"1"),
        (4, ("new",), b"1"),
    ]
    fingerprint = batch(draft("new"), draft("new")).fingerprint
    assert changes.keys == (("k2", Remembered(EPOCH, 3, 2, 10.5, fingerprint)),)
    assert (changes.first_message, changes.first_key) == (1, 1)
    assert (changes.epoch, changes.sequence, changes.time, changes.last_id) == (EPOCH, 5, 10.5, 10500)


def test_changes_name_forgotten_channels() -> None:
    """A channel whose closing is forgotten is to be removed, and the floor covers it."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a", key="k"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    changes = feed.state.changes()
    assert (changes.channels, changes.forgotten, changes.floor) == ((), ("a",), 2)
    assert (changes.messages, changes.keys) == ((), ())
    assert (changes.first_message, changes.first_key) == (4, 4)


def test_an_awaited_channel_is_forgotten_all_the_same() -> None:
    """A held poll keeps the channel's name on this node only, not in the replicated state."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.hold(poll("a", "never", cursor="now", timeout=100.0), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    assert (feed.state.changes().channels, feed.state.changes().forgotten) == ((), ("a",))


def test_a_reopened_channel_is_not_forgotten() -> None:
    """A channel that was forgotten and opened again between two moments counts as changed."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    feed.apply(publish("a"), 8.0)
    changes = feed.state.changes()
    assert ([c.name for c in changes.channels], changes.forgotten) == (["a"], ())


def test_a_channel_whose_messages_are_evicted_by_others_has_changed() -> None:
    """A publication on one channel that evicts the oldest message of another changes both."""
    feed = Feed(retention_bytes=2 * MESSAGE_OVERHEAD_BYTES + 10)
    feed.apply(publish("quiet"), 1.0)
    feed.apply(publish("busy"), 1.0)
    feed.state.note_changes()
    feed.apply(publish("busy"), 1.0)
    changes = feed.state.changes()
    assert {c.name: (c.dropped_sequence, c.reason) for c in changes.channels} == {
        "busy": (0, "expired"),
        "quiet": (1, "evicted"),
    }
    assert changes.first_message == 2


def test_the_size_of_changes_is_counted() -> None:
    """Each sequence counts, whatever came of its entry, and each changed channel; `note_changes` starts again at 0."""
    feed = Feed()
    feed.state.note_changes()
    assert feed.state.changed_count == 0
    feed.apply(batch(draft("a"), draft("b"), draft("a")), 1.0)
    assert feed.state.changed_count == 3 + 2
    feed.apply(Close("unknown"), 1.0)
    assert feed.state.changed_count == 4 + 2
    feed.apply(publish("a"), 1.0)
    assert feed.state.changed_count == 5 + 2
    feed.state.note_changes()
    assert feed.state.changed_count == 0
    assert feed.state.changes().channels == ()
    assert feed.state.changes().messages == ()


def channels_and_changes() -> tuple[Channels, ChangeLog]:
    changes = ChangeLog(0)
    return Channels(Rules(Limits(retention_seconds=1.0)), changes, Touched()), changes


def test_changes_are_recorded_only_on_request() -> None:
    """A node without a journal does not collect the names of all channels that ever changed."""
    channels, changes = channels_and_changes()
    channel = channels.open("a", None, 1.0)
    channels.renew(channel, None, 2.0)
    channels.close(channel, 1, 2.0)
    assert channels.forget_due(9.0)
    assert (len(changes), changes.names(0)) == (0, [])
    feed = Feed()
    feed.apply(publish("a"), 1.0)
    assert (feed.state.changes().channels, feed.state.changes().forgotten) == ((), ())


def test_each_change_of_a_channel_is_recorded() -> None:
    """Opening, renewing, checking the expiry, closing and forgetting are recorded, each name once."""
    channels, changes = channels_and_changes()
    changes.start(0)

    def recorded() -> list[str]:
        names = changes.names(changes.sequence - 1)
        changes.sequence += 1
        return names

    changes.sequence = 1
    a, b = channels.open("a", 5.0, 1.0), channels.open("b", 5.0, 1.0)
    assert recorded() == ["a", "b"]
    channels.renew(a, 9.0, 1.0)
    channels.renew(a, 9.0, 2.0)
    assert recorded() == ["a"]
    b.expires = 20.0  # a publication has extended it
    assert [channels.next_due(6.0) for _ in range(3)] == [a, b, None]
    assert recorded() == ["a", "b"]
    assert (a.due, b.due) == (11, 20)
    channels.close(a, 3, 7.0)
    assert recorded() == ["a"]
    assert channels.forget_due(8.0)
    assert recorded() == ["a"]
    changes.note("b")
    changes.note("b")
    assert recorded() == ["b"]
    changes.start(4)
    assert changes.names(0) == ["a", "b"], "changes up to sequence 4 are dropped"
    assert len(changes) == 2


def test_open_and_closed_channels_are_remembered() -> None:
    """They are found by exactly their name, not by their id; a name that is only awaited is not found."""
    channels, _ = channels_and_changes()
    channel = channels.open("a", None, 1.0)
    assert channels.remembered("a") is channel
    assert channels.remembered(str(channel.id)) is None
    assert not channels.resolve("b").is_remembered
    assert channels.remembered("b") is None
    channels.close(channel, 1, 2.0)
    assert channels.remembered("a") is channel
    channels.forget_due(9.0)
    assert channels.remembered("a") is None


def test_a_cache_returns_the_messages_after_a_sequence() -> None:
    """Oldest first; without a sequence, all of them."""
    channel = Channel("a")
    channel.id = 1
    cache = Cache(Rules(Limits()), {"a": channel}.get, ChangeLog(0))
    for sequence in (2, 5, 6):
        cache.add(Message(sequence, 1.0, ("a",), Raw(b"1")), [channel])
    assert [m.sequence for m in cache.messages()] == [2, 5, 6]
    assert [m.sequence for m in cache.messages(1)] == [2, 5, 6]
    assert [m.sequence for m in cache.messages(2)] == [5, 6]
    assert [m.sequence for m in cache.messages(5)] == [6]
    assert cache.messages(6) == cache.messages(9) == []
    assert (cache.oldest_sequence, cache.oldest_time) == (2, 1.0)
    cache.drop_channel(channel)
    assert (cache.oldest_sequence, cache.oldest_time) == (None, None)
    assert cache.messages() == []


def test_keys_are_listed_after_a_sequence() -> None:
    """Oldest first; without a sequence, all of them."""
    keys = Keys(Rules(Limits(keys_limit=3)))
    assert (keys.oldest_sequence, keys.items()) == (None, [])
    outcomes = {
        key: Remembered(EPOCH, sequence, 1, 1.0, "f") for key, sequence in zip("klmn", (1, 3, 6, 7), strict=True)
    }
    for key, outcome in outcomes.items():
        keys.add(key, outcome)
    assert [key for key, _ in keys.items()] == ["l", "m", "n"]
    assert keys.items(2) == keys.items()
    assert keys.items(3) == [("m", outcomes["m"]), ("n", outcomes["n"])]
    assert keys.items(7) == []
    assert (keys.oldest_sequence, keys.oldest_time) == (3, 1.0)


def test_an_empty_snapshot_is_that_of_a_new_state() -> None:
    """A journal or a Redis without data begins with it."""
    limits = Limits(keys_limit=3)
    assert empty_snapshot("e9", limits) == ReplicatedState(limits, epoch="e9").snapshot()


def test_a_new_epoch_has_the_open_channels_and_the_keys() -> None:
    """Ids, times to live, limits and the sequence go on; messages, closings and gaps were of the epoch before."""
    feed = Feed(retention_messages=1)
    for command in (Create("a", 50.0), Create("b"), Close("b"), Create("closed"), Close("closed")):
        feed.apply(command, 1.0)
    for _ in range(2):
        feed.apply(publish("a", "b", key="k"), 2.0)
        feed.apply(publish("a", "b"), 2.0)
    before = feed.state.snapshot()
    changes = new_epoch(before, "e9")
    after = apply_changes(empty_snapshot("e9", Limits()), changes)
    assert after == replace(
        empty_snapshot("e9", before.limits),
        sequence=before.sequence,
        time=2.0,
        last_id=before.last_id,
        keys=before.keys,
        channels=tuple(
            replace(c, newest_sequence=0, dropped_sequence=0, reason="expired", closed_sequence=0)
            for c in by_name(before.channels)
            if c.name != "closed"
        ),
    )
    assert [(c.name, c.ttl) for c in after.channels] == [("a", 50.0), ("b", 3600.0)]
    assert [key for key, _ in before.keys] == ["k"]
    assert (changes.forgotten, changes.first_message) == ((), before.sequence + 1)
    assert changes.first_key == before.keys[0][1].sequence
    assert new_epoch(replace(before, keys=()), "e9").first_key == before.sequence + 1
    assert new_epoch(replace(before, version=7), "e9").version == 7


def test_changes_are_recorded_after_any_entry() -> None:
    """What is saved while entries come in is dropped from the record; what came meanwhile stays in it."""
    feed = Feed()
    feed.state.note_changes()
    for name in "abc":
        feed.apply(publish(name), 1.0)
    assert [c.name for c in feed.state.changes(2).channels] == ["c"]
    assert (feed.state.changes_known_after, feed.state.changed_count) == (0, 3 + 3)
    feed.state.note_changes(1)
    assert [c.name for c in feed.state.changes().channels] == ["b", "c"]
    assert (feed.state.changes_known_after, feed.state.changed_count) == (1, 2 + 2)
    feed.state.note_changes()
    assert feed.state.changes().channels == ()
    assert (feed.state.changes_known_after, feed.state.changed_count) == (3, 0)
