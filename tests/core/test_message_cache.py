"""The cache: each message is stored once, bounded by age, number and bytes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from pushup.core import message_cache as cache_module
from pushup.core.change_log import ChangeLog
from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Attributes, Message, Touched
from pushup.core.channels import Channels
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.machine_rules import Rules
from pushup.core.message_cache import MessageCache


class Kept:
    """A cache, and the open channels `a`, `b` and `c`."""

    def __init__(self, **limits: Any) -> None:
        self.rules, changes = Rules(Limits(**limits)), ChangeLog(0)
        self.all_channels = Channels(self.rules, changes.of("channels"), Touched())
        self.channels = {name: self.all_channels.open(name, None, 0.0) for name in "abc"}
        self.cache = MessageCache(self.rules, self.all_channels, changes.of("messages"))

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
    assert kept.cache.next_time == 310.0
    assert kept.cache.expire(309.999, 100) == 0
    assert kept.cache.expire(311.0, 100) == 1 + 2
    kept.check()
    assert (kept.all(), kept.gap("a"), kept.gap("b")) == ([3], (2, "expired"), (2, "expired"))
    assert kept.cache.next_time == 311.001


def test_no_more_messages_expire_than_asked_for() -> None:
    kept = Kept()
    for sequence in range(1, 6):
        kept.add(sequence, "a")
    assert kept.cache.expire(305.0, 2) == 2
    assert kept.all() == [3, 4, 5]
    assert kept.cache.expire(305.0, 100) == 3
    assert (kept.all(), kept.cache.next_time) == ([], None)


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
    kept = Kept(retention_bytes=10)
    kept.add(1, "a")
    kept.add(2, "b")
    assert (kept.all(), kept.gap("a")) == ([2], (1, "evicted"))


def test_a_closing_channel_drops_its_messages() -> None:
    kept = Kept()
    kept.add(1, "a")
    kept.add(2, "ab")
    kept.add(3, "b")
    kept.cache.drop_channel(kept.channels["a"])
    kept.check()
    assert (kept.all(), kept.gap("a"), kept.gap("b")[0]) == ([2, 3], (2, "closed"), 0)


def test_expiry_stops_within_a_message_that_has_many_channels() -> None:
    """Some of its channels have dropped it then, and the next call goes on with the others."""
    kept = Kept()
    for sequence in range(1, 4):
        kept.add(sequence, "ab")
    assert kept.cache.expire(305.0, 3) == 3
    kept.check()
    assert (kept.all(), kept.kept("a"), kept.kept("b")) == ([2, 3], [3], [2, 3])
    assert kept.cache.expire(305.0, 3) == 3
    assert kept.all() == []


def test_a_large_message_is_all_that_a_small_one_evicts() -> None:
    """With limits that have become smaller, what one publication evicts ends when it is twice its own size or more."""
    kept = Kept()
    for sequence in range(1, 4):
        kept.add(sequence, "a", data=b"1" * 9 * MESSAGE_OVERHEAD_BYTES)
    kept.rules.set_limits(Limits(retention_bytes=MESSAGE_OVERHEAD_BYTES))
    kept.add(4, "b")
    assert kept.all() == [2, 3, 4]


def test_an_old_message_takes_nothing_with_it_from_a_channel_that_was_opened_again() -> None:
    """It is still on another channel; the channel that dropped it when it closed has newer ones, which stay."""
    kept = Kept(retention_seconds=9.0)
    kept.add(1, "ab", time=1.0)
    kept.cache.drop_channel(kept.channels["a"])
    kept.add(2, "a", time=5.0)
    assert kept.cache.expire(10.0, 100) == 1
    assert (kept.all(), kept.kept("a"), kept.gap("b")) == ([2], [2], (1, "expired"))


def test_each_class_expires_at_its_own_time() -> None:
    """The longest prefix decides. A message that is kept for long does not keep others, even if it is older."""
    kept = Kept(retention_seconds=20.0, channels=(ChannelPolicy(prefix="a", retention_seconds=90.0),))
    for sequence, name in enumerate("abab", 1):
        kept.add(sequence, name, time=1.0)
    assert kept.cache.next_time == 21.0
    assert kept.cache.expire(21.0, 100) == 2
    kept.check()
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a"), kept.gap("b")) == (
        [1, 3],
        [],
        (0, "expired"),
        (4, "expired"),
    )
    assert (kept.cache.next_time, kept.cache.expire(91.0, 100)) == (91.0, 2)


def test_a_message_on_several_channels_is_kept_as_long_as_the_longest_says() -> None:
    """On the other channel it goes with the first one behind it: what a channel keeps has no holes."""
    kept = Kept(retention_seconds=5.0, channels=(ChannelPolicy(prefix="a", retention_seconds=90.0),))
    kept.add(1, "ab", time=1.0)
    kept.add(2, "b", time=2.0)
    assert kept.cache.expire(6.0, 100) == 0
    assert kept.cache.expire(7.0, 100) == 2
    kept.check()
    assert (kept.kept("a"), kept.kept("b"), kept.gap("b")) == ([1], [], (2, "expired"))


def test_each_class_has_its_own_number_and_bytes() -> None:
    """Whatever is left of `retention_bytes`."""
    policy = ChannelPolicy(prefix="a", retention_messages=3, retention_bytes=2 * (MESSAGE_OVERHEAD_BYTES + 1))
    kept = Kept(retention_messages=1, channels=(policy,))
    for sequence, name in enumerate("aabbaa", 1):
        kept.add(sequence, name)
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a"), kept.gap("b")) == (
        [5, 6],
        [4],
        (2, "evicted"),
        (3, "evicted"),
    )


def test_whoever_publishes_very_much_evicts_their_own_messages() -> None:
    """The publisher whose messages take most loses the oldest of them, however old those of others are."""
    kept = Kept(retention_bytes=8 * (MESSAGE_OVERHEAD_BYTES + 1))
    kept.add(1, "a", owner="small")
    kept.add(2, "b", owner="other")
    for sequence in range(3, 40):
        kept.add(sequence, "c", owner="large")
    assert (kept.kept("a"), kept.kept("b"), kept.kept("c")) == ([1], [2], list(range(34, 40)))
    assert (kept.gap("a")[0], kept.gap("b")[0], kept.gap("c")) == (0, 0, (33, "evicted"))


def test_a_channel_of_several_publishers_keeps_no_message_before_one_that_was_evicted() -> None:
    """A gap says that nothing up to its end is there."""
    kept = Kept(retention_bytes=4 * (MESSAGE_OVERHEAD_BYTES + 1))
    kept.add(1, "ab", owner="small")
    for sequence in range(2, 6):
        kept.add(sequence, "a", owner="large")
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a"), kept.gap("b")[0]) == ([3, 4, 5], [1], (2, "evicted"), 0)


def test_when_the_cache_is_full_shares_decide_which_class_evicts() -> None:
    """A class with twice the share ends up with twice the bytes, whoever comes first."""
    policies = (ChannelPolicy(prefix="a", share=2.0), ChannelPolicy(prefix="b"))
    kept = Kept(retention_bytes=9 * (MESSAGE_OVERHEAD_BYTES + 1), channels=policies)
    for sequence in range(1, 200):
        kept.add(sequence, "ab"[sequence % 2])
    assert (len(kept.kept("a")), len(kept.kept("b"))) == (6, 3)


def test_a_message_is_not_evicted_by_its_own_arrival() -> None:
    """Even if its publisher takes most with it: it would be lost before anybody has seen it."""
    kept = Kept(retention_bytes=4 * (MESSAGE_OVERHEAD_BYTES + 1))
    for sequence, owner in enumerate("pqr", 1):
        kept.add(sequence, "a", owner=owner)
    kept.add(4, "b", owner="s", data=b"1" * (MESSAGE_OVERHEAD_BYTES + 2))
    assert 4 in kept.all()


def test_what_an_owner_evicts_goes_on_with_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message does not do all of the work if it takes others of very many channels with it."""
    monkeypatch.setattr(cache_module, "EVICT_AT_MOST", 2)
    kept = Kept(retention_bytes=5 * (MESSAGE_OVERHEAD_BYTES + 1) + 5 * (MESSAGE_OVERHEAD_BYTES + 2000))
    for sequence in range(1, 6):
        kept.add(sequence, "a", owner="small")
    for sequence in range(6, 11):
        kept.add(sequence, "a" if sequence == 6 else "b", owner="large", data=b"1" * 2000)
    for sequence, left in ((11, [3, 4, 5, 6]), (12, [3, 4, 5, 6]), (13, [5, 6])):
        kept.add(sequence, "c")
        assert kept.kept("a") == left


