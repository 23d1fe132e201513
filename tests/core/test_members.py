"""Who follows a channel: who joins, who is asked about, who leaves, and what the channel is told."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from pushup.core.attendance import Attendance, Away, Gone, Here, Key, Leave
from pushup.core.commands import Close, Command, Configure, Continue, Create, Entry
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.members import GONE_AT_MOST
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import head_of_new_epoch, restore, rows_of_new_epoch, take_apart

from .builders import EPOCH, Feed, publish
from .naive_state import NaiveState
from .random_entries import RandomPresence
from .saved_checkpoint import SavedCheckpoint, through_json

ANN, BOB, CY = ("room", "ann"), ("room", "bob"), ("room", "cy")


def here(*keys: Key, node: str = "n1", data: bytes = b"null") -> Here:
    return Here(node, tuple([Attendance(*key, Raw(data)) for key in keys]))


def away(*keys: Key, node: str = "n1", seconds: float = 2.0, is_closed: bool = False) -> Away:
    return Away(node, keys, seconds, is_closed) if is_closed else Away(node, keys, seconds)


def told(feed: Feed, channel: str = "room") -> list[tuple[int, dict[str, Any]]]:
    """The messages about members of this channel: their sequences and what they say."""
    return [
        (message.sequence, msgspec.json.decode(message.data))
        for message in feed.state.snapshot().messages
        if message.attributes is not None and message.attributes.event == "presence" and channel in message.channels
    ]


def subjects(feed: Feed, channel: str = "room") -> list[str]:
    return [member.subject for member in feed.state.members.of_channel(channel)]


def view(subject: str, since: float, data: Any = None) -> dict[str, Any]:
    return {"subject": subject, "since": since, "data": data}


@pytest.fixture
def feed() -> Feed:
    """With ann and bob in one room, by one node, since 100.0."""
    feed = Feed()
    feed.apply(here(BOB, ANN), 100.0)
    return feed


# Joining, and being asked about.


def test_who_joins_together_is_told_together(feed: Feed) -> None:
    assert subjects(feed) == ["ann", "bob"]
    assert told(feed) == [(1, {"count": 2, "joins": [view("ann", 100.0), view("bob", 100.0)]})]
    assert feed.state.touched.woken == [feed.state.channels.find("room")]


def test_each_channel_of_an_entry_has_a_place_of_its_own(feed: Feed) -> None:
    """A reader can be between two of them; the next entry comes after the last."""
    command = here(("b", "x"), ("a", "x"), ("b", "y"))
    assert command.width == 2
    feed.apply(command, 101.0)
    assert (told(feed, "b")[0][0], told(feed, "a")[0][0]) == (2, 3)
    assert feed.state.cursor.sequence == 3
    feed.apply(away(("a", "x"), ("b", "x"), ("b", "y")), 101.0)
    feed.apply(Leave((("b", "x"), ("a", "x"), ("b", "y"))), 103.0)
    assert (told(feed, "b")[-1], told(feed, "a")[-1]) == (
        (5, {"count": 0, "leaves": ["x", "y"]}),
        (6, {"count": 0, "leaves": ["x"]}),
    )


def test_who_goes_on_changes_nothing(feed: Feed) -> None:
    feed.state.note_changes()
    feed.apply(here(ANN), 101.0)
    assert feed.state.changes().rows == ()
    assert len(told(feed)) == 1
    assert feed.state.members.member(ANN) == feed.state.members.of_channel("room")[0]
    assert feed.state.touched.woken == []


def test_the_last_node_that_says_so_holds_a_member(feed: Feed) -> None:
    """Also if nobody has asked; and each node learns what it is said to have."""
    for node, other in (("n2", "n1"), ("n1", "n2")):
        command = here(ANN, node=node)
        feed.apply(command, 101.0)
        assert feed.state.touched.answered is command
        assert (ANN in feed.state.members.held_by(node), ANN in feed.state.members.held_by(other)) == (True, False)
    assert len(told(feed)) == 1


def test_other_data_are_an_update_and_null_is_none(feed: Feed) -> None:
    feed.apply(here(ANN, data=b'{"name":"Ann"}'), 101.0)
    assert told(feed)[-1] == (2, {"count": 2, "updates": [view("ann", 100.0, {"name": "Ann"})]})
    feed.apply(here(ANN), 102.0)
    feed.apply(here(ANN, data=b'{"name":"Ann"}'), 102.0)
    feed.apply(away(ANN), 103.0)
    feed.apply(here(ANN), 103.0)
    assert len(told(feed)) == 2
    assert [member.data for member in feed.state.members.of_channel("room")] == [Raw(b'{"name":"Ann"}'), Raw(b"null")]
    assert subjects(feed) == ["ann", "bob"]


def test_a_question_that_is_answered_changes_nothing(feed: Feed) -> None:
    """Whoever answers holds the member from then on; nobody is told."""
    feed.apply(away(ANN, BOB), 101.0)
    assert feed.state.touched.asked == [(ANN, False), (BOB, False)]
    assert feed.state.members.due(103.0, 9) == [ANN, BOB]
    feed.apply(here(ANN, node="n2"), 102.0)
    assert feed.state.touched.asked == []
    feed.apply(Leave((ANN, BOB)), 103.0)
    assert subjects(feed) == ["ann"]
    assert told(feed)[1:] == [(4, {"count": 1, "leaves": ["bob"]})]
    assert feed.state.members.holders == ["n2"]
    assert feed.state.members.next_leave is None
    feed.apply(away(ANN, node="n1"), 104.0)
    assert feed.state.touched.asked == []


def test_nobody_leaves_before_the_time(feed: Feed) -> None:
    feed.apply(away(ANN), 101.0)
    assert feed.state.members.due(102.9, 9) == []
    feed.apply(Leave((ANN, BOB)), 102.9)
    assert subjects(feed) == ["ann", "bob"]
    assert feed.state.members.due(103.0, 9) == [ANN]
    feed.apply(Leave((ANN, ANN, BOB)), 103.0)
    assert subjects(feed) == ["bob"]
    assert told(feed)[-1] == (4, {"count": 1, "leaves": ["ann"]})


def test_who_comes_back_afterwards_joins_again(feed: Feed) -> None:
    feed.apply(away(ANN), 101.0)
    feed.apply(Leave((ANN,)), 103.0)
    feed.apply(here(ANN), 104.0)
    assert subjects(feed) == ["bob", "ann"]
    assert told(feed)[-1] == (4, {"count": 2, "joins": [view("ann", 104.0)]})


def test_only_the_holder_asks_but_a_page_that_closes_asks_for_all(feed: Feed) -> None:
    feed.apply(away(ANN, node="n2"), 101.0)
    assert feed.state.touched.asked == []
    feed.apply(away(ANN, ("room", "zoe"), node="n2", is_closed=True), 101.0)
    assert feed.state.touched.asked == [(ANN, True)]


def test_a_second_question_does_not_change_the_time(feed: Feed) -> None:
    """But a page that closes shortens what is left."""
    feed.apply(away(ANN, seconds=9.0), 101.0)
    feed.apply(away(ANN, seconds=20.0), 102.0)
    feed.apply(away(ANN, seconds=1.0), 102.0)
    feed.apply(Gone("n1", 30.0), 102.0)
    assert feed.state.members.next_leave == 110.0
    feed.apply(away(ANN, is_closed=True), 103.0)
    assert feed.state.members.due(105.0, 9) == [ANN]
    feed.apply(away(ANN, seconds=50.0, is_closed=True), 103.0)
    assert feed.state.members.due(105.0, 9) == [ANN]


def test_a_node_that_is_gone_with_thousands_of_members() -> None:
    """Each entry asks about a thousand, the same on a replica that was restored."""
    feed = Feed(presence_limit=5)
    count = 2 * GONE_AT_MOST + 500
    keys = [("room", f"u{n}") for n in range(count)]
    feed.apply(here(*keys), 100.0)
    feed.apply(here(*keys[::7], node="n2"), 101.0)
    feed.apply(away(*keys[::7], node="n1"), 101.0)
    feed.apply(away(*keys[::7], node="n2"), 101.0)
    feed.apply(here(*reversed(keys[::7])), 101.0)
    assert len(feed.state.members.held_by("n1")) == count
    restored = restore(through_json(feed.state.snapshot()))
    for left in (GONE_AT_MOST + 500, 500, 0, 0):
        feed.apply(Gone("n1", 30.0), 102.0)
        restored.apply(Entry(EPOCH, feed.state.cursor.sequence, 102.0, Gone("n1", 30.0)))
        assert len(feed.state.members.held_by("n1")) == left
        assert restored.snapshot() == feed.state.snapshot()
        assert restored.touched.asked == feed.state.touched.asked
        assert not any(is_closed for _, is_closed in feed.state.touched.asked)
    assert len(feed.state.members.due(132.0, 2 * count)) == count
    feed.check()


# Limits.


def test_beyond_the_limit_a_channel_is_told_only_a_number_and_not_every_one() -> None:
    feed = Feed(presence_limit=3)
    for number in range(125):
        feed.apply(here(("room", f"u{number}")), 100.0)
    counts = [data["count"] for _, data in told(feed)]
    assert counts == [*range(1, 100), 100, 110, 120]
    assert [sorted(data) for _, data in told(feed)][2:4] == [["count", "joins"], ["count"]]
    feed.apply(away(*[("room", f"u{number}") for number in range(122)]), 101.0)
    feed.apply(Leave(tuple([("room", f"u{number}") for number in range(6)])), 110.0)
    assert told(feed)[-1][1] == {"count": 119}
    feed.apply(Leave(tuple([("room", f"u{number}") for number in range(122)])), 110.0)
    assert told(feed)[-1][1] == {"count": 3, "leaves": [f"u{number}" for number in range(6, 122)]}


@pytest.mark.parametrize("limit", [200, 202])
def test_passing_the_limit_is_told_though_the_digits_are_the_same(limit: int) -> None:
    """Else a page that has the list would keep it."""
    feed = Feed(presence_limit=limit)
    feed.apply(here(*[("room", f"u{number}") for number in range(200)]), 100.0)
    feed.apply(here(*[("room", f"one more: {number}") for number in range(3)]), 101.0)
    feed.apply(here(("room", "and another")), 101.0)
    assert [(data["count"], "joins" in data) for _, data in told(feed)] == [(200, True), (203, False)]


def test_nobody_joins_a_full_table_and_members_stay() -> None:
    feed = Feed(members_limit=2)
    feed.apply(here(ANN), 100.0)
    feed.apply(here(BOB, CY), 100.0)
    assert subjects(feed) == ["ann", "bob"]
    feed.apply(away(ANN), 101.0)
    feed.apply(here(ANN, CY), 102.0)
    assert feed.state.members.next_leave is None
    feed.apply(away(ANN), 103.0)
    feed.apply(Leave((ANN,)), 105.0)
    feed.apply(here(CY), 105.0)
    assert subjects(feed) == ["bob", "cy"]
    feed.apply(Configure(Limits(members_limit=1)), 106.0)
    feed.apply(here(ANN), 106.0)
    assert subjects(feed) == ["bob", "cy"]


def test_the_last_channel_that_can_be_opened() -> None:
    feed = Feed(channels_limit=2)
    feed.apply(here(ANN, ("other", "ann"), ("one too many", "ann")), 100.0)
    assert [subjects(feed, name) for name in ("room", "other", "one too many")] == [["ann"], ["ann"], []]


@pytest.mark.parametrize("limits", [{"strict_channels": True}, {"channels_limit": 1}])
def test_a_channel_that_cannot_be_opened_has_no_new_members(limits: dict[str, Any]) -> None:
    """But those that it has when it is closed do not leave because of that: they follow."""
    feed = Feed(**limits)
    feed.apply(Create("room"), 99.0)
    feed.apply(here(ANN, ("other", "ann"), ("17", "ann")), 100.0)
    assert (subjects(feed), subjects(feed, "other"), subjects(feed, "17")) == (["ann"], [], [])
    feed.apply(Close("room"), 100.0)
    feed.apply(Create("other"), 100.0)
    feed.apply(away(ANN), 101.0)
    feed.apply(here(ANN, BOB, data=b'"here again"'), 102.0)
    feed.apply(Leave((ANN,)), 103.0)
    assert subjects(feed) == ["ann"]
    feed.apply(away(ANN), 104.0)
    feed.apply(Leave((ANN,)), 106.0)
    assert subjects(feed) == []
    assert feed.state.channels.find("room") is None


def test_no_channel_is_opened_by_an_id() -> None:
    feed = Feed()
    feed.apply(here(("17", "ann")), 100.0)
    assert (subjects(feed, "17"), feed.state.channels.find("17")) == ([], None)


def test_no_webhook_for_a_channel_beyond_a_limit_that_was_lowered() -> None:
    """The application takes no calls, and those that wait stay."""
    policies = (ChannelPolicy(prefix="room", presence=True, occupancy_webhooks=True),)
    feed = Feed(unread_limit=5, channels=policies)
    feed.apply(here(("room1", "ann"), ("room2", "ann")), 100.0)
    feed.apply(Configure(Limits(unread_limit=1, channels=policies)), 100.0)
    feed.apply(here(("room3", "ann")), 100.0)
    rows = [feed.state.webhooks.row(name) for name in feed.state.webhooks.names()]
    assert [row.channels for row in rows if row is not None] == [("room1",), ("room2",)]


def test_a_closed_channel_is_opened_to_tell_who_comes_and_goes(feed: Feed) -> None:
    """A page may have read its members since it was closed, or since a new epoch began without it."""
    feed.apply(Close("room"), 101.0)
    feed.apply(away(ANN, BOB), 101.0)
    assert feed.state.channels.find("room") is None
    feed.apply(Leave((ANN,)), 103.0)
    feed.apply(here(CY), 104.0)
    assert told(feed) == [(4, {"count": 1, "leaves": ["ann"]}), (5, {"count": 2, "joins": [view("cy", 104.0)]})]


# What is stored.


def test_a_new_epoch_has_the_members_of_all_its_states(feed: Feed) -> None:
    """Of two rows of one member, that of the later join."""
    other = Feed()
    for _ in range(3):
        other.apply(publish("room"), 100.0)
    other.apply(here(CY, ANN), 105.0)
    states = (other.state, feed.state)
    saved = SavedCheckpoint()
    saved.save(Changes(head_of_new_epoch("e2", *states), tuple(rows_of_new_epoch(*states))))
    again = restore(saved.as_redis_reads_it(Random(1)))
    again.check()
    assert {member.subject: member.time for member in again.members.of_channel("room")} == {
        "ann": 105.0, "bob": 100.0, "cy": 105.0,
    }  # fmt: skip


def test_another_name_of_the_epoch_keeps_them(feed: Feed) -> None:
    feed.apply(Continue("e2"), 101.0)
    feed.apply(away(ANN), 101.0)
    feed.apply(Leave((ANN,)), 103.0)
    assert subjects(feed) == ["bob"]


def test_they_are_taken_apart(feed: Feed) -> None:
    for _ in take_apart(feed.state):
        pass
    assert (feed.state.members.names(), subjects(feed), feed.state.members.holders) == ([], [], [])


# All of it, against a model.


class Model:
    """A state, a model of it and a replica that is often restored, which get the same entries."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"members {seed}")
        self.limits = Limits(
            presence_limit=random.choice((2, 8, 200)),
            members_limit=random.choice((7, 100_000)),
            channels_limit=random.choice((2, 100_000)),
            channel_ttl_seconds=random.choice((20.0, 9000.0)),
        )
        users = tuple([f"u{n}" for n in range(random.choice((3, 30, 130)))])
        self.presence = RandomPresence(random, ("a", "b", "c"), users)
        self.state = ReplicatedState(self.limits, epoch=EPOCH)
        self.naive = NaiveState(self.limits, EPOCH)
        self.replica = restore(self.state.snapshot())
        self.state.note_changes()
        self.saved = SavedCheckpoint()
        self.time = 1000.0
        self.told: Counter[str] = Counter()

    def step(self) -> None:
        random = self.random
        self.time += random.choice((0.0, 0.0, 0.25, 0.5, 2.0))
        kind = random.random()
        if kind < 0.9:
            command = self.presence.command()
            due = self.state.members.due(self.time, 9)
            self.apply(Leave(tuple(due)) if due and random.random() < 0.2 else command)
        elif kind < 0.93:
            self.apply(publish("a", data='"x"'))
        elif kind < 0.95:
            self.apply(Close(random.choice("abc")))
        elif kind < 0.96:
            self.apply(Continue(f"e{self.naive.last + 2}"))
        elif kind < 0.97:
            self.apply(Configure(replace(self.limits, presence_limit=random.choice((0, 5, 50)))))
        else:
            self.saved.save(self.state.changes())
            self.state.note_changes()
            self.replica = restore(self.saved.as_redis_reads_it(random))

    def apply(self, command: Command) -> None:
        cursor = self.state.cursor
        entry = Entry(cursor.epoch, cursor.sequence + 1, self.time, command)
        outcome = self.naive.apply(entry)
        for state in (self.state, self.replica):
            assert type(state.apply(entry)) is type(outcome)
            state.check()
            assert state.touched.asked == self.naive.asked
            for channel in "abc":
                names = [member.subject for member in self.naive.members_of(channel)]
                assert [member.subject for member in state.members.of_channel(channel)] == names
                assert state.members.count(channel) == len(names)
        self.naive.assert_matches(self.state.snapshot())
        assert self.replica.snapshot() == self.state.snapshot()
        for message in self.naive.published[-3:]:
            if message.sequence >= entry.sequence and message.event:
                self.told.update(list(msgspec.json.decode(message.data)))


