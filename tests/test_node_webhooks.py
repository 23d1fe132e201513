"""When a node claims messages that were not read and calls the application, and what it says that users have read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.broadcast import Broadcast, OnOutcome
from pushup.core.channel import Message, Unread
from pushup.core.commands import Claim, Command, Continue, Draft, Entry, Expire, Publish, Read, Told
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, Refusal, Unavailable
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.core.webhooks import Webhook
from pushup.net.log_throttle import LOG_SECONDS
from pushup.node.expiry import SPREAD_SECONDS
from pushup.node.readers import AHEAD_LIMIT, AHEAD_SECONDS, Readers
from pushup.node.webhook_caller import ATTEMPTS, TOLD_SECONDS, WebhookCaller
from tests.core.builders import EPOCH, draft, publish
from tests.net.observed_log import logged_at

AFTER = 10.0


class Order:
    """Gives each command its place at once; the node is its only one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state = ReplicatedState(Limits(), epoch=EPOCH)
        self.appended: list[Command] = []
        self.refusal: PushUpError | None = None
        self.waiting: list[Callable[[], None]] | None = None
        """If it is a list, outcomes wait here."""
        self.calls: list[tuple[Webhook, Message | None, Deferred[bool]]] = []
        self.random = 0.0
        broadcast = cast(Broadcast, self)
        self.caller = WebhookCaller(broadcast, state=lambda: self.state, clock=self.clock, random=lambda: self.random)
        self.readers = Readers(broadcast, state=lambda: self.state, soon=self.soon, seconds=self.clock.seconds)

    def soon(self, call: Callable[[], None]) -> None:
        self.clock.callLater(0.0, call)

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        self.appended.append(command)

        outcome = self.refusal or self.order(command)
        if self.waiting is None:
            on_outcome(outcome)
        else:
            self.waiting.append(lambda: on_outcome(outcome))

    def order(self, command: Command) -> Any:
        """Of any node."""
        cursor = self.state.cursor
        return self.state.apply(Entry(cursor.epoch, cursor.sequence + 1, 1000.0 + self.clock.seconds(), command))

    def send(self, row: Webhook, message: Message | None) -> Deferred[bool]:
        result: Deferred[bool] = Deferred()
        self.calls.append((row, message, result))
        return result

    def ask(self, *subjects: str) -> str:
        """A message that waits for these; its id."""
        unread = Unread(AFTER, subjects)
        self.order(Publish((Draft(("a",), draft("a").data, None, unread),)))
        return str(self.state.cursor)

    def due(self, *subjects: str) -> str:
        """A message about which the application is to be called."""
        id_ = self.ask(*subjects)
        self.clock.advance(AFTER)
        self.order(Expire())
        self.appended = []
        return id_

    def after(self, seconds: float) -> list[Command]:
        """What is appended meanwhile; the node looks once, at the beginning."""
        self.appended = []
        self.caller.look()
        self.clock.advance(seconds)
        return self.appended


@pytest.fixture
def order() -> Order:
    order = Order()
    order.caller.use(order.send, 2)
    return order


# Calls.


def test_a_call(order: Order) -> None:
    """Claimed after a random time, and removed soon after it ended, with others."""
    order.random = 0.5
    first, second = order.due("ann"), order.due("bob")
    order.clock.advance(SPREAD_SECONDS * 0.4)
    assert order.after(SPREAD_SECONDS * 0.4) == []
    assert order.after(SPREAD_SECONDS * 0.2) == [Claim((first, second))]
    assert [row.id for row, _, _ in order.calls] == [first, second]
    for _, message, result in order.calls:
        assert message is not None
        result.callback(True)
        order.clock.advance(TOLD_SECONDS * 0.4)
    assert order.appended == [Claim((first, second))]
    order.clock.advance(TOLD_SECONDS * 0.2)
    assert order.appended == [Claim((first, second)), Told((first, second))]
    assert order.caller.counts == {"sent": 2, "failed": 0, "given_up": 0}
    assert order.after(60) == []
    assert order.clock.getDelayedCalls() == []


def test_nothing_is_claimed_in_vain(order: Order) -> None:
    """Nor looked for: nothing is due, or another node was first."""
    first = order.ask("ann")
    assert order.after(1) == []
    order.caller.look()
    assert order.clock.getDelayedCalls() == []
    second = order.due("bob")
    order.random = 0.9
    order.caller.look()
    order.order(Claim((first, second)))
    order.clock.advance(1)
    assert order.appended == []


def test_one_claim_and_few_calls_at_a_time(order: Order) -> None:
    ids = [order.due("ann") for _ in range(5)]
    order.waiting = []
    assert order.after(1) == [Claim((*ids[:2],))]
    assert order.after(1) == [], "the first is not decided"
    order.waiting.pop()()
    order.waiting = None
    assert order.after(1) == [], "as many calls run as may"
    order.calls[0][2].callback(True)
    order.clock.advance(0)
    assert order.appended == [Claim((ids[2],))]
    order.calls[1][2].callback(True)
    order.clock.advance(0)
    assert order.appended == [Claim((ids[2],)), Claim((ids[3],))]
    assert len(order.calls) == 4


def test_a_claim_that_was_refused_is_made_again(order: Order) -> None:
    id_ = order.due("ann")
    order.refusal = Refusal.UNREACHABLE("a fault")
    assert order.after(1) == [Claim((id_,))]
    order.refusal = None
    assert order.after(1) == [Claim((id_,))]
    assert len(order.calls) == 1


def test_a_message_that_is_deleted_while_it_is_claimed(order: Order) -> None:
    """The claim has its outcome later."""
    id_ = order.due("ann")
    order.waiting = []
    order.after(1)
    order.order(Told((id_,)))
    order.waiting.pop()()
    assert order.calls == []


