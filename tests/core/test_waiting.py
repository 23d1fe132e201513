"""The held subscriptions: by channel, to be woken, and by deadline."""

from __future__ import annotations

from itertools import islice

from pushup.core.channel import Channel
from pushup.core.poll import Selection
from pushup.core.subscription import Subscription
from pushup.core.waiting import SHARE, Waiting


def subscription(holder: str, deadline: float, *channels: Channel) -> Subscription[str]:
    return Subscription(Selection(tuple(c.name for c in channels)), channels, 0, deadline, holder)


def holders(waiting: Waiting[str], most: int = 100) -> list[str | None]:
    return [s.holder for s in islice(waiting.woken(), most)]


def test_who_waits_is_counted_and_has_a_deadline() -> None:
    """The nearest deadline is the next one; with the last subscription there is none."""
    waiting: Waiting[str] = Waiting()
    a = Channel("a")
    late, early = subscription("late", 9.0, a), subscription("early", 5.0, a)
    waiting.hold(late)
    waiting.hold(early)
    waiting.check()
    assert (waiting.count, waiting.next_deadline) == (2, 5.0)
    assert waiting.pop_due(4.9) is None
    assert waiting.pop_due(5.0) is early
    assert waiting.release(early) == "early"
    assert waiting.release(late) == "late"
    waiting.check()
    assert (waiting.count, waiting.next_deadline, a.waiting, a.subscribers) == (0, None, None, 0)


def test_waking_a_channel_takes_all_who_wait_on_it() -> None:
    """They come nearest deadline first; who waits on another channel sleeps on."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    for one in (subscription("x", 9.0, a), subscription("y", 5.0, a, b), subscription("z", 1.0, b)):
        waiting.hold(one)
    assert (waiting.count, bool(waiting.woken_channels)) == (3, False)
    waiting.wake(a)
    assert waiting.woken_channels
    assert a.waiting is None
    assert holders(waiting) == ["y", "x"]
    assert not waiting.woken_channels


def test_the_woken_can_be_looked_at_in_slices() -> None:
    """Each is looked at once, however often the caller stops and goes on."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    for number in range(5):
        waiting.hold(subscription(f"a{number}", float(number), a))
    waiting.hold(subscription("b", 1.0, b))
    waiting.wake(a)
    waiting.wake(b)
    assert holders(waiting, 2) == ["a0", "a1"]
    assert holders(waiting, 3) == ["a2", "a3", "a4"]
    assert holders(waiting, 3) == ["b"]
    assert holders(waiting) == []


def test_who_was_answered_or_left_is_not_looked_at() -> None:
    """A subscription that was released while it was woken is passed over."""
    waiting: Waiting[str] = Waiting()
    a = Channel("a")
    first, second = subscription("first", 1.0, a), subscription("second", 2.0, a)
    waiting.hold(first)
    waiting.hold(second)
    waiting.wake(a)
    waiting.release(first)
    assert first.holder is None
    assert holders(waiting) == ["second"]
    assert waiting.count == 1


def test_who_subscribes_meanwhile_waits_for_the_next_time() -> None:
    """A new tree begins when the old one is woken, and who waits again waits in it, once."""
    waiting: Waiting[str] = Waiting()
    a, b = Channel("a"), Channel("b")
    first, second = subscription("first", 1.0, a, b), subscription("second", 2.0, a)
    waiting.hold(first)
    waiting.wake(a)
    waiting.hold(second)
    assert holders(waiting) == ["first"]
    waiting.wait_again(first)
    waiting.check()
    assert holders(waiting) == []
    waiting.wake(a)
    assert holders(waiting) == ["first", "second"]


def test_waking_where_nobody_waits_wakes_nobody() -> None:
    """A channel without subscriptions has nothing to wake."""
    waiting: Waiting[str] = Waiting()
    waiting.wake(Channel("a"))
    assert not waiting.woken_channels


def test_woken_channels_take_turns() -> None:
    """Who waits on a small channel that is woken after a large one is looked at after the first share of that."""
    waiting: Waiting[str] = Waiting()
    large, small = Channel("large"), Channel("small")
    for number in range(3 * SHARE):
        waiting.hold(subscription(f"large {number}", float(number), large))
    waiting.hold(subscription("small", 0.0, small))
    waiting.wake(large)
    waiting.wake(small)
    order = holders(waiting)
    assert order.index("small") == SHARE
    assert order == [f"large {n}" for n in range(SHARE)] + ["small"] + [f"large {n}" for n in range(SHARE, 3 * SHARE)]
