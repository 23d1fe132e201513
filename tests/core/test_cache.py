"""The cache: each message is stored once, bounded by age, number and bytes."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from pushup.core.cache import Cache
from pushup.core.change_log import ChangeLog
from pushup.core.channels import Channels, Touched
from pushup.core.limits import Limits
from pushup.core.message import MESSAGE_OVERHEAD_BYTES, Attributes, Message
from pushup.core.rules import Rules


class Kept:
    """A cache, and the open channels `a`, `b` and `c`."""

    def __init__(self, **limits: Any) -> None:
        self.rules, changes = Rules(Limits(**limits)), ChangeLog(0)
        channels = Channels(self.rules, changes.of("channels"), Touched())
        self.channels = {name: channels.open(name, None, 0.0) for name in "abc"}
        self.cache = Cache(self.rules, channels, changes.of("messages"))

    def add(
        self,
        sequence: int,
        names: str,
        time: float = 1.0,
        data: bytes = b"1",
        owner: str = "",
        *,
        ephemeral: bool = False,
    ) -> Message:
        channels = [self.channels[name] for name in names]
        shelf = self.cache.shelf(channels, owner, is_ephemeral=ephemeral)
        attributes = Attributes(ephemeral=True) if ephemeral else None
        message = Message(sequence, time, tuple(names), Raw(data), attributes, shelf)
        self.cache.add(message, channels)
        self.check()
        return message

    def kept(self, name: str) -> list[int]:
        return [m.sequence for m in self.channels[name].messages or ()]

    def all(self) -> list[str | int]:
        return self.cache.names()

    def gap(self, name: str) -> tuple[int, str]:
        return self.channels[name].dropped_sequence, self.channels[name].reason

    def check(self) -> None:
        self.cache.check()
        for channel in self.channels.values():
            channel.check()


def test_a_message_of_several_channels_is_stored_once() -> None:
    """It counts once, and stays until the last of its channels drops it."""
    kept = Kept()
    message = kept.add(1, "ab", data=b'"xy"')
    assert (len(kept.cache), kept.cache.bytes, message.holders) == (1, 4 + MESSAGE_OVERHEAD_BYTES, 2)
    kept.cache.drop_channel(kept.channels["a"])
    assert (kept.all(), kept.kept("a"), kept.kept("b"), message.holders) == ([1], [], [1], 1)
    kept.cache.drop_channel(kept.channels["b"])
    assert (kept.all(), kept.cache.bytes, message.holders) == ([], 0, 0)


def test_old_messages_expire() -> None:
    """They are dropped from all their channels, and gaps give the reason; each counts once for each of its channels."""
    kept = Kept()
    kept.add(1, "a", time=10.0)
    kept.add(2, "ab", time=11.0)
    kept.add(3, "b", time=11.001)
    assert kept.cache.oldest_time == 10.0
    assert kept.cache.expire(9.999, 100) == 0
    assert kept.cache.expire(11.0, 100) == 1 + 2
    kept.check()
    assert (kept.all(), kept.gap("a"), kept.gap("b")) == ([3], (2, "expired"), (2, "expired"))
    assert kept.cache.oldest_time == 11.001


def test_no_more_messages_expire_than_asked_for() -> None:
    """The oldest expire first; the rest is left for the next call."""
    kept = Kept()
    for sequence in range(1, 6):
        kept.add(sequence, "a")
    assert kept.cache.expire(5.0, 2) == 2
    assert kept.all() == [3, 4, 5]
    assert kept.cache.expire(5.0, 100) == 3
    assert (kept.all(), kept.cache.oldest_time) == ([], None)


def test_a_channel_keeps_at_most_retention_messages() -> None:
    """Its oldest message is evicted, but stays on its other channels."""
    kept = Kept(retention_messages=2)
    for sequence, names in enumerate(("ab", "a", "ac", "c"), 1):
        kept.add(sequence, names)
    assert (kept.kept("a"), kept.kept("b"), kept.kept("c")) == ([2, 3], [1], [3, 4])
    assert (kept.all(), kept.gap("a"), kept.gap("b")) == ([1, 2, 3, 4], (1, "evicted"), (0, "expired"))
    kept.add(5, "b")
    kept.add(6, "b")
    assert (kept.all(), kept.gap("b")) == ([2, 3, 4, 5, 6], (1, "evicted"))


def test_all_messages_together_take_at_most_retention_bytes() -> None:
    """Exactly the limit fits; beyond it the oldest message of the whole node is evicted, whatever its channel."""
    kept = Kept(retention_bytes=3 * (MESSAGE_OVERHEAD_BYTES + 10))
    for sequence, names in enumerate(("ab", "b", "c"), 1):
        kept.add(sequence, names, data=b"1" * 10)
    assert kept.all() == [1, 2, 3]
    kept.add(4, "c", data=b"1")
    assert (kept.all(), kept.gap("a"), kept.gap("b"), kept.gap("c")[0]) == (
        [2, 3, 4],
        (1, "evicted"),
        (1, "evicted"),
        0,
    )
    kept.add(5, "c", data=b"1" * (MESSAGE_OVERHEAD_BYTES + 10))
    assert (kept.all(), kept.gap("b"), kept.gap("c")) == ([4, 5], (2, "evicted"), (3, "evicted"))


def test_the_newest_message_is_kept_whatever_its_size() -> None:
    """A message that is larger than the limit evicts everything but itself."""
    kept = Kept(retention_bytes=10)
    kept.add(1, "a")
    kept.add(2, "b")
    assert (kept.all(), kept.gap("a")) == ([2], (1, "evicted"))


def test_a_closing_channel_drops_its_messages() -> None:
    """They are dropped with the reason `closed`; those of other channels stay."""
    kept = Kept()
    kept.add(1, "a")
    kept.add(2, "ab")
    kept.add(3, "b")
    kept.cache.drop_channel(kept.channels["a"])
    kept.check()
    assert (kept.all(), kept.gap("a"), kept.gap("b")[0]) == ([2, 3], (2, "closed"), 0)


def test_what_expires_is_counted_past_the_limit() -> None:
    """The message that reaches the limit is dropped as a whole, and no other one after it."""
    kept = Kept()
    for sequence in range(1, 4):
        kept.add(sequence, "ab")
    assert kept.cache.expire(5.0, 3) == 4
    assert kept.all() == [3]


def test_a_large_message_is_all_that_a_small_one_evicts() -> None:
    """With limits that have become smaller, what one publication evicts ends when it is twice its own size or more."""
    kept = Kept()
    for sequence in range(1, 4):
        kept.add(sequence, "a", data=b"1" * 9 * MESSAGE_OVERHEAD_BYTES)
    kept.rules.limits = Limits(retention_bytes=MESSAGE_OVERHEAD_BYTES)
    kept.add(4, "b")
    assert kept.all() == [2, 3, 4]


def test_an_old_message_takes_nothing_with_it_from_a_channel_that_was_opened_again() -> None:
    """It is still on another channel; the channel that dropped it when it closed has newer ones, which stay."""
    kept = Kept(retention_seconds=9.0)
    kept.add(1, "ab", time=1.0)
    kept.cache.drop_channel(kept.channels["a"])
    kept.add(2, "a", time=5.0)
    assert kept.cache.expire(1.0, 100) == 2
    assert (kept.all(), kept.kept("a"), kept.gap("b")) == ([2], [2], (1, "expired"))