def test_a_message_of_an_epoch_by_another_name(order: Order) -> None:
    id_ = order.due("ann")
    order.order(Continue("e2"))
    order.order(publish("a"))
    order.after(1)
    ((row, message, _),) = order.calls
    assert message is not None
    assert (row.id, message.sequence) == (id_, 1)


# Failures.


def test_failures_are_logged_once_and_their_end(order: Order, logged_failures: list[str]) -> None:
    with logged_at("warn") as warnings, logged_at("info") as infos:
        for error in (Unavailable("it is down", operator_detail="refused"), Unavailable("again"), ValueError("odd")):
            order.due("ann")
            order.after(1)
            order.calls.pop()[2].errback(error)
        assert warnings == ["webhook_url does not take calls, which will be repeated: refused"]
        order.due("ann")
        order.after(1)
        assert infos == []
        order.calls.pop()[2].callback(True)
        order.due("ann")
        order.after(1)
        order.calls.pop()[2].callback(True)
        assert infos == ["webhook_url takes calls again"]
        order.after(LOG_SECONDS)
        order.due("ann")
        order.after(1)
        order.calls.pop()[2].errback(ValueError("odd"))
        assert warnings[1:] == ["webhook_url does not take calls, which will be repeated: ValueError('odd')"]
    assert order.caller.counts == {"sent": 2, "failed": 4, "given_up": 0}


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_given_up_is_logged_each_time(order: Order, gone: bool) -> None:
    """An application that wants no call, or does not take it for long."""
    with logged_at("warn") as warnings:
        ids = [order.due("ann"), order.due("bob")]
        for id_ in ids if not gone else ():
            for _ in range(ATTEMPTS - 1):
                order.order(Claim((id_,)))
                order.clock.advance(24 * 60)
                order.order(Expire())
        order.after(1)
        for _, _, result in order.calls:
            if gone:
                result.callback(False)
            else:
                result.errback(Unavailable("it is down"))
        order.clock.advance(TOLD_SECONDS)
    reason = "it answered 410 (Gone)" if gone else "it is down"
    text = "webhook_url did not take the call {}, and there is no other attempt: {}"
    assert warnings == [text.format(id_, reason) for id_ in ids]
    assert order.appended[-1] == Told(tuple(ids))
    assert order.caller.counts["given_up"] == 2


def test_what_could_not_be_removed_is_at_the_next_look(order: Order) -> None:
    id_ = order.due("ann")
    order.after(1)
    order.refusal = Refusal.UNREACHABLE("a fault")
    order.calls[0][2].callback(True)
    order.clock.advance(TOLD_SECONDS)
    assert order.appended[-1] == Told((id_,))
    order.refusal = None
    assert order.after(TOLD_SECONDS / 2) == []
    assert order.after(TOLD_SECONDS) == [Told((id_,))]
    assert order.after(60) == []


def test_a_node_that_stops(order: Order) -> None:
    """It says which calls have ended, and claims no more."""
    first, _, _ = order.due("ann"), order.due("bob"), order.due("cy")
    order.after(0)
    order.appended = []
    order.random = 0.5
    order.calls[0][2].callback(True)
    order.caller.stop()
    assert order.appended == [Told((first,))]
    assert not order.caller.is_on
    assert order.clock.getDelayedCalls() == []
    order.calls[1][2].callback(True)
    assert not [command for command in order.after(60) if isinstance(command, Claim)]


def test_a_node_that_stops_while_it_claims(order: Order) -> None:
    id_ = order.due("ann")
    order.waiting = []
    order.after(1)
    order.caller.stop()
    order.waiting.pop()()
    assert order.appended == [Claim((id_,))]
    assert order.calls == []


# Who has read what.


def cursor(sequence: int) -> Cursor:
    return Cursor(EPOCH, sequence)


def test_what_was_read_is_appended_once(order: Order) -> None:
    order.readers.note("ann", ("a",), cursor(0))
    id_ = order.ask("ann")
    for _ in range(2):
        order.readers.note("bob", ("a",), cursor(1))
        order.readers.note("ann", ("a",), cursor(1))
    assert order.appended == [Read("ann", (id_,))]


def test_who_is_ahead_is_noted_when_the_node_is_there(order: Order) -> None:
    order.readers.note("ann", ("a",), cursor(2))
    order.readers.note("bob", ("a",), cursor(1))
    id_ = order.ask("ann", "bob", "cy")
    order.readers.look()
    assert order.appended == [Read("bob", (id_,))]
    order.order(publish("b"))
    order.readers.look()
    order.readers.look()
    assert order.appended == [Read("bob", (id_,)), Read("ann", (id_,))]


@pytest.mark.parametrize(("seconds", "is_noted"), [(AHEAD_SECONDS - 0.5, True), (AHEAD_SECONDS, False), (99.0, False)])
def test_who_is_ahead_is_remembered_for_a_while(order: Order, seconds: float, is_noted: bool) -> None:
    order.readers.note("ann", ("a",), cursor(1))
    order.clock.advance(seconds)
    order.readers.look()
    order.ask("ann")
    order.readers.look()
    assert bool(order.appended) == is_noted


def test_few_who_are_ahead_are_remembered(order: Order) -> None:
    for number in range(AHEAD_LIMIT + 2):
        order.readers.note(f"u{number}", ("a",), cursor(1))
    order.ask(f"u{AHEAD_LIMIT - 1}", f"u{AHEAD_LIMIT}", f"u{AHEAD_LIMIT + 1}")
    order.readers.look()
    assert [command.subject for command in order.appended if isinstance(command, Read)] == [f"u{AHEAD_LIMIT - 1}"]
