"""The message queue: all channels of a node (PushUp §3.3).

It is a deterministic state machine. What is shared by all nodes (channels, messages, keys) changes only by `apply`,
so that queues fed the same entries are equal. What is the node's own (who waits here) changes by `subscribe`,
`abandon`, `deliver` and `expire`. Time comes in as an argument, answers go out as values.
"""

from __future__ import annotations

from typing import Generic

from pushup.core.answer import Answer, read
from pushup.core.cache import Cache
from pushup.core.channel import Channel
from pushup.core.commands import (
    ChannelState,
    Close,
    Closed,
    Create,
    Draft,
    Entry,
    Expire,
    Expired,
    Outcome,
    Publish,
    Published,
    Renew,
)
from pushup.core.cursor import Cursor
from pushup.core.directory import Directory, is_id
from pushup.core.errors import ChannelExists, KeyReused, OutOfOrder, Overloaded, PushUpError, UnknownChannel
from pushup.core.keys import Keys, Remembered
from pushup.core.limits import HoldLimits, Limits
from pushup.core.message import Message
from pushup.core.poll import Poll, Selection
from pushup.core.snapshot import Changes, ChannelSnapshot, MessageSnapshot, Snapshot
from pushup.core.subscription import H, Subscription
from pushup.core.waiting import Waiting

EXPIRE_AT_MOST = 1000
"""So many messages and channels go, or are found renewed, with one entry, and so many keys: about 5 ms of work."""

ANSWERS_KEPT = 1024
"""Different answers kept between two entries, for polls that ask the same; a fan-out needs one."""


