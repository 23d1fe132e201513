"""A team without faults, and with one fault at a time: what members do, and what it costs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from loadtest.mishra.core.clock import Clock
from loadtest.mishra.core.effects import Effect, Joined, Outcome, Send
from loadtest.mishra.core.formation import enough, form
from loadtest.mishra.core.member import LARGEST_UPDATE, Member
from loadtest.mishra.core.messages import (
    BOOT_BITS,
    Atomicity,
    BadDatagram,
    Body,
    Datagram,
    Decision,
    Entry,
    Fate,
    Id,
    Join,
    NoDecision,
    Order,
    Place,
    Proposal,
    Reconfiguration,
    Update,
    decode,
    encode,
)
from loadtest.mishra.core.ordering import choose
from loadtest.mishra.core.settings import Settings, Timeout
from loadtest.mishra.core.stability import Stability, level
from tests.group.promises import judge
from tests.group.world import SETTINGS, World

LARGEST_DATAGRAM = 65_507
"""Bytes, of UDP over IPv4."""


class Watched(World):
    """Remembers what is sent and which views begin."""

    def __init__(self, team: int, *, acknowledge_at_once: bool = True) -> None:
        self.sent: Counter[str] = Counter()
        self.deciders: list[int] = []
        self.views: list[int] = []
        super().__init__(1, settings=replace(SETTINGS, team=team, acknowledge_at_once=acknowledge_at_once))

    def _carry_out(self, process: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                body = decode(effect.data).body
                self.sent[type(body).__name__] += 1
                if isinstance(body, Decision):
                    self.deciders.append(process)
            elif isinstance(effect, Joined) and effect.view not in self.views:
                self.views.append(effect.view)
        super()._carry_out(process, effects)


def together(team: int = 3) -> Watched:
    """A team in one group, a second after it began."""
    world = Watched(team)
    world.run(1.0, rate=0)
    world.sent.clear()
    world.deciders.clear()
    world.views.clear()
    return world


@pytest.mark.parametrize("team", [1, 2, 3, 5])
def test_a_team_forms_a_group(team: int) -> None:
    """All members are in one view; a team of one, too."""
    world = together(team)
    world.run(0.5)
    world.heal(1.0)
    judge(world)
    assert world.views == []


def test_every_member_is_decider_in_turn() -> None:
    """Decisions go around the ring, one in each decider timeout, and are all there is to send besides proposals."""
    world = together()
    world.run(1.0, rate=100)
    turns = world.deciders
    assert all(after == (before + 1) % 3 for before, after in pairwise(turns))
    assert 1.0 / (SETTINGS.decider + 0.003) <= len(turns) <= 1.0 / SETTINGS.decider
    assert world.sent["Proposal"] == len(world.proposed)
    assert set(world.sent) == {"Proposal", "Decision", "ClockMessage"}


@pytest.mark.parametrize(("at_once", "decisions"), [(True, 2), (False, 3)])
def test_stable_after_one_decision_of_each_other_member(at_once: bool, decisions: int) -> None:
    """All know it then: a decider acknowledges what it orders in the same decision, or else in its next."""
    world = Watched(3, acknowledge_at_once=at_once)
    world.run(1.0, rate=0)
    members = [member for member in world.members.values() if member]
    sequence, effects = members[0].propose(world.local(0), b"")
    assert sequence is not None
    world._carry_out(0, effects)
    before = members[0].history.end
    world.deciders.clear()
    while max(member.history.end for member in members) == before:
        world.run(0.0005, rate=0)
    world.deciders.clear()
    while min(member.state().stable for member in members) == before:
        world.run(0.0005, rate=0)
    assert len(world.deciders) == decisions


def test_the_longer_between_updates_the_more_messages_each() -> None:
    """As in the paper's Table 3: one proposal, and as many decisions as fit between two updates."""
    costs = []
    for rate in (100.0, 20.0):
        world = together()
        world.run(2.0, rate=rate)
        costs.append((world.sent["Proposal"] + world.sent["Decision"]) / len(world.proposed))
    assert costs[1] > 2 * costs[0]


