"""States fed the same entries are equal, whatever polls they serve; and a state continues from its snapshot."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from pushup.core.channel import MESSAGE_OVERHEAD_BYTES
from pushup.core.commands import Close, Command, Create, Entry, Expire, Outcome, Publish, Renew
from pushup.core.cursor import Cursor, Start
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import Limits
from pushup.core.poll import Poll, Selection
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from pushup.core.subscription import Subscription

from .builders import EPOCH, Feed, draft, poll, publish
from .saved_checkpoint import SavedCheckpoint, through_json

NAMES = ("a", "b", "c", "tag:é")

LIMITS = (
    Limits(retention_seconds=5.0, channel_ttl_seconds=4.0, keys_limit=3),
    Limits(retention_seconds=20.0, retention_messages=3, retention_bytes=8 * MESSAGE_OVERHEAD_BYTES),
    Limits(retention_seconds=3.0, channel_ttl_seconds=2.0, channels_limit=3),
)


def entries(random: Random, count: int) -> list[Entry]:
    """A random order of entries, fed to all states."""
    order, sequence, time = [], 1, 1000.0
    for _ in range(count):
        command: Command = random.choice(
            (
                Publish(tuple(draft(*random.sample(NAMES, 2)) for _ in range(random.choice((1, 3))))),
                publish(random.choice(NAMES), data='"x"', key=random.choice("klmn")),
                Create(random.choice((None, *NAMES)), random.choice((None, 0.5, 9.0))),
                Renew(random.choice(NAMES), random.choice((None, 0.5, 9.0))),
                Close(random.choice(NAMES)),
                Expire(),
            )
        )
        order.append(Entry(EPOCH, sequence, time, command))
        sequence += command.width
        time += random.choice((0.0, 0.0, 0.25, 1.0, 3.0))
    return order


class Local:
    """What happens on one node only: polls, deliveries, deadlines, clients that disconnect."""

    def __init__(self, state: ReplicatedState, random: Random) -> None:
        self.state = state
        self.polls: HeldPolls[int] = HeldPolls(state)
        self.random = random
        self.subscriptions: list[Subscription[int]] = []

    def act(self, now: float) -> None:
        random, state, polls = self.random, self.state, self.polls
        for number in range(random.randrange(4)):
            cursor = random.choice((Start.EARLIEST, Start.NOW, Cursor(EPOCH, random.randrange(40)), state.cursor))
            selection = Selection(tuple(random.sample((*NAMES, "never"), 2)), end=now + random.choice((0.5, 50.0)))
            result = polls.subscribe(Poll(selection, cursor), number, now, now + random.choice((0.0, 1.0, 30.0)))
            if isinstance(result, Subscription):
                self.subscriptions.append(result)
        polls.deliver(random.randrange(4))
        if random.random() < 0.3:
            polls.expire(now, random.randrange(3))
        if self.subscriptions and random.random() < 0.3:
            polls.abandon(random.choice(self.subscriptions))
        state.check()
        polls.check()

    def apply(self, entry: Entry) -> Outcome:
        outcome = self.state.apply(entry)
        self.polls.wake(self.state.touched)
        return outcome


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("seed", range(6))
def test_states_fed_the_same_entries_are_equal_at_every_step(limits: Limits, seed: int) -> None:
    """Outcomes and snapshots are equal, although each node has other subscribers and one has none."""
    quiet = ReplicatedState(limits, epoch=EPOCH)
    locals_ = [Local(ReplicatedState(limits, epoch=EPOCH), Random(seed + 100 * n)) for n in (1, 2)]
    for entry in entries(Random(seed), 150):
        outcome = quiet.apply(entry)
        for local in locals_:
            local.act(entry.time)
            # Errors are equal if their texts are.
            assert repr(local.apply(entry)) == repr(outcome)
            assert local.state.snapshot() == quiet.snapshot()
            assert local.state.next_expiry == quiet.next_expiry
            local.act(entry.time)
            assert local.state.snapshot() == quiet.snapshot()


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("seed", range(6))
def test_a_state_continues_from_its_snapshot(limits: Limits, seed: int) -> None:
    """A state restored from JSON answers, applies and expires like the original."""
    random = Random(seed)
    order = entries(random, 150)
    turn = random.randrange(10, 120)
    first = ReplicatedState(limits, epoch=EPOCH)
    local = Local(first, random)
    for entry in order[:turn]:
        local.apply(entry)
        local.act(entry.time)
    snapshot = through_json(first.snapshot())
    assert snapshot == first.snapshot()
    second = restore(snapshot)
    second.check()
    assert second.snapshot() == snapshot
    assert (second.message_count, second.cache.bytes) == (first.message_count, first.cache.bytes)
    for entry in order[turn:]:
        assert repr(second.apply(entry)) == repr(local.apply(entry))
        local.act(entry.time)
        second.check()
        assert second.snapshot() == first.snapshot()
        asked = Poll(Selection(NAMES, 5), Cursor(EPOCH, random.randrange(first.cursor.sequence + 1)))
        answers = [HeldPolls[int](state).subscribe(asked, 0, entry.time, entry.time) for state in (first, second)]
        assert answers[0] == answers[1]


def test_a_subscriber_leaves_no_trace_in_a_reopened_channel() -> None:
    """A channel that was forgotten is the same when it opens again, with or without a poll waiting for it."""
    waited_for, alone = Feed(retention_seconds=5.0), Feed(retention_seconds=5.0)
    for feed in (waited_for, alone):
        feed.apply(publish("a"), 1.0)
        feed.apply(Close("a"), 2.0)
        if feed is waited_for:
            feed.hold(poll("a", cursor="now", timeout=100.0), 2.0)
        feed.apply(Expire(), 7.0)
        feed.apply(publish("a"), 8.0)
        feed.check()
    assert waited_for.state.snapshot() == alone.state.snapshot()
    [channel] = alone.state.snapshot().channels
    assert (channel.dropped_sequence, channel.reason, channel.closed_sequence) == (2, "expired", 0)


def test_a_snapshot_contains_the_whole_replicated_state() -> None:
    """Channels, messages as they were written, keys and the position in the order, compared literally as JSON."""
    feed = Feed(channels_limit=10, channel_ttl_seconds=60.0, retention_seconds=30.0)
    publication = publish("a", "b", data="[1.50, 2]", key="k")
    fingerprint = publication.fingerprint
    feed.state.note_changes()
    feed.apply(publication, time=10.5)
    feed.apply(Close("b"), time=11.0)
    checkpoint = SavedCheckpoint()
    checkpoint.save(feed.state.changes())
    assert msgspec.json.decode(checkpoint.head) == {
        "epoch": EPOCH,
        "sequence": 2,
        "time": 11.0,
        "last_id": 10501,
        "floor": 0,
        "version": 2,
        "past_epochs": [],
        "limits": {
            "retention_seconds": 30.0, "retention_messages": 1000, "retention_bytes": 2**28,
            "channel_ttl_seconds": 60.0, "channels_limit": 10, "keys_limit": 100_000,
            "answer_limit_bytes": 2**18, "strict_channels": False, "ephemeral_bytes": 2**24, "channels": [],
            "token_lifetime_limit_seconds": 86_400.0, "revocations_limit": 100_000,
            "unread_limit": 100_000, "members_limit": 100_000, "presence_limit": 200,
        },
    }  # fmt: skip
    assert {key: msgspec.json.decode(body) for key, body in checkpoint.rows.items()} == {
        "channels/a": {
            "name": "a", "id": 10500, "ttl": 60.0, "expires": 70.5, "due": 71,
            "dropped": 0, "reason": "expired", "closed": 0,
        },
        "channels/b": {
            "name": "b", "id": 0, "ttl": 60.0, "expires": 41.0, "due": 41,
            "dropped": 1, "reason": "closed", "closed": 2,
        },
        "messages/1": {"sequence": 1, "time": 10.5, "channels": ["a", "b"], "data": [1.5, 2]},
        "keys/k": {
            "key": "k", "epoch": EPOCH, "sequence": 1, "count": 1, "time": 10.5, "fingerprint": fingerprint,
        },
    }  # fmt: skip
    assert b'"data":[1.50, 2]' in checkpoint.rows["messages/1"]


def test_an_empty_state_is_restored_at_its_position() -> None:
    original = ReplicatedState(Limits(), epoch=EPOCH, sequence=41, time=7.0)
    again = restore(through_json(original.snapshot()))
    assert again.cursor == Cursor(EPOCH, 41)
    assert again.snapshot() == original.snapshot()
