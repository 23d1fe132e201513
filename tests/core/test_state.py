"""The replicated state: the outcome of each entry, and what expires."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Unread
from pushup.core.commands import (
    ChannelState,
    Close,
    Closed,
    Command,
    Configure,
    Continue,
    Create,
    Done,
    Entry,
    Expire,
    Publish,
    Published,
    Renew,
    Upgrade,
)
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest, ChannelExists, KeyReused, OutOfOrder, Overloaded, UnknownChannel
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.state import EXPIRE_AT_MOST, ReplicatedState

from .builders import EPOCH, Feed, batch, draft, gaps, ids, poll, publish


def test_each_message_of_a_batch_has_its_own_sequence(feed: Feed) -> None:
    assert feed.apply(batch(draft("a"), draft("b"), draft("a", "b")), 1.0) == Published(EPOCH, 1, 3, 1.0)
    assert feed.state.cursor == Cursor(EPOCH, 3)
    assert feed.apply(publish("a"), 1.0) == Published(EPOCH, 4, 1, 1.0)
    assert ids(feed.ask(poll("a"))) == [1, 3, 4]
    assert (feed.state.message_count, len(feed.state.channels)) == (4, 2)
    feed.check()


@pytest.mark.parametrize(
    "entry",
    [
        Entry(EPOCH, 4, 5.0, Expire()),
        Entry(EPOCH, 2, 5.0, Expire()),
        Entry(EPOCH, 1, 5.0, Expire()),
        Entry("e2", 3, 5.0, Expire()),
        Entry(EPOCH, 3, 4.999, Expire()),
    ],
    ids=["hole", "repetition", "from the past", "fork", "time falls"],
)
def test_an_entry_that_does_not_follow_is_refused(feed: Feed, entry: Entry) -> None:
    """A missing sequence, a repeated one, another epoch or an earlier time raises, and nothing changes."""
    feed.apply(batch(draft("a"), draft("a")), 5.0)
    before = feed.state.snapshot()
    with pytest.raises(OutOfOrder):
        feed.state.apply(entry)
    assert feed.state.snapshot() == before
    assert feed.state.apply(Entry(EPOCH, 3, 5.0, Expire())) == Done()


def test_a_new_state_has_no_epoch() -> None:
    """While none is known, its cursor is of the empty one, and its time is before every entry."""
    state = ReplicatedState(Limits())
    assert (state.cursor, state.time, state.message_count, state.cache.bytes) == (Cursor("", 0), 0.0, 0, 0)


def test_messages_count_with_their_size(feed: Feed) -> None:
    """Each once, with its overhead."""
    feed.apply(batch(draft("a", "b", data="123"), draft("a", data="1")), 1.0)
    assert feed.state.cache.bytes == 2 * MESSAGE_OVERHEAD_BYTES + 4


def test_only_the_last_entry_has_touched_channels(feed: Feed) -> None:
    """An entry that does nothing wakes nobody."""
    feed.apply(publish("a"), 1.0)
    touched = feed.state.touched
    assert ([c.name for c in touched.woken], [c.name for c in touched.opened]) == (["a"], ["a"])
    feed.apply(Expire(), 1.0)
    assert (touched.woken, touched.opened, touched.forgotten) == ([], [], [])


@pytest.mark.parametrize(
    "command",
    [Create("b"), Renew("a"), Close("a"), Expire(), Continue("e2"), Upgrade(1), Configure(Limits())],
    ids=lambda command: type(command).__name__,
)
def test_every_other_entry_takes_one_place(feed: Feed, command: Command) -> None:
    """Whatever its outcome; the next message has the next sequence."""
    feed.apply(publish("a"), 1.0)
    feed.apply(command, 1.0)
    assert feed.state.cursor.sequence == 2


def test_a_fingerprint_never_changes() -> None:
    """Checkpoints keep it: a publication that is repeated after an upgrade must be recognized."""
    command = batch(draft("a", "é", data='"x"'), draft("b", data="[1]"), key="k")
    assert command.fingerprint == "34764577f6e44ad30312697c08ec75df"


def test_what_a_fingerprint_includes() -> None:
    """Also the order of channels, and by when who should read a message (KEY-2)."""
    one = draft("a", "b")
    readers = [(1.0, ("ann", "bob")), (2.0, ("ann", "bob")), (1.0, ("bob", "ann"))]
    others = [draft("b", "a"), draft("a", "b", event="x"), *(replace(one, unread=Unread(*each)) for each in readers)]
    assert len({batch(each).fingerprint for each in (one, *others)}) == 6


def test_a_repeated_key_returns_the_first_outcome_and_publishes_nothing(feed: Feed) -> None:
    """The sequences are used up all the same."""
    first = feed.apply(batch(draft("a"), draft("b"), key="k"), 1.0)
    assert feed.apply(batch(draft("a"), draft("b"), key="k"), 2.0) == first == Published(EPOCH, 1, 2, 1.0)
    assert feed.state.cursor == Cursor(EPOCH, 4)
    assert (feed.state.message_count, len(feed.state.channels)) == (2, 2)
    assert feed.apply(publish("a", key="other"), 3.0) == Published(EPOCH, 5, 1, 3.0)


@pytest.mark.parametrize(
    "other",
    [
        batch(draft("a", data="2"), draft("b", data="1"), key="k"),
        batch(draft("a", data="1"), key="k"),
        batch(draft("a", data="1", event="e"), draft("b", data="1"), key="k"),
        batch(draft("a", data="1"), draft("b", data="1"), draft("b", data="1"), key="k"),
        batch(draft("b", data="1"), draft("a", data="1"), key="k"),
        batch(draft("a", "b", data="1"), draft("b", data="1"), key="k"),
    ],
)
def test_a_key_is_refused_for_other_messages(feed: Feed, other: Publish) -> None:
    """With other data, channels, order or number of messages nothing is published, and the publisher gets an error."""
    first = feed.apply(batch(draft("a", data="1"), draft("b", data="1"), key="k"), 1.0)
    reused = feed.apply(other, 2.0)
    assert isinstance(reused, KeyReused)
    assert reused.field == "Idempotency-Key"
    assert feed.state.message_count == 2
    assert feed.apply(batch(draft("a", data="1"), draft("b", data="1"), key="k"), 3.0) == first


@pytest.mark.parametrize(("version", "end"), [(1, 11.0), (2, 31.0)])
def test_a_key_is_remembered_as_long_as_any_message(version: int, end: float) -> None:
    """Of whatever class that is. In version 1, as long as those of channels without a policy."""
    feed = Feed(retention_seconds=10.0, channels=(ChannelPolicy(prefix="a", retention_seconds=30.0),))
    feed.state.rules.version = version
    feed.apply(publish("a", key="k"), 1.0)
    assert feed.apply(publish("a", key="k"), end - 0.1) == Published(EPOCH, 1, 1, 1.0)
    assert feed.apply(publish("a", key="k"), end) == Published(EPOCH, 3, 1, end)


def test_a_refused_publication_does_not_use_up_its_key() -> None:
    feed = Feed(channels_limit=1)
    assert isinstance(feed.apply(batch(draft("a"), draft("b"), key="k"), 1.0), BadRequest)
    assert feed.apply(publish("a", key="k"), 1.0) == Published(EPOCH, 3, 1, 1.0)


@pytest.mark.parametrize("strict", [False, True])
def test_a_batch_is_published_as_a_whole_or_not_at_all(strict: bool) -> None:
    feed = Feed(channels_limit=4, strict_channels=strict)
    feed.apply(Create("a"), 1.0)
    feed.apply(Create("z"), 1.0)
    feed.hold(poll("a", timeout=10.0), 1.0)
    for bad in (batch(draft("a"), draft("4711")), batch(draft("a"), draft("b", "c"), draft("d"))):
        before = feed.state.snapshot()
        outcome = feed.apply(bad, 1.0)
        assert isinstance(outcome, UnknownChannel if strict or bad.width == 2 else Overloaded)
        after = feed.state.snapshot()
        assert (after.tables, after.head.last_id) == (before.tables, before.head.last_id)
        assert not feed.polls.has_deliveries


def test_publishing_opens_channels_up_to_the_limit() -> None:
    """A new name counts once however often the batch contains it; existing channels need no room."""
    feed = Feed(channels_limit=2)
    assert isinstance(feed.apply(batch(draft("a", "b"), draft("b")), 1.0), Published)
    assert isinstance(feed.apply(publish("a", "b"), 1.0), Published)
    full = feed.apply(publish("c"), 1.0)
    assert isinstance(full, Overloaded)
    assert isinstance(feed.apply(Create("c"), 1.0), Overloaded)
    feed.apply(Close("a"), 1.0)
    assert isinstance(feed.apply(publish("c"), 1.0), Published)


def test_a_publication_that_needs_more_channels_than_can_ever_be_open() -> None:
    """Those that are open count as well, but only once if they are given by name and id."""
    feed = Feed(channels_limit=3)
    a = feed.apply(Create("a"), 1.0)
    assert isinstance(a, ChannelState)
    never = feed.apply(batch(draft("a", "b"), draft("b", "c", "d")), 1.0)
    assert isinstance(never, BadRequest)
    assert (never.detail, never.field) == ("channels_limit is 3, and these are 4 channels", "channels")
    feed.apply(Create("z"), 1.0)
    fits = batch(draft("a", "b"), draft(str(a.id), "c"), key="k")
    assert isinstance(feed.apply(fits, 1.0), Overloaded)
    feed.apply(Close("z"), 1.0)
    published = feed.apply(fits, 1.0)
    assert isinstance(published, Published)
    feed.apply(Configure(replace(feed.state.limits, channels_limit=1)), 1.0)
    assert feed.apply(fits, 1.0) == published, "the key is known"
    assert isinstance(feed.apply(replace(fits, key=None), 1.0), Published), "all are open still"
    assert isinstance(feed.apply(publish("a", "x"), 1.0), BadRequest)
    assert isinstance(feed.apply(publish("x"), 1.0), Overloaded)
    feed.apply(Configure(replace(feed.state.limits, channels_limit=1, unread_limit=1)), 1.0)
    never = feed.apply(batch(replace(draft("x"), unread=Unread(60.0, ("ann", "bob")))), 1.0)
    assert isinstance(never, BadRequest), "although there is no room for channels now, either"
    assert never.field == "for"


def test_strict_channels_must_be_created_first() -> None:
    feed = Feed(strict_channels=True)
    error = feed.apply(publish("a"), 1.0)
    assert isinstance(error, UnknownChannel)
    assert error.field == "channels"
    with pytest.raises(UnknownChannel):
        feed.ask(poll("a"))
    feed.apply(Create("a"), 1.0)
    assert isinstance(feed.apply(publish("a"), 1.0), Published)
    assert ids(feed.ask(poll("a"))) == [3]
    with pytest.raises(UnknownChannel):
        feed.ask(poll("a", "b"))
    feed.check()


def test_a_channel_is_created_renewed_and_closed() -> None:
    """Both name and id work; a channel that is not open is unknown, and an open one cannot be created again."""
    feed = Feed(channel_ttl_seconds=60.0)
    assert feed.apply(Create("a"), 1.0) == ChannelState(1000, "a", 61.0)
    assert feed.apply(Create(None, 5.0), 1.0) == ChannelState(1001, "1001", 6.0)
    exists = feed.apply(Create("a"), 1.5)
    assert isinstance(exists, ChannelExists)
    assert exists.field == "name"
    assert feed.apply(Renew("1000", 10.0), 2.0) == ChannelState(1000, "a", 12.0)
    assert feed.apply(Renew("a"), 3.0) == ChannelState(1000, "a", 13.0)
    assert feed.apply(Close("1001"), 3.0) == Closed("1001")
    assert isinstance(feed.apply(Close("1001"), 3.0), UnknownChannel)
    assert isinstance(feed.apply(Renew("b"), 3.0), UnknownChannel)
    assert [c.name for c in feed.state.channels.page()] == ["a"]
    assert feed.state.channels.get("1000").name == "a"
    with pytest.raises(UnknownChannel):
        feed.state.channels.get("1001")
    assert feed.apply(Create("1b", 5.0), 4.0) == ChannelState(4000, "1b", 9.0)


def test_a_channel_given_by_name_and_by_id_gets_a_message_once(feed: Feed) -> None:
    """The answer names the channel by its name."""
    feed.apply(Create("a"), 1.0)
    feed.apply(publish("a", "1000"), 1.0)
    answer = feed.ask(poll("1000", "a"))
    assert [(m.id, m.channels) for m in answer.messages] == [("e1-2", ("a",))]
    feed.check()


def test_an_idle_channel_closes_and_publishing_keeps_it_open() -> None:
    """Each message restarts its ttl; when it closes, its messages are dropped and old cursors get a gap."""
    feed = Feed(channel_ttl_seconds=10.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(publish("a"), 9.0)
    feed.apply(Expire(), 18.9)
    assert len(feed.state.channels) == 1
    assert feed.state.next_expiry == 19.0
    feed.apply(Expire(), 19.0)
    assert (len(feed.state.channels), feed.state.message_count) == (0, 0)
    answer = feed.ask(poll("a", cursor="e1-1"))
    assert (answer.closed, gaps(answer), ids(answer)) == (("a",), [("a", "closed")], [])


def test_messages_expire_and_older_cursors_get_a_gap() -> None:
    """The first entry of a later second expires whatever is too old."""
    feed = Feed(retention_seconds=10.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(publish("a"), 2.0)
    assert feed.state.next_expiry == 11.0
    feed.apply(publish("b"), 11.0)
    answer = feed.ask(poll("a", cursor="e1-0"))
    assert (ids(answer), gaps(answer)) == ([2], [("a", "expired")])
    assert gaps(feed.ask(poll("a", cursor="e1-1"))) == []
    assert feed.state.next_expiry == 12.0


def test_the_next_expiry_is_when_something_expires() -> None:
    feed = Feed(retention_seconds=10.0, channel_ttl_seconds=4.0)
    feed.apply(publish("a", key="k"), 1.25)
    feed.apply(Create("b", 30.0), 2.5)
    times: list[float] = []
    while (due := feed.state.next_expiry) is not None:
        before = feed.state.snapshot()
        feed.apply(Expire(), due)
        after = feed.state.snapshot()
        assert after.tables != before.tables
        times.append(due)
    # a closes at 6 (1.25 + 4, by whole seconds), the key goes, a is forgotten, b closes, b is forgotten.
    assert times == [6.0, 11.25, 16.0, 33.0, 43.0]
    assert feed.state.head.floor == 6


def test_a_backlog_expires_over_several_entries() -> None:
    feed = Feed(retention_seconds=10.0, retention_messages=10**6, channel_ttl_seconds=20.0)
    left = 250
    feed.apply(batch(*[draft("a")] * (EXPIRE_AT_MOST + left)), 1.0)
    feed.apply(batch(*[draft(f"c{n}") for n in range(EXPIRE_AT_MOST)]), 1.0)
    feed.apply(Expire(), 11.0)
    assert feed.state.message_count == EXPIRE_AT_MOST + left
    assert feed.state.next_expiry == 11.0
    feed.apply(Expire(), 11.0)
    assert feed.state.message_count == left
    feed.apply(Expire(), 11.0)
    assert (feed.state.message_count, len(feed.state.channels)) == (0, EXPIRE_AT_MOST + 1)
    feed.apply(Expire(), 21.0)
    assert len(feed.state.channels) == 1
    feed.apply(Expire(), 21.0)
    assert len(feed.state.channels) == 0
    feed.apply(Expire(), 31.0)
    assert len(feed.state.snapshot().channels) == 1
    feed.apply(Expire(), 31.0)
    assert feed.state.snapshot().channels == ()
    feed.check()


def test_what_an_entry_has_begun_may_exceed_its_share_and_ends_it() -> None:
    """One large channel closes as a whole; closed channels are forgotten by the next entry then."""
    feed = Feed(retention_seconds=10.0, retention_messages=10**6, channel_ttl_seconds=99.0)
    feed.apply(Create("large", 19.0), 1.0)
    feed.apply(Create("closed"), 1.0)
    feed.apply(Close("closed"), 10.0)
    feed.apply(batch(*[draft("large")] * (EXPIRE_AT_MOST + 1)), 10.5)
    feed.apply(Renew("large", 9.0), 10.5)
    feed.apply(Expire(), 20.25)
    assert [c.name for c in feed.state.snapshot().channels] == ["closed", "large"]
    feed.apply(Expire(), 20.25)
    assert [c.name for c in feed.state.snapshot().channels] == ["large"]


def test_a_batch_larger_than_the_channel_keeps_evicts_its_own_messages() -> None:
    feed = Feed(retention_messages=2)
    feed.hold(poll("a", timeout=10.0), 1.0)
    feed.apply(batch(*[draft("a")] * 5), 1.0)
    [(_, answer)] = feed.deliver()
    assert (ids(answer), gaps(answer)) == ([4, 5], [("a", "evicted")])


def test_a_forgotten_channel_still_gives_old_cursors_a_gap() -> None:
    feed = Feed(retention_seconds=10.0)
    feed.apply(publish("a"), 1.0)
    feed.apply(Close("a"), 2.0)
    feed.apply(Expire(), 12.0)
    assert feed.state.snapshot().channels == ()
    assert gaps(feed.ask(poll("a", cursor="e1-0"))) == [("a", "expired")]
    assert gaps(feed.ask(poll("a", cursor="e1-1"))) == [("a", "expired")]
    assert gaps(feed.ask(poll("a", cursor="e1-2"))) == []
    feed.apply(publish("a"), 13.0)
    assert gaps(feed.ask(poll("a", cursor="e1-1"))) == [("a", "expired")]
    assert gaps(feed.ask(poll("a", cursor="e1-2"))) == []


@pytest.mark.parametrize("name", ["a", None])
def test_a_closing_is_reported_where_channels_must_exist(name: str | None) -> None:
    """A poll on a closed channel gets the closing; the channel is unknown only once the closing is forgotten."""
    feed = Feed(strict_channels=name is not None, retention_seconds=5.0)
    created = feed.apply(Create(name), 1.0)
    assert isinstance(created, ChannelState)
    feed.apply(publish(created.name), 1.0)
    feed.apply(Close(created.name), 2.0)
    answer = feed.ask(poll(created.name, cursor="e1-1"), 3.0)
    assert (gaps(answer), answer.closed) == ([(created.name, "closed")], (created.name,))
    feed.check()
    feed.apply(Expire(), 8.0)
    with pytest.raises(UnknownChannel):
        feed.ask(poll(created.name, cursor="e1-1"), 8.0)


def test_postponed_expiries_are_spread_over_several_entries() -> None:
    feed = Feed(channel_ttl_seconds=60.0, retention_seconds=1.0)
    names = [f"c{n}" for n in range(2 * EXPIRE_AT_MOST + 1)]
    for time in (10.0, 30.0):
        feed.apply(batch(*(draft(name) for name in names)), time)
    for time in (40.0, 40.0, 40.0, 40.0, 40.0, 40.0):
        feed.apply(Expire(), time)
    assert feed.state.message_count == 0
    due = []
    for _ in range(3):
        feed.apply(Expire(), 70.0)
        due.append(sum(channel.due == 70 for channel in feed.state.channels.page()))
        assert (feed.state.next_expiry == 70.0) == bool(due[-1])
    assert due == [EXPIRE_AT_MOST + 1, 1, 0]
    assert len(feed.state.channels) == len(names)