def test_a_false_alarm_changes_nothing() -> None:
    """A decision that only its sender has is sent again when others tell of their suspicion; the view stays."""
    world = together()
    deciders: list[Member] = []
    while not deciders:
        world.run(0.001, rate=0)
        deciders = [member for member in world.members.values() if member and Timeout.DECIDER in member.deadlines]
    deciders[0].expire(Timeout.DECIDER, world.local(deciders[0].member))  # what it sends is lost
    world.run(SETTINGS.decision + 0.02, rate=0)
    assert world.sent["NoDecision"] >= 2
    world.run(0.5, rate=50)
    assert world.views == []
    world.heal(0.5)
    judge(world)


def test_a_new_decider_is_elected_when_one_crashes() -> None:
    """The others tell of the suspicion, and after the election timeouts one calls for a view without it."""
    world = together()
    crashed = 1
    world.crash(crashed)
    world.run(SETTINGS.decision + 3 * SETTINGS.election + SETTINGS.decider * 3 + 0.02, rate=0)
    assert len(world.views) == 1
    assert world.sent["NoDecision"] == 2
    assert world.sent["Reconfiguration"] == 2
    for process in (0, 2):
        member = world.members[process]
        assert member
        assert member.state().members == (0, 2)
    world.run(0.5, rate=50)
    world.heal(1.0)
    judge(world)
    assert world.sent["Join"] >= 1


def test_who_has_agreed_to_a_view_delivers_nothing_before_it() -> None:
    """What it has told the caller stays true: an update that comes meanwhile waits, and so do clients."""
    world = together()
    caller, asked, proposer = (world.members[process] for process in range(3))
    assert caller
    assert asked
    assert proposer
    caller._call(world.local(0))
    (call,) = (effect.data for effect in caller._done(world.local(0)) if isinstance(effect, Send))
    _, effects = proposer.propose(world.local(2), b"", Order.NONE)
    (proposal,) = (effect.data for effect in effects if isinstance(effect, Send))
    asked.receive(world.local(1), call)
    assert asked.receive(world.local(1), proposal) == []
    assert asked.propose(world.local(1), b"")[0] is None
    before = asked.state().delivered
    world.run(1.0, rate=0)
    assert asked.state().delivered == before + 1
    assert asked.state().in_group


def test_a_minority_is_no_group() -> None:
    """It takes no proposals, and goes on with the others when they are back, without having lost anything."""
    world = together()
    world.partition([0], [1, 2])
    world.run(1.0, rate=0)
    assert world.propose(0, Order.NONE, Atomicity.WEAK) is None
    assert world.propose(1, Order.NONE, Atomicity.WEAK) is not None
    world.heal(1.0)
    judge(world)
    assert world.propose(0, Order.NONE, Atomicity.WEAK) is not None


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("atomicity", Atomicity)
def test_every_semantic_without_faults(order: Order, atomicity: Atomicity) -> None:
    """All members deliver all updates, and each proposer learns that they are stable."""
    world = together()
    world.orders, world.atomicities = (order,), (atomicity,)
    world.run(1.0, rate=100)
    world.heal(1.0)
    judge(world)
    assert len(world.proposed) > 50
    assert set(world.outcomes.values()) == {Outcome.STABLE}
    for life in world.life.values():
        assert life
        assert life.delivered.keys() == world.proposed.keys()


def test_an_unordered_update_is_delivered_at_once() -> None:
    """By its proposer before anything is sent back; one in total order needs a decision first."""
    world = together()
    for order, now in ((Order.NONE, 1), (Order.TOTAL, 0)):
        update_id = world.propose(0, order, Atomicity.WEAK)
        life = world.life[0]
        assert life
        assert (update_id in life.delivered) == bool(now)


def test_what_cannot_be_proposed() -> None:
    """Too large an update is an error; one too many is refused."""
    world = together()
    world.settings = replace(SETTINGS, pending_limit=2)
    member = world.members[0]
    assert member
    member.settings = world.settings
    assert [member.propose(world.local(0), b"")[0] is None for _ in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match="at most"):
        member.propose(world.local(0), b"x" * (LARGEST_UPDATE + 1))


