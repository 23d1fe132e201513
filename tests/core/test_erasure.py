"""Erasure: messages go before their time, from everywhere, and those who have not seen them are told."""

from __future__ import annotations

import pytest
from msgspec import Raw

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES, Unread
from pushup.core.commands import Close, Continue, Draft, Erase, Erased, Expire, Outcome, Publish
from pushup.core.cursor import Cursor
from pushup.core.errors import BadRequest
from pushup.core.snapshot import encode
from pushup.core.state import EXPIRE_AT_MOST
from pushup.core.state_transfer import restore

from .builders import EPOCH, Feed, batch, draft, gaps, ids, poll, publish

MARKER = '"the-text-to-erase"'


def at(sequence: int, epoch: str = EPOCH) -> Cursor:
    return Cursor(epoch, sequence)


def owned(owner: str, *channels: str, data: str = "1", ephemeral: bool = False) -> Publish:
    return Publish((draft(*channels, data=data, ephemeral=ephemeral),), None, owner)


def feed(*commands: Publish) -> Feed:
    """A state after these, which take the sequences from 1."""
    made = Feed()
    for command in commands:
        made.apply(command, 1000.0)
    return made


def erase(made: Feed, by: str, name: str = "", cursor: Cursor | None = None) -> Outcome:
    outcome = made.apply(Erase(by, name, cursor), 1001.0)  # type: ignore[arg-type]
    made.check()
    return outcome


def cached(made: Feed, *channels: str) -> list[int]:
    return ids(made.ask(poll(*channels)))


def test_a_message_goes_from_all_of_its_channels() -> None:
    """Those around it stay, and both channels tell who has not seen it."""
    made = feed(publish("a", "b"), publish("a", "b"), publish("a", "b"))
    assert erase(made, "message", "", at(2)) == Erased(1, at(2))
    assert (cached(made, "a"), cached(made, "b")) == ([1, 3], [1, 3])
    answer = made.ask(poll("a", "b", cursor="e1-0"))
    assert (ids(answer), gaps(answer)) == ([1, 3], [("a", "deleted"), ("b", "deleted")])
    assert {gap.until for gap in answer.gaps} == {"e1-2"}
    assert made.state.cache.drops.counts["deleted"] == 1
    assert made.state.cache.bytes == 2 * (MESSAGE_OVERHEAD_BYTES + 1)


def test_who_has_seen_it_gets_no_gap() -> None:
    made = feed(publish("a"), publish("a"), publish("a"))
    erase(made, "message", "", at(2))
    assert gaps(made.ask(poll("a", cursor="e1-1"))) == [("a", "deleted")]
    assert gaps(made.ask(poll("a", cursor="e1-2"))) == []
    assert gaps(made.ask(poll("a"))) == []


def test_nothing_is_left_of_it() -> None:
    """Neither in the rows of a checkpoint nor in what has changed since the last one."""
    made = feed(publish("a", data=MARKER, key="k"), publish("a"))
    made.state.note_changes(0)
    erase(made, "message", "", at(1))
    rows = [row for row in made.state.rows(made.state.names()) if b"text-to-erase" in bytes(row.body)]
    assert rows == []
    changed = {row.key: bytes(row.body) for row in made.state.changes().rows}
    assert changed["messages/1"] == b"null"
    assert b'"erased":1' in changed["channels/a"]
    assert b"text-to-erase" not in encode(made.state.changes())


def test_its_key_is_still_used_up() -> None:
    """A publisher that retries does not bring it back."""
    made = feed(publish("a", data=MARKER, key="k"))
    erase(made, "message", "", at(1))
    outcome = made.apply(publish("a", data=MARKER, key="k"), 1002.0)
    assert getattr(outcome, "sequence", None) == 1
    assert cached(made, "a") == []


