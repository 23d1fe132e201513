"""Restoring a state in steps."""

from __future__ import annotations

from random import Random

from pushup.core.commands import Entry
from pushup.core.rows import BUCKET
from pushup.core.snapshot import Changes, Snapshot
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore, restoring

from .builders import EPOCH, Feed, batch, draft, publish
from .random_entries import LIMITS, random_commands
from .saved_checkpoint import SavedCheckpoint


def some_snapshot() -> Snapshot:
    feed = ReplicatedState(LIMITS["messages"], epoch=EPOCH)
    time = 1000.0
    feed.apply(Entry(EPOCH, 1, time, batch(*[draft(f"n{n}", "m") for n in range(3000)])))
    for _, (seconds, command) in zip(range(200), random_commands(Random(1)), strict=False):
        time += seconds
        feed.apply(Entry(EPOCH, feed.cursor.sequence + 1, time, command))
    return feed.snapshot()


def test_a_state_is_restored_in_small_steps() -> None:
    """It is complete when all of the work is done."""
    snapshot = some_snapshot()
    state, work = restoring(snapshot)
    assert sum(1 for _ in work) > len(snapshot.channels)
    state.check()
    assert state.snapshot() == restore(snapshot).snapshot() == snapshot
    assert not state.change_log.is_on


def test_each_row_is_a_unit_of_work(feed: Feed) -> None:
    """Rows of all tables count alike, and messages for each channel; sorting a bucket is a step of its own."""
    for n in range(100):
        feed.apply(publish(f"c{n}", "x", key=f"k{n}"), 1.0)
    snapshot = feed.state.snapshot()
    parts = sum(1 for table in snapshot.tables.all() for _ in table.sorting())
    state, work = restoring(snapshot)
    assert sum(work) == 101 + 200 + 100 + parts * (BUCKET // 4)
    assert sum(map(len, state.names().values())) == 301


def test_rows_in_any_order_are_put_in_order(feed: Feed) -> None:
    """More of them than share a bucket."""
    feed.apply(batch(*[draft(f"c{n}") for n in range(2 * BUCKET + 1)]), 1.0)
    for n in range(9):
        feed.apply(publish("c1", key=f"k{n}"), 1.0)
    checkpoint = SavedCheckpoint()
    checkpoint.save(Changes(feed.state.head, tuple(feed.state.rows(feed.state.names()))))
    again = restore(checkpoint.as_redis_reads_it(Random(3)))
    again.check()
    assert again.snapshot() == feed.state.snapshot()
    assert again.names()["messages"] == feed.state.names()["messages"]
    assert again.names()["keys"] == feed.state.names()["keys"]
    assert [c.id for c in again.channels.page()] == [c.id for c in feed.state.channels.page()]
