"""Restoring a state in steps."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from pushup.core.commands import Entry
from pushup.core.restoration import RUN, Restoration, restore
from pushup.core.snapshot import Snapshot
from pushup.core.state import ReplicatedState

from .builders import EPOCH, Feed, batch, draft, publish
from .random_entries import LIMITS, random_commands


def some_snapshot() -> Snapshot:
    feed = ReplicatedState(LIMITS["messages"], epoch=EPOCH)
    time = 1000.0
    feed.apply(Entry(EPOCH, 1, time, batch(*[draft(f"n{n}", "m") for n in range(3000)])))
    for _, (seconds, command) in zip(range(200), random_commands(Random(1)), strict=False):
        time += seconds
        feed.apply(Entry(EPOCH, feed.cursor.sequence + 1, time, command))
    return feed.snapshot()


def test_small_steps_lead_to_the_same_state() -> None:
    """However little each step does, and in whatever order the channels come."""
    snapshot = some_snapshot()
    channels = list(snapshot.channels)
    Random(2).shuffle(channels)
    restoration = Restoration(replace(snapshot, channels=tuple(channels)))
    steps = 1
    while not restoration.step(10):
        assert not restoration.is_done
        steps += 1
    assert steps > len(channels) / 10
    restoration.state.check()
    assert restoration.state.snapshot() == restore(snapshot).snapshot() == snapshot
    assert restoration.step(10)


def test_a_step_does_as_much_as_asked_for() -> None:
    """Channels, messages on a channel and keys count alike; before that, sorting is a step of its own."""
    feed = Feed()
    for n in range(100):
        feed.apply(publish(f"c{n}", key=f"k{n}"), 1.0)
    restoration = Restoration(feed.state.snapshot())
    state = restoration._state
    restored = []
    is_done = False
    while not is_done:
        is_done = restoration.step(10)
        channels = len(list(state.channels.all_remembered()))
        restored.append(channels + state.message_count + len(state.keys.items()))
    assert restored == [0, *range(10, 310, 10), 300]


def test_many_channels_are_put_in_order() -> None:
    """More than are sorted in one go, and in whatever order they come."""
    feed = Feed()
    feed.apply(batch(*[draft(f"c{n}") for n in range(2 * RUN + 1)]), 1.0)
    snapshot = feed.state.snapshot()
    channels = list(snapshot.channels)
    Random(3).shuffle(channels)
    assert restore(replace(snapshot, channels=tuple(channels))).snapshot() == snapshot
