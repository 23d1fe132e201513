"""The polls that this node holds (PushUp §3.2), above the replicated state that they read.

They belong to this node alone: nothing in the state refers to them. They know channels by name, so the state can be
replaced while they wait. What can happen to one of them is a table in `poll_index`; this module decides when it does.
"""

from __future__ import annotations

from typing import Generic, cast

from msgspec.structs import replace

from pushup.core.answer import Answer
from pushup.core.channel import Channel, Touched
from pushup.core.channels import is_id
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded
from pushup.core.limits import HoldLimits
from pushup.core.poll import Poll, Selection
from pushup.core.poll_index import PollIndex
from pushup.core.poll_migration import PollMigration
from pushup.core.reading import read
from pushup.core.state import ReplicatedState
from pushup.core.subscription import EPOCH_ENDED, H, Subscription

SLICE = 256
"""Answers in one turn of the reactor: about 4 ms, so that other connections get their turn in between."""

AHEAD_SECONDS = 1.0
"""How long a poll that is ahead of this node is held at least: time to find out where the order ends."""

ANSWERS_KEPT = 1024
"""Different answers kept between two entries."""


class HeldPolls(Generic[H]):
    """The held polls of one node; `H` is whatever holds a poll open."""

    def __init__(self, state: ReplicatedState, limits: HoldLimits = HoldLimits()) -> None:  # noqa: B008  # frozen
        self._state = state
        self._limits = limits
        self._index: PollIndex[H] = PollIndex()
        self._migration = PollMigration(self._index, state)
        # Answers since the last entry, for polls that ask the same; a fan-out needs one.
        self._answers: dict[tuple[Selection, int], Answer] = {}

    @property
    def count(self) -> int:
        """How many polls are held."""
        return self._index.count

    @property
    def bytes(self) -> int:
        """What they count against `held_limit_bytes`."""
        return self._index.bytes

    @property
    def awaited_count(self) -> int:
        """How many names polls wait for although no channel has them."""
        return self._index.awaited_count

    def subscribers(self, name: str) -> int:
        """How many polls wait for the channel with this name."""
        waiters = self._index.get(name)
        return 0 if waiters is None else waiters.subscribers

    # Polls arrive and leave.

    def subscribe(self, poll: Poll, holder: H, now: float, deadline: float) -> Answer | Subscription[H]:
        """Answer a poll at once if there is something for it, or else hold it: in one step, so that nothing is missed.

        It is held until `deadline`, which like `now` is of the clock of `expire` and not that of messages; a poll whose
        cursor is ahead of this node for `AHEAD_SECONDS` at least. O(channels log n).
        Raises: UnknownChannel as `Channels.resolve` does; Overloaded if it would be held and a limit is reached.
        """
        selection, cursor, state = poll.selection, poll.cursor, self._state
        channels, latest, all_open = state.channels.resolve_all(selection.channels)
        last, past = state.cursor, state.past_epochs
        if isinstance(cursor, Cursor) and cursor.epoch == last.epoch and cursor.sequence >= latest:
            after = cursor.sequence
            answer = None  # if it must be answered nevertheless, `read` needs no `past`: it is of this epoch
        else:
            answer = read(channels, selection, cursor, last, state.limits.answer_limit_bytes, past=past)
            after = last.sequence
        is_ahead = after > last.sequence
        if is_ahead and deadline < now + AHEAD_SECONDS:
            deadline = now + AHEAD_SECONDS
        if deadline <= now or (answer is not None and answer.tells_something):
            return answer or read(channels, selection, cursor, last, state.limits.answer_limit_bytes)
        index = self._index
        if not all_open or index.bytes + selection.size > self._limits.held_limit_bytes:
            self._check_limits(selection, channels)
        # All that wait for the same next message must have the same `Subscription.seen`. A cursor ahead of this
        # node stays as it is, and a channel that does not exist may begin with anything after this moment.
        if not is_ahead:
            after = latest if all_open else last.sequence
        subscription = index.hold(poll, channels, after, deadline, holder)
        if self._migration.names:
            for waiters in subscription.waiters:
                self._migration.move_name(waiters)
        if is_ahead:
            index.note_ahead(subscription)
        return subscription

    def abandon(self, subscription: Subscription[H]) -> None:
        """Forget a poll whose client is gone; one that was answered already is ignored."""
        if subscription.holder is not None:
            self._index.release(subscription)

    def _check_limits(self, selection: Selection, channels: tuple[Channel, ...]) -> None:
        """Raises: Overloaded if a poll of these channels cannot be held."""
        index, limits = self._index, self._limits
        new = sum([not c.is_remembered and index.get(c.name) is None for c in channels])
        # Channels that are forgotten while polls wait for them may exceed the limit; that refuses no other poll.
        if new and index.awaited_count + new > limits.awaited_channels_limit:
            raise Overloaded(f"awaited_channels_limit of {limits.awaited_channels_limit} is reached", retry_after=5)
        if index.bytes + selection.size > limits.held_limit_bytes:
            raise Overloaded(f"held_limit_bytes of {limits.held_limit_bytes} is reached", retry_after=5)

    # The state changes.

    def wake(self, touched: Touched) -> None:
        """Wake the polls on the channels that an entry has touched; called after each entry. O(channels touched)."""
        self._answers.clear()
        index = self._index
        if touched.continued_after is not None:
            self._migration.end_good(touched.continued_after)
            index.lose(index.ahead(), touched.continued_after)
        if index.has_ahead:
            index.drop_reached(self._state.cursor.sequence)
        for channel in touched.woken:
            index.wake(channel.name)
        if touched.opened or touched.forgotten:
            self._note_channels(touched)

    def _note_channels(self, touched: Touched) -> None:
        """Note which of the awaited names have a channel now, and up to where forgotten channels had something."""
        index = self._index
        for channel in touched.opened:
            waiters = index.get(channel.name)
            if waiters is not None:
                index.set_awaited(waiters, False)
        for channel in touched.forgotten:
            waiters = index.get(channel.name)
            if waiters is not None:
                is_awaited = self._state.channels.remembered(channel.name) is None
                index.move_name(waiters, channel.latest_sequence, is_awaited)

    def use(self, state: ReplicatedState) -> None:
        """Continue with another state. `deliver` looks at each held poll again, as if it had just arrived.

        O(names), 0.01 us each. O(polls) if it is called again before `deliver` has looked at all of them.
        """
        self._migration.begin(state)
        self._state = state
        self._answers.clear()

    # Polls whose clients have seen more than this node.

    @property
    def has_ahead(self) -> bool:
        return self._index.has_ahead

    def ahead(self) -> list[tuple[int, Subscription[H]]]:
        """The polls held ahead of this node, with the sequence that each has seen. O(their number)."""
        return self._index.ahead()

    def end_is(self, end: Cursor, ahead: list[tuple[int, Subscription[H]]]) -> None:
        """The order ended at `end` at some moment after these polls were held ahead of this node.

        Those that have seen more are answered `lost`, by `deliver`: the order has lost those entries. O(their number).
        """
        if end.epoch == self._state.cursor.epoch:
            self._index.lose(ahead, end.sequence)

    # Answers.

    @property
    def has_deliveries(self) -> bool:
        return self._index.has_woken or bool(self._migration.names)

    def deliver(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` of the polls that entries have woken; call again while `has_deliveries`.

        It looks at no more polls than that, and moves no more names to a new state. A poll that stays, or for which
        there is nothing because of its time range, waits on. It is not read again if another channel woke it, too. No
        poll stays when a channel was closed, or lost: one that asked for it by its id does not mean another with its
        name.
        """
        answers = []
        index, migration = self._index, self._migration
        if most > 0 and migration.names:
            migration.move_names(most)
        if most > 0 and index.has_woken:
            last = self._state.cursor.sequence
            for subscription in index.woken():
                if migration.is_under_way:
                    migration.move(subscription)
                answer = self._read(subscription) if subscription.seen < last else None
                if answer is not None and (answer.messages or answer.tells_something):
                    if not subscription.stays or answer.more or answer.gaps or answer.closed:
                        holder = index.release(subscription)
                    else:
                        holder = cast(H, subscription.holder)
                        index.wait_on(subscription, last)
                    answers.append((holder, answer))
                else:
                    index.wait_on(subscription, last)
                most -= 1
                if most == 0:
                    break
        migration.is_under_way &= self.has_deliveries
        return answers

    @property
    def next_deadline(self) -> float | None:
        """When to call `expire` next."""
        return self._index.next_deadline

    def expire(self, now: float, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` polls whose deadline has come."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._index.pop_due(now)) is not None:
            answers.append(self._end(subscription))
        return answers

    def end_all(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` polls, those with the latest deadlines first: the node is about to stop."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._index.pop_last()) is not None:
            answers.append(self._end(subscription))
        return answers

    def _end(self, subscription: Subscription[H]) -> tuple[H, Answer]:
        self._migration.move(subscription)
        answer = self._read(subscription)
        return self._index.release(subscription), answer

    def _read(self, subscription: Subscription[H]) -> Answer:
        """The answer to a held poll, made once for all that ask the same between two entries."""
        selection, seen = subscription.selection, subscription.seen
        answer = self._answers.get((selection, seen))
        if answer is None:
            state = self._state
            last = state.cursor
            remembered, names = state.channels.remembered, frozenset(selection.channels)
            ids: set[int] = set()
            channels, missed = [], []
            for waiters in subscription.waiters:
                channel = remembered(waiters.name) or state.channels.absent(waiters.name)
                known = channel.known_dropped_sequence
                if waiters.name not in names:  # asked for by its id
                    ids = ids or {int(name) for name in names if is_id(name)}
                    if channel.id not in ids:
                        channel = replace(channel, messages=None)  # what it has is of another
                channels.append(channel)
                missed.append(known if known > waiters.missed_sequence else waiters.missed_sequence)
            cursor = Cursor("", 0) if seen == EPOCH_ENDED else Cursor(last.epoch, seen)
            limit, past = state.limits.answer_limit_bytes, state.past_epochs
            answer = read(channels, selection, cursor, last, limit, past=past, missed=missed)
            if len(self._answers) >= ANSWERS_KEPT:
                self._answers.clear()
            self._answers[selection, seen] = answer
        return answer

    def unanswered(self) -> list[tuple[Subscription[H], Answer]]:
        """The held polls for which there is something: none, unless it `has_deliveries`. O(all); for tests."""
        answers, self._answers = self._answers, {}  # these were made before the last entry, if it woke nobody
        found = [(subscription, self._read(subscription)) for subscription in self._index]
        self._answers = answers
        return [(subscription, answer) for subscription, answer in found if answer.tells_something]

    def check(self) -> None:
        """Assert the invariants. O(all); for tests."""
        self._index.check(self._state.cursor.sequence)
        self._migration.check()