def test_the_state_is_as_the_model_says() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        model = Model(seed)
        for _ in range(250):
            model.step()
        seen += model.told
    assert min(seen[kind] for kind in ("count", "joins", "updates", "leaves")) > 50
    assert seen["count"] > seen["joins"] + seen["updates"]


def test_a_page_that_has_a_snapshot_and_all_later_messages_has_all_members() -> None:
    """While there are not too many of them for lists."""
    random = Random("fold")
    presence = RandomPresence(random, ("a", "b"), tuple("uvwxyz"))
    feed = Feed()
    page: dict[str, dict[str, tuple[float, Any]]] = {"a": {}, "b": {}}
    read = 0
    for number in range(500):
        feed.apply(presence.command(), 1000.0 + number / 4)
        for channel in page:
            for sequence, data in told(feed, channel):
                if sequence > read:
                    for one in (*data.get("joins", ()), *data.get("updates", ())):
                        page[channel][one["subject"]] = one["since"], one["data"]
                    for subject in data.get("leaves", ()):
                        del page[channel][subject]
                    assert data["count"] == len(page[channel])
            members = feed.state.members.of_channel(channel)
            assert page[channel] == {m.subject: (m.time, msgspec.json.decode(m.data)) for m in members}
        read = feed.state.cursor.sequence
    assert read > 300
