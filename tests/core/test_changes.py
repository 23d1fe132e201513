"""Changes since an earlier entry: applied to the snapshot of that entry they give the current state."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pushup.core.change_log import ChangeLog
from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Touched
from pushup.core.channels import Channels
from pushup.core.commands import Close, Create, Expire
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.machine_rules import Rules
from pushup.core.snapshot import Changes, Snapshot, Stored, Tables, empty_head
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, restore, rows_of_new_epoch

from .builders import EPOCH, Feed, batch, draft, poll, publish
from .random_entries import LIMITS, random_entries
from .saved_checkpoint import SavedCheckpoint


def rows_of(table: str, rows: Iterable[Stored]) -> dict[str, Any]:
    """The rows of one table by name, as JSON; None for one that was removed."""
    return {
        row.key.removeprefix(f"{table}/"): msgspec.json.decode(row.body)
        for row in rows
        if row.key.startswith(f"{table}/")
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", LIMITS)
def test_changes_turn_an_earlier_snapshot_into_the_current_one(limits: str, seed: int) -> None:
    """Changes between any two moments are complete, and a state restored from the result continues as the original."""
    random = Random(f"{limits} {seed}")
    live = ReplicatedState(LIMITS[limits], epoch=EPOCH)
    live.note_changes(0)
    checkpoint = SavedCheckpoint()
    gone = {"channels": 0, "messages": 0, "keys": 0}
    reasons = set()
    for entry in random_entries(random, 600):
        live.apply(entry)
        if random.random() > random.choice((0.05, 0.5)):
            continue
        changes = live.changes()
        assert changes == live.changes()
        checkpoint.save(changes)
        snapshot = checkpoint.as_redis_reads_it(random)
        assert snapshot == live.snapshot()
        for table in gone:
            gone[table] += list(rows_of(table, changes.rows).values()).count(None)
        reasons |= {channel.reason for channel in snapshot.channels if channel.dropped_sequence}
        if random.random() < 0.8:
            live.note_changes()  # else the next changes cover both periods, as after a save that seemed to fail
        if random.random() < 0.1:
            live = restore(live.snapshot())
            live.check()
            live.note_changes()
    assert "closed" in reasons
    assert limits == "bytes" or gone["channels"]
    assert limits in ("age", "strict") or "evicted" in reasons
    assert limits != "age" or "expired" in reasons
    assert gone["keys"]
    assert gone["messages"]


def test_a_restored_state_lists_its_channels_by_id(feed: Feed) -> None:
    """The order is that of the original state, so that no channel is missing from the pages."""
    for number in range(6):
        feed.apply(Create(f"c{number}", 100.0 - number), 1.0)
    again = restore(feed.state.snapshot())
    assert [c.id for c in again.channels.page()] == [c.id for c in feed.state.channels.page()]
    assert [c.name for c in again.channels.page(again.channels.get("c2").id, 2)] == ["c3", "c4"]


def test_changes_contain_only_what_changed() -> None:
    feed = Feed(channel_ttl_seconds=60.0, retention_seconds=30.0)
    feed.apply(publish("old", key="k1"), 10.0)
    feed.apply(publish("closing"), 10.0)
    feed.state.note_changes()
    feed.apply(batch(draft("new"), draft("new"), key="k2"), 10.5)
    feed.apply(Close("closing"), 10.5)
    changes = feed.state.changes()
    channels = rows_of("channels", changes.rows)
    assert {name: (c["dropped"], c["closed"]) for name, c in channels.items()} == {"new": (0, 0), "closing": (2, 5)}
    messages = rows_of("messages", changes.rows)
    assert messages.pop("2") is None
    assert {name: m["channels"] for name, m in messages.items()} == {"3": ["new"], "4": ["new"]}
    fingerprint = batch(draft("new"), draft("new")).fingerprint
    expected = {"key": "k2", "epoch": EPOCH, "sequence": 3, "count": 2, "time": 10.5, "fingerprint": fingerprint}
    assert rows_of("keys", changes.rows) == {"k2": expected}
    head = changes.head
    assert (head.epoch, head.sequence, head.time, head.last_id) == (EPOCH, 5, 10.5, 10500)


def test_changes_name_forgotten_channels() -> None:
    """A channel whose closing is forgotten is to be removed, and the floor covers it."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a", key="k"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    changes = feed.state.changes()
    assert [row.key for row in changes.rows if row.is_removed] == ["channels/a", "keys/k"]
    assert changes.head.floor == 2


