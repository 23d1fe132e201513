"""When a channel may have been forgotten, as a history shows it: its lifetime is 6 s, and it is kept for 8 s more."""

from __future__ import annotations

import pytest

from loadtest.history.checker import Checker
from loadtest.history.events import FORMAT, Acknowledged, Begin, Draft, Fault, LimitsChange, Poll, Publish
from loadtest.history.forgetting import may_forget
from pushup.core.limits import Limits

LIMITS = Limits(channel_ttl_seconds=6.0, retention_seconds=8.0)


def after(*publications: tuple[float, str, str], now: float, limits: Limits = LIMITS) -> Checker:
    """The checker at a time. `publications`: when, on which channel, and with which id; none if it is empty."""
    checker = Checker()
    checker.take(Begin(0.0, FORMAT, limits))
    for number, (at, channel, id_) in enumerate(publications):
        name = f"p{number}"
        checker.take(Publish(at, name, (Draft((channel,), name),)))
        if id_:
            checker.take(Acknowledged(at, name, (id_,)))
    checker.now = now
    return checker


def forgets(checker: Checker, cursor: str) -> bool:
    checker.take(Poll(checker.now, "s", ("a",), cursor))
    return may_forget(checker, checker.followers["s"])


@pytest.mark.parametrize(("now", "may"), [(14.1, True), (14.0, False)])
@pytest.mark.parametrize("id_", ["e1-1", ""])
def test_a_channel_is_forgotten_after_its_lifetime_and_what_is_kept(now: float, may: bool, id_: str) -> None:
    """Counted from a publication on any channel, acknowledged or not; a second is for the way."""
    assert forgets(after((1.0, "b", id_), now=now), "e1-0") is may


def test_without_publications_there_is_nothing_to_forget() -> None:
    assert not forgets(after(now=1000.0), "")


@pytest.mark.parametrize(
    ("cursor", "may"), [("", True), ("now", True), ("e1-4", True), ("e1-5", False), ("e2-0", False)]
)
def test_a_cursor_that_has_passed_something_newer_is_safe(cursor: str, may: bool) -> None:
    """The channel was closed 8 s ago or more; it had nothing after that."""
    checker = after((1.0, "b", "e1-1"), (95.0, "c", "e1-5"), now=100.0)
    assert forgets(checker, cursor) is may


def test_a_cursor_that_has_passed_only_what_is_as_old_is_not() -> None:
    """What was published before the channel was closed may come before what the channel had last."""
    checker = after((1.0, "b", "e1-1"), (91.0, "c", "e1-5"), now=100.0)
    assert forgets(checker, "e1-5")


@pytest.mark.parametrize(("channels", "may"), [(12, False), (13, True)])
def test_with_very_many_channels_closed_ones_are_forgotten_at_once(channels: int, may: bool) -> None:
    """More than may be open: then only the lifetime counts."""
    publications = [(1.0, f"c{number}", f"e1-{number + 1}") for number in range(channels)]
    limits = Limits(channel_ttl_seconds=6.0, retention_seconds=8.0, channels_limit=12)
    assert forgets(after(*publications, now=7.0, limits=limits), "e1-0") is may


def test_smaller_limits_count() -> None:
    """Those that may be in force on some node."""
    checker = after((1.0, "b", "e1-1"), now=100.0, limits=Limits())
    assert not forgets(checker, "e1-0")
    checker.take(LimitsChange(100.0, LIMITS))
    checker.followers.clear()
    assert forgets(checker, "e1-0")


def test_with_a_wrong_clock_anything_may_be_forgotten() -> None:
    """At once, and whatever the cursor has passed."""
    checker = after((1.0, "b", "e1-1"), now=2.0)
    checker.take(Fault(2.0, "the clock jumps", moves_clock=True))
    assert forgets(checker, "e1-9")