class MessageQueue(Generic[H]):
    """All channels of a node; `H` is whatever holds a poll open."""

    def __init__(
        self,
        limits: Limits,
        *,
        epoch: str,
        sequence: int = 0,
        time: float = 0.0,
        hold_limits: HoldLimits = HoldLimits(),  # noqa: B008  # frozen
    ) -> None:
        """An empty queue, to which the entry `sequence + 1` of the epoch comes next."""
        self._limits = limits
        self._hold_limits = hold_limits
        self._begin(epoch, sequence, time)

    def _begin(self, epoch: str, sequence: int, time: float) -> None:
        limits = self._limits
        self._last = Cursor(epoch, sequence)
        self._time = time
        self._directory = Directory(limits)
        self._cache = Cache(limits, self._directory.find, self._directory.note)
        self._keys = Keys(limits.keys_limit)
        self._waiting: Waiting[H] = Waiting()
        self._answers: dict[tuple[Selection, int], Answer] = {}
        self._noted_from = sequence

    # What is shared by all nodes.

    @property
    def cursor(self) -> Cursor:
        """The last entry applied: where "from here on" begins."""
        return self._last

    @property
    def time(self) -> float:
        """The time of the last entry applied."""
        return self._time

    def apply(self, entry: Entry) -> Outcome:
        """Do what the entry says, and let go what is due by its time. O(log n) a channel; waking is O(1) each.

        Raises: OutOfOrder unless it follows the last entry.
        """
        epoch, sequence = self._last.epoch, self._last.sequence
        if entry.epoch != epoch or entry.sequence != sequence + 1 or entry.time < self._time:
            raise OutOfOrder(f"entry {entry.epoch}-{entry.sequence} at {entry.time} after {self._last} at {self._time}")
        command = entry.command
        new_second = entry.time // 1 > self._time // 1
        self._time = entry.time
        sequence += command.width
        self._last = Cursor(epoch, sequence)
        self._directory.sequence = sequence
        self._answers.clear()
        if new_second or isinstance(command, Expire):
            self._let_go(entry)
        match command:
            case Publish():
                return self._publish(entry, command)
            case Create(name=name, ttl=ttl):
                return self._create(name, ttl, entry.time)
            case Renew(channel=name, ttl=ttl):
                return self._renew(name, ttl, entry.time)
            case Close(channel=name):
                return self._close_by_name(name, entry)
            case _:
                return Expired()

    @property
    def next_expiry(self) -> float | None:
        """When shared state is due to go: then an `Expire` entry is wanted, if no other entry comes."""
        keep = self._limits.retention_seconds
        times = (
            self._directory.next_time,
            _later(self._cache.oldest_time, keep),
            _later(self._keys.oldest_time, keep),
        )
        return min((t for t in times if t is not None), default=None)

    def _let_go(self, entry: Entry) -> None:
        """All that is due by the entry's time, up to `EXPIRE_AT_MOST`; with the first entry of a second."""
        horizon = entry.time - self._limits.retention_seconds
        self._keys.expire(horizon, EXPIRE_AT_MOST)
        gone = self._cache.expire(horizon, EXPIRE_AT_MOST)
        while gone < EXPIRE_AT_MOST and (channel := self._directory.next_due(entry.time)) is not None:
            if channel.due <= entry.time:
                self._close(channel, entry)
            gone += 1
        while gone < EXPIRE_AT_MOST and self._directory.forget_due(entry.time):
            gone += 1

    def _publish(self, entry: Entry, command: Publish) -> Outcome:
        key = command.key
        if key is not None and (before := self._keys.get(key)) is not None:
            if before.fingerprint in ("", command.fingerprint):
                return before.outcome
            return _key_reused()
        error = self._why_not(command.messages)
        if error is not None:
            return error
        for sequence, draft in enumerate(command.messages, entry.sequence):
            self._add(draft, sequence, entry.time)
        outcome = Published(entry.epoch, entry.sequence, len(command.messages), entry.time)
        if key is not None:
            self._keys.add(key, Remembered.of(outcome, command.fingerprint))
        return outcome

    def _why_not(self, drafts: tuple[Draft, ...]) -> PushUpError | None:
        """Why these messages cannot all be published, if they cannot; all or nothing."""
        find = self._directory.find
        # In order, so that the outcome names the same one on every node.
        new = {name: None for draft in drafts for name in draft.channels if find(name) is None}
        for name in new:
            if self._limits.strict_channels or is_id(name):
                return UnknownChannel(f"channel {name!r} does not exist", field="channels")
        return self._directory.room_for(len(new)) if new else None

    def _add(self, draft: Draft, sequence: int, time: float) -> None:
        """Put one message on its channels, of which those that do not live yet are opened."""
        directory = self._directory
        channels = [directory.find(name) or directory.open(name, None, time) for name in draft.channels]
        if len(channels) > 1:
            channels = list(dict.fromkeys(channels))  # a channel may be named by its name and by its id
        self._cache.add(Message(sequence, time, tuple([c.name for c in channels]), draft.data), channels)
        for channel in channels:
            channel.expires = time + channel.ttl
            self._directory.note(channel)
            self._waiting.wake(channel)

    def _create(self, name: str | None, ttl: float | None, time: float) -> Outcome:
        if name is not None and self._directory.find(name) is not None:
            return ChannelExists(f"channel {name!r} lives already", field="name")
        full = self._directory.room_for(1)
        return full or _state(self._directory.open(name, ttl, time))

    def _renew(self, name: str, ttl: float | None, time: float) -> Outcome:
        channel = self._directory.find(name)
        if channel is None:
            return _unknown(name)
        self._directory.renew(channel, ttl, time)
        return _state(channel)

    def _close_by_name(self, name: str, entry: Entry) -> Outcome:
        channel = self._directory.find(name)
        if channel is None:
            return _unknown(name)
        self._close(channel, entry)
        return Closed(channel.name)

    def _close(self, channel: Channel, entry: Entry) -> None:
        self._cache.drop_channel(channel)
        self._directory.close(channel, entry.sequence, entry.time)
        self._waiting.wake(channel)

    # What is this node's own.

    def subscribe(self, poll: Poll, holder: H, now: float, deadline: float) -> Answer | Subscription[H]:
        """Answer a poll at once if there is anything to tell, else hold it; in one turn, so nothing falls between.

        It is held until `deadline`, or until the end of its time range if that comes first. O(channels log n).
        Raises: UnknownChannel as `Directory.wait_for` does, Overloaded when it would have to be held and a limit is
        reached.
        """
        selection, cursor = poll.selection, poll.cursor
        channels, latest, all_living = self._wait_for(selection.channels)
        last = self._last
        if isinstance(cursor, Cursor) and cursor.epoch == last.epoch and cursor.sequence >= latest:
            after = cursor.sequence
            answer = None
        else:
            answer = read(channels, selection, cursor, last, self._limits.answer_limit_bytes)
            after = last.sequence
        if selection.end < deadline:
            deadline = selection.end
        if deadline <= now or (answer is not None and answer.tells_something):
            self._leave(channels)
            return answer or self._read(channels, selection, after)
        full = self._why_not_hold(selection, channels)
        if full is not None:
            self._leave(channels)
            raise full
        # All who wait for the same next message shall have seen the same (Subscription.seen). A cursor ahead of this
        # node stays what it is, and a channel that does not live yet may begin with whatever has been until now.
        if after <= last.sequence:
            after = latest if all_living else last.sequence
        subscription = Subscription(selection, channels, after, deadline, holder)
        self._waiting.hold(subscription)
        return subscription

    def _why_not_hold(self, selection: Selection, channels: tuple[Channel, ...]) -> Overloaded | None:
        """Why a poll cannot be held whose channels are awaited already, if it cannot."""
        limits = self._hold_limits
        # Forgotten closed channels that polls wait for can go past the limit; those polls refuse nobody else.
        if self._directory.awaited_count > limits.awaited_channels_limit and any(map(_is_only_awaited_now, channels)):
            return Overloaded(f"awaited_channels_limit of {limits.awaited_channels_limit} is reached", retry_after=5)
        if self._waiting.bytes + selection.size > limits.held_limit_bytes:
            return Overloaded(f"held_limit_bytes of {limits.held_limit_bytes} is reached", retry_after=5)
        return None

    def abandon(self, subscription: Subscription[H]) -> None:
        """Forget a subscription whose client is gone; one that was answered already is left alone."""
        if subscription.holder is not None:
            self._finish(subscription)

    @property
    def held(self) -> int:
        """How many subscriptions wait."""
        return self._waiting.count

    @property
    def held_bytes(self) -> int:
        """What the held subscriptions count against `held_limit_bytes`."""
        return self._waiting.bytes

    @property
    def awaited_count(self) -> int:
        """How many channels do not exist and are only waited for."""
        return self._directory.awaited_count

    @property
    def has_deliveries(self) -> bool:
        return bool(self._waiting.woken_channels)

    def deliver(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` of those whom entries have woken; call again while `has_deliveries`.

        Looks at no more than that many, too: one that has nothing to hear, for its time range, waits on, and when
        another of its channels was woken as well it is passed over there.
        """
        answers = []
        if most > 0 and self._waiting.woken_channels:
            last = self._last.sequence
            for subscription in self._waiting.woken():
                if subscription.looked < last:
                    answer = self._read(subscription.channels, subscription.selection, subscription.seen)
                    if answer.messages or answer.tells_something:
                        answers.append((self._finish(subscription), answer))
                    else:
                        subscription.seen = max(subscription.seen, last)
                        subscription.looked = last
                        self._waiting.wait_again(subscription)
                most -= 1
                if most == 0:
                    break
        return answers

    @property
    def next_deadline(self) -> float | None:
        """When the next subscription is to be answered: then call `expire`."""
        return self._waiting.next_deadline

    def expire(self, now: float, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` subscriptions whose deadline has come."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._waiting.pop_due(now)) is not None:
            answers.append(self._answer_with_what_there_is(subscription))
        return answers

    def end_all(self, most: int) -> list[tuple[H, Answer]]:
        """The answers for at most `most` subscriptions, those with the latest deadlines first: the node is to stop."""
        answers: list[tuple[H, Answer]] = []
        while len(answers) < most and (subscription := self._waiting.pop_last()) is not None:
            answers.append(self._answer_with_what_there_is(subscription))
        return answers

    def _read(self, channels: tuple[Channel, ...], selection: Selection, after: int) -> Answer:
        """What `read` says to those who are held, made once for all who ask the same between two entries."""
        key = (selection, after)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_KEPT:
                self._answers.clear()
            cursor = Cursor(self._last.epoch, after)
            answer = read(channels, selection, cursor, self._last, self._limits.answer_limit_bytes, held=True)
            self._answers[key] = answer
        return answer

    def _answer_with_what_there_is(self, subscription: Subscription[H]) -> tuple[H, Answer]:
        answer = self._read(subscription.channels, subscription.selection, subscription.seen)
        return self._finish(subscription), answer

    def _finish(self, subscription: Subscription[H]) -> H:
        holder = self._waiting.release(subscription)
        self._leave(subscription.channels)
        return holder

    def _wait_for(self, names: tuple[str, ...]) -> tuple[tuple[Channel, ...], int, bool]:
        """The channels of these names, the latest that any of them has to tell, and whether all of them live."""
        if len(names) == 1:
            channel = self._directory.wait_for(names[0])
            return (channel,), channel.latest, channel.id != 0
        channels: dict[Channel, None] = {}
        try:
            for name in names:
                channels[self._directory.wait_for(name)] = None
        except UnknownChannel:
            self._leave(tuple(channels))
            raise
        return tuple(channels), max(c.latest for c in channels), all(c.living for c in channels)

    def _leave(self, channels: tuple[Channel, ...]) -> None:
        for channel in channels:
            if channel.id == 0 and channel.subscribers == 0:
                self._directory.leave(channel)

    # To look at.

    @property
    def message_count(self) -> int:
        return len(self._cache)

    @property
    def message_bytes(self) -> int:
        return self._cache.bytes

    @property
    def channel_count(self) -> int:
        return len(self._directory)

    def channel(self, name: str) -> Channel:
        """The living channel of a name or id, to look at.

        Raises: UnknownChannel.
        """
        channel = self._directory.find(name)
        if channel is None:
            raise _unknown(name)
        return channel

    def name_of(self, name: str) -> str:
        """The living channel's name, by its name or id; what does not live goes by what it was called."""
        channel = self._directory.find(name)
        return name if channel is None else channel.name

    def channels(self, after: int = 0, most: int | None = None) -> list[Channel]:
        """The living channels with an id after this one, `most` at most, by id; to look at."""
        return self._directory.page(after, most)

    # To start another node from.

    def snapshot(self) -> Snapshot:
        """The shared state as a value. O(all)."""
        return Snapshot(
            epoch=self._last.epoch,
            sequence=self._last.sequence,
            time=self._time,
            last_id=self._directory.last_id,
            floor=self._directory.floor,
            channels=tuple([ChannelSnapshot.of(c) for c in self._directory.remembered()]),
            messages=tuple([MessageSnapshot.of(m) for m in self._cache.messages()]),
            keys=tuple(self._keys.items()),
        )

    def note_changes(self, after: int | None = None) -> None:
        """Note what changes after this sequence, by default from here on, and forget what has before."""
        self._noted_from = self._last.sequence if after is None else after
        self._directory.note_from(self._noted_from)

    @property
    def changed_count(self) -> int:
        """How much `changes` has to look at: places in the order, and channels."""
        return self._last.sequence - self._noted_from + len(self._directory.changed or ())

    def changes(self, after: int | None = None) -> Changes:
        """What has changed in the shared state after this sequence, by default all that is noted. O(that)."""
        after = self._noted_from if after is None else after
        changed = self._directory.changed_after(after)
        remembered = [(name, self._directory.remembers(name)) for name in changed]
        return Changes(
            epoch=self._last.epoch,
            sequence=self._last.sequence,
            time=self._time,
            last_id=self._directory.last_id,
            floor=self._directory.floor,
            channels=tuple([ChannelSnapshot.of(c) for _, c in remembered if c is not None]),
            forgotten=tuple([name for name, c in remembered if c is None]),
            messages=tuple([MessageSnapshot.of(m) for m in self._cache.messages(after)]),
            first_message=_first(self._cache.oldest_sequence, self._last.sequence),
            keys=tuple(self._keys.items(after)),
            first_key=_first(self._keys.oldest_sequence, self._last.sequence),
        )

    @classmethod
    def restore(cls, limits: Limits, snapshot: Snapshot) -> MessageQueue[H]:
        """A queue that goes on where the snapshot was taken."""
        queue: MessageQueue[H] = cls(limits, epoch=snapshot.epoch)
        queue.start_from(snapshot)
        return queue

    def start_from(self, snapshot: Snapshot) -> None:
        """Be as the queue was of which this is a snapshot; nobody may be held. What changes is not noted yet."""
        assert not self.held
        self._begin(snapshot.epoch, snapshot.sequence, snapshot.time)
        directory = self._directory
        directory.last_id, directory.floor, directory.sequence = snapshot.last_id, snapshot.floor, snapshot.sequence
        directory.restore(c.restore() for c in snapshot.channels)
        for m in snapshot.messages:
            holders = [c for c in map(directory.find, m.channels) if c is not None and c.dropped < m.sequence]
            if holders:  # else all its channels have let it go
                self._cache.restore(m.restore(), holders)
        for key, remembered in snapshot.keys:
            self._keys.add(key, remembered)

    def check(self) -> None:
        """Assert every invariant of every part. O(all); for tests."""
        self._directory.check()
        self._cache.check()
        self._waiting.check()


def _first(oldest: int | None, last: int) -> int:
    """From which sequence on there is something, if there is nothing: what comes next."""
    return last + 1 if oldest is None else oldest


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else time + seconds


def _state(channel: Channel) -> ChannelState:
    return ChannelState(channel.id, channel.name, channel.expires)


def _key_reused() -> KeyReused:
    text = "this key was used for other messages, and nothing was published; use a new key for each publication"
    return KeyReused(text, field="Idempotency-Key")


def _is_only_awaited_now(channel: Channel) -> bool:
    """Whether the channel is there for a poll that is not held yet, and for nothing else."""
    return not (channel.living or channel.closed or channel.subscribers)


def _unknown(name: str) -> UnknownChannel:
    return UnknownChannel(f"channel {name!r} does not exist", field="channel")
