"""All channels by name and id: opened, renewed, closed, remembered, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.core.change_log import ChangeLog
from pushup.core.channel import Channel, Touched
from pushup.core.channels import Channels, is_id
from pushup.core.errors import UnknownChannel
from pushup.core.limits import Limits
from pushup.core.machine_rules import Rules


def channels_of(*names: str, **limits: Any) -> Channels:
    """Channels that were opened at time 100."""
    all_limits = Limits(channel_ttl_seconds=60.0, retention_seconds=30.0, **limits)
    channels = Channels(Rules(all_limits), ChangeLog(0).of("channels"), Touched())
    for name in names:
        channels.open(name, None, 100.0)
    return channels


def close_expired(channels: Channels, time: float) -> list[str]:
    """Close the channels that are due, and return their names."""
    names = []
    while (channel := channels.next_due(time)) is not None:
        if channel.due <= time:
            channels.close(channel, 50, time)
            names.append(channel.name)
        channels.check()
    return names


def channel_of(channels: Channels, name: str) -> Channel:
    channel = channels.find(name)
    assert channel is not None
    return channel


@pytest.mark.parametrize(
    ("name", "expected"), [("7", True), ("007", True), ("7a", False), ("", False), ("٧", False), ("-7", False)]
)
def test_names_of_digits_only_are_ids(name: str, expected: bool) -> None:
    """Only ASCII digits count."""
    assert is_id(name) == expected


def test_a_channel_is_found_by_name_and_by_id() -> None:
    channels = channels_of("a", "b")
    a = channel_of(channels, "a")
    assert channel_of(channels, str(a.id)) is a
    assert channels.find("c") is None
    assert channels.find("99") is None
    assert (len(channels), [c.name for c in channels]) == (2, ["a", "b"])


def test_ids_come_from_the_time_and_are_unique() -> None:
    """Channels opened in the same millisecond get different ids, and an id is never reused."""
    channels = channels_of("a", "b")
    assert [c.id for c in channels] == [100_000, 100_001]
    assert channels.open("c", None, 100.0005).id == 100_002
    assert channels.open("d", None, 200.0).id == 200_000
    assert channels.open("e", None, 150.0).id == 200_001


def test_the_first_id_at_the_beginning_of_time_is_1() -> None:
    """0 is the id of a channel that is not open."""
    channels = channels_of()
    assert channels.open("a", None, 0.0).id == 1
    assert [channel.name for channel in channels.page()] == ["a"]
    channels.check()


def test_the_error_says_what_is_wrong_with_an_id() -> None:
    """Digits are taken for an id, so a publisher who meant a name is told what to use instead."""
    channels = channels_of()
    with pytest.raises(UnknownChannel, match="must not be digits only"):
        channels.get("4711")
    with pytest.raises(UnknownChannel, match="'a' does not exist"):
        channels.get("a")


def test_a_channel_without_a_name_is_named_by_its_id() -> None:
    channels = channels_of()
    channel = channels.open(None, None, 100.0)
    assert channel.name == str(channel.id) == "100000"
    assert channels.find("100000") is channel
    assert channels.resolve("100000") is channel
    channels.check()


def test_an_idle_channel_is_due_at_its_expiry() -> None:
    channels = channels_of("a")
    channels.open("b", 10.0, 100.0)
    channels.open("c", 10.0, 99.5)
    assert channels.next_time == 110.0
    assert close_expired(channels, 109.9) == []
    assert close_expired(channels, 110.0) == ["b", "c"]
    assert close_expired(channels, 159.9) == []
    assert close_expired(channels, 160.0) == ["a"]
    assert len(channels) == 0


def test_renewing_restarts_the_ttl() -> None:
    channels = channels_of("a")
    a = channel_of(channels, "a")
    channels.renew(a, None, 130.0)
    assert (a.ttl, a.expires) == (60.0, 190.0)
    assert close_expired(channels, 189.0) == []
    channels.renew(a, 20.0, 189.0)
    channels.renew(a, None, 195.0)
    assert (a.ttl, a.expires) == (20.0, 215.0)
    assert close_expired(channels, 214.0) == []
    channels.check()
    assert close_expired(channels, 215.0) == ["a"]


def test_a_shorter_ttl_brings_the_expiry_forward() -> None:
    channels = channels_of("a", "b")
    channels.renew(channel_of(channels, "a"), 5.0, 101.0)
    assert channels.next_time == 106.0
    assert close_expired(channels, 105.9) == []
    assert close_expired(channels, 106.0) == ["a"]
    assert close_expired(channels, 160.0) == ["b"]


def test_publishing_postpones_the_expiry_without_touching_the_tree() -> None:
    """A channel whose expiry has moved is checked at the old time, and put back at the new one."""
    channels = channels_of("a")
    channel_of(channels, "a").expires = 175.5
    assert close_expired(channels, 175.0) == []
    assert channels.next_time == 176.0
    assert close_expired(channels, 176.0) == ["a"]


def test_a_closed_channel_is_remembered_and_then_forgotten() -> None:
    """It reports its closing for the retention time; after that the floor does."""
    channels = channels_of("a")
    a = channel_of(channels, "a")
    channels.close(a, 7, 110.0)
    assert channels.find("a") is None
    assert channels.find("100000") is None
    assert channels.resolve("a") is a
    assert (a.closed_sequence, a.latest_sequence, channels.next_time) == (7, 7, 140.0)
    assert not channels.forget_due(139.9, 99)
    assert channels.forget_due(140.0, 99)
    assert not channels.forget_due(999.0, 99)
    channels.check()
    assert (channels.floor, channels.next_time, channels.names()) == (7, None, [])
    again = channels.resolve("a")
    assert again is not a
    assert (again.closed_sequence, again.dropped_sequence, again.reason) == (0, 7, "expired")
    channels.check()


def test_the_floor_is_the_highest_forgotten_sequence() -> None:
    """It never falls, and a new channel starts with a gap up to it."""
    channels = channels_of("a", "b")
    channels.close(channel_of(channels, "b"), 9, 101.0)
    channels.close(channel_of(channels, "a"), 7, 102.0)
    assert channels.forget_due(131.0, 99)
    assert channels.floor == 9
    assert channels.forget_due(132.0, 99)
    assert channels.floor == 9
    assert channels.open("new", None, 133.0).dropped_sequence == 9


def test_channels_of_one_second_are_in_one_order() -> None:
    """Open ones by id, closed ones by closing and name, however they were put there: checkpoints keep no order."""
    channels = channels_of("a", "b", "c", "d")
    for name in "dcab":
        channels.renew(channel_of(channels, name), 5.0, 101.0)
    assert [channels.next_due(106.0) for _ in range(4)] == list(channels)
    for name, sequence in (("b", 8), ("d", 7), ("c", 7), ("a", 8)):
        channels.close(channel_of(channels, name), sequence, 106.0)
    channels.check()
    left = []
    while channels.forget_due(136.0, 99):
        left.append("".join(map(str, channels.names())))
    assert left == ["abd", "ab", "b", ""]


def test_a_reopened_channel_remembers_its_closing() -> None:
    """It is not forgotten while it is open, and cursors from before its closing still get it."""
    channels = channels_of("a")
    a = channel_of(channels, "a")
    channels.close(a, 7, 110.0)
    assert channels.open("a", None, 120.0) is a
    assert (a.closed_sequence, a.id, a.expires) == (7, 120_000, 180.0)
    assert not channels.forget_due(999.0, 99)
    channels.check()
    assert channels.find("100000") is None


def test_at_most_channels_limit_closed_channels_are_remembered() -> None:
    """Beyond that, the one that closed first is forgotten early, and the floor covers it."""
    channels = channels_of("a", "b", channels_limit=2)
    for sequence, name in enumerate(("a", "b", "c"), 1):
        if name == "c":
            channels.open("c", None, 100.0)
        channels.close(channel_of(channels, name), sequence, 100.0 + sequence)
    channels.check()
    assert (channels.floor, channels.names()) == (1, ["b", "c"])


def test_there_is_room_up_to_channels_limit() -> None:
    channels = channels_of("a", channels_limit=3)
    assert channels.room_for(2) is None
    full = channels.room_for(3)
    assert full is not None
    assert full.retry_after == 10
    assert "3" in full.detail


def test_a_name_can_be_awaited_and_an_id_cannot() -> None:
    """A name without a channel reads as empty and is not kept; an id without a channel is an error."""
    channels = channels_of()
    awaited = channels.resolve("a")
    assert (awaited.is_open, awaited.is_remembered, channels.remembered("a")) == (False, False, None)
    opened = channels.open("a", None, 100.0)
    assert opened is not awaited
    assert channels.resolve("a") is opened
    with pytest.raises(UnknownChannel) as caught:
        channels.resolve("4711")
    assert caught.value.field == "channel"


def test_strict_channels_are_not_awaited() -> None:
    """With strict channels an unknown name is an error, and a closed one becomes an error when it is forgotten."""
    channels = channels_of("a", strict_channels=True)
    assert channels.resolve("a").is_open
    with pytest.raises(UnknownChannel):
        channels.resolve("b")
    channels.close(channel_of(channels, "a"), 7, 110.0)
    assert channels.resolve("a").closed_sequence == 7
    assert channels.forget_due(140.0, 99)
    with pytest.raises(UnknownChannel):
        channels.resolve("a")


def test_opened_closed_and_forgotten_channels_are_touched() -> None:
    touched = Touched()
    assert touched.continued_after is None
    channels = Channels(Rules(Limits(retention_seconds=30.0)), ChangeLog(0).of("channels"), touched)
    a = channels.open("a", None, 100.0)
    assert (touched.opened, touched.woken, touched.forgotten) == ([a], [], [])
    touched.clear()
    channels.close(a, 7, 110.0)
    assert (touched.opened, touched.woken, touched.forgotten) == ([], [a], [])
    touched.clear()
    channels.forget_due(140.0, 99)
    assert (touched.opened, touched.woken, touched.forgotten) == ([], [], [a])
    assert a.closed_sequence == 7, "a forgotten channel keeps its last state"
    touched.continued_after = 7
    touched.clear()
    assert (touched.opened, touched.woken, touched.forgotten) == ([], [], [])
    assert touched.continued_after is None
