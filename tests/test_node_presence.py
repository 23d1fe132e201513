"""What a node appends about those who follow by it, and when: one order, and nodes that do nothing else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec import Raw
from twisted.internet.task import Clock

from pushup.broadcast import Broadcast, Member, OnOutcome
from pushup.core.attendance import Attendance, Away, Gone, Here, Key, Leave
from pushup.core.commands import Command, Configure, Entry
from pushup.core.errors import PushUpError, Refusal
from pushup.core.grant import Grant
from pushup.core.limits import ChannelPolicy, Limits
from pushup.core.members import GONE_AT_MOST
from pushup.core.poll import Selection
from pushup.core.state import ReplicatedState
from pushup.node.expiry import SPREAD_SECONDS
from pushup.node.leaving import TOGETHER_AT_MOST
from pushup.node.presence import (
    ANSWER_SECONDS,
    CLOSING_SECONDS,
    GONE_SECONDS,
    LOOK_SECONDS,
    TOGETHER_SECONDS,
    Presence,
    PresenceLimits,
)

EPOCH = "e1"
GRACE, HIDDEN = 16.25, 32.25
POLICIES = (ChannelPolicy(prefix="room", presence=True),)
ANN, BOB = ("room", "ann"), ("room", "bob")


@dataclass(eq=False)
class Held:
    """A poll or a stream."""

    grant: Grant
    selection: Selection

    def end(self, error: PushUpError, /) -> None:
        raise AssertionError("nobody ends it")


def held(subject: str, channel: str = "room", *, data: str = "", hidden: bool = False) -> Held:
    return Held(Grant(subject=subject, presence=data.encode()), Selection((channel,), hidden=hidden))


class Order:
    """Gives each command its place at once, and has a node as its only one, with the id `2`."""

    node_id = "2"

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.state = ReplicatedState(Limits(**{"channels": POLICIES, **limits}), epoch=EPOCH)
        self.appended: list[Command] = []
        """What the node has appended, also if it was refused."""
        self.refusal: PushUpError | None = None
        self.on_its_way: list[Callable[[], None]] | None = None
        """Unless it is None: puts what is appended into the order."""
        self.others: list[str] = []
        """The other nodes that are alive."""
        self.random = 0.0
        self.node = Presence(
            cast(Broadcast, self),
            PresenceLimits(presence_grace_seconds=GRACE, presence_hidden_seconds=HIDDEN),
            state=lambda: self.state,
            members=lambda: [Member(name, "", (), str(self.state.cursor), 0, "") for name in self.others],
            clock=self.clock,
            random=lambda: self.random,
        )

    def why_not_ready(self) -> None:
        """It always is."""

    def now(self) -> float:
        return 1000.0 + self.clock.seconds()

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        self.appended.append(command)
        if self.on_its_way is not None:
            self.on_its_way.append(lambda: on_outcome(self.order(command)))
        else:
            on_outcome(self.refusal or self.order(command))

    def order(self, command: Command) -> Any:
        """Of any node."""
        cursor = self.state.cursor
        outcome = self.state.apply(Entry(cursor.epoch, cursor.sequence + 1, self.now(), command))
        self.node.applied(self.state.touched)
        return outcome

    def after(self, seconds: float) -> list[Command]:
        """What the node appends meanwhile."""
        return self.until(self.clock.seconds() + seconds)

    def until(self, time: float) -> list[Command]:
        """What the node appends until then."""
        self.appended = []
        while (calls := self.clock.getDelayedCalls()) and calls[0].getTime() < time:
            self.clock.advance(calls[0].getTime() - self.clock.seconds())
        self.clock.advance(time - self.clock.seconds())
        return self.appended

    def joined(self, *polls: Held) -> None:
        """These follow, and are members."""
        for poll in polls:
            self.node.begins(poll)
        self.after(TOGETHER_SECONDS)

    def is_answered(self, key: Key) -> bool:
        """Whether the node says that this member follows when another one asks."""
        self.order(Gone("2", 9.0))
        assert (key, False) in self.state.touched.asked
        return here(key) in self.after(TOGETHER_SECONDS)


def here(*keys: Key, data: str = "null", node: str = "2") -> Here:
    return Here(node, tuple([Attendance(*key, Raw(data.encode())) for key in keys]))


def away(*keys: Key, seconds: float = GRACE / 2 + ANSWER_SECONDS) -> Away:
    return Away("2", keys, seconds)


def closed(*keys: Key) -> Away:
    return Away("2", keys, ANSWER_SECONDS, is_closed=True)


@pytest.fixture
def order() -> Order:
    return Order()


# Coming.


def test_who_comes_within_a_moment_is_one_entry(order: Order) -> None:
    order.node.begins(held("ann"))
    assert order.after(TOGETHER_SECONDS * 0.75) == []
    order.node.begins(held("bob", data='"Bob"'))
    order.node.begins(held("bob"))
    assert order.after(TOGETHER_SECONDS * 0.25) == [Here("2", (Attendance(*ANN), Attendance(*BOB, Raw(b'"Bob"'))))]
    assert order.after(GRACE) == []


def test_an_entry_has_only_so_many(order: Order) -> None:
    keys = [("room", f"u{number:03}") for number in range(TOGETHER_AT_MOST + 1)]
    for _, subject in keys:
        order.node.seen(held(subject).grant, held(subject).selection)
    assert order.after(TOGETHER_SECONDS) == [here(*keys[:-1]), here(keys[-1])]
    order.after(GRACE / 2 - TOGETHER_SECONDS)
    assert order.after(LOOK_SECONDS) == [away(*keys[:-1]), away(keys[-1])]
    asked = order.after(GRACE / 2 + ANSWER_SECONDS + LOOK_SECONDS)
    assert [len(command.members) for command in asked if isinstance(command, Leave)] == [TOGETHER_AT_MOST, 1]
    assert order.state.members.count("room") == 0


@pytest.mark.parametrize(("subject", "channel"), [("", "room"), ("ann", "other")])
def test_who_is_no_member(order: Order, subject: str, channel: str) -> None:
    poll = held(subject, channel)
    order.node.begins(poll)
    order.node.seen(poll.grant, poll.selection)
    order.node.ends(poll)
    assert order.after(2 * GRACE) == []


def test_other_data_are_told(order: Order) -> None:
    order.joined(held("ann", data='"a"'))
    order.node.begins(held("ann", data='"a"'))
    assert order.after(LOOK_SECONDS) == []
    order.node.begins(held("ann", data='"b"'))
    assert order.after(TOGETHER_SECONDS) == [here(ANN, data='"b"')]


def test_a_full_table_is_not_asked_for_room() -> None:
    """But members are claimed."""
    order = Order(members_limit=1)
    order.joined(held("ann"), held("bob"))
    order.node.begins(held("cy"))
    assert order.after(LOOK_SECONDS) == []
    assert order.is_answered(ANN)


# Leaving.


def test_a_user_with_two_tabs_stays_for_the_other(order: Order) -> None:
    one, other = held("ann"), held("ann")
    order.joined(one, other)
    order.node.ends(one)
    assert order.after(2 * GRACE) == []


def test_who_does_not_come_back_is_asked_about_at_half_of_the_grace(order: Order) -> None:
    poll = held("ann")
    order.joined(poll, held("bob"))
    order.node.ends(poll)
    assert order.after(GRACE / 2) == []
    assert order.after(LOOK_SECONDS) == [away(ANN)]
    assert order.after(GRACE / 2 + ANSWER_SECONDS - LOOK_SECONDS) == []
    assert order.after(2 * LOOK_SECONDS) == [Leave((ANN,))]


@pytest.mark.parametrize("hidden", [False, True])
def test_half_of_the_grace_after_the_last_poll(order: Order, hidden: bool) -> None:
    """Whether the one before it, which was answered meanwhile, had more time or not."""
    first, last = held("ann", hidden=hidden), held("ann")
    order.joined(first)
    order.node.ends(first)
    order.after(GRACE / 4)
    order.node.begins(last)
    order.node.ends(last)
    assert order.after(GRACE / 2) == []
    assert order.after(LOOK_SECONDS) == [away(ANN)]
    assert order.after(GRACE / 2) == []


@pytest.mark.parametrize("pauses", [(0.001, 0.001), (4.0, 6.0)])
def test_a_member_whose_polls_are_answered_takes_no_more_memory(order: Order, pauses: tuple[float, float]) -> None:
    """However many end within the grace, and however often its page is hidden."""
    polls = held("ann", hidden=True), held("ann")
    order.joined(polls[0])
    order.node.ends(polls[0])
    tracemalloc.start()
    try:
        for _ in range(500):
            for poll, pause in zip(polls, pauses, strict=True):
                order.node.begins(poll)
                order.node.ends(poll)
                order.after(pause)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 20_000


def test_a_hidden_page_has_more_time(order: Order) -> None:
    poll = held("ann", hidden=True)
    order.joined(poll)
    order.node.ends(poll)
    assert order.after(HIDDEN / 2) == []
    assert order.after(LOOK_SECONDS) == [away(ANN, seconds=HIDDEN / 2 + ANSWER_SECONDS)]


def test_nodes_say_that_somebody_has_left_after_a_random_time(order: Order) -> None:
    """So that usually one does."""
    order.random = 0.5
    order.joined(held("ann"))
    order.order(Here("1", (Attendance(*BOB),)))
    order.order(Away("1", (BOB,), LOOK_SECONDS / 2))
    assert order.after(LOOK_SECONDS - TOGETHER_SECONDS + SPREAD_SECONDS * 0.4) == []
    assert order.after(SPREAD_SECONDS * 0.2) == [Leave((BOB,))]


def test_another_node_has_said_it_first(order: Order) -> None:
    order.random = 0.5
    order.joined(held("ann"))
    order.order(Here("1", (Attendance(*BOB),)))
    order.order(Away("1", (BOB,), 0.5))
    order.after(LOOK_SECONDS - TOGETHER_SECONDS + SPREAD_SECONDS * 0.4)
    order.order(Leave((BOB,)))
    assert order.after(SPREAD_SECONDS) == []


def test_a_page_that_closes(order: Order) -> None:
    """Its user is asked about at once, wherever they follow; there is no grace. Coming back ends that."""
    poll = held("ann")
    order.joined(poll)
    order.appended = []
    order.node.closes("ann", ("room", "room", "other"))
    order.node.closes("zoe", ("room",))
    assert order.appended == [closed(ANN)]
    order.node.ends(poll)
    order.after(LOOK_SECONDS / 4)
    order.order(Here("1", (Attendance(*ANN),)))
    order.order(Away("1", (ANN,), 9.0))
    assert order.after(ANSWER_SECONDS) == []
    order.joined(poll)
    order.node.ends(poll)
    assert order.is_answered(ANN)


def test_a_page_that_closes_in_the_grace_is_forgotten(order: Order) -> None:
    poll = held("ann")
    order.joined(poll)
    order.node.ends(poll)
    order.node.closes("ann", ("room",))
    order.order(
        Configure(Limits())
    )  # no channel has presence any more, and nothing is left to look at once they have left
    order.after(ANSWER_SECONDS + 2 * LOOK_SECONDS)
    assert order.clock.getDelayedCalls() == []


def test_a_page_that_closes_after_its_user_was_forgotten(order: Order) -> None:
    """The state still has the member."""
    order.order(here(ANN, node="1"))
    order.node.closes("ann", ("room",))
    assert order.appended == [closed(ANN)]


def test_another_page_of_the_user_is_seen_to_follow(order: Order) -> None:
    """A moment later: the one that has closed may have been this one."""
    order.joined(held("ann"))
    order.until(CLOSING_SECONDS * 0.8)
    order.order(Away("1", (ANN,), 9.0, is_closed=True))
    assert order.until(CLOSING_SECONDS * 2) == []
    assert order.after(LOOK_SECONDS) == [here(ANN)]
    assert order.after(LOOK_SECONDS) == []


def test_an_answer_that_was_not_appended_yet_is_not_when_a_page_closes(order: Order) -> None:
    poll = held("ann")
    order.joined(poll)
    order.order(Gone("2", 9.0))
    order.order(Away("1", (ANN,), 9.0, is_closed=True))
    order.node.ends(poll)
    assert order.after(2 * LOOK_SECONDS) == []


def test_a_page_that_closes_elsewhere_ends_the_grace_here(order: Order) -> None:
    poll = held("ann")
    order.joined(poll)
    order.order(Away("1", (ANN,), 9.0, is_closed=True))
    order.node.ends(poll)
    order.order(here(ANN, node="1"))
    order.order(Away("1", (ANN,), 9.0))
    assert order.after(LOOK_SECONDS) == []


# Questions.


def test_a_question_is_answered_for_those_who_follow(order: Order) -> None:
    """And in half of their grace, to its very end."""
    poll = held("ann")
    order.joined(poll)
    assert order.is_answered(ANN)
    order.until(1.0)
    order.node.ends(poll)
    order.until(GRACE / 2)
    assert order.is_answered(ANN)
    order.until(1.0 + GRACE / 2)
    order.order(Away("2", (ANN,), 9.0))
    assert order.after(LOOK_SECONDS) == []


def test_members_who_do_not_follow_here_are_asked_about(order: Order) -> None:
    """An entry of this node was on its way for long; those of other nodes are theirs."""
    order.others = ["1", "3"]
    order.joined(held("ann"))
    order.order(here(BOB))
    order.order(here(("room", "cy"), node="1"))
    order.order(here(("room", "zoe"), node="3"))
    assert order.after(LOOK_SECONDS) == [away(BOB, seconds=GRACE)]
    assert order.after(LOOK_SECONDS) == []


def test_many_who_do_not_follow_here(order: Order) -> None:
    """Are asked about a thousand a second."""
    keys = [("room", f"u{number}") for number in range(GONE_AT_MOST + 1)]
    order.order(here(*keys))
    order.node.start_from()
    for count in (GONE_AT_MOST, 1, 0):
        asked = [command for command in order.after(LOOK_SECONDS) if isinstance(command, Away)]
        assert sum(len(command.members) for command in asked) == count
        assert max([len(command.members) for command in asked], default=0) <= TOGETHER_AT_MOST


def test_a_node_that_is_gone(order: Order) -> None:
    """Is said to be after a while without it, each second, until its members are asked about."""
    order.others = ["3"]
    order.order(here(BOB, node="1"))
    order.order(here(("room", "cy"), node="3"))
    order.order(here(ANN))
    order.joined(held("ann"))
    assert order.after(GONE_SECONDS) == []
    order.refusal = Refusal.UNREACHABLE("a fault")
    assert order.after(2 * LOOK_SECONDS) == [Gone("1", GRACE)] * 2
    order.refusal = None
    assert order.after(LOOK_SECONDS) == [Gone("1", GRACE)]
    assert order.after(LOOK_SECONDS) == []


def test_a_node_that_comes_back_has_all_the_time_again(order: Order) -> None:
    order.order(here(BOB, node="1"))
    order.joined(held("ann"))
    order.after(GONE_SECONDS - LOOK_SECONDS)
    order.others = ["1"]
    order.after(LOOK_SECONDS)
    order.others = []
    assert order.after(GONE_SECONDS) == []
    assert order.after(LOOK_SECONDS) == [Gone("1", GRACE)]


# Faults.


def test_what_was_refused_is_appended_again(order: Order) -> None:
    """A second later; who leaves is looked for anyway."""
    order.refusal = Refusal.UNREACHABLE("a fault")
    poll = held("ann")
    order.node.begins(poll)
    assert order.after(TOGETHER_SECONDS) == [here(ANN)]
    assert order.after(LOOK_SECONDS / 2) == []
    order.refusal = None
    assert order.after(LOOK_SECONDS / 2) == [here(ANN)]
    order.refusal = Refusal.UNREACHABLE("a fault")
    order.node.closes("ann", ("room",))
    order.node.ends(poll)
    order.refusal = None
    assert order.after(LOOK_SECONDS) == [away(ANN, seconds=ANSWER_SECONDS), closed(ANN)]


def test_who_has_left_meanwhile_is_not_appended_again(order: Order) -> None:
    """They were no members yet, so nobody has to ask."""
    order.refusal = Refusal.UNREACHABLE("a fault")
    poll = held("ann")
    order.node.begins(poll)
    order.after(LOOK_SECONDS - TOGETHER_SECONDS)
    order.node.closes("ann", ("room",))
    order.node.ends(poll)
    order.refusal = None
    assert order.after(3 * LOOK_SECONDS) == []


def test_a_page_closes_whose_user_is_just_coming(order: Order) -> None:
    """What says that it closes is refused, and asked again: who comes after all does not stay for the grace."""
    poll = held("ann")
    coming: list[Callable[[], None]] = []
    order.on_its_way = coming
    order.node.begins(poll)
    assert order.after(TOGETHER_SECONDS) == [here(ANN)]
    order.on_its_way, order.refusal = None, Refusal.UNREACHABLE("a fault")
    order.node.closes("ann", ("room",))
    order.node.ends(poll)
    assert closed(ANN) in order.after(2 * LOOK_SECONDS)
    order.refusal = None
    coming[0]()
    assert closed(ANN) in order.after(LOOK_SECONDS)
    assert Leave((ANN,)) in order.after(ANSWER_SECONDS + LOOK_SECONDS)


def test_questions_that_are_refused_do_not_pile_up(order: Order) -> None:
    """Each is asked once when that works again, however often it was refused, and many are in one entry."""
    keys = [("room", f"u{number:03}") for number in range(TOGETHER_AT_MOST + 1)]
    order.joined(*[held(subject) for _, subject in keys])
    order.refusal = Refusal.UNREACHABLE("a fault")
    for _ in range(3):
        for _, subject in keys:
            order.node.closes(subject, ("room",))
        order.after(LOOK_SECONDS)
    order.refusal = None
    assert order.after(LOOK_SECONDS) == [closed(*keys[:-1]), closed(keys[-1])]
    assert order.after(LOOK_SECONDS) == []


def test_who_has_come_back_meanwhile_is_not_asked_about(order: Order) -> None:
    """The others have as much time as they would have had."""
    polls = [held("ann", hidden=True), held("bob", hidden=True)]
    order.joined(*polls)
    for poll in polls:
        order.node.ends(poll)
    order.refusal = Refusal.UNREACHABLE("a fault")
    assert away(ANN, BOB, seconds=HIDDEN / 2 + ANSWER_SECONDS) in order.after(HIDDEN / 2 + LOOK_SECONDS)
    order.refusal = None
    order.node.begins(polls[1])
    assert order.after(LOOK_SECONDS) == [away(ANN, seconds=HIDDEN / 2 + ANSWER_SECONDS)]


@pytest.mark.parametrize("late", [0.0, 0.25])
def test_another_state(order: Order, late: float) -> None:
    """Has who follows here as soon as it is there, and in their grace; nobody else stays by this node."""
    polls = [held("ann"), held("bob"), held("cy")]
    order.joined(*polls)
    order.until(1.0)
    order.node.ends(polls[2])
    order.until(1.0 + GRACE + late)
    order.node.ends(polls[1])
    order.state = ReplicatedState(order.state.limits, epoch=EPOCH)
    order.order(here(("room", "zoe")))
    order.node.applied(order.state.touched)
    order.node.start_from()
    assert order.after(TOGETHER_SECONDS) == [here(ANN, BOB)]
    assert order.after(LOOK_SECONDS) == [away(("room", "zoe"), seconds=GRACE)]


def test_presence_that_is_switched_on() -> None:
    """A node looks at nothing before, and at everything afterwards."""
    order = Order(channels=())
    order.node.start_from()
    assert not order.node.is_on
    assert order.clock.getDelayedCalls() == []
    order.order(Configure(Limits(channels=POLICIES)))
    poll = held("ann")
    order.joined(poll)
    order.node.ends(poll)
    assert away(ANN) in order.after(GRACE / 2 + LOOK_SECONDS)


def test_presence_that_is_switched_off(order: Order) -> None:
    """Who follows then leaves as ever."""
    poll = held("ann")
    order.joined(poll)
    order.order(Configure(Limits()))
    order.after(LOOK_SECONDS)
    order.node.ends(poll)
    assert order.after(GRACE / 2 + LOOK_SECONDS) == [away(ANN)]


def test_members_of_a_state_that_nobody_follows_here(order: Order) -> None:
    order.order(here(ANN))
    order.node.start_from()
    assert away(ANN, seconds=GRACE) in order.after(LOOK_SECONDS)


def test_a_node_that_stops_appends_nothing(order: Order) -> None:
    poll = held("ann")
    order.joined(poll, held("bob"))
    order.order(Away("2", (BOB,), 0.5, is_closed=True))
    order.node.begins(held("cy"))
    order.random = 0.9
    order.after(0.0)
    order.node.stop()
    assert order.after(2 * GRACE) == []
    assert order.clock.getDelayedCalls() == []


def test_a_node_that_stops_claims_those_who_were_here_last(order: Order) -> None:
    """Or they would have only what is left of the grace when the node asks that has seen them before."""
    polls = [held("ann"), held("bob"), held("cy")]
    order.joined(*polls)
    for key in (ANN, BOB, ("room", "cy")):
        order.order(here(key, node="1"))
    order.node.ends(polls[0])
    order.node.ends(polls[1])
    order.node.closes("bob", ("room",))
    order.appended = []
    order.node.stop()
    assert order.appended == [here(ANN, ("room", "cy"))]


def test_a_node_that_has_stopped_tries_nothing_again(order: Order) -> None:
    """What was refused by then is not appended, and no timer is left."""
    poll = held("ann")
    order.joined(poll)
    order.refusal = Refusal.UNREACHABLE("a fault")
    order.node.begins(held("bob"))
    order.node.closes("ann", ("room",))
    order.after(TOGETHER_SECONDS)
    order.node.stop()
    assert order.after(2 * LOOK_SECONDS) == []
    assert order.clock.getDelayedCalls() == []