def test_a_late_datagram_is_dropped() -> None:
    """One that took longer than `late` is counted, and changes nothing; neither does rubbish."""
    world = together()
    sender, receiver = world.members[0], world.members[1]
    assert sender
    assert receiver
    _, effects = sender.propose(world.local(0), b"x", Order.NONE)
    datagram = next(effect.data for effect in effects if isinstance(effect, Send))
    before = receiver.state().delivered
    assert receiver.receive(world.local(1) + SETTINGS.late + 0.01, datagram) == []
    assert receiver.receive(world.local(1), b"rubbish") == []
    assert receiver.state().late_datagrams == 1
    assert receiver.state().bad_datagrams == 1
    assert receiver.state().delivered == before
    receiver.receive(world.local(1), datagram)
    assert receiver.state().delivered == before + 1


def test_a_member_leaves_when_its_clock_is_not_synchronized() -> None:
    """As the paper says (§3): nothing but its clock differs."""
    world = together()
    member = world.members[2]
    assert member
    member.clock._adjustment += 0.05
    member.clock.adjust = lambda local: None  # type: ignore[method-assign]
    effects = member.expire(Timeout.CLOCK, world.local(2))
    assert any(type(effect).__name__ == "Left" for effect in effects)
    assert not member.state().in_group


def test_clocks_come_together() -> None:
    """Clocks minutes apart agree within the longest round trip, and one that is started later goes by the others."""
    world = together()
    for _ in range(10):
        world.run(0.3, rate=0)
        times = [member.clock.time(world.local(process)) for process, member in world.members.items() if member]
        assert max(times) - min(times) < 0.006
    world.crash(0)
    before = world.members[1]
    assert before
    ahead = before.clock.time(world.local(1)) - world.local(1)
    world.start(0)
    world.run(1.0, rate=0)
    assert before.clock.time(world.local(1)) - world.local(1) == pytest.approx(ahead, abs=0.006)


def test_a_clock_is_read_within_half_the_round_trip() -> None:
    """An answer that took long says less, and is not used; moving is no further than is certain."""
    ours, theirs = (Clock(member, SETTINGS) for member in (0, 1))
    theirs.receive(0, ours.message(100.0), 500.001)
    ours.receive(1, theirs.message(500.002), 100.003)
    theirs.receive(0, ours.message(100.010), 500.011)
    ours.receive(1, theirs.message(500.012), 100.080)
    ours.adjust(100.1)
    assert ours.time(100.0) == pytest.approx(300.0, abs=0.002)


def update(proposer: int, sequence: int, order: Order = Order.TOTAL, stamp: float = 0.0) -> Update:
    return Update(proposer, (1 << BOOT_BITS) + sequence, order, Atomicity.WEAK, stamp, 0, b"")


PLACES = tuple(Place(member, 1, 1, 0, 1 << BOOT_BITS) for member in range(3))
START = (-math.inf, 0, 0)


def test_time_ordered_updates_wait_and_are_taken_oldest_first() -> None:
    """One that is too young waits, one older than the mark is refused, and one from the future."""
    loose = [update(1, 0, Order.TIME, 5.0), update(0, 0, Order.TIME, 6.0), update(2, 0, Order.TIME, 7.0)]
    chosen = choose(loose, PLACES, mark=START, settled=6.5, future=99.0, limit=10)
    assert [entry.proposer for entry in chosen.entries] == [1, 0]
    assert chosen.mark[0] == 6.0
    again = choose([update(1, 0, Order.TIME, 5.5)], PLACES, mark=chosen.mark, settled=6.5, future=99.0, limit=10)
    assert [entry.fate for entry in again.entries] == [Fate.LATE]
    assert again.mark == chosen.mark
    future = choose([update(2, 0, Order.TIME, 99.5)], PLACES, mark=START, settled=6.5, future=99.0, limit=10)
    assert [entry.fate for entry in future.entries] == [Fate.LATE]


def test_a_gap_in_a_sequence_holds_back_what_follows() -> None:
    """While its proposer is in the group; if not, nobody can send what is missing."""
    loose = [update(0, 0), update(0, 2), update(1, 1)]
    assert len(choose(loose, PLACES, mark=START, settled=0, future=9, limit=10).entries) == 1
    assert len(choose(loose, PLACES[2:], mark=START, settled=0, future=9, limit=10).entries) == 3
    assert len(choose(loose, PLACES[2:], mark=START, settled=0, future=9, limit=2).entries) == 2


