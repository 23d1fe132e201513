"""Helpers for tests of the core: commands, entries, polls, and a state with the polls held on it."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Raw

from pushup.core.answer import Answer
from pushup.core.channel import Attributes, Message, attributes_of
from pushup.core.commands import Command, Draft, Entry, Outcome, Publish
from pushup.core.cursor import Cursor, parse_cursor
from pushup.core.held_polls import HeldPolls
from pushup.core.limits import HoldLimits, Limits
from pushup.core.machine_rules import Rules
from pushup.core.poll import Poll, Selection
from pushup.core.shelves import RetentionClass, Shelf
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Subscription

EPOCH = "e1"


def draft(*channels: str, data: str = "1", event: str = "", ephemeral: bool = False) -> Draft:
    return Draft(channels, Raw(data.encode()), attributes_of(Attributes(event=event, ephemeral=ephemeral)))


def message(sequence: int, time: float, *channels: str, data: str = "1") -> Message:
    """A message on a shelf of its own."""
    kept = RetentionClass("", Rules(Limits()).retention(""))
    return Message(sequence, time, channels, Raw(data.encode()), None, Shelf(kept, ""))


def publish(*channels: str, data: str = "1", key: str | None = None) -> Publish:
    """A publication of one message."""
    return Publish((draft(*channels, data=data),), key)


def batch(*drafts: Draft, key: str | None = None) -> Publish:
    return Publish(drafts, key)


def poll(
    *channels: str,
    cursor: str = "",
    timeout: float = 0.0,
    limit: int = 100,
    start: float = 0.0,
    end: float = math.inf,
) -> Poll:
    return Poll(Selection(channels, limit, start, end), parse_cursor(cursor), timeout)


class Feed:
    """A replicated state and the polls held on it; each command gets the next sequence."""

    def __init__(self, *, hold_limits: HoldLimits = HoldLimits(), **limits: Any) -> None:  # noqa: B008  # frozen
        self.limits = Limits(**limits)
        self.state = ReplicatedState(self.limits, epoch=EPOCH)
        self.polls: HeldPolls[str] = HeldPolls(self.state, hold_limits)

    def apply(self, command: Command, time: float) -> Outcome:
        outcome = self.state.apply(Entry(self.state.cursor.epoch, self.state.cursor.sequence + 1, time, command))
        self.polls.wake(self.state.touched)
        return outcome

    def use(self, state: ReplicatedState) -> None:
        """Continue with another state."""
        self.state = state
        self.polls.use(state)
        self.check()

    def check(self) -> None:
        self.state.check()
        self.polls.check()

    def subscribe(self, asked: Poll, now: float, holder: str = "client") -> Answer | Subscription[str]:
        return self.polls.subscribe(asked, holder, now, now + asked.timeout)

    def ask(self, asked: Poll, now: float = 0.0) -> Answer:
        """The answer to a poll that is expected not to be held."""
        answer = self.subscribe(asked, now)
        assert isinstance(answer, Answer)
        return answer

    def hold(self, asked: Poll, now: float, holder: str = "client") -> Subscription[str]:
        """The subscription of a poll that is expected to be held."""
        subscription = self.subscribe(asked, now, holder)
        assert isinstance(subscription, Subscription), subscription
        return subscription

    def deliver(self, most: int = 100) -> list[tuple[str, Answer]]:
        answers = self.polls.deliver(most)
        self.check()
        return answers

    def expire(self, now: float, most: int = 100) -> list[tuple[str, Answer]]:
        answers = self.polls.expire(now, most)
        self.check()
        return answers


def ids(answer: Answer) -> list[int]:
    """The sequences of the messages in an answer."""
    return [sequence_of(message.id) for message in answer.messages]


def gaps(answer: Answer) -> list[tuple[str, str]]:
    return [(gap.channel, gap.reason) for gap in answer.gaps]


def sequence_of(cursor: str) -> int:
    parsed = parse_cursor(cursor)
    assert isinstance(parsed, Cursor)
    return parsed.sequence