def test_a_changed_policy_holds_for_messages_that_are_there() -> None:
    """If theirs is gone, the next longest prefix decides."""
    kept = Kept(retention_seconds=5.0, channels=(ChannelPolicy(prefix="a", retention_seconds=90.0),))
    kept.add(1, "a", time=1.0)
    kept.rules.set_limits(Limits(retention_seconds=7.0))
    kept.cache.use_limits()
    kept.add(2, "a", time=1.0)
    assert (kept.cache.next_time, kept.cache.expire(8.0, 100)) == (8.0, 2)


def test_ephemeral_messages_leave_no_gap() -> None:
    """They are kept for 5 s, apart from others, and dropped from between these."""
    kept = Kept()
    kept.add(1, "a")
    kept.add(2, "ab", ephemeral=True)
    kept.add(3, "a")
    assert kept.kept("a") == [1, 2, 3]
    assert (kept.cache.bytes, kept.cache.next_time) == (2 * (MESSAGE_OVERHEAD_BYTES + 1), 6.0)
    assert kept.cache.expire(6.0, 100) == 2
    kept.check()
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a")[0], kept.gap("b")[0]) == ([1, 3], [], 0, 0)
    assert set(kept.cache.drops.counts.values()) == {0}


def test_ephemeral_messages_drive_out_no_others() -> None:
    """Neither from a channel nor from the cache; they have bytes of their own."""
    size = MESSAGE_OVERHEAD_BYTES + 1
    kept = Kept(retention_messages=2, retention_bytes=3 * size, ephemeral_bytes=2 * size)
    for sequence in range(1, 4):
        kept.add(sequence, "aab"[sequence - 1])
    for sequence in range(4, 20):
        kept.add(sequence, "a", ephemeral=True)
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a")[0]) == ([1, 2, 18, 19], [3], 0)
    kept.add(20, "a")
    assert (kept.kept("a"), kept.gap("a")) == ([2, 18, 19, 20], (1, "evicted"))


