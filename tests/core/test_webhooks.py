"""Messages that wait for readers: who has read what, who is to be told when, and who tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from pushup.core.channel import Unread
from pushup.core.commands import (
    Claim,
    Claimed,
    Command,
    Configure,
    Continue,
    Done,
    Draft,
    Erase,
    Expire,
    Outcome,
    Publish,
    Published,
    Read,
    Told,
)
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest, Overloaded, PushUpError
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes
from pushup.core.state import EXPIRE_AT_MOST, ReplicatedState
from pushup.core.state_transfer import restore, take_apart

from .builders import EPOCH, Feed, draft
from .saved_checkpoint import SavedCheckpoint, new_epoch


def waiting(*subjects: str, channels: tuple[str, ...] = ("a",), after: float = 10.0) -> Draft:
    """A message that waits for these."""
    return Draft(channels, draft("a").data, None, Unread(after, subjects))


def publish(*subjects: str, channels: tuple[str, ...] = ("a",), after: float = 10.0) -> Publish:
    return Publish((waiting(*subjects, channels=channels, after=after),))


def id_of(sequence: int, epoch: str = EPOCH) -> str:
    return f"{epoch}-{sequence}"


def subjects_of(feed: Feed, id_: str) -> tuple[str, ...]:
    row = feed.state.webhooks.row(id_)
    return () if row is None else row.subjects


def seen_by(feed: Feed, subject: str, channel: str, sequence: int) -> tuple[str, ...]:
    return tuple(feed.state.unread_by(subject, [channel], Cursor(feed.state.cursor.epoch, sequence)))


@pytest.fixture
def feed() -> Feed:
    """With three messages: ann and bob are to read the first on `a`; ann the second on `b` or `c`; bob the third."""
    feed = Feed()
    feed.apply(publish("ann", "bob"), 100.0)
    feed.apply(publish("ann", channels=("b", "c")), 100.0)
    feed.apply(publish("bob", after=20.0), 100.0)
    return feed


# Reading.


def test_a_cursor_at_the_message_has_seen_it(feed: Feed) -> None:
    assert seen_by(feed, "ann", "a", 0) == ()
    assert seen_by(feed, "ann", "a", 1) == (id_of(1),)
    assert seen_by(feed, "bob", "a", 2) == (id_of(1),)
    assert seen_by(feed, "bob", "a", 3) == (id_of(1), id_of(3))


def test_it_is_read_on_its_own_channels_only(feed: Feed) -> None:
    assert seen_by(feed, "ann", "b", 9) == seen_by(feed, "ann", "c", 9) == (id_of(2),)
    assert [*feed.state.unread_by("ann", ["c", "b", "a"], Cursor(EPOCH, 9))] == [id_of(2), id_of(1)]
    assert seen_by(feed, "ann", "d", 9) == seen_by(feed, "zoe", "a", 9) == ()


def test_a_channel_may_be_given_by_its_id(feed: Feed) -> None:
    channel = feed.state.channels.find("a")
    assert channel is not None
    assert seen_by(feed, "ann", str(channel.id), 1) == (id_of(1),)


def test_who_has_read_it_is_waited_for_no_longer(feed: Feed) -> None:
    feed.apply(Read("ann", (id_of(1), id_of(3), id_of(77))), 101.0)
    assert subjects_of(feed, id_of(1)) == subjects_of(feed, id_of(3)) == ("bob",)
    assert seen_by(feed, "ann", "a", 9) == ()
    assert seen_by(feed, "bob", "a", 9) == (id_of(1), id_of(3))
    feed.apply(Read("bob", (id_of(1),)), 101.0)
    assert feed.state.webhooks.names() == [id_of(2), id_of(3)]
    feed.check()


def test_reading_after_it_is_due_comes_too_late(feed: Feed) -> None:
    """The first entry at or behind its time decides, even if that is the reading."""
    feed.apply(Read("ann", (id_of(1),)), 109.9)
    feed.apply(Read("bob", (id_of(1),)), 110.0)
    assert subjects_of(feed, id_of(1)) == ("bob",)
    assert seen_by(feed, "bob", "a", 9) == (id_of(3),)
    assert feed.apply(Claim((id_of(1),)), 110.0) == Claimed((id_of(1),))
    feed.apply(Read("bob", (id_of(1),)), 110.1)
    assert subjects_of(feed, id_of(1)) == ("bob",)


def test_a_cursor_of_a_former_name_counts_as_far_as_that_was_good(feed: Feed) -> None:
    feed.apply(Continue("e2"), 101.0)
    assert [*feed.state.unread_by("ann", ["a"], Cursor(EPOCH, 1))] == [id_of(1)]
    assert [*feed.state.unread_by("ann", ["a"], Cursor("e2", 4))] == [id_of(1)]
    assert [*feed.state.unread_by("ann", ["a"], Cursor(EPOCH, 9))] == []
    assert [*feed.state.unread_by("ann", ["a"], Cursor("e0", 9))] == []


# Calling.


def test_the_application_is_called_when_it_is_due(feed: Feed) -> None:
    assert feed.state.webhooks.ready(9) == []
    assert feed.state.next_expiry == 110.0
    feed.apply(Expire(), 110.0)
    assert feed.state.webhooks.ready(9) == [id_of(1), id_of(2)]
    assert feed.state.webhooks.ready(1) == [id_of(1)]


def test_one_gets_the_claim(feed: Feed) -> None:
    feed.apply(Expire(), 110.0)
    assert feed.apply(Claim((id_of(2), id_of(3), id_of(2), id_of(77))), 110.5) == Claimed((id_of(2),))
    assert feed.apply(Claim((id_of(2), id_of(1))), 110.5) == Claimed((id_of(1),))
    assert feed.state.webhooks.ready(9) == []


def test_a_claim_ends_and_each_takes_twice_as_long(feed: Feed) -> None:
    feed.apply(Told((id_of(1), id_of(3))), 101.0)
    feed.apply(Expire(), time := 110.0)
    for seconds in (15, 30, 60, 120, 240, 480, 600, 600):
        assert feed.apply(Claim((id_of(2),)), time) == Claimed((id_of(2),))
        feed.apply(Expire(), time + seconds - 0.5)
        assert feed.state.webhooks.ready(9) == []
        feed.apply(Expire(), time := time + seconds)
        assert feed.state.webhooks.ready(9) == [id_of(2)]
    row = feed.state.webhooks.row(id_of(2))
    assert row is not None
    assert row.attempts == 8


def test_what_the_application_was_told_is_gone(feed: Feed) -> None:
    feed.apply(Expire(), 110.0)
    feed.apply(Claim((id_of(1),)), 110.0)
    assert feed.apply(Told((id_of(1), id_of(77))), 111.0) == Done()
    feed.apply(Expire(), 1000.0)
    assert feed.state.webhooks.ready(9) == [id_of(2), id_of(3)]
    feed.check()


def test_what_nobody_claims_for_a_day_goes(feed: Feed) -> None:
    feed.apply(Expire(), 120.0)
    feed.apply(Expire(), 120.0 + 86_399.0)
    assert len(feed.state.webhooks.names()) == 3
    feed.apply(Expire(), 120.0 + 86_400.0)
    assert feed.state.webhooks.names() == []
    assert feed.state.webhooks.next_time is None


def test_a_deleted_message_waits_for_nobody(feed: Feed) -> None:
    feed.apply(Continue("e2"), 101.0)
    feed.apply(Erase("message", "", Cursor(EPOCH, 1)), 101.0)
    assert feed.state.webhooks.names() == [id_of(2), id_of(3)]


@pytest.mark.parametrize("readers", [1, 4])
def test_an_entry_makes_only_so_many_ready(readers: int) -> None:
    """Each reader is some work, on each channel."""
    feed = Feed(unread_limit=10 * EXPIRE_AT_MOST)
    names = tuple([f"user {number}" for number in range(readers)])
    for _ in range(2):
        message = waiting(*names, channels=("a", "b"))
        feed.apply(Publish(tuple([message] * (EXPIRE_AT_MOST // 2 // readers))), 100.0)
    for times in (1, 2):
        feed.apply(Expire(), 200.0)
        assert len(feed.state.webhooks.ready(10**6)) == times * EXPIRE_AT_MOST // 2 // readers


# The limit.


def test_a_full_table_refuses_and_drops_nothing() -> None:
    """Each subject counts once for each channel; what was refused was not published at all."""
    feed = Feed(unread_limit=5)
    feed.apply(publish("ann", "bob", channels=("a", "b")), 100.0)
    refused = feed.apply(Publish((waiting("ann"), waiting("bob"))), 100.0)
    assert isinstance(refused, Overloaded)
    assert "unread_limit" in str(refused)
    assert refused.retry_after == 60
    assert (feed.state.message_count, feed.state.webhooks.names()) == (1, [id_of(1)])
    assert isinstance(feed.apply(Publish((waiting("ann"), draft("a"))), 100.0), Published)
    assert isinstance(feed.apply(publish("ann"), 100.0), Overloaded)
    assert isinstance(feed.apply(Publish((draft("a"),)), 100.0), Published)
    feed.apply(Read("bob", (id_of(1),)), 101.0)
    assert isinstance(feed.apply(publish("ann", channels=("a", "b")), 101.0), Published)
    assert isinstance(feed.apply(publish("ann"), 101.0), Overloaded)


def test_a_limit_that_was_lowered_refuses_only_what_waits_for_readers() -> None:
    feed = Feed(unread_limit=5)
    feed.apply(publish("ann", "bob"), 100.0)
    feed.apply(Configure(Limits(unread_limit=1)), 100.0)
    assert isinstance(feed.apply(publish("ann"), 100.0), Overloaded)
    assert isinstance(feed.apply(Publish((draft("a"),)), 100.0), Published)
    assert len(feed.state.webhooks) == 1


def test_more_subjects_than_the_table_can_ever_have() -> None:
    feed = Feed(unread_limit=3)
    feed.apply(publish("ann"), 100.0)
    never = feed.apply(Publish((waiting("ann", "bob"), waiting("ann", "bob"))), 100.0)
    assert isinstance(never, BadRequest)
    assert (never.detail, never.field) == ("unread_limit is 3, and subjects times channels are 4 here", "for")
    assert isinstance(feed.apply(publish("ann", "bob", "eve"), 100.0), Overloaded)


def test_what_is_claimed_counts_as_well() -> None:
    feed = Feed(unread_limit=1)
    feed.apply(publish("ann"), 100.0)
    feed.apply(Claim((id_of(1),)), 110.0)
    assert isinstance(feed.apply(publish("ann"), 110.0), Overloaded)
    feed.apply(Told((id_of(1),)), 110.0)
    assert isinstance(feed.apply(publish("ann"), 110.0), Published)


# All of it, against a model.


@dataclass
class NaiveRow:
    id: str
    channels: tuple[str, ...]
    subjects: tuple[str, ...]
    next: float
    phase: str = "waits"
    attempts: int = 0


@dataclass
class NaiveWebhooks:
    """Rows in a list, looked at one by one."""

    epoch: str = EPOCH
    last: int = 0
    time: float = 0.0
    past: dict[str, int] = field(default_factory=dict)
    rows: list[NaiveRow] = field(default_factory=list)

    def apply(self, command: Command, time: float, limit: int) -> Outcome | None:
        if int(time) > self.time or isinstance(command, Expire):
            for row in [row for row in self.rows if row.next <= time]:
                if row.phase == "ready":
                    self.rows.remove(row)
                else:
                    row.phase, row.next = "ready", time + 86_400.0
        self.time = time
        first, self.last = self.last + 1, self.last + command.width
        match command:
            case Publish():
                new = [NaiveRow(id_of(first + n, self.epoch), m.channels, m.unread.subjects, time + m.unread.after)
                       for n, m in enumerate(command.messages) if m.unread is not None]  # fmt: skip
                if new and sum(len(row.channels) * len(row.subjects) for row in self.rows + new) > limit:
                    can_fit = sum(len(row.channels) * len(row.subjects) for row in new) <= limit
                    return Overloaded("") if can_fit else BadRequest("")
                self.rows += new
            case Read(subject=subject, ids=ids):
                for row in [row for row in self.rows if row.id in ids and row.phase == "waits"]:
                    row.subjects = tuple(each for each in row.subjects if each != subject)
                    if not row.subjects:
                        self.rows.remove(row)
            case Claim(ids=ids):
                claimed = [row for id_ in dict.fromkeys(ids) for row in self.rows if row.id == id_]
                claimed = [row for row in claimed if row.phase == "ready"]
                for row in claimed:
                    row.phase, row.next, row.attempts = "claimed", time + self.pause(row.attempts), row.attempts + 1
                return Claimed(tuple([row.id for row in claimed]))
            case Told(ids=ids):
                self.rows = [row for row in self.rows if row.id not in ids]
            case Continue(epoch=name):
                self.past[self.epoch], self.epoch = first - 1, name
        return None

    @staticmethod
    def pause(attempts: int) -> float:
        return (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0)[min(attempts, 6)]

    def place(self, epoch: str, sequence: int) -> int | None:
        return sequence if epoch == self.epoch or sequence <= self.past.get(epoch, -1) else None

    def unread_by(self, subject: str, channels: list[str], cursor: Cursor) -> set[str]:
        seen = self.place(cursor.epoch, cursor.sequence)
        found = set()
        for row in self.rows:
            epoch, _, sequence = row.id.rpartition("-")
            place = self.place(epoch, int(sequence))
            is_theirs = row.phase == "waits" and subject in row.subjects and set(channels) & set(row.channels)
            if is_theirs and seen is not None and place is not None and place <= seen:
                found.add(row.id)
        return found


class Model:
    """A state and the model of it, which get the same; the state is restored now and then, or its order is lost."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.feed = Feed(unread_limit=30)
        self.feed.state.note_changes()
        self.naive = NaiveWebhooks()
        self.saved = SavedCheckpoint()
        self.names = 1
        self.time = 1000.0
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        random, state = self.random, self.feed.state
        self.time += random.choice((0.0, 0.0, 0.1, 0.4, 1.0, 3.0, random.choice((0.0, 20.0, 600.0, 90_000.0))))
        kind = random.random()
        if kind < 0.3:
            self.apply(Publish(tuple([self.draft() for _ in range(random.choice((1, 1, 3)))])))
        elif kind < 0.55:
            subject, channels = random.choice("xyz"), random.sample("abc", random.choice((1, 2)))
            epoch = random.choice((state.cursor.epoch, *self.naive.past))
            cursor = Cursor(epoch, random.randrange(max(0, self.naive.last - 15), self.naive.last + 3))
            ids = tuple(state.unread_by(subject, channels, cursor))
            assert (set(ids), len(set(ids))) == (self.naive.unread_by(subject, channels, cursor), len(ids))
            self.seen["a reader"] += bool(ids)
            self.apply(Read(subject, ids or self.some_ids()))
        elif kind < 0.7:
            ready = state.webhooks.ready(random.choice((1, 9)))
            assert set(ready) <= {row.id for row in self.naive.rows if row.phase == "ready"}
            assert len(ready) == min(1, len(ready)) or len(set(ready)) == len(ready)
            outcome = self.apply(Claim(random.choice((tuple(ready), self.some_ids()))))
            self.seen["a claim"] += isinstance(outcome, Claimed) and bool(outcome.ids)
        elif kind < 0.75:
            self.apply(Told(self.some_ids()[:1]))
        elif kind < 0.85:
            self.apply(Expire())
        elif kind < 0.9:
            self.apply(Continue(self.new_name()))
        elif kind < 0.96:
            self.restore()
        else:
            self.lose()

    def draft(self) -> Draft:
        random = self.random
        subjects = tuple(random.sample("xyz", random.choice((1, 1, 2, 3))))
        channels = tuple(random.sample("abc", random.choice((1, 1, 2))))
        return waiting(*subjects, channels=channels, after=random.choice((0.5, 3.0, 30.0)))

    def some_ids(self) -> tuple[str, ...]:
        rows = self.naive.rows
        return tuple([row.id for row in self.random.sample(rows, min(2, len(rows)))])

    def new_name(self) -> str:
        self.names += 1
        return f"e{self.names}"

    def apply(self, command: Command) -> Outcome:
        outcome = self.feed.apply(command, self.time)
        expected = self.naive.apply(command, self.time, limit=30)
        assert isinstance(outcome, PushUpError) == isinstance(expected, PushUpError)
        assert not isinstance(expected, PushUpError) or type(outcome) is type(expected)
        if isinstance(expected, Claimed):
            assert outcome == expected
        again = [row.attempts for row in self.naive.rows if row.attempts > 1]
        self.seen.update({"full": isinstance(outcome, Overloaded), "claimed again": bool(again)})
        self.check()
        return outcome

    def restore(self) -> None:
        """From a checkpoint, which was saved piece by piece."""
        self.saved.save(self.feed.state.changes())
        snapshot = self.feed.state.snapshot()
        state = restore(self.saved.as_redis_reads_it(self.random))
        assert state.snapshot() == snapshot
        self.use(state)

    def lose(self) -> None:
        """The order is lost, and another begins with what its node knows."""
        states = self.random.choice(([self.feed.state], [ReplicatedState(self.feed.limits), self.feed.state]))
        state = new_epoch(self.new_name(), *states)
        self.use(state)
        self.naive.epoch, self.naive.past, self.naive.last = state.cursor.epoch, {}, state.cursor.sequence
        self.seen["a loss"] += 1

    def use(self, state: ReplicatedState) -> None:
        self.feed.use(state)
        state.note_changes()
        self.saved = SavedCheckpoint()
        self.saved.save(Changes(state.head, tuple(state.rows(state.names()))))
        self.check()

    def check(self) -> None:
        state, rows = self.feed.state, sorted(self.naive.rows, key=lambda row: row.id)
        state.webhooks.check()
        kept = [row for name in sorted(map(str, state.webhooks.names())) if (row := state.webhooks.row(name))]
        assert [(r.id, r.channels, r.subjects, r.next, r.attempts, r.is_ready, r.waits) for r in kept] == [
            (r.id, r.channels, r.subjects, r.next, r.attempts, r.phase == "ready", r.phase == "waits") for r in rows
        ]
        assert state.webhooks.next_time == min((row.next for row in rows), default=None)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_table_says_what_the_entries_say(seed: int) -> None:
    model = Model(Random(seed))
    for _ in range(1500):
        model.step()
    for kind in ("a reader", "a claim", "claimed again", "full", "a loss"):
        assert model.seen[kind] >= 10, model.seen


def test_of_two_states_that_which_went_further_begins_the_next_epoch() -> None:
    """A claim is not forgotten, and neither is a reader."""
    feed, behind = Feed(), Feed()
    for each in (feed, behind):
        each.apply(publish("ann", "bob"), 100.0)
        each.apply(publish("ann", after=50.0), 100.0)
        each.apply(publish("ann", "bob", after=50.0), 100.0)
    feed.apply(Read("bob", (id_of(1), id_of(3))), 101.0)
    feed.apply(Claim((id_of(1),)), 110.0)
    for states in ([feed.state, behind.state], [behind.state, feed.state]):
        again = new_epoch("e2", *states)
        rows = [again.webhooks.row(id_of(number)) for number in (1, 2, 3)]
        assert rows == [feed.state.webhooks.row(id_of(number)) for number in (1, 2, 3)]


def test_it_is_taken_apart(feed: Feed) -> None:
    for _ in take_apart(feed.state):
        pass
    assert feed.state.webhooks.names() == []
    assert not feed.state.webhooks.waits
