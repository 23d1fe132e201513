"""All channels by name and id, and their lives."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.core.channel import Channel
from pushup.core.directory import Directory, is_id
from pushup.core.errors import UnknownChannel
from pushup.core.limits import Limits


def directory_of(*names: str, **limits: Any) -> Directory:
    """A directory with channels that were opened at time 100."""
    directory = Directory(Limits(channel_ttl_seconds=60.0, retention_seconds=30.0, **limits))
    for name in names:
        directory.open(name, None, 100.0)
    return directory


def expired(directory: Directory, time: float) -> list[str]:
    """The channels that are to be closed at a time; they are."""
    names = []
    while (channel := directory.next_due(time)) is not None:
        if channel.due <= time:
            directory.close(channel, 50, time)
            names.append(channel.name)
        directory.check()
    return names


def channel_of(directory: Directory, name: str) -> Channel:
    channel = directory.find(name)
    assert channel is not None
    return channel


@pytest.mark.parametrize(
    ("name", "told"), [("7", True), ("007", True), ("7a", False), ("", False), ("٧", False), ("-7", False)]
)
def test_names_of_digits_only_are_ids(name: str, told: bool) -> None:
    """ASCII digits and nothing else."""
    assert is_id(name) == told


def test_a_channel_is_found_by_name_and_by_id() -> None:
    """Both lead to the same channel, and nothing else does."""
    directory = directory_of("a", "b")
    a = channel_of(directory, "a")
    assert channel_of(directory, str(a.id)) is a
    assert directory.find("c") is None
    assert directory.find("99") is None
    assert (len(directory), [c.name for c in directory]) == (2, ["a", "b"])


def test_ids_come_from_the_time_and_are_unique() -> None:
    """Two channels of one millisecond have ids of their own, and an id is never given again."""
    directory = directory_of("a", "b")
    assert [c.id for c in directory] == [100_000, 100_001]
    assert directory.open("c", None, 100.0005).id == 100_002
    assert directory.open("d", None, 200.0).id == 200_000
    assert directory.open("e", None, 150.0).id == 200_001


def test_a_channel_without_a_name_goes_by_its_id() -> None:
    """Its id is its name, for publishers and pollers."""
    directory = directory_of()
    channel = directory.open(None, None, 100.0)
    assert channel.name == str(channel.id) == "100000"
    assert directory.find("100000") is channel
    assert directory.wait_for("100000") is channel
    directory.check()


def test_an_idle_channel_is_due_at_its_expiry() -> None:
    """Channels close in the order in which they are due, not before their time."""
    directory = directory_of("a")
    directory.open("b", 10.0, 100.0)
    directory.open("c", 10.0, 99.5)
    assert directory.next_time == 110.0
    assert expired(directory, 109.9) == []
    assert expired(directory, 110.0) == ["b", "c"]
    assert expired(directory, 159.9) == []
    assert expired(directory, 160.0) == ["a"]
    assert len(directory) == 0


def test_renewing_begins_the_ttl_anew() -> None:
    """The expiry moves, and a ttl that is given stays."""
    directory = directory_of("a")
    a = channel_of(directory, "a")
    directory.renew(a, None, 130.0)
    assert (a.ttl, a.expires) == (60.0, 190.0)
    assert expired(directory, 189.0) == []
    directory.renew(a, 20.0, 189.0)
    directory.renew(a, None, 195.0)
    assert (a.ttl, a.expires) == (20.0, 215.0)
    assert expired(directory, 214.0) == []
    directory.check()
    assert expired(directory, 215.0) == ["a"]


def test_a_shorter_ttl_brings_the_expiry_forward() -> None:
    """A channel that is renewed with a shorter ttl closes earlier than it would have, once."""
    directory = directory_of("a", "b")
    directory.renew(channel_of(directory, "a"), 5.0, 101.0)
    assert directory.next_time == 106.0
    assert expired(directory, 105.9) == []
    assert expired(directory, 106.0) == ["a"]
    assert expired(directory, 160.0) == ["b"]


def test_publishing_puts_the_expiry_off_without_touching_the_tree() -> None:
    """A channel whose expiry moved on is looked at in vain and comes back at its new time."""
    directory = directory_of("a")
    channel_of(directory, "a").expires = 175.5
    assert expired(directory, 175.0) == []
    assert directory.next_time == 176.0
    assert expired(directory, 176.0) == ["a"]


def test_a_closed_channel_is_remembered_and_then_forgotten() -> None:
    """For as long as its messages would have been kept it tells of its closing; then the floor does."""
    directory = directory_of("a")
    a = channel_of(directory, "a")
    directory.close(a, 7, 110.0)
    assert directory.find("a") is None
    assert directory.find("100000") is None
    assert directory.wait_for("a") is a
    assert (a.closed, a.latest, directory.next_time) == (7, 7, 140.0)
    assert not directory.forget_due(139.9)
    assert directory.forget_due(140.0)
    assert not directory.forget_due(999.0)
    directory.check()
    assert (directory.floor, directory.next_time, list(directory.remembered())) == (7, None, [])
    again = directory.wait_for("a")
    assert again is not a
    assert (again.closed, again.dropped, again.reason) == (0, 7, "expired")
    directory.leave(again)
    directory.check()


def test_the_floor_is_the_highest_that_was_forgotten() -> None:
    """It never falls, and a channel that was never there has it as its gap."""
    directory = directory_of("a", "b")
    directory.close(channel_of(directory, "b"), 9, 101.0)
    directory.close(channel_of(directory, "a"), 7, 102.0)
    assert directory.forget_due(131.0)
    assert directory.floor == 9
    assert directory.forget_due(132.0)
    assert directory.floor == 9
    assert directory.open("new", None, 133.0).dropped == 9


def test_a_channel_that_lives_again_remembers_its_former_life() -> None:
    """It is not forgotten while it lives, and cursors from before its closing are still told."""
    directory = directory_of("a")
    a = channel_of(directory, "a")
    directory.close(a, 7, 110.0)
    assert directory.open("a", None, 120.0) is a
    assert (a.closed, a.id, a.expires) == (7, 120_000, 180.0)
    assert not directory.forget_due(999.0)
    directory.check()
    assert directory.find("100000") is None


def test_no_more_closed_channels_are_remembered_than_may_live() -> None:
    """When there are too many, the one that closed first is forgotten early, and the floor says so."""
    directory = directory_of("a", "b", channels_limit=2)
    for sequence, name in enumerate(("a", "b", "c"), 1):
        if name == "c":
            directory.open("c", None, 100.0)
        directory.close(channel_of(directory, name), sequence, 100.0 + sequence)
    directory.check()
    assert (directory.floor, [c.name for c in directory.remembered()]) == (1, ["b", "c"])


def test_there_is_room_up_to_the_limit_of_channels() -> None:
    """As many as the limit live at a time; then the error says when to try again."""
    directory = directory_of("a", channels_limit=3)
    assert directory.room_for(2) is None
    full = directory.room_for(3)
    assert full is not None
    assert (full.status, full.retry_after) == (503, 10)
    assert "3" in full.detail


def test_a_name_can_be_awaited_and_an_id_cannot() -> None:
    """A channel that does not exist yet is waited for; an id that does not live never will."""
    directory = directory_of()
    awaited = directory.wait_for("a")
    assert not awaited.living
    assert directory.wait_for("a") is awaited
    assert directory.open("a", None, 100.0) is awaited
    with pytest.raises(UnknownChannel) as caught:
        directory.wait_for("4711")
    assert (caught.value.field, caught.value.status) == ("channel", 404)


def test_strict_channels_are_not_awaited() -> None:
    """When channels are strict, an unknown name is an error; a closed one is when its closing is forgotten."""
    directory = directory_of("a", strict_channels=True)
    assert directory.wait_for("a").living
    with pytest.raises(UnknownChannel):
        directory.wait_for("b")
    directory.close(channel_of(directory, "a"), 7, 110.0)
    assert directory.wait_for("a").closed == 7
    assert directory.forget_due(140.0)
    with pytest.raises(UnknownChannel):
        directory.wait_for("a")


def test_what_nobody_waits_for_any_more_is_forgotten() -> None:
    """Leaving lets go of an awaited channel, not of one that lives or whose closing is remembered."""
    directory = directory_of("a", "b")
    directory.close(channel_of(directory, "b"), 7, 110.0)
    for name in ("a", "b", "c"):
        channel = directory.wait_for(name)
        directory.leave(channel)
        assert (directory.wait_for(name) is channel) == (name != "c")
        directory.leave(directory.wait_for(name))
    directory.check()