def test_ephemeral_messages_go_with_what_is_behind_them() -> None:
    """A gap says that nothing up to its end is there. They go from all their channels."""
    kept = Kept(retention_messages=1)
    kept.add(1, "ab", ephemeral=True)
    kept.add(2, "a")
    kept.add(3, "a", ephemeral=True)
    kept.add(4, "a")
    assert (kept.kept("a"), kept.kept("b"), kept.gap("a"), kept.gap("b")[0]) == ([3, 4], [], (2, "evicted"), 0)


def test_an_ephemeral_message_stays_away_from_a_channel_that_was_opened_again() -> None:
    """The closing dropped it there, without a gap, while another channel keeps it."""
    kept = Kept()
    kept.add(1, "ab", ephemeral=True)
    channel = kept.channels["a"]
    kept.cache.drop_channel(channel)
    kept.all_channels.close(channel, 2, 1.0)
    kept.all_channels.open("a", None, 1.0)
    kept.check()
    assert (kept.kept("a"), kept.gap("a")[0], kept.all()) == ([], 0, [1])
    assert kept.cache.expire(6.0, 100) == 1
    assert kept.all() == []


def test_ephemeral_messages_are_part_of_what_one_message_may_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them are before the one that is evicted, and on however many channels."""
    monkeypatch.setattr(cache_module, "EVICT_AT_MOST", 5)
    kept = Kept(retention_messages=1)
    for sequence in range(1, 10):
        kept.add(sequence, "abc", ephemeral=True)
    kept.add(10, "a")
    for sequence, left in ((11, [3, 4, 5, 6, 7, 8, 9, 10, 11]), (12, [5, 6, 7, 8, 9, 10, 11, 12])):
        kept.add(sequence, "a")
        assert (kept.kept("a"), kept.kept("b")) == (left, [n for n in left if n < 10])
    assert kept.gap("a")[0] == 0