def test_what_is_not_kept_is_not_deleted() -> None:
    """It never existed, is no message, has gone, or is of another order."""
    made = feed(publish("a"), publish("a"))
    for cursor in (at(3), at(99), at(1, "e0")):
        assert erase(made, "message", "", cursor) == Erased(0, cursor if cursor.epoch == EPOCH else made.state.cursor)
    assert erase(made, "message", "", at(2)) == Erased(1, at(2))
    assert erase(made, "message", "", at(2)) == Erased(0, at(2))
    assert cached(made, "a") == [1]


def test_a_channel_up_to_a_cursor() -> None:
    """What is on other channels as well goes from these, too; by default up to this entry."""
    made = feed(publish("a"), publish("a", "b"), publish("b"), publish("a"), publish("b"))
    assert erase(made, "channel", "a", at(3)) == Erased(2, at(3))
    assert (cached(made, "a"), cached(made, "b")) == ([4], [3, 5])
    answer = made.ask(poll("b", cursor="e1-1"))
    assert (ids(answer), gaps(answer), answer.gaps[0].until) == ([3, 5], [("b", "deleted")], "e1-2")
    assert erase(made, "channel", "b") == Erased(2, made.state.cursor)
    assert erase(made, "channel", "never") == Erased(0, made.state.cursor)
    assert cached(made, "a", "b") == [4]


def test_an_owner_up_to_a_cursor() -> None:
    """Only what this key has published."""
    made = feed(owned("x", "a"), owned("y", "a"), owned("x", "b"), owned("", "a"), owned("x", "a", "b"))
    assert erase(made, "owner", "x", at(4)) == Erased(2, at(4))
    assert cached(made, "a", "b") == [2, 4, 5]
    assert erase(made, "owner", "x") == Erased(1, made.state.cursor)
    assert cached(made, "a", "b") == [2, 4]


def test_a_cursor_of_another_order_is_refused() -> None:
    """Nobody knows what it would include."""
    made = feed(publish("a"))
    for by, name in (("channel", "a"), ("owner", "")):
        outcome = erase(made, by, name, at(1, "e0"))
        assert isinstance(outcome, BadRequest)
        assert outcome.field == "until"
    assert cached(made, "a") == [1]


def test_ids_of_former_names_of_the_order() -> None:
    """They name the same messages; beyond the end of that name there are none."""
    made = feed(publish("a"), publish("a"))
    made.apply(Continue("e2"), 1000.5)
    made.apply(publish("a"), 1000.5)
    assert erase(made, "message", "", at(4)) == Erased(0, made.state.cursor)
    assert erase(made, "message", "", at(1)) == Erased(1, at(1, "e2"))
    assert erase(made, "channel", "a", at(2)) == Erased(1, at(2, "e2"))
    assert cached(made, "a") == [4]


