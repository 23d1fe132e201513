"""A member's core: time and datagrams in; datagrams, deliveries and the next deadlines out.

Decisions go around (§2; how is ours): whoever follows the last decider in the ring of members has the role for
`decider` seconds, then sends the next decision. While one is expected, each member has a decision timeout. When that
passes it tells the others of its suspicion, and whoever has a later decision sends it again: a false alarm costs
nothing else. When the election timeout passes too, the member calls for a new view.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from loadtest.mishra.core import ordering
from loadtest.mishra.core.clock import Clock
from loadtest.mishra.core.delivery import Delivery
from loadtest.mishra.core.effects import Delivered, Effect, Joined, Left, Send
from loadtest.mishra.core.formation import EMPTY, enough, first_lost, form
from loadtest.mishra.core.history import History
from loadtest.mishra.core.membership import Membership
from loadtest.mishra.core.messages import (
    BOOT_BITS,
    Atomicity,
    BadDatagram,
    Body,
    ClockMessage,
    Datagram,
    Decision,
    Join,
    NoDecision,
    Order,
    Place,
    Proposal,
    Reconfiguration,
    Request,
    Update,
    decode,
    encode,
)
from loadtest.mishra.core.repair import Repair
from loadtest.mishra.core.settings import Settings, Timeout
from loadtest.mishra.core.stability import Stability
from loadtest.mishra.core.termination import Termination

LARGEST_UPDATE = 32_000
"""Bytes of an update's data, so that it fits into a datagram."""

STAMP_STEP = 1e-6
"""Two updates of a proposer have stamps at least this far apart, s."""


class State(NamedTuple):
    """What a client that asks for the service's state gets (§2). The counts are since the process began."""

    in_group: bool
    view: int
    members: tuple[int, ...]
    delivered: int
    delivered_up_to: int
    stable: int
    late_datagrams: int
    bad_datagrams: int


