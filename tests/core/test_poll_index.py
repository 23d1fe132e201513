"""Held subscriptions by channel, to be woken, and by deadline."""

from __future__ import annotations

from itertools import islice

from pushup.core.channel import Channel
from pushup.core.poll import Poll, Selection
from pushup.core.poll_index import SHARE, PollIndex
from pushup.core.subscription import Subscription


def hold(index: PollIndex[str], holder: str, deadline: float, *channels: Channel) -> Subscription[str]:
    return index.hold(Poll(Selection(tuple(c.name for c in channels))), channels, 0, deadline, holder)


def holders(index: PollIndex[str], most: int = 100) -> list[str | None]:
    return [s.holder for s in islice(index.woken(), most)]


def test_subscriptions_are_counted_and_have_a_deadline() -> None:
    index: PollIndex[str] = PollIndex()
    a = Channel("a")
    late, early = hold(index, "late", 9.0, a), hold(index, "early", 5.0, a)
    index.check(last=9)
    assert (index.count, index.next_deadline) == (2, 5.0)
    assert index.pop_due(4.9) is None
    assert index.pop_due(5.0) is early
    assert index.release(early) == "early"
    assert index.release(late) == "late"
    index.check(last=9)
    assert (index.count, index.next_deadline, list(index.names)) == (0, None, [])


def test_waking_a_channel_wakes_all_its_subscriptions() -> None:
    """They come nearest deadline first; subscriptions of other channels stay asleep."""
    index: PollIndex[str] = PollIndex()
    a, b = Channel("a"), Channel("b")
    hold(index, "x", 9.0, a)
    hold(index, "y", 5.0, a, b)
    hold(index, "z", 1.0, b)
    assert (index.count, index.has_woken) == (3, False)
    index.wake("a")
    assert index.has_woken
    assert all(waiters.tree is None for waiters in index.names if waiters.name == "a")
    assert holders(index) == ["y", "x"]
    assert not index.has_woken


def test_woken_subscriptions_can_be_taken_in_slices() -> None:
    index: PollIndex[str] = PollIndex()
    a, b = Channel("a"), Channel("b")
    for number in range(5):
        hold(index, f"a{number}", float(number), a)
    hold(index, "b", 1.0, b)
    index.wake("a")
    index.wake("b")
    assert holders(index, 2) == ["a0", "a1"]
    assert holders(index, 3) == ["a2", "a3", "a4"]
    assert holders(index, 3) == ["b"]
    assert holders(index) == []


def test_released_subscriptions_are_skipped() -> None:
    index: PollIndex[str] = PollIndex()
    a = Channel("a")
    first, _ = hold(index, "first", 1.0, a), hold(index, "second", 2.0, a)
    index.wake("a")
    index.release(first)
    assert first.holder is None
    assert holders(index) == ["second"]
    assert index.count == 1


def test_new_subscriptions_wait_for_the_next_wake_up() -> None:
    """Waking a channel starts a new tree; subscriptions that wait again are in it, once."""
    index: PollIndex[str] = PollIndex()
    a, b = Channel("a"), Channel("b")
    first = hold(index, "first", 1.0, a, b)
    index.wake("a")
    hold(index, "second", 2.0, a)
    assert holders(index) == ["first"]
    index.wait_on(first, last=1)
    index.check(last=9)
    assert holders(index) == []
    index.wake("a")
    assert holders(index) == ["first", "second"]


def test_woken_names_take_turns() -> None:
    """Subscriptions of a small channel do not have to wait for all those of a large one that was woken earlier."""
    index: PollIndex[str] = PollIndex()
    large, small = Channel("large"), Channel("small")
    for number in range(3 * SHARE):
        hold(index, f"large {number}", float(number), large)
    hold(index, "small", 0.0, small)
    index.wake("large")
    index.wake("small")
    order = holders(index)
    assert order.index("small") == SHARE
    assert order == [f"large {n}" for n in range(SHARE)] + ["small"] + [f"large {n}" for n in range(SHARE, 3 * SHARE)]
