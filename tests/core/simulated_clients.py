"""Nodes that apply the same entries at their own pace, and clients that carry their cursor from node to node."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random

from pushup.core.answer import Answer
from pushup.core.commands import Command, Continue, Done, Entry, Outcome
from pushup.core.cursor import Cursor, Start, parse_cursor
from pushup.core.errors import PushUpError, UnknownChannel
from pushup.core.held_polls import AHEAD_SECONDS, HeldPolls
from pushup.core.limits import Limits
from pushup.core.poll import Poll, Selection
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore
from pushup.core.subscription import Subscription

from .builders import EPOCH, ids, sequence_of
from .naive_state import EPHEMERAL, NaiveState


@dataclass(eq=False)
class Client:
    """Follows one chain of cursors and remembers every message it received."""

    selection: Selection
    cursor: Cursor | Start
    received: set[int] = field(default_factory=set)
    answers_with_gaps: int = 0
    is_waiting: bool = False

    def take(self, answer: Answer, names: tuple[str, ...], since: int | None, naive: NaiveState) -> None:
        """Assert that an answer covers everything between `since` and its own cursor, without duplicates.

        For each channel: its messages name it, or are in a gap, which ends before the first that names it, unless that
        is followed by one that was erased. So a stream may be left, or joined, at the cursor of any of its messages, or
        at the end of a gap.
        """
        end = sequence_of(answer.cursor)
        got = ids(answer)
        assert got == sorted(set(got))
        assert self.received.isdisjoint(got)
        assert all((since or 0) < sequence <= end for sequence in got)
        assert all(message.channels and set(message.channels) <= set(names) for message in answer.messages)
        self.received.update(got)
        self.answers_with_gaps += bool(answer.gaps)
        self.cursor = parse_cursor(answer.cursor)
        if since is None:
            return
        assert end >= since
        gaps = {gap.channel: sequence_of(gap.until) for gap in answer.gaps}
        named = {(sequence_of(message.id), name) for message in answer.messages for name in message.channels}
        for message in reversed(naive.published):
            if message.sequence <= since:
                break
            if message.sequence <= end and self.selection.start <= message.time < self.selection.end:
                for name in set(message.channels) & set(names):
                    is_named, is_missed = (message.sequence, name) in named, message.sequence <= gaps.get(name, since)
                    is_before_erased = message.sequence < naive.last_erased(name)
                    assert not (is_named and is_missed) or is_before_erased, (
                        f"message {message.sequence} of {name}: {answer} after {since}"
                    )
                    assert is_named or is_missed or message.kind == EPHEMERAL
        for name, sequence in reversed(naive.closed):
            if sequence <= since:
                break
            if name in names and sequence <= end:
                assert name in answer.closed or name in gaps, f"the closing of {name} is lost"


@dataclass(eq=False)
class Held:
    """A poll that a node holds; `since` is the cursor of its client, or where the node was if it had none."""

    number: int
    client: Client | None
    names: tuple[str, ...]
    selection: Selection
    since: int
    deadline: float
    subscription: Subscription[int]
    was_moved: bool = False
    """Whether the state it was subscribed to has been replaced."""
    is_lost: bool = False
    """Whether its cursor has turned out to be beyond the end of the order."""

    def stay(self, answer: Answer) -> None:
        """If it is still held after this answer, it continues there, in the state that the answer was made of."""
        self.since = sequence_of(answer.cursor)
        self.was_moved = self.is_lost = False


class Node:
    """A node and its reference model, fed the same entries; every answer is compared with the model's.

    After waking polls, it applies another `delay` seconds of entries before it answers them.
    """

    def __init__(self, limits: Limits, delay: float) -> None:
        self.limits = limits
        self.delay = delay
        self.delivered = 0.0
        self.state = ReplicatedState(limits, epoch=EPOCH)
        self.polls: HeldPolls[int] = HeldPolls(self.state)
        self.naive = NaiveState(limits, EPOCH)
        self.applied = 0
        self.held: dict[int, Held] = {}
        self.asked: tuple[Cursor, list[tuple[int, Subscription[int]]]] | None = None
        self.poll_count = 0

    def start_from(self, other: Node) -> None:
        """Continue from another node's state. Held polls stay, and may get gaps that are only assumed."""
        if other.naive.position(Cursor(self.naive.epoch, 0)) is None:
            return  # it does not know this epoch yet
        for held in self.held.values():
            held.was_moved = True
            held.is_lost |= other.naive.position(Cursor(self.naive.epoch, held.since)) is None
        self.state = restore(other.state.snapshot())
        self.polls.use(self.state)
        self.naive = copy.deepcopy(other.naive)
        self.applied = other.applied
        self.check()

    def apply(self, entry: Entry) -> Outcome:
        if entry.time - self.delivered >= self.delay:
            self.deliver_all()
        outcome, expected = self.state.apply(entry), self.naive.apply(entry)
        self.polls.wake(self.state.touched)
        if isinstance(entry.command, Continue) and expected == Done():
            for held in self.held.values():
                held.is_lost |= held.since >= entry.sequence
        if isinstance(expected, PushUpError):
            assert type(outcome) is type(expected)
            assert isinstance(outcome, PushUpError)
            assert outcome.more == expected.more
        else:
            assert outcome == expected
        self.applied += 1
        self.naive.assert_matches(self.state.snapshot())
        self.check()
        return outcome

    def poll(self, poll: Poll, client: Client | None, now: float) -> None:
        if isinstance(poll.cursor, Cursor) and order_of(poll.cursor.epoch) > order_of(self.naive.epoch):
            return  # refused until this node knows the epoch
        self.poll_count += 1
        selection, last = poll.selection, self.naive.last
        names = self.naive.awaited(selection.channels)
        deadline = min(now + poll.timeout, selection.end)  # as `Node.poll` does
        try:
            result = self.polls.subscribe(poll, self.poll_count, now, deadline)
        except UnknownChannel:
            assert names is None
            return
        assert names is not None
        since = 0 if poll.cursor is Start.EARLIEST else last
        is_lost = False
        if isinstance(poll.cursor, Cursor):
            position = self.naive.position(poll.cursor)
            since, is_lost = position or 0, position is None
        if isinstance(result, Subscription):
            assert not is_lost
            missed = isinstance(poll.cursor, Cursor) and any(self.naive.dropped(name, since) for name in names)
            nothing = not missed and not self.naive.select(names, selection, since)
            assert nothing, "held although there is something to answer"
            since = since if isinstance(poll.cursor, Cursor) else last
            deadline = max(deadline, now + (AHEAD_SECONDS if since > last else 0.0))
            assert result.deadline == deadline > now
            self.held[self.poll_count] = Held(self.poll_count, client, names, selection, since, result.deadline, result)
            if client is not None:
                client.is_waiting = True
        elif is_lost:
            assert [(gap.channel, gap.reason) for gap in result.gaps] == [(name, "lost") for name in names]
            assert isinstance(poll.cursor, Cursor)
            good_up_to = self.naive.past.get(poll.cursor.epoch)
            self.naive.assert_answer(result, names, selection, good_up_to, is_lost=True)
        else:
            begins = poll.cursor is Start.EARLIEST
            assert result.tells_something or min(deadline, selection.end) <= now
            self.naive.assert_answer(result, names, selection, None if begins else since)
            if client is not None:
                client.take(result, names, None if begins else since, self.naive)
        self.check()

    def answered(self, answers: list[tuple[int, Answer]]) -> list[int]:
        for number, answer in answers:
            held = self.held[number]
            if held.subscription.holder is None:
                del self.held[number]
            else:
                assert held.subscription.stays
                assert not answer.more
                assert not answer.closed
            if held.is_lost:
                assert held.client is None
                assert [(gap.channel, gap.reason) for gap in answer.gaps] == [(name, "lost") for name in held.names]
                self.naive.assert_answer(answer, held.names, held.selection, None)
                held.stay(answer)
                continue
            self.naive.assert_answer(
                answer, held.names, held.selection, held.since, held=True, was_moved=held.was_moved
            )
            if held.client is not None:
                held.client.is_waiting = held.subscription.holder is not None
                held.client.take(answer, held.names, held.since, self.naive)
            held.stay(answer)
        self.check()
        return [number for number, _ in answers]

    def deliver(self, most: int) -> None:
        answers = self.polls.deliver(most)
        assert len(answers) <= most
        assert all(answer.tells_something for _, answer in answers)
        self.answered(answers)

    def deliver_all(self) -> None:
        """Deliver until no poll is woken; then no held poll has anything to be answered with."""
        while self.polls.has_deliveries:
            self.deliver(7)
        self.delivered = self.naive.time
        for held in self.held.values():
            assert not held.is_lost
            assert not self.naive.must_answer(held.names, held.selection, held.since), (
                f"poll {held.number} was not woken"
            )

    def expire(self, now: float, most: int) -> None:
        due = sorted((h for h in self.held.values() if h.deadline <= now), key=lambda h: (h.deadline, h.number))
        assert self.answered(self.polls.expire(now, most)) == [h.number for h in due[:most]]

    def abandon(self, random: Random) -> None:
        if self.held:
            held = self.held.pop(random.choice(sorted(self.held)))
            self.polls.abandon(held.subscription)
            self.polls.abandon(held.subscription)
            if held.client is not None:
                held.client.is_waiting = False
            self.check()

    def ask_end(self, end: Cursor) -> None:
        """Ask where the order ends; the answer, which is as of now, comes with `hear_end`."""
        if self.asked is None:
            self.asked = end, self.polls.ahead()

    def hear_end(self) -> None:
        if self.asked is not None:
            end, ahead = self.asked
            self.asked = None
            self.polls.end_is(end, ahead)
            asked = {subscription.holder: seen for seen, subscription in ahead}
            for held in self.held.values():
                if held.number in asked and end.epoch == self.naive.epoch:
                    held.is_lost |= asked[held.number] > end.sequence
            self.check()

    def check(self) -> None:
        self.state.check()
        self.polls.check()
        assert self.polls.count == len(self.held)
        assert self.polls.next_deadline == min((h.deadline for h in self.held.values()), default=None)
        assert self.state.message_count == len(self.naive.kept)
        assert self.state.cache.bytes == self.naive.bytes
        assert len(self.state.channels) == len(self.naive.open)
        for channel in self.state.channels.page():
            assert self.polls.subscribers(channel.name) == sum(
                channel.name in held.names for held in self.held.values()
            )


def order_of(epoch: str) -> int:
    """Epochs are named e1, e2 and so on."""
    return int(epoch[1:])


class Cluster:
    """The order of all entries, the nodes that follow it, and the one clock."""

    def __init__(self, limits: Limits, nodes: int, delay: float) -> None:
        self.nodes = [Node(limits, delay) for _ in range(nodes)]
        self.order: list[Entry] = []
        self.epoch = EPOCH
        self.next = 1
        self.now = 1000.0

    def append(self, command: Command) -> None:
        self.order.append(Entry(self.epoch, self.next, self.now, command))
        self.next += command.width
        if isinstance(command, Continue) and order_of(command.epoch) > order_of(self.epoch):
            self.epoch = command.epoch

    @property
    def end(self) -> Cursor:
        return Cursor(self.epoch, self.next - 1)

    def follow(self, node: Node, max_entries: int) -> None:
        for entry in self.order[node.applied : node.applied + max_entries]:
            node.apply(entry)