class Member:
    """One process of the team. All times given are local seconds, never decreasing, not those of others.

    `boot` is greater each time that this process begins anew, without a memory. `deadlines`: what to `expire`, and
    when. `sent`: how many messages of each kind, each to however many members.
    """

    def __init__(self, member: int, *, boot: int, settings: Settings, now: float) -> None:
        self.member = member
        self.settings = settings
        self.in_group = False
        self.deadlines: dict[Timeout, float] = {Timeout.CLOCK: now, Timeout.DECISION: now + settings.join}
        self.clock = Clock(member, settings)
        self.sent: Counter[str] = Counter()
        self.history = History()
        self.stability = Stability(settings.majority)
        self.delivery = Delivery(self.history, self.stability)
        self._boot = boot
        self._membership = Membership(member, settings.team, settings.join)
        self._others = tuple(other for other in range(settings.team) if other != member)
        self._sequence = boot << BOOT_BITS
        self._stamp = -math.inf
        self._termination = Termination(member, settings.termination)
        self._repair = Repair(member, settings.request)
        self._counts = {"delivered": 0, "late": 0, "bad": 0}
        self._effects: list[Effect] = []

    def propose(
        self, now: float, data: bytes, order: Order = Order.TOTAL, atomicity: Atomicity = Atomicity.WEAK
    ) -> tuple[int | None, list[Effect]]:
        """Broadcast an update; returns its sequence, or None if that is not possible now, as outside of a group.

        Raises: ValueError if it is too large.
        """
        if len(data) > LARGEST_UPDATE:
            raise ValueError(f"an update has at most {LARGEST_UPDATE} bytes, not {len(data)}")
        limit = self.settings.pending_limit
        full = len(self._termination) >= limit or len(self.history.loose) >= limit * self.settings.team
        if not self._active or full:
            return None, []
        self._stamp = max(self.clock.time(now), self._stamp + STAMP_STEP)
        update = Update(self.member, self._sequence, order, atomicity, self._stamp, self.delivery.up_to, data)
        self._sequence += 1
        self._termination.begin(update.sequence, now)
        self._send(now, self._members(), Proposal(update))
        self._hold(update)
        return update.sequence, self._done(now)

    def receive(self, now: float, data: bytes) -> list[Effect]:
        """Take a datagram. One that is late, or none of ours, is counted and dropped."""
        try:
            datagram = decode(data)
        except BadDatagram:
            self._counts["bad"] += 1
            return []
        body = datagram.body
        if datagram.sender not in self._others:
            self._counts["bad"] += 1
        elif isinstance(body, ClockMessage):
            self.clock.receive(datagram.sender, body, now)
        elif not self.clock.synchronized(now):
            pass  # whether it is late cannot be known
        elif not self._in_time(now, datagram):
            self._counts["late"] += 1
        else:
            self._take(now, datagram.sender, body)
        return self._done(now)

    def expire(self, timeout: Timeout, now: float) -> list[Effect]:
        """One of the deadlines has passed."""
        self.deadlines.pop(timeout, None)
        match timeout:
            case Timeout.CLOCK:
                self._synchronize(now)
            case Timeout.DECIDER:
                self._decide(now)
            case Timeout.DECISION:
                self._suspect(now) if self.in_group else self._ask_to_join(now)
            case Timeout.ELECTION:
                self._elect(now)
        return self._done(now)

    def state(self) -> State:
        known = self.history.decision or EMPTY
        return State(
            self.in_group, known.view, known.members, self._counts["delivered"], self.delivery.up_to,
            self.stability.stable, self._counts["late"], self._counts["bad"],
        )  # fmt: skip

    @property
    def _active(self) -> bool:
        """In a group, and not about to be in the next."""
        known = self.history.decision
        return self.in_group and known is not None and known.view == self._membership.promised

    # Datagrams

    def _take(self, now: float, sender: int, body: Body) -> None:
        match body:
            case Proposal(update):
                if self.in_group:
                    self._hold(update)
            case Decision():
                self._apply(now, body)
            case NoDecision():
                self._answer_suspicion(now, sender, body)
            case Join(_, promised):
                self._membership.hear_join(sender, promised, now)
            case Reconfiguration():
                self._take_reconfiguration(now, sender, body)
            case Request(ids):
                for update_id in ids:
                    if held := self.history.held(update_id):
                        self._send(now, (sender,), Proposal(held))

    def _in_time(self, now: float, datagram: Datagram) -> bool:
        return datagram.sent >= 0 and self.clock.time(now) - datagram.sent <= self.settings.late

    def _hold(self, update: Update) -> None:
        if self.history.hold(update):
            self.delivery.hold(update)

    def _send(self, now: float, to: tuple[int, ...], body: Body) -> None:
        others = tuple(member for member in to if member != self.member)
        if others:
            sent = self.clock.time(now) if self.clock.synchronized(now) else -1.0
            self.sent[type(body).__name__] += 1
            self._effects.append(Send(others, encode(Datagram(self.member, sent, body))))

    def _members(self) -> tuple[int, ...]:
        return self.history.decision.members if self.history.decision else ()

    def _done(self, now: float) -> list[Effect]:
        """Deliver what can be delivered, drop what is stable, and return what there is to do."""
        if self._active:  # or what has been told for the next view would not be true any more
            self._deliver()
        self._effects += self._termination.expire(now)
        effects = self._effects
        self._effects = []
        return effects

    def _deliver(self) -> None:
        known = self.history.decision
        assert known is not None
        self.stability.learn(known, member=self.member, up_to=self.history.up_to)
        taken = self.delivery.take()
        self._counts["delivered"] += len(taken)
        self._effects += map(Delivered, taken)
        gone = self.history.trim(min(self.stability.stable, self.delivery.up_to))
        for entry in gone:
            self.delivery.forget(entry)
        self._effects += self._termination.settle(gone)

    # Decisions

    def _decide(self, now: float) -> None:
        """The decider's turn is over: send a decision, or call for a view in which those are who want to join."""
        known = self.history.decision
        if not self._active or known is None or known.after(known.decider) != self.member:
            return
        if self._membership.joining(now):
            self._call(now)
            return
        time = self.clock.time(now)
        settled, future = time - self.settings.settle, time + self.settings.late
        limit = self.settings.entries_limit - (self.history.end - self.history.base)
        chosen = ordering.choose(
            self.history.loose.values(), known.places, mark=known.mark, settled=settled, future=future, limit=limit
        )
        held = {at.member: self.stability.of(at.member) for at in known.places}
        if self.settings.acknowledge_at_once and self.history.up_to == self.history.end:
            held[self.member] = self.history.end + len(chosen.entries)  # it can only order what it holds
        places = tuple(
            Place(at.member, at.boot, at.joined, held[at.member], chosen.following[at.member]) for at in known.places
        )
        entries = (*self.history.entries, *chosen.entries)
        decision = Decision(known.view, known.number + 1, self.member, places, self.history.base, entries, chosen.mark)
        self._send(now, known.members, decision)
        self._apply(now, decision)

    def _apply(self, now: float, decision: Decision) -> None:
        """Follow a decision if it is later than the last one and this process is in its group."""
        known = self.history.decision or EMPTY
        place = decision.place(self.member)
        if decision.key <= known.key:
            return
        if place is None or place.boot != self._boot:
            self._membership.see(decision.view)
            self._membership.hear_group(now)
            if self.in_group and decision.view > known.view:
                self._leave(now, "excluded")
            return
        if decision.view < self._membership.promised:
            return
        anew = place.joined == decision.view and known.view != decision.view
        if anew:
            self._start(now, decision)
        else:
            self._follow(known, decision)
        if not self.in_group or decision.view != known.view:
            self.in_group = True
            self._effects.append(Joined(decision.view, decision.members, anew, decision.base))
        self._membership.install(decision.view)
        self.stability.learn(decision, member=self.member, up_to=self.history.up_to)
        self._await(now, decision)
        self._repair_losses(now, decision)

    def _start(self, now: float, decision: Decision) -> None:
        place = decision.place(self.member)
        assert place is not None
        self._sequence = place.following
        self.history.start(decision)
        self.delivery.start()
        self._effects += self._termination.give_up()

    def _follow(self, known: Decision, decision: Decision) -> None:
        for entry in self.history.follow(decision):
            self.delivery.drop(entry.id)
        if decision.view != known.view:
            lost = first_lost(known, decision)
            for update in list(self.history.loose.values()):
                if self._is_orphan(update, decision, lost):
                    del self.history.loose[update.id]
                    self.delivery.drop(update.id)

    def _is_orphan(self, update: Update, decision: Decision, lost: int | None) -> bool:
        """Whether it has lost what it depends on, along with its proposer."""
        place = decision.place(update.proposer)
        present = place and place.boot == update.sequence >> BOOT_BITS and update.sequence >= place.following
        if update.atomicity is Atomicity.WEAK or present:
            return False
        return update.depends_on > decision.end or (lost is not None and update.depends_on >= lost)

    def _await(self, now: float, decision: Decision) -> None:
        """Set the timeout for the next decision: ours, or another's."""
        for timeout in (Timeout.DECISION, Timeout.DECIDER, Timeout.ELECTION):
            self.deadlines.pop(timeout, None)
        if decision.after(decision.decider) == self.member:
            self.deadlines[Timeout.DECIDER] = now + self.settings.decider
        else:
            self.deadlines[Timeout.DECISION] = now + self.settings.decision

    def _repair_losses(self, now: float, decision: Decision) -> None:
        """Ask for what is missing, and send again what the others seem to miss."""
        if asked := self._repair.ask(self.history, decision, now):
            self._send(now, (asked.member,), Request(asked.ids))
        for update in self._repair.resend(self.history, self.clock.time(now), now):
            self._send(now, decision.members, Proposal(update))

    # Membership

    def _suspect(self, now: float) -> None:
        known = self.history.decision
        assert known is not None
        suspect = known.after(known.decider)
        self._send(now, known.members, NoDecision(known.view, known.number, suspect))
        members = known.members
        distance = (members.index(self.member) - members.index(suspect)) % len(members)
        self.deadlines[Timeout.ELECTION] = now + self.settings.election * max(1, distance)

    def _answer_suspicion(self, now: float, sender: int, told: NoDecision) -> None:
        """Whichever of the two has the later decision sends it."""
        known = self.history.decision
        if known is None or not self.in_group:
            return
        if known.key > (told.view, told.number):
            self._send(now, (sender,), known)
        elif known.key < (told.view, told.number):
            self._send(now, (sender,), NoDecision(known.view, known.number, sender))

    def _elect(self, now: float) -> None:
        """Nobody has decided: call for a new view. If we have, and few answered, there is no group any more."""
        call = self._membership.call
        if call is None:
            self._call(now)
        elif enough(call.answers, self.settings.team):
            self._form(now)
        else:
            self._membership.call = None
            self._leave(now, "no majority")

    def _call(self, now: float) -> None:
        call = self._membership.begin_call(set(self._members()) if self.in_group else set(), now)
        for timeout in (Timeout.DECISION, Timeout.DECIDER):
            self.deadlines.pop(timeout, None)
        self.deadlines[Timeout.ELECTION] = now + self.settings.election
        call.answers[self.member] = self._answer(call.view)
        alive = tuple(sorted(call.expected))
        self._send(now, self._others, Reconfiguration(call.view, True, alive, self._boot, 0, None, 0, 0, ()))
        if call.complete:
            self._form_if_enough(now)

    def _answer(self, view: int) -> Reconfiguration:
        history = self.history
        return Reconfiguration(
            view, False, (), self._boot, self._sequence, history.decision, history.up_to, history.base, history.ids()
        )

    def _take_reconfiguration(self, now: float, sender: int, told: Reconfiguration) -> None:
        call = self._membership.call
        if not told.calling:
            if call and call.view == told.view:
                call.answers[sender] = told
                self._form_if_enough(now)
        elif self._membership.promise(told.view):
            self._send(now, (sender,), self._answer(told.view))
            self.deadlines.pop(Timeout.DECIDER, None)
            self.deadlines.pop(Timeout.ELECTION, None)
            if self.in_group:
                self.deadlines.pop(Timeout.DECISION, None)
                self.deadlines[Timeout.ELECTION] = now + self.settings.election * (2 + self.member)

    def _form_if_enough(self, now: float) -> None:
        call = self._membership.call
        if call and call.complete and enough(call.answers, self.settings.team):
            self._form(now)

    def _form(self, now: float) -> None:
        call = self._membership.call
        assert call is not None
        decision = form(call.view, self.member, call.answers)
        self._send(now, self._others, decision)
        self._apply(now, decision)

    def _ask_to_join(self, now: float) -> None:
        self.deadlines[Timeout.DECISION] = now + self.settings.join
        if not self.clock.synchronized(now):
            return
        if self._membership.should_call(now):
            self._call(now)
            self.deadlines[Timeout.DECISION] = now + self.settings.join
        else:
            self._send(now, self._others, Join(self._boot, self._membership.promised))

    def _leave(self, now: float, reason: str) -> None:
        self.deadlines.pop(Timeout.DECIDER, None)
        self.deadlines.pop(Timeout.ELECTION, None)
        self.deadlines[Timeout.DECISION] = now + self.settings.join
        if self.in_group:
            self.in_group = False
            self._effects.append(Left(reason))
            self._effects += self._termination.give_up()

    # The clock

    def _synchronize(self, now: float) -> None:
        """Set the clock, let others read it, and leave the group if it is not synchronized (§3)."""
        self.clock.adjust(now)
        self._send(now, self._others, self.clock.message(now))
        self.deadlines[Timeout.CLOCK] = now + self.clock.period(now)
        if self.in_group and not self.clock.synchronized(now):
            self._leave(now, "clock not synchronized")
