"""What each update waits for: when a member holds it, when it has its ordinal, and when each acknowledgement comes.

Times are of the events in which a member learns these, by the one clock of the machine. A member sums them up; the
experiment adds the members. The protocol is watched from outside, so that it is the same with a trace and without.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from loadtest.mishra.core.effects import Delivered, Effect, Ended, Outcome
from loadtest.mishra.core.messages import Atomicity, Decision, Id, Order, Update
from loadtest.mishra.core.settings import Timeout
from loadtest.mishra.service import Service, asked_at

DELIVERED, STABLE = "delivered", "stable"
"""The names of the counts: of deliveries, and of own updates that are stable. All other sums are seconds."""

DELIVERY_WAITS = ("request", "decision", "passed over", "dependencies", "earlier updates")
"""What a delivery waits for, in this order: that the member holds the update; the next decision; a later one, because
that one gave it no ordinal; that enough members hold what it depends on; that the ordinals before it are delivered."""

STABILITY_WAITS = ("stable: request", "ordinal", "first", "last")
"""What stability waits for: that the proposer has the request; the ordinal; the acknowledgements of the others."""

OF_DECIDER, DECISIONS = "last is the decider's", "decisions"
"""Of how many stable updates the last acknowledgement is that of the member that gave them their ordinals, and how many
decisions came from the ordinal to the last acknowledgement."""

DECIDER, THIRD = "the decider that gave the ordinal", "the third member"


class _Ordinal(NamedTuple):
    """When an update got its ordinal, and from whom; `decisions`: how many there had been, with that one."""

    at: float
    ordinal: int
    decider: int
    decisions: int


class _Levels:
    """Values that only grow, with the time of each and how many decisions there had been."""

    def __init__(self) -> None:
        self.values = [0]
        self.when: list[tuple[float, int]] = [(0.0, 0)]

    def add(self, value: int, at: float, decisions: int) -> None:
        if value > self.values[-1]:
            self.values.append(value)
            self.when.append((at, decisions))

    def reached(self, value: int) -> tuple[float, int]:
        """Raises: IndexError if it was not."""
        return self.when[bisect_left(self.values, value)]


class Trace:
    """Watches a member. `service.traced` has the sums since the measurement began, and `service.example` what happened
    to the last update that another member gave its ordinal: seconds after the request, and decisions after the ordinal.
    """

    def __init__(self, service: Service) -> None:
        core = self._core = service.core
        self._sums = service.traced
        self._example = service.example
        self._now = 0.0
        self._held: dict[Id, float] = {}
        self._asked: dict[int, float] = {}
        self._ordinals: dict[Id, _Ordinal] = {}
        self._decision = (0, 0)
        self._decisions: list[float] = []
        self._begin_view()
        propose, receive, expire, hold = core.propose, core.receive, core.expire, core.history.hold

        def traced_propose(
            now: float, data: bytes, order: Order, atomicity: Atomicity
        ) -> tuple[int | None, list[Effect]]:
            self._now = now
            sequence, effects = propose(now, data, order, atomicity)
            self._learn(effects)
            return sequence, effects

        def traced_receive(now: float, data: bytes) -> list[Effect]:
            self._now = now
            return self._learn(receive(now, data))

        def traced_expire(timeout: Timeout, now: float) -> list[Effect]:
            self._now = now
            return self._learn(expire(timeout, now))

        def traced_hold(update: Update) -> bool:
            is_new = hold(update)
            if is_new:
                self._held[update.id] = self._now
                if update.proposer == core.member:
                    self._asked[update.sequence] = asked_at(update)
            return is_new

        for owner, name, traced in (
            (core, "propose", traced_propose),
            (core, "receive", traced_receive),
            (core, "expire", traced_expire),
            (core.history, "hold", traced_hold),
        ):
            setattr(owner, name, traced)

    def _begin_view(self) -> None:
        self._end = 0
        self._levels = {Atomicity.STRONG: _Levels(), Atomicity.STRICT: _Levels()}
        self._acknowledged: dict[int, _Levels] = {}

    def _learn(self, effects: list[Effect]) -> list[Effect]:
        known = self._core.history.decision
        if known is not None and known.key != self._decision:
            self._follow(known)
        stability, count = self._core.stability, len(self._decisions)
        self._levels[Atomicity.STRICT].add(stability.stable, self._now, count)
        self._levels[Atomicity.STRONG].add(stability.majority, self._now, count)
        for effect in effects:
            if isinstance(effect, Delivered):
                self._delivered(effect.update)
            elif isinstance(effect, Ended) and effect.outcome is Outcome.STABLE:
                self._stable(effect.sequence)
        return effects

    def _follow(self, decision: Decision) -> None:
        """Note the new ordinals, and who acknowledges what."""
        if decision.view != self._decision[0]:
            self._begin_view()
        self._decision = decision.key
        self._decisions.append(self._now)
        count = len(self._decisions)
        for ordinal in range(max(self._end, decision.base) + 1, decision.end + 1):
            update_id = decision.entries[ordinal - decision.base - 1].id
            self._ordinals[update_id] = _Ordinal(self._now, ordinal, decision.decider, count)
        self._end = decision.end
        for place in decision.places:
            if place.member != self._core.member:
                self._acknowledged.setdefault(place.member, _Levels()).add(place.held, self._now, count)

    def _delivered(self, update: Update) -> None:
        held = self._held.get(update.id)
        if held is None:
            return
        first = ordered = held
        if update.order is not Order.NONE and self._ordinals[update.id].at > held:
            ordered = self._ordinals[update.id].at
            first = self._decisions[bisect_left(self._decisions, held)]
        depends = self._depends(update, ordered)
        self._sums[DELIVERED] += 1
        times = (asked_at(update), held, first, ordered, depends, self._now)
        self._add(DELIVERY_WAITS, times)

    def _depends(self, update: Update, since: float) -> float:
        """When enough members held what the update depends on, or `since` if that was earlier."""
        if update.atomicity is Atomicity.WEAK:
            return since
        try:
            return max(since, self._levels[update.atomicity].reached(update.depends_on)[0])
        except IndexError:  # it was reached in an earlier view
            return since

    def _stable(self, sequence: int) -> None:
        update_id = self._core.member, sequence
        asked, held = self._asked.pop(sequence, None), self._held.get(update_id)
        ordered = self._ordinals.get(update_id)
        if asked is None or held is None or ordered is None:
            return
        try:
            found = sorted((levels.reached(ordered.ordinal), who) for who, levels in self._acknowledged.items())
        except IndexError:  # it was acknowledged in an earlier view
            return
        if not found:
            return
        ((first, _), _), ((_, decisions), who) = found[0], found[-1]
        self._sums[STABLE] += 1
        self._sums[OF_DECIDER] += who == ordered.decider
        before = ordered.decisions
        self._sums[DECISIONS] += decisions - before
        times = (asked, held, ordered.at, max(first, ordered.at), self._now)
        self._add(STABILITY_WAITS, times)
        if ordered.decider != self._core.member:
            self._example[:] = [
                ("held by its proposer", held - asked, 0),
                ("ordinal", ordered.at - asked, 0),
                *(
                    (f"acknowledged by {DECIDER if who == ordered.decider else THIRD}", at - asked, count - before)
                    for (at, count), who in found
                ),
                ("known to be stable", self._now - asked, decisions - before),
            ]

    def _add(self, names: tuple[str, ...], times: tuple[float, ...]) -> None:
        for name, begin, end in zip(names, times, times[1:], strict=False):
            self._sums[name] += end - begin