def test_an_entry_does_a_limited_amount() -> None:
    """Its outcome says that there are more, and up to which cursor."""
    names = [f"c{number}" for number in range(100)]
    made = feed(*[publish(*names) for _ in range(25)])
    first = erase(made, "channel", "c0")
    assert first == Erased(EXPIRE_AT_MOST // 100, made.state.cursor, more=True)
    made.apply(publish("c0"), 1001.0)
    assert erase(made, "channel", "c0", at(26)) == Erased(10, at(26), more=True)
    assert erase(made, "channel", "c0", at(26)) == Erased(5, at(26))
    assert cached(made, "c0") == [27]


@pytest.mark.parametrize(("version", "count"), [(1, 3), (2, 1)])
def test_readers_that_a_message_waits_for_count(version: int, count: int) -> None:
    """As do its channels; in version 1 they did not."""
    subjects = tuple([str(number) for number in range(EXPIRE_AT_MOST)])
    made = feed(*[Publish((Draft(("a",), Raw(b"1"), unread=Unread(60.0, subjects)),)) for _ in range(3)])
    made.state.rules.version = version
    assert erase(made, "channel", "a") == Erased(count, made.state.cursor, more=count < 3)
    assert len(made.state.webhooks) == 3 - count


def test_ephemeral_messages_go_without_a_gap() -> None:
    """They leave no trace otherwise, either."""
    made = feed(owned("x", "a", ephemeral=True), owned("x", "a"), owned("x", "a", ephemeral=True))
    assert erase(made, "message", "", at(3)) == Erased(1, at(3))
    assert gaps(made.ask(poll("a", cursor="e1-2"))) == []
    assert erase(made, "owner", "x") == Erased(2, made.state.cursor)
    answer = made.ask(poll("a", cursor="e1-0"))
    assert (gaps(answer), answer.gaps[0].until) == ([("a", "deleted")], "e1-2")
    assert made.state.cache.drops.counts["deleted"] == 1


def test_a_poll_that_was_woken_by_it_gets_a_gap() -> None:
    """One that was held before and after gets nothing."""
    made = feed(publish("a"))
    made.hold(poll("a", cursor="e1-1", timeout=30.0), 0.0, "woken")
    made.apply(publish("a"), 1000.0)
    erase(made, "message", "", at(2))
    made.hold(poll("a", cursor="e1-3", timeout=30.0), 0.0, "later")
    erase(made, "message", "", at(1))
    ((holder, answer),) = made.deliver()
    assert (holder, ids(answer), gaps(answer), answer.gaps[0].until) == ("woken", [], [("a", "deleted")], "e1-2")
    assert made.deliver() == []


def test_a_later_drop_ends_the_gap_as_before() -> None:
    """The reason is that of the last message that is gone."""
    made = Feed(retention_messages=2)
    for _ in range(3):
        made.apply(publish("a"), 1000.0)
    erase(made, "message", "", at(2))
    assert made.ask(poll("a", cursor="e1-0")).gaps[0].until == "e1-2"
    for _ in range(2):
        made.apply(publish("a"), 1001.0)
    answer = made.ask(poll("a", cursor="e1-0"))
    assert (gaps(answer), answer.gaps[0].until, ids(answer)) == ([("a", "evicted")], "e1-3", [5, 6])


def test_a_restored_state_knows_of_it() -> None:
    """Also if the last message of a channel was erased, and after the channel was closed and forgotten."""
    made = feed(publish("a"), publish("a"), publish("a"))
    erase(made, "message", "", at(3))
    made.use(restore(made.state.snapshot()))
    assert gaps(made.ask(poll("a", cursor="e1-2"))) == [("a", "deleted")]
    assert ids(made.ask(poll("a", cursor="e1-1"))) == [2]
    made.apply(Close("a"), 1002.0)
    answer = made.ask(poll("a", cursor="e1-2"))
    assert (gaps(answer), answer.closed) == ([("a", "deleted")], ("a",))
    made.apply(Expire(), 9000.0)
    assert gaps(made.ask(poll("a", cursor="e1-2"))) == [("a", "expired")]
    made.check()


def test_a_lost_cursor_is_told_of_it_as_well() -> None:
    """Its gap includes what was erased."""
    made = feed(publish("a"), publish("a"), publish("a"))
    erase(made, "message", "", at(2))
    answer = made.ask(poll("a", cursor="e0-9"))
    assert (gaps(answer), answer.gaps[0].until, ids(answer)) == ([("a", "lost")], "e1-2", [1, 3])


def test_each_page_before_its_end_tells_the_gap() -> None:
    """A client may continue on a node that has not erased it yet."""
    made = feed(batch(*[Draft(("a",), Raw(b"1")) for _ in range(5)]))
    erase(made, "message", "", at(4))
    first = made.ask(poll("a", cursor="e1-0", limit=2))
    assert (ids(first), gaps(first), first.more) == ([1, 2], [("a", "deleted")], True)
    second = made.ask(poll("a", cursor=first.cursor, limit=2))
    assert (ids(second), gaps(second), second.more) == ([3, 5], [("a", "deleted")], False)
    assert gaps(made.ask(poll("a", cursor=second.cursor))) == []