def test_levels_of_stability() -> None:
    """Stable is what all of the group hold; the majority is that of the team, which may be more than the group has."""
    assert level((3, 9, 5), 2) == 5
    assert level((3,), 2) == 0
    stability = Stability(2)
    places = tuple(place.__class__(place.member, 1, 1, 10 * place.member, 0) for place in PLACES)
    stability.learn(Decision(1, 0, 0, places, 0, (), START), member=0, up_to=7)
    assert (stability.stable, stability.majority) == (7, 10)


def told(known: Decision | None, *, boot: int = 1, held: int = 0, ids: tuple[Id, ...] = ()) -> Reconfiguration:
    return Reconfiguration(9, False, (), boot, boot << BOOT_BITS, known, held, 0, ids)


def test_who_can_form_a_group() -> None:
    """A majority that knows the history; a majority if nobody knows any; or all."""
    known = Decision(1, 5, 0, PLACES, 0, (), START)
    assert not enough({0: told(known)}, 3)
    assert enough({0: told(known), 1: told(known)}, 3)
    assert not enough({0: told(known), 1: told(None)}, 3)
    assert enough({0: told(None), 1: told(None)}, 3)
    assert not enough({0: told(None)}, 3)
    assert enough({0: told(known), 1: told(None), 2: told(None)}, 3)


def test_a_view_goes_on_with_the_latest_history() -> None:
    """What nobody holds any more is lost, and what depends on it, unless that is weak."""
    ids = [(0, 1), (1, 1), (2, 1), (2, 2)]
    semantics = [Atomicity.WEAK, Atomicity.WEAK, Atomicity.STRONG, Atomicity.WEAK]
    entries = tuple(
        Entry(*known, Order.TOTAL, atomicity, at, Fate.DELIVERED)
        for at, (known, atomicity) in enumerate(zip(ids, semantics, strict=True))
    )
    latest, before = (Decision(1, number, 0, PLACES, 0, entries[:end], START) for number, end in ((7, 4), (6, 1)))
    decision = form(
        9, 0, {0: told(latest, held=1, ids=((2, 1), (2, 2))), 1: told(before, held=1), 2: told(None, boot=2)}
    )
    assert [entry.fate for entry in decision.entries] == [Fate.DELIVERED, Fate.LOST, Fate.LOST, Fate.DELIVERED]
    assert [place.joined for place in decision.places] == [1, 1, 9]
    assert [place.held for place in decision.places] == [1, 1, 0]
    assert decision.key == (9, 0)


def test_the_largest_datagrams_fit() -> None:
    """A decision with as many entries as there may be, and an answer with it and the ids of all, fit into UDP."""
    settings = Settings()
    boot = 2_000_000_000
    ids = [(2, (boot << BOOT_BITS) + number) for number in range(settings.entries_limit)]
    entries = tuple(Entry(*known, Order.TIME, Atomicity.STRICT, 2**33, Fate.LATE) for known in ids)
    places = tuple(Place(member, boot, 2**33, 2**33, ids[0][1]) for member in range(settings.team))
    known = Decision(2**33, 2**33, 0, places, 2**33, entries, (1e9, 2, ids[0][1]))
    loose = tuple((0, (boot << BOOT_BITS) + number) for number in range(settings.team * settings.pending_limit))
    body = Reconfiguration(2**33, False, (), boot, ids[0][1], known, 2**33, 2**33, (*ids, *loose))
    assert len(encode(Datagram(0, 1e9, body))) <= LARGEST_DATAGRAM
    largest = Update(*ids[0], Order.TIME, Atomicity.STRICT, 1e9, 2**33, bytes(LARGEST_UPDATE))
    assert len(encode(Datagram(0, 1e9, Proposal(largest)))) <= LARGEST_DATAGRAM


def test_the_wire_format() -> None:
    """Every message comes back as it was; rubbish is an error."""
    world = together()
    bodies: list[Body] = [
        Proposal(update(0, 0)),
        NoDecision(1, 2, 0),
        Join(1, 3),
        told(None),
        told(Decision(1, 5, 0, PLACES, 0, (), START)),
    ]
    member = world.members[0]
    assert member
    for body in bodies:
        member._send(world.local(0), (1,), body)
        (effect,) = member._done(world.local(0))
        assert isinstance(effect, Send)
        assert decode(effect.data).body == body
    for data in (b"", b"\xc1", b"\x93\x00\x00\x91\xa1z", b"\x93\x00\x00"):
        with pytest.raises(BadDatagram):
            decode(data)
