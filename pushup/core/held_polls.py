"""The polls that this node holds (PushUp §3.2), above the replicated state that they read.

They belong to this node alone: none of this is replicated, and nothing in the state refers to it. Subscriptions know
channels by name, so the state can be replaced while they wait.
"""

from __future__ import annotations

from typing import Generic

from pushup.core.answer import Answer, read
from pushup.core.channel import Channel
from pushup.core.channels import Touched
from pushup.core.cursor import Cursor
from pushup.core.errors import Overloaded
from pushup.core.limits import HoldLimits
from pushup.core.poll import Poll, Selection
from pushup.core.state import ReplicatedState
from pushup.core.subscription import EPOCH_ENDED, H, Subscription
from pushup.core.waiting import Waiting

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

    @property
    def count(self) -> int:
        """How many polls are held."""
        return self._waiting.count

    @property
    def bytes(self) -> int:
        """What the held polls count against `held_limit_bytes`."""
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

        It is held until `deadline`, which like `now` is of the clock of `expire` and not that of messages.
        O(channels log n).
        Raises: UnknownChannel as `Channels.resolve` does; Overloaded if it would be held and a limit is reached.
        """
        selection, cursor, state = poll.selection, poll.cursor, self._state
        channels, latest, all_open = self._resolve(selection.channels)
        last = state.cursor
        if isinstance(cursor, Cursor) and cursor.epoch == last.epoch and cursor.sequence >= latest:
            after = cursor.sequence
            answer = None
        else:
            answer = read(channels, selection, cursor, last, state.limits.answer_limit_bytes)
            after = last.sequence
        if deadline <= now or (answer is not None and answer.tells_something):
            return answer or read(channels, selection, cursor, last, state.limits.answer_limit_bytes)
        waiting = self._waiting
        if not all_open or waiting.bytes + selection.size > self._limits.held_limit_bytes:
            self._check_limits(selection, channels)
        # All that wait for the same next message must have the same `Subscription.seen`. A cursor ahead of this
        # node stays as it is, and a channel that does not exist may begin with anything after this moment.
        if after <= last.sequence:
            after = latest if all_open else last.sequence
        return waiting.hold(selection, channels, after, deadline, holder)

    def abandon(self, subscription: Subscription[H]) -> None:
        """Forget a poll whose client is gone; one that was answered already is ignored."""
        if subscription.holder is not None:
            self._waiting.release(subscription)

    def _resolve(self, names: tuple[str, ...]) -> tuple[tuple[Channel, ...], int, bool]:
        """The channels of these names, the highest `latest_sequence` among them, and whether all are open."""
        channels = self._state.channels
        if len(names) == 1:
            channel = channels.remembered(names[0])
            if channel is None or channel.id == 0:
                channel = channels.resolve(names[0])
            return (channel,), channel.latest_sequence, channel.id != 0
        # A channel may be asked for by its name and by its id.
        found = tuple({channel.name: channel for channel in map(channels.resolve, names)}.values())
        return found, max(c.latest_sequence for c in found), all(c.is_open for c in found)

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
                waiters.missed_sequence = channel.latest_sequence
                waiting.set_awaited(waiters, self._state.channels.remembered(channel.name) is None)

    def use(self, state: ReplicatedState) -> None:
        """Continue with another state. Each held poll is looked at again, as if it had just arrived.

        O(polls) without answering any; `deliver` does that.
        """
        same_epoch = state.cursor.epoch == self._state.cursor.epoch
        self._state = state
        self._answers.clear()
        for subscription in self._waiting:
            subscription.looked = -1
            if not same_epoch:
                subscription.seen = EPOCH_ENDED
        for waiters in list(self._waiting.names):
            channel = state.channels.remembered(waiters.name)
            waiters.missed_sequence = state.channels.floor if channel is None else channel.dropped_sequence
            self._waiting.set_awaited(waiters, channel is None)
            self._waiting.wake(waiters.name)

    # Answers.

    @property
    def has_deliveries(self) -> bool:
        return bool(self._waiting.woken_names)

    def deliver(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` of the polls that entries have woken; call again while `has_deliveries`.

        It looks at no more polls than that. One for which there is nothing, because of its time range, continues to
        wait, and is skipped if it was woken by another of its channels, too.
        """
        answers = []
        if most > 0 and self._waiting.woken_names:
            last = self._state.cursor.sequence
            for subscription in self._waiting.woken():
                if subscription.looked < last:
                    answer = self._read(subscription)
                    if answer.messages or answer.tells_something:
                        answers.append((self._waiting.release(subscription), answer))
                    else:
                        subscription.seen = max(subscription.seen, last)
                        subscription.looked = last
                        self._waiting.wait(subscription)
                most -= 1
                if most == 0:
                    break
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

    def _end(self, subscription: Subscription[H]) -> tuple[H, Answer]:
        answer = self._read(subscription)
        return self._waiting.release(subscription), answer

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
            answer = read(channels, selection, cursor, last, state.limits.answer_limit_bytes, missed=missed)
            if len(self._answers) >= ANSWERS_KEPT:
                self._answers.clear()
            self._answers[selection, seen] = answer
        return answer

    def check(self) -> None:
        """Assert the invariants. O(all); for tests."""
        self._waiting.check()
        for waiters in self._waiting.names:
            assert waiters.is_awaited == (self._state.channels.remembered(waiters.name) is None), waiters.name
