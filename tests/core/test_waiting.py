"""Held subscriptions by channel, to be woken, and by deadline."""

from __future__ import annotations

from itertools import islice

from pushup.core.channel import Channel
from pushup.core.poll import Poll, Selection
from pushup.core.subscription import Subscription
from pushup.core.waiting import SHARE, Waiting


def hold(waiting: Waiting[str], holder: str, deadline: float, *channels: Channel) -> Subscription[str]:
    return waiting.hold(Poll(Selection(tuple(c.name for c in channels))), channels, 0, deadline, holder)


def holders(waiting: Waiting[str], most: int = 100) -> list[str | None]:
    return [s.holder for s in islice(waiting.woken(), most)]


def test_subscriptions_are_counted_and_have_a_deadline() -> None:
    """The nearest deadline is the next one; without subscriptions there is none."""
    waiting: Waiting[str] = Waiting()
    a = Channel("a")
    late, early = hold(waiting, "late", 9.0, a), hold(waiting, "early", 5.0, a)
    waiting.check()
    assert (waiting.count, waiting.next_deadline) == (2, 5.0)
    assert waiting.pop_due(4.9) is None
    assert waiting.pop_due(5.0) is early
    assert waiting.release(early) == "early"
    assert waiting.release(late) == "late"
    waiting.check()
    assert (waiting.count, waiting.next_deadline, list(waiting.names)) == (0, None, [])


def test_waking_a_channel_wakes_all_its_subscriptions() -> None:
    """They come nearest deadline first; subscriptions of other channels stay asleep."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    hold(waiting, "x", 9.0, a)
    hold(waiting, "y", 5.0, a, b)
    hold(waiting, "z", 1.0, b)
    assert (waiting.count, bool(waiting.woken_names)) == (3, False)
    waiting.wake("a")
    assert waiting.woken_names
    assert all(waiters.tree is None for waiters in waiting.names if waiters.name == "a")
    assert holders(waiting) == ["y", "x"]
    assert not waiting.woken_names


def test_woken_subscriptions_can_be_taken_in_slices() -> None:
    """Each is taken once, however often the caller stops and continues."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    for number in range(5):
        hold(waiting, f"a{number}", float(number), a)
    hold(waiting, "b", 1.0, b)
    waiting.wake("a")
    waiting.wake("b")
    assert holders(waiting, 2) == ["a0", "a1"]
    assert holders(waiting, 3) == ["a2", "a3", "a4"]
    assert holders(waiting, 3) == ["b"]
    assert holders(waiting) == []


def test_released_subscriptions_are_skipped() -> None:
    """A subscription that was released while it was woken is not returned."""
    waiting: Waiting[str] = Waiting()
    a = Channel("a")
    first, _ = hold(waiting, "first", 1.0, a), hold(waiting, "second", 2.0, a)
    waiting.wake("a")
    waiting.release(first)
    assert first.holder is None
    assert holders(waiting) == ["second"]
    assert waiting.count == 1


def test_new_subscriptions_wait_for_the_next_wake_up() -> None:
    """Waking a channel starts a new tree; subscriptions that wait again are in it, once."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    first = hold(waiting, "first", 1.0, a, b)
    waiting.wake("a")
    hold(waiting, "second", 2.0, a)
    assert holders(waiting) == ["first"]
    waiting.wait(first)
    waiting.check()
    assert holders(waiting) == []
    waiting.wake("a")
    assert holders(waiting) == ["first", "second"]


def test_woken_names_take_turns() -> None:
    """Subscriptions of a small channel do not have to wait for all those of a large one that was woken earlier."""
    waiting: Waiting[str] = Waiting()
    large, small = Channel("large"), Channel("small")
    for number in range(3 * SHARE):
        hold(waiting, f"large {number}", float(number), large)
    hold(waiting, "small", 0.0, small)
    waiting.wake("large")
    waiting.wake("small")
    order = holders(waiting)
    assert order.index("small") == SHARE
    assert order == [f"large {n}" for n in range(SHARE)] + ["small"] + [f"large {n}" for n in range(SHARE, 3 * SHARE)]