def test_an_awaited_channel_is_forgotten_all_the_same() -> None:
    """A held poll keeps the channel's name on this node only, not in the replicated state."""
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.hold(poll("a", "never", cursor="now", timeout=100.0), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    assert rows_of("channels", feed.state.changes().rows) == {"a": None}


def test_a_reopened_channel_is_not_forgotten() -> None:
    feed = Feed(retention_seconds=5.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.state.note_changes()
    feed.apply(Expire(), 8.0)
    feed.apply(publish("a"), 8.0)
    assert rows_of("channels", feed.state.changes().rows)["a"] is not None


def test_a_channel_whose_messages_are_evicted_by_others_has_changed() -> None:
    feed = Feed(retention_bytes=2 * MESSAGE_OVERHEAD_BYTES + 10)
    feed.apply(publish("quiet"), 1.0)
    feed.apply(publish("busy"), 1.0)
    feed.state.note_changes()
    feed.apply(publish("busy"), 1.0)
    rows = feed.state.changes().rows
    assert {name: (c["dropped"], c["reason"]) for name, c in rows_of("channels", rows).items()} == {
        "busy": (0, "expired"),
        "quiet": (1, "evicted"),
    }
    assert [name for name, message in rows_of("messages", rows).items() if message is None] == ["1"]


def test_the_size_of_changes_is_counted(feed: Feed) -> None:
    """Rows of all tables; at least each sequence, whatever came of its entry; `note_changes` starts again at 0."""
    feed.state.note_changes()
    assert feed.state.changed_count == 0
    feed.apply(batch(draft("a"), draft("b"), draft("a")), 1.0)
    assert feed.state.changed_count == 3 + 2
    for _ in range(3):
        feed.apply(Close("unknown"), 1.0)
    assert feed.state.changed_count == 6
    feed.apply(publish("a"), 1.0)
    assert feed.state.changed_count == 7
    feed.state.note_changes()
    assert feed.state.changed_count == 0
    assert feed.state.changes().rows == ()


def channels_and_changes() -> tuple[Channels, ChangeLog]:
    changes = ChangeLog(0)
    return Channels(Rules(Limits(retention_seconds=1.0)), changes.of("channels"), Touched()), changes


def test_changes_are_recorded_only_on_request() -> None:
    """A node without a journal does not collect the names of all channels that ever changed."""
    channels, changes = channels_and_changes()
    channel = channels.open("a", None, 1.0)
    channels.renew(channel, None, 2.0)
    channels.close(channel, 1, 2.0)
    assert channels.forget_due(9.0, 99)
    assert (len(changes), changes.names(0)) == (0, {"channels": []})
    feed = Feed()
    feed.apply(publish("a"), 1.0)
    assert feed.state.changes().rows == ()


def test_each_change_of_a_channel_is_recorded() -> None:
    channels, changes = channels_and_changes()
    changes.start(0)

    def recorded() -> list[str | int]:
        names = changes.names(changes.sequence - 1)["channels"]
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
    assert channels.forget_due(8.0, 99)
    assert recorded() == ["a"]
    changes.of("channels").note("b")
    changes.of("channels").note("b")
    assert recorded() == ["b"]
    changes.start(4)
    assert changes.names(0)["channels"] == ["a", "b"], "changes up to sequence 4 are dropped"
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
    channels.forget_due(9.0, 99)
    assert channels.remembered("a") is None


def test_an_empty_snapshot_is_that_of_a_new_state() -> None:
    """A journal or a Redis without data begins with it."""
    limits = Limits(keys_limit=3)
    assert Snapshot(empty_head("e9", limits), Tables()) == ReplicatedState(limits, epoch="e9").snapshot()


def test_a_new_epoch_has_the_open_channels_and_the_keys() -> None:
    """Ids, times to live, limits and the sequence go on; messages, closings and gaps were of the epoch before."""
    feed = Feed(retention_messages=1)
    for command in (Create("a", 50.0), Create("b"), Close("b"), Create("closed"), Close("closed")):
        feed.apply(command, 1.0)
    for _ in range(2):
        feed.apply(publish("a", "b", key="k"), 2.0)
        feed.apply(publish("a", "b"), 2.0)
    before = feed.state.snapshot()
    checkpoint = SavedCheckpoint()
    checkpoint.save(Changes(head_of_new_epoch("e9", feed.state), tuple(rows_of_new_epoch(feed.state))))
    after = checkpoint.as_sqlite_reads_it()
    head = before.head
    assert after.head == replace(empty_head("e9", head.limits), sequence=head.sequence, time=2.0, last_id=head.last_id)
    assert after.channels == tuple(
        replace(c, dropped_sequence=0, reason="expired", closed_sequence=0)
        for c in before.channels
        if c.name != "closed"
    )
    assert {(c.name, c.ttl) for c in after.channels} == {("a", 50.0), ("b", 3600.0)}
    assert after.messages == ()
    assert [row.key for row in after.tables["keys"]] == ["k"]
    assert after.tables["keys"] == before.tables["keys"]


def test_changes_are_recorded_after_any_entry(feed: Feed) -> None:
    """What is saved while entries come in is dropped from the record; what came meanwhile stays in it."""
    feed.state.note_changes()
    for name in "abc":
        feed.apply(publish(name), 1.0)
    assert list(rows_of("channels", feed.state.changes(2).rows)) == ["c"]
    assert (feed.state.change_log.start_sequence, feed.state.changed_count) == (0, 3 + 3)
    feed.state.note_changes(1)
    assert list(rows_of("channels", feed.state.changes().rows)) == ["b", "c"]
    assert (feed.state.change_log.start_sequence, feed.state.changed_count) == (1, 2 + 2)
    feed.state.note_changes()
    assert feed.state.changes().rows == ()
    assert (feed.state.change_log.start_sequence, feed.state.changed_count) == (3, 0)


def test_a_checkpoint_has_only_what_is_still_kept() -> None:
    """Messages that are kept for a week do not keep those between them that are kept for five minutes."""
    policy = ChannelPolicy(prefix="audit:", retention_seconds=7 * 86400.0)
    feed = Feed(retention_seconds=300.0, channels=(policy,))
    checkpoint = SavedCheckpoint()
    feed.state.note_changes()
    for minute in range(60):
        time = minute * 60.0
        feed.apply(batch(draft("audit:logins"), *[draft(f"c{n}") for n in range(20)]), time)
        checkpoint.save(feed.state.changes())
        feed.state.note_changes()
    messages = [msgspec.json.decode(row) for key, row in checkpoint.rows.items() if key.startswith("messages/")]
    assert sum(message["channels"] == ["audit:logins"] for message in messages) == 60
    assert {message["time"] for message in messages if message["channels"] != ["audit:logins"]} == {
        minute * 60.0 for minute in range(55, 60)
    }
    assert restore(checkpoint.as_sqlite_reads_it()).snapshot() == feed.state.snapshot()
