"""The polls that this node holds (PushUp §3.2), above the replicated state that they read.

They belong to this node alone: nothing in the state refers to them. They know channels by name, so the state can be
replaced while they wait.
"""

from __future__ import annotations

from typing import Generic

from pushup.core.answer import Answer
from pushup.core.channel import Channel
from pushup.core.channels import Touched
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded
from pushup.core.limits import HoldLimits
from pushup.core.moving import Moving
from pushup.core.poll import Poll, Selection
from pushup.core.reading import read
from pushup.core.state import ReplicatedState
from pushup.core.subscription import EPOCH_ENDED, H, Subscription
from pushup.core.time_tree import TimeTree
from pushup.core.waiting import Waiting

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
        self._waiting: Waiting[H] = Waiting()
        # Answers since the last entry, for polls that ask the same; a fan-out needs one.
        self._answers: dict[tuple[Selection, int], Answer] = {}
        # Those that have seen more than this node, by what they have seen; usually there are none.
        self._ahead: TimeTree[Subscription[H]] = TimeTree()
        self._moving = Moving(self._waiting, state)

    @property
    def count(self) -> int:
        """How many polls are held."""
        return self._waiting.count

    @property
    def bytes(self) -> int:
        """What they count against `held_limit_bytes`."""
        return self._waiting.bytes

    @property
    def awaited_count(self) -> int:
        """How many names polls wait for although no channel has them."""
        return self._waiting.awaited_count

    def subscribers(self, name: str) -> int:
        """How many polls wait for the channel with this name."""
        waiters = self._waiting.get(name)
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
            answer = None
        else:
            answer = read(channels, selection, cursor, last, state.limits.answer_limit_bytes, past=past)
            after = last.sequence
        is_ahead = after > last.sequence
        if is_ahead and deadline < now + AHEAD_SECONDS:
            deadline = now + AHEAD_SECONDS
        if deadline <= now or (answer is not None and answer.tells_something):
            return answer or read(channels, selection, cursor, last, state.limits.answer_limit_bytes)
        waiting = self._waiting
        if not all_open or waiting.bytes + selection.size > self._limits.held_limit_bytes:
            self._check_limits(selection, channels)
        # All that wait for the same next message must have the same `Subscription.seen`. A cursor ahead of this
        # node stays as it is, and a channel that does not exist may begin with anything after this moment.
        if not is_ahead:
            after = latest if all_open else last.sequence
        subscription = waiting.hold(poll, channels, after, deadline, holder)
        if self._moving.names:
            for waiters in subscription.waiters:
                self._moving.move_name(waiters)
        if is_ahead:
            self._ahead.add(after, subscription)
        return subscription

    def abandon(self, subscription: Subscription[H]) -> None:
        """Forget a poll whose client is gone; one that was answered already is ignored."""
        if subscription.holder is not None:
            self._release(subscription)

    def _check_limits(self, selection: Selection, channels: tuple[Channel, ...]) -> None:
        """Raises: Overloaded if a poll of these channels cannot be held."""
        waiting, limits = self._waiting, self._limits
        new = sum([not c.is_remembered and waiting.get(c.name) is None for c in channels])
        # Channels that are forgotten while polls wait for them may exceed the limit; that refuses no other poll.
        if new and waiting.awaited_count + new > limits.awaited_channels_limit:
            raise Overloaded(f"awaited_channels_limit of {limits.awaited_channels_limit} is reached", retry_after=5)
        if waiting.bytes + selection.size > limits.held_limit_bytes:
            raise Overloaded(f"held_limit_bytes of {limits.held_limit_bytes} is reached", retry_after=5)

    # The state changes.

    def wake(self, touched: Touched) -> None:
        """Wake the polls on the channels that an entry has touched; called after each entry. O(channels touched)."""
        self._answers.clear()
        waiting = self._waiting
        if touched.continued_after is not None:
            self._moving.end_good(touched.continued_after)
            self._lose(self.ahead(), touched.continued_after)
        if self._ahead:
            self._drop_reached()
        for channel in touched.woken:
            waiting.wake(channel.name)
        if touched.opened or touched.forgotten:
            self._note_channels(touched)

    def _note_channels(self, touched: Touched) -> None:
        """Note which of the awaited names have a channel now, and up to where forgotten channels had something."""
        waiting = self._waiting
        for channel in touched.opened:
            waiters = waiting.get(channel.name)
            if waiters is not None:
                waiting.set_awaited(waiters, False)
        for channel in touched.forgotten:
            waiters = waiting.get(channel.name)
            if waiters is not None:
                waiters.generation = waiting.generation
                waiters.missed_sequence = channel.latest_sequence
                waiting.set_awaited(waiters, self._state.channels.remembered(channel.name) is None)

    def use(self, state: ReplicatedState) -> None:
        """Continue with another state. `deliver` looks at each held poll again, as if it had just arrived.

        O(names), 0.01 us each. O(polls) if it is called again before `deliver` has looked at all of them.
        """
        if self._moving.is_under_way:
            for subscription in self._waiting:
                self._moving.move(subscription)
        self._state = state
        self._answers.clear()
        self._ahead = TimeTree()
        self._moving.begin(state)

    def _move(self, subscription: Subscription[H]) -> None:
        if self._moving.move(subscription) and subscription.seen > self._state.cursor.sequence:
            self._ahead.add(subscription.seen, subscription)

    # Polls whose clients have seen more than this node.

    @property
    def has_ahead(self) -> bool:
        return bool(self._ahead)

    def ahead(self) -> list[tuple[int, Subscription[H]]]:
        """The polls held ahead of this node, with the sequence that each has seen. O(their number)."""
        return [(subscription.seen, subscription) for subscription in self._ahead]

    def end_is(self, end: Cursor, ahead: list[tuple[int, Subscription[H]]]) -> None:
        """The order ended at `end` at some moment after these polls were held ahead of this node.

        Those that have seen more are answered `lost`, by `deliver`: the order has lost those entries. O(their number).
        """
        if end.epoch == self._state.cursor.epoch:
            self._lose(ahead, end.sequence)

    def _lose(self, ahead: list[tuple[int, Subscription[H]]], end: int) -> None:
        """Let `deliver` answer those of these polls that have seen anything after `end`."""
        lost = [subscription for seen, subscription in ahead if seen > end and subscription.holder is not None]
        for subscription in lost:
            self._ahead.discard(subscription.seen, subscription)
            subscription.seen = EPOCH_ENDED
            subscription.looked = -1
        if lost:
            self._waiting.woken_names.append(iter(lost))

    def _drop_reached(self) -> None:
        """Forget that polls were ahead whose cursors this node has reached."""
        while self._ahead.pop_due(self._state.cursor.sequence) is not None:
            pass

    # Answers.

    @property
    def has_deliveries(self) -> bool:
        return bool(self._waiting.woken_names or self._moving.names)

    def deliver(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` of the polls that entries have woken; call again while `has_deliveries`.

        It looks at no more polls than that, and moves no more names to a new state. A poll that stays, or for which
        there is nothing because of its time range, waits on. It is not read again if another channel woke it, too.
        """
        answers = []
        if most > 0 and self._moving.names:
            self._moving.move_names(most)
        if most > 0 and self._waiting.woken_names:
            last = self._state.cursor.sequence
            generation = self._waiting.generation
            for subscription in self._waiting.woken():
                if subscription.generation != generation:
                    self._move(subscription)
                if subscription.looked < last:
                    answer = self._read(subscription)
                    if not (answer.messages or answer.tells_something):
                        self._wait_on(subscription, last)
                    elif answer.more or not subscription.stays:
                        answers.append((self._release(subscription), answer))
                    else:
                        answers.append((self._wait_on(subscription, last), answer))
                elif self._moving.is_under_way:
                    self._waiting.wait(subscription)  # another of its names was woken after it was looked at
                most -= 1
                if most == 0:
                    break
        self._moving.is_under_way &= self.has_deliveries
        return answers

    @property
    def next_deadline(self) -> float | None:
        """When to call `expire` next."""
        return self._waiting.next_deadline

    def expire(self, now: float, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` polls whose deadline has come."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._waiting.pop_due(now)) is not None:
            answers.append(self._end(subscription))
        return answers

    def end_all(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` polls, those with the latest deadlines first: the node is about to stop."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._waiting.pop_last()) is not None:
            answers.append(self._end(subscription))
        return answers

    def _wait_on(self, subscription: Subscription[H], last: int) -> H:
        """Have a poll wait for what comes after the last entry; returns its holder."""
        assert subscription.holder is not None
        subscription.seen = max(subscription.seen, last)
        subscription.looked = last
        self._waiting.wait(subscription)
        return subscription.holder

    def _end(self, subscription: Subscription[H]) -> tuple[H, Answer]:
        self._move(subscription)
        answer = self._read(subscription)
        return self._release(subscription), answer

    def _release(self, subscription: Subscription[H]) -> H:
        if self._ahead:
            self._ahead.discard(subscription.seen, subscription)
        return self._waiting.release(subscription)

    def _read(self, subscription: Subscription[H]) -> Answer:
        """The answer to a held poll, made once for all that ask the same between two entries."""
        selection, seen = subscription.selection, subscription.seen
        answer = self._answers.get((selection, seen))
        if answer is None:
            state = self._state
            last = state.cursor
            remembered = state.channels.remembered
            channels, missed = [], []
            for waiters in subscription.waiters:
                channel = remembered(waiters.name) or state.channels.absent(waiters.name)
                known = channel.known_dropped_sequence
                channels.append(channel)
                missed.append(known if known > waiters.missed_sequence else waiters.missed_sequence)
            cursor = Cursor("", 0) if seen == EPOCH_ENDED else Cursor(last.epoch, seen)
            limit, past = state.limits.answer_limit_bytes, state.past_epochs
            answer = read(channels, selection, cursor, last, limit, past=past, missed=missed)
            if len(self._answers) >= ANSWERS_KEPT:
                self._answers.clear()
            self._answers[selection, seen] = answer
        return answer

    def check(self) -> None:
        """Assert the invariants. O(all); for tests."""
        self._waiting.check()
        self._moving.check()
        last, generation = self._state.cursor.sequence, self._waiting.generation
        ahead = {s for s in self._waiting if s.seen > last and s.generation == generation}
        assert {s for _, s in self.ahead()} == ahead
